"""Prove that the job saved: a checkpoint that is new, ours and whole; else say what is lost."""

from __future__ import annotations

import msgspec

from fleetstop import events
from fleetstop.actions import looks
from fleetstop.actions.climb import Climb
from fleetstop.actions.locate import Scene
from fleetstop.actions.proof import Proof
from fleetstop.actions.resting import AtRest, at_rest
from fleetstop.actions.telling import Scope
from fleetstop.core.durations import spoken, written
from fleetstop.core.kin.family import standing
from fleetstop.core.report import CheckpointRecord
from fleetstop.core.saves import checkpoint as ckpt
from fleetstop.core.saves.checkpoint import Checkpoint, Listing
from fleetstop.core.saves.formats import Read
from fleetstop.core.saves.listing import spelled
from fleetstop.core.saves.risk import age
from fleetstop.core.saves.wholeness import less_than_the_last, usual_interval

_MOST_TRIED = 20
_NO_LOSS_S = 0.25


async def checkpoint(scope: Scope, scene: Scene, climb: Climb) -> Proof:
    """New against the first look, ours, and complete; polled for `verify.within`."""
    job, verify = scope.target.job, climb.ladder.playbook.verify
    if job is None or verify.checkpoint == "none" or not climb.family.trainers:
        return Proof()  # workers that a trainer left behind have nothing to save
    if job.checkpoints is None:
        text = "whether it saved was not looked at: no checkpoints: is known for this job"
        return Proof(findings=(scope.teller.finding(text),))
    scope.teller.tell(events.Verifying, what="checkpoint")
    if not isinstance(scene.listing, Listing):
        return _unseen(scope, climb, "the checkpoints could not be listed at the first look")
    try:
        end = await at_rest(scope, scene.listing, climb, job.checkpoints)
    except looks.NOT_ENTERED as exc:
        return _unseen(scope, climb, str(exc))
    if isinstance(end, str):
        return _unseen(scope, climb, end)
    notes = [f"{name} is new too, and not whole" for name in end.broken]
    notes += [f"{name} was left unfinished" for name in end.left]
    notes += [_torn(name, climb) for name in end.torn]
    findings = tuple(scope.teller.finding(each) for each in notes)
    proof = await _judge(scope, scene, climb, end)
    return Proof(problem=proof.problem, findings=(*findings, *proof.findings), record=proof.record)


def _torn(name: str, climb: Climb) -> str:
    signal = climb.ladder.sent[-1].signal
    return (
        f"{name} was being written when {signal} went out; its format does not tell if it is whole"
    )


async def _judge(scope: Scope, scene: Scene, climb: Climb, end: AtRest) -> Proof:
    for each in end.whole:
        if await _ours(climb, end, each):
            return await _told(scope, scene, climb, end, each)
    if end.whole:
        name = end.whole[0].name
        text = f"unproven: {name} is new and complete, but it may be another job's"
        read = await _read(scope, climb, end.whole[0])
        return Proof(problem=text, record=_record(climb, end, end.whole[0], read))
    newest, told = await _newest_whole(scope, climb, end)
    record = _record(climb, end, newest, told) if newest else None
    if newest is not None and record is not None and climb.ladder.watched:
        return _earlier(scope, scene, climb, newest, record)
    return _not_saved(scope, scene, climb, newest, record)


async def _told(scope: Scope, scene: Scene, climb: Climb, end: AtRest, saved: Checkpoint) -> Proof:
    record = _record(climb, end, saved, await _read(scope, climb, saved))
    if record.written_after_signal or not climb.signals:
        return _proven(scope, end, saved, record)
    if record.written_after_signal is None:
        return _unseen(scope, climb, "the checkpoints were not seen when the signal went out")
    return _not_saved(scope, scene, climb, saved, record)


async def _read(scope: Scope, climb: Climb, one: Checkpoint) -> Read:
    shell = await scope.place.files()
    return await climb.files.kept.read(shell, one, frozenset(), stable=True)


async def _newest_whole(scope: Scope, climb: Climb, end: AtRest) -> tuple[Checkpoint | None, Read]:
    """What is left to go on from: the newest complete one, else the newest of doubtful ones."""
    doubtful: Checkpoint | None = None
    for each in reversed(ckpt.checkpoints(end.listing)[-_MOST_TRIED:]):
        if each.name in end.torn:
            doubtful = doubtful or each
        elif each.name not in end.broken:
            told = await _read(scope, climb, each)
            if told.whole:
                return each, told
            doubtful = doubtful or (each if told.whole is None else None)
    return doubtful, Read(None, False)


def _proven(scope: Scope, end: AtRest, saved: Checkpoint, record: CheckpointRecord) -> Proof:
    doubt = less_than_the_last(ckpt.checkpoints(end.listing), saved)
    if record.written_after_signal:
        scope.teller.tell(
            events.CheckpointVerified, name=saved.name, size=saved.size, complete=True
        )
    return Proof(record=record, findings=(scope.teller.finding(doubt),) if doubt else ())


