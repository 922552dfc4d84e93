"""Work at risk: what would be lost if the job ended now, by its newest good checkpoint."""

from __future__ import annotations

from msgspec import Struct


class AtRisk(Struct, frozen=True):
    """The newest complete checkpoint of this job. None is unknown, never zero.

    `name` None: there is none. `age_s` by the remote clock. `known_format`: its completeness
    was read from the file, not guessed from its standing still. `ours`: a member wrote it, or
    nobody else has business there. `usual_s`: the interval between the last few checkpoints.
    """

    name: str | None = None
    age_s: float | None = None
    size: int | None = None
    known_format: bool = False
    ours: bool | None = None
    usual_s: float | None = None
