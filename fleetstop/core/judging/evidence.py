"""The sentences behind a verdict: what was seen of one process, by number and by name."""

from __future__ import annotations

import posixpath

from fleetstop.core.joblog import shape
from fleetstop.core.judging.marks import Mark
from fleetstop.core.judging.progress import Measure
from fleetstop.core.process import Process, ProcessTree
from fleetstop.core.signals import NUMBERS, has, named

_SETTLED_S = 2.0
"""Python in its own code acts within 8 ms of a signal; a starved one within this (measured)."""
_CALM_WAKINGS = 3
_EITHER = "it may gather what it saves, or go on; too early to tell"
_ALL_TOLD = 2


def span(seconds: float) -> str:
    """`0.3 s`, `40 s`, `14 min`, `3 h`."""
    if seconds < 10:
        return f"{max(0.0, seconds):.1f}".removesuffix(".0") + " s"
    for limit, unit, name in ((120, 1, "s"), (7200, 60, "min")):
        if seconds < limit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds / 3600:.0f} h"


def place(process: Process) -> str:
    """Where its main thread is: `wchan futex_do_wait, syscall 202`; the unseen is left out."""
    detail = process.detail
    if process.state == "R" or detail is None:
        return f"state {process.state}"
    parts = [f"wchan {detail.wchan}"] if detail.wchan else [f"state {process.state}"]
    if detail.syscall and detail.syscall.isdigit():
        parts.append(f"syscall {detail.syscall}")
    return ", ".join(parts)


def why_frozen() -> str:
    return "the container is frozen; signals wait until it is thawed"


def why_zombie(process: Process, tree: ProcessTree) -> str:
    if process.tracer:
        # its parent cannot reap it before (ptrace(2))
        by = tree.called(process.tracer)
        return f"{process.pid} is dead; its tracer, {by}, keeps it until it lets go"
    return f"{process.pid} is dead; {tree.called(process.ppid)} should reap it and has not"


def why_suspended(process: Process, tree: ProcessTree) -> str:
    waiting = named(process.pending)
    waits = f"{', '.join(waiting)} waits" if waiting else "signals wait"
    if process.iced:
        by = f"its control group ({place(process)})"
        return f"{process.pid} is frozen by {by}; {waits} until it is thawed"
    if process.state == "t" or process.tracer:
        by = tree.called(process.tracer)
        return f"{process.pid} is held by a tracer, {by}; {waits} until it lets go"
    return f"{process.pid} is stopped (state {process.state}); {waits} until it continues"


def why_uninterruptible(process: Process, seconds: float) -> str:
    detail = process.detail
    where = detail.wchan if detail is not None and detail.wchan else "a place that is not seen"
    if process.state == "R":
        where = "the kernel (state R, system time only)"
    elif process.headless:
        where = f"{where} (a thread of it, the first one is dead)"
    if process.exiting:
        return f"{process.pid} is ending and has been in {where} for {span(seconds)}"
    waits = ", ".join(named(process.pending))
    return f"{process.pid} is in {where}; {waits} pending for {span(seconds)}, and nothing acts"


def why_stalled(
    process: Process, seconds: float, measures: tuple[Measure, ...], log_age_s: float | None
) -> str:
    stood = f"{', '.join(measures)} stood still for {span(seconds)}"
    log = f", the log for {span(log_age_s)}" if log_age_s is not None else ""
    return f"no progress by any measure: {process.pid} is in {place(process)}; {stood}{log}"


def headless(process: Process) -> str:
    return (
        f"the main thread of {process.pid} has ended, {process.threads - 1} live on; "
        "Python acts on signals in its main thread only"
    )


def no_sign(seconds: float, measures: tuple[Measure, ...]) -> str:
    return f"no sign of progress in {span(seconds)} ({', '.join(measures)}): too short to tell"


def respawned(pids: str, by: str | None) -> str:
    return f"it runs again as {pids}" + (f", started by {by}" if by else "; by whom is not seen")


def diverged(missing: list[str], process: Process, rank: str, seconds: float) -> str:
    """`missing`, `rank`: as `rank_of` names them."""
    verb = "is" if len(missing) == 1 else "are"
    return (
        f"diverged: {', '.join(missing)} {verb} gone, {rank} ({process.pid}) still waits"
        f" and has done nothing for {span(seconds)} ({place(process)})"
    )


def rank_of(text: str) -> str:
    """`LOCAL_RANK=1 RANK=3` -> `rank 1`: its number in this place, where that is known."""
    values = dict(word.split("=", 1) for word in text.split() if "=" in word)
    number = values.get("LOCAL_RANK") or values.get("RANK")
    return f"rank {number}" if number else "a rank"


def alike(sentences: list[str]) -> list[str]:
    """Many that differ in numbers only are told once, and counted."""
    kinds: dict[str, list[str]] = {}
    for each in sentences:
        kinds.setdefault(shape(each), []).append(each)
    told: list[str] = []
    for same in kinds.values():
        if len(set(same)) <= _ALL_TOLD:
            told += same
        else:
            told.append(f"{same[0]} (and {len(same) - 1} more like it)")
    return told


def taken(
    process: Process, mark: Mark, uptime: float, *, moves: bool = False, gathers: bool = False
) -> str | None:
    """What became of a signal it heard: it waits still, or it was taken and not acted upon.

    `moves`: something of it does; `gathers`: its memory, or what it has written. A state that is
    gathered for a checkpoint looks like training going on: then neither is said.

    The C handler of an interpreter only notes a signal; nothing is pending from then on. None
    where that is not known, or nothing need have happened yet.
    """
    if mark.signal not in NUMBERS or mark.at is None or process.masks is None:
        return None  # not known, or it was asked by a file, a command, keys: nothing was to take
    ago = uptime - mark.at
    if ago < _SETTLED_S:
        return None
    if has(process.pending, mark.signal):
        # in D nothing is taken but KILL, and that by some waits only
        where = f" (state D, {place(process)})" if process.state == "D" else ""
        said = f"{mark.signal} is still pending on {process.pid} after {span(ago)}: not taken"
        return said + where
    if process.headless:
        return f"{process.pid} took {mark.signal} {span(ago)} ago; {headless(process)}"
    detail = process.detail
    if detail is None or detail.switches is None or mark.switches is None:
        return None
    took = f"{process.pid} took {mark.signal} {span(ago)} ago (nothing is pending)"
    if (wrote := (detail.written or 0) - (mark.written or 0)) > 0:
        if moves:
            return f"{took} and has run on since ({wrote} bytes written): {_EITHER}"
        return f"{took} and has run on since ({wrote} bytes written), without ending"
    if (woke := detail.switches - mark.switches) > _CALM_WAKINGS:
        if moves:
            return f"{took} and has woken {woke / ago:.1f} times a second since: {_EITHER}"
        return (
            f"{took} and has woken {woke / ago:.1f} times a second since, without ending "
            f"({place(process)}): it goes on, or waits for its turn"
        )
    if not _python(process):
        return f"{took} and has not acted on it ({place(process)})"
    comes = "KeyboardInterrupt comes" if mark.signal == "INT" else "its handler runs"
    does = "runs" if process.state == "R" else "waits"
    if gathers:
        return f"{took} and {does} in C code ({place(process)}): {_EITHER}"
    return f"{took} and {does} in C code ({place(process)}); {comes} when that returns"


def _python(process: Process) -> bool:
    words = (process.comm, posixpath.basename(process.argv[0]) if process.argv else "")
    return any(word.startswith("python") for word in words)


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
