"""What is on each GPU of a host: who is listed, who else may hold it; unknown is never idle."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from fleetstop.core import redact
from fleetstop.core.gpu import SLACK_MIB, Gpu, GpuView, Holder
from fleetstop.core.gpus.whereabouts import Known, Owned, container_of, user_of
from fleetstop.core.process import ProcessTree
from fleetstop.core.report import GpuHolder, GpuRecord, GpuState

_FAULTS = {
    "requires reset": "no stop frees it; its jobs ended, it takes a reset (nvidia-smi -r), or a "
    "reboot; fleetstop resets nothing",
    "is lost": "it fell off the bus, which no stop mends; the host needs a reboot",
}


class Sight(Struct, frozen=True):
    """All that was seen of a host. `openers`: who has which /dev/nvidiaN open, None: could not be
    looked at; `places` and `jobs`: the inventory's, by VMID and by host PID."""

    tree: ProcessTree
    openers: Mapping[int, frozenset[int]] | None
    places: Mapping[int | None, Known]
    jobs: Mapping[int, tuple[Owned, ...]]


def occupancy(look: GpuView, sight: Sight) -> tuple[GpuRecord, ...]:
    """One record for each GPU, in nvidia-smi's order."""
    return tuple(_record(look, each, sight) for each in look.gpus)


def opened(sight: Sight) -> tuple[GpuHolder, ...]:
    """Everybody who has /dev/nvidiaN open, where nvidia-smi told nothing."""
    return tuple(_holder(sight, pid, None, listed=False) for pid in sorted(sight.openers or {}))


def _record(look: GpuView, gpu: Gpu, sight: Sight) -> GpuRecord:
    rows = look.on(gpu.uuid) if gpu.uuid else ()
    unlisted = look.unlisted_mib(gpu.uuid)
    sizes = [each.mib for each in rows if each.mib is not None]
    pids = tuple(sorted({each.pid for each in rows if each.pid is not None}))
    hidden = any(each.pid is None for each in rows) or not gpu.uuid
    listed = tuple(_holder(sight, each.pid, each.mib, listed=True) for each in rows)
    others: tuple[GpuHolder, ...] = ()
    if unlisted is None or unlisted > SLACK_MIB:
        others = tuple(
            _holder(sight, pid, None, listed=False) for pid in _suspects(look, gpu, sight)
        )
    return GpuRecord(
        index=gpu.index,
        uuid=gpu.uuid,
        held_mib=sum(sizes) if len(sizes) == len(rows) and gpu.uuid else None,
        holders=None if hidden else pids,
        used_mib=gpu.used_mib,
        total_mib=gpu.total_mib,
        unlisted_mib=unlisted,
        fault=gpu.fault,
        state=_state(gpu, rows, unlisted),
        held_by=listed + others,
    )


def _state(gpu: Gpu, rows: tuple[Holder, ...], unlisted: int | None) -> GpuState:
    if gpu.fault:
        return "fault"
    if rows:
        return "held"
    if unlisted is None:
        return "unknown"
    return "unlisted" if unlisted > SLACK_MIB else "idle"


def _suspects(look: GpuView, gpu: Gpu, sight: Sight) -> list[int]:
    """Who may hold what nobody is listed with. CUDA opens every GPU it sees, so the number of the
    node decides nothing; who is listed nowhere is likelier than who is listed on another GPU."""
    here = {each.pid for each in look.on(gpu.uuid)} if gpu.uuid else set()
    anywhere = {each.pid for each in look.holders}
    open_in = set(sight.openers or {})
    return sorted(open_in - anywhere) or sorted(open_in - here)


def _holder(sight: Sight, pid: int | None, mib: int | None, *, listed: bool) -> GpuHolder:
    process = sight.tree.processes.get(pid) if pid is not None else None
    if process is None:
        return GpuHolder(host_pid=pid, held_mib=mib, listed=listed)
    vmid = container_of(process)
    owners = dict.fromkeys(each.target for each in sight.jobs.get(process.id.pid, ()))
    place = sight.places.get(vmid)
    return GpuHolder(
        host_pid=pid,
        held_mib=mib,
        listed=listed,
        pid=process.pid,
        start=process.id.start,
        vmid=vmid,
        container=place.name if place is not None and vmid is not None else None,
        job=", ".join(owners) or None,
        user=user_of(sight.tree, process),
        age_s=round(sight.tree.age_s(process), 1),
        orphan=_orphan(sight.tree, process.id.pid),
        cmd=redact.command(process.argv) if process.argv else process.comm,
    )


def _orphan(tree: ProcessTree, pid: int) -> bool:
    """Forked by a process that has ended, and taken in by an init."""
    here = tree.processes[pid]
    above = tree.processes.get(here.ppid)
    return here.forked and (above is None or 1 in (above.pid, above.id.pid))


def findings(records: tuple[GpuRecord, ...], sight: Sight, blind: str | None) -> list[str]:
    """What is not as it should be, a sentence each. `blind`: why open files could not be seen."""
    told: list[str] = []
    for each in records:
        told += _of_gpu(each, sight, blind)
    return told


def _of_gpu(each: GpuRecord, sight: Sight, blind: str | None) -> list[str]:
    name = f"GPU {each.index}"
    if each.fault:
        return [f"{name} {each.fault}: {_FAULTS.get(each.fault, 'look on the host: dmesg')}"]
    told = []
    held_by = each.held_by or ()
    dead = [h for h in held_by if h.listed and h.host_pid is not None and h.pid is None]
    if dead:
        pids = ", ".join(str(h.host_pid) for h in dead)
        told.append(
            f"{name} is listed as held by host PID {pids}, which is not there: its memory "
            f"is kept by what it forked{_open_in(_else(sight, held_by), blind)}"
        )
    if any(h.host_pid is None for h in held_by):
        told.append(f"{name} is held by somebody whom the driver does not show here")
    if each.used_mib is None:
        told.append(f"{name} does not say how much of it is in use: that is not idle")
    elif each.unlisted_mib is not None and each.unlisted_mib > SLACK_MIB:
        others = [h for h in held_by if not h.listed]
        told.append(
            f"{name}: {each.unlisted_mib} MiB belong to no listed process{_open_in(others, blind)}"
        )
    return told


def _else(sight: Sight, held_by: tuple[GpuHolder, ...]) -> list[GpuHolder]:
    listed = {each.host_pid for each in held_by}
    return [each for each in opened(sight) if each.host_pid not in listed]


def _open_in(others: list[GpuHolder], blind: str | None) -> str:
    if blind is not None:
        return f"; who has /dev/nvidia* open could not be seen: {blind}"
    if not others:
        return "; nobody is seen to have /dev/nvidia* open (look on the host: dmesg | grep Xid)"
    return f"; /dev/nvidia* is open in {', '.join(map(called, others))}"


def called(each: GpuHolder) -> str:
    """`41 python3 train.py in ct200 (host 9041, an orphan)`."""
    if each.pid is None:
        return f"host PID {each.host_pid}"
    where = each.container or (f"container {each.vmid}" if each.vmid is not None else None)
    orphan = ", an orphan" if each.orphan else ""
    cmd = redact.text(each.cmd or "", 80)
    if where is None:
        return f"{each.pid} {cmd} on the host itself{' (an orphan)' if orphan else ''}"
    return f"{each.pid} {cmd} in {where} (host {each.host_pid}{orphan})"
