"""One that waits, armed, for a client that is gone; another run comes, and takes its place."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts.activation import NEW, OLD, Activator, alive, until

NEXT = "20261130-0900-8a4b"
NEWER = NEW.replace("new", "newer")


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Activator]:
    made = Activator(tmp_path)
    made.old("train.sh", OLD)
    made.new("train.sh", NEW)
    made.log.write_text("old tok/s\n")
    yield made
    made.close()


@pytest.fixture
def old(job: Activator) -> subprocess.Popen[bytes]:
    """It has heard a signal: its end may come at any moment."""
    running = job.runs()
    job.begin("armed", stale_s=0.3, patience_s=300)
    until(lambda: job.state["order"] == "armed", "it is armed")
    return running


@pytest.fixture
def other(job: Activator, old: object) -> Iterator[Activator]:
    made = Activator(job.place, run=NEXT)
    made.new("train.sh", NEWER)
    made.spec |= {
        "release": "r3", "gone": job.spec["gone"], "launch": made.launch("next"),
        "launch_old": made.launch("next-old"), "succeeds": job.run, "stale_s": 0.3,
        "patience_s": 300,
    }  # fmt: skip
    yield made
    made.close()


def left(job: Activator) -> list[str]:
    """Of this run alone: the other has taken room too."""
    return [name for name in job.litter() if job.run in name]


def ends(old: subprocess.Popen[bytes]) -> None:
    old.kill()
    old.wait()


def test_it_is_armed_as_the_one_was_whose_place_it_takes(
    job: Activator, old: subprocess.Popen[bytes], other: Activator
) -> None:
    """Its own client has not said a word yet, and never will."""
    first = job.activator
    job.spec["files"].clear()
    other.begin()
    assert not alive(*first)
    assert (other.state["run"], other.state["order"]) == (NEXT, "armed")
    assert left(job) == []
    time.sleep(0.6)
    assert other.state["step"] == "waiting"
    ends(old)
    state = other.end("healthy")
    assert (state["release"], state["before"]) == ("r3", "r1")
    assert (job.dest / "train.sh").read_text() == NEWER
    assert (job.base / "releases/r1/files/train.sh").read_text() == OLD
    assert sorted(each.name for each in (job.base / "releases").iterdir()) == ["r1", "r3"]
    assert left(other) == []


def test_the_way_back_that_the_first_had_kept_is_the_seconds_too(
    job: Activator, old: subprocess.Popen[bytes], other: Activator
) -> None:
    other.new("train.sh", "exit 3\n")
    del other.spec["files"][0]
    other.begin()
    ends(old)
    other.end("rolled_back")
    assert (job.dest / "train.sh").read_text() == OLD
    other.runs_now("next-old")


def test_cancelled_it_leaves_nothing_of_either(
    job: Activator, old: subprocess.Popen[bytes], other: Activator
) -> None:
    """But the copy of what lies there, which is harmless; also of directories that both needed."""
    third = Activator(job.place, run="20261130-0950-9c5d")
    third.new("configs/deep/a.yaml", "x: 2\n")
    third.spec |= {key: other.spec[key] for key in ("gone", "stale_s", "patience_s")}
    third.spec |= {"launch": third.launch("third"), "launch_old": None, "succeeds": NEXT}
    other.new("configs/deep/a.yaml", "x: 1\n")
    other.begin()
    third.begin()
    third.order("cancel")
    third.end("cancelled")
    assert not (job.dest / "configs").exists()
    assert (job.litter(), other.litter(), third.litter()) == ([], [], [])
    assert old.poll() is None


def refused(other: Activator, why: str) -> None:
    code, line = other.ask()
    assert (code, why in line) == (1, True), line
    assert left(other) == []


def test_where_it_cannot_be_prepared_the_first_waits_on(
    job: Activator, old: subprocess.Popen[bytes], other: Activator
) -> None:
    other.spec["files"][0]["sha256"] = "0" * 64
    refused(other, "is not what was sent")
    assert job.state["run"] == job.run
    ends(old)
    job.end("healthy")
    assert (job.dest / "train.sh").read_text() == NEW


def test_one_that_cannot_hear_it_is_not_sent_off_later(
    job: Activator, old: subprocess.Popen[bytes], other: Activator
) -> None:
    """Stopped, say: going on it would read that it was relieved, and nobody would wait."""
    pid, _ = job.activator
    os.kill(pid, signal.SIGSTOP)
    try:
        refused(other, f"run {job.run} is at it: waiting")
    finally:
        os.kill(pid, signal.SIGCONT)
    ends(old)
    job.end("healthy")
    assert (job.dest / "train.sh").read_text() == NEW


def test_one_that_was_killed_meanwhile_leaves_its_place_and_its_litter(
    job: Activator, old: subprocess.Popen[bytes], other: Activator
) -> None:
    pid, start = job.activator
    os.kill(pid, signal.SIGKILL)
    until(lambda: not alive(pid, start), "it is gone")
    other.begin()
    assert other.state["order"] == "armed"
    assert left(job) == []
    ends(old)
    other.end("healthy")
    assert (job.dest / "train.sh").read_text() == NEWER


@pytest.mark.parametrize("at", ["before", "in the last moment"])
def test_what_has_gone_on_by_itself_is_not_replaced_beside_it(
    job: Activator, old: subprocess.Popen[bytes], other: Activator, at: str
) -> None:
    if at == "before":
        ends(old)
        job.end("healthy")
    else:  # its state says more than was known when all this began
        relief = (other.base / "relief.py").read_text()
        slow = relief.replace("        if self.former is None:\n            return False\n",
                              "        time.sleep(1.5)\n", 1)  # fmt: skip
        assert slow != relief
        (other.base / "relief.py").write_text(slow)
        subprocess.Popen(["sh", "-c", f"sleep 0.4; kill -9 {old.pid}"], start_new_session=True)
    refused(other, f"run {job.run} ")
    old.wait()
    job.end("healthy")
    job.runs_now("new")
    assert (job.dest / "train.sh").read_text() == NEW


def test_a_run_that_came_in_between_is_nobody_whose_place_was_asked_for(
    job: Activator, old: subprocess.Popen[bytes], other: Activator
) -> None:
    other.spec["succeeds"] = "20261130-0700-0000"
    refused(other, f"run {job.run} is at it: waiting")
    assert alive(*job.activator)


def test_who_comes_without_a_word_of_it_is_refused(
    job: Activator, old: subprocess.Popen[bytes], other: Activator
) -> None:
    del other.spec["succeeds"]
    refused(other, f"run {job.run} is at it: waiting")


def test_a_disk_that_fills_in_the_last_moment_leaves_somebody_waiting(
    job: Activator, old: subprocess.Popen[bytes], other: Activator
) -> None:
    """The other has left by then: a state that cannot be told holds up nothing."""
    record = (other.base / "record.py").read_text()
    full = record.replace(
        "        with wary.doing(\"write\", path):\n",
        "        if step == 'waiting':\n            raise OSError(28, 'full')\n"
        "        with wary.doing(\"write\", path):\n",
    )  # fmt: skip
    assert full != record
    (other.base / "record.py").write_text(full)
    code, line = other.ask()
    assert (code, line.split()[0]) == (0, "waiting"), line
    assert job.state["step"] == "cancelled"
    ends(old)
    until(lambda: job.state["run"] == NEXT, "it tells of itself")
    other.end("healthy")
    assert (job.dest / "train.sh").read_text() == NEWER
