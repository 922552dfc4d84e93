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
    `job_s`: for how long the job has run, by the oldest of its trainers.
    """

    name: str | None = None
    age_s: float | None = None
    size: int | None = None
    known_format: bool = False
    ours: bool | None = None
    usual_s: float | None = None
    job_s: float | None = None

    @property
    def lost_s(self) -> float | None:
        """So much would be lost at the most: an earlier run's checkpoint is older than the job."""
        if self.age_s is None or self.job_s is None:
            return self.age_s
        return min(self.age_s, self.job_s)

    @property
    def before_the_job(self) -> bool:
        """The newest checkpoint is from before the job's start."""
        return self.age_s is not None and self.job_s is not None and self.age_s > self.job_s


def age(mtime: float, now: float | None) -> float | None:
    """Seconds since `mtime` by the clock there, or None. A time to come says nothing, least of all
    "just now": storage with a clock of its own, `touch -d`, an archive that was unpacked."""
    if now is None or is_ahead(mtime, now):
        return None
    return max(0.0, now - mtime)


def is_ahead(mtime: float, now: float) -> bool:
    return mtime - now > _AHEAD_S
