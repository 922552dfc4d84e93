"""A run for people, as plain lines on a stream. Knows no terminal tricks."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import tzinfo
from types import TracebackType
from typing import Self, TextIO

from fleetstop.core.report import Report
from fleetstop.events import Answered, AnyEvent, Interrupted, TargetFinished
from fleetstop.view.layout import WIDTH, Line, fold, painted
from fleetstop.view.story import Story
from fleetstop.view.stream import Outlet

# Exits this close together share a line; it is also the longest that a line is kept back.
TOGETHER_S = 0.4


class Lines:
    """A listener that writes what happened, one wrapped line after another.

    `zone` None: local time. `color` only adds. Close it, or use it as a context manager.
    """

    def __init__(
        self,
        stream: TextIO | None,
        *,
        width: int = WIDTH,
        color: bool = False,
        quiet: bool = False,
        verbose: bool = False,
        zone: tzinfo | None = None,
    ) -> None:
        self._out = Outlet(stream)
        self._width, self._color = width, color
        self._story = Story(zone=zone, quiet=quiet, verbose=verbose)
        self._lock = threading.RLock()
        self._timer: threading.Timer | None = None
        self._prompt, self._prompts_for = "", ""

    def __call__(self, event: AnyEvent) -> None:
        with self._lock:
            self._close_prompt(event)
            self._show(self._story.lines(event))
            self._open_prompt(event)
            if isinstance(event, Report):
                self.close()
            elif self._story.waiting and self._timer is None:
                self._timer = threading.Timer(TOGETHER_S, self.late)
                self._timer.daemon = True
                self._timer.start()

    @property
    def prompting(self) -> bool:
        """A question is open: the cursor stands behind its prompt."""
        return bool(self._prompt)

    def _open_prompt(self, event: AnyEvent) -> None:
        prompt = self._story.prompt(event)
        if prompt is not None and not isinstance(event, Report):
            self._prompt, self._prompts_for = f"          {prompt}", event.target or ""
            self._out.write(self._prompt)

    def _close_prompt(self, event: AnyEvent) -> None:
        """A typed answer has ended the line itself; whatever else ends the question has not."""
        over = isinstance(event, Report) or (
            isinstance(event, Answered | Interrupted | TargetFinished)
            and event.target == self._prompts_for
        )
        if self._prompt and over:
            self._prompt = ""
            if not (isinstance(event, Answered) and event.answer != "withdrawn"):
                self._out.write("\n")

    def flush(self) -> None:
        """Tells what was kept back in the hope of one more event."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._show(self._story.flush())

    def late(self) -> None:
        """Tells what waited long enough, but for what waits for an answer on its way."""
        with self._lock:
            self._timer = None
            self._show(self._story.flush(everything=False))

    def close(self) -> None:
        self.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _show(self, lines: Sequence[Line]) -> None:
        if self._prompt and lines:
            self._out.write("\n")
        self._fold(lines)
        if self._prompt and lines:
            self._out.write(self._prompt)  # what another target has told stands above it

    def _fold(self, lines: Sequence[Line]) -> None:
        self._put([each for line in lines for each in fold(line, self._width)])

    def _put(self, lines: Sequence[Line]) -> None:
        """Physical lines, harmless already."""
        if lines:
            self._out.write("".join(painted(each, self._color) + "\n" for each in lines))
