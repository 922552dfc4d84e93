"""A run for people, as plain lines on a stream. Knows no terminal tricks."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import tzinfo
from types import TracebackType
from typing import Self, TextIO

from fleetstop.core.report import Report
from fleetstop.events import AnyEvent
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

    def __call__(self, event: AnyEvent) -> None:
        with self._lock:
            self._show(self._story.lines(event))
            if isinstance(event, Report):
                self.close()
            elif self._story.waiting and self._timer is None:
                self._timer = threading.Timer(TOGETHER_S, self.late)
                self._timer.daemon = True
                self._timer.start()

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
        self._put([each for line in lines for each in fold(line, self._width)])

    def _put(self, lines: Sequence[Line]) -> None:
        """Physical lines, harmless already."""
        if lines:
            self._out.write("".join(painted(each, self._color) + "\n" for each in lines))
