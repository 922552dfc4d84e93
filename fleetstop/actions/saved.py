"""Prove that the job saved: a checkpoint that is new, ours and whole; else say what is lost."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from fleetstop import events
from fleetstop.actions import looks
from fleetstop.actions.climb import Climb
from fleetstop.actions.kept import as_listed, is_fresh
from fleetstop.actions.locate import Scene
from fleetstop.actions.proof import Proof
from fleetstop.actions.telling import Scope
from fleetstop.core.durations import spoken
from fleetstop.core.kin.family import standing
from fleetstop.core.report import CheckpointRecord
from fleetstop.core.saves import checkpoint as ckpt
from fleetstop.core.saves.checkpoint import Checkpoint, Listing
from fleetstop.core.saves.formats import Read
from fleetstop.core.saves.listing import spelled
from fleetstop.core.saves.risk import age
from fleetstop.core.saves.wholeness import usual_interval

_JUST_S = 2.0
_MOST_TRIED = 20


class _End(Struct, frozen=True):
    """The directory at rest. `first`: its first listing after the end. New ones, newest first:
    `whole`, `broken`, and `torn`: written when a signal went out that lets nobody finish, in a
    format that does not tell whether it is whole."""

    listing: Listing
    first: Listing
    now: float | None
    whole: tuple[Checkpoint, ...]
    broken: tuple[str, ...]
    torn: tuple[str, ...]
    left: tuple[str, ...]


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
        end = await _at_rest(scope, scene.listing, climb, job.checkpoints)
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


async def _at_rest(scope: Scope, before_all: Listing, climb: Climb, directory: str) -> _End | str:
    """Polls until something new is whole and nothing moves any more; why not, at the end."""
    deadline = scope.clock.now() + climb.ladder.playbook.verify.within_s
    shell = await scope.place.files()
    before: Listing | None = None
    first: Listing | None = None
    while True:
        await climb.stamp()
        many = before_all.floor is not None
        listed = await looks.listing(shell, directory, many=many)
        late = scope.clock.now() >= deadline
        if isinstance(listed.listing, Listing):
            now = listed.listing
            first = first or now
            moving = before is None or bool(ckpt.growing(before, now))
            before = now
            end = await _judged(scope, climb, (before_all, first), listed, stable=not moving)
            if (end.whole and not end.left and not end.broken) or late:
                return end if end.whole or not moving else "it did not come to rest"
            if not moving and (not end.left or _cut_short(climb)):
                return end
        elif late:
            return listed.listing.reason
        # an unknown format counts as whole when unchanged over two looks 1 s apart
        await scope.clock.sleep(1.0)


def _cut_short(climb: Climb) -> bool:
    """All ended by a signal that lets nobody finish: what is half written stays so."""
    sent = climb.ladder.sent
    return bool(sent) and sent[-1].lossy and not standing(climb.family, climb.look.tree)


async def _judged(
    scope: Scope,
    climb: Climb,
    since: tuple[Listing, Listing],
    listed: looks.Listed,
    *,
    stable: bool,
) -> _End:
    assert isinstance(listed.listing, Listing)
    whole: list[Checkpoint] = []
    broken: list[str] = []
    torn: list[str] = []
    shell = await scope.place.files()
    for each in reversed(ckpt.new_checkpoints(since[0], listed.listing)[-5:]):
        told = await climb.files.kept.read(shell, each, frozenset(), stable=stable)
        if told.whole and not told.known and _may_be_cut(scope, climb, each, listed):
            torn.append(each.name)
        elif told.whole:
            whole.append(each)
        elif told.whole is False and stable:
            broken.append(each.name)
    left = ckpt.temp_without_final(listed.listing)
    return _End(
        listing=listed.listing,
        first=since[1],
        now=listed.now,
        whole=tuple(whole),
        broken=tuple(broken),
        torn=tuple(torn),
        left=tuple(
            listed.listing.name(e)
            for e in left
            if is_fresh(e.mtime, listed.now) or e not in since[0].entries
        ),
    )


def _may_be_cut(scope: Scope, climb: Climb, one: Checkpoint, listed: looks.Listed) -> bool:
    """The last signal let nobody finish, and this was open, moving or just written then."""
    if not climb.ladder.sent or not climb.ladder.sent[-1].lossy:
        return False
    assert isinstance(listed.listing, Listing)
    opened = as_listed(climb.files.open_last, listed.listing, climb.files.real)
    if any(each.path in opened for each in one.files):
        return True
    if not isinstance(climb.listing_at_signal, Listing) or listed.now is None:
        return True
    old = {(e.path, e.inode, e.size, e.mtime) for e in climb.listing_at_signal.entries}
    if any((e.path, e.inode, e.size, e.mtime) not in old for e in one.files):
        return True
    since = climb.files.kept.seen_since(one)
    if since is not None and climb.signalled_at - since < _JUST_S:
        return True  # by our own sight: the storage's clock may be behind
    ago = scope.clock.now() - climb.signalled_at
    return listed.now - one.mtime - ago < _JUST_S


async def _judge(scope: Scope, scene: Scene, climb: Climb, end: _End) -> Proof:
    for each in end.whole:
        if await _ours(scope, climb, end, each):
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


async def _told(scope: Scope, scene: Scene, climb: Climb, end: _End, saved: Checkpoint) -> Proof:
    record = _record(climb, end, saved, await _read(scope, climb, saved))
    if record.written_after_signal or not climb.signals:
        return _proven(scope, saved, record)
    if record.written_after_signal is None:
        return _unseen(scope, climb, "the checkpoints were not seen when the signal went out")
    return _not_saved(scope, scene, climb, saved, record)


async def _read(scope: Scope, climb: Climb, one: Checkpoint) -> Read:
    shell = await scope.place.files()
    return await climb.files.kept.read(shell, one, frozenset(), stable=True)


async def _newest_whole(scope: Scope, climb: Climb, end: _End) -> tuple[Checkpoint | None, Read]:
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


def _proven(scope: Scope, saved: Checkpoint, record: CheckpointRecord) -> Proof:
    if record.written_after_signal:
        scope.teller.tell(
            events.CheckpointVerified, name=saved.name, size=saved.size, complete=True
        )
    return Proof(record=record)


def _earlier(
    scope: Scope, scene: Scene, climb: Climb, newest: Checkpoint, record: CheckpointRecord
) -> Proof:
    """The signal was an earlier run's, and nothing is new since this run looked: the save may
    have been finished between. Its age against the signal's age tells, each by one clock."""
    watched = climb.ladder.watched[-1]
    since = watched.heard.ago_s + scope.clock.now() - climb.watched_at
    if record.age_s is None:
        return _unseen(scope, climb, "the signal was an earlier run's, and no clock was seen")
    if record.age_s > since or not record.complete or climb.signals:
        return _not_saved(scope, scene, climb, newest, record)
    text = f"{newest.name} was written after run {watched.heard.run} sent {watched.signal}"
    made = msgspec.structs.replace(record, complete=True, written_after_signal=True)
    return Proof(findings=(scope.teller.finding(text),), record=made)