def _earlier(
    scope: Scope, scene: Scene, climb: Climb, newest: Checkpoint, record: CheckpointRecord
) -> Proof:
    """The signal was an earlier run's, and nothing is new since this run looked: the save may
    have been finished between. Both times are the host's: no delay of ours comes between them."""
    watched = climb.ladder.watched[-1]
    if watched.heard.between is None:
        return _unseen(scope, climb, "the signal was an earlier run's, and no clock was seen")
    earliest, latest = watched.heard.between
    if newest.mtime < earliest or not record.complete or climb.signals:
        return _not_saved(scope, scene, climb, newest, record)
    if newest.mtime < latest - _NO_LOSS_S:  # the clocks were asked one after the other, and slowly
        text = f"{newest.name} was written about when the signal went out, before or after it"
        return _unseen(scope, climb, text)
    text = f"{newest.name} was written after run {watched.heard.run} sent {watched.signal}"
    made = msgspec.structs.replace(record, complete=True, written_after_signal=True)
    return Proof(findings=(scope.teller.finding(text),), record=made)


async def _ours(climb: Climb, end: AtRest, saved: Checkpoint) -> bool:
    """A member had it open; or it was there when the family had ended, and nobody else has any
    business in that directory."""
    files = climb.files
    if files.had_open(saved):
        return True
    if files.named_by_another(saved) or _came_later(climb, end, saved):
        return False
    return await files.nobody_else(saved)


def _came_later(climb: Climb, end: AtRest, saved: Checkpoint) -> bool:
    """The dead write nothing: what changed after the last of them had ended is another's."""
    if standing(climb.family, climb.look.tree):
        return False
    return ckpt.written_since(end.first, saved)


def _record(climb: Climb, end: AtRest, one: Checkpoint, told: Read) -> CheckpointRecord:
    """`written_after_signal`: against the listing when the last signal went out."""
    at_signal = climb.listing_at_signal
    after: bool | None = None
    if isinstance(at_signal, Listing):
        after = ckpt.written_since(at_signal, one)
    elif not climb.signals:
        after = False
    return CheckpointRecord(
        path=spelled(one.path),
        age_s=age(one.mtime, end.now),
        complete=told.whole,
        written_after_signal=after,
        known_format=told.known,
        usual_s=usual_interval(ckpt.checkpoints(end.listing), one),
    )


def _not_saved(
    scope: Scope,
    scene: Scene,
    climb: Climb,
    newest: Checkpoint | None,
    record: CheckpointRecord | None,
) -> Proof:
    job = scope.target.job
    assert job is not None
    ran = max((kin.up_s for kin in climb.family.trainers), default=0.0)
    ran += climb.signalled_at - scene.at
    lost = _loss(climb, scope.clock.now(), newest, record, ran)
    age = _age_at_signal(climb, scope.clock.now(), record)
    if any(sent.lossy for sent in climb.ladder.sent):
        text = _lossy_end(climb, newest, record, lost, age)
        return Proof(findings=(scope.teller.finding(text),), record=record)
    limit = f"max_loss {written(job.max_loss_s)}"
    known = age is not None and record is not None and bool(record.complete)
    # one from before its start is another run's: no more than all of this one is lost
    if age is not None and known and min(age, ran) <= job.max_loss_s:
        text = f"it did not save on the way out: {lost}, within {limit}"
        return Proof(findings=(scope.teller.finding(text),), record=record)
    more = f", more than {limit}" if known else ""
    text = f"not_saved: no checkpoint was written after the signal; {lost}{more}"
    return Proof(problem=text, record=record)


def _lossy_end(
    climb: Climb,
    newest: Checkpoint | None,
    record: CheckpointRecord | None,
    lost: str,
    age: float | None,
) -> str:
    """A save between two signals may have been the answer to the first, or a periodic one: that
    cannot be told, so what happened is told."""
    sent, first, by = climb.ladder.sent, climb.listing_at_first, climb.ladder.agreed_by
    whole = record is not None and record.complete
    again = len(sent) > 1 and whole and not climb.trained_on
    new = newest is not None and isinstance(first, Listing) and ckpt.written_since(first, newest)
    if newest is not None and again and new:
        when = "" if age is None else f", {spoken(age)} before that"
        return (
            f"ended by {sent[-1].signal}, as agreed {by}; {newest.name} was written "
            f"after {sent[0].signal}{when}"
        )
    return f"ended by {sent[-1].signal} without a save, as agreed {by}; {lost}"


def _age_at_signal(climb: Climb, now: float, record: CheckpointRecord | None) -> float | None:
    if record is None or record.age_s is None:
        return None
    return max(0.0, record.age_s - (now - climb.signalled_at))


def _loss(
    climb: Climb,
    now: float,
    newest: Checkpoint | None,
    record: CheckpointRecord | None,
    ran: float,
) -> str:
    """`ran`: for how long the job had run at the signal; more than that it cannot lose."""
    if newest is None or record is None:
        return "there is no checkpoint at all"
    if record.complete is None:
        return f"whether {newest.name} is whole is not known"
    age = _age_at_signal(climb, now, record)
    if age is None:
        return f"lost since {newest.name}"
    if age > ran:
        return f"lost about {spoken(ran)}, all since its start ({newest.name} is from before it)"
    return f"lost about {spoken(age)} (since {newest.name})"


def _unseen(scope: Scope, climb: Climb, why: str) -> Proof:
    if any(sent.lossy for sent in climb.ladder.sent):
        text = f"whether anything was saved could not be seen: {why}"
        return Proof(findings=(scope.teller.finding(text),))
    return Proof(problem=f"save_unseen: {why}")
