"""Every remote command as data: a verb of the boot script, its words, a deadline. Runs none."""

from __future__ import annotations

from msgspec import Struct


class Command(Struct, frozen=True):
    """One frame. `words` are raw text; the shell encodes them. `changes`: refused in a dry run."""

    verb: str
    words: tuple[str, ...] = ()
    deadline_s: float = 10.0
    changes: bool = False


class Answer(Struct, frozen=True):
    """What came back: raw bytes and the in-band status (0 is success)."""

    status: int
    data: bytes


class Carried(Struct, frozen=True):
    """How a command ended into which a stream was carried. `status` is its own, told in band;
    `out` and `err` are the ends of what it wrote, at most `OUT_MOST` and 64 KiB."""

    status: int
    out: bytes
    err: bytes
