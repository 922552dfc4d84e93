"""Who answers the questions of a rehearsal, in virtual time; asks nobody."""

from __future__ import annotations

from collections.abc import Sequence

from fleetstop.core.durations import FOREVER


class Person:
    """Somebody at a terminal, who takes a while."""

    def __init__(self, answers: Sequence[tuple[float, bool]]) -> None:
        self.left = list(answers)
        self.due: float | None = None

    def hear(self, now: float) -> None:
        if self.due is None:
            self.due = now + self.left[0][0] if self.left else FOREVER

    def says(self, now: float) -> bool | None:
        if self.due is None or now < self.due:
            return None
        self.due = None
        return self.left.pop(0)[1]

    def forget(self) -> None:
        """Withdrawn before it was answered."""
        if self.due is not None and self.left:
            self.left.pop(0)
        self.due = None
