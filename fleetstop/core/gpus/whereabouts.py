"""Where a process of a host lives, whose it is and which job's; knows no GPU."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct

from fleetstop.core.inventory import Host, Inventory, Job
from fleetstop.core.kin.family import Family, find
from fleetstop.core.kin.matching import needs_detail
from fleetstop.core.process import Process, ProcessTree

_LXC = re.compile(r"/lxc/([1-9][0-9]{2,8})(?:/.*)?")


class Known(Struct, frozen=True):
    """What the inventory has at one place of a host; `name` None: it does not know the container.
    `protected`: all that is there."""

    name: str | None = None
    jobs: tuple[Job, ...] = ()
    protected: bool = False


class Owned(Struct, frozen=True):
    """The job of a process: its name as a target, its place, and its family."""

    target: str
    vmid: int | None
    job: Job
    family: Family


def container_of(process: Process) -> int | None:
    """Its VMID by its control groups (v1 or v2); None: it is in no container."""
    found = (_LXC.fullmatch(group) for group in process.cgroups)
    return next((int(each[1]) for each in found if each is not None), None)


def known_at(inventory: Inventory, host: Host) -> dict[int | None, Known]:
    """By VMID, None for the host itself; a host under another login is the same machine only
    where its address is written the same."""
    same = {
        name: each
        for name, each in inventory.hosts.items()
        if (_address(each), each.port) == (_address(host), host.port)
    }
    found: dict[int | None, Known] = {}
    for name, each in same.items():
        if None not in found or name == host.name:
            found[None] = Known(name, each.jobs, each.protected)
    for name, box in inventory.containers.items():
        if box.host in same:
            guarded = box.protected or same[box.host].protected
            found[box.vmid] = Known(name, box.jobs, guarded)
    return found


def _address(host: Host) -> str:
    return host.ssh.rpartition("@")[2]


def part_of(tree: ProcessTree, vmid: int | None) -> ProcessTree:
    """One container's processes, or those of the host outside all of them."""
    here = {pid: each for pid, each in tree.processes.items() if _within(each, vmid)}
    return ProcessTree(processes=here, uptime=tree.uptime, hz=tree.hz)


def _within(process: Process, vmid: int | None) -> bool:
    if vmid is not None:
        return container_of(process) == vmid
    return not any(group.startswith("/lxc/") for group in process.cgroups)


def asked_inside(job: Job) -> bool:
    """Its processes are named by the container's own tools, which nobody asks from the host."""
    match = job.match
    return match.pgrep is not None or match.pidfile is not None or match.tmux is not None


def wanted(tree: ProcessTree, vmid: int | None, known: Known) -> set[int]:
    """Host PIDs of which `owned` needs a closer look."""
    part = part_of(tree, vmid)
    jobs = (each for each in known.jobs if not asked_inside(each))
    return {pid for job in jobs for pid in needs_detail(job.match, part, frozenset())}


def owned(
    tree: ProcessTree, vmid: int | None, known: Known, gpu_pids: frozenset[int] | None
) -> dict[int, tuple[Owned, ...]]:
    """By host PID every job of the inventory that a process here belongs to; mostly one."""
    part = part_of(tree, vmid)
    found: dict[int, tuple[Owned, ...]] = {}
    for job in known.jobs:
        if asked_inside(job):
            continue
        for family in find(part, job.match, job, gpu_pids=gpu_pids).families:
            mine = Owned(f"{known.name}:{job.name}", vmid, job, family)
            for kin in family.members:
                found[kin.id.pid] = (*found.get(kin.id.pid, ()), mine)
    return found


def user_of(tree: ProcessTree, process: Process) -> str:
    """`root`, or `uid 1000`, as the container counts: the root of an unprivileged one is its first
    process's, and its users follow (lxc.idmap of one range, as Proxmox writes it)."""
    vmid = container_of(process)
    inside = vmid is not None and process.inner
    first = _first(tree.processes.values(), vmid) if inside else None
    base = first.uid if first is not None else 0
    uid = process.uid - base if process.uid >= base else process.uid
    return "root" if uid == 0 else f"uid {uid}"


def _first(processes: Iterable[Process], vmid: int | None) -> Process | None:
    return next((each for each in processes if each.pid == 1 and container_of(each) == vmid), None)
