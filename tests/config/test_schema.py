"""The schemas against the readers: what a reader takes a schema takes; most else it refuses."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from fleetstop.config import schema
from fleetstop.config.inventory import read_inventory
from fleetstop.config.playbook import read_playbook
from fleetstop.config.spot import read_yaml
from fleetstop.core.durations import DURATION_PATTERN, FINITE_PATTERN, parse_duration
from fleetstop.core.playbook import RECIPIENTS
from fleetstop.core.signals import NUMBERS, canonical
from fleetstop.core.verdict import ORDER
from fleetstop.errors import BadConfig, BadUsage
from tests.config.test_inventory_files import BAD_INVENTORIES
from tests.config.test_playbook_files import BAD_PLAYBOOKS, BASE

ROOT = Path(__file__).resolve().parents[2]
PLAYBOOK = Draft202012Validator(schema("playbook"))
INVENTORY = Draft202012Validator(schema("inventory"))

# What only the reader can say, by a piece of what it says, and why the schema cannot.
BEYOND_PLAYBOOK = {
    "is in when and in unless": "two lists against each other",
    "nothing on this ladder asks": "all rungs together",
    "await is the last rung": "JSON Schema has no last item",
    "lossless: true needs a hold": "the hold stands elsewhere",
    "on a signal is for a second one": "left to the reader: its words explain",
    "cannot be lossless: true": "left to the reader: its words explain",
    "must be from 10ms to 10s": "text has no size to compare",
    "unknown placeholder": "left to the reader: it has the nearest one",
    "no playbook": "other files",
    "there is no": "other files",
    "it extends itself": "other files",
}
BEYOND_INVENTORY = {
    "is already taken": "names of different kinds",
    "key 'ssh' is missing": "may stand in another file's defaults",
    "key 'host' is missing": "may stand in another file's defaults",
    "key 'match' is missing": "may stand in another file's defaults",
    "not '022'": "in YAML 1.2 that is 22",
    "a port is not written after": "addresses have a grammar of their own",
    "no host 'pve2'": "names that must exist",
    "VMID 100 on pve1 is": "two containers against each other",
    ".gitignore": "patterns have a grammar of their own",
    "a ( that is not closed": "a regular expression's own grammar",
    "fits no container": "names that must exist",
    "no container or host": "names that must exist",
    "is an address": "addresses have a grammar of their own",
    "contain each other": "groups against each other",
}


def parsed(text: str) -> Any:
    """As a program would have it that reads YAML 1.2; raises YAMLError."""
    return YAML(typ="safe", pure=True).load(text)


def refusal(validator: Any, text: str) -> str:
    """What the schema, or the YAML reader before it, has against a file; empty for nothing."""
    try:
        value = parsed(text)
    except YAMLError as error:
        return type(error).__name__
    return "; ".join(each.message for each in validator.iter_errors(value))


def excuse(message: str | None, beyond: dict[str, str]) -> str | None:
    found = [piece for piece in beyond if piece in (message or "no container or host")]
    return found[0] if found else None


@pytest.mark.parametrize("kind", ["playbook", "inventory"])
def test_it_is_a_schema_of_the_draft_it_names(kind: str) -> None:
    said = schema(kind)
    assert said["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    Draft202012Validator.check_schema(said)
    assert json.loads(json.dumps(said)) == said


@pytest.mark.parametrize("pattern", sorted(
    {each for kind in ("playbook", "inventory") for each in re.findall(
        r'"pattern": "((?:[^"\\]|\\.)*)"', json.dumps(schema(kind)))}
))  # fmt: skip
def test_every_pattern_is_one_that_editors_can_read_too(pattern: str) -> None:
    """ECMA 262 has no named groups of Python's kind, no \\A, no \\Z and no inline flags."""
    text = json.loads(f'"{pattern}"')
    re.compile(text)
    assert not re.search(r"\(\?P|\\A|\\Z|\(\?[aiLmsux]", text)
    assert text.startswith(("^", r"\S"))


