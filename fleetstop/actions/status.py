"""What runs: one target looked at twice, told, nothing sent."""

from __future__ import annotations

import msgspec

from fleetstop import events
from fleetstop.actions import looks
from fleetstop.actions.locate import Scene, locate
from fleetstop.actions.lock import Lock
from fleetstop.actions.present import blind, gpu_records, located, members
from fleetstop.actions.telling import Scope
from fleetstop.core.family import Family
from fleetstop.core.inventory import Job, Match
from fleetstop.core.ladder import earlier_marks
from fleetstop.core.ledger import heard_before
from fleetstop.core.process import ProcessId, ProcessTree
from fleetstop.core.report import CheckpointRecord, Outcome
from fleetstop.core.verdict import ORDER, Judged, Look, Mark, judge
from fleetstop.errors import CouldNotLook

BETWEEN_S = 0.25


async def status(scope: Scope) -> Outcome:
    """Result `running`, `not_running`, `unclean` (between two lives) or `unreachable`."""
    started = scope.clock.now()
    try:
        outcome = await _status(scope)
    except CouldNotLook as exc:
        outcome = _outcome(
            scope,
            result="unreachable",
            verdict=blind(exc),
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
        return _outcome(scope, result="not_running", reason=f"container {target.vmid} is stopped")
    if not scene.found.families:
        return _nothing(scope, scene)
    judged = await _second_look(scope, scene)
    for family in scene.found.families:
        scope.teller.tell(
            events.Located, **located(scope, scene, family, None, False, False, judged[family])
        )
    return _running(scope, scene, judged)


def _nothing(scope: Scope, scene: Scene) -> Outcome:
    left = scene.found.leftovers
    if scene.found.unclear is not None:
        return _outcome(scope, result="not_running", reason=scene.found.unclear)
    if left:
        names = ", ".join(f"{each.pid} {' '.join(each.argv or ())}" for each in left)
        reason = f"no trainer runs, but what would start one does: {names}"
        return _outcome(scope, result="not_running", reason=reason)
    return _outcome(scope, result="not_running", reason="nothing matches")


async def _second_look(scope: Scope, scene: Scene) -> dict[Family, Judged]:
    """Progress only shows between two looks."""
    await scope.clock.sleep(BETWEEN_S)
    pids = {kin.id.pid for family in scene.found.families for kin in family.members}
    tree = await looks.look(scope.place, scope.target.vmid)
    tree = await looks.add_detail(scope.place, tree, pids)
    first, second = Look(at=scene.at, tree=scene.tree), Look(at=scope.clock.now(), tree=tree)
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
    return earlier_marks(tree, heard_before(ledger, ids, scope.run.id))


def _stop_signals(job: Job | None) -> tuple[str, ...]:
    return tuple(sorted({job.stop_signal or "INT", "INT", "TERM"} if job else {"INT", "TERM"}))


def _running(scope: Scope, scene: Scene, judged: dict[Family, Judged]) -> Outcome:
    worst = min(judged.values(), key=lambda each: ORDER.index(each.verdict))
    findings = [each for each in (scene.found.unclear,) if each]
    if len(judged) > 1:
        findings.append(f"{len(judged)} unrelated trees match; stop would refuse")
    record = None
    if scene.newest is not None:
        age = max(0.0, scene.remote_now - scene.newest.mtime) if scene.remote_now else None
        record = CheckpointRecord(
            path=scene.newest.path,
            age_s=age,
            complete=scene.newest_complete,
            written_after_signal=None,
        )
    return _outcome(
        scope,
        result="running",
        verdict=worst.verdict,
        evidence=worst.evidence,
        family=tuple(m for family in judged for m in members(family, judged[family])),
        checkpoint=record,
        gpus=tuple(r for family in judged for r in gpu_records(scene, family) or ()),
        findings=tuple(findings),
    )


def _outcome(scope: Scope, **facts: object) -> Outcome:
    target = scope.target
    return Outcome(
        target=target.name,
        host=target.host.name,
        vmid=target.vmid,
        job=target.job_name,
        **facts,  # type: ignore[arg-type]
    )
