"""The control groups of the lab's containers, in Proxmox's layout, on cgroup v1 and v2."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

# pve-container LXC.pm:714-725 sets both; LXC makes one directory of each in every hierarchy
PARENTS = ("lxc", "lxc.monitor")


def hierarchies() -> list[Path]:
    """Mount points of every cgroup hierarchy, the v2 one first: it tracks each process once."""
    found: dict[str, list[Path]] = {"cgroup2": [], "cgroup": []}
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, where, kind, *_ = line.split()
        if kind in found:
            found[kind].append(Path(where))
    return found["cgroup2"] + found["cgroup"]


def directories(vmid: int) -> list[Path]:
    """What exists of a container's control groups, its monitor's too."""
    places = [top / parent / str(vmid) for top in hierarchies() for parent in PARENTS]
    return [place for place in places if place.is_dir()]


def members(vmid: int) -> set[int]:
    """Host PIDs in the container, whatever hierarchy shows them; the monitor is not among them."""
    return {
        pid
        for place in directories(vmid)
        if place.parent.name == "lxc"
        for pid in _pids_below(place)
    }


def is_live(vmid: int) -> bool:
    """True when any process, a monitor too, is in a container with this ID."""
    return any(True for place in directories(vmid) for _ in _pids_below(place))


def remove(vmid: int, patience: float = 10.0) -> list[Path]:
    """Remove left-over directories bottom-up; returns those that would not go.

    A start after a failed one ends in "Numerical result out of range" while they are there. They
    stay as long as a zombie is in them, and those of a killed lxc-attach are the host's PID 1's.
    """
    deadline = time.monotonic() + patience
    while left := directories(vmid):
        for place in left:
            _remove_tree(place)
        if time.monotonic() > deadline:
            return directories(vmid)
        time.sleep(0.01)
    return []


def remove_empty_parents() -> None:
    """The last lab leaves no parents behind; full ones refuse by themselves.

    `lxc.pivot` is where a monitor goes to remove its own group (LXC cgfsng.c).
    """
    for top in hierarchies():
        for parent in (*PARENTS, "lxc.pivot"):
            with suppress(OSError):
                (top / parent).rmdir()


def _pids_below(place: Path) -> Iterator[int]:
    for directory, _, _ in os.walk(place):
        with suppress(OSError):
            for pid in Path(directory, "cgroup.procs").read_text().split():
                yield int(pid)


def _remove_tree(place: Path) -> None:
    for directory, _, _ in os.walk(place, topdown=False):
        with suppress(OSError):
            os.rmdir(directory)
