"""What can be waited for, and when it is reached; each looks, and only looks."""

from __future__ import annotations

import re
from typing import Any

from fleetstop.actions import looks, reading
from fleetstop.actions.kept import countable, still_coming
from fleetstop.actions.locate import Scene, completeness
from fleetstop.actions.patterns import last_match
from fleetstop.actions.verify import records
from fleetstop.actions.vigil import Vigil
from fleetstop.core.gpu import GpuVerdict, GpuView, Unseen, indexes_of, released
from fleetstop.core.inventory import Healthcheck
from fleetstop.core.joblog import LogTail
from fleetstop.core.kin.family import Kin
from fleetstop.core.launching.health import SETTLES_S
from fleetstop.core.redact import brief
from fleetstop.core.report import CheckpointRecord, Outcome
from fleetstop.core.saves import checkpoint as ckpt
from fleetstop.core.saves.checkpoint import Checkpoint, Listing
from fleetstop.core.saves.risk import age
from fleetstop.errors import Refused, RemoteFailed

_EVERY_S = 1.0
_TRIES = 5


async def gone(vigil: Vigil) -> Outcome:
    """Every member has ended, nothing matches, and no launcher would start it again."""
    began_running = vigil.family is not None
    while True:
        if _place_stopped(vigil):
            said = f"it is gone: container {vigil.scope.target.vmid} was stopped"
            return vigil.outcome("not_running", reason=said, **_verdict_gone(vigil))
        left = vigil.standing
        if not left and await vigil.surely_gone():
            found = vigil.found
            job = vigil.scope.target.job
            above = found.leftovers if job is None or job.wrapper != "outlives" else ()
            if not found.families and not above and found.unclear is None:
                said = "it is gone, and nothing came back" if began_running else _NOTHING
                return vigil.outcome("not_running", reason=said, **_verdict_gone(vigil))
            if above and not found.families:
                name = f"{above[0].pid} {brief(above[0].argv or ())}"
                vigil.say(f"between two lives: {name} would start it again; waiting on")
        if vigil.late:
            return vigil.not_reached(_who_is_left(vigil))
        await vigil.pause()
        await vigil.look()


def _place_stopped(vigil: Vigil) -> bool:
    """A look at a container without processes is accepted only where it is stopped."""
    return vigil.scope.target.vmid is not None and not vigil.tree.processes


_NOTHING = "nothing matches, and no launcher names it"


def _verdict_gone(vigil: Vigil) -> dict[str, Any]:
    if vigil.family is None:
        return {}
    return {"verdict": "gone", "evidence": tuple(f"{k.pid} is gone" for k in vigil.family.trainers)}


def _who_is_left(vigil: Vigil) -> str:
    left = vigil.standing
    if not left:
        return "what would start it again still runs"
    if vigil.trainers:
        return "it is not gone"
    names = ", ".join(f"{kin.pid} {brief(kin.argv)}" for kin in left[:3])
    return f"the trainers ended, but {names} is left"


async def checkpoint(vigil: Vigil, scene: Scene) -> Outcome:
    """New against the first listing, and complete. What was saved by whom is not asked."""
    job = vigil.scope.target.job
    assert job is not None
    if job.checkpoints is None:
        raise Refused(
            "whether it saves cannot be seen: no checkpoints: is known for this job",
            hint="name the directory in the inventory: checkpoints: /path",
        )
    first = scene.listing
    if vigil.family is None:
        return vigil.not_reached(f"{_NOTHING}, so nothing will be saved")
    if not isinstance(first, Listing):
        raise RemoteFailed(f"the checkpoints could not be listed: {_reason(first)}")
    if job.checkpoints in vigil.scope.target.foreign_checkpoints:
        vigil.say(f"another job saves to {job.checkpoints} too: a checkpoint there may be its")
    before: Listing | None = None
    unseen = 0
    while True:
        if _place_stopped(vigil):  # nobody can enter it, to list or to save
            gone = f"container {vigil.scope.target.vmid} was stopped"
            return vigil.not_reached(f"{gone}, and nothing new is complete")
        over = not vigil.standing
        listed = await reading.listing(await vigil.scope.place.files(), job.checkpoints)
        if isinstance(listed.listing, Listing):
            still = before is not None and not ckpt.growing(before, listed.listing)
            before = listed.listing
            whole = await _newest_whole(vigil, first, listed, stable=still)
            if whole is not None:
                kept = CheckpointRecord(whole.path, age(whole.mtime, listed.now), True, None)
                return vigil.reached(f"{whole.name} is new and complete", checkpoint=kept)
            if over and still:
                return vigil.not_reached("it ended, and nothing new is complete")
        unseen = unseen + 1 if isinstance(listed.listing, Unseen) else 0
        # once all have ended nothing more will come: a listing that fails on is told, not awaited
        if isinstance(listed.listing, Unseen) and (vigil.late or (over and unseen >= _TRIES)):
            raise RemoteFailed(f"the checkpoints: {listed.listing.reason}")
        if vigil.late:
            return vigil.not_reached("no new checkpoint is complete")
        await vigil.pause(_EVERY_S)
        await vigil.look()


