"""A dry run of each row: the exact PIDs and signals, nothing sent, nothing written, at once."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleetstop.lab import Started

from .bed import Bed, Ran, alive

pytestmark = pytest.mark.bed

Plan = list[tuple[str, str, str]]
SLOW = ("--save-seconds", "20", "--save-memory-fraction", "0.5")
TWO_JOBS = (
    "setsid -f bash -c 'cd /root; python3 -u train.py --ignore INT,TERM"
    " >/workspace/train.log 2>&1 & python3 -u other.py & wait' >/dev/null 2>&1 </dev/null"
)
SHORT = ("--force", "--ladder", "INT/2 TERM/2 KILL:tree/5")


def _suspended(box: Bed) -> Started:
    job = box.start()
    os.kill(job.process.pid, signal.SIGSTOP)
    time.sleep(0.1)
    return job


# how the job is started, the words after `stop NAME`, and what the plan says of each rung
ROWS: dict[str, tuple[Callable[[Bed], Started], tuple[str, ...], Plan]] = {
    "polite": (
        lambda box: box.start(),
        ("--graceful",),
        [("INT", "send", "heard"), ("TERM", "skip", "fatal"), ("KILL", "skip", "fatal")],
    ),
    "deaf": (
        lambda box: box.start(how="deaf"),
        ("--graceful",),
        [("INT", "skip", "ignored"), ("TERM", "skip", "fatal"), ("KILL", "skip", "fatal")],
    ),
    "deaf with force": (
        lambda box: box.start(how="deaf"),
        ("--force",),
        [("INT", "skip", "ignored"), ("TERM", "send", "fatal"), ("KILL", "send_if", "fatal")],
    ),
    "deaf that saves on TERM": (
        lambda box: box.start("--on", "TERM", how="deaf"),
        ("--graceful",),
        [("INT", "skip", "ignored"), ("TERM", "send", "heard"), ("KILL", "skip", "fatal")],
    ),
    "ignores all": (
        lambda box: box.start("--ignore", "INT,TERM"),
        ("--force",),
        [("INT", "skip", "ignored"), ("TERM", "skip", "ignored"), ("KILL", "send", "fatal")],
    ),
    "ignores all, no consent": (
        lambda box: box.start("--ignore", "INT,TERM"),
        (),
        [("INT", "skip", "ignored"), ("TERM", "skip", "ignored"), ("KILL", "skip", "fatal")],
    ),
    "decoys around it": (
        lambda box: (box.lab.decoys(box.vmid), box.start("--ignore", "INT,TERM"))[1],
        ("--force",),
        [("INT", "skip", "ignored"), ("TERM", "skip", "ignored"), ("KILL", "send", "fatal")],
    ),
    "a second job of the session": (
        lambda box: box.start(TWO_JOBS, how="raw", trainers=1),
        ("--force",),
        [("INT", "skip", "ignored"), ("TERM", "skip", "ignored"), ("KILL", "send", "fatal")],
    ),
    "exits without saving": (
        lambda box: box.start("--no-save"),
        ("--graceful",),
        [("INT", "send", "heard"), ("TERM", "skip", "fatal"), ("KILL", "skip", "fatal")],
    ),
    "slow to save": (
        lambda box: box.start(*SLOW),
        SHORT,
        [("INT", "send", "heard"), ("TERM", "send_if", "fatal"), ("KILL", "send_if", "fatal")],
    ),
    "suspended": (
        _suspended,
        ("--graceful",),
        [("INT", "send", "heard"), ("TERM", "skip", "fatal"), ("KILL", "skip", "fatal")],
    ),
    "tee": (
        lambda box: box.start(how="tee"),
        ("--graceful",),
        [("INT", "send", "heard"), ("TERM", "skip", "fatal"), ("KILL", "skip", "fatal")],
    ),
}


def _planned(ran: Ran) -> Plan:
    return [(each["signal"], each["would"], each["landing"]) for each in ran.target["plan"]]


def _untouched(box: Bed, job: Started, ran: Ran) -> None:
    assert ran.signals == []
    assert "signal_sent" not in ran.names()
    assert all(alive(each.pid, each.start) for each in job.trainers)
    assert box.signals_seen(job) == 0
    assert box.lock_files() == []
    assert not Path(f"/run/lock/fleetstop.{box.vmid}").exists()
    assert ran.seconds < 25


@pytest.mark.parametrize("row", ROWS)
def test_a_plan_names_signals_and_pids(box: Bed, row: str) -> None:
    start, words, plan = ROWS[row]
    job = start(box)
    ran = box.run("stop", box.name, *words, "--dry-run")
    assert (ran.code, ran.target["result"]) == (0, "planned"), ran.people
    assert _planned(ran) == plan
    first = next((each for each in ran.target["plan"] if each["would"] == "send"), None)
    if first is not None and first["to"] == "trainers":
        assert first["pids"] == [job.pid]
    planned = {pid for each in ran.target["plan"] for pid in each["pids"]}
    assert planned <= {each["pid"] for each in ran.target["family"]}
    _untouched(box, job, ran)


def test_the_plan_for_ranks_reaches_all_and_no_worker(box: Bed) -> None:
    job = box.start("--ranks", "3", "--workers", "1")
    ran = box.run("stop", box.name, "--graceful", "--dry-run")
    assert ran.code == 0, ran.people
    first: dict[str, Any] = ran.target["plan"][0]
    trainers = {each["pid"] for each in ran.target["family"] if each["role"] == "trainer"}
    assert (first["signal"], set(first["pids"])) == ("INT", trainers)
    assert len(trainers) == 3
    _untouched(box, job, ran)


def test_nothing_to_plan(box: Bed) -> None:
    ran = box.run("stop", box.name, "-n")
    assert (ran.code, ran.target["result"]) == (0, "not_running"), ran.people
    box.lab.stop(box.vmid)
    ran = box.run("stop", box.name, "-n")
    assert (ran.code, ran.target["result"]) == (0, "not_running"), ran.people
    box.lab.boot(box.vmid)


def test_two_trees_are_refused_in_a_dry_run_too(box: Bed) -> None:
    job, other = box.start(), box.start()
    ran = box.run("stop", box.name, "-n")
    assert (ran.code, ran.target["result"]) == (5, "refused"), ran.people
    _untouched(box, job, ran)
    assert alive(other.process.pid, other.process.start)


def test_the_in_place_saver_and_the_interrupted_save_have_a_plan(box: Bed) -> None:
    job = box.start("--save-every", "2", "--in-place", "--save-seconds", "2", how="deaf")
    ran = box.run("stop", box.name, "--force", "-n")
    assert _planned(ran)[1] == ("TERM", "send", "fatal")
    _untouched(box, job, ran)


def test_an_earlier_signal_is_in_the_plan(box: Bed) -> None:
    job = box.start("--save-seconds", "8")
    first = box.popen("stop", box.name, "--graceful")
    deadline = time.monotonic() + 15
    while "saving" not in box.log(job):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    first.process.send_signal(signal.SIGINT)
    assert box.finish(first, 20).code == 130
    ran = box.run("stop", box.name, "--graceful", "-n")
    assert ran.code == 0, ran.people
    step = ran.target["plan"][0]
    assert (step["signal"], step["would"]) == ("INT", "skip")
    assert "watched on" in step["reason"]
    assert box.run("stop", box.name, "--graceful").code == 0
