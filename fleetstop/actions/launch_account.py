"""What is known of one launch so far, so that every way out can tell it. Does nothing about it."""

from __future__ import annotations

from typing import Any

from fleetstop import events
from fleetstop.actions.activating import Activation, Hands
from fleetstop.actions.coming_up import Rise
from fleetstop.actions.going_back import GoingBack
from fleetstop.actions.launch_plan import LaunchPlan
from fleetstop.actions.leaving import AGAIN, left_as, said_first
from fleetstop.actions.present import outcome_of
from fleetstop.actions.telling import Scope
from fleetstop.actions.watching import Grown
from fleetstop.core.launching.activation import State
from fleetstop.core.report import Outcome, ReleaseRecord, Result, SignalRecord


class Account:
    """`unwell`: why the new version is not healthy, once that is known."""

    def __init__(self, scope: Scope, plan: LaunchPlan, hands: Hands) -> None:
        self.scope, self.plan = scope, plan
        self.activation = Activation(scope, plan.spec, plan.python, plan.scripts, hands, plan.tools)
        self.rise = Rise(scope, self.activation)
        self.unwell: str | None = None
        self._findings: list[str] = []
        # of them what the activator told; it may tell otherwise by now
        self._noted: set[str] = set()
        self._facts: dict[str, Any] = {}
        self._ending: GoingBack | None = None

    @property
    def signals(self) -> tuple[SignalRecord, ...]:
        """To what ran before, and to what was started."""
        ending = self._ending.signals if self._ending is not None else ()
        return (*self._facts.get("signals", ()), *ending)

    def finding(self, text: str) -> None:
        self._findings.append(self.scope.teller.finding(text))

    def note(self, state: State) -> None:
        """What the activator has found so far."""
        for each in state.findings:
            self._noted.add(each)
            self.finding(each)

    def stopped_as(self, outcome: Outcome) -> None:
        names = ("signals", "skipped", "checkpoint", "gpus", "above")
        self._facts = {name: getattr(outcome, name) for name in names}
        self._findings += outcome.findings

    def cut_short(self, why: str, **facts: Any) -> Outcome:
        """The watching ends early. What is known to have failed has failed; what follows is up to
        who works in the container, and is not seen. `facts`: of an outcome in which it is not."""
        state = self.activation.state
        why = self._typed_again(why)
        if hint := facts.get("hint"):
            facts["hint"] = self._typed_again(hint)
        if self.unwell is None and not (state is not None and state.step in _FAILED):
            return self.outcome(**{**facts, "reason": why}) if facts else self.undecided(why)
        said = self.unwell or (state.reason if state is not None else None) or "it was not well"
        back = state is not None and state.step == "rolled_back" and state.trainer is not None
        reason = f"{said}; {why}"
        blind: dict[str, Any] = {"verdict": "unknown", "evidence": (reason,)}
        hint = self.scope.run.typed("status", self.scope.target.name)
        result: Result = "rolled_back" if back else "unhealthy"
        return self.outcome(result, reason=reason, hint=hint, **blind)

    def _typed_again(self, text: str) -> str:
        """With what the same command needs to work as it is typed, where one is told to type it."""
        asked = self.activation.started and AGAIN in text
        return f"{text}{said_first(self.scope.target.job, self.plan.spec)}" if asked else text

    def undecided(self, why: str, grown: Grown | None = None) -> Outcome:
        """Started, and whether it is well could not be seen, or not in time."""
        pids = ", ".join(map(str, grown.trainers)) if grown is not None else ""
        what = f"started as {pids}, but whether it is healthy could not be seen: " if pids else ""
        reason = f"{what}{why}"
        hint = self.scope.run.typed("status", self.scope.target.name)
        blind: dict[str, Any] = {"verdict": "unknown", "evidence": (reason,)}
        return self.outcome("unreachable", reason=reason, hint=hint, **blind)

    def outcome(self, result: Result, *, hint: str | None = None, **facts: object) -> Outcome:
        """An outcome with everything known by now; `facts` win."""
        spec, state = self.plan.spec, self.activation.state
        running = state.running if state is not None else None
        doubts = self._ending.doubts if self._ending is not None else ()
        last = state.findings if state is not None else tuple(self._noted)
        own = [each for each in self._findings if each not in self._noted or each in last]
        told = (*own, *doubts, *last)
        known: dict[str, Any] = {
            **self._facts,
            **self.rise.facts(),
            "signals": self.signals,
            "findings": tuple(dict.fromkeys(told)),
            "release": ReleaseRecord(id=spec.release, before=spec.before, running=running),
        }
        return outcome_of(self.scope.target, result, hint=hint, **{**known, **facts})

    def interrupted(self, stopping: Outcome | None = None) -> Outcome:
        """What is left; what only waits for us is told to leave by `let_go`. `stopping`: what the
        stop was interrupted in, which has told so itself."""
        if stopping is not None:
            self.stopped_as(stopping)
        state = self.activation.state
        said = f"interrupted; {left_as(self.activation)}"
        said = said if AGAIN in said else f"{said}; {AGAIN}: it goes on"
        if self.activation.dead or (state is not None and state.step in ("unhealthy", "failed")):
            said = self._typed_again(said)  # else what goes on sees to it that something runs
        sent = [f"{each.signal} to {', '.join(map(str, each.pids))}" for each in self.signals]
        if stopping is None:
            self.scope.teller.tell(events.Interrupted, sent=tuple(sent), running=self.rise.pids)
            return self.outcome("refused", reason=said, interrupted=True)
        known: dict[str, Any] = {"family": stopping.family, "verdict": stopping.verdict}
        return self.outcome(stopping.result, reason=said, interrupted=True, **known)


_FAILED = ("rolling_back", "rolled_back", "unhealthy")
