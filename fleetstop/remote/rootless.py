"""The host's verbs without root: what needs rights goes through the container's own shell."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fleetstop.core.commands import Answer, Command
from fleetstop.core.crossing import from_inside, inner_pids, known_inside, strike_words
from fleetstop.core.process import ProcessId
from fleetstop.errors import FrameTimedOut, PrivilegeMissing, RemoteFailed
from fleetstop.ports import Shell

STRIKE_S = 8
"""Seconds within which a noted signal may still go out: less than its frame's deadline."""
_REFUSALS = (2, 10, 11, 12, 13, 14)
"""Statuses with which `strike` says that it has sent nothing."""


class Rootless:
    """A Shell on the host for one container. Masks, groups, argv and watching need no rights:
    /proc is open to all. Open files and kill do: in there we are root. The ledger's line is
    written on the host first, then the kill is asked for inside."""

    def __init__(self, outside: Shell, rights: Callable[[], Awaitable[Shell]]) -> None:
        self._outside = outside
        self._rights = rights
        self.inner: dict[int, int] = {}

    async def run(self, command: Command) -> Answer:
        match command.verb:
            case "look":
                answer = await self._outside.run(command)
                self.inner |= inner_pids(answer.data)
                return answer
            case "detail":
                return await self._detail(command)
            case "claim" | "claimable":
                # without them nothing could be sent: said before the lock is taken
                await self._rights()
            case "send":
                return await self._send(command)
        return await self._outside.run(command)

    async def lingers(self, inside: ProcessId) -> bool:
        """Whether our shell of this number in the container is there a second from now."""
        outer = [out for out, pid in self.inner.items() if pid == inside.pid]
        if len(outer) != 1:
            return True
        words = ("1000/50", f"{outer[0]}:{inside.start}")
        answer = await self._outside.run(Command("watch", words))
        return answer.status != 0 or not answer.data.strip()

    async def _detail(self, command: Command) -> Answer:
        try:
            inside = await self._rights()
        except (PrivilegeMissing, RemoteFailed):
            # the threads' masks at least; what is missing then is told as not seen
            return await self._outside.run(command)
        words = known_inside(command.words, self.inner)
        answer = await inside.run(Command("detail", words, deadline_s=command.deadline_s))
        return Answer(status=answer.status, data=from_inside(answer.data, self.inner))

    async def _send(self, command: Command) -> Answer:
        inside = await self._rights()
        latest = await _clock(inside) + STRIKE_S
        words = strike_words(command.words, self.inner, latest)
        if words is None:
            return Answer(status=10, data=b"unknown inside")
        noted = await self._outside.run(Command("note", command.words, changes=True))
        if noted.status != 0:
            return noted
        # from here on it counts as sent, unless the far end says in so many words that it was not
        answer = await inside.run(Command("strike", words, changes=True))
        if answer.status in _REFUSALS:
            line = (*command.words[:2], command.words[2].partition("@")[0])
            await self._outside.run(Command("unsent", line, changes=True))
        return answer


async def _clock(inside: Shell) -> int:
    try:
        answer = await inside.run(Command("clock", deadline_s=5.0))
    except FrameTimedOut as exc:
        raise RemoteFailed(f"not sent: the container's shell does not answer ({exc})") from exc
    found = answer.data.removeprefix(b"uptime:").partition(b".")[0]
    if answer.status != 0 or not found.isdigit():
        raise RemoteFailed("not sent: the container's clock could not be read")
    return int(found)
