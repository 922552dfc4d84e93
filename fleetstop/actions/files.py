"""The job's own files, seen at every look: its log, its checkpoints, and who writes them."""

from __future__ import annotations

from msgspec import Struct

from fleetstop.actions import looks
from fleetstop.actions.locate import Scene
from fleetstop.actions.telling import Scope
from fleetstop.core import checkpoint as ckpt
from fleetstop.core.checkpoint import Listing
from fleetstop.core.family import Family
from fleetstop.core.gpu import Unseen
from fleetstop.core.joblog import LogTail
from fleetstop.core.process import ProcessTree

# an older temporary file is a leftover, not a save
FRESH_S = 60.0


def is_fresh(mtime: float, now: float | None) -> bool:
    """Written within the last minute by the remote clock; a time to come is a leftover's too."""
    return now is not None and -5.0 < now - mtime < FRESH_S


class FilesSeen(Struct, frozen=True):
    """See verdict.Look: what moved, what is temporary, and why it could not be listed."""

    changed: tuple[str, ...] | None = None
    temporary: tuple[str, ...] = ()
    unseen: str | None = None


class JobFiles:
    """`latest` is what the last look listed, Unseen where it could not; `real` the directory
    with its links resolved; `written` every path a member was seen to have open for writing."""

    def __init__(self, scope: Scope, scene: Scene) -> None:
        self._scope = scope
        self._listing = scene.listing
        self.latest: Listing | Unseen | None = scene.listing
        self.log: LogTail | None = scene.log
        self.real = scene.real
        self.written: set[str] = set()

    async def look(self) -> FilesSeen:
        """What moved below `checkpoints:` since the last listing; the log is read too."""
        job = self._scope.target.job
        if job is None or (job.checkpoints is None and job.log is None):
            return FilesSeen()
        try:
            shell = await self._scope.place.inside()
        except looks.NOT_ENTERED as exc:
            # who writes a checkpoint is a member with the file open, and that is seen from outside:
            # one that cannot be entered is no reason to hold a signal, only to prove nothing
            self.latest = Unseen(str(exc))
            return FilesSeen()
        if job.log is not None:
            self.log = await looks.log(shell, job.log) or self.log
        if job.checkpoints is None:
            return FilesSeen()
        listed = await looks.listing(shell, job.checkpoints)
        self.latest, self.real = listed.listing, listed.real or self.real
        if isinstance(listed.listing, Unseen):
            return FilesSeen(unseen=f"the checkpoints: {listed.listing.reason}")
        old, self._listing = self._listing, listed.listing
        left = [e for e in ckpt.temp_without_final(listed.listing) if is_fresh(e.mtime, listed.now)]
        return FilesSeen(
            changed=ckpt.growing(old, listed.listing) if isinstance(old, Listing) else (),
            temporary=tuple(each.path for each in left),
        )

    def remember(self, family: Family, tree: ProcessTree) -> None:
        for kin in family.members:
            process = tree.get(kin.id)
            files = process.detail.files if process is not None and process.detail else None
            written = (e for e in files or () if e.writable_file or e.appended_file)
            self.written |= {each.target for each in written}
