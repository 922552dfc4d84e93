"""What runs: one target looked at twice, told, nothing sent."""

from __future__ import annotations

from typing import Any

import msgspec

from fleetstop import events
from fleetstop.actions import looks
from fleetstop.actions.code import Code, code, left
from fleetstop.actions.locate import Scene, locate
from fleetstop.actions.lock import Lock
from fleetstop.actions.present import (
    above,
    failed,
    gaps,
    gpu_records,
    gpu_strangers,
    left_behind,
    located,
    members,
    newest_record,
    orphaned,
    outcome_of,
)
from fleetstop.actions.reconnect import ReconnectingPlace
from fleetstop.actions.snapshots import snapshot
from fleetstop.actions.stacks import NOWHERE, stacks
from fleetstop.actions.telling import Scope
from fleetstop.core.inventory import Job, Match
from fleetstop.core.judging.marks import Mark, earlier_marks
from fleetstop.core.kin.family import Family
from fleetstop.core.ledger import heard_before
from fleetstop.core.process import ProcessId, ProcessTree
from fleetstop.core.redact import brief
from fleetstop.core.report import Outcome
from fleetstop.core.verdict import ORDER, Judged, Look, follow, judge, standing_still
from fleetstop.errors import CouldNotLook

BETWEEN_S = 0.25
LONGER_S = 0.8
# somebody waits for the table, and a cron job for its end: no minute is spent on the way back
WAY_BACK_S = 10.0
TWO_CONNECTIONS = "the connection was lost during the look, which went on over a new one"


async def status(scope: Scope, *, with_stacks: bool = False) -> Outcome:
    """Result `running`, `not_running`, `unclean` (between two lives) or `unreachable`."""
    started = scope.clock.now()
    place = ReconnectingPlace(
        scope.place, scope.target.host.name, scope.clock, scope.teller, within_s=WAY_BACK_S
    )
    scope = msgspec.structs.replace(scope, place=place)
    try:
        outcome = await _status(scope, with_stacks)
    except CouldNotLook as exc:
        outcome = outcome_of(scope.target, **failed(exc))
    if place.remade:
        findings = (*outcome.findings, scope.teller.finding(TWO_CONNECTIONS))
        outcome = msgspec.structs.replace(outcome, findings=findings)
    seconds = round(scope.clock.now() - started, 3)
    outcome = msgspec.structs.replace(outcome, seconds=seconds, cost=scope.cost())
    scope.teller.tell(events.TargetFinished, outcome=outcome)
    return outcome


async def _status(scope: Scope, with_stacks: bool, *, again: bool = False) -> Outcome:
    target = scope.target
    if target.job is None:
        # nobody has said what the job is: show every tree that holds a GPU
        job = Job(name="", match=Match(gpu=True))
        scope = msgspec.structs.replace(scope, target=msgspec.structs.replace(target, job=job))
    scene = await locate(scope)
    if not scene.running:
        return outcome_of(scope.target, "not_running", reason=f"container {target.vmid} is stopped")
    if not scene.found.families:
        return await _nothing(scope, scene)
    judged, codes = await _second_look(scope, scene)
    if not again and all(_ended(each) for each in judged.values()):
        # between the two looks: what there is now is looked at, be it the next life of a restart
        return await _status(scope, with_stacks, again=True)
    for family in scene.found.families:
        seen = (judged[family], codes[family].seen)
        scope.teller.tell(
            events.Located, **located(scope, scene, family, None, False, False, *seen)
        )
    outcome = _running(scope, scene, judged, codes)
    return await _with_stacks(scope, scene, outcome) if with_stacks else outcome


def _ended(judged: Judged) -> bool:
    return judged.verdict == "gone"


async def _with_stacks(scope: Scope, scene: Scene, outcome: Outcome) -> Outcome:
    """Where each trainer is in its Python code; where there is no py-spy, how to get it."""
    taken = [each for family in scene.found.families for each in await stacks(scope, family)]
    findings = outcome.findings if taken else (*outcome.findings, NOWHERE)
    return msgspec.structs.replace(outcome, stacks=tuple(taken), findings=findings)


