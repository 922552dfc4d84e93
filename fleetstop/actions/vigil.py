"""A job that is watched without touching it: its family from look to look; knows no aim."""

from __future__ import annotations

from typing import Any

from fleetstop import events
from fleetstop.actions import looks
from fleetstop.actions.locate import Scene, all_of_it, families_with, identify
from fleetstop.actions.present import first_judgement, members, outcome_of
from fleetstop.actions.telling import Scope
from fleetstop.core.above.supervisors import Notes
from fleetstop.core.gpu import Unseen
from fleetstop.core.kin.birth import grow
from fleetstop.core.kin.family import Family, Found, Kin, standing
from fleetstop.core.process import ProcessId, ProcessTree
from fleetstop.core.redact import command
from fleetstop.core.report import Outcome, Result
from fleetstop.core.verdict import Judged, Look, judge

LOOK_S = 2.0
_MANY = 20
_EMPTY = ProcessTree(processes={}, uptime=0.0)


class Vigil:
    """`family` None: nothing has been seen of it yet. `standing` are those of it that lived at
    the last look; `found` is what matched when no trainer of it did."""

    def __init__(self, scope: Scope, until: float | None) -> None:
        self.scope = scope
        self.family: Family | None = None
        self.found = Found(families=())
        self.tree = _EMPTY
        self._notes = Notes()
        self.judged: Judged | None = None
        self._until = until
        self._look: Look | None = None
        self._told_gone: set[ProcessId] = set()
        self._told: set[str] = set()
        self._left: frozenset[ProcessId] = frozenset()
        self.findings: list[str] = []

    def begin(self, scene: Scene) -> None:
        job = self.scope.target.job
        assert job is not None
        found = families_with(scene.found, job.match)
        self.found = scene.found
        self.tree = scene.tree
        self._notes = scene.notes
        self._look = Look(at=scene.at, tree=scene.tree, real=scene.real)
        self._left = frozenset(each.id for each in scene.found.orphans)
        if found:
            self.family = found[0]
            self.judged = first_judgement(self.scope, scene, self.family, None)

    @property
    def standing(self) -> tuple[Kin, ...]:
        """Without a wrapper that outlives its job."""
        if self.family is None:
            return ()
        job = self.scope.target.job
        outlives = job is not None and job.wrapper == "outlives"
        alive = standing(self.family, self.tree)
        return tuple(kin for kin in alive if not (outlives and kin.role == "wrapper"))

    @property
    def trainers(self) -> tuple[Kin, ...]:
        return tuple(kin for kin in self.standing if kin.role == "trainer")

    @property
    def late(self) -> bool:
        return self._until is not None and self.scope.clock.now() >= self._until

    async def pause(self, seconds: float = LOOK_S) -> None:
        """At most so long, never past the limit, and no longer than until a member ends."""
        if self._until is not None:
            seconds = max(0.0, min(seconds, self._until - self.scope.clock.now()))
        alive = [kin for kin in self.standing if not self._zombie(kin)]
        watched = alive if len(alive) <= _MANY else [k for k in alive if k.role == "trainer"]
        if watched:
            await looks.watch(self.scope.place, [kin.id for kin in watched], seconds)
        else:
            await self.scope.clock.sleep(min(seconds, 1.0))

    def _zombie(self, kin: Kin) -> bool:
        process = self.tree.get(kin.id)
        return process is None or process.zombie

    async def look(self) -> None:
        """The family as it is now, who was born into it, and who left. Raises ContainerFrozen."""
        place = self.scope.place
        if await place.is_frozen():
            raise place.frozen_error()
        tree = await all_of_it(self.scope)
        if self.family is not None:
            tree = await self._closer(tree, self.family)
        self.tree = tree
        if self.family is not None:
            self._judge(self.family)
        if not self.trainers and tree.processes:
            # a wrapper that stands may have started it again
            await self._search()

    async def _closer(self, tree: ProcessTree, family: Family) -> ProcessTree:
        place = self.scope.place
        self.family = family = grow(family, tree)
        above = {kin.id.pid for kin in family.of("wrapper", "launcher")}
        tree = await looks.add_detail(place, tree, {kin.id.pid for kin in family.members})
        return await looks.add_argv(place, tree, above & set(tree.processes))

    def _judge(self, family: Family) -> None:
        job = self.scope.target.job
        now = Look(at=self.scope.clock.now(), tree=self.tree)
        was, self.judged = (
            self.judged,
            judge(
                self._look,
                now,
                family,
                stop_signals=("INT", "TERM"),
                checkpoints=job.checkpoints if job else None,
            ),
        )
        self._look = now
        tell = self.scope.teller.tell
        if was is not None and was.verdict != self.judged.verdict:
            tell(events.Looked, verdict=self.judged.verdict, evidence=self.judged.evidence)
        alive = {kin.id for kin in standing(family, self.tree)}
        for kin in family.members:
            if kin.id not in alive and kin.id not in self._told_gone:
                self._told_gone.add(kin.id)
                zombie = self.tree.get(kin.id) is not None
                said = {"pid": kin.pid, "role": kin.role, "cmd": command(kin.argv)}
                tell(events.MemberExited, zombie=zombie, **said)

    async def surely_gone(self) -> bool:
        """A look may be torn: each identity is asked for once more."""
        if self.family is None:
            return True
        ids = [kin.id for kin in self.family.members if self.tree.get(kin.id) is None]
        return not ids or await looks.all_gone(self.scope.place, ids)

    async def _search(self) -> None:
        """Whatever matches now; a job that came back is the one that is watched from here on."""
        job = self.scope.target.job
        assert job is not None
        tree, found = await identify(self.scope, self.tree, job, Unseen(""), self._notes)
        known = self.family.ids if self.family is not None else frozenset()
        self.found, families = found, families_with(found, job.match)
        known |= self._left
        fresh = [e for e in families if e.trainers and not known & {kin.id for kin in e.trainers}]
        if fresh:
            pids = ", ".join(str(kin.pid) for each in fresh for kin in each.trainers)
            if self.family is not None:
                self.say(f"the job runs again as {pids}; waiting on")
            self.family, self._look, self.judged = fresh[0], None, None
            self.tree = await self._closer(tree, fresh[0])
            self._judge(self.family)

    def say(self, text: str) -> None:
        """Once."""
        if text not in self._told:
            self._told.add(text)
            self.findings.append(self.scope.teller.finding(text))

    def outcome(self, result: Result, *, hint: str | None = None, **facts: Any) -> Outcome:
        """With what was seen last; `facts` win."""
        known: dict[str, Any] = {"findings": tuple(self.findings)}
        if self.family is not None and self.judged is not None:
            known |= {
                "verdict": self.judged.verdict,
                "evidence": self.judged.evidence,
                "family": members(self.family, self.judged),
            }
        return outcome_of(self.scope.target, result, hint=hint, **(known | facts))

    def reached(self, reason: str, **facts: Any) -> Outcome:
        result: Result = "running" if self.trainers else "not_running"
        return self.outcome(result, reason=reason, **facts)

    def not_reached(self, reason: str, **facts: Any) -> Outcome:
        """Exit 1 where a trainer was seen alive last, else 6."""
        if self.trainers:
            return self.outcome("still_running", reason=reason, **facts)
        return self.outcome("unclean", reason=f"not_reached: {reason}", **facts)
