"""Prove that the job saved: a checkpoint that is new, ours and whole; else say what is lost."""

from __future__ import annotations

from msgspec import Struct

from fleetstop import events
from fleetstop.actions import looks
from fleetstop.actions.climb import Climb
from fleetstop.actions.files import is_fresh
from fleetstop.actions.locate import Scene, completeness, writers
from fleetstop.actions.proof import Proof, minutes
from fleetstop.actions.telling import Scope
from fleetstop.core import checkpoint as ckpt
from fleetstop.core.checkpoint import Checkpoint, Listing
from fleetstop.core.process import ProcessTree
from fleetstop.core.report import CheckpointRecord


class _End(Struct, frozen=True):
    """The directory at rest. `whole`: the newest complete new one; `broken`: new, not whole."""

    listing: Listing
    now: float | None
    whole: Checkpoint | None
    broken: tuple[str, ...]
    left: tuple[str, ...]


async def checkpoint(scope: Scope, scene: Scene, climb: Climb) -> Proof:
    """New against the first look, ours, and complete; polled for `verify.within`."""
    job, verify = scope.target.job, climb.ladder.playbook.verify
    if job is None or verify.checkpoint == "none":
        return Proof()
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
    findings = tuple(scope.teller.finding(each) for each in notes)
    proof = await _judge(scope, scene, climb, end)
    return Proof(problem=proof.problem, findings=(*findings, *proof.findings), record=proof.record)


async def _at_rest(scope: Scope, first: Listing, climb: Climb, directory: str) -> _End | str:
    """Polls until something new is whole and nothing moves any more; why not, at the end."""
    deadline = scope.clock.now() + climb.ladder.playbook.verify.within_s
    shell = await scope.place.inside()
    before: Listing | None = None
    while True:
        await climb.stamp()
        listed = await looks.listing(shell, directory)
        late = scope.clock.now() >= deadline
        if isinstance(listed.listing, Listing):
            now = listed.listing
            moving = before is None or bool(ckpt.growing(before, now))
            before = now
            left = [e for e in ckpt.temp_without_final(now) if is_fresh(e.mtime, listed.now)]
            end = await _judged(scope, first, listed, now, left, stable=not moving)
            if (end.whole is not None and not left and not end.broken) or late:
                return end if end.whole is not None or not moving else "it did not come to rest"
            if not moving and not left:
                return end
        elif late:
            return listed.listing.reason
        # an unknown format counts as whole when unchanged over two looks 1 s apart
        await scope.clock.sleep(1.0)


async def _judged(
    scope: Scope,
    first: Listing,
    listed: looks.Listed,
    now: Listing,
    left: list[ckpt.Entry],
    *,
    stable: bool,
) -> _End:
    whole: Checkpoint | None = None
    broken: list[str] = []
    for each in reversed(ckpt.new_checkpoints(first, now)[-5:]):
        told = await completeness(scope, each, frozenset(), stable=stable)
        if told and whole is None:
            whole = each
        elif told is False and stable:
            broken.append(each.name)
    names = tuple(now.name(each) for each in left)
    return _End(listing=now, now=listed.now, whole=whole, broken=tuple(broken), left=names)


async def _judge(scope: Scope, scene: Scene, climb: Climb, end: _End) -> Proof:
    if end.whole is not None:
        record = _record(climb, end.whole, end.now, True)
        if not await _ours(scope, climb, end.whole):
            name = end.whole.name
            text = f"unproven: {name} is new and complete, but it may be another job's"
            return Proof(problem=text, record=record)
        if record.written_after_signal or not climb.signals:
            return _proven(scope, end.whole, record)
        if record.written_after_signal is None:
            return _unseen(scope, climb, "the checkpoints were not seen when the signal went out")
        return _not_saved(scope, scene, climb, end.whole, record)
    older = [c for c in ckpt.checkpoints(end.listing) if c.name not in end.broken]
    newest = older[-1] if older else None
    whole = await completeness(scope, newest, frozenset(), stable=True) if newest else None
    record_or_none = _record(climb, newest, end.now, whole) if newest else None
    if newest is not None and record_or_none is not None and climb.ladder.watched:
        return _earlier(scope, scene, climb, newest, record_or_none)
    return _not_saved(scope, scene, climb, newest, record_or_none)


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
    made = CheckpointRecord(
        path=record.path, age_s=record.age_s, complete=True, written_after_signal=True
    )
    return Proof(findings=(scope.teller.finding(text),), record=made)


