"""The job's own files, seen at every look: its log, its checkpoints, and who writes them."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from fleetstop.actions import looks, reading
from fleetstop.actions.kept import Kept, Steady, as_listed, countable, still_coming
from fleetstop.actions.locate import Scene
from fleetstop.actions.telling import Scope
from fleetstop.core.gpu import Unseen
from fleetstop.core.inventory import Job
from fleetstop.core.joblog import LogTail
from fleetstop.core.kin.family import Family
from fleetstop.core.process import ProcessTree
from fleetstop.core.saves import checkpoint as ckpt
from fleetstop.core.saves.checkpoint import Checkpoint, Listing
from fleetstop.core.saves.listing import spelled
from fleetstop.core.saves.neighbours import under, with_business
from fleetstop.core.saves.risk import AtRisk
from fleetstop.errors import RemoteFailed
from fleetstop.ports import Shell


class FilesSeen(Struct, frozen=True):
    """See verdict.Look: what moved, what is not done yet, and why it could not be listed."""

    changed: tuple[str, ...] | None = None
    temporary: tuple[str, ...] = ()
    unseen: str | None = None
    risk: AtRisk | None = None


class JobFiles:
    """`latest` is what the last look listed, Unseen where it could not; `real` the directory
    with its links resolved; `written` every path a member was seen to have open for writing,
    `open_last` those of the last look at which a member lived."""

    def __init__(self, scope: Scope, scene: Scene) -> None:
        self._scope = scope
        self._listing = scene.listing
        self._tree = scene.tree
        self._members = frozenset(k.id for each in scene.found.families for k in each.members)
        self._inodes: set[int] = set()
        self._found: tuple[Checkpoint, ...] = ()
        self._alone: dict[tuple[str, float], bool | None] = {}
        first = scene.listing.entries if isinstance(scene.listing, Listing) else ()
        self._first = frozenset(each.path for each in first)
        self.kept = scene.kept or Kept()
        self._steady = Steady(scene.listing if isinstance(scene.listing, Listing) else None)
        self.latest: Listing | Unseen | None = scene.listing
        self.log: LogTail | None = scene.log
        self.real = scene.real
        self.written: set[str] = set()
        self.open_last: frozenset[str] = frozenset()
        self.risk: AtRisk | None = scene.risk
        # by the first look it was told with what else was missing
        self._told = scope.place.files_from_host is not None
        for each in scene.found.families:
            self.remember(each, scene.tree)

    async def look(self) -> FilesSeen:
        """What moved below `checkpoints:` since the last listing; the log is read too."""
        job = self._scope.target.job
        if job is None or (job.checkpoints is None and job.log is None):
            return FilesSeen()
        try:
            shell = await self._scope.place.files()
        except looks.NOT_ENTERED as exc:
            # between two files of one checkpoint nothing is open: it may be saving
            return self._unseen(job, exc.message)
        if job.log is not None:
            self.log = await reading.log(shell, job.log) or self.log
        if job.checkpoints is None:
            return FilesSeen()
        many = isinstance(self._listing, Listing) and self._listing.floor is not None
        listed = await reading.listing(shell, job.checkpoints, many=many)
        self.latest, self.real = listed.listing, listed.real or self.real
        if isinstance(listed.listing, Unseen):
            return self._unseen(job, listed.listing.reason)
        changed = self._moved(listed.listing)
        at = self._scope.clock.now()
        steady = self._steady.at(listed.listing, listed.now, at)
        young = self._steady.young(listed.listing, at)
        coming = still_coming(listed.listing, self._found, listed.now, steady, young)
        found = countable(self._found, coming)
        self.risk = await self._at_risk(shell, listed.listing, found, listed.now)
        return FilesSeen(changed=changed, temporary=coming, risk=self.risk)

    def news(self) -> str | None:
        """That the files are read from the host by now, said once."""
        said = None if self._told else looks.from_host(self._scope.place)
        self._told |= said is not None
        return said

    def _unseen(self, job: Job, why: str) -> FilesSeen:
        """A log alone tells of no save: then open files, seen from the host, tell it all."""
        self.risk = None
        if job.checkpoints is None:
            return FilesSeen()
        self.latest = Unseen(why)
        return FilesSeen(unseen=f"the checkpoints: {why}")

    def _moved(self, now: Listing) -> tuple[str, ...]:
        """What changed since the listing before; an unchanged one is not judged again."""
        old, self._listing = self._listing, now
        if old == now and self._found:
            return ()
        self._found = ckpt.checkpoints(now)
        return ckpt.growing(old, now) if isinstance(old, Listing) else ()

    async def _at_risk(
        self, shell: Shell, listing: Listing, found: tuple[Checkpoint, ...], now: float | None
    ) -> AtRisk:
        ours = as_listed(self.written, listing, self.real)
        self._inodes |= {each.inode for each in listing.entries if each.path in ours}
        writing = as_listed(self.open_last, listing, self.real)
        at = self._scope.clock.now()
        risk = await self.kept.at_risk(shell, found, now, writing, at, self._mine)
        if risk.ours is None and risk.name is not None:
            one = next(each for each in found if spelled(each.name) == risk.name)
            if not self.named_by_another(one) and (one.path, one.mtime) not in self._alone:
                await self._ask_once(one)
                risk = msgspec.structs.replace(risk, ours=self._mine(one))
        return risk

    async def _ask_once(self, one: Checkpoint) -> None:
        """Whether others have business there; where a neighbour's files hang it stays unknown."""
        try:
            await self.nobody_else(one, fresh=one.path not in self._first)
        except RemoteFailed:
            self._alone[one.path, one.mtime] = None

    def _mine(self, one: Checkpoint) -> bool | None:
        """A member had it open. Else not known: nobody looks at every outsider's files here."""
        if self.had_open(one):
            return True
        if self.named_by_another(one):
            return None
        return self._alone.get((one.path, one.mtime))

    def had_open(self, one: Checkpoint) -> bool:
        """Whether a member was seen to write it, by its name, its temporary one, or its inode."""
        if any(each.inode in self._inodes for each in one.files):
            return True
        place = self._real_place(one)
        beside = (place + "/", place + ".")
        return any(path == place or path.startswith(beside) for path in self.written)

    def _real_place(self, one: Checkpoint) -> str:
        declared = one.root.rstrip("/")
        return (self.real or declared).rstrip("/") + spelled(one.path).removeprefix(declared)

    def named_by_another(self, one: Checkpoint) -> bool:
        """Another job of the same place names this directory, or the one that it lies in."""
        job, foreign = self._scope.target.job, self._scope.target.foreign_checkpoints
        assert job is not None
        assert job.checkpoints is not None
        places = (job.checkpoints, one.path, self.real or job.checkpoints, self._real_place(one))
        return any(under(each, foreign) for each in places)

    async def nobody_else(self, one: Checkpoint, *, fresh: bool = True) -> bool:
        """Whether no outsider has business in the directory; remembered for this checkpoint.

        `fresh` False: of the processes that were there at the first look.
        """
        job = self._scope.target.job
        assert job is not None
        assert job.checkpoints is not None
        directories = (job.checkpoints, self.real or job.checkpoints)
        found = None
        for again in (fresh, True):
            tree = await self._outsiders(fresh=again)
            found = with_business(tree, self._members, directories)
            # somebody may just have ended between two frames; then look once more
            if found is None or (found.detail is not None and found.detail.files is not None):
                break
        self._alone[one.path, one.mtime] = True if found is None else None
        return found is None

    async def _outsiders(self, *, fresh: bool) -> ProcessTree:
        """Everybody with their arguments, and the open files of those who are no members."""
        tree = self._tree
        if fresh:
            tree = await looks.look(self._scope.place, self._scope.target.vmid)
            tree = await looks.add_argv(self._scope.place, tree)
        here = {pid for pid, each in tree.processes.items() if each.id not in self._members}
        return await looks.add_detail(self._scope.place, tree, here)

    def remember(self, family: Family, tree: ProcessTree) -> None:
        self._members |= family.ids
        opened: set[str] = set()
        alive = False
        for kin in family.members:
            process = tree.get(kin.id)
            alive |= process is not None and not process.zombie
            files = process.detail.files if process is not None and process.detail else None
            written = (e for e in files or () if e.writable_file or e.appended_file)
            opened |= {each.target for each in written}
        self.written |= opened
        if alive:
            self.open_last = frozenset(opened)
