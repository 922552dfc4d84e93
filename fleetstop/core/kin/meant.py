"""Whom a match means where it names what starts others; knows neither families nor roles."""

from __future__ import annotations

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
        alone = {pid: each for pid, each in alone.items() if at_work(tree, [each])}
    if not alone:
        return rest
    below = _below_the_named(tree, alone, holders)
    return below if isinstance(below, str) else {**rest, **below}


def _starts_others(process: Process) -> bool:
    return process.alive and above_kind(process, None) is not None


def _below_the_named(
    tree: ProcessTree, hits: dict[int, Process], holders: set[int]
) -> dict[int, Process] | str:
    """The PID of a shell, a wrapper or a launcher (`run.sh & echo $!`) names what that runs: it
    trains nothing itself, and a signal to it reaches no trainer or takes away its parent."""
    living = [each for each in at_work(tree, hits.values()) if each.alive]
    found = {each.id.pid: each for each in living} or hits
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
