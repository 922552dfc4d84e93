"""What has moved since when, over all looks so far: what two looks cannot tell. Judges nothing."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from fleetstop.core.kin.family import Family, Kin
from fleetstop.core.process import Process, ProcessId, ProcessTree
from fleetstop.core.saves.pace import Pace, paced

Measure: TypeAlias = Literal["CPU", "memory", "reads and writes", "context switches"]
MEASURES: tuple[Measure, ...] = ("CPU", "memory", "reads and writes", "context switches")
# What a rank in a barrier may still do is wake up to look whether the others have come.
WORK: tuple[Measure, ...] = ("CPU", "memory", "reads and writes")
# A watchdog thread costs a tick now and then; that is not the training going on.
_IDLE_SHARE = 0.02
_MEMORY_KIB = 256


class Trail(Struct, frozen=True):
    """One process. `since[m]`: the monotonic second from which measure m has stood at `base[m]`.

    A measure that is not in `base` could not be seen at the last look. `stuck_since`: from when
    on KILL has been pending on it and nothing acted, None where that is not so.
    """

    base: dict[Measure, int]
    since: dict[Measure, float]
    user: int = 0
    stuck_since: float | None = None


class Progress(Struct, frozen=True):
    """`at`: monotonic second of the last look. `ranks`: RANK and LOCAL_RANK as last seen, of the
    gone ones too; `ranks_here`: how many there should be. `files_since`: from when on no
    checkpoint has been seen to move. `paces`: how what they have open for writing grows, by
    process and target.
    """

    at: float
    trails: dict[ProcessId, Trail]
    ranks: dict[ProcessId, str]
    files_since: float
    ranks_here: int | None = None
    paces: dict[tuple[ProcessId, str], Pace] = {}


def follow(
    before: Progress | None,
    tree: ProcessTree,
    at: float,
    family: Family,
    *,
    files_moved: bool = False,
) -> Progress:
    """One more look, at `at` monotonic seconds."""
    trails: dict[ProcessId, Trail] = {}
    ranks = dict(before.ranks) if before else {}
    ranks_here = before.ranks_here if before else None
    paces: dict[tuple[ProcessId, str], Pace] = {}
    for kin in family.members:
        process = tree.get(kin.id)
        if process is None or process.zombie:
            continue
        old = before.trails.get(kin.id) if before else None
        trails[kin.id] = _trail(old, process, at, tree.hz)
        if process.detail is not None and process.detail.rank:
            ranks[kin.id] = process.detail.rank
            ranks_here = process.detail.ranks_here or ranks_here
        paces |= _paces(before.paces if before else {}, process, at)
    files_since = at if files_moved or before is None else before.files_since
    return Progress(at, trails, ranks, files_since, ranks_here, paces)


def _paces(
    old: dict[tuple[ProcessId, str], Pace], process: Process, at: float
) -> dict[tuple[ProcessId, str], Pace]:
    found = {}
    for file in (process.detail.files if process.detail else None) or ():
        if (file.writable_file or file.appended_file) and file.pos is not None:
            key = (process.id, file.target)
            found[key] = paced(old.get(key), at, file.pos)
    return found


def _trail(old: Trail | None, process: Process, at: float, hz: int) -> Trail:
    numbers, user = _numbers(process), process.ticks - process.system
    base, since = dict(numbers), dict.fromkeys(numbers, at)
    for measure in numbers:
        if old is None or measure not in old.base:
            continue
        change = abs(numbers[measure] - old.base[measure])
        if change <= _noise(measure, at - old.since[measure], hz):
            base[measure], since[measure] = old.base[measure], old.since[measure]
    stuck = None
    if _resists(process) and (old is None or old.user == user or process.state != "R"):
        stuck = at if old is None or old.stuck_since is None else old.stuck_since
    return Trail(base=base, since=since, user=user, stuck_since=stuck)


def _numbers(process: Process) -> dict[Measure, int]:
    numbers: dict[Measure, int] = {"CPU": process.ticks, "memory": process.rss_kib}
    if (detail := process.detail) is not None:
        if detail.read is not None and detail.written is not None:
            numbers["reads and writes"] = detail.read + detail.written
        if detail.switches is not None:
            numbers["context switches"] = detail.switches
    return numbers


def _noise(measure: Measure, span: float, hz: int) -> float:
    """How far a measure may have gone in `span` seconds and still count as standing."""
    match measure:
        case "CPU":
            return _IDLE_SHARE * span * hz
        case "memory":
            return _MEMORY_KIB
        case _:
            return 0


def _resists(process: Process) -> bool:
    """KILL waits for it, or it is on its way out: in D, in a kernel loop (R, system time only), or
    dead but for a thread in one of these."""
    killed = bool(process.pending >> 8 & 1) or process.exiting
    return killed and (process.state in "DR" or process.headless)


def quiet_s(
    progress: Progress,
    tree: ProcessTree,
    family: Family,
    kin: Kin,
    measures: tuple[Measure, ...] = MEASURES,
) -> float:
    """For how long a trainer and its own workers (not the ranks below it) have stood still."""
    if kin.id not in progress.trails:
        return 0.0
    trainers = {each.id.pid for each in family.trainers}
    sinces = []
    for each in family.members:
        trail = progress.trails.get(each.id)
        if trail is not None and _belongs(tree, each, kin, trainers):
            sinces += [trail.since[m] for m in measures if m in trail.since]
    return progress.at - max(sinces, default=progress.at)


def _belongs(tree: ProcessTree, member: Kin, kin: Kin, trainers: set[int]) -> bool:
    """It is `kin`, or a worker whose nearest trainer above is `kin`."""
    if member.id == kin.id:
        return True
    if member.role != "worker":
        return False
    above = (each.id.pid for each in tree.above(member.id.pid))
    return next((pid for pid in above if pid in trainers), None) == kin.id.pid


def seen(progress: Progress, kin: Kin) -> tuple[Measure, ...]:
    """The measures that could be looked at for it."""
    trail = progress.trails.get(kin.id)
    return tuple(each for each in MEASURES if trail is not None and each in trail.base)
