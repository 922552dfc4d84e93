"""How far a stream of files has come, told a few times a second; carries nothing itself."""

from __future__ import annotations

from fleetstop import events
from fleetstop.actions.telling import Scope

TICK_S = 0.25
_RATED_S = 1.0


class Underway:
    """`size`: all that is to be carried, bytes."""

    def __init__(self, scope: Scope, size: int, files: int, same: int) -> None:
        self._scope = scope
        self._size, self._files, self._same = size, files, same
        self._rate: float | None = None
        self._rated = self._told = scope.clock.now()
        self._then = 0
        self._tell(0)

    def upto(self, sent: int) -> None:
        now = self._scope.clock.now()
        if now - self._rated >= (TICK_S if self._rate is None else _RATED_S):
            self._rate = (sent - self._then) / (now - self._rated)
            self._rated, self._then = now, sent
        if now - self._told >= TICK_S:
            self._told = now
            self._tell(sent)

    def done(self) -> None:
        self._tell(self._size)

    def _tell(self, sent: int) -> None:
        self._scope.teller.tell(
            events.Staging,
            sent=min(sent, self._size),
            size=self._size,
            files=self._files,
            same=self._same,
            rate=None if self._rate is None else round(self._rate),
        )
