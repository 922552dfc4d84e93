"""While it waits: what the client orders, and what is done when the client falls silent."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.activation import NEW, OLD, RUN, Activator, alive, start_of, tree, until


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Activator]:
    made = Activator(tmp_path)
    made.old("train.sh", OLD)
    made.log.write_text("old tok/s\n")
    yield made
    made.close()


def untouched(job: Activator, before: dict[str, Any]) -> None:
    """But for the state file and the order, all is as it was."""
    own = {".fleetstop/train/state.json", ".fleetstop/train/order", ".fleetstop/train/beat"}
    now = {path: what for path, what in tree(job.dest).items() if path not in own}
    assert now == before
    assert job.state["files"] == "old"
    assert job.state["trainer"] is None
    assert (job.log.read_text(), job.litter()) == ("old tok/s\n", [])


def test_a_cancelled_run_leaves_nothing(job: Activator) -> None:
    before = tree(job.dest)
    job.new("train.sh", NEW)
    job.new("configs/deep/a.yaml", "x: 1\n")
    job.runs()
    job.begin()
    job.order("armed")
    until(lambda: job.state["order"] == "armed", "it tells that it heard")
    job.order("cancel")
    state = job.end("cancelled")
    assert (state["reason"], state["order"]) == ("the client cancelled it", "cancel")
    untouched(job, before)
    assert state["running"] is None  # r1 was only made for this run, and is gone with it


def test_a_release_that_was_kept_before_stays(job: Activator) -> None:
    kept = job.base / "releases/r1/files"
    kept.mkdir(parents=True)
    (kept.parent / "manifest.json").write_text('{"id": "r1"}')
    (kept / "train.sh").write_text(OLD)
    before = tree(job.dest)
    job.new("train.sh", NEW)
    job.runs()
    job.begin()
    job.order("cancel")
    assert job.end("cancelled")["running"] == "r1"
    untouched(job, before)


def test_nothing_is_replaced_while_the_old_run_lives(job: Activator) -> None:
    before = tree(job.dest)
    job.new("train.sh", NEW)
    gone = job.runs("true")
    gone.wait()
    living = job.runs()
    job.begin()
    job.order("armed")
    job.order("go")
    state = job.end("failed")
    assert state["reason"] == f"PID {living.pid} is alive: nothing was replaced"
    assert living.poll() is None
    untouched(job, before)


def test_an_order_to_another_run_is_none(job: Activator) -> None:
    job.new("train.sh", NEW)
    job.order("cancel", run="an-earlier-one")
    job.begin()
    for run, word in ((RUN, "dance"), (RUN, "done"), ("another", "go"), (RUN + "0", "cancel")):
        job.order(word, run=run)
        time.sleep(0.3)
    state = job.state
    assert (state["step"], state["order"]) == ("waiting", None)
    assert alive(*job.activator)


def test_who_has_ended_and_is_only_not_reaped_is_gone(job: Activator) -> None:
    job.new("train.sh", NEW)
    zombie = job.runs("true")
    until(lambda: f"{zombie.pid} (true) Z" in Path(f"/proc/{zombie.pid}/stat").read_text(), "dead")
    another = job.runs()
    job.spec["gone"][1]["start"] -= 1  # its number is another process's by now
    job.begin()
    job.order("go")
    job.reach("launched")
    job.runs_now("new")
    assert another.poll() is None
    zombie.wait()


THREADS = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(300,)).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_dead_leader_with_a_thread_that_runs_is_alive(job: Activator) -> None:
    job.new("train.sh", NEW)
    one = job.runs(sys.executable, "-c", THREADS)
    until(lambda: ") Z " in Path(f"/proc/{one.pid}/stat").read_text(), "its leader has ended")
    job.begin()
    job.order("go")
    assert job.end("failed")["reason"] == f"PID {one.pid} is alive: nothing was replaced"


def test_a_client_that_leaves_before_a_signal_changes_nothing(job: Activator) -> None:
    before = tree(job.dest)
    job.new("train.sh", NEW)
    living = job.runs()
    job.begin(stale_s=1.0)
    state = job.end("cancelled")
    assert state["reason"] == "the client left before it sent a signal"
    assert living.poll() is None
    untouched(job, before)


def test_also_if_the_old_run_ends_by_itself_then(job: Activator) -> None:
    """Nobody asked for the end: it may have failed, and what came of it is the client's to see."""
    job.new("train.sh", NEW)
    job.runs("true").wait()
    job.begin(stale_s=1.0)
    job.end("cancelled")
    assert (job.dest / "train.sh").read_text() == OLD


def test_a_client_that_leaves_after_the_signal_leaves_no_gpu_idle(job: Activator) -> None:
    job.new("train.sh", NEW)
    old = job.runs()
    job.begin("armed", stale_s=1.0, patience_s=300)
    time.sleep(2.5)
    assert job.state["step"] == "waiting"
    old.kill()
    old.wait()
    job.reach("launched")
    job.runs_now("new")
    assert (job.dest / "train.sh").read_text() == NEW


def test_it_does_not_wait_for_ever_for_who_does_not_end(job: Activator) -> None:
    before = tree(job.dest)
    job.new("train.sh", NEW)
    living = job.runs()
    job.begin("armed", stale_s=0.5, patience_s=1.0)
    state = job.end("cancelled")
    assert state["reason"] == f"the client left, and PID {living.pid} did not end"
    assert living.poll() is None
    untouched(job, before)


def test_a_client_that_comes_back_is_heard_again(job: Activator) -> None:
    job.new("train.sh", NEW)
    old = job.runs()
    job.begin("armed", stale_s=1.0, patience_s=30.0)
    time.sleep(2.0)  # silent
    for _ in range(15):
        job.beat()
        time.sleep(0.1)
    old.kill()
    old.wait()
    for _ in range(5):  # it is there, so it is the one to say `go`
        job.beat()
        time.sleep(0.1)
    assert job.state["step"] == "waiting"
    job.order("go")
    job.reach("launched")


def test_a_client_that_beats_is_waited_for(job: Activator) -> None:
    job.new("train.sh", NEW)
    job.runs()
    job.begin(stale_s=2.0)
    for _ in range(40):
        job.beat()
        time.sleep(0.1)
    assert job.state["step"] == "waiting"


def test_signals_to_the_activator_do_not_end_it(job: Activator) -> None:
    job.new("train.sh", NEW)
    job.begin()
    pid, _ = job.activator
    names = ["HUP", "INT", "QUIT", "TERM"]
    for name in names:
        subprocess.run(["kill", f"-{name}", str(pid)], check=True)
    time.sleep(0.3)
    assert start_of(pid) == job.activator[1]
    job.order("go")
    job.reach("launched")


def test_what_hides_from_proc_is_not_gone(job: Activator) -> None:
    """Where /proc shows only one's own processes, as with hidepid=2, others are asked for."""
    if os.geteuid() != 0:
        pytest.skip("only root mounts")
    job.new("train.sh", NEW)
    living = job.runs()
    mount = f'mount -t tmpfs none /proc/{living.pid} && exec "$@"'
    job.before = ["unshare", "-m", "sh", "-c", mount, "-"]
    if subprocess.run([*job.before, "true"], check=False).returncode != 0:
        pytest.skip("no file system can be mounted here")
    job.begin()
    job.order("go")
    assert job.end("failed")["reason"] == f"PID {living.pid} is alive: nothing was replaced"
