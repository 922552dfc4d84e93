"""Events and the report as JSON, one line each, for scripts. Shows people nothing."""

from __future__ import annotations

from typing import TextIO

from fleetstop.core.jsonline import line
from fleetstop.core.report import Report
from fleetstop.events import AnyEvent
from fleetstop.view.stream import Outlet

__all__ = ["JsonLines", "line"]


class JsonLines:
    """A listener for `--json` (the report alone) and `--events` (everything).

    A closed stdout never raises and never changes the exit code.
    """

    def __init__(self, stream: TextIO | None, *, events: bool) -> None:
        self._out = Outlet(stream)
        self._events = events

    def __call__(self, event: AnyEvent) -> None:
        if (self._events or isinstance(event, Report)) and self._out.open:
            self._out.write(line(event) + "\n")
