"""Prove that it worked: saved, nothing came back, GPUs free; what cannot be proved is said."""

from __future__ import annotations

from msgspec import Struct

from fleetstop import events
from fleetstop.actions import looks
from fleetstop.actions.climb import Climb
from fleetstop.actions.locate import Scene, completeness, identify, writers
from fleetstop.actions.telling import Scope
from fleetstop.core import checkpoint as ckpt
from fleetstop.core.checkpoint import Checkpoint, Listing
from fleetstop.core.gpu import GpuView, Unseen, held_mib, indexes_of, released
from fleetstop.core.process import ProcessTree
from fleetstop.core.report import CheckpointRecord, GpuRecord

_SOME = -1


class Proof(Struct, frozen=True):
    """`problem` None: clean. Otherwise the short word and the sentence for `unclean`."""

    problem: str | None = None
    findings: tuple[str, ...] = ()
    record: CheckpointRecord | None = None
    gpus: tuple[GpuRecord, ...] = ()


async def came_back(scope: Scope, climb: Climb) -> str | None:
    """Whether the job runs again under a new identity; the sentence, if so."""
    assert scope.target.job is not None
    tree = await looks.look(scope.place, scope.target.vmid)
    tree, found = await identify(scope, tree, scope.target.job, Unseen(""))
    fresh = [
        kin
        for family in found.families
        for kin in family.trainers
        if kin.id not in climb.family.ids
    ]
    if not fresh:
        return None
    pids = ", ".join(str(kin.pid) for kin in fresh)
    return f"respawned: the job runs again as {pids}"


async def checkpoint(scope: Scope, scene: Scene, climb: Climb) -> Proof:
    """New against the first look, ours, and complete; polled for `verify.within`."""
    job, verify = scope.target.job, climb.ladder.playbook.verify
    if job is None or job.checkpoints is None or verify.checkpoint == "none":
        return Proof()
    scope.teller.tell(events.Verifying, what="checkpoint")
    if not isinstance(scene.listing, Listing):
        return _unseen(scope, climb, "the checkpoints could not be listed at the first look")
    deadline = scope.clock.now() + verify.within_s
    shell = await scope.place.inside()
    before: Listing | None = None
    while True:
        now, remote = await looks.listing(shell, job.checkpoints)
        if isinstance(now, Listing):
            fresh = ckpt.new_checkpoints(scene.listing, now)
            moving = before is None or bool(ckpt.growing(before, now))
            before = now
            whole = await _whole(scope, fresh, stable=not moving)
            settled = not moving and (whole is True or not fresh or whole is False)
            if whole is True or settled:
                return await _judge_saved(scope, scene, climb, fresh, whole, now, remote)
        if scope.clock.now() >= deadline:
            why = now.reason if isinstance(now, Unseen) else "it did not come to rest in time"
            return _unseen(scope, climb, why)
        # an unknown format counts as whole when unchanged over two looks 1 s apart
        await scope.clock.sleep(1.0)


async def _whole(scope: Scope, fresh: tuple[Checkpoint, ...], *, stable: bool) -> bool | None:
    """Whether the latest new one is whole; None: not yet known."""
    if not fresh:
        return None
    return await completeness(scope, fresh[-1], frozenset(), stable=stable)


async def _judge_saved(
    scope: Scope,
    scene: Scene,
    climb: Climb,
    fresh: tuple[Checkpoint, ...],
    whole: bool | None,
    now: Listing,
    remote: float | None,
) -> Proof:
    newest = ckpt.newest(now)
    if fresh and whole:
        proof = await _saved(scope, climb, fresh[-1], remote)
        after = proof.record is not None and proof.record.written_after_signal
        if proof.problem is not None or after or not climb.signals:
            return proof
        return _not_saved(scope, scene, climb, fresh[-1], proof.record)
    record = _record(scope, climb, newest, remote, None) if newest else None
    return _not_saved(scope, scene, climb, newest, record)


async def _saved(scope: Scope, climb: Climb, saved: Checkpoint, remote: float | None) -> Proof:
    record = _record(scope, climb, saved, remote, True)
    if not await _ours(scope, climb, saved):
        return Proof(
            problem=f"unproven: {saved.name} is new and complete, but it may be another job's",
            record=record,
        )
    if record.written_after_signal:
        scope.teller.tell(
            events.CheckpointVerified, name=saved.name, size=saved.size, complete=True
        )
    return Proof(record=record)


async def _ours(scope: Scope, climb: Climb, saved: Checkpoint) -> bool:
    """A member had it open, or nobody else has any business in that directory."""
    job = scope.target.job
    assert job is not None
    assert job.checkpoints is not None
    names = {each.path for each in saved.files}
    temps = {path for path in climb.written_by_us if path.startswith(saved.path)}
    if names & climb.written_by_us or temps:
        return True
    if job.checkpoints in scope.target.foreign_checkpoints:
        return False
    tree = await looks.look(scope.place, scope.target.vmid)
    tree = await writers(scope, tree)
    return _nobody_writes(tree, job.checkpoints)


