"""Who joins a family after it was fixed: by birth alone, never by likeness."""

from __future__ import annotations

import posixpath

import msgspec

from fleetstop.core.kin.family import Family, Kin, kin_of
from fleetstop.core.kin.matching import records_the_end
from fleetstop.core.process import Process, ProcessTree

NEXT_LOOK_S = 2.0
"""Two looks are at the most so far apart while a trainer lives."""


def grow(family: Family, tree: ProcessTree, until_s: float | None = None) -> Family:
    """Adds who was born: children of trainers and workers, and what such a child left behind
    in a session that held only family, or with our marker. A new trainer under a wrapper is
    never added.

    `until_s`: the uptime at which a trainer was last seen alive. What appears later in the
    session is the wrapper's next line (an upload, say), not the job's child.
    """
    until = (tree.uptime if until_s is None else until_s) * tree.hz
    ids = {each.id for each in family.members}
    inside = {m.id.pid for m in family.of("trainer", "worker") if tree.get(m.id) is not None}
    fresh: list[Kin] = []
    unknown = [p for p in tree.processes.values() if p.id not in ids and p.id.pid > 1]
    unknown = [p for p in unknown if not records_the_end(p)]
    # again until nobody joins: parent and child may be born in one clock tick
    while born := [p for p in unknown if p.ppid in inside or _orphan(family, tree, p, until)]:
        inside |= {each.id.pid for each in born}
        fresh += [kin_of(tree, each, "worker") for each in born]
        unknown = [each for each in unknown if each not in born]
    if not fresh:
        return family
    return msgspec.structs.replace(family, members=(*family.members, *fresh))


def _orphan(family: Family, tree: ProcessTree, process: Process, until: float) -> bool:
    """It lost its parent, and was born into the job while a trainer lived.

    A session is inherited at birth only (setsid(2) makes a new one): whoever turns up in one
    that held only family descends from it, whoever has adopted it.
    """
    marked = process.detail is not None and process.detail.mark in family.marks
    if not (process.sid in family.sessions or marked):
        return False
    return _in_time(family, process, until, tree.hz) and _adopted(family, tree, process)


def _in_time(family: Family, process: Process, until: float, hz: int) -> bool:
    if _copy_of_a_trainer(family, process):
        # it may have left its saver behind between that look and the next
        until += NEXT_LOOK_S * hz
    oldest = min((each.id.start for each in family.members), default=0)
    return oldest <= process.id.start <= until


def _copy_of_a_trainer(family: Family, process: Process) -> bool:
    """A fork without exec under a trainer's own name: no line of a shell's script looks so."""
    names = {posixpath.basename(kin.argv[0])[:15] for kin in family.trainers if kin.argv}
    return process.forked and process.comm in names


def _adopted(family: Family, tree: ProcessTree, process: Process) -> bool:
    """Its parent is PID 1, out of sight, or one that stood above the job when it was fixed: only
    an ancestor can be the subreaper (prctl(2)). Any other living non-member stands between."""
    parent = tree.processes.get(process.ppid)
    if parent is None or parent.pid == 1 or parent.id.pid == 1:
        return True
    above = {each.id for each in family.of("wrapper", "launcher")}
    # a parent of the same session may have made it itself: the wrapper's own next line
    return parent.sid != process.sid and parent.id in family.reapers | above


def may_be_marked(family: Family, tree: ProcessTree) -> set[int]:
    """Host PIDs whose environment may hold the family's marker: adopted, and young enough.
    Empty where no member carries one."""
    if not family.marks:
        return set()
    ids = family.ids
    return {
        each.id.pid
        for each in tree.processes.values()
        if each.id not in ids
        and each.id.pid > 1
        and _in_time(family, each, tree.uptime * tree.hz, tree.hz)
        and _adopted(family, tree, each)
    }
