"""Waits of Python itself: none is an excuse. One INT ends each within milliseconds, and it saves.

Twelve jobs, each in a container of its own: one `status` looks at all, one `stop` asks each once.
Facts: the reactions of Python 3.11 to one SIGINT that were measured before (at most 8 ms, with
subprocess.run 0.25 s).
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from fleetstop.lab import Lab

from .bed import Bed, Ran, alive, until

pytestmark = pytest.mark.bed

QUIET = r"no sign of progress in \d[.\d]* s .*: too short to tell"


class Wait(Struct, frozen=True):
    """`before`: a pattern in the evidence of `status`. `ms`: it reacts within this, which is
    ten times what was measured, and never less than what a busy machine may take away."""

    calls: str
    before: str = QUIET
    ms: tuple[int, int] = (0, 500)


WAITS = {
    "sleep": Wait("time.sleep"),
    "loop": Wait("while True: pass", r"CPU [1-9]"),
    "lock": Wait("Lock.acquire"),
    "thread": Wait("Thread.join"),
    "event": Wait("Event.wait"),
    "queue": Wait("Queue.get"),
    "mp-queue": Wait("multiprocessing.Queue.get"),
    "socket": Wait("socket.recv"),
    "future": Wait("Future.result"),
    "process": Wait("Process.join"),
    "fifo": Wait("open of a FIFO"),
    # it gives its child a quarter of a second to hear the same Ctrl-C
    "run": Wait("subprocess.run", ms=(200, 2500)),
}


@pytest.fixture
def boxes(bed: None) -> Iterator[dict[str, Bed]]:
    """A container for each, in a fleet of their own."""
    root = Path(tempfile.mkdtemp(prefix="fsw-", dir="/tmp"))
    first = random.randrange(20_000, 900_000_000, 100)
    with Lab.up(root, len(WAITS), gpus=1, first_vmid=first) as fleet:
        yield {name: Bed(fleet, vmid) for name, vmid in zip(WAITS, fleet.vmids, strict=True)}
    for vmid in fleet.vmids:
        shutil.rmtree(f"/run/lock/fleetstop.{vmid}", ignore_errors=True)


def together(boxes: dict[str, Bed], *words: str) -> Ran:
    """One command for all of them."""
    first, *_ = boxes.values()
    child = first.popen(words[0], *(box.name for box in boxes.values()), *words[1:])
    child.targets = len(boxes)
    return first.finish(child, 120)


def by_box(ran: Ran) -> dict[str, dict[str, Any]]:
    return {each["target"].split(":")[0]: each for each in ran.report["targets"]}


def test_no_wait_of_python_itself_is_an_excuse(boxes: dict[str, Bed]) -> None:
    with ThreadPoolExecutor(4) as pool:
        starting = {
            name: pool.submit(box.start, "--save-seconds", "0.2", "--stuck", f"wait-{name}")
            for name, box in boxes.items()
        }
    jobs = {name: each.result() for name, each in starting.items()}
    until(lambda: all("waits in Python" in boxes[name].log(job) for name, job in jobs.items()))
    shown, ran = together(boxes, "status"), together(boxes, "stop", "--graceful")
    lands = {e["target"].split(":")[0]: e["landings"] for e in shown.events if "landings" in e}
    wrong = []
    for name, wait in WAITS.items():
        box, job = boxes[name], jobs[name]
        was, now, said = by_box(shown)[box.name], by_box(ran)[box.name], box.log(job)
        found = re.search(r"left its wait (\d+) ms after the signal", said)
        ms = int(found[1]) if found else -1
        evidence = "; ".join(was["evidence"])
        seen = (
            lands.get(box.name),
            was["verdict"],
            (now["result"], now["verdict"], now["reason"]),
            [(each["signal"], each["pids"]) for each in now["signals"]],
            len(box.saved()),
            box.signals_seen(job),
            "trainer ended with 0" in said,
        )
        expected = (
            {"INT": "heard", "TERM": "fatal"},
            "busy",
            ("stopped", "gone", None),
            [("INT", [job.pid])],
            1,
            1,
            True,
        )
        box.note(wait.calls, "heard fatal", was["verdict"], evidence, now["result"], f"{ms} ms")
        if seen != expected or not re.search(wait.before, evidence):
            wrong.append(f"{name}: {seen}, {evidence!r}; {said[-300:]}")
        if not wait.ms[0] <= ms <= wait.ms[1]:
            wrong.append(f"{name}: reacted after {ms} ms, not {wait.ms}")
        if any(alive(each["host_pid"], each["start"]) for each in now["family"]):
            wrong.append(f"{name}: not all of it is gone")
    assert wrong == [], "\n".join(wrong)
    assert ran.code == 0, ran.people


def test_a_second_int_would_cut_what_asyncio_drains(box: Bed) -> None:
    """Why a stop sends one: by hand, two; the table of states shows what one does."""
    job = box.start("--stuck", "asyncio", "--save-seconds", "0.2")
    until(lambda: "at work" in box.log(job))
    os.kill(job.host_pid, signal.SIGINT)
    until(lambda: "draining" in box.log(job))
    os.kill(job.host_pid, signal.SIGINT)
    until(lambda: not alive(job.process.pid, job.process.start))
    assert "drained" not in box.log(job)
