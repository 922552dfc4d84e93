"""Find a job where it lives: one look at everything, its family, its log, its checkpoints."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from fleetstop.actions import looks, overhead, reading
from fleetstop.actions.kept import FRESH_S, Kept, as_listed, countable, still_coming
from fleetstop.actions.telling import Scope
from fleetstop.core.above.supervisors import Notes
from fleetstop.core.gpu import GpuView, Unseen
from fleetstop.core.inventory import Job, Match
from fleetstop.core.joblog import LogTail
from fleetstop.core.kin.family import Family, Found, find
from fleetstop.core.kin.lineage import through_panes
from fleetstop.core.kin.matching import matches, needs_detail
from fleetstop.core.process import ProcessId, ProcessTree
from fleetstop.core.saves import checkpoint as ckpt
from fleetstop.core.saves.checkpoint import Listing
from fleetstop.core.saves.risk import AtRisk
from fleetstop.core.verdict import Look
from fleetstop.errors import RemoteFailed


class Scene(Struct, frozen=True):
    """What a place held at the first look. `running` False: the container is stopped.

    `listing` and `log` None: not declared; `gpus` Unseen: could not be asked.
    `risk` and `coming`: see verdict.Look's `risk` and `temporary`; `kept` remembers what was read.
    `not_entered`: why the container's files could not be looked at at all.
    `remote_now` is the container's clock (seconds since the epoch) at the listing.
    """

    running: bool
    tree: ProcessTree
    found: Found
    gpus: GpuView | Unseen
    at: float
    listing: Listing | Unseen | None = None
    log: LogTail | None = None
    remote_now: float | None = None
    real: str | None = None
    checkpoints_missing: bool = False
    checkpoints_closed: bool = False
    newest: ckpt.Checkpoint | None = None
    newest_complete: bool | None = None
    newest_known: bool = False
    risk: AtRisk | None = None
    coming: tuple[str, ...] = ()
    kept: Kept | None = None
    not_entered: str | None = None
    notes: Notes = Notes()

    def first_look(self) -> Look:
        """As the looks of a climb judge it."""
        unseen = self.listing.reason if isinstance(self.listing, Unseen) else None
        return Look(
            at=self.at,
            tree=self.tree,
            real=self.real,
            temporary=self.coming,
            files_unseen=f"the checkpoints: {unseen}" if unseen else None,
            risk=self.risk,
            log=self.log,
        )


NOT_ASKED = Unseen("nvidia-smi was not asked")
_BOOTS_S = 1.0
_EMPTY = ProcessTree(processes={}, uptime=0.0)


async def locate(scope: Scope, *, gpus: bool = True) -> Scene:
    """Raises CouldNotLook where the truth cannot be seen (missing or frozen container)."""
    target, place = scope.target, scope.place
    assert target.job is not None
    tree = await all_of_it(scope)
    if target.vmid is not None and not tree.processes:
        return _stopped(scope)
    if await place.is_frozen():
        raise place.frozen_error()
    tree, named = await _closer(scope, tree, target.job.match)
    at = scope.clock.now()
    if not any(matches(target.job.match, each, listed=named) for each in tree.processes.values()):
        # who works there under another name is worth telling
        tree = await writers(scope, tree)
        read = await overhead.texts(scope, tree.processes.values())
        found = find(tree, target.job.match, target.job, listed=named, texts=read)
        return Scene(running=True, tree=tree, found=found, gpus=NOT_ASKED, at=at)
    # nvidia-smi and pct both take their time, on different shells
    view, files = await looks.together(
        looks.first_gpus(place, scope.clock) if gpus else _not_asked(), _files(scope, tree)
    )
    found = find(tree, target.job.match, target.job, listed=named, gpu_pids=_pids(view))
    notes = await overhead.notes(scope, tree, found.families)
    return Scene(running=True, tree=tree, found=found, gpus=view, at=at, notes=notes, **files)


async def _not_asked() -> Unseen:
    return NOT_ASKED


async def all_of_it(scope: Scope) -> ProcessTree:
    """All processes of the place; none only where the container is stopped. One that was started
    between the look and the question is looked at again."""
    place, vmid = scope.place, scope.target.vmid
    tree = await looks.look(place, vmid)
    if vmid is None or tree.processes or await place.pct_status() == "stopped":
        return tree
    await scope.clock.sleep(_BOOTS_S)
    tree = await looks.look(place, vmid)
    if tree.processes or (status := await place.pct_status()) == "stopped":
        return tree
    raise RemoteFailed(
        f"container {vmid} on {scope.target.host.name} is {status}, "
        "but none of its processes can be seen"
    )


def _stopped(scope: Scope) -> Scene:
    return Scene(
        running=False,
        tree=_EMPTY,
        found=Found(families=()),
        gpus=NOT_ASKED,
        at=scope.clock.now(),
    )


async def identify(
    scope: Scope, tree: ProcessTree, job: Job, view: GpuView | Unseen, notes: Notes
) -> tuple[ProcessTree, Found]:
    """The job's families in this look, with argv of all and details of those around them."""
    tree, named = await _closer(scope, tree, job.match)
    pids = _pids(view)
    return tree, find(tree, job.match, job, listed=named, gpu_pids=pids, texts=notes.texts)


