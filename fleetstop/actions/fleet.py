"""Many targets at once: bounded, and one's failure never hurts another's."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

import msgspec
from msgspec import Struct

from fleetstop import events
from fleetstop.actions.present import outcome_of
from fleetstop.actions.telling import Run, Scope, Teller
from fleetstop.core.durations import spoken
from fleetstop.core.inventory import Target
from fleetstop.core.report import Outcome, Result, exit_code_of
from fleetstop.errors import FleetstopError, HostUnreachable, Refused
from fleetstop.events import AnyEvent, Emit
from fleetstop.ports import Clock, Place

Action: TypeAlias = Callable[[Scope], Awaitable[Outcome]]
Opening: TypeAlias = Callable[[Target], Awaitable[Place]]
Turn: TypeAlias = Callable[[Target], asyncio.Semaphore]
Allowed: TypeAlias = Callable[[Target], None]


def _place(target: Target) -> tuple[object, ...]:
    return target.host.ssh, target.host.port, target.vmid


class Rolling(Struct, frozen=True):
    """`batch`: so many are begun, the next ones once all of those have ended; None: no such steps.
    `max_failures`: once so many have failed, no more is begun; None: whatever becomes of them."""

    batch: int | None = None
    max_failures: int | None = None


def anything(target: Target) -> None:
    """Every target may be looked at."""


class Crew:
    """Runs one action on every target."""

    def __init__(
        self,
        run: Run,
        clock: Clock,
        emit: Emit,
        opening: Opening,
        turn: Turn,
        log_fault: Callable[[str], str | None],
        parallel: int = 20,
        limit_s: float | None = None,
        rolling: Rolling | None = None,
    ) -> None:
        self._run = run
        self._clock = clock
        self._emit = emit
        self._opening = opening
        self._turn = turn
        self._log_fault = log_fault
        self._limit_s = limit_s
        self._parallel = asyncio.Semaphore(parallel)
        self._allowed: Allowed = anything
        self._done: dict[str, Outcome] = {}
        self._begun: set[str] = set()
        self._alone: dict[tuple[object, ...], asyncio.Semaphore] = {}
        self._rolling = rolling or Rolling()
        self._failures = 0

    async def run_all(
        self,
        targets: Sequence[Target],
        action: Action,
        allowed: Allowed = anything,
        *,
        exclusive: bool = False,
    ) -> list[Outcome]:
        """`allowed` raises Refused for a target that is not even to be connected to.

        `exclusive`: jobs of one container one after the other, since its lock is one.
        """
        self._allowed = allowed
        alone = {_place(each): asyncio.Semaphore(1 if exclusive else 100) for each in targets}
        self._alone = alone
        step = self._rolling.batch or max(1, len(targets))
        told: list[Outcome] = []
        for at in range(0, len(targets), step):
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self._one(target, action))
                    for target in targets[at : at + step]
                ]
            told += [task.result() for task in tasks]
        return told

    def so_far(self, targets: Sequence[Target]) -> list[Outcome]:
        """After an interruption: what became of each; those that never began are interrupted."""
        told = []
        for each in targets:
            outcome = self._done.get(each.name)
            if outcome is None:
                begun = each.name in self._begun
                reason = "interrupted" if begun else "interrupted before it began"
                outcome = outcome_of(each, "refused", reason=reason)
                outcome = msgspec.structs.replace(outcome, interrupted=True)
            told.append(outcome)
        return told

    def _keep(self, event: AnyEvent) -> None:
        if isinstance(event, events.TargetFinished):
            self._done[event.outcome.target] = event.outcome
            failed = exit_code_of(event.outcome) != 0
            self._failures += failed and event.outcome.target in self._begun
        self._emit(event)

    async def _one(self, target: Target, action: Action) -> Outcome:
        teller = Teller(target.name, self._keep, self._clock)
        started = self._clock.now()
        async with self._alone[_place(target)], self._turn(target), self._parallel:
            try:
                self._enough()
                self._begun.add(target.name)
                self._allowed(target)
                return await self._on_place(target, action, teller)
            except FleetstopError as exc:
                result: Result = "refused" if exc.exit_code == 5 else "unreachable"
                return self._failed(target, teller, result, exc.message, exc.hint, started)
            except Exception as exc:
                path = self._log_fault("".join(traceback.format_exception(exc)))
                error = f"{type(exc).__name__}: {exc}"
                teller.tell(events.Fault, error=error, traceback_path=path)
                hint = f"the traceback is in {path}" if path else ""
                text = f"a fault in fleetstop: {error}"
                return self._failed(target, teller, "fault", text, hint, started)

    def _enough(self) -> None:
        """Raises Refused where no more is to be begun."""
        most = self._rolling.max_failures
        if most is not None and self._failures >= most:
            raise Refused(
                f"not begun: {self._failures} failed before, and --max-failures is {most}",
                hint=f"once that is settled: --failed-in {self._run.id} takes up what is left",
            )

    async def _on_place(self, target: Target, action: Action, teller: Teller) -> Outcome:
        started = self._clock.now()
        limit = asyncio.timeout(self._limit_s)
        try:
            async with limit:
                place = await self._opening(target)
        except TimeoutError as exc:
            if not limit.expired():
                raise
            text = f"not connected within the --timeout of {spoken(self._limit_s or 0.0)}"
            raise HostUnreachable(f"{target.host.name}: {text}; nothing was sent") from exc
        except asyncio.CancelledError:
            outcome = self._outcome(target, "refused", "interrupted while connecting", "", started)
            outcome = msgspec.structs.replace(outcome, interrupted=True)
            teller.tell(events.TargetFinished, outcome=outcome)
            raise
        try:
            seconds = round(self._clock.now() - started, 3)
            teller.tell(events.Connected, host=target.host.name, seconds=seconds)
            until = None if self._limit_s is None else started + self._limit_s
            facts = (self._run, target, place, self._clock, teller, self._log_fault)
            return await action(Scope(*facts, limit_s=self._limit_s, until=until))
        finally:
            await self._close(place)

    async def _close(self, place: Place) -> None:
        """What fails here must not take the place of what became of the target."""
        try:
            await place.close()
        except Exception as exc:
            self._log_fault("".join(traceback.format_exception(exc)))

    def _failed(
        self,
        target: Target,
        teller: Teller,
        result: Result,
        reason: str,
        hint: str,
        started: float,
    ) -> Outcome:
        outcome = self._outcome(target, result, reason, hint, started)
        teller.tell(events.TargetFinished, outcome=outcome)
        return outcome

    def _outcome(
        self, target: Target, result: Result, reason: str, hint: str, started: float
    ) -> Outcome:
        blind = {"verdict": "unknown", "evidence": (reason,)} if result == "unreachable" else {}
        seconds = round(self._clock.now() - started, 3)
        return outcome_of(target, result, hint=hint, reason=reason, seconds=seconds, **blind)
