"""How fast a file that is being written grows, over some looks: only where that can be told."""

from __future__ import annotations

from msgspec import Struct

SPAN_S = 3.0
"""What one look sees may be one chunk, or the time between two."""
_AGREE = 1.5
_MARKS = 3


class Pace(Struct, frozen=True):
    """`marks`: (monotonic second, position in bytes), oldest first, SPAN_S apart at least; the
    first is where it was when it was first seen: how long that had taken is not known."""

    marks: tuple[tuple[float, int], ...]
    at: float
    pos: int


def paced(old: Pace | None, at: float, pos: int) -> Pace:
    """One more look. Where it went back in the file, what was before tells nothing."""
    if old is None or pos < old.pos:
        return Pace(((at, pos),), at, pos)
    marks = old.marks
    if at - marks[-1][0] >= SPAN_S:
        marks = (*marks, (at, pos))[-_MARKS:]
    return Pace(marks, at, pos)


def left_s(pace: Pace | None, whole: int) -> float | None:
    """Seconds until it is so big. None: it is not known, since no two spans agree."""
    if pace is None or len(pace.marks) < _MARKS:
        return None
    begin, middle, end = pace.marks
    one, other = _rate(begin, middle), _rate(middle, end)
    if min(one, other) <= 0 or max(one, other) > _AGREE * min(one, other):
        return None
    return (whole - pace.pos) / _rate(begin, (pace.at, pace.pos))


def _rate(begin: tuple[float, int], end: tuple[float, int]) -> float:
    return (end[1] - begin[1]) / (end[0] - begin[0])
