"""Launch, restart, redeploy, roll back: check, stage, prove, stop, activate, health. One pipeline.

Everything that can fail fails before the running job is touched.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from fleetstop import events
from fleetstop.actions import awaiting, looks, refusals, staging
from fleetstop.actions.asking import Desk
from fleetstop.actions.claiming import AGED_S, known_dead, taken
from fleetstop.actions.confirming import confirm
from fleetstop.actions.deciding import Settled, clean, settled
from fleetstop.actions.equipping import equipment
from fleetstop.actions.errand import Errand
from fleetstop.actions.grounding import Running, carried_freely, python_of, running
from fleetstop.actions.kept_up import kept_up
from fleetstop.actions.lastly import ran_last, runs_now
from fleetstop.actions.launch_plan import LaunchPlan
from fleetstop.actions.launching import launch_through
from fleetstop.actions.locate import Scene, families_with, locate
from fleetstop.actions.lock import Lock
from fleetstop.actions.lots import Lot, lot_of
from fleetstop.actions.present import failed, gpu_strangers, outcome_of
from fleetstop.actions.reconnect import ReconnectingPlace
from fleetstop.actions.showing import show_files, wish
from fleetstop.actions.stop import Interrupted, give_back, stopped
from fleetstop.actions.telling import Scope
from fleetstop.core.kin.family import Family
from fleetstop.core.launching.beside import beside
from fleetstop.core.launching.ended import last_death
from fleetstop.core.launching.interpreter import USUAL
from fleetstop.core.report import Outcome
from fleetstop.errors import BadConfig, BadUsage, CouldNotLook, DeployFailed, LockTaken, Refused

_STAMPS_S = 2.0
_FOR_INSTANCE = "for instance: launch: {run: [/root/run.sh], cwd: /root}"


async def bring(scope: Scope, errand: Errand, desk: Desk | None = None) -> Outcome:
    """Never raises for what a job or a host can do: that is the outcome. A bug is raised."""
    started = scope.clock.now()
    place = ReconnectingPlace(scope.place, scope.target.host.name, scope.clock, scope.teller)
    scope = msgspec.structs.replace(scope, place=place)
    lock = Lock(scope.place.host, scope.run, scope.target.vmid, scope.clock)
    work = Bringing(scope, errand, desk or Desk(), lock)
    try:
        outcome = await work.guarded()
    except asyncio.CancelledError as exc:
        outcome = exc.outcome if isinstance(exc, Interrupted) else work.interrupted()
        _finish(scope, outcome, started)
        raise
    finally:
        await give_back(scope, lock)
    return _finish(scope, outcome, started)


def _finish(scope: Scope, outcome: Outcome, started: float) -> Outcome:
    seconds = round(scope.clock.now() - started, 3)
    outcome = msgspec.structs.replace(outcome, seconds=seconds, cost=scope.cost())
    scope.teller.tell(events.TargetFinished, outcome=outcome)
    return outcome


class Bringing:
    """One errand at one target. The lock is held from the first change on, to the end."""

    def __init__(self, scope: Scope, errand: Errand, desk: Desk, lock: Lock) -> None:
        self._scope, self._errand, self._desk, self._lock = scope, errand, desk, lock
        self._findings: list[str] = []
        self._limit: asyncio.Timeout | None = None

    async def guarded(self) -> Outcome:
        limit = self._limit = asyncio.timeout(self._scope.left())
        try:
            async with limit:
                return await self._run()
        except TimeoutError as exc:
            if not limit.expired():
                return self._outcome("fault", **self._scope.fault(exc))
            said = "the --timeout is over before anything of the job was touched"
            return self._outcome("unreachable", reason=said, verdict="unknown", evidence=(said,))
        except DeployFailed as exc:
            return self._outcome(
                "deploy_failed", reason=exc.message, hint=exc.hint, evidence=exc.evidence
            )
        except (BadConfig, BadUsage) as exc:
            # the words fit together, but not with what is there: a user that the container lacks
            return self._outcome("refused", reason=exc.message, hint=exc.hint or None)
        except (LockTaken, Refused, CouldNotLook) as exc:
            return self._outcome(**failed(exc))
        except Exception as exc:
            return self._outcome("fault", **self._scope.fault(exc))

    async def _run(self) -> Outcome:
        scene = await locate(self._scope)
        if not scene.running:
            raise Refused(
                f"container {self._scope.target.vmid} is stopped",
                hint=f"on {self._scope.target.host.name}: pct start {self._scope.target.vmid}",
            )
        family = self._family(scene)
        if family is None and await self._comes_up(scene):
            return await self._run()
        self._mistyped(scene, family)
        await self._way_to_start(scene, family)
        if self._job.gpus and not scene.found.families:  # nobody was found whose GPUs to ask for
            view = await looks.first_gpus(self._scope.place, self._scope.clock)
            scene = msgspec.structs.replace(scene, gpus=view)
        self._beside(scene, family)
        if self._errand.dry_run:
            await known_dead(self._lock)
        else:
            since, had = self._scope.clock.now(), self._lock.claimed
            await taken(self._lock, self._errand.stop.break_lock, self._tell)
            if not had and self._scope.clock.now() - since > AGED_S:
                return await self._run()
        async with self._held():
            now = await running(self._scope, scene, family) if family is not None else None
            await self._its_keeper(scene, now)
            python = python_of(self._job, now)
            await carried_freely(self._scope, python, scene, now)
            lot = await self._lot(scene, now, python)
            lot.dead = frozenset(self._lock.dead)
            found = await settled(lot, self._errand)
            if not found.again and (outcome := await self._settled(lot, found)) is not None:
                return self._with_findings(lot, outcome)
        return await self._run()

    async def _lot(self, scene: Scene, now: Running | None, python: str) -> Lot:
        """Where nothing has to be compiled by it, the job's own Python may be one that cannot do
        our work, too old or cut down: any other there can, and the job still runs on its own."""
        try:
            return await lot_of(self._scope, self._errand, scene, now, python)
        except DeployFailed as exc:
            if python == USUAL or self._errand.command not in ("launch", "restart"):
                raise
            lot = await lot_of(self._scope, self._errand, scene, now, USUAL)
            lot.finding(f"{exc.message.partition(';')[0]}; {USUAL} there starts the job instead")
            return lot

    async def _comes_up(self, scene: Scene) -> bool:
        """An earlier run's activator is about to start it: waited for, then all is looked at."""
        if (who := awaiting.named(scene.tree, self._job)) is None:
            return False
        if self._errand.dry_run:
            raise Refused(
                f"{awaiting.told(who)}; a dry run does not touch that",
                hint=awaiting.plan_later(self._scope),
            )
        await taken(self._lock, self._errand.stop.break_lock, self._tell)
        async with self._held():
            await awaiting.comes_up(self._scope, who, self._tell)
        return True

    async def _settled(self, lot: Lot, found: Settled) -> Outcome | None:
        """None: what waited there has gone on by itself meanwhile, and all is looked at anew."""
        if (found.done is not None or found.confirm is not None) and not self._errand.dry_run:
            await staging.clear_others(self._scope, wish(lot, self._errand))
        if found.done is not None:
            result = "planned" if self._errand.dry_run else "redeployed"
            return self._outcome(result, reason=found.done, release=lot.standing())
        if found.confirm is not None:  # what is to run runs; nothing is sent, and nothing started
            needs = await equipment(lot, self._errand)
            return await confirm(lot, needs, found.confirm, self._lock)
        if lot.files:
            await show_files(lot, self._errand)
        self._last_death(lot)
        needs = await equipment(lot, self._errand)
        needs.show()
        kept_up(lot, self._errand)
        if self._errand.dry_run:
            return await self._planned(lot)
        plan = await needs.plan()
        stop = self._stop if lot.now is not None else None
        hands = self._scope.place.hands
        if self._limit is not None:
            self._limit.reschedule(None)  # from here on it is minded there

        async def renew() -> LaunchPlan:
            await clean(lot, lot.run)
            return await needs.plan()

        late = needs.late
        outcome = await launch_through(self._scope, plan, hands, stop, self._lock, late, renew)
        return None if await self._gone_on(lot, outcome) else outcome

    async def _gone_on(self, lot: Lot, outcome: Outcome) -> bool:
        """Whose place was to be taken had heard of the job's end before."""
        if outcome.result != "deploy_failed" or lot.succeeds is None:
            return False
        await lot.read()
        if lot.state is None or (lot.state.run, lot.state.step) == (lot.succeeds, "waiting"):
            return False
        left = self._scope.left()
        if self._limit is not None and left is not None:
            self._limit.reschedule(asyncio.get_running_loop().time() + left)
        return True

    def _with_findings(self, lot: Lot, outcome: Outcome) -> Outcome:
        findings = tuple(dict.fromkeys((*self._findings, *lot.findings, *outcome.findings)))
        return msgspec.structs.replace(outcome, findings=findings)

    def _last_death(self, lot: Lot) -> None:
        """Where nothing runs: how the last run ended, if that asks for an explanation."""
        if lot.now is None and (said := last_death(lot.ground.last, self._scope.clock.wall())):
            lot.finding(said)

    async def _stop(self, lock: Lock, arm: Callable[[], Awaitable[None]]) -> Outcome:
        lock.before = arm
        try:
            return await stopped(self._scope, self._errand.stop, self._desk, lock)
        finally:
            lock.before = None

    async def _planned(self, lot: Lot) -> Outcome:
        """What would be sent to what runs, where anything does."""
        facts: dict[str, Any] = {"release": lot.record()}
        if lot.now is not None and not self._errand.diff:
            asked = msgspec.structs.replace(self._errand.stop, dry_run=True)
            stop = await stopped(self._scope, asked, self._desk, self._lock)
            if stop.result != "planned":
                return stop
            facts |= {"plan": stop.plan, "family": stop.family, "above": stop.above}
            facts |= {"verdict": stop.verdict, "evidence": stop.evidence, "gpus": stop.gpus}
            facts |= {"checkpoint": stop.checkpoint, "reason": stop.reason}
            self._findings += stop.findings
        return self._outcome("planned", **facts)

    def _family(self, scene: Scene) -> Family | None:
        job = self._job
        families = families_with(scene.found, job.match)
        if not families and scene.found.unclear is None:
            return None
        refusals.ambiguous(self._scope.run, self._scope.target, scene.found, families)
        if not families[0].trainers:
            return None  # a former run's leftovers: they are in the way, and named
        refusals.untouchable(self._scope.target, families[0], scene.tree)
        return families[0]

    def _mistyped(self, scene: Scene, family: Family | None) -> None:
        """Named by hand and not found, while something works here: most likely a slip."""
        typed = self._scope.target.job_name is None and self._errand.command != "launch"
        if family is None and typed and (strangers := gpu_strangers(scene)):
            raise refusals.mistyped(self._job.match, strangers)

    def _beside(self, scene: Scene, family: Family | None) -> None:
        """Nothing is started beside what runs, is left over, or holds the job's own GPUs."""
        ours = family if self._errand.command != "launch" else None
        found = beside(scene.found, scene.tree, scene.gpus, self._job.gpus, ours)
        for each in found.findings:
            self._tell(each)
        if found.obstacles:
            first, name = found.obstacles[0], self._scope.target.name
            verbs = "; or ".join(self._scope.run.typed(verb, name) for verb in first.verbs)
            raise Refused(first.reason, hint=first.hint or verbs, evidence=first.evidence)

    async def _way_to_start(self, scene: Scene, family: Family | None) -> None:
        launch = self._job.launch
        if self._errand.command == "rollback":
            return  # its manifest may tell
        if family is None and (launch is None or not launch.run):
            name = self._scope.target.name
            place = name.partition(":")[0]
            adopt = self._scope.run.typed("adopt", place, "--pid", "N", "--as", "NAME")
            lacks = "nothing says how it is started"
            lacks = f"`launch:` in the inventory has no `run`: {lacks}" if launch else lacks
            last = await ran_last(self._scope)
            raise Refused(
                f"it does not run, and {lacks}",
                hint=f"say it in the inventory, {last or _FOR_INSTANCE}; while a job runs, {adopt}"
                " writes that",
            )

    async def _its_keeper(self, scene: Scene, now: Running | None) -> None:
        """Whoever has the job in his keeping starts it again, his way."""
        launch = self._job.launch
        if now is None or now.restarts is None or (launch is not None and launch.run):
            return
        ran = await runs_now(self._scope, scene, now.family)
        raise Refused(
            f"it was started by {now.restarts}; it is not ours to start beside that",
            hint=f"restart it there; or say in the inventory how we are to, {ran or _FOR_INSTANCE}",
        )

    @asynccontextmanager
    async def _held(self) -> AsyncIterator[None]:
        """Our lock is renewed all the while, whatever else takes its time."""
        if self._errand.dry_run:
            yield
            return
        task = asyncio.create_task(self._stamps())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})

    async def _stamps(self) -> None:
        while True:
            await self._scope.clock.sleep(_STAMPS_S)
            try:
                await self._lock.stamp()
            except (CouldNotLook, Refused):
                # whoever works meanwhile takes the connection up again; and before every signal,
                # and every order, the lock is asked for anew
                continue

    @property
    def _job(self) -> Any:
        assert self._scope.target.job is not None
        return self._scope.target.job

    def _tell(self, text: str) -> None:
        self._findings.append(self._scope.teller.finding(text))

    def _outcome(self, result: Any, *, hint: str | None = None, **facts: Any) -> Outcome:
        findings = tuple(dict.fromkeys(self._findings))
        return outcome_of(self._scope.target, result, hint=hint, **{"findings": findings, **facts})

    def interrupted(self) -> Outcome:
        self._scope.teller.tell(events.Interrupted, sent=(), running=())
        said = "interrupted; nothing of the job was touched"
        return self._outcome("refused", reason=said, interrupted=True)
