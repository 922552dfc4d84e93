"""The second lock: a shell that refuses frames that change something, but for the named verbs."""

from __future__ import annotations

from fleetstop.core.commands import Answer, Command
from fleetstop.errors import Refused
from fleetstop.ports import Shell

# What may change something in a container: asks that the ledger has a line of.
ASKS = frozenset({"before", "ran"})


class DryShell:
    """Wraps any Shell; what only looks passes through, and `allowed` verbs do."""

    def __init__(self, shell: Shell, allowed: frozenset[str] = frozenset()) -> None:
        self._shell = shell
        self._allowed = allowed

    async def run(self, command: Command) -> Answer:
        if command.changes and command.verb not in self._allowed:
            raise Refused(f"a dry run does not send '{command.verb}'")
        return await self._shell.run(command)
