"""Prove that the GPUs are free; what cannot be proved is said."""

from __future__ import annotations

from fleetstop import events
from fleetstop.actions import looks
from fleetstop.actions.climb import Climb
from fleetstop.actions.locate import Scene
from fleetstop.actions.proof import Proof
from fleetstop.actions.telling import Scope
from fleetstop.core.gpu import GpuView, Unseen, held_mib, indexes_of, released
from fleetstop.core.report import GpuRecord

_SOME = -1


async def gpus(scope: Scope, scene: Scene, climb: Climb, within_s: float) -> Proof:
    """None of our PIDs listed, memory back near the first look's; polled for `within_s`."""
    job = scope.target.job
    ours = frozenset(each.id.pid for each in climb.family.members)
    wanted = _wanted(scene, ours, frozenset((job.gpus if job else None) or ()))
    if climb.ladder.playbook.verify.gpus == "ignore" or not wanted:
        return Proof()
    before = scene.gpus
    if isinstance(before, Unseen):
        return Proof(problem=f"gpus_unseen: {before.reason}")
    scope.teller.tell(events.Verifying, what="gpus")
    start = scope.clock.now()
    while True:
        await climb.stamp()
        now = await looks.gpus(scope.place)
        # the dead hold no device; a forked child that does is listed under its parent's PID
        verdicts = released(before, now, ours, frozenset(), wanted)
        if all(each.released for each in verdicts):
            took = scope.clock.now() - start
            indexes = tuple(each.index for each in verdicts)
            scope.teller.tell(events.GpusReleased, indexes=indexes, seconds=took)
            others = await _others(scope, now, indexes)
            return Proof(
                findings=tuple(scope.teller.finding(each) for each in others),
                gpus=records(now, frozenset(), indexes),
            )
        # what could not be asked will not be answered a moment later; it may hang in the driver
        if isinstance(now, Unseen) or scope.clock.now() - start >= within_s:
            held = any(each.released is False for each in verdicts)
            text = "; ".join(each.reason for each in verdicts if not each.released)
            return Proof(
                problem=f"{'gpus_held' if held else 'gpus_unseen'}: {text}",
                gpus=records(now, ours, tuple(sorted(wanted))),
            )
        await scope.clock.sleep(0.25)


async def _others(scope: Scope, view: GpuView | Unseen, indexes: tuple[int, ...]) -> list[str]:
    """Who of the same place still holds one of these GPUs: no member, but worth knowing."""
    if isinstance(view, Unseen) or scope.target.vmid is None:
        return []
    tree = await looks.look(scope.place, scope.target.vmid)
    told = []
    for index in indexes:
        gpu = view.at(index)
        rows = view.on(gpu.uuid) if gpu is not None else ()
        for row in rows:
            process = tree.processes.get(row.pid or 0)
            if process is not None:
                told.append(
                    f"GPU {index}: {process.pid} ({process.comm}) of this container holds "
                    f"{'an unknown amount' if row.mib is None else f'{row.mib} MiB'}; "
                    "it was no member of the job"
                )
    return told


def _wanted(scene: Scene, ours: frozenset[int], declared: frozenset[int]) -> frozenset[int]:
    """GPUs to be proven free: those it was listed on, and the declared ones. A device it has
    open says only that it held one, not which (CUDA opens every visible one)."""
    if isinstance(scene.gpus, Unseen):
        held = any(each.gpus for pid, each in scene.tree.processes.items() if pid in ours)
        return frozenset([_SOME]) if held or declared else frozenset()
    return frozenset(indexes_of(scene.gpus, ours)) | declared


def records(
    view: GpuView | Unseen, pids: frozenset[int], indexes: tuple[int, ...]
) -> tuple[GpuRecord, ...]:
    """For the report: what these PIDs hold of these GPUs, and who else is on them."""
    if isinstance(view, Unseen):
        return tuple(
            GpuRecord(index=each, uuid="", held_mib=None, holders=None)
            for each in indexes
            if each >= 0
        )
    made = []
    for index in indexes:
        gpu = view.at(index)
        if gpu is None:
            made.append(GpuRecord(index=index, uuid="", held_mib=None, holders=None))
            continue
        rows = view.on(gpu.uuid)
        known = all(row.pid is not None for row in rows)
        holders = tuple(row.pid for row in rows if row.pid is not None) if known else None
        held = held_mib(view, pids, index) if pids else (0 if known else None)
        made.append(GpuRecord(index=index, uuid=gpu.uuid, held_mib=held, holders=holders))
    return tuple(made)
