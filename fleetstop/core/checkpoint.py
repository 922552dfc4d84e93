"""Which files are checkpoints, which of them are new, and whether they are whole; reads no file.

A listing is what GNU `find DIR/ -maxdepth 3 \\( -type f -o -type d \\) -printf
'%y\\0%i\\0%s\\0%T@\\0%p\\0'` printed: kind, inode, bytes, seconds since 1970 by the clock there,
path (find(1)). The clock orders checkpoints among themselves and proves nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, Literal

import msgspec
from msgspec import Struct

from fleetstop.core.gpu import Unseen

MOST_ENTRIES = 20_000
# A zip's end record is its last 22 bytes and a comment; torch and numpy write no comment.
TAIL_BYTES = 1024
# Enough to tell a zip, and for the JSON header of most safetensors files.
HEAD_BYTES = 65_536

_FIELDS = 5
_KINDS: dict[str, Literal["f", "d"]] = {"f": "f", "d": "d"}
_WHOLE = re.compile(r"[0-9]{1,20}")
_TIME = re.compile(r"-?[0-9]{1,12}(?:\.[0-9]{1,10})?")
_SHARD = re.compile(r"(.*-)([0-9]{1,6})(-of-)([0-9]{1,6})(\..*)")

_TEMP = (
    *("*.tmp", ".tmp*", "*.tmp.*", "*.tmp-*", "tmp-*", ".*"),
    *("*.partial", "*.part", "*.incomplete", "*.writing"),
    "*-is-incomplete*",  # transformers' mark in a directory that is being written
)
_LOG_LIKE = (
    *("*.log", "*.txt", "*.json", "*.jsonl", "*.yaml", "*.yml", "*.csv", "*.md", "*.out", "*.err"),
    *("events.out.tfevents*", "*.wandb", "*.lock", "*.pid", "*.py", "*.pyc"),
)
# Begin with a dot and are not temporary: DCP's last file, and what no trainer writes.
_DCP_INDEX = ".metadata"
_NO_CHECKPOINT = (".git*", ".nfs*", ".ds_store", ".cache", ".ipynb_checkpoints")
# Text files that name the newest checkpoint (DeepSpeed, TensorFlow).
_POINTERS = {"latest", "latest_universal", "checkpoint"}
_STRIPS = (
    *(r"\.tmp[.-][^.]*$", r"\.tmp\b", r"\.(?:tmp|partial|part|incomplete|writing)$"),
    *(r"^\.?tmp[-_.]", r"^\.(?!tmp)"),
)

_ZIP_NAMES = (".pt", ".pth", ".bin", ".ckpt", ".zip", ".npz")
_ALWAYS_ZIP = (".zip", ".npz")
_ZIP_HEAD, _ZIP_END = b"PK\x03\x04", b"PK\x05\x06"
_ZIP_END_BYTES = 22
_ZIP64 = 0xFFFFFFFF


class Entry(Struct, frozen=True):
    """`size` in bytes, `mtime` in seconds by the clock there, `path` as find printed it."""

    path: str
    inode: int
    size: int
    mtime: float
    kind: Literal["f", "d"]


class Listing(Struct, frozen=True):
    """Everything below `root`, without the root itself."""

    root: str
    entries: tuple[Entry, ...]

    def name(self, entry: Entry) -> str:
        return entry.path[len(self.root) :]


class Checkpoint(Struct, frozen=True):
    """One file below the directory, or all of one subdirectory's; `name` relative to it.

    `size` is the sum, `mtime` the latest; `files` include temporary ones, but no logs.
    """

    name: str
    path: str
    size: int
    mtime: float
    files: tuple[Entry, ...]


def parse_listing(data: bytes, status: int) -> Listing | Unseen:
    """`status` is find's: 1 as well when a file went away under it; then look again."""
    if status:
        return Unseen(f"the checkpoints could not be listed (find ended with {status}); look again")
    if data.count(b"\0") > _FIELDS * (MOST_ENTRIES + 1):
        return Unseen(f"more than {MOST_ENTRIES} files; let checkpoints: name a smaller directory")
    fields = data.split(b"\0")
    if len(fields) < _FIELDS or len(fields) % _FIELDS != 1 or fields.pop():
        return Unseen("the list of checkpoints was cut short; look again")
    words = [each.decode("utf-8", "backslashreplace") for each in fields]
    entries = [_entry(*words[at : at + _FIELDS]) for at in range(0, len(words), _FIELDS)]
    top, root = entries[0], "" if entries[0] is None else entries[0].path.rstrip("/") + "/"
    if top is None or top.kind != "d" or not top.path:
        return Unseen("the list of checkpoints does not begin with a directory; look again")
    below = [each for each in entries[1:] if each is not None and each.path.startswith(root)]
    if len(below) < len(entries) - 1 or len({each.path for each in below}) < len(below):
        return Unseen("the list of checkpoints holds what find does not print; look again")
    return Listing(root, tuple(below))