def _reason(listing: Listing | Unseen | None) -> str:
    return listing.reason if isinstance(listing, Unseen) else "no answer"


async def _newest_whole(
    vigil: Vigil, first: Listing, listed: reading.Listed, *, stable: bool
) -> Checkpoint | None:
    now = listed.listing
    assert isinstance(now, Listing)
    found = ckpt.checkpoints(now)
    # of a job that has ended no further part will come
    coming = still_coming(now, found, listed.now) if vigil.standing else ()
    counted = {each.path for each in countable(found, coming)}
    writing = frozenset(
        file.target
        for process in vigil.tree.processes.values()
        for file in (process.detail.files if process.detail else None) or ()
        if file.writable_file
    )
    for each in reversed(ckpt.new_checkpoints(first, now)[-5:]):
        counts = each.path in counted
        if counts and await completeness(vigil.scope, each, writing, stable=stable):
            return each
    return None


async def gpu_free(vigil: Vigil, scene: Scene) -> Outcome:
    """Nobody of this place is listed on the declared GPUs, nor on those the job held at the
    start, and no member has a device open. Unknown is not free."""
    place, clock = vigil.scope.place, vigil.scope.clock
    seen = isinstance(scene.gpus, GpuView)
    view = scene.gpus if seen else await looks.first_gpus(place, clock)
    if isinstance(view, Unseen):
        raise RemoteFailed(f"the GPUs cannot be seen: {view.reason}")
    wanted = _wanted(vigil, view)
    ours = frozenset(vigil.tree.processes)
    while True:
        ours |= frozenset(vigil.tree.processes)
        now = await looks.gpus(vigil.scope.place)
        verdicts = released(view, now, ours, _device_holders(vigil), wanted)
        facts: dict[str, Any] = {"gpus": records(now, ours, tuple(sorted(wanted)))}
        if all(each.released for each in verdicts):
            return vigil.reached(f"{_names(wanted)} free", **facts)
        if vigil.late:
            return _gpus_not_free(vigil, verdicts, facts)
        # nvidia-smi costs the host something; an end of a trainer is noticed at once anyway
        await vigil.pause(2 * _EVERY_S if vigil.trainers else _EVERY_S / 2)
        await vigil.look()


def _gpus_not_free(
    vigil: Vigil, verdicts: tuple[GpuVerdict, ...], facts: dict[str, Any]
) -> Outcome:
    held = "; ".join(each.reason for each in verdicts if each.released is False)
    if not held:
        unseen = "; ".join(each.reason for each in verdicts if each.released is None)
        raise RemoteFailed(f"whether the GPUs are free cannot be seen: {unseen}")
    return vigil.not_reached(held, **facts)


def _wanted(vigil: Vigil, view: GpuView) -> frozenset[int]:
    job = vigil.scope.target.job
    family = vigil.family
    pids = frozenset(kin.id.pid for kin in family.members) if family is not None else frozenset()
    wanted = frozenset(indexes_of(view, pids)) | frozenset((job.gpus if job else None) or ())
    if not wanted:
        raise Refused(
            "which GPUs is not known: the job holds none now and declares none",
            hint="name them in the inventory: gpus: [0, 1]",
        )
    return wanted


def _device_holders(vigil: Vigil) -> frozenset[int] | None:
    """Members that have a GPU open; None where one's files could not be seen."""
    held = set()
    for kin in vigil.standing:
        process = vigil.tree.get(kin.id)
        if process is None or process.detail is None or process.detail.files is None:
            return None
        if process.gpus:
            held.add(kin.id.pid)
    return frozenset(held)


