"""`gpus` where the container's root is a shifted user of the host."""

from __future__ import annotations

from pathlib import Path

import pytest

from .bed import Bed

pytestmark = [pytest.mark.bed, pytest.mark.timeout(300)]
UNPRIVILEGED = True


def test_users_are_told_as_the_container_counts_them(box: Bed) -> None:
    job = box.start("--gpus", "1", "--gpu-mib", "2048")
    assert "\nUid:\t0\t" not in Path(f"/proc/{job.process.pid}/status").read_text()
    ran = box.run("gpus", "lab1", pct=0)
    (gpu,) = [each for each in ran.target["gpus"] if each["index"] == 1]
    (holder,) = gpu["held_by"]
    assert (holder["user"], holder["job"]) == ("root", f"{box.name}:train"), ran.people
    assert (holder["host_pid"], holder["pid"]) == (job.process.pid, job.pid)
