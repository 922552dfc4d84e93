"""Reading the files of a place; every function is one frame, or says why not."""

from __future__ import annotations

from msgspec import Struct

from fleetstop.actions.looks import NOT_ENTERED
from fleetstop.core.commands import Command
from fleetstop.core.gpu import Unseen
from fleetstop.core.joblog import LogTail, NewPart, new_part, parse_log
from fleetstop.core.procfs import (
    text,
)
from fleetstop.core.saves.formats import head_bytes, longer_head
from fleetstop.core.saves.listing import (
    NEWEST,
    Listing,
    PlainFile,
    TooMany,
    parse_listing,
    parse_newest,
)
from fleetstop.errors import CouldNotLook
from fleetstop.ports import Place, Shell

NO_SUCH = 40
"""Status of `list`, `log`, `pidfile` for a path that is not there."""
NOT_TOUCHABLE = 44
"""Status of `touch` for a path whose directory cannot be written to."""


async def heads(shell: Shell, patterns: tuple[str, ...]) -> dict[str, str]:
    """The first 40 KiB of the plain files that these paths and globs name, by path. What cannot
    be read, or not within 2 s, is not there: it decides nothing."""
    if not patterns:
        return {}
    try:
        answer = await shell.run(Command("source", patterns, deadline_s=15.0))
    except CouldNotLook:
        return {}
    if answer.status != 0:
        return {}
    records = [each.partition(b"\n") for each in answer.data.split(b"\0")[1:]]
    return {text(path): text(body) for path, _, body in records}


async def head_of(shell: Shell, path: str) -> bytes | None:
    """The same of one file, byte for byte: it may hold NUL, as /proc/PID/environ does."""
    try:
        answer = await shell.run(Command("source", (path,), deadline_s=15.0))
    except CouldNotLook:
        return None
    _, found, body = answer.data.partition(b"\0" + path.encode() + b"\n")
    return body if answer.status == 0 and found else None


class Listed(Struct, frozen=True):
    """The checkpoint directory; `now` is the remote clock, `real` the path without links."""

    listing: Listing | Unseen
    now: float | None = None
    real: str | None = None
    missing: bool = False


async def listing(shell: Shell, directory: str, *, many: bool = False) -> Listed:
    """A directory that is not there yet is empty. A file that goes away under find's feet makes
    its answer useless; so it is asked a second time. `many`: only the newest files, as a
    directory of tens of thousands is listed (known from an earlier listing, see `Listing.floor`).
    """
    found = await _listing(shell, directory, many=many)
    if isinstance(found.listing, Listing):
        return found
    return await _listing(shell, directory, many=many or isinstance(found.listing, TooMany))


async def _listing(shell: Shell, directory: str, *, many: bool) -> Listed:
    # one more than is kept: then it shows that there are more
    words = (directory, str(NEWEST + 1)) if many else (directory,)
    try:
        answer = await shell.run(Command("list", words, deadline_s=20.0))
    except CouldNotLook as exc:
        return Listed(Unseen(str(exc)))
    stamp, _, body = answer.data.partition(b"\n")
    now = _seconds(stamp)
    if answer.status == NO_SUCH:
        return Listed(Listing(root=directory, entries=()), now, missing=True)
    if answer.status == 41 and body.strip() == b"file":
        return Listed(PlainFile(f"{directory} is a file there, and no directory"), now)
    if answer.status == 41:
        return Listed(Unseen(f"{directory} is not a directory that can be entered"), now)
    real, _, rows = body.partition(b"\n\0")
    parse = parse_newest if many else parse_listing
    return Listed(parse(rows, answer.status), now, text(real))


async def closed(shell: Shell, directory: str, listed: Listed) -> bool:
    """Whether nothing is in the directory and the shell's user can put nothing there. Below one
    that holds something there may be directories that others can write to."""
    if not isinstance(listed.listing, Listing) or listed.missing or listed.listing.entries:
        return False
    try:
        # the name of a file that nobody makes: it is the directory that is asked about
        answer = await shell.run(Command("touchable", (f"{directory.rstrip('/')}/.fleetstop",)))
    except CouldNotLook:
        return False
    return answer.status == NOT_TOUCHABLE


def _seconds(text: bytes) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


async def log(shell: Shell, path: str) -> LogTail | None:
    """The end of the log; None where it cannot be read (that decides nothing)."""
    try:
        answer = await shell.run(Command("log", (path,)))
    except CouldNotLook:
        return None
    return parse_log(answer.data) if answer.status == 0 else None


async def log_since(
    place: Place, path: str, since: int, until: int | None = None
) -> NewPart | None:
    """What it has got since it was so long, and until it was so long: empty where it is not there
    (yet), None where that could not be read."""
    try:
        answer = await (await place.files()).run(Command("log", (path,)))
    except NOT_ENTERED:
        return None
    if answer.status == NO_SUCH:
        return NewPart(lines=(), upto=0)
    return new_part(answer.data, since, until) if answer.status == 0 else None


async def ends(shell: Shell, path: str, size: int) -> tuple[bytes, bytes] | None:
    """Head (as much as tells) and the last 1024 bytes; None where it cannot be read."""
    head = head_bytes(path, size)
    read = await _ends(shell, path, size, head)
    more = longer_head(path, read[0]) if read is not None else None
    return read if more is None else await _ends(shell, path, size, more)


async def _ends(shell: Shell, path: str, size: int, head: int) -> tuple[bytes, bytes] | None:
    try:
        answer = await shell.run(Command("ends", (path, str(head))))
    except CouldNotLook:
        return None
    if answer.status != 0:
        return None
    cut = min(head, size)
    return answer.data[:cut], answer.data[cut:]
