"""What carries a launched trainer, as words; whether its name is free, and it is found again."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from msgspec.structs import replace

from fleetstop.core.inventory import Job, Launch, Launcher, Match
from fleetstop.core.launching.launchers import (
    carried_in,
    carrier,
    in_the_way,
    not_found_again,
    prefix,
    question,
    words,
)
from tests.core.test_launch_spec import SPEC


def job(
    kind: Literal["setsid", "tmux", "systemd"] = "setsid",
    session: str | None = None,
    name: str = "train",
    **facts: Any,
) -> Job:
    match = facts.pop("match", Match(script="train.py"))
    return Job(name, match, launch=Launch(("a",), launcher=Launcher(kind, session)), **facts)


def test_by_itself_nothing_carries_it() -> None:
    for one in (job(), Job("train", Match(script="train.py"))):
        assert prefix(one) == ()
        assert (carrier(one), question(one), words(one, SPEC)) == (None, None, SPEC.words())
        assert in_the_way(one, "", frozenset()) is None


@pytest.mark.parametrize(
    ("one", "name"),
    [
        (job("tmux"), "fleetstop-train"),
        (job("tmux", name="train.v2"), "fleetstop-train_v2"),
        (job("tmux", "mine"), "mine"),
        (job("tmux", match=Match(tmux="run")), "run"),
        (job("tmux", "mine", match=Match(tmux="run")), "mine"),
        (job("systemd"), "fleetstop-train"),
        (job("systemd", name="train.v2"), "fleetstop-train.v2"),
    ],
)
def test_its_name(one: Job, name: str) -> None:
    assert carrier(one) == name
    assert (carried_in(one) or "").endswith(f" {name}")
    assert prefix(one)[3:5] == ("fleetstop", name)


@pytest.mark.parametrize("kind", ["tmux", "systemd"])
def test_in_a_pane_or_a_unit_somebody_stays(kind: Literal["tmux", "systemd"]) -> None:
    said = prefix(job(kind, stop_signal="INT"))
    assert said[:2] == ("sh", "-c")
    assert said[3:] == ("fleetstop", "fleetstop-train", "INT")
    assert "stay.py" in said[2]
    assert "TRIES" not in said[2]
    assert "KillMode=mixed" not in said[2]  # see the module: KILL for the trainer
    assert words(job(kind, stop_signal="INT"), SPEC)["prefix"] == list(said)


def test_a_signal_is_handed_on_only_where_it_is_known_to_make_it_save() -> None:
    assert words(job("systemd", stop_signal="USR1"), SPEC)["hand_on"] == "USR1"
    assert words(job("systemd"), SPEC)["hand_on"] is None
    assert prefix(job("systemd"))[5] == "TERM"
    # whoever types Ctrl-C into the pane may have meant something else
    assert words(job("tmux", stop_signal="INT"), SPEC)["hand_on"] is None


def test_a_pane_shows_the_log_where_there_is_one() -> None:
    logged = {**SPEC.words(), "log": "/workspace/train.log"}
    told = words(job("tmux"), replace(SPEC, log="/workspace/train.log"), "fleetstop stop ct200")
    assert told.pop("prefix")
    extra = {"output": "pane", "hand_on": None, "stop": "fleetstop stop ct200"}
    assert told == {**logged, **extra}
    assert words(job("tmux"), SPEC)["output"] == "log"


@pytest.mark.parametrize(
    ("answer", "ours", "said"),
    [
        ("", (), None),
        ("1 400\n", (), None),
        ("1 400\n0 500\n", (500, 501), None),
        ("1 400\n0 500\n", (501,), "(its first process is 500)"),
        ("0 500\n0 600\n", (500,), "(its first process is 600)"),
    ],
)
def test_a_session_with_another_living_pane_is_in_the_way(
    answer: str, ours: tuple[int, ...], said: str | None
) -> None:
    found = in_the_way(job("tmux", "run"), answer, frozenset(ours))
    assert (found is None) is (said is None)
    assert said is None or said in (found or "")
    assert (question(job("tmux", "run")) or ())[:5] == ("tmux", "list-panes", "-s", "-t", "=run")


@pytest.mark.parametrize(
    ("answer", "free"),
    [
        ("ActiveState=inactive\nMainPID=0\n", True),
        ("ActiveState=failed\nMainPID=0\n", True),
        ("MainPID=500\nActiveState=active\n", True),
        ("MainPID=500\nActiveState=deactivating\n", True),
        ("MainPID=600\nActiveState=active\n", False),
        ("MainPID=0\nActiveState=activating\n", False),
        ("", False),
    ],
)
def test_a_unit_of_somebody_else_is_in_the_way(answer: str, free: bool) -> None:
    found = in_the_way(job("systemd"), answer, frozenset({500}))
    assert (found is None) is free
    assert free or (found or "").startswith(
        "the unit fleetstop-train.service runs" if answer else "systemd does not run there"
    )


@pytest.mark.parametrize(
    ("one", "finds"),
    [
        (job(), True),
        (job("tmux"), True),
        (job("systemd"), True),
        (job("tmux", match=Match(tmux="run")), True),
        (job("tmux", "run", match=Match(tmux="run")), True),
        (job("tmux", "mine", match=Match(tmux="run")), False),
        (job(match=Match(tmux="run")), False),
        (job("systemd", match=Match(tmux="run")), False),
        (job("systemd", match=Match(unit="fleetstop-train.service")), True),
        (job("systemd", match=Match(unit="fleetstop-train")), True),
        (job("systemd", match=Match(unit="train.service")), False),
        (job(match=Match(unit="train.service")), False),
    ],
)
def test_a_launch_that_match_would_not_find_again_is_told(one: Job, finds: bool) -> None:
    assert (not_found_again(one) is None) is finds
