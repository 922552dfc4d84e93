"""Who belongs to the job: trainers, workers, wrappers, fixed by identity before any signal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec
from msgspec import Struct

from fleetstop.core.inventory import Job, Match
from fleetstop.core.kin.lineage import above_kind, piped_together, strangers
from fleetstop.core.kin.matching import matches, mentions, records_the_end
from fleetstop.core.kin.meant import meant, names
from fleetstop.core.kin.orphans import orphans
from fleetstop.core.kin.shells import starts_again
from fleetstop.core.kin.training import is_fork_of, trainers_among
from fleetstop.core.process import Process, ProcessId, ProcessTree
from fleetstop.core.report import Role

_FIRST = "the host's first process matches; it is never signalled, and all others descend from it"


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
    when fixed (zero is no session: it is how another namespace's looks). `reapers`: who stood
    above when fixed and is no member; one of them may adopt orphans (prctl(2), subreaper).
    `marks`: the members' FLEETSTOP_MARK. `ranks`: the job's word on which rank saves.
    """

    members: tuple[Kin, ...]
    sessions: frozenset[int] = frozenset()
    reapers: frozenset[ProcessId] = frozenset()
    marks: frozenset[str] = frozenset()
    ranks: Literal["all_save", "rank0_saves"] | None = None

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
    `orphans`: forked by a trainer that has ended, with its command line; where no trainer runs
    they are the one family, all of them workers, and else nobody's.
    """

    families: tuple[Family, ...]
    unclear: str | None = None
    leftovers: tuple[Process, ...] = ()
    orphans: tuple[Process, ...] = ()


def find(
    tree: ProcessTree,
    match: Match,
    job: Job | None,
    *,
    listed: frozenset[int] = frozenset(),
    gpu_pids: frozenset[int] | None = None,
    texts: Mapping[ProcessId, str] | None = None,
) -> Found:
    """`listed`: container PIDs that pgrep or a pid file named; `gpu_pids`: host PIDs that
    nvidia-smi listed, None where it could not be asked; `texts`: scripts by their shell."""
    hits = {p.id.pid: p for p in tree.processes.values() if matches(match, p, listed=listed)}
    if not hits:
        return Found(families=(), leftovers=_leftovers(tree, match, job, texts or {}))
    holders = {
        p.id.pid for p in tree.processes.values() if p.gpus or p.id.pid in (gpu_pids or frozenset())
    }
    if match.pid is None and match.pidfile is None:
        left = orphans(tree, hits, gpu_pids)
        if "unclear" in left.values():
            families = _families(tree, set(hits), set(hits), job)
            return Found(families=families, unclear=_unclear_orphans(tree, set(left)))
        if left:
            seen = tree.without(set(left))
            found = find(seen, match, job, listed=listed, gpu_pids=gpu_pids, texts=texts)
            return _with_orphans(tree, found, [hits[pid] for pid in left], job)
    named = _whom(tree, match, hits, holders)
    if isinstance(named, str):
        return Found(families=_families(tree, set(hits), set(hits), job), unclear=named)
    if not named:
        return Found(families=(), leftovers=tuple(hits.values()))
    hits = named
    holding = [p for pid, p in hits.items() if pid in holders]
    if holding and (match.tmux or match.unit or match.pgrep):
        # a pane or unit names all that works in it, its `| tee` too, which a signal would end
        # first; a pattern names the `tee train.py.log` as well
        rest = [p for pid, p in hits.items() if pid not in holders]
        apart = strangers(rest, holding)
        beside = {each.ppid for each in holding}
        rest = [p for p in rest if p in apart or p.ppid not in beside]
        hits = {p.id.pid: p for p in (*holding, *rest)}
    elif match.pgrep is not None and (piped := piped_together(hits.values())):
        said = f"{names(tree, piped)} match and stand in one pipeline; which of them trains "
        families = _families(tree, set(hits), set(hits), job)
        return Found(families=families, unclear=said + "cannot be seen (none holds a GPU)")
    # a torn look can show forks of forks in a circle: then nobody is set aside
    own = {pid for pid, p in hits.items() if not is_fork_of(tree, p, hits)} or set(hits)
    first = tuple(p for pid, p in hits.items() if pid <= 1 and pid in own)
    if first:
        # everything descends from it, so everything would be family
        return Found(families=(), unclear=_FIRST, leftovers=first)
    tree = tree.without((0, 1))
    picked = trainers_among(tree, own, holders, job.trainers if job else None)
    if isinstance(picked, str):
        return Found(families=_families(tree, own, own, job), unclear=picked)
    return Found(families=_families(tree, picked, own, job))


def _unclear_orphans(tree: ProcessTree, pids: set[int]) -> str:
    return (
        f"{names(tree, pids)} match and were forked by a process that has ended; whether one of "
        "them trains cannot be seen (nvidia-smi gave no answer)"
    )


def _with_orphans(tree: ProcessTree, found: Found, left: list[Process], job: Job | None) -> Found:
    if found.families or found.leftovers or found.unclear:
        return msgspec.structs.replace(found, orphans=tuple(left))
    roles: dict[int, Role] = {each.id.pid: "worker" for each in left}
    for each in left:
        roles |= {below.id.pid: "worker" for below in tree.below(each.id.pid)}
    return Found(families=(_family(tree, roles, job),), orphans=tuple(left))


def _whom(
    tree: ProcessTree, match: Match, hits: dict[int, Process], holders: set[int]
) -> dict[int, Process] | str:
    if match.unit or match.tmux or match.gpu:
        return hits  # these name all that works there, or who holds a GPU: told apart below
    return meant(tree, hits, holders, all_=match.pid is not None or match.pidfile is not None)


def _families(
    tree: ProcessTree, trainers: set[int], own: set[int], job: Job | None
) -> tuple[Family, ...]:
    roles: dict[int, Role] = dict.fromkeys(trainers, "trainer")
    for pid in sorted(trainers):
        for each in tree.below(pid):
            if not records_the_end(each):
                roles.setdefault(each.id.pid, "worker")
    _add_launchers(tree, roles, own - trainers)
    named = job.wrapper if job else None
    _add_above(tree, roles, named)
    # A wrapper that outlives the job joins its trees to one, and is left alone otherwise.
    left = ("wrapper",) if named == "outlives" else ()
    return tuple(
        _family(tree, {pid: roles[pid] for pid in pids if roles[pid] not in left}, job)
        for pids in _trees(tree, roles)
    )


def _trees(tree: ProcessTree, roles: Mapping[int, Role]) -> list[list[int]]:
    """Members joined by parenthood, each in one tree; parents first, even in a torn look."""
    grown: dict[int, list[int]] = {}
    root_of: dict[int, int] = {}
    for top in sorted({_top(tree, roles, pid) for pid in roles if roles[pid] == "trainer"}):
        if top in root_of:
            continue
        root_of[top], grown[top] = top, [top]
        for each in tree.below(top):
            pid = each.id.pid
            if pid in roles and pid not in root_of and root_of.get(each.ppid) == top:
                root_of[pid] = top
                grown[top].append(pid)
    return list(grown.values())


def _top(tree: ProcessTree, roles: Mapping[int, Role], pid: int) -> int:
    """The last ancestor up to which all are members; in a circle, the one before it closes."""
    for above in tree.above(pid):
        if above.id.pid not in roles:
            break
        pid = above.id.pid
    return pid


def _add_launchers(tree: ProcessTree, roles: dict[int, Role], matched: set[int]) -> None:
    """Matches that do not train themselves, and what stands between them and their trainers."""
    for pid in [pid for pid, role in roles.items() if role == "trainer"]:
        above = [each.id.pid for each in tree.above(pid)]
        highest = max((at for at, each in enumerate(above) if each in matched), default=-1)
        for each in above[: highest + 1]:
            if not records_the_end(tree.processes[each]):
                roles.setdefault(each, "launcher")


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
            others = [kid for kid in tree.children(parent) if kid.id.pid not in roles]
            if not strangers(others, members):
                roles[parent] = kind
                grew = True


def _family(tree: ProcessTree, roles: dict[int, Role], job: Job | None) -> Family:
    members = tuple(kin_of(tree, tree.processes[pid], role) for pid, role in roles.items())
    # A session led by an outsider (somebody's login) may start strangers at any time.
    sessions = frozenset(
        kin.sid
        for kin in members
        if kin.sid in roles
        and all(p.id.pid in roles for p in tree.processes.values() if p.sid == kin.sid)
    )
    return Family(
        members=members,
        sessions=sessions,
        reapers=frozenset(
            above.id for pid in roles for above in tree.above(pid) if above.id.pid not in roles
        ),
        marks=frozenset(
            detail.mark for pid in roles if (detail := tree.processes[pid].detail) and detail.mark
        ),
        ranks=job.ranks if job else None,
    )


def kin_of(tree: ProcessTree, process: Process, role: Role) -> Kin:
    return Kin(
        id=process.id,
        pid=process.pid,
        role=role,
        argv=process.argv or (f"[{process.comm}]",),
        ppid=process.ppid,
        sid=process.sid,
        up_s=tree.age_s(process),
    )


def _leftovers(
    tree: ProcessTree, match: Match, job: Job | None, texts: Mapping[ProcessId, str]
) -> tuple[Process, ...]:
    """Launchers with the script among their arguments, processes of `launch.run`, and shells
    whose loop runs the script."""
    runs = job.launch.run if job is not None and job.launch is not None else ()
    found = []
    for each in tree.processes.values():
        argv = each.argv or ()
        started = bool(runs) and each.alive and _runs(argv, runs)
        launcher = above_kind(each, None) == "launcher" and mentions(match, each)
        if started or launcher or starts_again(match, each, texts):
            found.append(each)
    return tuple(found)


def _runs(argv: tuple[str, ...], run: tuple[str, ...]) -> bool:
    """`run` as given, or behind an interpreter and its one argument, as `#!` puts it."""
    return any(argv[at : len(run) + at] == run for at in (0, 1, 2))


def standing(family: Family, tree: ProcessTree) -> tuple[Kin, ...]:
    """Members still alive in this look: not gone, not a reaped-only zombie.

    A wrapper that has exec'd something else (`train.py; exec bash`) has left the job: it has
    its identity still, and may be somebody's shell.
    """
    alive = []
    for each in family.members:
        seen = tree.get(each.id)
        if seen is None or not seen.alive:
            continue
        above = each.role in ("wrapper", "launcher")
        if not (above and seen.argv is not None and seen.argv != each.argv):
            alive.append(each)
    return tuple(alive)
