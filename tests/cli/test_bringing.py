"""launch, restart, redeploy, rollback without any host: what is wrong is told before one is met."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.cli.test_command_line import fleetstop, home

__all__ = ["home"]

HEAVY = ("asyncio", "asyncssh", "rich", "ruamel", "msgspec", "tenacity", "pathspec")


@pytest.fixture
def desk(home: Path) -> Path:
    """A directory with something to send, and with things that cannot be."""
    (home / "train.py").write_text("print(1)\n")
    (home / "empty").mkdir()
    os.mkfifo(home / "pipe")
    return home


WRONG = {
    "no file": (["redeploy", "ct200"], "no file is named"),
    "no such file": (["redeploy", "ct200", "nosuch.py"], "nosuch.py: there is no such file"),
    "an empty word": (["redeploy", "ct200", ""], "an empty word names no file"),
    "--to relative": (["redeploy", "ct200", "train.py", "--to", "src"], "--to src is no absolute"),
    "--to empty": (["redeploy", "ct200", "train.py", "--to", ""], "--to is empty"),
    "no group": (["redeploy", "@none", "train.py"], "no group 'none'"),
    "no target": (["launch", "ct999"], "no container or host 'ct999'"),
    "no job": (["restart", "ct200:nope"], "'nope' is no job of 'ct200'"),
    "--env without =": (["launch", "ct200", "--env", "A"], "--env A: write A=VALUE"),
    "--env without a name": (["restart", "ct200", "--env", "=1"], "--env '' is not the name"),
    "--env of ours": (["launch", "ct200", "--env", "FLEETSTOP_X=1"], "FLEETSTOP_ are our own"),
    "both": (["restart", "ct200", "--graceful", "--force"], "contradict each other"),
    "two playbooks": (
        ["redeploy", "ct200", "train.py", "-p", "now", "--ladder", "INT/3"], "exclude each other",
    ),
    "no time": (["launch", "ct200", "--timeout", "0"], "leaves no time"),
    "no job at an address": (["redeploy", "pve1/300", "train.py"], "has no job in the inventory"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_told_and_nothing_is_connected_to(desk: Path, name: str) -> None:
    words, said = WRONG[name]
    ran = fleetstop(desk, *words, "--json")
    assert (ran.returncode, ran.stdout) == (2, ""), ran.stderr
    assert said in ran.stderr
    assert "pve1.invalid" not in ran.stderr


def test_a_word_that_is_no_file_says_from_where_it_was_looked_for(desk: Path) -> None:
    assert f"paths count from {desk}" in fleetstop(desk, "redeploy", "ct200", "nosuch.py").stderr


@pytest.mark.parametrize(
    ("what", "said"),
    [("empty", "there is nothing to send in empty"), ("pipe", "is a pipe, no file to send")],
)
def test_what_cannot_be_sent_is_a_report_of_a_failed_deploy(
    desk: Path, what: str, said: str
) -> None:
    ran = fleetstop(desk, "redeploy", "ct200", what, "--json")
    assert ran.returncode == 7
    report = json.loads(ran.stdout)
    (only,) = report["targets"]
    assert (report["exit_code"], only["result"]) == (7, "deploy_failed")
    assert said in only["reason"]
    assert "NOT DEPLOYED" in ran.stderr
    assert "nothing was stopped, and no file replaced" in " ".join(ran.stderr.split())


def test_two_jobs_in_a_container_are_refused_and_named(desk: Path) -> None:
    ran = fleetstop(desk, "redeploy", "ct201", "train.py", "--json")
    (only,) = json.loads(ran.stdout)["targets"]
    assert (ran.returncode, only["result"]) == (5, "refused")
    assert "ct201:train, ct201:eval" in only["reason"]
    assert "name the job" in only["hint"]


def test_a_protected_job_is_not_even_connected_to(desk: Path) -> None:
    for words in (["redeploy", "ct201:train", "train.py"], ["restart", "ct201:train", "--force"]):
        ran = fleetstop(desk, *words, "--json")
        (only,) = json.loads(ran.stdout)["targets"]
        assert (ran.returncode, only["result"]) == (5, "refused")
        assert "protected" in only["reason"]


@pytest.mark.parametrize(
    "words",
    [
        ["redeploy"], ["rollback"], ["launch"], ["restart"],
        ["launch", "ct200", "ct201"], ["redeploy", "--force"],
    ],
)  # fmt: skip
def test_a_missing_word_or_one_too_many_is_a_mistake(desk: Path, words: list[str]) -> None:
    ran = fleetstop(desk, *words)
    assert ran.returncode == 2
    assert f"Usage: fleetstop {words[0]}" in ran.stderr


def test_a_file_that_is_named_like_an_option_is_named_by_its_path(desk: Path) -> None:
    """As `./--force` it is a file; `--force` itself agrees to nothing by being one."""
    (desk / "--force").write_text("x\n")
    taken = fleetstop(desk, "redeploy", "ct201", "./--force", "--graceful", "--json")
    assert taken.returncode == 5, taken.stderr  # two jobs: the file was read, --force not given
    option = fleetstop(desk, "redeploy", "ct201", "./--force", "--graceful", "--force")
    assert option.returncode == 2
    assert "contradict each other" in option.stderr


def test_what_stands_behind_the_first_dashes_is_the_job_s_own(desk: Path) -> None:
    """None of it is an option of ours: `--nonsense` would be a mistake before them."""
    ran = fleetstop(desk, "redeploy", "ct201", "train.py", "--json", "--", "--nonsense", "--", "x")
    assert ran.returncode == 5, ran.stderr
    assert json.loads(ran.stdout)["targets"][0]["result"] == "refused"
    assert fleetstop(desk, "redeploy", "ct201", "train.py", "--nonsense").returncode == 2


@pytest.mark.parametrize(
    ("words", "more"),
    [
        (["--env", "SEED=7", "--", "--lr", "1e-4"], ["--env", "SEED=7", "--", "--lr", "1e-4"]),
        (["--no-rollback"], ["--no-rollback"]),
        (["--env", "HF_TOKEN=abc"], None),
        (["--", "--hf-token", "abc"], None),
    ],
)
def test_the_same_once_more_can_be_told_unless_it_holds_a_secret(
    desk: Path, words: list[str], more: list[str] | None
) -> None:
    ran = fleetstop(desk, "restart", "ct201", "--events", *words)
    started = json.loads(ran.stdout.splitlines()[0])
    assert (started["event"], started["more"]) == ("started", more)
    assert "abc" not in ran.stdout + ran.stderr
