"""A job that runs, found by its PID, as the inventory would name it. Writes and sends nothing."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from fleetstop import events
from fleetstop.actions import looks, reading
from fleetstop.actions.locate import Scene, locate
from fleetstop.actions.origins import began, login, origin_of, person, process_of, script_of
from fleetstop.actions.present import members, outcome_of
from fleetstop.actions.telling import Scope
from fleetstop.core.above.supervisors import standing_above
from fleetstop.core.adopting.gather import (
    Facts,
    Gathered,
    already,
    candidates,
    gather,
    saving_places,
    told_apart,
)
from fleetstop.core.climbing.requests import heard_by_all
from fleetstop.core.gpu import Unseen, indexes_of
from fleetstop.core.inventory import Job, Match
from fleetstop.core.kin.family import Family
from fleetstop.core.kin.matching import needs_detail
from fleetstop.core.launching.origin import Origin
from fleetstop.core.launching.outermost import owners
from fleetstop.core.process import ProcessTree
from fleetstop.core.redact import brief
from fleetstop.core.report import Outcome
from fleetstop.core.saves.checkpoint import checkpoints
from fleetstop.core.saves.listing import Listing
from fleetstop.errors import CouldNotLook, Refused

_PLACES = 4
_MATCH_BY_HAND = "write it by hand: match: {pgrep: …} takes any command line (README, Inventory)"


class Seen(Struct, frozen=True):
    """What was found: whom it is about, and what would be written."""

    gathered: Gathered
    family: Family


async def adopt(scope: Scope, pid: int, known: tuple[Job, ...] = ()) -> tuple[Outcome, Seen]:
    """`pid` as the container counts; that of a wrapper, worker or rank means the whole job.
    `known`: the jobs that the inventory has there.

    Raises Refused where it names no job, one that is known, or none that a match can tell from
    others.
    """
    started = scope.clock.now()
    scope = _with_match(scope, Match(pid=pid))
    scene = await locate(scope)
    if not scene.running:
        raise Refused(f"container {scope.target.vmid} is stopped: nothing runs there")
    named = _one_family(scope, scene, pid)
    match, family, tree = await _recognised(scope, scene, named)
    if (name := already(tree, family, known)) is not None:
        raise Refused(
            f"{pid} is the inventory's job {name} already",
            hint=f"{scope.run.typed('status', scope.target.name)} shows it",
        )
    seen = Seen(gather(await _facts(scope, scene, tree, family, match)), family)
    outcome = outcome_of(
        scope.target,
        "running",
        family=members(family, None),
        findings=seen.gathered.notes,
        seconds=round(scope.clock.now() - started, 3),
        cost=scope.cost(),
    )
    scope.teller.tell(events.TargetFinished, outcome=outcome)
    return outcome, seen


def _with_match(scope: Scope, match: Match) -> Scope:
    job = Job(name="", match=match)
    return msgspec.structs.replace(scope, target=msgspec.structs.replace(scope.target, job=job))


def _one_family(scope: Scope, scene: Scene, pid: int) -> Family:
    found, where = scene.found, scope.target.name
    if scene.tree.by_inner(pid) is None:
        raise Refused(
            f"no process has the PID {pid} in {where}",
            hint=f"{scope.run.typed('status', where)} shows what holds a GPU there",
        )
    if found.unclear is not None:
        raise Refused(found.unclear, hint="name the trainer itself with --pid")
    if len(found.families) != 1 or not found.families[0].trainers:
        raise Refused(f"{pid} in {where} is no job: nothing works there that could be adopted")
    return found.families[0]


async def _recognised(
    scope: Scope, scene: Scene, family: Family
) -> tuple[Match, Family, ProcessTree]:
    """A match that finds this job and nothing else, now."""
    trainer = process_of(scene.tree, family.trainers[0])
    origin = await origin_of(scope, scene.tree, trainer)
    matches = candidates(trainer, await script_of(scope, trainer, origin))
    gpu_pids = None
    if not isinstance(scene.gpus, Unseen):
        gpu_pids = frozenset(each.pid for each in scene.gpus.holders if each.pid is not None)
    wanted: set[int] = set()
    for each in matches:
        wanted |= needs_detail(each, scene.tree, frozenset())
    tree = await looks.add_detail(scope.place, scene.tree, wanted)
    found = told_apart(tree, family, matches, gpu_pids)
    if found is None:
        said = brief(trainer.argv or (trainer.comm,))
        raise Refused(
            f"no script, module or program tells {trainer.pid} {said} from what else runs there",
            hint=_MATCH_BY_HAND,
        )
    return *found, tree


async def _facts(
    scope: Scope, scene: Scene, tree: ProcessTree, family: Family, match: Match
) -> Facts:
    start = await began(scope, tree, family)
    who = start.head.uid
    pids = frozenset(kin.id.pid for kin in family.members)
    return Facts(
        match=match,
        head=start.head,
        trainer=start.trainer,
        cwd=start.cwd,
        script=await script_of(scope, process_of(tree, family.trainers[0]), start.trainer),
        heard=heard_by_all(family, tree),
        tee=start.tee,
        checkpoints=await _checkpoints(scope, tree, family, start.trainer),
        gpus=None if isinstance(scene.gpus, Unseen) else indexes_of(scene.gpus, pids),
        person=await person(scope, str(who)) if who is not None else None,
        login=await login(scope),
        owners=owners(family, standing_above(tree, family, scene.notes)),
        ranks=len(family.trainers),
    )


async def _checkpoints(
    scope: Scope, tree: ProcessTree, family: Family, origin: Origin
) -> str | None:
    """The first of the directories it may save to in which a checkpoint lies."""
    written = [
        file.target
        for kin in family.members
        if (process := tree.get(kin.id)) is not None
        for file in (process.detail.files if process.detail else None) or ()
        if file.writable_file
    ]
    for each in saving_places(origin.argv, origin.cwd, written)[:_PLACES]:
        try:
            listed = await reading.listing(await scope.place.files(), each)
        except CouldNotLook:
            return None
        if isinstance(listed.listing, Listing) and checkpoints(listed.listing):
            return each
    return None
