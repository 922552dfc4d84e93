"""Whether one file of a checkpoint is whole, by its first and last bytes; reads none itself.

Known, and so decided by the bytes: zip (torch.save since 1.6, npz), safetensors, JSON, the index of
sharded weights, the pickle that DCP writes last. Unknown: torch.save before 1.6 (pickles, then raw
storages, no end mark) and everything else; that counts as whole when it is closed and stands still.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import Struct

# A zip's end record is its last 22 bytes and a comment; torch and numpy write no comment.
TAIL_BYTES = 1024
# Enough to tell a zip, and for the JSON header of most safetensors files.
HEAD_BYTES = 65_536
# A longer safetensors header, an index or a DCP pickle is read whole up to here.
MOST_HEAD = 4 * 2**20
_TELLING = 64

ZIP_NAMES = (".pt", ".pth", ".bin", ".ckpt", ".zip", ".npz")
ALWAYS_ZIP = (".zip", ".npz")
_ZIP_HEAD, _ZIP_END = b"PK\x03\x04", b"PK\x05\x06"
_ZIP_END_BYTES = 22
_ZIP64 = 0xFFFFFFFF
_DISTCP = re.compile(rb"__[0-9]{1,6}_[0-9]{1,6}\.distcp")


class Read(Struct, frozen=True):
    """`whole` None: could not tell. `known`: the bytes told, not the file's standing still."""

    whole: bool | None
    known: bool


def is_index(name: str) -> bool:
    return name.lower().endswith(".index.json")


def head_bytes(path: str, size: int) -> int:
    """How much of the beginning is worth reading."""
    name = path.lower()
    if is_index(name) or name.endswith((".metadata", ".json")):
        return min(max(size, 1), MOST_HEAD)
    return HEAD_BYTES if name.endswith(".safetensors") else _TELLING


def longer_head(path: str, head: bytes) -> int | None:
    """How much a safetensors file's header takes, where the head read is too short for it."""
    if not path.lower().endswith(".safetensors") or len(head) < 8:
        return None
    start = 8 + int.from_bytes(head[:8], "little")
    return start if len(head) < start <= MOST_HEAD else None


def read_file(path: str, size: int, tail: bytes | None, head: bytes | None, stable: bool) -> Read:
    """`stable`: closed and unchanged over two looks 1 s apart; decides where bytes do not."""
    name = path.lower()
    if not size:
        return Read(False, True)
    if name.endswith(".safetensors") and head and len(head) >= 8:
        told = _safetensors(size, head)
        return _still(stable) if told is None else Read(told, True)
    if name.endswith(".json"):
        return read_json(size, tail, head, stable)
    if not name.endswith(ZIP_NAMES) and not (head or b"").startswith(_ZIP_HEAD):
        return _still(stable)
    if head and not head.startswith(_ZIP_HEAD[: len(head)]) and not name.endswith(ALWAYS_ZIP):
        return _still(stable)  # torch's format before 1.6 is a row of pickles
    if tail is None:
        return Read(None, False)
    if _zip_end(size, tail[-TAIL_BYTES:]):
        return Read(True, True)
    torn = bool(head) or name.endswith(ALWAYS_ZIP)
    return Read(False, True) if torn else Read(None, False)


def _still(stable: bool) -> Read:
    return Read(True if stable else None, False)


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


def read_json(size: int, tail: bytes | None, head: bytes | None, stable: bool) -> Read:
    """Read whole it parses or not; of a long one only the last character can be told."""
    if head is not None and len(head) >= size:
        try:
            msgspec.json.decode(head)
        except msgspec.MsgspecError:
            return Read(False, True)
        return Read(True, True)
    if tail is not None and not tail.rstrip().endswith((b"}", b"]")):
        return Read(False, True)
    return _still(stable)


class Index(Struct, frozen=True):
    """Which files an index names, and how many bytes of tensors they hold in all."""

    names: frozenset[str]
    total: int = 0


def read_index(head: bytes) -> Index | None:
    """transformers' `*.index.json`: {"metadata": {"total_size"}, "weight_map": {tensor: file}}."""
    try:
        made = msgspec.json.decode(head, type=dict[str, dict[str, Any]])
        total = made.get("metadata", {}).get("total_size", 0)
        return Index(
            frozenset(str(each) for each in made["weight_map"].values()),
            int(total) if isinstance(total, int | float) else 0,
        )
    except (msgspec.MsgspecError, LookupError, ValueError, OverflowError):
        return None


def dcp_names(size: int, head: bytes, tail: bytes | None) -> frozenset[str] | None:
    """The files that DCP's `.metadata` (a pickle, protocol 2 or later) names; None: it is cut."""
    end = tail if tail else head
    seen = len(head) >= size or tail
    if not head.startswith(b"\x80") or (seen and not end.endswith(b".")):
        return None
    return frozenset(each.decode() for each in _DISTCP.findall(head))
