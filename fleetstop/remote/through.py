"""A container's files: read inside, or from the host where nothing can be started in there.

Knows the reading verbs and whose root they are asked below; not what the files mean.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from fleetstop.core.commands import Answer, Command
from fleetstop.core.process import ProcessId
from fleetstop.core.procfs import parse_look
from fleetstop.errors import CouldNotLook, FrameTimedOut, PrivilegeMissing, RemoteFailed
from fleetstop.ports import Shell

READS = frozenset({"list", "log", "ends", "pidfile", "code", "body", "sums"})
"""Verbs that `through` of the boot script does below another root."""

SOON_S = 5.0

_NO_WAY_IN = (RemoteFailed, FrameTimedOut, PrivilegeMissing)
# what dash, busybox and bash say where no fork is to be had, our own for a pipe, and no such tool
_NOT_DONE = (2, 9, 126, 127, 254)
_ELSEWHERE, _UNFOLLOWED = 48, 49


class Through:
    """A Shell of root's on the host that reads below the root of the container's first process:
    `/proc/PID/root` (proc(5)), by its identity, before and after. Runs nothing in there."""

    def __init__(self, shell: Callable[[], Awaitable[Shell]], vmid: int) -> None:
        self._shell = shell
        self._scope = f"lxc:{vmid}"
        self._first: ProcessId | None = None

    async def find(self) -> ProcessId:
        """The first process, as all paths that people name in a container are meant."""
        if self._first is None:
            answer = await (await self._shell()).run(Command("look", (self._scope,)))
            tree = parse_look(answer.data, hz=100) if answer.status == 0 else None
            found = tree.by_inner(1) if tree is not None else None
            if found is None or not found.alive:
                raise RemoteFailed("the container's first process could not be seen on the host")
            self._first = found.id
        return self._first

    async def run(self, command: Command) -> Answer:
        if command.verb not in READS or command.changes:
            raise RemoteFailed(f"'{command.verb}' is not done from the host")
        first, shell = await self.find(), await self._shell()
        whose = (str(first.pid), str(first.start), self._scope, command.verb)
        words = (*whose, *command.words)
        answer = await shell.run(Command("through", words, deadline_s=command.deadline_s))
        if answer.status == _ELSEWHERE:
            self._first = None
            raise RemoteFailed("the container's first process is another one by now; look again")
        if answer.status == _UNFOLLOWED:
            raise RemoteFailed(f"{command.words[0]} could not be followed from the host")
        return answer


class Files:
    """Reads a container's files. `why`: what keeps them from being read inside, a sentence; None
    where they are read there. Once from the host they are read from there as long as that works:
    another try to enter may cost what a whole look should not."""

    def __init__(self, inside: Callable[[], Awaitable[Shell]], outside: Through) -> None:
        self._inside = inside
        self._outside = outside
        self._one = asyncio.Lock()
        self.why: str | None = None

    async def ready(self) -> None:
        """Raises as entering does, where they cannot be read from the host either."""
        if self.why is not None:
            return
        try:
            await self._inside()
        except _NO_WAY_IN as exc:
            try:
                async with self._one:
                    await self._outside.find()
            except _NO_WAY_IN:
                raise exc from None
            self.why = exc.message

    async def run(self, command: Command) -> Answer:
        if self.why is not None:
            return await self._from_host(command, self.why)
        try:
            answer = await (await self._inside()).run(command)
        except FrameTimedOut as exc:
            # it may be the files themselves that hang: then nobody waits for them twice as long
            soon = min(command.deadline_s, SOON_S)
            brief = msgspec.structs.replace(command, deadline_s=soon)
            return await self._from_host(brief, exc.message)
        except _NO_WAY_IN as exc:
            return await self._from_host(command, exc.message)
        if answer.status not in _NOT_DONE:
            return answer
        try:
            lacks = f"'{command.verb}' cannot be done in the container (status {answer.status})"
            return await self._from_host(command, lacks)
        except CouldNotLook:
            return answer

    async def _from_host(self, command: Command, why: str) -> Answer:
        try:
            async with self._one:
                answer = await self._outside.run(command)
        except RemoteFailed as exc:
            self.why = None
            raise RemoteFailed(f"{exc.message}; {why}") from exc
        except FrameTimedOut:
            self.why = None
            raise
        self.why = why
        return answer