async def _nothing(scope: Scope, scene: Scene) -> Outcome:
    found = scene.found
    if found.unclear is not None:
        return outcome_of(scope.target, "running", verdict="unknown", reason=found.unclear)
    if found.leftovers:
        names = ", ".join(f"{each.pid} {brief(each.argv or ())}" for each in found.leftovers)
        reason = f"between two lives: no trainer runs, but what would start one does: {names}"
        return outcome_of(scope.target, "running", verdict="unknown", reason=reason)
    last = await left(scope, scene)
    if last.comes is not None:
        reason = f"between two lives: no trainer runs, but {last.comes}"
        facts: dict[str, Any] = {"verdict": "unknown", "reason": reason, "release": last.release}
        return outcome_of(scope.target, "running", **facts)
    job = scope.target.job
    if job is not None and job.match.gpu and not job.name:
        reason = "no process that could be looked at holds a GPU here" + left_behind(scene)
        hint = scope.run.typed("status", scope.target.name, "--script", "train.py")
        return outcome_of(scope.target, "not_running", reason=reason, hint=hint)
    strangers = gpu_strangers(scene)
    reason = f"nothing matches; {strangers} holds a GPU here" if strangers else "nothing matches"
    reason += left_behind(scene)
    facts = {"reason": reason, "findings": last.findings, "release": last.release}
    return outcome_of(scope.target, "not_running", **facts)


async def _second_look(
    scope: Scope, scene: Scene
) -> tuple[dict[Family, Judged], dict[Family, Code]]:
    """Progress only shows between two looks; where none shows, a third one comes a second later.
    What is on disk is looked at in between."""
    families = scene.found.families
    before = Look(at=scene.at, tree=scene.tree, real=scene.real, log=scene.log)
    followed = {family: follow(None, before, family) for family in families}
    now = before
    _, codes = await looks.together(scope.clock.sleep(BETWEEN_S), _codes(scope, scene))
    for pause in (0.0, LONGER_S):
        if pause:
            await scope.clock.sleep(pause)
        before, now = now, await _look(scope, scene)
        followed = {family: follow(followed[family], now, family) for family in families}
        if not any(standing_still(followed[family], now, family) for family in families):
            break
    marks = await heard(scope, scene, now.tree)
    job = scope.target.job
    judged = {
        family: judge(
            before,
            now,
            family,
            stop_signals=_stop_signals(job),
            checkpoints=job.checkpoints if job else None,
            heard=marks,
            progress=followed[family],
        )
        for family in families
    }
    for family, each in judged.items():
        snapshot(scope, "found", family, now.tree, each)
    return judged, codes


async def _codes(scope: Scope, scene: Scene) -> dict[Family, Code]:
    return {family: await code(scope, scene, family) for family in scene.found.families}


async def _look(scope: Scope, scene: Scene) -> Look:
    pids = {kin.id.pid for family in scene.found.families for kin in family.members}
    tree = await looks.look(scope.place, scope.target.vmid)
    tree = await looks.add_detail(scope.place, tree, pids)
    return Look(
        at=scope.clock.now(),
        tree=tree,
        real=scene.real,
        temporary=scene.coming,
        risk=scene.risk,
        log=scene.log,
    )


async def heard(scope: Scope, scene: Scene, tree: ProcessTree) -> dict[ProcessId, Mark]:
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


def _running(
    scope: Scope, scene: Scene, judged: dict[Family, Judged], codes: dict[Family, Code]
) -> Outcome:
    worst = min(judged.values(), key=lambda each: ORDER.index(each.verdict))
    findings = gaps(scope, scene)
    findings += [text for each in judged.values() for text in each.findings]
    findings += [text for each in codes.values() for text in each.findings]
    if scene.found.unclear:
        findings.append(scene.found.unclear)
    left = orphaned(scene)
    trains = any(family.trainers for family in judged)
    findings += [left] if left is not None and trains else []
    if len(judged) > 1:
        findings.append(f"{len(judged)} unrelated trees match; stop would refuse")
    return outcome_of(
        scope.target,
        "running",
        verdict=worst.verdict,
        reason=None if trains else left,
        evidence=worst.evidence,
        family=tuple(m for family in judged for m in members(family, judged[family])),
        above=tuple(a for family in judged for a in above(scene.tree, family, scene.notes)),
        checkpoint=newest_record(scene),
        gpus=tuple(r for family in judged for r in gpu_records(scene, family) or ()),
        findings=tuple(dict.fromkeys(findings)),
        release=next((each.release for each in codes.values() if each.release), None),
    )
