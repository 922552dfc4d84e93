"""Who was started: what descends from our own launch's supervisor, as a family; sees nothing."""

from __future__ import annotations

from collections.abc import Iterable

from fleetstop.core.kin.family import Family, Found, Kin, kin_of
from fleetstop.core.kin.lineage import above_kind
from fleetstop.core.launching.ended import Born
from fleetstop.core.process import Process, ProcessId, ProcessTree
from fleetstop.core.report import Role


def here(tree: ProcessTree, born: Born | None) -> Process | None:
    """The process that its own place counts so; None: it is gone, or was never told."""
    found = tree.by_inner(born.pid) if born is not None else None
    return found if found is not None and born and found.id.start == born.start else None


def descendants(
    tree: ProcessTree, root: Process | None, supervisor: Process | None, known: frozenset[ProcessId]
) -> frozenset[ProcessId]:
    """Everything that was started and lives. The supervisor adopts every orphan (prctl(2),
    subreaper), so what descends from it is all of it; `known` are those of earlier looks."""
    tops = [each.id.pid for each in (supervisor, root) if each is not None]
    tops += [pid.pid for pid in known if tree.get(pid) is not None]
    found = {each.id for top in tops for each in tree.below(top)}
    found |= {root.id} if root is not None else set()
    found |= {each for each in known if tree.get(each) is not None}
    alive = (tree.get(each) for each in found)
    return frozenset(each.id for each in alive if each is not None and each.alive)


def trainers_of(found: Found, ids: frozenset[ProcessId]) -> tuple[ProcessId, ...]:
    """The job's trainers among them; somebody else's of the same script do not count."""
    return tuple(kin.id for family in found.families for kin in family.trainers if kin.id in ids)


def went_aside(tree: ProcessTree, seen: Iterable[Process], trainers: Iterable[ProcessId]) -> bool:
    """It has put itself into the background (daemon(7)): a fork of it trains on, in a session that
    is none of those it was started in. `seen`: the trainers of earlier looks. What a trainer that
    died has left behind, its data workers, is in its session still."""
    began = {each.sid for each in seen if not each.forked}
    now = (tree.get(each) for each in trainers)
    return bool(began) and any(p is not None and p.forked and p.sid not in began for p in now)


def family_of(
    tree: ProcessTree,
    ids: frozenset[ProcessId],
    found: Found,
    root: ProcessId,
    mark: str | None,
    was: Iterable[ProcessId] = (),
) -> Family:
    """All of them, to be ended: trainers first, what stands above them, workers. Where nobody
    trains, what was seen to (`was`) is asked, else what was started itself."""
    roles: dict[ProcessId, Role] = dict.fromkeys(ids, "worker")
    for family in found.families:
        roles |= {kin.id: kin.role for kin in family.members if kin.id in ids}
    trainers = trainers_of(found, ids)
    once = frozenset() if trainers else ids & frozenset(was)
    above = {up.id for each in (*trainers, *once) for up in tree.above(each.pid)}
    for each in ids & above:
        if roles[each] == "worker":
            roles[each] = above_kind(tree.processes[each.pid], None) or "wrapper"
    if once:
        roles |= dict.fromkeys(once, "trainer")
    elif not trainers:
        top = root if root in ids else min(ids, key=lambda each: each.start, default=root)
        roles |= {top: "trainer"} if top in ids else {}
    members = tuple(_kin(tree, each, roles[each]) for each in sorted(ids))
    return Family(
        members=members,
        sessions=frozenset(kin.sid for kin in members if kin.sid == kin.id.pid),
        reapers=frozenset(up.id for each in ids for up in tree.above(each.pid) if up.id not in ids),
        marks=frozenset({mark}) if mark else frozenset(),
    )


def _kin(tree: ProcessTree, identity: ProcessId, role: Role) -> Kin:
    return kin_of(tree, tree.processes[identity.pid], role)
