"""Stop one target, and say what became of it, whatever comes in between."""

from __future__ import annotations

import asyncio
import contextlib

import msgspec

from fleetstop import events
from fleetstop.actions.asking import Desk
from fleetstop.actions.attempt import Attempt, Wish
from fleetstop.actions.lock import Lock
from fleetstop.actions.present import failed
from fleetstop.actions.reconnect import ReconnectingPlace
from fleetstop.actions.telling import Scope
from fleetstop.core.report import Outcome
from fleetstop.errors import CouldNotLook, FleetstopError, LockTaken, Refused


async def stop(scope: Scope, wish: Wish, desk: Desk | None = None) -> Outcome:
    """Never raises for what a job or a host can do: that is the outcome. A bug is raised.

    `desk`: who may be asked; the same for all targets, so that one question is open at a time.
    """
    started = scope.clock.now()
    place = ReconnectingPlace(scope.place, scope.target.host.name, scope.clock, scope.teller)
    scope = msgspec.structs.replace(scope, place=place)
    lock = Lock(scope.place.host, scope.run, scope.target.vmid, scope.clock)
    try:
        outcome = await stopped(scope, wish, desk or Desk(), lock)
    except Interrupted as exc:
        _finish(scope, exc.outcome, started)
        raise
    finally:
        await give_back(scope, lock)
    return _finish(scope, outcome, started)


class Interrupted(asyncio.CancelledError):
    """Somebody's Ctrl-C, with what is known of the target by then."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__()
        self.outcome = outcome


async def stopped(scope: Scope, wish: Wish, desk: Desk, lock: Lock) -> Outcome:
    """A stop as a part of more: its end is told, and the lock given back, by who asked for it. A
    lock that is held already is used as it is. Raises nothing but Interrupted."""
    attempt = Attempt(scope, wish, desk, lock)
    limit = asyncio.timeout(scope.left())
    try:
        async with limit:
            return await attempt.run()
    except TimeoutError as exc:
        if not limit.expired():
            return attempt.outcome("fault", **scope.fault(exc))
        return attempt.gave_up()
    except LockTaken as exc:
        return attempt.taken_over(exc)
    except (Refused, CouldNotLook) as exc:
        return attempt.outcome(**failed(exc))
    except asyncio.CancelledError as exc:
        raise Interrupted(await attempt.interrupted()) from exc
    except Exception as exc:
        # a bug is this target's outcome; what was sent by then must not be lost with it
        return attempt.outcome("fault", **scope.fault(exc))
    finally:
        attempt.keep("end")
        lock.alive = attempt.alive()


async def give_back(scope: Scope, lock: Lock) -> None:
    """Also after an interruption; bounded, and never an error."""
    try:
        with contextlib.suppress(FleetstopError, TimeoutError):
            async with asyncio.timeout(5.0):
                await lock.release(lock.alive)
    except Exception as exc:
        # a bug here must not take the place of what became of the job
        scope.fault(exc)


def _finish(scope: Scope, outcome: Outcome, started: float) -> Outcome:
    seconds = round(scope.clock.now() - started, 3)
    outcome = msgspec.structs.replace(outcome, seconds=seconds, cost=scope.cost())
    scope.teller.tell(events.TargetFinished, outcome=outcome)
    return outcome
