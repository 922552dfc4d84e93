"""Questions at the terminal: one line is read without a thread, so nothing keeps us alive."""

from __future__ import annotations

import asyncio
import os
import sys
import termios
from collections.abc import Mapping
from typing import Any, TextIO

from fleetstop.core.climbing.consent import Choice, Question
from fleetstop.events import AnyEvent, Asked
from fleetstop.view.choose import terminal

_NEVER = ("as_json", "events", "dry_run")


def at_terminal(given: Mapping[str, Any], stream: TextIO | None) -> Terminal | None:
    """Somebody who can be asked: reads us and can type. What --graceful, --force and the others
    have answered is not asked; which signal saves may still be."""
    if any(given.get(each) for each in _NEVER):
        return None
    if not (terminal(stream) and terminal(sys.stdin)):
        return None
    try:
        # in the background a read from the terminal would stop us (SIGTTIN)
        ours = os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except OSError:
        return None
    return Terminal(sys.stdin.fileno()) if ours else None


class Terminal:
    """`confirm` and `choose` read the answer; the view has written the question.

    It listens to the events first: what was typed before a question stood there answers none.
    """

    def __init__(self, number: int) -> None:
        self._number = number

    def __call__(self, event: AnyEvent) -> None:
        if isinstance(event, Asked):
            termios.tcflush(self._number, termios.TCIFLUSH)

    async def confirm(self, question: Question) -> bool:
        return (await self._line()).lower() in ("y", "yes")

    async def choose(self, choice: Choice) -> str | None:
        said = (await self._line()).upper().removeprefix("SIG")
        return said if said in choice.signals else None

    async def _line(self) -> str:
        """One line; empty at the end of the input. Cancelled, it leaves the terminal alone."""
        loop = asyncio.get_running_loop()
        got: asyncio.Future[bytes] = loop.create_future()

        def read() -> None:
            try:
                typed = os.read(self._number, 4096)
            except OSError:  # the terminal has gone: nobody has agreed to anything
                typed = b""
            if not got.done():
                got.set_result(typed)

        loop.add_reader(self._number, read)
        try:
            typed = await got
        finally:
            loop.remove_reader(self._number)
        whole = typed.endswith(b"\n")  # what Ctrl-D cut off was not sent off with Enter
        return typed.decode("utf-8", "replace").strip() if whole else ""