def test_an_editor_has_words_for_the_keys_of_a_playbook() -> None:
    top = schema("playbook")["properties"]
    rungs = [each["properties"] for each in top["ladder"]["items"]["oneOf"]]
    assert [key for table in (top, *rungs) for key, each in table.items()
            if not each.get("description")] == []  # fmt: skip


@pytest.mark.parametrize("path", sorted((ROOT / "playbooks").glob("*.yaml")), ids=lambda p: p.name)
def test_every_stock_playbook_is_taken(path: Path) -> None:
    assert refusal(PLAYBOOK, path.read_text()) == ""


@pytest.mark.parametrize("path", sorted((ROOT / "inventory").glob("*.yaml")), ids=lambda p: p.name)
def test_every_example_inventory_is_taken(path: Path) -> None:
    assert refusal(INVENTORY, path.read_text()) == ""


@pytest.mark.parametrize(("text", "message"), BAD_PLAYBOOKS)
def test_a_bad_playbook_is_refused(text: str, message: str) -> None:
    assert refusal(PLAYBOOK, text) or excuse(message, BEYOND_PLAYBOOK)


@pytest.mark.parametrize(("text", "message"), BAD_INVENTORIES)
def test_a_bad_inventory_is_refused(text: str, message: str | None) -> None:
    assert refusal(INVENTORY, text) or excuse(message, BEYOND_INVENTORY)


def test_every_excuse_is_needed() -> None:
    for validator, bad, beyond in (
        (PLAYBOOK, BAD_PLAYBOOKS, BEYOND_PLAYBOOK),
        (INVENTORY, BAD_INVENTORIES, BEYOND_INVENTORY),
    ):
        used = {excuse(said, beyond) for text, said in bad if not refusal(validator, text)}
        assert set(beyond) - used == set()


def spoiled(value: Any) -> Iterator[Any]:
    """The same file with one key misspelt, or one value of another kind."""
    if isinstance(value, dict):
        for key, each in value.items():
            rest = {k: v for k, v in value.items() if k != key}
            yield {**rest, key + "x": each}
            for other in spoiled(each):
                yield {**value, key: other}
    elif isinstance(value, list):
        for index, each in enumerate(value):
            for other in spoiled(each):
                yield [*value[:index], other, *value[index + 1 :]]
    else:
        yield {"a": "mapping"}


@pytest.mark.parametrize("path", sorted((ROOT / "playbooks").glob("*.yaml")), ids=lambda p: p.name)
def test_a_stock_playbook_with_one_thing_wrong_is_refused_by_both(path: Path) -> None:
    versions = list(spoiled(parsed(path.read_text())))
    assert len(versions) > 10
    for each in versions:
        text = json.dumps(each)
        assert refusal(PLAYBOOK, text), text
        with pytest.raises(BadConfig):
            read_playbook("p", read_yaml(text, "f.yaml"))


def test_an_inventory_with_one_thing_wrong_is_refused_by_both() -> None:
    example = parsed((ROOT / "inventory/fleet.yaml").read_text())
    names = {"pve1x", "box7x", "ct200x", "trainx", "trainingx", "DFLASH_PROFILE_INTERVALx"}
    checked = 0
    for each in spoiled(example):
        text = json.dumps(each)
        if any(f'"{name}"' in text for name in names):
            continue  # another name of the user's own
        assert refusal(INVENTORY, text), text
        with pytest.raises(BadConfig):
            read_inventory([read_yaml(text, "f.yaml")], lambda _: Path("/x"))
        checked += 1
    assert checked > 30