def _entry(kind: str, inode: str, size: str, mtime: str, path: str) -> Entry | None:
    if not (_WHOLE.fullmatch(inode) and _WHOLE.fullmatch(size) and _TIME.fullmatch(mtime)):
        return None
    known = _KINDS.get(kind)
    return None if known is None else Entry(path, int(inode), int(size), float(mtime), known)


def is_temp(name: str) -> bool:
    """A name, or any part of a path, under which a save is still being written."""
    parts = [each for each in name.lower().split("/") if each and each != _DCP_INDEX]
    return any(fnmatchcase(part, pattern) for part in parts for pattern in _TEMP)


def is_log_like(name: str) -> bool:
    last = name.lower().rsplit("/", 1)[-1]
    return any(fnmatchcase(last, each) for each in _LOG_LIKE) and "-is-incomplete" not in last


def _no_checkpoint(name: str) -> bool:
    parts = name.lower().split("/")
    return any(fnmatchcase(part, each) for part in parts for each in _NO_CHECKPOINT)


def _saves(listing: Listing) -> Iterator[Entry]:
    """Files that are, or are becoming, part of a checkpoint."""
    for each in listing.entries:
        name = listing.name(each)
        pointer = name.rsplit("/", 1)[-1] in _POINTERS and each.size < 4096
        if each.kind == "f" and not (pointer or is_log_like(name) or _no_checkpoint(name)):
            yield each


def checkpoints(listing: Listing) -> tuple[Checkpoint, ...]:
    """All, oldest first; nothing that is temporary by its own name or has only such files."""
    groups: dict[str, list[Entry]] = {}
    for each in _saves(listing):
        groups.setdefault(listing.name(each).split("/", 1)[0], []).append(each)
    found = [
        Checkpoint(
            *(name, listing.root + name, sum(each.size for each in files)),
            *(max(each.mtime for each in files), tuple(files)),
        )
        for name, files in groups.items()
        if not all(is_temp(listing.name(each)) for each in files)
    ]
    return tuple(sorted(found, key=lambda each: (each.mtime, each.name)))


def newest(listing: Listing) -> Checkpoint | None:
    return next(reversed(checkpoints(listing)), None)


def new_since(before: Listing, now: Listing) -> tuple[Entry, ...]:
    """Final files that the first look did not have, by path, inode, size and mtime.

    Nor is a rotation new (`last.pt` moved to `last.old.pt`): the same inode, size and mtime
    under another final name. A temporary file that got its final name is.
    """
    old = {(e.inode, e.size, e.mtime) for e in _saves(before) if not is_temp(before.name(e))}
    return tuple(
        each
        for each in _saves(now)
        if (each.inode, each.size, each.mtime) not in old and not is_temp(now.name(each))
    )


def new_checkpoints(before: Listing, now: Listing) -> tuple[Checkpoint, ...]:
    """Those with at least one new file, oldest first."""
    fresh = set(new_since(before, now))
    return tuple(each for each in checkpoints(now) if not fresh.isdisjoint(each.files))


def growing(a: Listing, b: Listing) -> tuple[str, ...]:
    """Paths that appeared, or whose size, mtime or inode moved, from `a` to `b`; no logs."""
    old = set(_saves(a))
    return tuple(each.path for each in _saves(b) if each not in old)


def temp_without_final(listing: Listing) -> tuple[Entry, ...]:
    """Temporary files and directories whose final name is absent or older; outermost only."""
    final = {listing.name(each): each.mtime for each in listing.entries}
    return tuple(
        each
        for each in listing.entries
        if _outermost_temp(listing.name(each), each.kind == "d")
        and all(final.get(name, -1e18) < each.mtime for name in _final_names(listing.name(each)))
    )


def _outermost_temp(name: str, directory: bool) -> bool:
    folder, _, last = name.rpartition("/")
    if is_log_like(name) or _no_checkpoint(name) or is_temp(folder) or not is_temp(last):
        return False
    # .hydra, .config: a hidden directory is a save only if its name says so in another way
    return not directory or not re.match(r"\.(?!tmp)", last) or is_temp(last.lstrip("."))


