"""Prove that it worked: nothing came back, GPUs free; what cannot be proved is said."""

from __future__ import annotations

from msgspec import Struct

from fleetstop import events
from fleetstop.actions import looks
from fleetstop.actions.climb import Climb
from fleetstop.actions.locate import Scene, identify
from fleetstop.actions.proof import Proof
from fleetstop.actions.telling import Scope
from fleetstop.core.evidence import respawned, why_zombie
from fleetstop.core.gpu import GpuView, Unseen, held_mib, indexes_of, released
from fleetstop.core.process import Process, ProcessTree
from fleetstop.core.redact import command
from fleetstop.core.report import GpuRecord

_SOME = -1


class Back(Struct, frozen=True):
    """`problem`: what came back or would, for the report's reason. `runs`: it trains again, so the
    verdict is `respawned`, with `evidence`. `unreaped`: a sentence for each trainer that is dead
    and still there."""

    problem: str | None = None
    runs: bool = False
    evidence: tuple[str, ...] = ()
    unreaped: tuple[str, ...] = ()


async def came_back(scope: Scope, climb: Climb) -> Back:
    """Whether the job runs again under a new identity, or what would start it again does."""
    job = scope.target.job
    assert job is not None
    scope.teller.tell(events.Verifying, what="above")
    tree = await looks.look(scope.place, scope.target.vmid)
    tree, found = await identify(scope, tree, job, Unseen(""))
    known = climb.family.ids
    dead = [tree.get(kin.id) for kin in climb.family.trainers]
    unreaped = tuple(why_zombie(each, tree) for each in dead if each is not None and each.zombie)
    fresh = [
        (tree.processes[k.id.pid], k)
        for family in found.families
        for k in family.trainers
        if k.id not in known
    ]
    if fresh:
        pids = ", ".join(str(kin.pid) for _, kin in fresh)
        by = restarted_by(fresh[0][0], tree)
        problem = f"respawned: the job runs again as {pids}"
        return Back(problem, runs=True, evidence=(respawned(pids, by),))
    if found.leftovers and job.wrapper != "outlives":
        above = found.leftovers[0]
        problem = f"respawned: {above.pid} {command(above.argv or ())} would start it again"
        return Back(problem, unreaped=unreaped)
    return Back(unreaped=unreaped)


def restarted_by(process: Process, tree: ProcessTree) -> str | None:
    """Its parent, which started it again; None where that is not seen: PID 1 adopts anybody."""
    above = tree.processes.get(process.ppid)
    if above is None or 1 in (above.pid, above.id.pid):
        return None
    return f"{above.pid} {command(above.argv or (above.comm,))}"


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
