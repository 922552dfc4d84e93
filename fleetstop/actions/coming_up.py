"""Each start of one launch: watched, told, and kept as the report will say it."""

from __future__ import annotations

from typing import Any

import msgspec

from fleetstop import events
from fleetstop.actions import looks, reading
from fleetstop.actions.activating import Activation
from fleetstop.actions.present import above, seen
from fleetstop.actions.telling import Scope
from fleetstop.actions.watching import LAST_LINES, Grown, Stamp, Watch
from fleetstop.core import redact
from fleetstop.core.above.supervisors import Notes
from fleetstop.core.launching.activation import Started, State
from fleetstop.core.launching.ended import Record, started_as, way_of
from fleetstop.core.launching.health import Expected
from fleetstop.core.report import HealthCheck, HealthRecord
from fleetstop.core.verdict import Look, judge


class Rise:
    """`pids`: the trainers seen last."""

    def __init__(self, scope: Scope, activation: Activation) -> None:
        self._scope, self._activation = scope, activation
        self._sizes: dict[str, int] = {}
        self._records: list[HealthRecord] = []
        self._family: dict[str, Any] = {}
        self.pids: tuple[int, ...] = ()

    async def mark_log(self) -> None:
        """What the logs hold by now is not of what is started next."""
        spec = self._activation.spec
        for log in {spec.read_by(old=False), spec.read_by(old=True)} - {None}:
            assert log is not None
            try:
                tail = await reading.log(await self._scope.place.files(), log)
            except looks.NOT_ENTERED:
                return  # whether it can be read is seen, and told, by the watch
            self._sizes[log] = tail.size if tail is not None else 0

    def _begin(self, log: str | None, started: Started | None, *, rotated: bool) -> int:
        """Where its own part begins: by whoever started it, else as it was seen before that."""
        if started is not None and started.log_from is not None:
            return started.log_from
        return 0 if rotated or log is None else self._sizes.get(log, 0)

    async def watch(
        self, expected: Expected, state: State, stamp: Stamp, *, old: bool = False
    ) -> Grown | None:
        """None: the activator started nothing, or has seen it end before we looked."""
        if state.trainer is None:
            return None
        spec, trainer = self._activation.spec, state.trainer
        launch = spec.launch_old if old else spec.launch
        if state.step not in ("rolling_back", "rolled_back", "unhealthy") or old:
            self._scope.teller.tell(
                events.Launched, pid=trainer.pid, release=spec.before if old else spec.release,
                cmd=redact.command(launch.argv if launch is not None else expected.argv),
                within_s=expected.within_s, old=old,
            )  # fmt: skip
        elif not old:
            return None  # what it names now is the version before
        mark = {"FLEETSTOP_MARK": trainer.mark} if trainer.mark else {}
        expected = msgspec.structs.replace(expected, env={**expected.env, **mark})
        log, rotated = spec.read_by(old=old), state.log_rotated is not None and not old
        begin = self._begin(log, trainer, rotated=rotated)
        watch = Watch(self._scope, self._activation, expected, trainer, log, begin, old=old)
        grown = await watch.until_known(stamp)
        self._keep(grown, expected, spec.before if old else spec.release)
        return grown

    async def missed(self, why: tuple[str, ...]) -> tuple[str, ...]:
        """It ended before we looked: what is left of it is its end, and the log as it is now."""
        spec, state = self._activation.spec, self._activation.state
        rotated = state is not None and state.log_rotated is not None
        log = spec.read_by(old=False)
        last: tuple[str, ...] = ()
        if log is not None:
            # whom the state names by now may be the version before
            begin = self._begin(log, None, rotated=rotated)
            end = state.log_end if state is not None else None
            part = await reading.log_since(self._scope.place, log, begin, end)
            lines = [each for each in (part.lines if part else ()) if each.strip()]
            last = tuple(redact.text(each, 300) for each in lines[-LAST_LINES:])
        self._records.append(
            HealthRecord(
                state="unhealthy",
                release=spec.release,
                checks=tuple(HealthCheck("alive", False, each) for each in why),
                exit=state.exit if state is not None else None,
                signal=state.signal if state is not None else None,
                log=last,
            )
        )
        return last

    def _keep(self, grown: Grown, expected: Expected, release: str | None) -> None:
        record, state = grown.record, grown.health.state
        bad = grown.given_up or state == "unhealthy"
        ended = record if record is not None and record.ended_at is not None else Record(mark="")
        self._records.append(
            HealthRecord(
                state="unhealthy" if bad else "healthy" if state == "healthy" else "unknown",
                release=release,
                checks=grown.health.checks,
                exit=ended.exit,
                signal=ended.signal,
                log=grown.last if bad else (),
            )
        )
        self.pids = grown.trainers
        self._family = {}
        if grown.family is not None:
            look = Look(at=self._scope.clock.now(), tree=grown.tree)
            signals = (expected.stop_signal,) if expected.stop_signal else ("INT", "TERM")
            judged = judge(None, look, grown.family, stop_signals=signals, checkpoints=None)
            # what stood above the old one has gone, and what that held says nothing of this one
            stands = above(grown.tree, grown.family, Notes())
            self._family = {**seen(grown.family, judged), "above": stands, "gpus": None}

    def why(self, grown: Grown | None, *, old: bool = False) -> tuple[str, ...]:
        """Why it is not healthy, a sentence each; by the activator's word where none was seen.
        `old`: it is the version before; what the activator tells is the new one's end."""
        if grown is not None and grown.health.state == "unhealthy":
            return grown.health.why
        if grown is not None and grown.record is not None and grown.record.ended_at is not None:
            how = way_of(self._argv(old), grown.record, grown.last)
            return (f"{started_as(self._argv(old))} ended: {how}",)
        state = self._activation.state if not old else None
        if state is not None and (state.exit is not None or state.signal is not None):
            if state.reason:
                return (state.reason,)  # with the last line of its log, as it was then
            how = way_of(self._argv(old), Record(mark="", exit=state.exit, signal=state.signal))
            return (f"{started_as(self._argv(old))} ended: {how}",)
        if state is not None and state.reason:
            return (state.reason,)
        if grown is not None and grown.health.why:
            return grown.health.why
        return ("why is not known: what works in the container told no reason",)

    def _argv(self, old: bool) -> tuple[str, ...]:
        spec = self._activation.spec
        launch = spec.launch_old if old else spec.launch
        return tuple(launch.argv) if launch is not None else ()

    def neither(self, expected: Expected) -> str:
        """What is to be said besides where both versions lack the same line in their logs."""
        bad = [{c.check for c in each.checks if c.ok is False} for each in self._records[-2:]]
        if expected.log_matches is None or len(bad) < 2 or not all("log" in each for each in bad):
            return ""
        return (
            f"; its log does not match {expected.log_matches!r} either: is healthcheck.log_matches "
            "wrong, or `within` too short?"
        )

    def facts(self) -> dict[str, Any]:
        """Of the outcome: who runs by the last look, and how each start did."""
        return {**self._family, "health": tuple(self._records) or None}
