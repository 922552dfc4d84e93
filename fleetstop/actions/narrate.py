"""Steps of a ladder into events; decides and does nothing."""

from __future__ import annotations

from fleetstop import events
from fleetstop.actions.telling import Teller
from fleetstop.core.climbing.rungs import Send, Skip, WatchOn
from fleetstop.core.kin.family import Kin
from fleetstop.core.ladder import Arrived, Enter, Held
from fleetstop.core.playbook import FOREVER


def narrate(teller: Teller, step: Enter | Skip | WatchOn | Arrived | Held | Send) -> None:
    """A `Send` is told once it is out."""
    match step:
        case Enter():
            teller.tell(
                events.RungEntered,
                rung=step.rung,
                signal=step.signal,
                to=step.to,
                wait_s=finite(step.wait_s),
            )
        case Skip():
            teller.tell(
                events.RungSkipped,
                rung=step.rung,
                signal=step.signal,
                landing=step.landing,
                pids=step.pids,
                reason=step.reason,
            )
        case WatchOn():
            teller.tell(
                events.WatchedOn,
                signal=step.signal,
                pids=pids_of(step.recipients),
                by_run=step.heard.run,
                ago_s=step.heard.ago_s,
                wait_s=finite(step.wait_s),
            )
        case Held():
            teller.tell(
                events.Holding, why=step.why, evidence=step.evidence, over_wait=step.over_wait
            )
        case Arrived():
            teller.tell(
                events.CheckpointAwaited,
                name=step.name,
                age_s=step.age_s,
                waited_s=step.waited_s,
            )
        case Send():
            teller.tell(
                events.SignalSent,
                signal=step.signal,
                to=step.to,
                pids=pids_of(step.recipients),
                host_pids=tuple(kin.id.pid for kin in step.recipients),
                landing=step.landing,
                wait_s=finite(step.wait_s),
                continued=step.resume,
                argument=step.argument,
            )


def pids_of(recipients: tuple[Kin, ...]) -> tuple[int, ...]:
    return tuple(kin.pid for kin in recipients)


def finite(seconds: float) -> float | None:
    return None if seconds == FOREVER else seconds
