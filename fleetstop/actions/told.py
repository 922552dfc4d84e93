"""What a ladder's steps look like as events: one wording for a climb and for its rehearsal."""

from __future__ import annotations

from typing import Any

from fleetstop import events
from fleetstop.core.family import Kin
from fleetstop.core.playbook import FOREVER
from fleetstop.core.rungs import Send, Skip, WatchOn
from fleetstop.core.steps import Enter, Held, Step
from fleetstop.events import Event


def as_event(step: Step) -> tuple[type[Event], dict[str, Any]] | None:
    """The event and its facts; None for what is no event by itself (a wait, an end)."""
    match step:
        case Enter():
            facts = {"rung": step.rung, "signal": step.signal, "to": step.to}
            return events.RungEntered, {**facts, "wait_s": finite(step.wait_s)}
        case Skip():
            facts = {"rung": step.rung, "signal": step.signal, "landing": step.landing}
            return events.RungSkipped, {**facts, "pids": step.pids, "reason": step.reason}
        case WatchOn():
            facts = {"signal": step.signal, "pids": pids(step.recipients)}
            by = {"by_run": step.heard.run, "ago_s": step.heard.ago_s}
            return events.WatchedOn, {**facts, **by, "wait_s": finite(step.wait_s)}
        case Held():
            facts = {"why": step.why, "evidence": step.evidence}
            return events.Holding, {**facts, "over_wait": step.over_wait}
        case Send():
            return events.SignalSent, _sent(step)
        case _:
            return None


def _sent(send: Send) -> dict[str, Any]:
    return {
        "signal": send.signal,
        "to": send.to,
        "pids": pids(send.recipients),
        "host_pids": tuple(kin.id.pid for kin in send.recipients),
        "landing": send.landing,
        "wait_s": finite(send.wait_s),
        "continued": send.resume,
    }


def pids(recipients: tuple[Kin, ...]) -> tuple[int, ...]:
    """The container's own numbers."""
    return tuple(kin.pid for kin in recipients)


def finite(seconds: float) -> float | None:
    """A limit as JSON can say it; None is for ever."""
    return None if seconds == FOREVER else seconds
