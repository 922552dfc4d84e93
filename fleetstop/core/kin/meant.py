"""Whom a match means where it names what starts others; knows neither families nor roles."""

from __future__ import annotations

from collections.abc import Iterable

from fleetstop.core.kin.lineage import above_kind, at_work
from fleetstop.core.process import Process, ProcessTree


def meant(
    tree: ProcessTree, hits: dict[int, Process], holders: set[int], *, all_: bool
) -> dict[int, Process] | str:
    """A launcher or wrapper trains nothing: one that a pattern or a name fits (`exe: mpirun`)
    stands for what it starts, and for nothing where that matches itself. `all_`: a shell too."""
    starts = {pid: each for pid, each in hits.items() if all_ or _starts_others(each)}
    rest = {pid: each for pid, each in hits.items() if pid not in starts}
    alone = {
        pid: each
        for pid, each in starts.items()
        if not any(below.id.pid in rest for below in tree.below(pid))
    }
    if not all_:
        # one that has nothing below it is between two lives of what it starts
        alone = {pid: each for pid, each in alone.items() if _works(tree, [each])}
        if (apart := _helpers(tree, starts, rest)) is not None:
            return apart
    if not alone:
        return rest
    below = _below_the_named(tree, alone, holders)
    return below if isinstance(below, str) else {**rest, **below}


def _works(tree: ProcessTree, hits: Iterable[Process]) -> list[Process]:
    """What is at work below them. A shell's `sleep` is a pause between two lives."""
    return [each for each in at_work(tree, hits) if each.alive and each.comm != "sleep"]


def _helpers(tree: ProcessTree, starts: dict[int, Process], rest: dict[int, Process]) -> str | None:
    """Matches that stand below what a named launcher started, which itself does not match: an
    `exe: python3` where the trainer runs as python3.11 and its monitor as python3."""
    for pid, each in starts.items():
        works = {one.id.pid for one in _works(tree, [each])}
        low = {one.id.pid for one in tree.below(pid)} & set(rest) - works
        mute = {one for one in works - set(rest) for b in tree.below(one) if b.id.pid in low}
        if mute and not works & set(rest):
            return (
                f"{names(tree, {pid})} matches and starts {names(tree, mute)}, which does not; "
                f"{names(tree, low)} below that does; which of them trains cannot be seen"
            )
    return None


def _starts_others(process: Process) -> bool:
    return process.alive and above_kind(process, None) is not None


def _below_the_named(
    tree: ProcessTree, hits: dict[int, Process], holders: set[int]
) -> dict[int, Process] | str:
    """The PID of a shell, a wrapper or a launcher (`run.sh & echo $!`) names what that runs: it
    trains nothing itself, and a signal to it reaches no trainer or takes away its parent."""
    found = {each.id.pid: each for each in _works(tree, hits.values())} or hits
    if len(found) == 1 or all(own_rank(tree, each) for each in found.values()):
        return found
    works = {
        pid: each
        for pid, each in found.items()
        if holders & {pid, *(below.id.pid for below in tree.below(pid))}
    }
    if works:
        return works
    return (
        f"below {names(tree, set(hits))} run {names(tree, set(found))}; "
        "which of them trains cannot be seen (none holds a GPU)"
    )


def own_rank(tree: ProcessTree, process: Process) -> bool:
    """It was given a rank of its own. A rank's helpers (an exporter, an evaluation) inherit
    the same numbers and are no ranks."""
    rank = process.detail.rank if process.detail else None
    above = (each.detail.rank for each in tree.above(process.id.pid) if each.detail)
    return rank is not None and rank not in above


def names(tree: ProcessTree, pids: set[int]) -> str:
    return ", ".join(str(tree.processes[each].pid) for each in sorted(pids))
