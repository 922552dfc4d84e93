"""Facts into events: stamps each with the time and the target, and counts the cost."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from fleetstop import events
from fleetstop.core.inventory import Target
from fleetstop.core.redact import typed
from fleetstop.core.report import Cost
from fleetstop.events import Emit, Event
from fleetstop.ports import Clock, Place


class Teller:
    """Speaks for one target."""

    def __init__(self, target: str, emit: Emit, clock: Clock) -> None:
        self._target = target
        self._emit = emit
        self._clock = clock

    def tell(self, kind: type[Event], **facts: Any) -> None:
        self._emit(kind(at=self._clock.wall(), target=self._target, **facts))

    def finding(self, text: str) -> str:
        self.tell(events.Finding, text=text)
        return text


class Run(Struct, frozen=True):
    """One recorded operation: its id, who runs it from where, and the inventory that was named
    to it, None for the usual one. `client`: a word for the process that works; `dead` tells of
    another's word whether that is gone for certain."""

    id: str
    operator: str
    origin: str
    inventory: str | None = None
    client: str = ""
    dead: Callable[[str], bool] | None = None

    def typed(self, *words: str) -> str:
        """A command to type next."""
        return typed(words, self.inventory)


class Scope(Struct, frozen=True):
    """Everything one target's action works with. `limit_s`: how long it may take in all, from
    the connecting on; `until`: when that is over, by the clock."""

    run: Run
    target: Target
    place: Place
    clock: Clock
    teller: Teller
    log_fault: Callable[[str], str | None]
    limit_s: float | None = None
    until: float | None = None

    def left(self) -> float | None:
        """Seconds of the limit that are left; None without one."""
        return None if self.until is None else max(0.0, self.until - self.clock.now())

    def fault(self, exc: Exception) -> dict[str, str]:
        """Tells a bug and keeps its traceback; the reason and hint of the outcome."""
        path = self.log_fault("".join(traceback.format_exception(exc)))
        text = f"{type(exc).__name__}: {exc}"
        self.teller.tell(events.Fault, error=text, traceback_path=path)
        hint = f"the traceback is in {path}" if path else ""
        return {"reason": f"a fault in fleetstop: {text}", "hint": hint}

    def cost(self) -> Cost:
        return Cost(ssh_connections=self.place.ssh_connections, pct_calls=self.place.pct_calls)
