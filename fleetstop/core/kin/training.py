"""Which of the matches train themselves; knows neither families nor roles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from fleetstop.core.kin.lineage import spawned
from fleetstop.core.kin.meant import names, own_rank
from fleetstop.core.process import Process, ProcessTree


def is_fork_of(tree: ProcessTree, process: Process, hits: Mapping[int, Process]) -> bool:
    """A fork without exec of a match, or of such a fork: renamed ones stand in between."""
    if not process.forked:
        return False
    for above in tree.above(process.id.pid):
        if above.id.pid in hits:
            return True
        if not above.forked:
            return False
    return False


def trainers_among(
    tree: ProcessTree,
    own: set[int],
    holders: set[int],
    said: Literal["leaves", "all"] | None,
) -> set[int] | str:
    ranks = {
        d.id.pid
        for pid in own
        for d in tree.below(pid)
        if d.id.pid in holders and not d.forked and (own_rank(tree, d) or spawned(d))
    }
    candidates = own | ranks
    below = {pid: {d.id.pid for d in tree.below(pid)} for pid in candidates}
    if said == "all":
        return candidates
    if said == "leaves":
        return {pid for pid in candidates if not below[pid] & candidates}
    trainers = set(ranks)
    for pid in own:
        if pid in holders or not below[pid] & (own | holders):
            trainers.add(pid)
        elif not below[pid] & holders:
            return (
                f"{tree.processes[pid].pid} matches, and so does its own descendant "
                f"{names(tree, below[pid] & own)}; which of them trains cannot be seen "
                "(neither tells by holding a GPU of its own)"
            )
    for pid in sorted(own - trainers):
        if not below[pid] & trainers:
            return (
                f"{tree.processes[pid].pid} matches and holds no GPU; below it "
                f"{names(tree, below[pid] & holders)} holds one and does not match; "
                "which of them trains cannot be seen"
            )
    return trainers
