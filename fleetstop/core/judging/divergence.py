"""Ranks that diverged: one has ended, another waits for it in its barrier for good."""

from __future__ import annotations

from fleetstop.core.judging import evidence as told
from fleetstop.core.judging.progress import WORK, Progress, quiet_s
from fleetstop.core.kin.family import Family, Kin
from fleetstop.core.process import Process, ProcessTree

DIVERGED_S = 10.0
"""Where a rank has ended: so long another may have done nothing."""


def diverged(kin: Kin, progress: Progress, tree: ProcessTree, family: Family) -> str | None:
    """A sentence where this rank has done nothing for a while, and another one has ended.

    Waking up to look for the others is all that a barrier does, so that counts as nothing.
    """
    process = tree.get(kin.id)
    if kin.role != "trainer" or process is None or not process.alive or process.suspended:
        return None
    quiet = quiet_s(progress, tree, family, kin, WORK)
    missing = _missing(progress, tree, family)
    if not missing or quiet < DIVERGED_S:
        return None
    return told.diverged(missing, process, _name(kin, progress), quiet)


def _missing(progress: Progress, tree: ProcessTree, family: Family) -> list[str]:
    """The ranks that have ended, by name: trainers of this family, and any that ended before it
    was fixed, where the environment of the others says how many there should be."""
    trainers, total = family.trainers, progress.ranks_here or 0
    gone = [
        f"{_name(kin, progress)} ({kin.pid})" for kin in trainers if not _runs(tree.get(kin.id))
    ]
    known = {_name(kin, progress) for kin in trainers}
    before = [name for number in range(total) if (name := f"rank {number}") not in known]
    return gone + before[: max(0, total - len(trainers))]


def _runs(process: Process | None) -> bool:
    return process is not None and process.alive


def _name(kin: Kin, progress: Progress) -> str:
    """The parent of the other ranks is rank 0: it gave itself that number after its exec."""
    text = progress.ranks.get(kin.id)
    others = {told.rank_of(each) for each in progress.ranks.values()}
    first = text is None and others and "rank 0" not in others
    return "rank 0" if first else told.rank_of(text or "")
