"""A container that cannot be entered: its files are seen from the host, or the signal waits."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from fleetstop.lab import Started

from .bed import Bed, Ran
from .test_stop import _until
from .test_vantage import no_forks

pytestmark = pytest.mark.bed

INDEX = "model.safetensors.index.json"


def shards(box: Bed) -> list[Path]:
    return sorted(box.checkpoints.rglob("*.safetensors"))


def told(ran: Ran) -> str:
    return " ".join(ran.target["findings"]) + (ran.target["reason"] or "")


def held_before(ran: Ran) -> set[str]:
    """Why the first signal waited."""
    before = ran.events[: ran.names().index("signal_sent")]
    return {each["why"] for each in before if each["event"] == "holding"}


def in_a_gap(box: Bed, *more: str) -> Started:
    """Saves by itself only, three shards and their index, with 2.5 s of nothing open after each; on
    INT it leaves at once. The set that is being written is all that it will ever have saved."""
    job = box.start(
        *("--format", "sharded", "--save-every", "6", "--file-gap", "2.5", "--save-seconds", "0.4"),
        *("--no-save", *more),
    )
    _until(lambda: len(shards(box)) == 1, 60)
    time.sleep(0.3)  # it is closed
    return job


# ------------------------------------------------------------------------------- no PIDs left


def test_with_no_pids_left_a_signal_waits_between_two_shards(box: Bed) -> None:
    job = in_a_gap(box)
    no_forks(box)
    ran = box.run("stop", box.name, "--graceful", "--ladder", "INT/30", deadline=120)
    log = box.log(job)
    assert "saved sharded" in log, (log, ran.people)
    assert log.index("saved sharded") < log.index("KeyboardInterrupt"), log
    assert len(shards(box)) == 3
    assert list(box.checkpoints.rglob(INDEX))
    assert ran.code == 0, ran.people  # younger than max_loss
    assert [name for name, _ in ran.signals] == ["INT"]
    assert held_before(ran) == {"saving"}
    assert ran.target["checkpoint"]["complete"] is True
    assert ran.target["checkpoint"]["known_format"] is True
    assert "is not entered" in told(ran)
    assert "its files are seen from the host" in told(ran)
    assert ran.pct_calls == 1