def _names(indexes: frozenset[int]) -> str:
    one = len(indexes) == 1
    numbers = ", ".join(str(each) for each in sorted(indexes))
    return f"GPU {numbers} is" if one else f"GPUs {numbers} are"


async def healthy(vigil: Vigil, scene: Scene) -> Outcome:
    """A trainer lives, and the log matches since the start of waiting; without a pattern: the
    same trainers live for the whole of `within`."""
    job = vigil.scope.target.job
    assert job is not None
    check = job.healthcheck or Healthcheck()
    pattern = _pattern(check, job.log)
    end = scene.log.size if scene.log is not None else 0
    since, who = vigil.scope.clock.now(), _ids(vigil.trainers)
    shut: str | None = None
    over = False
    while True:
        now, ids = vigil.scope.clock.now(), _ids(vigil.trainers)
        over = over or bool(who - ids)
        if ids != who:
            since, who = now, ids
        if who and pattern is None and now - since >= check.within_s:
            return vigil.reached(f"the same trainers live for {check.within_s:g} s")
        if pattern is not None and job.log is not None:
            tail, shut = await _log(vigil, job.log)
            if over and tail is not None:
                # what is there by then may be the last words of one that ended
                end, over = tail.size, False
            line = await _matching(pattern, tail, end)
            if who and line is not None and _settled(vigil, check):
                return vigil.reached(f"the log says: {line.strip()}")
            # shorter than before: it was begun anew, and all of it is new
            end = end if tail is None or tail.size >= end else 0
        if vigil.late:
            if who and shut is not None:
                raise RemoteFailed(f"what the log says cannot be seen: {shut}")
            lacks = "no trainer runs" if not who else _lacks(check)
            return vigil.not_reached(f"not healthy: {lacks}")
        await vigil.pause(_EVERY_S if pattern is not None else min(2.0, check.within_s))
        await vigil.look()


def _settled(vigil: Vigil, check: Healthcheck) -> bool:
    """As a launch has it: what fails in its first batch has logged too."""
    seen = [vigil.tree.get(kin.id) for kin in vigil.trainers]
    least = min(SETTLES_S, check.within_s)
    return all(each is not None and vigil.tree.age_s(each) >= least for each in seen)


async def _log(vigil: Vigil, path: str) -> tuple[LogTail | None, str | None]:
    """Its end, or why the container could not be entered: it may be stopped, or still booting,
    and what is waited for comes in its new life."""
    if _place_stopped(vigil):
        return None, None
    try:
        return await reading.log(await vigil.scope.place.files(), path), None
    except looks.NOT_ENTERED as exc:
        return None, str(exc)


def _lacks(check: Healthcheck) -> str:
    if check.log_matches is None:
        return f"the same trainers were not seen to live for {check.within_s:g} s yet"
    return f"nothing in the log matches {check.log_matches!r} yet"


def _pattern(check: Healthcheck, log: str | None) -> str | None:
    if check.log_matches is None:
        return None
    if log is None:
        raise Refused(
            "healthcheck.log_matches is set, but no log: is known for this job",
            hint="name it in the inventory: log: /path/to/train.log",
        )
    try:
        re.compile(check.log_matches)
    except re.error as exc:
        raise Refused(f"healthcheck.log_matches is no regular expression: {exc}") from exc
    return check.log_matches


def _ids(kin: tuple[Kin, ...]) -> frozenset[object]:
    return frozenset(each.id for each in kin)


async def _matching(pattern: str, tail: LogTail | None, end: int) -> str | None:
    """The newest matching line that was written after the log was `end` bytes long. The first
    line of the new part may be the rest of an old one, and is taken whole."""
    if tail is None or tail.size <= end:
        return None
    fresh, room = [], tail.size - end
    for each in reversed(tail.lines):
        if room <= 0:
            break
        fresh.append(each)
        room -= len(each.encode("utf-8", "replace")) + 1
    tried = await last_match(pattern, tuple(reversed(fresh)))
    if tried.slow:
        raise RemoteFailed(
            f"log_matches {pattern!r} took too long on a line of the log, and was given up",
            hint="a simpler pattern will do: a word of the line, say",
        )
    return tried.line
