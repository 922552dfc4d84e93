"""Patterns of people on lines of a log: whatever they are, nobody is held up for long."""

from __future__ import annotations

import asyncio
import time

import msgspec
import pytest

from fleetstop.actions import patterns
from fleetstop.actions.patterns import last_match
from fleetstop.core.report import exit_code_of
from tests.actions.test_launching import EXPECTED, a_host, born, plan, run, trainers

YEARS = "(a+)+$"
LINE = "a" * 60 + "b"
LINES = ("loading", "step 1 loss 3 14K tok/s", "step 2 loss 2 15K tok/s \udc80", "saved")


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("tok/s", 2),
        (r"step \d+ .*tok/s", 2),
        (r"step 1\b.*tok", 1),
        ("^loading$", 0),
        (r"epoch \d+", None),
        ("epoch", None),
    ],
)
def test_the_last_line_that_matches_is_found(pattern: str, found: int | None) -> None:
    told = asyncio.run(last_match(pattern, LINES))
    assert (told.line, told.slow) == (None if found is None else LINES[found], False)
    assert asyncio.run(last_match(pattern, ())) == patterns.Tried()


def test_one_that_would_take_years_is_given_up_and_holds_up_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(patterns, "IN_TIME_S", 1.0)
    turns = 0

    async def story() -> patterns.Tried:
        nonlocal turns
        task = asyncio.ensure_future(last_match(YEARS, ("loading", LINE)))
        while not task.done():
            turns += 1
            await asyncio.sleep(0.01)
        return task.result()

    began = time.monotonic()
    assert asyncio.run(story()).slow
    assert time.monotonic() - began < 10.0
    assert turns > 10


def test_what_could_not_be_tried_is_never_called_healthy_nor_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It trains: nothing is sent, and nothing is promised."""
    monkeypatch.setattr(patterns, "IN_TIME_S", 0.5)
    host = a_host(born(says=((1.0, LINE),)))
    outcome, _ = run(host, plan(expected=msgspec.structs.replace(EXPECTED, log_matches=YEARS)))
    assert (outcome.result, exit_code_of(outcome)) == ("unreachable", 4)
    assert "took too long on a line of its log" in (outcome.reason or "")
    assert (host.sends(), len(trainers(host))) == ([], 1)
