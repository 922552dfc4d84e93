"""Takes a lost connection up again, so that whoever works through a place goes on where he was.

Knows no job and no ladder. What is safe twice is asked again; a signal never is: whether it went
out, the ledger tells.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from fleetstop import events
from fleetstop.actions.telling import Teller
from fleetstop.core.commands import Answer, Carried, Command
from fleetstop.core.process import ProcessId
from fleetstop.errors import (
    ConnectionLost,
    CouldNotLook,
    FleetstopError,
    FrameTimedOut,
    HostUnreachable,
)
from fleetstop.ports import Chunks, Clock, Place, Progress, Shell

WITHIN_S = 60.0
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 8.0
_TRIES = 3
LOST = (ConnectionLost, FrameTimedOut)
T = TypeVar("T")


class _Outside:
    """The host's shell, whichever it is at the moment."""

    def __init__(self, place: ReconnectingPlace) -> None:
        self._place = place

    async def run(self, command: Command) -> Answer:
        return await self._place.outside(command)


class _Inside:
    """The container's shell, whichever it is at the moment."""

    def __init__(self, place: ReconnectingPlace) -> None:
        self._place = place

    async def run(self, command: Command) -> Answer:
        return await self._place.within(command)


class _Hands:
    """The same, and it may change things."""

    def __init__(self, place: ReconnectingPlace) -> None:
        self._place = place

    async def run(self, command: Command) -> Answer:
        return await self._place.handling(command)


class _Files:
    """The target's files, from wherever they are read at the moment."""

    def __init__(self, place: ReconnectingPlace) -> None:
        self._place = place

    async def run(self, command: Command) -> Answer:
        return await self._place.reading(command)


