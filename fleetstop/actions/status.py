"""What runs: one target looked at twice, told, nothing sent."""

from __future__ import annotations

import msgspec

from fleetstop import events
from fleetstop.actions import looks
from fleetstop.actions.locate import Scene, locate
from fleetstop.actions.lock import Lock
from fleetstop.actions.present import (
    above,
    blind,
    gaps,
    gpu_records,
    gpu_strangers,
    located,
    members,
    newest_record,
    outcome_of,
)
from fleetstop.actions.telling import Scope
from fleetstop.core.family import Family
from fleetstop.core.inventory import Job, Match
from fleetstop.core.ladder import earlier_marks
from fleetstop.core.ledger import heard_before
from fleetstop.core.process import ProcessId, ProcessTree
from fleetstop.core.redact import command
from fleetstop.core.report import Outcome
from fleetstop.core.verdict import ORDER, Judged, Look, Mark, judge
from fleetstop.errors import CouldNotLook

BETWEEN_S = 0.25


async def status(scope: Scope) -> Outcome:
    """Result `running`, `not_running`, `unclean` (between two lives) or `unreachable`."""
    started = scope.clock.now()
    try:
        outcome = await _status(scope)
    except CouldNotLook as exc:
        outcome = outcome_of(
            scope.target,
            "unreachable",
            verdict=blind(exc),
            evidence=(exc.message,),
            reason=exc.message,
            hint=exc.hint or None,
        )
    seconds = round(scope.clock.now() - started, 3)
    outcome = msgspec.structs.replace(outcome, seconds=seconds, cost=scope.cost())
    scope.teller.tell(events.TargetFinished, outcome=outcome)
    return outcome


async def _status(scope: Scope) -> Outcome:
    target = scope.target
    if target.job is None:
        # nobody has said what the job is: show every tree that holds a GPU
        job = Job(name="", match=Match(gpu=True))
        scope = msgspec.structs.replace(scope, target=msgspec.structs.replace(target, job=job))
    scene = await locate(scope)
    if not scene.running:
        return outcome_of(scope.target, "not_running", reason=f"container {target.vmid} is stopped")
    if not scene.found.families:
        return _nothing(scope, scene)
    judged = await _second_look(scope, scene)
    for family in scene.found.families:
        scope.teller.tell(
            events.Located, **located(scope, scene, family, None, False, False, judged[family])
        )
    return _running(scope, scene, judged)


def _nothing(scope: Scope, scene: Scene) -> Outcome:
    found = scene.found
    if found.unclear is not None:
        return outcome_of(scope.target, "running", verdict="unknown", reason=found.unclear)
    if found.leftovers:
        names = ", ".join(f"{each.pid} {command(each.argv or ())}" for each in found.leftovers)
        reason = f"between two lives: no trainer runs, but what would start one does: {names}"
        return outcome_of(scope.target, "running", verdict="unknown", reason=reason)
    strangers = gpu_strangers(scene)
    reason = f"nothing matches; {strangers} holds a GPU here" if strangers else "nothing matches"
    return outcome_of(scope.target, "not_running", reason=reason)


async def _second_look(scope: Scope, scene: Scene) -> dict[Family, Judged]:
    """Progress only shows between two looks."""
    await scope.clock.sleep(BETWEEN_S)
    pids = {kin.id.pid for family in scene.found.families for kin in family.members}
    tree = await looks.look(scope.place, scope.target.vmid)
    tree = await looks.add_detail(scope.place, tree, pids)
    first = Look(at=scene.at, tree=scene.tree, real=scene.real)
    second = Look(at=scope.clock.now(), tree=tree, real=scene.real)
    marks = await _heard(scope, scene, tree)
    job = scope.target.job
    return {
        family: judge(
            first,
            second,
            family,
            stop_signals=_stop_signals(job),
            checkpoints=job.checkpoints if job else None,
            heard=marks,
        )
        for family in scene.found.families
    }


async def _heard(scope: Scope, scene: Scene, tree: ProcessTree) -> dict[ProcessId, Mark]:
    """Who has heard a signal of an earlier stop: it may have shut its ears since. Nobody where
    the ledger cannot be read: a status does without."""
    ids = frozenset(kin.id for family in scene.found.families for kin in family.trainers)
    try:
        ledger = await Lock(scope.place.host, scope.run, scope.target.vmid, scope.clock).read()
    except CouldNotLook:
        return {}
    return earlier_marks(tree, heard_before(ledger, ids))


def _stop_signals(job: Job | None) -> tuple[str, ...]:
    return tuple(sorted({job.stop_signal or "INT", "INT", "TERM"} if job else {"INT", "TERM"}))


def _running(scope: Scope, scene: Scene, judged: dict[Family, Judged]) -> Outcome:
    worst = min(judged.values(), key=lambda each: ORDER.index(each.verdict))
    findings = gaps(scope, scene)
    if scene.found.unclear:
        findings.append(scene.found.unclear)
    if len(judged) > 1:
        findings.append(f"{len(judged)} unrelated trees match; stop would refuse")
    return outcome_of(
        scope.target,
        "running",
        verdict=worst.verdict,
        evidence=worst.evidence,
        family=tuple(m for family in judged for m in members(family, judged[family])),
        above=tuple(a for family in judged for a in above(scene, family)),
        checkpoint=newest_record(scene),
        gpus=tuple(r for family in judged for r in gpu_records(scene, family) or ()),
        findings=tuple(findings),
    )
