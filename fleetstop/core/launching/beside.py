"""Why nothing may be started beside what is there: sentences with what to do; asks nothing."""

from __future__ import annotations

from msgspec import Struct

from fleetstop.core.durations import spoken
from fleetstop.core.gpu import GpuView, Unseen
from fleetstop.core.kin.family import Family, Found
from fleetstop.core.process import Process, ProcessTree
from fleetstop.core.redact import brief


class Obstacle(Struct, frozen=True):
    """`verbs`: commands that would help, for a hint; `evidence`: what was seen, a line each."""

    reason: str
    verbs: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    hint: str = ""


class Beside(Struct, frozen=True):
    """Empty: it may be started. `findings`: what could not be seen, and decides nothing."""

    obstacles: tuple[Obstacle, ...] = ()
    findings: tuple[str, ...] = ()


def beside(
    found: Found,
    tree: ProcessTree,
    gpus: GpuView | Unseen,
    wanted: tuple[int, ...] | None,
    ours: Family | None = None,
) -> Beside:
    """`ours`: the family that will have ended by then, as a restart's; it is no obstacle.
    `wanted`: the GPUs that the job declares; neighbours on others do not matter."""
    obstacles = _of_the_job(found, tree) if ours is None else []
    held, findings = _gpus(tree, gpus, wanted or (), _pids(tree, ours))
    return Beside((*obstacles, *held), tuple(findings))


def _pids(tree: ProcessTree, family: Family | None) -> frozenset[int]:
    members = {kin.id.pid for kin in family.members} if family is not None else set()
    return frozenset(members | {each.id.pid for pid in members for each in tree.below(pid)})


def _of_the_job(found: Found, tree: ProcessTree) -> list[Obstacle]:
    """What runs of it already, and what a former run has left behind."""
    obstacles = []
    running = [family for family in found.families if family.trainers]
    left = [family for family in found.families if not family.trainers]
    if found.unclear is not None:
        obstacles.append(Obstacle(f"whether it runs already cannot be told: {found.unclear}"))
        return obstacles
    if running:
        each = tuple(_running(family) for family in running)
        several = f"{len(running)} trees of it run already" if running[1:] else None
        reason = several or f"it runs already: {each[0]}"
        obstacles.append(Obstacle(reason, ("restart", "stop"), each if running[1:] else ()))
    for each_family in left:
        who = ", ".join(_named(kin.pid, kin.argv) for kin in each_family.members[:3])
        said = f"a former run of it has left {who} behind"
        obstacles.append(Obstacle(said, ("stop",)))
    if found.leftovers and not running:
        who = ", ".join(_process(each) for each in found.leftovers[:3])
        obstacles.append(
            Obstacle(f"no trainer runs, but what would start one does: {who}", ("stop",))
        )
    return obstacles


def _running(family: Family) -> str:
    lead = family.trainers[0]
    more = f" and {len(family.trainers) - 1} more" if family.trainers[1:] else ""
    return f"{_named(lead.pid, lead.argv)}{more}, up {spoken(lead.up_s)}"


def _named(pid: int, argv: tuple[str, ...]) -> str:
    return f"{pid} {brief(argv)}"


def _process(process: Process) -> str:
    return _named(process.pid, process.argv or (f"[{process.comm}]",))


def _gpus(
    tree: ProcessTree, gpus: GpuView | Unseen, wanted: tuple[int, ...], ours: frozenset[int]
) -> tuple[list[Obstacle], list[str]]:
    """A holder that is seen is in the way; what could not be seen is told. Unknown is not free."""
    if not wanted:
        return [], []
    names = ", ".join(map(str, sorted(wanted)))
    if isinstance(gpus, Unseen):
        return [], [f"whether GPU {names} is free could not be seen: {gpus.reason}"]
    held: list[str] = []
    shared: list[str] = []
    for index in sorted(wanted):
        gpu = gpus.at(index)
        rows = gpus.on(gpu.uuid) if gpu is not None and gpu.uuid else ()
        others = [row for row in rows if row.pid is None or row.pid not in ours]
        # who has worked beside it so far is no more in its way than before
        told = held if len(others) == len(rows) else shared
        told += [_holder(tree, index, row.pid, row.mib) for row in others]
    if not held:
        beside = [f"it shares its GPU: {each}" for each in shared]
        return [], [*beside, *_unlisted(gpus, wanted)]
    reason = f"its own GPU is held by another: {held[0]}"
    if held[1:]:
        reason = f"its own GPUs are held by others: {held[0]}, and {len(held) - 1} more"
    obstacle = Obstacle(
        reason, evidence=tuple(held) if held[1:] else (), hint="end that first, or name other "
        "GPUs in the inventory: gpus: [...]",
    )  # fmt: skip
    return [obstacle], []


def _holder(tree: ProcessTree, index: int, pid: int | None, mib: int | None) -> str:
    size = "an unknown amount" if mib is None else f"{mib} MiB"
    if pid is None:
        return f"GPU {index}, {size} by a process that hides"
    found = tree.processes.get(pid)
    who = _process(found) if found is not None else tree.called(pid)
    return f"GPU {index}, {size} by {who}"


def _unlisted(gpus: GpuView, wanted: tuple[int, ...]) -> list[str]:
    """Memory without an owner: what died there may not have given it back yet."""
    said = []
    for index in sorted(wanted):
        gpu = gpus.at(index)
        if gpu is None:
            said.append(f"the host has no GPU {index}")
        elif (left := gpus.unlisted_mib(gpu.uuid)) is None:
            said.append(f"how much of GPU {index} is in use could not be seen")
        elif left > _MUCH_MIB:
            said.append(f"GPU {index}: {left} MiB are in use and belong to no listed process")
    return said


_MUCH_MIB = 1024
