"""Which one job holds a GPU: the one that a stop of that GPU means, or why none does.

Whatever is not certain is refused: a neighbour on the same GPU would lose its work.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from fleetstop.core.gpus.occupancy import Sight, called
from fleetstop.core.gpus.whereabouts import Owned, asked_inside, container_of, part_of
from fleetstop.core.inventory import Match
from fleetstop.core.kin.family import Family, find
from fleetstop.core.process import ProcessId
from fleetstop.core.report import GpuHolder, GpuRecord
from fleetstop.errors import Refused

_SEE = "see who it is: fleetstop gpus {host}"


class Held(Struct, frozen=True):
    """`target`: the inventory's name of the job, None where it has none: then `pid`, the
    container's number, names its trainer or what runs all of them. `holder`: seen on the GPU."""

    vmid: int | None
    target: str | None
    pid: int | None
    holder: ProcessId


def sole(
    records: Sequence[GpuRecord], index: int, sight: Sight, gpu_pids: frozenset[int], host: str
) -> Held | None:
    """None: nobody is on it, and that is known. Raises Refused with everybody who is."""
    gpu = next((each for each in records if each.index == index), None)
    if gpu is None:
        numbers = ", ".join(str(each.index) for each in records)
        raise Refused(f"{host} has no GPU {index}; it has {numbers}")
    name = f"GPU {index} of {host}"
    listed = [each for each in gpu.held_by or () if each.listed]
    if gpu.state == "idle":
        return None
    if gpu.fault:
        raise Refused(f"{name} {gpu.fault}: no stop frees it", hint=_SEE.format(host=host))
    if not listed:
        raise _unsure(f"nobody is listed on {name}, and it is not known to be idle", gpu, host)
    if any(each.pid is None for each in listed):
        raise _unsure(f"{name} is held by what is not seen as a process here", gpu, host)
    owners = [_owners(sight, each) for each in listed]
    if any(len(each) > 1 for each in owners):
        raise _unsure(f"a process on {name} is matched by several jobs", gpu, host)
    if not all(owners) and any(owners):
        raise _several(name, gpu, host)
    if all(owners):
        return _of_inventory(name, gpu, [each for one in owners for each in one], sight, host)
    return _of_nobody(name, gpu, listed, sight, gpu_pids, host)


def _owners(sight: Sight, holder: GpuHolder) -> tuple[Owned, ...]:
    return sight.jobs.get(holder.host_pid or 0, ())


def _of_inventory(name: str, gpu: GpuRecord, owners: list[Owned], sight: Sight, host: str) -> Held:
    first = owners[0]
    if any((each.target, each.family.ids) != (first.target, first.family.ids) for each in owners):
        raise _several(name, gpu, host)
    # a job of several trees (`all: true`) has some on other GPUs: those were not meant
    trees = {
        each.family.ids
        for one in sight.jobs.values()
        for each in one
        if each.target == first.target
    }
    if len(trees) > 1:
        raise Refused(
            f"{first.target} holds {name}, and {len(trees)} unrelated trees are that job",
            evidence=_lines(gpu),
            hint="name the one that is meant by its PID, with --pid instead of --gpu",
        )
    return Held(first.vmid, first.target, None, _holder_of(gpu))


def _of_nobody(
    name: str,
    gpu: GpuRecord,
    listed: list[GpuHolder],
    sight: Sight,
    gpu_pids: frozenset[int],
    host: str,
) -> Held:
    places = {_place(sight, each) for each in listed}
    if len(places) > 1:
        raise _several(name, gpu, host)
    (vmid,) = places
    known = sight.places.get(vmid)
    inside = [job.name for job in known.jobs if asked_inside(job)] if known is not None else []
    if known is not None and inside:
        raise Refused(
            f"what holds {name} may be {', '.join(f'{known.name}:{each}' for each in inside)}, "
            "which is found by asking inside the container",
            evidence=_lines(gpu),
            hint="name the job instead of the GPU",
        )
    found = find(part_of(sight.tree, vmid), Match(gpu=True), None, gpu_pids=gpu_pids)
    pids = {each.host_pid for each in listed}
    families = [f for f in found.families if pids & {kin.id.pid for kin in f.members}]
    covered = {kin.id.pid for family in families for kin in family.members}
    if found.unclear is not None or len(families) != 1 or not pids <= covered:
        if found.unclear is not None:
            raise Refused(
                f"{name}: {found.unclear}", evidence=_lines(gpu), hint=_SEE.format(host=host)
            )
        raise _several(name, gpu, host)
    return Held(vmid, None, _named_by(name, families[0], gpu, host), _holder_of(gpu))


def _named_by(name: str, family: Family, gpu: GpuRecord, host: str) -> int:
    """One trainer is named by its own PID; several by what runs them all, never by one of them."""
    if len(family.trainers) == 1:
        return family.trainers[0].pid
    over = family.of("launcher", "wrapper")
    above = {each.id.pid for each in over}
    tops = [each for each in over if each.ppid not in above]
    if not family.trainers or len(tops) != 1:
        raise _unsure(f"who of those on {name} trains cannot be told", gpu, host)
    return tops[0].pid


def _place(sight: Sight, holder: GpuHolder) -> int | None:
    return container_of(sight.tree.processes[holder.host_pid or 0])


def _holder_of(gpu: GpuRecord) -> ProcessId:
    first = next(each for each in gpu.held_by or () if each.listed)
    return ProcessId(first.host_pid or 0, first.start or 0)


def _lines(gpu: GpuRecord) -> tuple[str, ...]:
    return tuple(
        called(each) + ("" if each.listed else ", not listed: it has /dev/nvidia* open")
        for each in gpu.held_by or ()
    )


def _several(name: str, gpu: GpuRecord, host: str) -> Refused:
    said = f"{name} is held by several that are not one job"
    return Refused(said, evidence=_lines(gpu), hint="name the one that is meant instead of the GPU")


def _unsure(said: str, gpu: GpuRecord, host: str) -> Refused:
    return Refused(said, evidence=_lines(gpu), hint=_SEE.format(host=host))
