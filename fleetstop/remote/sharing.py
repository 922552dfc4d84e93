"""One answer for the targets of a host that ask it the same; only where nothing is sent by it.

A look at the GPUs is of the whole host, and takes nvidia-smi a second or more for each GPU where
persistence mode is off: ten containers of a host need it once.
"""

from __future__ import annotations

import asyncio
import time

from msgspec import Struct

from fleetstop.core.commands import Answer, Command
from fleetstop.errors import CouldNotLook
from fleetstop.ports import Shell

VERBS = frozenset({"gpus"})
FRESH_S = 2.0


class _Asked(Struct, frozen=True):
    at: float
    answer: asyncio.Task[Answer]

    @property
    def serves(self) -> bool:
        """Under way, or so fresh that whoever asks now would hardly see another."""
        return not self.answer.done() or time.monotonic() - self.at <= FRESH_S


class Shared:
    """What has been asked at one host. Belongs to one event loop."""

    def __init__(self) -> None:
        self._asked: dict[Command, _Asked] = {}

    async def ask(self, shell: Shell, command: Command) -> Answer:
        """Another's failure is not ours: who waited for it asks by itself."""
        known = self._asked.get(command)
        if known is not None and known.serves:
            try:
                return await asyncio.shield(known.answer)
            except CouldNotLook:
                return await shell.run(command)
        # one that leaves must not take the answer from those who wait for it
        answer = asyncio.ensure_future(shell.run(command))
        answer.add_done_callback(_heard)
        self._asked[command] = _Asked(time.monotonic(), answer)
        return await asyncio.shield(answer)


def _heard(answer: asyncio.Task[Answer]) -> None:
    """Where nobody is left to wait for it, its failure is nobody's."""
    if not answer.cancelled():
        answer.exception()


class SharingShell:
    """Wraps a host's shell; what is of one target alone passes through."""

    def __init__(self, shell: Shell, shared: Shared) -> None:
        self._shell, self._shared = shell, shared

    async def run(self, command: Command) -> Answer:
        if command.verb not in VERBS:
            return await self._shell.run(command)
        return await self._shared.ask(self._shell, command)
