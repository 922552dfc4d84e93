"""What an earlier run has launched, and nobody saw whether it is well: looked at, and told."""

from __future__ import annotations

import msgspec

from fleetstop import events
from fleetstop.actions import hands
from fleetstop.actions.activating import Activation
from fleetstop.actions.coming_up import Rise
from fleetstop.actions.equipping import Equipment
from fleetstop.actions.lock import Lock
from fleetstop.actions.lots import Lot
from fleetstop.actions.present import outcome_of
from fleetstop.core.launching.activation import State
from fleetstop.core.launching.activator import ActivatorSpec
from fleetstop.core.launching.output import reads
from fleetstop.core.releases.tried import NAME, NEVER
from fleetstop.core.report import Outcome, ReleaseRecord, Result
from fleetstop.errors import CouldNotLook


async def confirm(lot: Lot, needs: Equipment, state: State, lock: Lock) -> Outcome:
    """`redeployed` or `unhealthy`; nothing is started, ended or brought back."""
    scope, old = lot.scope, state.step == "rolled_back"
    needs.goes_on_from(state.checkpoint)
    # what came back was not asked for what the new version is
    runs = needs.old if old and needs.old is not None else needs.new
    expected = (needs.expected_old if old else None) or needs.expected
    spec = ActivatorSpec(
        run=state.run,
        base=lot.base,
        dest=lot.dest,
        launch=runs.spec,
        launch_old=runs.spec if old else None,
        release=None if old else state.running,
        before=state.running if old else None,
        log=runs.spec.log,
        reads=reads(runs.reads, runs.reads),
    )
    activation = Activation(scope, spec, lot.python, {}, scope.place.hands)
    rise = Rise(scope, activation)
    grown = await rise.watch(expected, _as_launched(state), lock.stamp, old=old)
    if grown is None or grown.health.state != "unknown":
        # whoever asks the same once more means it
        await activation.order("done")
    record = ReleaseRecord(id=state.running, before=state.before, running=state.running)
    facts = {**rise.facts(), "release": record}
    if grown is not None and grown.health.state == "healthy":
        scope.teller.tell(
            events.Healthy, pids=grown.trainers, by=grown.health.why, seconds=grown.seconds,
            old=old,
        )  # fmt: skip
        if state.release == state.running or needs.as_kept(state.running, runs):
            await _noted(lot, state.running)
        reason = f"run {state.run} had launched it; it is healthy"
        done: Result = "redeployed" if lot.files else "running"
        return outcome_of(scope.target, done, reason=reason, **facts)
    why = rise.why(grown, old=old)
    last = grown.last if grown is not None else ()
    scope.teller.tell(events.Unhealthy, why=why, log=last, old=old)
    if grown is not None and grown.health.state == "unknown":
        reason = f"whether it is healthy could not be seen: {'; '.join(why)}"
        blind = {"verdict": "unknown", "evidence": (reason,)}
        return outcome_of(scope.target, "unreachable", reason=reason, **{**facts, **blind})
    reason = f"{'; '.join(why)}; run {state.run} had launched it, and it is left as it is"
    hint = lot.back(runs=grown is not None and grown.family is not None)
    return outcome_of(scope.target, "unhealthy", reason=reason, hint=hint, **facts)


async def _noted(lot: Lot, release: str | None) -> None:
    """Beside the release, as its activator would have done: it is one to go back to."""
    if release is None or release not in lot.ground.releases:
        return
    known = lot.ground.tried.get(release, NEVER)
    told = msgspec.structs.replace(known, healthy=lot.scope.clock.wall())
    path, text = f"{lot.base}/releases/{release}/{NAME}", msgspec.json.encode(told).decode()
    try:
        shell = await lot.scope.place.hands()
        await hands.surely(lot.scope, lambda: hands.put(shell, path, text, "600"))
    except CouldNotLook as exc:
        lot.finding(f"that release {release} is healthy was not noted: {exc.message}")


def _as_launched(state: State) -> State:
    """As it stood before its activator's end: of that nothing is taken over."""
    return State(
        run=state.run,
        step="launched",
        release=state.release,
        before=state.before,
        activator=state.activator,
        trainer=state.trainer,
        running=state.running,
        log_rotated="",  # all that its log holds may be of this run
    )