async def _ours(scope: Scope, climb: Climb, saved: Checkpoint) -> bool:
    """A member had it open, or nobody else has any business in that directory."""
    job = scope.target.job
    assert job is not None
    assert job.checkpoints is not None
    declared = job.checkpoints.rstrip("/")
    real = (climb.files.real or declared).rstrip("/")
    place = real + saved.path.removeprefix(declared)
    if any(
        path == place or path.startswith((place + "/", place + ".")) for path in climb.files.written
    ):
        return True
    if job.checkpoints in scope.target.foreign_checkpoints:
        return False
    tree = await looks.look(scope.place, scope.target.vmid)
    return _nobody_writes(await writers(scope, tree), (declared, real))


def _nobody_writes(tree: ProcessTree, directories: tuple[str, ...]) -> bool:
    """False too where somebody's files could not be seen."""
    prefixes = tuple(each + "/" for each in directories)
    for each in tree.processes.values():
        if each.zombie or each.kernel_thread:
            continue
        files = each.detail.files if each.detail else None
        if files is None or any(
            (f.writable_file or f.appended_file) and f.target.startswith(prefixes) for f in files
        ):
            return False
    return True


def _record(
    climb: Climb, one: Checkpoint, now: float | None, whole: bool | None
) -> CheckpointRecord:
    """`written_after_signal`: against the listing when the last signal went out."""
    at_signal = climb.listing_at_signal
    after: bool | None = None
    if isinstance(at_signal, Listing):
        old = {(e.path, e.inode, e.size, e.mtime) for e in at_signal.entries}
        after = any((e.path, e.inode, e.size, e.mtime) not in old for e in one.files)
    elif not climb.signals:
        after = False
    age = max(0.0, now - one.mtime) if now is not None else None
    return CheckpointRecord(path=one.path, age_s=age, complete=whole, written_after_signal=after)


def _not_saved(
    scope: Scope,
    scene: Scene,
    climb: Climb,
    newest: Checkpoint | None,
    record: CheckpointRecord | None,
) -> Proof:
    job = scope.target.job
    assert job is not None
    lost = _loss(climb, scope.clock.now(), newest, record)
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
    sent, first = climb.ladder.sent, climb.listing_at_first
    whole = record is not None and record.complete
    again = len(sent) > 1 and whole and not climb.trained_on
    if newest is not None and again and isinstance(first, Listing):
        old = {(e.path, e.inode, e.size, e.mtime) for e in first.entries}
        if any((e.path, e.inode, e.size, e.mtime) not in old for e in newest.files):
            when = "" if age is None else f", {minutes(age)} before that"
            return (
                f"ended by {sent[-1].signal}, as agreed with --force; {newest.name} was written "
                f"after {sent[0].signal}{when}"
            )
    return f"ended by {sent[-1].signal} without a save, as agreed with --force; {lost}"


def _age_at_signal(climb: Climb, now: float, record: CheckpointRecord | None) -> float | None:
    if record is None or record.age_s is None:
        return None
    return max(0.0, record.age_s - (now - climb.signalled_at))


def _loss(
    climb: Climb, now: float, newest: Checkpoint | None, record: CheckpointRecord | None
) -> str:
    if newest is None or record is None:
        return "there is no checkpoint at all"
    age = _age_at_signal(climb, now, record)
    if age is None:
        return f"lost since {newest.name}"
    return f"lost about {minutes(age)} (since {newest.name})"


def _unseen(scope: Scope, climb: Climb, why: str) -> Proof:
    if any(sent.lossy for sent in climb.ladder.sent):
        text = f"whether anything was saved could not be seen: {why}"
        return Proof(findings=(scope.teller.finding(text),))
    return Proof(problem=f"save_unseen: {why}")