WAITS = st.sampled_from(["3m", "90s", "1h30m", "forever", "1.5h", " 2m ", "100ms", 30, 0.5, "0", 7])
SIGNALS = st.sampled_from(["INT", "SIGterm", "kill", "usr1", "stop_signal", 15, 9, "010", "SIG2"])
VERDICTS = st.sampled_from(ORDER) | st.lists(st.sampled_from(ORDER), min_size=1, max_size=3)
EXTRAS: dict[str, st.SearchStrategy[Any]] = {
    "lossless": st.booleans(),
    "when": VERDICTS,
    "unless": VERDICTS,
}
ACTS: dict[str, st.SearchStrategy[Any]] = {**EXTRAS, "again": st.booleans()}
WORDS = st.lists(st.sampled_from(["a", "b c", "{unit}", "7", ""]), min_size=1, max_size=3)
RUNGS = st.one_of(
    st.fixed_dictionaries(
        {"signal": SIGNALS, "to": st.sampled_from(RECIPIENTS), "wait": WAITS}, optional=ACTS
    ),
    st.fixed_dictionaries(
        {"run": st.sampled_from(["x; y", "true", ""]) | WORDS, "wait": WAITS}, optional=ACTS
    ),
    st.fixed_dictionaries({"touch": st.sampled_from(["/x", "x"]), "wait": WAITS}, optional=ACTS),
    st.fixed_dictionaries({"keys": st.sampled_from(["C-c", "q Enter"]), "wait": WAITS},
                          optional=ACTS),
    st.fixed_dictionaries({"await": st.just("checkpoint"), "wait": WAITS}, optional=EXTRAS),
)  # fmt: skip
PLAYBOOKS = st.fixed_dictionaries(
    {"ladder": st.lists(RUNGS, max_size=4)},
    optional={
        "lossless": st.booleans(),
        "hold": st.just("none") | st.fixed_dictionaries({}, optional={"saving": WAITS}) | st.none(),
        "verify": st.fixed_dictionaries({}, optional={"within": WAITS}) | st.none(),
        "probe": st.fixed_dictionaries({}, optional={"every": WAITS}) | st.none(),
    },
)


@settings(max_examples=400, deadline=None)
@given(PLAYBOOKS)
def test_what_the_reader_takes_the_schema_takes(playbook: dict[str, Any]) -> None:
    text = json.dumps(playbook)
    said = ""
    try:
        read_playbook("p", read_yaml(text, "f.yaml"))
    except BadConfig as error:
        said = error.message
    if not said:
        assert refusal(PLAYBOOK, text) == ""
    elif not refusal(PLAYBOOK, text):
        assert any(piece in said for piece in BEYOND_PLAYBOOK), said


@given(
    st.text(alphabet="0123456789.dhms forever", max_size=9)
    | st.from_regex(DURATION_PATTERN, fullmatch=True)
)
def test_a_duration_is_one_for_both(text: str) -> None:
    try:
        seconds = parse_duration(text)
    except BadUsage:
        assert not re.search(DURATION_PATTERN, text)
    else:
        assert re.search(DURATION_PATTERN, text)
        assert bool(re.search(FINITE_PATTERN, text)) is (seconds != float("inf"))


SIGNAL = Draft202012Validator(schema("playbook")["properties"]["ladder"]["items"]["oneOf"][0]
                              ["properties"]["signal"])  # fmt: skip


@given(
    st.from_regex(r"(sig|SIG|Sig)?[A-Z]{2,5}", fullmatch=True)
    | st.sampled_from([*NUMBERS, *map(str, NUMBERS.values()), "stop_signal", "Stop_Signal", "0"])
    | st.from_regex(r"[0-9]{1,3}", fullmatch=True)
)
def test_a_signal_is_one_for_both(text: str) -> None:
    known = canonical(text) is not None or text == "stop_signal"
    assert SIGNAL.is_valid(text) is known


def test_a_rule_of_lossless_playbooks_is_seen_by_both_alone() -> None:
    """The file above is right, and each of these differs from it in one thing."""
    assert refusal(PLAYBOOK, BASE) == ""
    for rung in (
        "{signal: KILL, to: trainers, wait: 1}",
        "{signal: 9, to: trainers, wait: 1}",
        "{signal: INT, to: tree, wait: 1}",
        "{signal: INT, to: trainers, wait: 1, again: true}",
        "{run: x, wait: 1}",
        "{keys: C-c, wait: 1, lossless: false}",
    ):
        text = BASE.replace("hold:", f"  - {rung}\nhold:")
        assert refusal(PLAYBOOK, text), rung
        assert refusal(PLAYBOOK, text.replace("lossless: true\n", "", 1)) == "", rung
        with pytest.raises(BadConfig):
            read_playbook("p", read_yaml(text, "f.yaml"))