def _nobody_writes(tree: ProcessTree, directory: str) -> bool:
    """False too where somebody's files could not be seen."""
    prefix = directory.rstrip("/") + "/"
    for each in tree.processes.values():
        if each.zombie or each.kernel_thread:
            continue
        files = each.detail.files if each.detail else None
        if files is None or any(f.writable_file and f.target.startswith(prefix) for f in files):
            return False
    return True


def _record(
    scope: Scope, climb: Climb, one: Checkpoint, remote: float | None, whole: bool | None
) -> CheckpointRecord:
    at_signal = climb.listing_at_signal
    after: bool | None = None
    if isinstance(at_signal, Listing):
        old = {(e.path, e.inode, e.size, e.mtime) for e in at_signal.entries}
        after = any((e.path, e.inode, e.size, e.mtime) not in old for e in one.files)
    elif not climb.signals:
        after = False
    age = max(0.0, remote - one.mtime) if remote is not None else None
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
    lost = _age_text(newest, record)
    if any(sent.lossy for sent in climb.ladder.sent):
        last = climb.ladder.sent[-1]
        text = f"ended by {last.signal} without a save, as agreed with --force; {lost}"
        return Proof(findings=(scope.teller.finding(text),), record=record)
    age = record.age_s if record else None
    whole = scene.newest_complete if record and record.complete is None else True
    if age is not None and age <= job.max_loss_s and whole:
        text = f"it did not save on the way out; the newest checkpoint was {age:.0f} s old"
        return Proof(findings=(scope.teller.finding(text),), record=record)
    return Proof(
        problem=f"not_saved: no checkpoint was written after the signal; {lost}", record=record
    )


def _age_text(newest: Checkpoint | None, record: CheckpointRecord | None) -> str:
    if newest is None or record is None:
        return "there is no checkpoint at all"
    if record.age_s is None:
        return f"lost since {newest.name}"
    return f"lost about {_minutes(record.age_s)} (since {newest.name})"


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _unseen(scope: Scope, climb: Climb, why: str) -> Proof:
    if any(sent.lossy for sent in climb.ladder.sent):
        text = f"whether anything was saved could not be seen: {why}"
        return Proof(findings=(scope.teller.finding(text),))
    return Proof(problem=f"save_unseen: {why}")


async def gpus(scope: Scope, scene: Scene, climb: Climb) -> Proof:
    """None of our PIDs listed or holding a device, memory back near the first look's."""
    verify, job = climb.ladder.playbook.verify, scope.target.job
    ours = frozenset(each.id.pid for each in climb.family.members)
    wanted = _wanted(scene, ours, frozenset((job.gpus if job else None) or ()))
    if verify.gpus == "ignore" or not wanted:
        return Proof()
    before = scene.gpus
    if isinstance(before, Unseen):
        return Proof(problem=f"gpus_unseen: {before.reason}")
    scope.teller.tell(events.Verifying, what="gpus")
    start = scope.clock.now()
    while True:
        now = await looks.gpus(scope.place)
        holders = await _device_holders(scope)
        verdicts = released(before, now, ours, holders, wanted)
        if verdicts and all(each.released for each in verdicts):
            took = scope.clock.now() - start
            indexes = tuple(each.index for each in verdicts)
            scope.teller.tell(events.GpusReleased, indexes=indexes, seconds=took)
            return Proof(gpus=records(now, frozenset(), indexes))
        # what could not be asked will not be answered a moment later; it may hang in the driver
        if isinstance(now, Unseen) or scope.clock.now() - start >= verify.within_s:
            text = "; ".join(each.reason for each in verdicts if not each.released)
            return Proof(
                problem=("gpus_unseen: " if isinstance(now, Unseen) else "gpus_held: ") + text,
                gpus=records(now, ours, tuple(sorted(wanted))),
            )
        await scope.clock.sleep(0.25)


def _wanted(scene: Scene, ours: frozenset[int], declared: frozenset[int]) -> frozenset[int]:
    """GPUs to be proven free: those it was listed on, and the declared ones. A device it has
    open says only that it held one, not which (CUDA opens every visible one)."""
    if isinstance(scene.gpus, Unseen):
        held = any(each.gpus for pid, each in scene.tree.processes.items() if pid in ours)
        return frozenset([_SOME]) if held or declared else frozenset()
    return frozenset(indexes_of(scene.gpus, ours)) | declared


async def _device_holders(scope: Scope) -> frozenset[int] | None:
    """Host PIDs in the place with a GPU device open; None where somebody's files are unseen."""
    tree = await writers(scope, await looks.look(scope.place, scope.target.vmid))
    holders: set[int] = set()
    for pid, each in tree.processes.items():
        if each.zombie or each.kernel_thread:
            continue
        if each.detail is None or each.detail.files is None:
            continue
        if each.gpus:
            holders.add(pid)
    return frozenset(holders)


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
