"""What `find` printed of a directory; knows names, sizes and times, not what they mean.

A listing is what GNU `find DIR/ -maxdepth 5 \\( -type f -o -type d \\) -printf
'%y\\0%i\\0%s\\0%T@\\0%p\\0'` printed: kind, inode, bytes, seconds since 1970 by the clock there,
path (find(1)). The clock orders files among themselves and proves nothing else.

Of a directory with more than `MOST_ENTRIES` only the newest `NEWEST` are asked for, printed as
`'%T@ %y %i %s %p\\0'`, newest first, behind one record of the directory itself.
"""

from __future__ import annotations

import re
from typing import Literal

from msgspec import Struct

from fleetstop.core.gpu import Unseen

MOST_ENTRIES = NEWEST = 4_000
DEPTH = 5
"""Levels below the directory that the listing reaches."""

_FIELDS = 5
_KINDS: dict[str, Literal["f", "d"]] = {"f": "f", "d": "d"}
_WHOLE = re.compile(r"[0-9]{1,20}")
_TIME = re.compile(r"-?[0-9]{1,12}(?:\.[0-9]{1,10})?")


class Entry(Struct, frozen=True):
    """`size` in bytes, `mtime` in seconds by the clock there, `path` as find printed it; bytes
    that are no UTF-8 are kept as lone surrogates, so that the path can be asked for again."""

    path: str
    inode: int
    size: int
    mtime: float
    kind: Literal["f", "d"]


class Listing(Struct, frozen=True):
    """Everything below `root`, without the root itself. `floor`: where only the newest were
    listed, the mtime of the oldest of them; what is older may be there unseen."""

    root: str
    entries: tuple[Entry, ...]
    floor: float | None = None

    def name(self, entry: Entry) -> str:
        return entry.path[len(self.root) :]


class TooMany(Unseen, frozen=True):
    """More entries than are read in one piece: ask for the newest."""


class PlainFile(Unseen, frozen=True):
    """The path names a file (or leads to one), where a directory is meant."""


def spelled(path: str) -> str:
    """A path as open files and screens spell it: what is no UTF-8 visible as \\xNN."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def parse_listing(data: bytes, status: int) -> Listing | Unseen:
    """`status` is find's: 1 as well when a file went away under it; then look again."""
    if status:
        return Unseen(f"the checkpoints could not be listed (find ended with {status}); look again")
    if data.count(b"\0") > _FIELDS * (MOST_ENTRIES + 1):
        return TooMany(f"more than {MOST_ENTRIES} files; let checkpoints: name a smaller directory")
    fields = data.split(b"\0")
    if len(fields) < _FIELDS or len(fields) % _FIELDS != 1 or fields.pop():
        return Unseen("the list of checkpoints was cut short; look again")
    words = [_text(each) for each in fields]
    entries = [_entry(*words[at : at + _FIELDS]) for at in range(0, len(words), _FIELDS)]
    return _listing(entries, floor=False)


def parse_newest(data: bytes, status: int) -> Listing | Unseen:
    """The newest entries of a big directory, `NEWEST` at the most."""
    if status:
        return Unseen(f"the checkpoints could not be listed (find ended with {status}); look again")
    records = data.split(b"\0")
    if records.pop() or len(records) < 2:
        return Unseen("the list of checkpoints was cut short; look again")
    entries = []
    for record in records:
        mtime, kind, inode, size, path = (*_text(record).split(" ", 4), "", "", "", "")[:5]
        entries.append(_entry(kind, inode, size, mtime, path))
    return _listing(entries, floor=len(entries) > NEWEST + 1)


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _listing(entries: list[Entry | None], *, floor: bool) -> Listing | Unseen:
    top, root = entries[0], "" if entries[0] is None else entries[0].path.rstrip("/") + "/"
    if top is None or top.kind != "d" or not top.path:
        return Unseen("the list of checkpoints does not begin with a directory; look again")
    below = [each for each in entries[1:] if each is not None and each.path.startswith(root)]
    if len(below) < len(entries) - 1 or len({each.path for each in below}) < len(below):
        return Unseen("the list of checkpoints holds what find does not print; look again")
    oldest = min((each.mtime for each in below), default=None) if floor else None
    return Listing(root, tuple(below), oldest)


def _entry(kind: str, inode: str, size: str, mtime: str, path: str) -> Entry | None:
    if not (_WHOLE.fullmatch(inode) and _WHOLE.fullmatch(size) and _TIME.fullmatch(mtime)):
        return None
    known = _KINDS.get(kind)
    return None if known is None else Entry(path, int(inode), int(size), float(mtime), known)
