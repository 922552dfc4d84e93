"""A job that runs, found by its PID, as the inventory would name it. Writes and sends nothing."""

from __future__ import annotations

import posixpath

import msgspec
from msgspec import Struct

from fleetstop import events
from fleetstop.actions import looks
from fleetstop.actions.locate import Scene, locate
from fleetstop.actions.origins import login, origins, person, where_from
from fleetstop.actions.present import members, outcome_of
from fleetstop.actions.telling import Scope
from fleetstop.core.above.supervisors import standing_above
from fleetstop.core.adopting.gather import (
    Facts,
    Gathered,
    already,
    candidates,
    gather,
    program_word,
    saving_places,
    told_apart,
)
from fleetstop.core.climbing.requests import heard_by_all
from fleetstop.core.gpu import Unseen, indexes_of
from fleetstop.core.inventory import Job, Match
from fleetstop.core.kin.family import Family, Kin
from fleetstop.core.kin.matching import needs_detail
from fleetstop.core.launching.origin import Origin
from fleetstop.core.launching.outermost import outermost, owners, tee_log
from fleetstop.core.process import Process, ProcessTree
from fleetstop.core.redact import brief
from fleetstop.core.report import Outcome
from fleetstop.core.saves.checkpoint import checkpoints
from fleetstop.core.saves.listing import Listing
from fleetstop.errors import CouldNotLook, Refused, RemoteFailed

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
    trainer = _process(scene.tree, family.trainers[0])
    origin = await _origin(scope, scene.tree, trainer)
    matches = candidates(trainer, await _script(scope, trainer, origin))
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
    head = outermost(tree, family)
    if head is None:
        raise Refused("its trainers were started apart from each other: no one command starts it")
    trainer = _process(tree, family.trainers[0])
    began, trains = await _origin(scope, tree, head), await _origin(scope, tree, trainer)
    pids = frozenset(kin.id.pid for kin in family.members)
    return Facts(
        match=match,
        head=began,
        trainer=trains,
        cwd=await where_from(scope, began, program_word(head)),
        script=await _script(scope, trainer, trains),
        heard=heard_by_all(family, tree),
        tee=tee_log(tree, family),
        checkpoints=await _checkpoints(scope, tree, family, trains),
        gpus=None if isinstance(scene.gpus, Unseen) else indexes_of(scene.gpus, pids),
        person=await person(scope, str(began.uid)) if began.uid is not None else None,
        login=await login(scope),
        owners=owners(family, standing_above(tree, family, scene.notes)),
    )


def _process(tree: ProcessTree, kin: Kin) -> Process:
    found = tree.get(kin.id)
    if found is None:
        raise RemoteFailed(f"{kin.pid} was there, and is not in the look")
    return found


async def _origin(scope: Scope, tree: ProcessTree, process: Process) -> Origin:
    found = (await origins(scope, tree, [process])).get(process.id)
    if found is None:
        raise RemoteFailed(
            f"{process.pid} ({process.comm}) ended while it was looked at, or is hidden from us"
        )
    return found


async def _script(scope: Scope, process: Process, origin: Origin) -> str | None:
    """The file it executes, absolute; None where it is none, or cannot be told."""
    word = program_word(process)
    if word is None or word == (process.argv or ("",))[0]:
        return None
    directory = await where_from(scope, origin, word)
    if not word.startswith("/") and directory is None:
        return None
    return posixpath.normpath(posixpath.join(directory or "/", word))


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
            listed = await looks.listing(await scope.place.files(), each)
        except CouldNotLook:
            return None
        if isinstance(listed.listing, Listing) and checkpoints(listed.listing):
            return each
    return None