class ReconnectingPlace:
    """A Place that outlives its connection: see ports.Place.

    A few tries within a minute (`within_s`), and none that would begin past `until` by the
    clock; where it cannot be re-made, ConnectionLost says why, and is raised at once from then on.
    """

    def __init__(
        self,
        place: Place,
        host: str,
        clock: Clock,
        teller: Teller,
        until: float | None = None,
        within_s: float = WITHIN_S,
    ) -> None:
        self._place = place
        self._name = host
        self._clock = clock
        self._teller = teller
        self._until = until
        self._within_s = within_s
        self._one = asyncio.Lock()
        self._made = 0
        self._over: ConnectionLost | None = None
        self.host: Shell = _Outside(self)
        self._within: Shell = _Inside(self)
        self._reading: Shell = _Files(self)
        self._handling: Shell = _Hands(self)

    @property
    def remade(self) -> bool:
        """Whether what was seen was seen over more than one connection."""
        return self._made > 0

    @property
    def hz(self) -> int:
        return self._place.hz

    @property
    def own_pid(self) -> int:
        return self._place.own_pid

    @property
    def ours_inside(self) -> frozenset[ProcessId]:
        return self._place.ours_inside

    @property
    def pct_calls(self) -> int:
        return self._place.pct_calls

    @property
    def ssh_connections(self) -> int:
        return self._place.ssh_connections

    @property
    def without_root(self) -> str | None:
        return self._place.without_root

    @property
    def hanging(self) -> frozenset[int]:
        return self._place.hanging

    def frozen_error(self) -> FleetstopError:
        return self._place.frozen_error()

    async def outside(self, command: Command) -> Answer:
        if command.verb in ("send", "note"):
            return await self._place.host.run(command)
        # files may hang by themselves: the caller sees to that first, see `unstick`
        patient = command.verb not in ("argv", "detail", "through", "code", "body", "sums")
        return await self._kept(lambda: self._place.host.run(command), patient=patient)

    async def within(self, command: Command) -> Answer:
        return await self._asked(self._place.inside, command)

    async def handling(self, command: Command) -> Answer:
        return await self._asked(self._place.hands, command)

    async def _asked(self, enter: Callable[[], Awaitable[Shell]], command: Command) -> Answer:
        if command.changes:
            # what is asked in there is no more repeated than a signal
            return await (await enter()).run(command)

        async def ask() -> Answer:
            return await (await enter()).run(command)

        return await self._kept(ask, inside=True)

    async def reading(self, command: Command) -> Answer:
        async def ask() -> Answer:
            return await (await self._place.files()).run(command)

        return await self._kept(ask, inside=True)

    async def files(self) -> Shell:
        await self._kept(self._place.files, inside=True)
        return self._reading

    @property
    def files_from_host(self) -> str | None:
        return self._place.files_from_host

    async def inside(self) -> Shell:
        await self._kept(self._place.inside, inside=True)
        return self._within

    async def hands(self) -> Shell:
        await self._kept(self._place.hands, inside=True)
        return self._handling

    async def carry(
        self,
        words: Sequence[str],
        chunks: Chunks,
        deadline_s: float,
        progress: Progress | None = None,
        *,
        outside: bool = False,
    ) -> Carried:
        """Once only: what a lost stream has left behind, the caller sees to."""
        if self._over is not None:
            raise self._over
        return await self._place.carry(words, chunks, deadline_s, progress, outside=outside)

    async def is_frozen(self) -> bool:
        return await self._kept(self._place.is_frozen)

    async def pct_status(self) -> str:
        return await self._kept(self._place.pct_status)

    async def unstick(self) -> frozenset[int] | None:
        """None also where it was the connection that stalled."""
        made = self._made
        try:
            return await self._place.unstick()
        except LOST as exc:
            await self._take_up(made, exc)
            return None

    async def again(self) -> bool:
        return await self._place.again()

    async def close(self) -> None:
        await self._place.close()

    async def _kept(
        self, ask: Callable[[], Awaitable[T]], *, inside: bool = False, patient: bool = True
    ) -> T:
        """The answer, also when the connection goes away under the question."""
        tried = 0
        while True:
            if self._over is not None:
                raise self._over
            made = self._made
            try:
                return await ask()
            except LOST as exc:
                late = isinstance(exc, FrameTimedOut)
                if late and not patient:
                    raise
                remade = await self._take_up(made, exc)
                # over a sound connection it was the question itself: a file there hangs, say
                if late and not remade and (inside or tried):
                    raise
                tried += 1
                if tried >= _TRIES:
                    raise

    async def _take_up(self, made: int, lost: CouldNotLook) -> bool:
        """Whether the connection is another one now; only one asker sees to it."""
        async with self._one:
            if self._over is not None:
                raise self._over  # who asked first has waited for all
            if made != self._made:
                return True
            since = self._clock.now()
            remade = await self._try(lost, since)
            if remade:
                self._made += 1
                seconds = round(self._clock.now() - since, 3)
                self._teller.tell(events.Reconnected, host=self._name, seconds=seconds)
            return remade

    async def _try(self, lost: CouldNotLook, since: float) -> bool:
        pause = _FIRST_PAUSE_S
        while True:
            try:
                return await self._place.again()
            except CouldNotLook as exc:
                spent = self._clock.now() - since
                if not _worth_another(exc) or spent + pause > self._longest(since):
                    raise self._given_up(lost, exc, spent) from exc
            await self._clock.sleep(pause)
            pause = min(_LONGEST_PAUSE_S, pause * 2)

    def _longest(self, since: float) -> float:
        longest = self._within_s
        return longest if self._until is None else min(longest, self._until - since)

    def _given_up(self, lost: CouldNotLook, why: CouldNotLook, spent: float) -> ConnectionLost:
        text = f"{lost.message}; it could not be re-made in {spent:.0f} s: {why.message}"
        self._over = ConnectionLost(text, hint=why.hint)
        return self._over


def _worth_another(exc: CouldNotLook) -> bool:
    """The network may come back; a login that is refused stays refused."""
    return isinstance(exc, LOST) or type(exc) is HostUnreachable
