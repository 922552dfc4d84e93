"""A job's log as a witness: its last line, and whether it trains on after a signal."""

from __future__ import annotations

import re

from msgspec import Struct

_DIGITS = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?")
# What a save prints. A periodic one made it a familiar shape, but it is no training step.
_SAVER = re.compile(
    r"sav(?:e|ed|ing)\b|checkpoint|ckpt|shard|\.(?:pt|pth|bin|tmp)\b|safetensors", re.I
)


class LogTail(Struct, frozen=True):
    """The end of a log at one look. `age_s` since the last write by the remote clock."""

    size: int
    age_s: float
    lines: tuple[str, ...]

    @property
    def last(self) -> str:
        return next((line for line in reversed(self.lines) if line.strip()), "")


def parse_log(data: bytes) -> LogTail | None:
    """The answer of `log`: remote now, then mtime and size, then the tail. None: not readable."""
    parts = data.split(b"\n", 2)
    if len(parts) < 3:
        return None
    try:
        now = float(parts[0])
        modified, size = parts[1].split()
        age = max(0.0, now - float(modified))
        count = int(size)
    except ValueError:
        return None
    # a progress bar overwrites itself with carriage returns: only its last state is a line
    text = parts[2].decode("utf-8", "backslashreplace")
    lines = tuple(line.split("\r")[-1] for line in text.replace("\r\n", "\n").split("\n"))
    return LogTail(size=count, age_s=age, lines=lines)


class NewPart(Struct, frozen=True):
    """What a log has got since it was `since` bytes long. `lines` are whole ones; `upto`: how far
    they reach, where the next part begins; `missed`: bytes that went by between two looks."""

    lines: tuple[str, ...]
    upto: int
    missed: int = 0


# an unfinished line longer than this is told as it stands
_LONGEST = 4096


def new_part(data: bytes, since: int, until: int | None = None) -> NewPart | None:
    """The same answer of `log`. A log that is shorter now was begun anew: all of it is new.
    `until`: what stands behind that is somebody else's."""
    tail = parse_log(data)
    if tail is None:
        return None
    raw = data.split(b"\n", 2)[2]
    since = since if tail.size >= since else 0
    begins = tail.size - len(raw)
    raw = raw if until is None else raw[: max(0, until - begins)]
    fresh = raw[max(0, since - begins) :]
    missed = max(0, begins - since)
    # a bar is whole each time that it returns: it may never end its line
    cut = max(fresh.rfind(b"\n"), fresh.rfind(b"\r")) + 1
    if len(fresh) - cut > _LONGEST:
        cut = len(fresh)
    text = fresh[:cut].decode("utf-8", "backslashreplace").removesuffix("\n")
    lines = tuple(line.rstrip("\r").split("\r")[-1] for line in text.split("\n")) if cut else ()
    return NewPart(lines=lines, upto=begins + len(raw) - len(fresh) + cut, missed=missed)


def shape(line: str) -> str:
    """A line with its numbers taken out: `step # loss #`."""
    return _DIGITS.sub("#", line.strip())


def trains_on(before: LogTail | None, now: LogTail | None) -> bool:
    """New lines of a shape the log was already repeating before the signal.

    Needs the same shape with numbers at least twice before; a saver's own lines do not count,
    a periodic save may have printed them before.
    """
    if before is None or now is None or now.size <= before.size:
        return False
    known: dict[str, int] = {}
    for line in before.lines:
        if "#" in shape(line) and not _SAVER.search(line):
            known[shape(line)] = known.get(shape(line), 0) + 1
    steady = {each for each, count in known.items() if count >= 2}
    old = set(before.lines)
    return sum(shape(line) in steady and line not in old for line in now.lines) >= 2
