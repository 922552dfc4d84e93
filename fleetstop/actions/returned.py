"""Prove that nothing came back; who could start the job again is given the time it needs."""

from __future__ import annotations

from msgspec import Struct

from fleetstop import events
from fleetstop.actions import looks
from fleetstop.actions.climb import Climb
from fleetstop.actions.locate import Scene, identify
from fleetstop.actions.overhead import ask_unit
from fleetstop.actions.telling import Scope
from fleetstop.core.above.comeback import called
from fleetstop.core.above.supervisors import Above, standing_above
from fleetstop.core.above.units import units_of
from fleetstop.core.gpu import Unseen
from fleetstop.core.judging.evidence import respawned, why_zombie
from fleetstop.core.kin.birth import NEXT_LOOK_S
from fleetstop.core.kin.family import Found
from fleetstop.core.process import Process, ProcessTree
from fleetstop.core.redact import brief

LEAVING_S = 2.0
"""A wrapper follows its job within a moment; so long it is given."""
GRACE_S = 5.0
"""Beyond the delay that a supervisor was told."""


class Returned(Struct, frozen=True):
    """`again`: the job runs anew, so the verdict is `respawned`, with `evidence`; otherwise
    `problem` is what would start it. `unreaped`: a sentence for each trainer that is dead and
    still there."""

    problem: str | None = None
    findings: tuple[str, ...] = ()
    again: bool = False
    evidence: tuple[str, ...] = ()
    unreaped: tuple[str, ...] = ()


async def came_back(scope: Scope, scene: Scene, climb: Climb) -> Returned:
    """Whether the job runs again under a new identity, or what would start it again does."""
    job = scope.target.job
    assert job is not None
    scope.teller.tell(events.Verifying, what="above")
    above = standing_above(scene.tree, climb.family, scene.notes)
    start = scope.clock.now()
    while True:
        tree = await looks.look(scope.place, scope.target.vmid)
        tree, found = await identify(scope, tree, job, Unseen(""), scene.notes)
        if (fresh := _fresh(found, scene, climb)) is not None:
            new = tuple(pid for pid in fresh if not _its_own_fork(tree, climb, pid))
            return _respawned(new, tree, above) if new else _outlived(fresh, tree, climb)
        waited = scope.clock.now() - start
        left = found.leftovers if job.wrapper != "outlives" else ()
        if left and waited >= LEAVING_S:
            said = f"{left[0].pid} {brief(left[0].argv or ())} would start it again"
            return Returned(problem=f"respawned: {said}", unreaped=_unreaped(tree, climb))
        able = await _able(scope, above, tree, climb)
        if not left and not any(waited < each.delay_s + GRACE_S for each in able):
            findings = (*_quiet(scope, able), *_unknown(scope, above, tree, climb))
            return Returned(findings=findings, unreaped=_unreaped(tree, climb))
        await climb.stamp()
        await scope.clock.sleep(0.5)


def _fresh(found: Found, scene: Scene, climb: Climb) -> tuple[int, ...] | None:
    """Host PIDs of trainers that were not there before."""
    known = climb.family.ids | {each.id for each in scene.found.orphans}
    fresh = [k.id.pid for family in found.families for k in family.trainers if k.id not in known]
    return tuple(fresh) or None


async def _able(
    scope: Scope, above: tuple[Above, ...], tree: ProcessTree, climb: Climb
) -> list[Above]:
    """Who lives, is no member, and could start the job again by what it was told. Members are
    not waited for: while one lives, the end is not clean anyway."""
    members = climb.family.ids
    able = []
    for each in above:
        if each.again == "never" or each.id in members:
            continue
        if each.id is not None and tree.get(each.id) is None:
            continue
        if each.kind == "systemd":
            now = await ask_unit(scope, (each.name or "").partition(" ")[0])
            if now is not None and now.settled:
                continue
        able.append(each)
    return able


def _quiet(scope: Scope, able: list[Above]) -> tuple[str, ...]:
    return tuple(
        scope.teller.finding(
            f"{called(each)} could start it again, and did not within {each.delay_s + GRACE_S:g} s"
        )
        for each in able
    )


def _unknown(
    scope: Scope, above: tuple[Above, ...], tree: ProcessTree, climb: Climb
) -> tuple[str, ...]:
    """A program of somebody's own may be a loop that sleeps: it is named, since "stopped" holds
    only as long as it starts nothing."""
    return tuple(
        scope.teller.finding(
            f"{each.pid} {brief(each.argv)} stood above it and lives on; whether it starts the job "
            "again is not known"
        )
        for each in above
        if each.kind == "other" and each.id is not None and each.id not in climb.family.ids
        if (process := tree.get(each.id)) is not None and process.alive
    )


def _unreaped(tree: ProcessTree, climb: Climb) -> tuple[str, ...]:
    dead = [tree.get(kin.id) for kin in climb.family.trainers]
    return tuple(why_zombie(each, tree) for each in dead if each is not None and each.zombie)


def _respawned(fresh: tuple[int, ...], tree: ProcessTree, above: tuple[Above, ...]) -> Returned:
    pids = ", ".join(str(tree.processes[pid].pid) for pid in fresh)
    over = {each.id for each in tree.above(fresh[0])}
    groups = units_of(tree.processes[fresh[0]].cgroups)
    able = [
        each
        for each in above
        if each.again != "never"
        and (each.id in over or any((each.name or "").startswith(unit) for unit in groups))
    ]
    # the farthest is the one that nothing else has started again
    who = next(iter(able), None)
    name = f"; {called(who)} {who.will}" if who is not None else ""
    by = called(who) if who is not None else _parent(tree.processes[fresh[0]], tree)
    problem = f"respawned: the job runs again as {pids}{name}"
    return Returned(problem=problem, again=True, evidence=(respawned(pids, by),))


def _its_own_fork(tree: ProcessTree, climb: Climb, pid: int) -> bool:
    """No new life: who starts a job again executes it. A fork without exec that has lost its parent
    and was born while a trainer lived is one that a trainer left behind, to save, say."""
    process, until = tree.processes[pid], climb.ladder.trained_until
    born_in_time = until is None or process.id.start <= (until + NEXT_LOOK_S) * tree.hz
    return process.forked and born_in_time and _parent(process, tree) is None


def _outlived(pids: tuple[int, ...], tree: ProcessTree, climb: Climb) -> Returned:
    names = ", ".join(
        f"{p.pid} {brief(p.argv or (p.comm,))}" for p in map(tree.processes.get, pids) if p
    )
    problem = f"{names} was forked by a trainer before that ended, and lives on: it may still save"
    return Returned(problem=problem, unreaped=_unreaped(tree, climb))


def _parent(process: Process, tree: ProcessTree) -> str | None:
    """Its parent, which started it again; None where that is not seen: PID 1 adopts anybody."""
    above = tree.processes.get(process.ppid)
    if above is None or 1 in (above.pid, above.id.pid):
        return None
    return f"{above.pid} {brief(above.argv or (above.comm,))}"
