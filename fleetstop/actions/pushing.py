"""Files by `pct push`, for a container that has no tar; whether they came whole is proved inside.

Knows no proof and no release.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fleetstop.actions.interpreter import script
from fleetstop.actions.tarring import Read, tar, unhurried
from fleetstop.core.commands import Carried
from fleetstop.core.inventory import Target
from fleetstop.core.releases.payload import File
from fleetstop.errors import CouldNotLook
from fleetstop.ports import Place, Progress

QUIET_S = 150.0
"""One file may wait three times ten seconds for the container's lock, and is copied then."""

PLACE = "/var/tmp/fleetstop-push"  # noqa: S108 what push.sh makes of it is checked there
_SWEEP_S = 20.0


async def push(
    place: Place,
    target: Target,
    run: str,
    into: str,
    files: Sequence[File],
    read: Read,
    progress: Progress,
) -> Carried:
    """Puts them below `into`, whose directories are there; on the host as root, or by sudo."""
    text = "".join(f"{file.mode:04o}\n{into}/{file.rel}\n" for file in files).encode()
    listing = File("list", "", len(text), 0o600)

    def bytes_of(file: File) -> Iterator[bytes]:
        return iter([text]) if file is listing else read(file)

    numbered = [("list", listing), *((str(at), file) for at, file in enumerate(files))]
    stream = unhurried(tar(numbered, bytes_of))
    return await place.carry(_words(target, run), stream, QUIET_S, progress, outside=True)


async def swept(place: Place, target: Target) -> bool:
    """Removes what a push that was ended has left on the host; whether that could be done."""
    try:
        done = await place.carry(_words(target, ""), b"", _SWEEP_S, outside=True)
    except CouldNotLook:
        return False
    return done.status == 0


def _words(target: Target, run: str) -> tuple[str, ...]:
    words = ("sh", "-c", script("push.sh"), "fleetstop-push", PLACE)
    return (*words, run, target.host.pct, str(target.vmid))
