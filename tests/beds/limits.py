"""A container at its limit: nothing can be started in it any more, or nothing allocated."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from .bed import Bed, until

FILL = """\
kept = []
while True:
    kept.append(bytearray(b"x" * 65536))
"""


def limit(box: Bed, controller: str, name: str, value: str) -> None:
    for top in (Path("/sys/fs/cgroup", controller), Path("/sys/fs/cgroup")):
        place = top / f"lxc/{box.vmid}" / name
        if place.exists():
            place.write_text(value)
            return
    pytest.skip(f"there is no {controller} controller here")


def no_forks(box: Bed) -> None:
    """pids.max = pids.current: every fork in it fails, an lxc-attach's too."""
    for top in (Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup")):
        now = top / f"lxc/{box.vmid}/pids.current"
        if now.exists():
            limit(box, "pids", "pids.max", now.read_text())
            done = box.lab.exec(box.vmid, ["true"])
            assert done.returncode != 0, "it can still be entered"
            return
    pytest.skip("there is no pids controller here")


@contextlib.contextmanager
def out_of_memory(box: Bed) -> Iterator[None]:
    """100 MiB, and `/root/fill.py` that waits for more: with the OOM killer off whoever allocates
    waits beside it."""
    (box.lab.rootfs(box.vmid) / "root/fill.py").write_text(FILL)
    limit(box, "memory", "memory.limit_in_bytes", str(100 << 20))
    limit(box, "memory", "memory.oom_control", "1")
    box.lab.exec(box.vmid, ["bash", "-c", "exec setsid -f python3 /root/fill.py >/dev/null 2>&1"])
    control = Path(f"/sys/fs/cgroup/memory/lxc/{box.vmid}/memory.oom_control")
    try:
        until(lambda: "under_oom 1" in control.read_text(), 60)
        yield
    finally:
        more_memory(box)
        limit(box, "memory", "memory.oom_control", "0")


def more_memory(box: Bed) -> None:
    limit(box, "memory", "memory.limit_in_bytes", str(1 << 30))
