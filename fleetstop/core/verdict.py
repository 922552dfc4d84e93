"""What looks mean: one verdict with its evidence, for each member and for the job."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

from msgspec import Struct

from fleetstop.core.joblog import LogTail, shape
from fleetstop.core.judging import evidence as told
from fleetstop.core.judging import progress as trails
from fleetstop.core.judging.divergence import diverged
from fleetstop.core.judging.evidence import deafness
from fleetstop.core.judging.marks import Mark
from fleetstop.core.judging.motion import Motion, moved
from fleetstop.core.judging.progress import Progress
from fleetstop.core.kin.family import Family, Kin
from fleetstop.core.launching.ears import started_by
from fleetstop.core.process import Process, ProcessId, ProcessTree
from fleetstop.core.saves.risk import AtRisk
from fleetstop.core.saves.saving import saves_of

__all__ = ["ORDER", "Judged", "Look", "Mark", "Verdict", "follow", "judge", "standing_still"]

Verdict: TypeAlias = Literal[
    "unknown",
    "uninterruptible",
    "frozen",
    "deaf",
    "suspended",
    "respawned",
    "saving",
    "stopping",
    "stalled",
    "busy",
    "zombie",
    "gone",
]
# Worst first; the order is part of the contract.
ORDER: tuple[str, ...] = get_args(Verdict)
WINDOW_S = 60.0
"""So long nothing may move, by any measure, before a job is called stalled."""
OLD_LOG_S = 300.0
"""A log as old as this is a witness of its own: then a second without a move is enough."""
SHORT_S = 0.9
STUCK_S = 1.0
"""So long KILL is pending and nothing acts before that is called uninterruptible."""
EXITING_S = 10.0
"""The same for one on its way out: returning hundreds of gigabytes takes the driver its time."""


class Look(Struct, frozen=True):
    """One look at a job. `at`: monotonic seconds. `changed`: checkpoint files that grew or
    appeared since the look before, None where none are declared; `files_unseen`: why
    they could not be listed. `temporary`: fresh ones whose final name is missing. `real`:
    the checkpoint directory with its links resolved, which is how open files are named.
    `log` None: none is declared or readable.
    `risk` None: no checkpoints are declared, or they could not be looked at."""

    at: float
    tree: ProcessTree
    frozen: bool = False
    changed: tuple[str, ...] | None = None
    temporary: tuple[str, ...] = ()
    real: str | None = None
    files_unseen: str | None = None
    trains_on: bool = False
    risk: AtRisk | None = None
    log: LogTail | None = None


class Judged(Struct, frozen=True):
    """`saving` None: it could not be seen, so it may be. `written`: a measure that only grows
    while a save moves. The three `moves_` compare with the look before. `findings`: sentences
    worth telling whatever the verdict."""

    verdict: Verdict
    evidence: tuple[str, ...]
    members: dict[ProcessId, Verdict]
    saving: bool | None
    saves: tuple[str, ...]
    written: int
    unseen: tuple[str, ...] = ()
    moves_cpu: bool = False
    moves_memory: bool = False
    moves_bytes: bool = False
    trains_on: bool = False
    findings: tuple[str, ...] = ()


def follow(before: Progress | None, look: Look, family: Family) -> Progress:
    """The memory of all looks so far, for `judge`."""
    moved = bool(look.changed)
    return trails.follow(before, look.tree, look.at, family, files_moved=moved)


def standing_still(progress: Progress, look: Look, family: Family) -> bool:
    """Whether a trainer did nothing yet, so that a longer look is worth its time."""
    alive = [kin for kin in family.members if kin.id in progress.trails]
    stuck = any(progress.trails[kin.id].stuck_since is not None for kin in alive)
    return stuck or any(
        trails.quiet_s(progress, look.tree, family, kin) > 0 for kin in alive if _trains(kin)
    )


def _trains(kin: Kin) -> bool:
    return kin.role == "trainer"


def judge(
    before: Look | None,
    now: Look,
    family: Family,
    *,
    stop_signals: tuple[str, ...],
    checkpoints: str | None,
    heard: dict[ProcessId, Mark] | None = None,
    progress: Progress | None = None,
) -> Judged:
    """`stop_signals`: what this job may be asked with; `heard`: who heard a signal of ours;
    `progress`: of all looks so far, this one too; by default of these two."""
    heard = heard or {}
    if progress is None:
        progress = follow(follow(None, before, family) if before else None, now, family)
    then = before.tree if before else None
    directories = tuple(each for each in (checkpoints, now.real) if each)
    saves, unseen = saves_of(
        then, now.tree, family, directories, now.changed, now.temporary, now.risk, progress.paces
    )
    unseen += [now.files_unseen] if now.files_unseen else []
    motion = moved(then, now.tree, family, now.at - before.at if before else 0.0)
    seen = _Seen(now, family, motion, progress, stop_signals)
    said: dict[ProcessId, Verdict] = {}
    evidence: dict[ProcessId, tuple[str, ...]] = {}
    for kin in family.members:
        writer = any(save.pid == kin.pid for save in saves)
        word, why = _member(kin, seen, heard.get(kin.id), writer)
        said[kin.id], evidence[kin.id] = word, why
    worst = _overall(family, said, bool(saves))
    reasons = told.alike(
        [why for kin in family.members if said[kin.id] == worst for why in evidence[kin.id]]
    )
    if worst == "saving" or not reasons:
        reasons = [save.text for save in saves] or reasons
    return Judged(
        verdict=worst,
        evidence=tuple(dict.fromkeys(reasons)),
        members=said,
        saving=True if saves else (None if unseen else False),
        saves=tuple(save.text for save in saves),
        unseen=tuple(unseen),
        written=sum(save.size for save in saves) + motion.written,
        moves_cpu=motion.cpu,
        moves_memory=motion.memory,
        moves_bytes=motion.bytes,
        trains_on=now.trains_on,
        findings=_findings(said, seen),
    )


def _overall(family: Family, said: dict[ProcessId, Verdict], saving: bool) -> Verdict:
    """The worst of the trainers; of all members once no trainer is left; saving by anybody."""
    words = {said[kin.id] for kin in family.trainers}
    if words <= {"gone", "zombie"}:
        words = {said[kin.id] for kin in family.members}
    if saving:
        words.add("saving")
    return min(words, key=ORDER.index, default="gone")


class _Seen(Struct, frozen=True):
    """What all members are judged by."""

    now: Look
    family: Family
    motion: Motion
    progress: Progress
    stop_signals: tuple[str, ...]


def _member(
    kin: Kin, seen: _Seen, mark: Mark | None, writer: bool
) -> tuple[Verdict, tuple[str, ...]]:
    now, process = seen.now, seen.now.tree.get(kin.id)
    if process is None:
        return "gone", (f"{kin.pid} is gone",)
    if process.zombie:
        return "zombie", (told.why_zombie(process, now.tree),)
    if now.frozen:
        return "frozen", (told.why_frozen(),)
    if process.masks is None:
        return "unknown", (f"the signal masks of {kin.pid} could not be read",)
    if (since := _stuck_s(kin, seen)) is not None:
        return "uninterruptible", (told.why_uninterruptible(process, since),)
    if process.suspended:
        return "suspended", (told.why_suspended(process, now.tree),)
    if mark is None and _trains(kin) and (why := deafness(process, seen.stop_signals)):
        return "deaf", (f"{kin.pid} {why}{started_by(now.tree, seen.family, process)}",)
    if writer:
        return "saving", ()
    if mark is not None and (obeys := _obeys(kin, process, mark, seen)):
        return obeys
    account = told.taken(process, mark, now.tree.uptime) if mark else None
    after = (account,) if account else ()
    if why := diverged(kin, seen.progress, seen.now.tree, seen.family) or _stalled(
        kin, process, seen
    ):
        return "stalled", (why, *after)
    if process.headless and not after:
        after = (told.headless(process),)
    return "busy", (*_busy(kin, seen), *after)


def _stuck_s(kin: Kin, seen: _Seen) -> float | None:
    """For how long KILL has waited for it in vain; None where that is not so, or not yet."""
    trail = seen.progress.trails.get(kin.id)
    since = trail.stuck_since if trail is not None else None
    waited = seen.progress.at - since if since is not None else 0.0
    process = seen.now.tree.get(kin.id)
    exiting = process is not None and process.exiting
    return waited if waited >= (EXITING_S if exiting else STUCK_S) else None


def _obeys(
    kin: Kin, process: Process, mark: Mark, seen: _Seen
) -> tuple[Verdict, tuple[str, ...]] | None:
    """It heard a signal, and something of it moves. Once no trainer is left, new steps are those
    of one that came back."""
    here = (seen.now.tree.get(each.id) for each in seen.family.trainers)
    if seen.now.trains_on and any(each is not None and each.alive for each in here):
        return "busy", ("new steps in the log after the signal: it trains on",)
    if stopping := _stopping(kin, process, mark, seen.motion):
        gathers = seen.motion.memory or seen.motion.bytes
        uptime = seen.now.tree.uptime
        account = told.taken(process, mark, uptime, moves=True, gathers=gathers)
        return "stopping", (*stopping, *((account,) if account else ()))
    return None


def _stopping(kin: Kin, process: Process, mark: Mark, motion: Motion) -> tuple[str, ...]:
    masks = process.masks
    if masks is not None and masks.ignored & ~mark.ignored & 0x4006:
        return (f"{kin.pid} now ignores what it heard before: it is shutting down",)
    moved = []
    if motion.cpu and motion.percent is not None:
        moved.append(f"CPU {motion.percent:.0f} %")
    if motion.memory:
        moved.append("memory growing")
    if motion.bytes:
        moved.append(f"{motion.written} bytes written")
    return tuple(moved)


def _stalled(kin: Kin, process: Process, seen: _Seen) -> str | None:
    """Nothing moved over the window; or for a moment, where the log is a witness of longer."""
    if not _trains(kin) or seen.now.changed:
        return None
    quiet = trails.quiet_s(seen.progress, seen.now.tree, seen.family, kin)
    silent = _silent_s(process, seen)
    files = seen.progress.at - seen.progress.files_since
    long = quiet >= WINDOW_S and files >= WINDOW_S and (silent is None or silent >= WINDOW_S)
    short = quiet >= SHORT_S and silent is not None and silent >= OLD_LOG_S
    if not (long or short):
        return None
    measures = trails.seen(seen.progress, kin)
    return told.why_stalled(process, quiet, measures, silent)


def _silent_s(process: Process, seen: _Seen) -> float | None:
    """How long the log bears witness: what was silent before it was born tells nothing of it."""
    log = seen.now.log
    return None if log is None else min(log.age_s, seen.now.tree.age_s(process))


def _findings(said: dict[ProcessId, Verdict], seen: _Seen) -> tuple[str, ...]:
    waiting = [kin for kin in seen.family.trainers if said[kin.id] == "stalled"]
    why = [diverged(kin, seen.progress, seen.now.tree, seen.family) for kin in waiting]
    return tuple(told.alike([each for each in why if each]))


def _busy(kin: Kin, seen: _Seen) -> tuple[str, ...]:
    if seen.motion.percent is None:
        return ()
    said = [f"CPU {seen.motion.percent:.0f} %"]
    if _trains(kin):
        quiet = trails.quiet_s(seen.progress, seen.now.tree, seen.family, kin)
        if quiet >= SHORT_S:
            said.append(told.no_sign(quiet, trails.seen(seen.progress, kin)))
        process = seen.now.tree.get(kin.id)
        silent = _silent_s(process, seen) if process is not None else None
        if silent is not None and silent >= OLD_LOG_S:
            said.append(f"the log has stood still for {told.span(silent)}")
    return tuple(said)


def news(was: Judged, now: Judged) -> bool:
    """Another verdict, or another account of it: the same sentences with other numbers are none."""
    if now.verdict != was.verdict:
        return True
    old = {shape(text) for text in was.evidence}
    return now.verdict != "saving" and any(
        shape(text) not in old for text in now.evidence if not text.startswith("CPU")
    )
