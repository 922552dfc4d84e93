"""Work at risk: what would be lost if the job ended now, by its newest good checkpoint."""

from __future__ import annotations

from msgspec import Struct

_AHEAD_S = 5.0
"""A clock that disagrees by more is another clock; within it two answers have crossed."""


class AtRisk(Struct, frozen=True):
    """The newest complete checkpoint of this job. None is unknown, never zero.

    `name` None: there is none. `age_s` by the remote clock, see `age`. `known_format`: its
    completeness was read from the file, not guessed from its standing still. `ours`: a member wrote
    it, or nobody else has business there. `usual_s`: the interval between the last few of its kind.
    """

    name: str | None = None
    age_s: float | None = None
    size: int | None = None
    known_format: bool = False
    ours: bool | None = None
    usual_s: float | None = None


def age(mtime: float, now: float | None) -> float | None:
    """Seconds since `mtime` by the clock there, or None. A time to come says nothing, least of all
    "just now": storage with a clock of its own, `touch -d`, an archive that was unpacked."""
    if now is None or is_ahead(mtime, now):
        return None
    return max(0.0, now - mtime)


def is_ahead(mtime: float, now: float) -> bool:
    return mtime - now > _AHEAD_S