async def _closer(
    scope: Scope, tree: ProcessTree, match: Match
) -> tuple[ProcessTree, frozenset[int]]:
    place = scope.place
    named = await looks.listed(place, match)
    tree = await looks.add_argv(place, _without_us(scope, tree))
    if match.tmux is not None:
        named = through_panes(tree, named)
    return await looks.add_detail(place, tree, needs_detail(match, tree, named)), named


def _without_us(scope: Scope, tree: ProcessTree) -> ProcessTree:
    """Takes our own shells and what carries them out of the look."""
    ours = {scope.place.own_pid} | {p.id.pid for p in tree.above(scope.place.own_pid)}
    if scope.target.vmid is not None:
        # the start is the same number in the container and on the host (proc(5), no time namespace)
        inside = scope.place.ours_inside
        ours |= {
            each.id.pid
            for each in tree.processes.values()
            if ProcessId(each.pid, each.id.start) in inside
        }
    return tree.without(ours)


def _pids(view: GpuView | Unseen) -> frozenset[int] | None:
    if isinstance(view, Unseen):
        return None
    return frozenset(each.pid for each in view.holders if each.pid is not None)


async def _files(scope: Scope, tree: ProcessTree) -> dict[str, Any]:
    """Log and checkpoints, where the job declares them: one shell inside the container."""
    job = scope.target.job
    if job is None or (job.log is None and job.checkpoints is None):
        return {}
    try:
        shell = await scope.place.files()
    except looks.NOT_ENTERED as exc:
        unseen = {"listing": Unseen(str(exc))} if job.checkpoints is not None else {}
        return {"not_entered": str(exc), **unseen}
    seen: dict[str, Any] = {}
    if job.log is not None:
        seen["log"] = await reading.log(shell, job.log)
    if job.checkpoints is not None:
        listed = await reading.listing(shell, job.checkpoints)
        seen |= {"listing": listed.listing, "remote_now": listed.now, "real": listed.real}
        seen["checkpoints_missing"] = listed.missing
        if scope.target.vmid is not None and scope.place.files_from_host is None:
            seen["checkpoints_closed"] = await reading.closed(shell, job.checkpoints, listed)
        seen |= await _kept(scope, tree, listed)
    return seen


async def _kept(scope: Scope, tree: ProcessTree, listed: reading.Listed) -> dict[str, Any]:
    """The newest checkpoint, and the newest complete one, which need not be the same."""
    if not isinstance(listed.listing, Listing):
        return {}
    shell, kept, at = await scope.place.files(), Kept(), scope.clock.now()
    found = ckpt.checkpoints(listed.listing)
    writing = as_listed(_open_for_write(tree), listed.listing, listed.real)
    coming = still_coming(listed.listing, found, listed.now)
    counted = countable(found, coming)
    risk = await kept.at_risk(shell, counted, listed.now, writing, at, lambda _: None)
    if not found:
        return {"risk": risk, "kept": kept, "coming": coming}
    newest = found[-1]
    old = listed.now is not None and listed.now - newest.mtime > FRESH_S
    told = await kept.read(shell, newest, writing, stable=old)
    return {
        "newest": newest,
        "newest_complete": told.whole,
        "newest_known": told.known,
        "risk": risk,
        "kept": kept,
        "coming": coming,
    }


def _open_for_write(tree: ProcessTree) -> frozenset[str]:
    return frozenset(
        file.target
        for each in tree.processes.values()
        for file in (each.detail.files if each.detail else None) or ()
        if file.writable_file or file.appended_file
    )


async def completeness(
    scope: Scope, one: ckpt.Checkpoint, writing: frozenset[str], *, stable: bool
) -> bool | None:
    """Whether a checkpoint is whole; reads heads and tails of known formats."""
    shell = await scope.place.files()
    return (await Kept().read(shell, one, writing, stable=stable)).whole


async def writers(scope: Scope, tree: ProcessTree) -> ProcessTree:
    """The look with the open files of everybody in the place."""
    return await looks.add_detail(scope.place, tree, set(tree.processes))


def families_with(found: Found, match: Match) -> tuple[Family, ...]:
    """What to act on: all trees where the inventory says `all: true`, joined as one family."""
    if match.all and len(found.families) > 1:
        all_ = found.families
        members = tuple(kin for each in all_ for kin in each.members)
        return (
            Family(
                members=members,
                sessions=frozenset(s for each in all_ for s in each.sessions),
                reapers=frozenset(r for each in all_ for r in each.reapers),
                marks=frozenset(m for each in all_ for m in each.marks),
                ranks=all_[0].ranks,
            ),
        )
    return found.families
