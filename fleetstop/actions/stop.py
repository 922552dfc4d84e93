"""Stop one target: find it, take the lock, climb the ladder, prove the end, say what became."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import msgspec
from msgspec import Struct

from fleetstop import events
from fleetstop.actions import refusals, verify
from fleetstop.actions.climb import Climb
from fleetstop.actions.locate import Scene, families_with, locate
from fleetstop.actions.lock import Lock
from fleetstop.actions.present import (
    above,
    blind,
    first_judgement,
    gaps,
    gpu_records,
    gpu_strangers,
    located,
    members,
    newest_record,
    outcome_of,
    promises,
)
from fleetstop.actions.returned import came_back
from fleetstop.actions.saved import checkpoint
from fleetstop.actions.telling import Scope
from fleetstop.core.family import Family, standing
from fleetstop.core.ladder import End, Ladder, begin
from fleetstop.core.ledger import heard_before, holder
from fleetstop.core.plan import plan
from fleetstop.core.playbook import Playbook
from fleetstop.core.redact import command
from fleetstop.core.report import Outcome, Result, SkippedRecord
from fleetstop.core.rungs import Consent, choose_stop_signal
from fleetstop.core.verdict import Judged
from fleetstop.errors import CouldNotLook, FleetstopError, Refused


class Wish(Struct, frozen=True):
    """What was asked: the playbook, consent, and a stop signal named on the command line."""

    playbook: Playbook
    consent: Consent
    graceful: bool = False
    signal: str | None = None
    dry_run: bool = False


async def stop(scope: Scope, wish: Wish) -> Outcome:
    """Never raises for what a job or a host can do: that is the outcome. A bug is raised."""
    started = scope.clock.now()
    attempt = _Attempt(scope, wish)
    try:
        outcome = await attempt.run()
    except Refused as exc:
        outcome = attempt.outcome(
            "refused", reason=exc.message, hint=exc.hint, evidence=exc.evidence
        )
    except CouldNotLook as exc:
        outcome = attempt.outcome(
            "unreachable",
            reason=exc.message,
            hint=exc.hint,
            verdict=blind(exc),
            evidence=(exc.message,),
        )
    except asyncio.CancelledError:
        outcome = await attempt.interrupted()
        _finish(scope, outcome, started)
        raise
    except Exception as exc:
        # a bug is this target's outcome; what was sent by then must not be lost with it
        outcome = attempt.outcome("fault", **scope.fault(exc))
    finally:
        await attempt.let_go()
    return _finish(scope, outcome, started)


def _finish(scope: Scope, outcome: Outcome, started: float) -> Outcome:
    seconds = round(scope.clock.now() - started, 3)
    outcome = msgspec.structs.replace(outcome, seconds=seconds, cost=scope.cost())
    scope.teller.tell(events.TargetFinished, outcome=outcome)
    return outcome


def _seen(family: Family, judged: Judged) -> dict[str, object]:
    return {
        "verdict": judged.verdict,
        "evidence": judged.evidence,
        "family": members(family, judged),
    }


def _goodbye(family: Family) -> tuple[str, ...]:
    return tuple(f"{kin.pid} is gone" for kin in family.trainers)


class _Attempt:
    """One attempt, with what is known so far, so that every way out can tell it."""

    def __init__(self, scope: Scope, wish: Wish) -> None:
        self._scope = scope
        self._wish = wish
        self._lock = Lock(scope.place.host, scope.run, scope.target.vmid, scope.clock)
        self._scene: Scene | None = None
        self._family: Family | None = None
        self._climb: Climb | None = None
        self._gaps: tuple[str, ...] = ()

    async def run(self) -> Outcome:
        target = self._scope.target
        scene = self._scene = await locate(
            self._scope, gpus=self._wish.playbook.gpus_from == "nvidia-smi"
        )
        if not scene.running:
            return self.outcome("not_running", reason=f"container {target.vmid} is stopped")
        if not scene.found.families and scene.found.unclear is None:
            return self._nothing_found(scene)
        assert target.job is not None
        families = families_with(scene.found, target.job.match)
        refusals.ambiguous(target, scene.found, families)
        family = self._family = families[0]
        refusals.untouchable(target, family, scene.tree)
        ladder = await self._ladder(scene, family)
        self._climb = Climb(self._scope, scene, ladder, self._lock)
        self._scope.teller.tell(
            events.Located,
            **located(self._scope, scene, family, ladder, self._wish.graceful, self._wish.dry_run),
        )
        self._tell_gaps(scene, family)
        if self._wish.dry_run:
            return self._planned(scene, ladder)
        end = await self._climb.run()
        return await self._ended(scene, self._climb, end)

    def _tell_gaps(self, scene: Scene, family: Family) -> None:
        """What the inventory names and is not there, and what cannot be promised: told before
        anything rests on it."""
        said = (*gaps(self._scope, scene), *promises(scene, family))
        self._gaps = tuple(self._scope.teller.finding(each) for each in said)

    def _nothing_found(self, scene: Scene) -> Outcome:
        name = self._scope.target.name
        if scene.found.leftovers:
            names = ", ".join(f"{p.pid} {command(p.argv or ())}" for p in scene.found.leftovers)
            return self.outcome(
                "unclean",
                reason=f"between_lives: no trainer runs, but what would start one does: {names}",
                hint=f"look again with: fleetstop status {name}",
            )
        strangers, job = gpu_strangers(scene), self._scope.target.job
        if strangers and job is not None and self._scope.target.job_name is None:
            raise refusals.mistyped(job.match, strangers)
        reason = "nothing matches, and no launcher names it"
        if strangers:
            reason += f"; but {strangers} holds a GPU here: is it the job under another name?"
        return self.outcome("not_running", reason=reason)

    async def _ladder(self, scene: Scene, family: Family) -> Ladder:
        """Takes the lock and reads what the trainers have heard; a dry run only reads."""
        if self._wish.dry_run:
            ledger = await self._lock.read()
            other = holder(ledger)
            if other is not None:
                raise self._lock.locked(other, ledger)
        else:
            ledger = await self._lock.claim()
        job = self._scope.target.job
        signal = self._wish.signal or (job.stop_signal if job else None)
        if signal is None:
            signal = choose_stop_signal(family, scene.tree)
        if signal is None and any(r.signal == "stop_signal" for r in self._wish.playbook.ladder):
            raise refusals.both_heard(family)
        return begin(
            self._wish.playbook,
            family,
            stop_signal=signal or "INT",
            consent=self._wish.consent,
            past=heard_before(ledger, family.ids),
        )

    def _planned(self, scene: Scene, ladder: Ladder) -> Outcome:
        steps = plan(ladder, scene.tree)
        self._scope.teller.tell(events.Planned, steps=steps)
        reachable = any(step.would != "skip" for step in steps)
        reason = None if reachable else "nothing on this ladder would be sent"
        return self.outcome("planned", plan=steps, reason=reason)

    async def _ended(self, scene: Scene, climb: Climb, end: End) -> Outcome:
        match end.how:
            case "gone":
                return await self._prove(scene, climb, None)
            case "refused":
                return self.outcome("refused", reason=end.reason)
            case "leftover":
                return await self._prove(scene, climb, end.reason)
            case _:
                return self.outcome("still_running", reason=end.reason)

    async def _prove(self, scene: Scene, climb: Climb, leftover: str | None) -> Outcome:
        """Saved, free, and nothing came back; with a leftover nobody waits for its GPUs."""
        within = 0.0 if leftover else self._wish.playbook.verify.within_s
        saved = await checkpoint(self._scope, scene, climb)
        free = await verify.gpus(self._scope, scene, climb, within)
        # asked last: a supervisor needs its time to start the job again
        back = await came_back(self._scope, scene, climb)
        problems = [each for each in (leftover, back.problem, saved.problem, free.problem) if each]
        result: Result = "unclean" if problems else "stopped"
        ended: dict[str, Any] = (
            {} if leftover else {"verdict": "gone", "evidence": _goodbye(climb.family)}
        )
        if back.again:
            ended = {"verdict": "respawned", "evidence": _goodbye(climb.family)}
        return self.outcome(
            result,
            **ended,
            reason="; ".join(problems) or None,
            findings=(*self._gaps, *climb.doubts, *saved.findings, *back.findings, *free.findings),
            checkpoint=saved.record,
            gpus=free.gpus if free.gpus is not None else (),
        )

    def outcome(self, result: Result, *, hint: str | None = None, **facts: object) -> Outcome:
        """An outcome with everything known by now; `facts` win."""
        return outcome_of(self._scope.target, result, hint=hint, **{**self._known(), **facts})

    def _known(self) -> dict[str, object]:
        climb, scene, family = self._climb, self._scene, self._family
        known: dict[str, object] = {}
        if scene is not None and family is not None:
            judged = first_judgement(self._scope, scene, family, None)
            known |= _seen(family, judged)
            known |= {"gpus": gpu_records(scene, family), "checkpoint": newest_record(scene)}
            known["above"] = above(scene, family)
        known["findings"] = self._gaps
        if climb is not None and climb.judged is not None:
            known |= _seen(climb.family, climb.judged)
            known |= {
                "signals": climb.signals,
                "skipped": tuple(SkippedRecord(s.signal, s.reason) for s in climb.ladder.skipped),
                "findings": (*self._gaps, *climb.doubts),
            }
        return known

    async def interrupted(self) -> Outcome:
        """Tells what was sent and what still runs, from the last look; sends nothing."""
        climb = self._climb
        sent = [
            f"{each.signal} to {', '.join(map(str, each.pids))}"
            for each in (climb.signals if climb else ())
        ]
        alive = standing(climb.family, climb.look.tree) if climb else ()
        running = tuple(kin.pid for kin in alive)
        self._scope.teller.tell(events.Interrupted, sent=tuple(sent), running=running)
        result: Result = "still_running" if climb else "refused"
        said = f"interrupted; sent: {', '.join(sent) or 'nothing'}; the job may still finish"
        return msgspec.structs.replace(self.outcome(result, reason=said), interrupted=True)

    async def let_go(self) -> None:
        """Gives the lock back, also after an interruption; bounded, and never an error."""
        alive = None
        if self._climb is not None:
            processes = self._climb.look.tree.processes.values()
            alive = frozenset(each.id for each in processes if each.alive)
        try:
            with contextlib.suppress(FleetstopError, TimeoutError):
                async with asyncio.timeout(5.0):
                    await self._lock.release(alive)
        except Exception as exc:
            # a bug here must not take the place of what became of the job
            self._scope.fault(exc)
