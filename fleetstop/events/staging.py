"""What is told while new files come into a place; see the events beside it for all the others."""

from __future__ import annotations

from fleetstop.events.event import Event


class Staging(Event, frozen=True, tag="staging"):
    """Files are on their way: `sent` of `size` bytes have left, `rate` bytes a second of late,
    null at first. `files`: how many are sent in all, `same` are there already."""

    sent: int
    size: int
    files: int
    same: int
    rate: float | None = None


class Staged(Event, frozen=True, tag="staged"):
    """New files lie in the container, whole; `same`: how many were there already, not sent."""

    files: int
    size: int
    same: int
    seconds: float


class Proved(Event, frozen=True, tag="proved"):
    """What was staged can run: `by` are the proofs, like `compiled with python3.11`."""

    by: tuple[str, ...]
    seconds: float