def _final_names(name: str) -> tuple[str, ...]:
    """`a.pt.tmp.17` -> `a.pt`; `a.tmp.pt` -> `a`, `a.pt`; `.tmpX1y2` (random) -> none."""
    folder, slash, last = name.rpartition("/")
    bare = {re.sub(each, "", last, flags=re.IGNORECASE) for each in _STRIPS} - {last, ""}
    return tuple(folder + slash + each for each in bare)


def needs_tail(checkpoint: Checkpoint) -> tuple[str, ...]:
    """Files whose last `TAIL_BYTES` (and head) tell whether they are whole."""
    return tuple(e.path for e in checkpoint.files if e.path.lower().endswith(_ZIP_NAMES))


def needs_head(checkpoint: Checkpoint) -> tuple[str, ...]:
    """Files whose first `HEAD_BYTES` help; without them less is certain."""
    names = (*_ZIP_NAMES, ".safetensors")
    return tuple(each.path for each in checkpoint.files if each.path.lower().endswith(names))


def complete(
    checkpoint: Checkpoint,
    tails: Mapping[str, bytes],
    heads: Mapping[str, bytes] | None,
    stable: bool,
    open_for_write: frozenset[str],
) -> bool | None:
    """Whole, not (yet) whole, or None: could not tell.

    `stable`: unchanged over two looks 1 s apart; it decides where the format is unknown.
    """
    own = checkpoint.path[: len(checkpoint.path) - len(checkpoint.name)]
    busy = any(e.path in open_for_write or is_temp(e.path[len(own) :]) for e in checkpoint.files)
    if busy or not checkpoint.size or not _all_parts(checkpoint):
        return False
    heads = heads or {}
    told = {_whole(e, tails.get(e.path), heads.get(e.path), stable) for e in checkpoint.files}
    return False if False in told else None if None in told else True


def _all_parts(checkpoint: Checkpoint) -> bool:
    """DCP writes `.metadata` last; `x-00001-of-00003.safetensors` wants its two siblings."""
    names = {each.path[len(checkpoint.path) :].lstrip("/"): each for each in checkpoint.files}
    index = any(n.rsplit("/", 1)[-1] == _DCP_INDEX and e.size for n, e in names.items())
    if not index and any(name.endswith(".distcp") for name in names):
        return False
    shards = [match.group(1, 4, 5) for match in map(_SHARD.fullmatch, names) if match]
    return all(shards.count(each) >= int(each[1]) for each in set(shards))


def _whole(entry: Entry, tail: bytes | None, head: bytes | None, stable: bool) -> bool | None:
    name = entry.path.lower()
    if name.endswith(".safetensors") and head and len(head) >= 8:
        told = _safetensors(entry.size, head)
        return stable if told is None else told
    if not name.endswith(_ZIP_NAMES) and not (head or b"").startswith(_ZIP_HEAD):
        return stable
    if head and not head.startswith(_ZIP_HEAD[: len(head)]) and not name.endswith(_ALWAYS_ZIP):
        return stable  # torch's format before 1.6 is a plain pickle
    if tail is None or not entry.size:
        return None if entry.size else False
    if _zip_end(entry.size, tail[-TAIL_BYTES:]):
        return True
    return False if head or name.endswith(_ALWAYS_ZIP) else None


def _zip_end(size: int, tail: bytes) -> bool:
    """PKZIP APPNOTE 4.3.16: end record with a comment that fits and a directory before it."""
    at = tail.rfind(_ZIP_END)
    while at >= 0:
        record = tail[at : at + _ZIP_END_BYTES]
        length, start = (int.from_bytes(record[i : i + 4], "little") for i in (12, 16))
        fits = len(tail) - at == _ZIP_END_BYTES + int.from_bytes(record[20:22], "little")
        if fits and (_ZIP64 in (length, start) or length + start <= size - len(tail) + at):
            return True
        at = tail.rfind(_ZIP_END, 0, at)
    return False


def _safetensors(size: int, head: bytes) -> bool | None:
    """u64 little-endian header length, JSON header, tensors; None: the head is too short."""
    start = 8 + int.from_bytes(head[:8], "little")
    if start > size:
        return False
    if len(head) < start:
        return None
    try:
        header = msgspec.json.decode(head[8:start], type=dict[str, dict[str, Any]])
        ends = [each["data_offsets"][1] for key, each in header.items() if key != "__metadata__"]
        return bool(start + max(ends, default=0) == size)
    except (msgspec.MsgspecError, LookupError, TypeError, ValueError):
        return False
