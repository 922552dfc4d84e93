"""The real mpirun (Open MPI) above four ranks that meet before they save."""

from __future__ import annotations

import os
import shutil
import signal
import time

import pytest

from fleetstop.lab import Started
from fleetstop.lab.processes import command_line

from .bed import Bed, alive

pytestmark = [
    pytest.mark.bed,
    pytest.mark.skipif(shutil.which("mpirun") is None, reason="openmpi-bin is not installed"),
]

# what torchrun would hand out, from what mpirun does
RANK = """\
export RANK=$OMPI_COMM_WORLD_RANK LOCAL_RANK=$OMPI_COMM_WORLD_LOCAL_RANK WORLD_SIZE=4
export MASTER_PORT=29556
exec python3 -u /root/train.py --save-seconds 2 --step-seconds 0.1
"""
LINE = (
    "mkdir -p /tmp/ranks-29556 /dev/shm; cd /root; exec setsid -f mpirun --allow-run-as-root"
    " --oversubscribe --mca plm isolated --mca btl self,vader -np 4 sh /root/rank.sh"
    " >/workspace/train.log 2>&1 </dev/null"
)


def under_mpirun(box: Bed) -> Started:
    (box.lab.rootfs(box.vmid) / "root/rank.sh").write_text(RANK)
    return box.start(LINE, how="raw", trainers=4, seconds=60)


def test_under_mpirun_all_ranks_in_one_burst_and_never_mpirun(box: Bed) -> None:
    job = under_mpirun(box)
    shown = box.run("status", box.name)
    roles = sorted(each["role"] for each in shown.target["family"])
    assert roles == ["launcher", *["trainer"] * 4], shown.people
    (above,) = shown.target["above"]
    assert above["kind"] == "launcher", shown.people
    ran = box.run("stop", box.name, "--graceful", deadline=120)
    assert ran.code == 0, ran.people
    ((name, pids),) = ran.signals
    trainers = {each["pid"] for each in ran.target["family"] if each["role"] == "trainer"}
    assert (name, set(pids)) == ("INT", trainers)
    assert len(box.saved()) == 4
    assert box.log(job).count("KeyboardInterrupt") == 4


def test_the_signal_to_mpirun_would_lose_the_checkpoint(box: Bed) -> None:
    """What is not done: by hand it ends the ranks in their save."""
    job = under_mpirun(box)
    (mpirun,) = [each for each in job.launched if command_line(each.pid)[:1] == ["mpirun"]]
    os.kill(mpirun.pid, signal.SIGINT)
    deadline = time.monotonic() + 30
    while any(alive(each.pid, each.start) for each in job.trainers):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert box.saved() == []
