"""Wait for something to become true of a job: sends nothing, takes no lock, decides nothing."""

from __future__ import annotations

import asyncio
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from fleetstop import events
from fleetstop.actions import aims
from fleetstop.actions.locate import locate
from fleetstop.actions.present import failed, gaps, located, outcome_of
from fleetstop.actions.reconnect import ReconnectingPlace
from fleetstop.actions.refusals import describe
from fleetstop.actions.snapshots import snapshot
from fleetstop.actions.telling import Scope
from fleetstop.actions.vigil import Vigil
from fleetstop.core.report import Outcome
from fleetstop.errors import CouldNotLook, Refused

What: TypeAlias = Literal["gone", "checkpoint", "gpu-free", "healthy"]


class Aim(Struct, frozen=True):
    """`until`: the clock's seconds at which it gives up, None: never; `limit_s` for people."""

    what: What = "gone"
    until: float | None = None
    limit_s: float | None = None


async def wait(scope: Scope, aim: Aim) -> Outcome:
    """Result not_running or running where it was reached; still_running where it was not and a
    trainer was alive last, unclean where none was; unreachable where it could not look."""
    started = scope.clock.now()
    aim = _limited(scope, aim, started)
    place = ReconnectingPlace(
        scope.place, scope.target.host.name, scope.clock, scope.teller, aim.until
    )
    scope = msgspec.structs.replace(scope, place=place)
    vigil = Vigil(scope, aim.until)
    try:
        outcome = await _wait(scope, aim, vigil)
    except (Refused, CouldNotLook) as exc:
        outcome = vigil.outcome(**failed(exc))
    except asyncio.CancelledError:
        alive = tuple(kin.pid for kin in vigil.standing)
        scope.teller.tell(events.Interrupted, sent=(), running=alive)
        result: Literal["still_running", "refused"] = "still_running" if alive else "refused"
        outcome = vigil.outcome(result, reason="interrupted")
        _finish(scope, msgspec.structs.replace(outcome, interrupted=True), vigil, started)
        raise
    return _finish(scope, outcome, vigil, started)


def _limited(scope: Scope, aim: Aim, now: float) -> Aim:
    """A health check that waits for a line of the log brings its own limit."""
    check = scope.target.job.healthcheck if scope.target.job is not None else None
    unlimited = aim.what == "healthy" and aim.until is None
    if not unlimited or check is None or check.log_matches is None:
        return aim
    return Aim(what=aim.what, until=now + check.within_s, limit_s=check.within_s)


def _finish(scope: Scope, outcome: Outcome, vigil: Vigil, started: float) -> Outcome:
    if vigil.family is not None:
        snapshot(scope, "end", vigil.family, vigil.tree, vigil.judged)
    seconds = round(scope.clock.now() - started, 3)
    outcome = msgspec.structs.replace(outcome, seconds=seconds, cost=scope.cost())
    scope.teller.tell(events.TargetFinished, outcome=outcome)
    return outcome


async def _wait(scope: Scope, aim: Aim, vigil: Vigil) -> Outcome:
    scene = await locate(scope)
    if not scene.running:
        reason = f"container {scope.target.vmid} is stopped"
        if aim.what in ("gone", "gpu-free"):
            return outcome_of(scope.target, "not_running", reason=reason)
        return outcome_of(scope.target, "unclean", reason=f"not_reached: {reason}")
    _only_one(scope, scene.found.unclear, [describe(each) for each in scene.found.families])
    vigil.begin(scene)
    if vigil.family is not None:
        scope.teller.tell(events.Located, **located(scope, scene, vigil.family, None, False, False))
        snapshot(scope, "found", vigil.family, vigil.tree, vigil.judged)
        for text in gaps(scope, scene):  # what is not there may be waited for without end
            vigil.say(text)
    scope.teller.tell(events.Waiting, what=aim.what, limit_s=aim.limit_s)
    match aim.what:
        case "gone":
            return await aims.gone(vigil)
        case "checkpoint":
            return await aims.checkpoint(vigil, scene)
        case "gpu-free":
            return await aims.gpu_free(vigil, scene)
        case "healthy":
            return await aims.healthy(vigil, scene)


def _only_one(scope: Scope, unclear: str | None, trees: list[str]) -> None:
    """As a stop finds its job: one tree, or it is asked which."""
    job = scope.target.job
    if unclear is not None:
        raise Refused(unclear, hint="say which in the inventory: trainers: leaves (or: all)")
    if len(trees) > 1 and not (job is not None and job.match.all):
        raise Refused(
            f"{len(trees)} unrelated trees match",
            evidence=tuple(trees),
            hint="name one with --pid, or set `all: true` in its match",
        )
