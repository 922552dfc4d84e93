"""A scripted Shell: answers by verb, and remembers every command it was given."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import TypeAlias

from fleetstop.core.commands import Answer, Command

Reply: TypeAlias = Answer | bytes | Exception | Callable[[Command], Answer | bytes]


class FakeShell:
    """`on("look", first, second)`: one reply for each call, the last one for all that follow.

    Bytes are a good answer, an exception is raised, a function is asked with the command.
    A verb without replies is a mistake of the test.
    """

    def __init__(self) -> None:
        self.commands: list[Command] = []
        self._replies: dict[str, list[Reply]] = defaultdict(list)

    def on(self, verb: str, *replies: Reply) -> FakeShell:
        self._replies[verb] = list(replies)
        return self

    def verbs(self) -> list[str]:
        return [each.verb for each in self.commands]

    def sent(self, verb: str) -> list[tuple[str, ...]]:
        """The words of every command with this verb."""
        return [each.words for each in self.commands if each.verb == verb]

    def changes(self) -> list[Command]:
        return [each for each in self.commands if each.changes]

    async def run(self, command: Command) -> Answer:
        self.commands.append(command)
        replies = self._replies[command.verb]
        assert replies, f"nobody said what to answer to {command}"
        reply = replies.pop(0) if len(replies) > 1 else replies[0]
        if isinstance(reply, Exception):
            raise reply
        found = reply if isinstance(reply, Answer | bytes) else reply(command)
        return found if isinstance(found, Answer) else Answer(status=0, data=found)
