"""The second lock of a dry run: a shell that refuses every frame that changes something."""

from __future__ import annotations

from fleetstop.core.commands import Answer, Command
from fleetstop.errors import Refused
from fleetstop.ports import Shell


class DryShell:
    """Wraps any Shell; what only looks passes through."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    async def run(self, command: Command) -> Answer:
        if command.changes:
            raise Refused(f"a dry run does not send '{command.verb}'")
        return await self._shell.run(command)
