"""Who belongs to the job: trainers, workers, wrappers, fixed by identity before any signal."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Struct

from fleetstop.core.inventory import Job, Match
from fleetstop.core.lineage import above_kind, pipe_partner, spawned
from fleetstop.core.matching import matches, mentions
from fleetstop.core.process import Process, ProcessId, ProcessTree
from fleetstop.core.report import Role


class Kin(Struct, frozen=True):
    """One member, as it was when it joined. `pid` is the container's number."""

    id: ProcessId
    pid: int
    role: Role
    argv: tuple[str, ...]
    ppid: int
    sid: int
    up_s: float


class Family(Struct, frozen=True):
    """One job's processes. `sessions`: host session ids led by a member, that held only members
    when fixed (zero is no session: it is how another namespace's looks)."""

    members: tuple[Kin, ...]
    sessions: frozenset[int] = frozenset()

    @property
    def ids(self) -> frozenset[ProcessId]:
        return frozenset(each.id for each in self.members)

    def of(self, *roles: Role) -> tuple[Kin, ...]:
        return tuple(each for each in self.members if each.role in roles)

    @property
    def trainers(self) -> tuple[Kin, ...]:
        return self.of("trainer")


class Found(Struct, frozen=True):
    """What a place holds of a job: one family per unrelated tree.

    `unclear`: a sentence, where it cannot be told which processes train.
    `leftovers`: launchers and wrappers that would start the job again though none runs.
    """

    families: tuple[Family, ...]
    unclear: str | None = None
    leftovers: tuple[Process, ...] = ()


def find(
    tree: ProcessTree,
    match: Match,
    job: Job | None,
    *,
    listed: frozenset[int] = frozenset(),
    gpu_pids: frozenset[int] | None = None,
) -> Found:
    """`listed`: container PIDs that pgrep or a pid file named; `gpu_pids`: host PIDs that
    nvidia-smi listed, None where it could not be asked."""
    hits = {p.id.pid: p for p in tree.processes.values() if matches(match, p, listed=listed)}
    if not hits:
        return Found(families=(), leftovers=_leftovers(tree, match, job))
    holders = {
        p.id.pid for p in tree.processes.values() if p.gpus or p.id.pid in (gpu_pids or frozenset())
    }
    own = {pid for pid, p in hits.items() if not (p.forked and p.ppid in hits)}
    picked = _trainers(tree, own, holders, job.trainers if job else None)
    if isinstance(picked, str):
        return Found(families=_families(tree, own, job), unclear=picked)
    return Found(families=_families(tree, picked, job))


def _trainers(
    tree: ProcessTree,
    own: set[int],
    holders: set[int],
    said: Literal["leaves", "all"] | None,
) -> set[int] | str:
    ranks = {
        d.id.pid
        for pid in own
        for d in tree.below(pid)
        if d.id.pid in holders and not d.forked and ((d.detail and d.detail.rank) or spawned(d))
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
            return _cannot_tell(tree, pid, below[pid] & own)
    for pid in own - trainers:
        if not below[pid] & trainers:
            return _cannot_tell(tree, pid, below[pid] & holders)
    return trainers


def _cannot_tell(tree: ProcessTree, pid: int, below: set[int]) -> str:
    names = ", ".join(str(tree.processes[each].pid) for each in sorted(below))
    return (
        f"{tree.processes[pid].pid} matches, and so does its own descendant {names}; "
        "which of them trains cannot be seen (neither tells by holding a GPU of its own)"
    )


def _families(tree: ProcessTree, trainers: set[int], job: Job | None) -> tuple[Family, ...]:
    roles: dict[int, Role] = dict.fromkeys(trainers, "trainer")
    for pid in trainers:
        for each in tree.below(pid):
            roles.setdefault(each.id.pid, "worker")
    _add_above(tree, roles, job.wrapper if job else None)
    families = []
    for root in sorted(pid for pid in roles if tree.processes[pid].ppid not in roles):
        pids = [root, *(each.id.pid for each in tree.below(root) if each.id.pid in roles)]
        families.append(_family(tree, {pid: roles[pid] for pid in pids}))
    return tuple(families)


def _add_above(tree: ProcessTree, roles: dict[int, Role], named: str | None) -> None:
    """An ancestor joins when every child of it is family, pipe partners aside; to a fixed point."""
    grew = True
    while grew:
        grew = False
        members = [tree.processes[pid] for pid in roles]
        for parent in {each.ppid for each in members} - set(roles):
            above = tree.processes.get(parent)
            kind = above_kind(above, named) if above is not None else None
            if kind is None:
                continue
            strangers = [kid for kid in tree.children(parent) if kid.id.pid not in roles]
            if all(kid.zombie or pipe_partner(kid, members) for kid in strangers):
                roles[parent] = kind
                grew = True


def _family(tree: ProcessTree, roles: dict[int, Role]) -> Family:
    members = tuple(_kin(tree, tree.processes[pid], role) for pid, role in roles.items())
    # A session led by an outsider (somebody's login) may start strangers at any time.
    sessions = frozenset(
        kin.sid
        for kin in members
        if kin.sid in roles
        and all(p.id.pid in roles for p in tree.processes.values() if p.sid == kin.sid)
    )
    return Family(members=members, sessions=sessions)


def _kin(tree: ProcessTree, process: Process, role: Role) -> Kin:
    return Kin(
        id=process.id,
        pid=process.pid,
        role=role,
        argv=process.argv or (f"[{process.comm}]",),
        ppid=process.ppid,
        sid=process.sid,
        up_s=tree.age_s(process),
    )


def _leftovers(tree: ProcessTree, match: Match, job: Job | None) -> tuple[Process, ...]:
    """Launchers with the script among their arguments, and processes of `launch.run`."""
    runs = job.launch.run if job is not None and job.launch is not None else ()
    found = []
    for each in tree.processes.values():
        argv = each.argv or ()
        started = bool(runs) and each.alive and _runs(argv, runs)
        if started or (above_kind(each, None) == "launcher" and mentions(match, each)):
            found.append(each)
    return tuple(found)


def _runs(argv: tuple[str, ...], run: tuple[str, ...]) -> bool:
    """`run` as given, or behind an interpreter, as `#!` puts it."""
    return argv[: len(run)] == run or argv[1 : len(run) + 1] == run


def grow(family: Family, tree: ProcessTree) -> Family:
    """Adds who was born: children of trainers and workers, and what such a child left behind
    in a session that held only family. A new trainer under a wrapper is never added."""
    ids = {each.id for each in family.members}
    inside = {m.id.pid for m in family.of("trainer", "worker") if tree.get(m.id) is not None}
    fresh: list[Kin] = []
    for each in sorted(tree.processes.values(), key=lambda p: p.id.start):
        if each.id in ids:
            continue
        if each.ppid in inside or _orphan(family, tree, each):
            inside.add(each.id.pid)
            fresh.append(_kin(tree, each, "worker"))
    if not fresh:
        return family
    return msgspec.structs.replace(family, members=(*family.members, *fresh))


def _orphan(family: Family, tree: ProcessTree, process: Process) -> bool:
    parent = tree.processes.get(process.ppid)
    adopted = parent is None or parent.pid == 1 or parent.id.pid == 1
    oldest = min((each.id.start for each in family.members), default=0)
    return adopted and process.sid in family.sessions and process.id.start >= oldest


def standing(family: Family, tree: ProcessTree) -> tuple[Kin, ...]:
    """Members still alive in this look: not gone, not a reaped-only zombie."""
    alive = []
    for each in family.members:
        seen = tree.get(each.id)
        if seen is not None and seen.alive:
            alive.append(each)
    return tuple(alive)
