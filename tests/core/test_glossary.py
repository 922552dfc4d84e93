from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from fleetstop import errors
from fleetstop.core import glossary
from fleetstop.core.report import HealthCheck, Result
from fleetstop.core.signals import Landing
from fleetstop.core.verdict import ORDER

# `check`: alive, hears (its stop signal), …, as the record has it
CHECKS = re.sub(r" \([^)]*\)|`", "", HealthCheck.__doc__ or "")
README = Path(__file__).resolve().parent.parent.parent / "README.md"
COMMANDS = {"status", "stop", "wait", "explain", "ls", "history", "restart", "rollback"}


def words(kind: glossary.Kind) -> list[str]:
    return [each.word for each in glossary.ALL if each.kind == kind]


def test_every_word_of_the_contract_is_explained() -> None:
    assert words("verdict") == list(ORDER)
    assert words("landing") == list(get_args(Landing))
    assert sorted(words("result")) == sorted(get_args(Result))
    section = README.read_text().partition("The reason of `unclean`")[2]
    named = section.partition("(")[2].partition(")")[0].replace(",", " ").split()
    assert len(named) == 8
    assert words("reason") == named
    assert words("check") == re.findall(r"check: ([a-z, ]+)\.", CHECKS)[0].split(", ")
    assert words("exit code") == [*map(str, range(9)), "70", "130"]


def test_every_error_s_exit_code_is_among_them() -> None:
    kinds = [each for each in vars(errors).values() if isinstance(each, type)]
    codes = {str(each.exit_code) for each in kinds if issubclass(each, errors.FleetstopError)}
    assert codes <= set(words("exit code"))


def test_the_readme_s_table_of_exit_codes_is_covered() -> None:
    section = README.read_text().partition("## Exit codes")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([0-9/ ]+) \|", section, re.MULTILINE)
    named = {code for row in rows for code in re.findall(r"[0-9]+", row)}
    assert {"0", "130"} <= named <= set(words("exit code"))


@pytest.mark.parametrize("each", glossary.ALL, ids=lambda each: f"{each.kind} {each.word}")
def test_each_is_plain_sentences_and_names_only_commands_that_exist(
    each: glossary.Meaning,
) -> None:
    assert each.means.endswith(".")
    assert each.seen.endswith(".")
    named = set(re.findall(r"fleetstop ([a-z]+)", each.next))
    assert named <= COMMANDS
    for word in re.findall(r"fleetstop explain (\w+)", each.next):
        assert glossary.explain(word)


def test_a_word_is_found_as_it_is_shown() -> None:
    assert [each.word for each in glossary.explain("not running")] == ["not_running"]
    assert [each.kind for each in glossary.explain("DEAF")] == ["verdict"]
    assert glossary.explain("deaff") == ()


def test_a_slip_finds_its_word() -> None:
    assert glossary.near("deff")[0] == "deaf"
    assert glossary.near("zombi") == ("zombie",)
    assert glossary.near("respawnd") == ("respawned",)
    assert glossary.near("qqqq") == ()
