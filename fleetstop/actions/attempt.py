"""One attempt at stopping: find it, hold the lock, climb the ladder, prove the end."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from fleetstop import events
from fleetstop.actions import refusals, verify
from fleetstop.actions.asking import Desk, signal_said, terms_of, unsaid
from fleetstop.actions.awaiting import activators, at_work
from fleetstop.actions.claiming import AGED_S, takable, taken
from fleetstop.actions.climb import Climb
from fleetstop.actions.locate import Scene, families_with, locate
from fleetstop.actions.lock import Lock
from fleetstop.actions.present import (
    above,
    failed,
    first_judgement,
    gaps,
    gpu_records,
    gpu_strangers,
    left_behind,
    located,
    newest_record,
    outcome_of,
    promises,
    saves_nowhere,
    seen,
)
from fleetstop.actions.returned import Returned, came_back
from fleetstop.actions.saved import checkpoint
from fleetstop.actions.snapshots import snapshot
from fleetstop.actions.standing_down import foreseen, stood_down
from fleetstop.actions.telling import Scope
from fleetstop.core.above.supervisors import standing_above
from fleetstop.core.climbing.consent import Consent, Terms
from fleetstop.core.climbing.requests import fillings
from fleetstop.core.durations import spoken
from fleetstop.core.kin.family import Family, standing
from fleetstop.core.ladder import End, Ladder, begin
from fleetstop.core.ledger import heard_before
from fleetstop.core.plan import plan
from fleetstop.core.playbook import Playbook, filled_ladder
from fleetstop.core.process import ProcessId
from fleetstop.core.redact import brief
from fleetstop.core.report import Outcome, Result, SkippedRecord
from fleetstop.errors import LockTaken

AGAIN = "run the same command again: it watches on and repeats nothing"


class Wish(Struct, frozen=True):
    """What was asked: the playbook, consent with its terms, and a stop signal named on the
    command line."""

    playbook: Playbook
    consent: Consent
    terms: Terms = Terms()
    graceful: bool = False
    signal: str | None = None
    dry_run: bool = False
    break_lock: bool = False


def _goodbye(family: Family, back: Returned) -> dict[str, Any]:
    """What the trainers are by now: gone, dead and not reaped, or back under a new identity."""
    if back.again:
        return {"verdict": "respawned", "evidence": back.evidence}
    if back.unreaped:
        return {"verdict": "zombie", "evidence": back.unreaped}
    whom = family.trainers or family.members
    return {"verdict": "gone", "evidence": tuple(f"{kin.pid} is gone" for kin in whom)}


class Attempt:
    """One attempt, with what is known so far, so that every way out can tell it."""

    def __init__(self, scope: Scope, wish: Wish, desk: Desk, lock: Lock) -> None:
        self._scope = scope
        self._wish = wish
        self._desk = desk
        self._said: str | None = None
        self._lock = lock
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
            return await self.run() if await self._stood_down(scene) else self._nothing_found(scene)
        assert target.job is not None
        families = families_with(scene.found, target.job.match)
        refusals.ambiguous(self._scope.run, target, scene.found, families)
        family = self._family = families[0]
        refusals.untouchable(target, family, scene.tree)
        refusals.checkpoints_file(target, scene.listing, self._wish.playbook.hold)
        signal = self._wish.signal or target.job.stop_signal or self._said
        signal = signal or unsaid(family, scene.tree, self._wish.playbook)
        if signal is None:
            self._said = await signal_said(self._desk, self._scope, family, self._wish.dry_run)
            return await self.run()  # that took its time: everything is looked at anew
        since, had = self._scope.clock.now(), self._lock.claimed
        ladder = await self._ladder(scene, family, signal)
        if not had and self._scope.clock.now() - since > AGED_S:
            return await self.run()
        # once each has heard one they leave, whatever is refused now
        if not all(kin.id in ladder.past for kin in family.trainers):
            wish, nowhere = self._wish, saves_nowhere(scene, family)
            refusals.checkpoints_closed(target, nowhere, wish.consent, wish.playbook)
        if await self._stood_down(scene):
            return await self.run()
        self._climb = Climb(self._scope, scene, ladder, self._lock, self._desk)
        self._scope.teller.tell(
            events.Located,
            **located(self._scope, scene, family, ladder, self._wish.graceful, self._wish.dry_run),
        )
        self.keep("found")
        self._tell_gaps(scene, family)
        if self._wish.dry_run:
            return self._planned(scene, ladder)
        end = await self._climb.run()
        return await self._ended(scene, self._climb, end)

    async def _stood_down(self, scene: Scene) -> bool:
        """Nobody is left who would start the job anew; a redeploy's own activator is meant to."""
        if self._lock.before is not None:
            return False
        family = self._family if scene.found.families else None
        who = await at_work(self._scope, scene.tree, family)
        if who is None:
            other = next(activators(scene.tree), None) if family is None else None
            if other is not None and self._scope.target.job_name is None:
                raise refusals.about_to_start(*other)
            return False
        if self._wish.dry_run:
            self._gap(foreseen(who))
            return False
        await taken(self._lock, self._wish.break_lock, self._gap)
        return await stood_down(self._scope, who, self._gap)

    def _tell_gaps(self, scene: Scene, family: Family) -> None:
        """What the inventory names and is not there, and what cannot be promised: told before
        anything rests on it."""
        said = (*gaps(self._scope, scene), *promises(scene, family))
        self._gaps += tuple(self._scope.teller.finding(each) for each in said)

    def _nothing_found(self, scene: Scene) -> Outcome:
        name = self._scope.target.name
        if scene.found.leftovers:
            names = ", ".join(f"{p.pid} {brief(p.argv or ())}" for p in scene.found.leftovers)
            return self.outcome(
                "unclean",
                reason=f"between_lives: no trainer runs, but what would start one does: {names}",
                hint=f"look again with: {self._scope.run.typed('status', name)}",
            )
        strangers, job = gpu_strangers(scene), self._scope.target.job
        if strangers and job is not None and self._scope.target.job_name is None:
            raise refusals.mistyped(job.match, strangers)
        reason = "nothing matches, and no launcher names it"
        if strangers:
            reason += f"; but {strangers} holds a GPU here: is it the job under another name?"
        return self.outcome("not_running", reason=reason + left_behind(scene))

    async def _ladder(self, scene: Scene, family: Family, signal: str) -> Ladder:
        """Takes the lock and reads what the trainers have heard; a dry run only reads."""
        take = takable if self._wish.dry_run else taken
        ledger = await take(self._lock, self._wish.break_lock, self._gap)
        job = self._scope.target.job
        book = self._wish.playbook
        values = fillings(scene.tree, family, self._scope.target.name)
        return begin(
            msgspec.structs.replace(book, ladder=filled_ladder(book.ladder, values)),
            family,
            stop_signal=signal,
            consent=self._wish.consent,
            past=heard_before(ledger, family.ids),
            terms=terms_of(self._wish.terms, job, self._desk, self._wish.dry_run),
            tmux=bool(job and job.match.tmux),
            checkpoints=bool(job and job.checkpoints),
            above=standing_above(scene.tree, family, scene.notes),
        )

    def _gap(self, text: str) -> None:
        self._gaps += (self._scope.teller.finding(text),)

    def _planned(self, scene: Scene, ladder: Ladder) -> Outcome:
        judged = first_judgement(self._scope, scene, ladder.family, ladder)
        steps = plan(ladder, scene.tree, risk=scene.risk, verdict=judged.verdict)
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
        problems = [e for e in (leftover, back.problem, saved.problem, free.problem) if e]
        result: Result = "unclean" if problems else "stopped"
        ended = {} if leftover and not back.again else _goodbye(climb.family, back)
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
            known |= seen(family, judged)
            known |= {"gpus": gpu_records(scene, family), "checkpoint": newest_record(scene)}
            known["above"] = above(scene.tree, family, scene.notes)
        known["findings"] = self._gaps
        if climb is not None and climb.judged is not None:
            known |= seen(climb.family, climb.judged)
            known |= {
                "signals": climb.signals,
                "skipped": tuple(SkippedRecord(s.signal, s.reason) for s in climb.ladder.skipped),
                "findings": (*self._gaps, *climb.doubts, *climb.judged.findings),
            }
        return known

    def gave_up(self) -> Outcome:
        """The time that was given is over: only the watching ends; nothing more is sent."""
        limit = f"the --timeout of {spoken(self._scope.limit_s or 0.0)} is over"
        climb = self._climb
        if climb is None:
            reason = f"{limit} before the job was found; nothing was sent"
            return self.outcome("unreachable", reason=reason, verdict="unknown", evidence=(reason,))
        alive = standing(climb.family, climb.look.tree)
        if any(kin.role == "trainer" for kin in alive):
            reason = f"{limit}: no longer watched, nothing more is sent; the job may still finish"
            return self.outcome("still_running", reason=reason, hint=AGAIN)
        return self.outcome("unclean", reason=f"{limit} before the end was proved")

    def taken_over(self, exc: LockTaken) -> Outcome:
        """Another run works here now, and this one has sent: while it watched, or after the end."""
        climb = self._climb
        alive = standing(climb.family, climb.look.tree) if climb is not None else ()
        if climb is None or any(kin.role == "trainer" for kin in alive):
            return self.outcome(**failed(exc))
        reason = f"the trainers ended, and the rest was not proved: {exc.message}"
        return self.outcome("unclean", reason=reason, hint=exc.hint)

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

    def keep(self, moment: str) -> None:
        """The last look in full, for the history."""
        if self._climb is not None:
            climb = self._climb
            snapshot(self._scope, moment, climb.family, climb.look.tree, climb.judged)

    def alive(self) -> frozenset[ProcessId] | None:
        """All that lived in the place when it was last looked at; None: it was not."""
        if self._climb is None:
            return None
        return frozenset(p.id for p in self._climb.look.tree.processes.values() if p.alive)
