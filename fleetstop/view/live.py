"""The same lines on a terminal, and one calm line below them that tells what is waited for."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import tzinfo
from typing import TextIO, cast

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text

from fleetstop.events import AnyEvent, Asked
from fleetstop.view.layout import WIDTH, Line, Tone, fold
from fleetstop.view.lines import Lines
from fleetstop.view.waiting import Waiting

_STYLES: dict[Tone, str] = {
    "plain": "",
    "head": "bold",
    "good": "bold green",
    "bad": "bold red",
    "warn": "yellow",
    "dim": "dim",
}
_PER_SECOND = 4


class _Bottom:
    """Drawn again and again; never wider than the terminal is at that moment."""

    def __init__(self, waiting: Waiting, now: Callable[[], float]) -> None:
        self._waiting, self._now = waiting, now

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        text = self._waiting.line(self._now())
        if text:
            line = Text("· " + text, style="dim", no_wrap=True, overflow="ellipsis")
            line.truncate(max(options.max_width - 1, 1), overflow="ellipsis")
            yield line


class LiveLines(Lines):
    """`Lines` for a terminal. Remote text never meets rich's markup: only `Text` is printed.

    Must be closed, so that the cursor comes back; the last event of a run does it.
    """

    def __init__(
        self,
        stream: TextIO,
        *,
        color: bool = True,
        verbose: bool = False,
        zone: tzinfo | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(stream, color=color, verbose=verbose, zone=zone)
        self._now, self._waiting = now, Waiting()
        self._console = Console(
            # a terminal that goes away ends the drawing, not the work: Outlet never raises
            file=cast(TextIO, self._out),
            no_color=not color,
            highlight=False,
            markup=False,
            emoji=False,
        )
        self._live: Live | None = None

    def __call__(self, event: AnyEvent) -> None:
        with self._lock:
            self._waiting.observe(event, self._now())
            if isinstance(event, Asked):
                self._stop()  # nothing is drawn where somebody types
            super().__call__(event)
            if self._live is None and not self.prompting and self._waiting.line(self._now()):
                self._start()

    def close(self) -> None:
        super().close()
        self._stop()

    def _stop(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    def _start(self) -> None:
        self._live = Live(
            _Bottom(self._waiting, self._now),
            console=self._console,
            refresh_per_second=_PER_SECOND,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start()

    def _fold(self, lines: Sequence[Line]) -> None:
        width = min(WIDTH, self._console.width)
        self._put([each for line in lines for each in fold(line, width)])

    def _put(self, lines: Sequence[Line]) -> None:
        for line in lines:
            text = Text().append(line.lead, style="dim")
            text.append(line.text, style=_STYLES[line.tone])
            text.rstrip()
            self._console.print(text, soft_wrap=True)
