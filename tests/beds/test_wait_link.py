"""What happens to a wait when its connection, or the container, goes away under it."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetstop.lab import Lab

from .bed import Bed, Running

pytestmark = [pytest.mark.bed, pytest.mark.timeout(200)]


@pytest.fixture
def box(bed: None) -> Iterator[Bed]:
    """Of its own: here sshd's processes are hurt."""
    root = Path(tempfile.mkdtemp(prefix="fsl-", dir="/tmp"))
    fleet = Lab.up(root, 1, gpus=1, first_vmid=random.randrange(20_000, 900_000_000, 100))
    try:
        yield Bed(fleet, fleet.vmids[0])
    finally:
        fleet.down()
        shutil.rmtree(root, ignore_errors=True)


def began(running: Running, box: Bed) -> None:
    """It has found the job and watches: the shell inside is open."""
    deadline = time.monotonic() + 60
    while not box.lab.pct_calls() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(3.0)
    assert running.process.poll() is None


def test_a_cut_connection_is_made_anew_and_the_end_is_seen(box: Bed) -> None:
    job = box.start("--no-save")
    running = box.popen("wait", box.name, "--timeout", "60s")
    began(running, box)
    assert box.lab.state.sshd is not None
    listed = ["ps", "--ppid", str(box.lab.state.sshd.pid), "-o", "pid="]
    for pid in subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split():
        os.kill(int(pid), signal.SIGKILL)
    time.sleep(1.0)
    os.kill(job.process.pid, signal.SIGINT)
    ran = box.finish(running, alone=False)
    assert (ran.code, ran.target["result"]) == (0, "not_running"), ran.people
    assert "reconnected" in ran.names()


def test_a_container_that_is_stopped_ends_the_wait_for_a_checkpoint(box: Bed) -> None:
    box.start("--no-save")
    running = box.popen("wait", box.name, "--for", "checkpoint")
    began(running, box)
    box.lab.stop(box.vmid)
    ran = box.finish(running, 30.0, alone=False)
    assert (ran.code, ran.target["result"]) == (6, "unclean"), ran.people
    assert "was stopped" in ran.target["reason"]


def test_a_container_that_is_started_anew_is_waited_for_in_its_new_life(
    box: Bed, tmp_path: Path
) -> None:
    """`pct stop`, `pct start` and a trainer, while somebody waits for its log to say that it
    trains: the shell of the first life is over, and for a while nobody can enter."""
    inventory = tmp_path / "fleet.yaml"
    text = box.lab.inventory.read_text()
    match = "match: {script: train.py}\n"
    assert match in text
    inventory.write_text(
        text.replace(match, f"{match}        healthcheck: {{log_matches: step, within: 90s}}\n")
    )
    running = box.popen("wait", box.name, "--for", "healthy", inventory=inventory)
    began(running, box)
    box.lab.stop(box.vmid)
    time.sleep(3.0)
    box.lab.boot(box.vmid)
    job = box.start("--no-save")
    ran = box.finish(running, 60.0, alone=False)
    assert (ran.code, ran.target["result"]) == (0, "running"), ran.people
    assert [each["pid"] for each in ran.target["family"] if each["role"] == "trainer"] == [job.pid]