async def _ours(scope: Scope, climb: Climb, end: _End, saved: Checkpoint) -> bool:
    """A member had it open; or it was there when the family had ended, and nobody else has any
    business in that directory."""
    files = climb.files
    if files.had_open(saved):
        return True
    if files.named_by_another(saved) or _came_later(climb, end, saved):
        return False
    return await files.nobody_else(saved)


def _came_later(climb: Climb, end: _End, saved: Checkpoint) -> bool:
    """The dead write nothing: what changed after the last of them had ended is another's."""
    if standing(climb.family, climb.look.tree):
        return False
    old = {(e.path, e.inode, e.size, e.mtime) for e in end.first.entries}
    return any((e.path, e.inode, e.size, e.mtime) not in old for e in saved.files)


def _record(climb: Climb, end: _End, one: Checkpoint, told: Read) -> CheckpointRecord:
    """`written_after_signal`: against the listing when the last signal went out."""
    at_signal = climb.listing_at_signal
    after: bool | None = None
    if isinstance(at_signal, Listing):
        old = {(e.path, e.inode, e.size, e.mtime) for e in at_signal.entries}
        after = any((e.path, e.inode, e.size, e.mtime) not in old for e in one.files)
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
    if any(sent.lossy for sent in climb.ladder.sent):
        text = _lossy_end(
            climb, newest, record, lost, _age_at_signal(climb, scope.clock.now(), record)
        )
        return Proof(findings=(scope.teller.finding(text),), record=record)
    age = _age_at_signal(climb, scope.clock.now(), record)
    if age is not None and age <= job.max_loss_s and record and record.complete:
        text = f"it did not save on the way out; the newest checkpoint was {age:.0f} s old"
        return Proof(findings=(scope.teller.finding(text),), record=record)
    text = f"not_saved: no checkpoint was written after the signal; {lost}"
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
    if newest is not None and again and isinstance(first, Listing):
        old = {(e.path, e.inode, e.size, e.mtime) for e in first.entries}
        if any((e.path, e.inode, e.size, e.mtime) not in old for e in newest.files):
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
