"""What looks mean: one verdict with its evidence, for each member and for the job."""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

from msgspec import Struct

from fleetstop.core.family import Family, Kin
from fleetstop.core.process import Process, ProcessId, ProcessTree
from fleetstop.core.risk import AtRisk
from fleetstop.core.saving import saves_of
from fleetstop.core.signals import has

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
_MIB = 1024


class Look(Struct, frozen=True):
    """One look at a job. `at`: monotonic seconds. `changed`: checkpoint files that grew or
    appeared since the look before, None where none are declared; `files_unseen`: why
    they could not be listed. `temporary`: fresh ones whose final name is missing. `real`:
    the checkpoint directory with its links resolved, which is how open files are named.
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


class Mark(Struct, frozen=True):
    """A trainer as it was when it heard a signal."""

    ignored: int
    ticks: int


class Judged(Struct, frozen=True):
    """`saving` None: it could not be seen, so it may be. `written`: a measure that only grows
    while a save moves. The three `moves_` compare with the look before."""

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


def judge(
    before: Look | None,
    now: Look,
    family: Family,
    *,
    stop_signals: tuple[str, ...],
    checkpoints: str | None,
    heard: dict[ProcessId, Mark] | None = None,
) -> Judged:
    """`stop_signals`: what this job may be asked with; `heard`: who heard a signal of ours."""
    heard = heard or {}
    then = before.tree if before else None
    directories = tuple(each for each in (checkpoints, now.real) if each)
    saves, unseen = saves_of(
        then, now.tree, family, directories, now.changed, now.temporary, now.risk
    )
    unseen += [now.files_unseen] if now.files_unseen else []
    motion = _motion(before, now, family)
    said: dict[ProcessId, Verdict] = {}
    evidence: dict[ProcessId, tuple[str, ...]] = {}
    for kin in family.members:
        writer = any(save.pid == kin.pid for save in saves)
        word, why = _member(kin, now, stop_signals, heard.get(kin.id), motion, writer)
        said[kin.id], evidence[kin.id] = word, why
    worst = _overall(family, said, bool(saves))
    reasons = [why for kin in family.members if said[kin.id] == worst for why in evidence[kin.id]]
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
    )


def _overall(family: Family, said: dict[ProcessId, Verdict], saving: bool) -> Verdict:
    """The worst of the trainers; of all members once no trainer is left; saving by anybody."""
    words = {said[kin.id] for kin in family.trainers}
    if words <= {"gone", "zombie"}:
        words = {said[kin.id] for kin in family.members}
    if saving:
        words.add("saving")
    return min(words, key=ORDER.index, default="gone")


class _Motion(Struct, frozen=True):
    cpu: bool
    memory: bool
    bytes: bool
    written: int
    percent: float | None


def _motion(before: Look | None, now: Look, family: Family) -> _Motion:
    """What moved between two looks, over all living members together."""
    ticks = rss = written = 0
    for kin in family.members:
        new = now.tree.get(kin.id)
        old = before.tree.get(kin.id) if before else None
        if new is None or old is None:
            continue
        ticks += max(0, new.ticks - old.ticks)
        rss += max(0, new.rss_kib - old.rss_kib)
        written += max(0, (_written(new) or 0) - (_written(old) or 0))
    span = now.at - before.at if before else 0.0
    percent = 100.0 * ticks / now.tree.hz / span if span > 0 else None
    return _Motion(
        cpu=ticks > 0, memory=rss >= _MIB, bytes=written >= 65536, written=written, percent=percent
    )


def _written(process: Process) -> int | None:
    return process.detail.written if process.detail else None


def _member(
    kin: Kin,
    now: Look,
    stop_signals: tuple[str, ...],
    mark: Mark | None,
    motion: _Motion,
    writer: bool,
) -> tuple[Verdict, tuple[str, ...]]:
    process = now.tree.get(kin.id)
    if process is None:
        return "gone", (f"{kin.pid} is gone",)
    if process.zombie:
        return "zombie", (f"{kin.pid} is dead; its parent {process.ppid} has not reaped it",)
    if now.frozen:
        return "frozen", ("the container is frozen; signals wait until it is thawed",)
    if process.masks is None:
        return "unknown", (f"the signal masks of {kin.pid} could not be read",)
    if process.suspended:
        return "suspended", (_why_suspended(kin, process),)
    if mark is not None:
        if writer:
            return "saving", ()
        if now.trains_on:
            return "busy", ("new steps in the log after the signal: it trains on",)
        if stopping := _stopping(kin, process, mark, motion):
            return "stopping", stopping
    elif kin.role == "trainer" and (why := deafness(process, stop_signals)):
        return "deaf", (f"{kin.pid} {why}",)
    return ("saving", ()) if writer else ("busy", _busy(kin, motion))


def _why_suspended(kin: Kin, process: Process) -> str:
    if process.tracer:
        return f"{kin.pid} is held by a tracer (host PID {process.tracer})"
    return f"{kin.pid} is stopped (state {process.state}); signals wait until it continues"


def _stopping(kin: Kin, process: Process, mark: Mark, motion: _Motion) -> tuple[str, ...]:
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


def deafness(process: Process, stop_signals: tuple[str, ...]) -> str | None:
    """Why no stop signal can ever work on it, or None where one is heard or all are fatal."""
    landings = {signal: process.landing(signal) for signal in stop_signals}
    if not landings or "heard" in landings.values() or None in landings.values():
        return None
    ignored = [signal for signal, how in landings.items() if how == "ignored"]
    blocked = [signal for signal, how in landings.items() if how == "blocked"]
    if ignored:
        return f"ignores {' and '.join(ignored)} (SigIgn){_background(process)}"
    return f"blocks {' and '.join(blocked)} in every thread (SigBlk)" if blocked else None


def _background(process: Process) -> str:
    """INT and QUIT ignored together: `&` in a non-interactive shell (POSIX sh 2.11)."""
    masks = process.masks
    if masks is not None and has(masks.ignored, "INT") and has(masks.ignored, "QUIT"):
        return "; it was started with & from a non-interactive shell"
    return ""


def _busy(kin: Kin, motion: _Motion) -> tuple[str, ...]:
    if motion.percent is None:
        return ()
    return (f"CPU {motion.percent:.0f} %",)
