"""From the activator to the outcome: what was prepared is started, watched, confirmed or undone.

What is staged and proved, and whether anything may be started at all, was settled before.
"""

from __future__ import annotations

import asyncio

from msgspec import structs

from fleetstop import events
from fleetstop.actions.activating import Hands, unexpected
from fleetstop.actions.going_back import GoingBack
from fleetstop.actions.launch_account import Account
from fleetstop.actions.launch_plan import Late, LaunchPlan, Renew, Stop
from fleetstop.actions.leaving import STOPPED, WHAT_RAN, goes_on, left_as, left_unhealthy, version
from fleetstop.actions.lock import Lock
from fleetstop.actions.present import failed
from fleetstop.actions.renewing import renewed
from fleetstop.actions.stop import Interrupted
from fleetstop.actions.telling import Scope
from fleetstop.actions.watching import Grown
from fleetstop.core.durations import spoken
from fleetstop.core.kin.matching import by_words_alone
from fleetstop.core.launching.activation import State
from fleetstop.core.report import Outcome, Result
from fleetstop.errors import ContainerStopped, CouldNotLook, LockTaken, Refused

_NOBODY = (
    "what waited in the container was told to leave, so that nobody starts the job once what runs "
    "has ended: run the same command again"
)
_STOPPED = ("stopped", "not_running")
_CANCEL_S = 5.0
_GO_S = 180.0


async def launch_through(
    scope: Scope,
    plan: LaunchPlan,
    hands: Hands,
    stop: Stop | None = None,
    lock: Lock | None = None,
    late: Late | None = None,
    renew: Renew | None = None,
) -> Outcome:
    """Its end is told by who asked for it. Where `stop` did not stop the job, its outcome is the
    whole one. `lock`: used as it is and left held; None: one of its own. Raises nothing but
    Interrupted."""
    launching = Launching(scope, plan, hands, lock)
    limit = launching.limit = asyncio.timeout(scope.left())
    try:
        async with limit:
            return await launching.run(stop, late, renew)
    except TimeoutError as exc:
        if not limit.expired():
            return launching.outcome("fault", **scope.fault(exc))
        limit_s, left = spoken(scope.limit_s or 0.0), left_as(launching.activation)
        return launching.cut_short(f"the --timeout of {limit_s} is over: {left}")
    except (LockTaken, Refused) as exc:
        if launching.past_the_stop:
            return launching.cut_short(f"{exc.message}; {left_as(launching.activation)}")
        return launching.outcome(**failed(exc))
    except CouldNotLook as exc:
        facts = failed(exc)
        stopped = isinstance(exc, ContainerStopped)
        left = STOPPED if stopped else left_as(launching.activation)
        return launching.cut_short(f"{exc.message}; {left}", **facts)
    except asyncio.CancelledError as exc:
        raise Interrupted(launching.interrupted(getattr(exc, "outcome", None))) from exc
    except Exception as exc:
        return launching.outcome("fault", **scope.fault(exc))
    finally:
        await launching.let_go()


def _without_it(problem: str) -> str | None:
    asked = problem.startswith("what runs now could not be started again")
    return "--no-rollback does it all the same, with no way back" if asked else None


class Launching(Account):
    """One launch, from the activator's beginning to the end of ours."""

    def __init__(
        self, scope: Scope, plan: LaunchPlan, hands: Hands, lock: Lock | None = None
    ) -> None:
        super().__init__(scope, plan, hands)
        self._own_lock = lock is None
        self.lock = lock or Lock(scope.place.host, scope.run, scope.target.vmid, scope.clock)
        self.limit: asyncio.Timeout | None = None
        self.past_the_stop = False  # what ran has ended: by now another runs, or nothing does
        self._begun: asyncio.Task[str | None]

    async def run(
        self, stop: Stop | None, late: Late | None = None, renew: Renew | None = None
    ) -> Outcome:
        if not self.lock.claimed:
            await self.lock.claim()
        # a stop looks around meanwhile: it sends nothing before `_arm` has waited for this
        async with self.activation.at_its_side(self._begin()) as self._begun:
            if by_words_alone(self.scope.target.job):
                await self._begun  # while it begins, words of ours run there
            ended = await self._stop(stop) if stop is not None else None
            if (problem := await self._begun) is not None:
                return self.outcome("deploy_failed", reason=problem, hint=_without_it(problem))
            if ended is not None:
                return await self._not_stopped(ended)
            self.past_the_stop = True
            if renew is not None and await self.activation.killed():
                again = await renewed(self.activation, renew, self.finding)
                if isinstance(again, str):
                    return self.outcome("unhealthy", reason=f"{again}; NOTHING runs")
                self.plan = again
            await self.rise.mark_log()
            await self.lock.mine()
            if late is not None:
                self.plan = await late(self.plan)
            await self.activation.order("go")
            state = await self.activation.until("launched", within_s=_GO_S)
            return await self._started(state)

    async def _stop(self, stop: Stop) -> Outcome | None:
        """None: what ran has ended. From `armed` on what waits goes on if we do not."""
        self.activation.stopping = True
        if self.limit is not None:
            self.limit.reschedule(None)  # a stop minds the same limit, and tells what it sent
        outcome = await stop(self.lock, self._arm)
        left = self.scope.left()
        stopped = outcome.result in _STOPPED and not outcome.interrupted
        self.activation.stopping = not stopped
        if self.limit is not None and left is not None and (stopped or left > 0):
            self.limit.reschedule(asyncio.get_running_loop().time() + left)
        self.stopped_as(outcome)
        return None if stopped else outcome

    async def _begin(self) -> str | None:
        """Why nothing waits in the container, a sentence; None: it waits."""
        waits = await self.activation.begin()
        if waits.pid is None:
            return waits.problem or "nothing was told of why"
        back = self.plan.spec.roll_back and self.plan.spec.launch_old is not None
        self.scope.teller.tell(events.Armed, pid=waits.pid, roll_back=back)
        return None

    async def _not_stopped(self, outcome: Outcome) -> Outcome:
        if goes_on(self.activation, outcome, self.scope.left()):
            said = left_as(self.activation)
            return structs.replace(outcome, reason=f"{outcome.reason}; {said}")
        await self.activation.order("cancel")
        await self.activation.until("cancelled", within_s=_CANCEL_S)
        if self.plan.spec.succeeds is None:
            return outcome
        findings = (*outcome.findings, self.scope.teller.finding(_NOBODY))
        return structs.replace(outcome, findings=findings)

    async def _arm(self) -> None:
        """A signal is about to go out, for which somebody has to be there who brings it up again.
        Told once."""
        if (problem := await asyncio.shield(self._begun)) is not None:
            raise Refused(problem)
        if self.activation.heard == "armed":
            return
        if not await self.activation.at_work():
            raise Refused(
                "what waited in the container is gone: nobody would start the job again",
                hint="run the same command again",
            )
        await self.activation.order("armed")

    async def _started(self, state: State | None) -> Outcome:
        """`launched`, or the activator has gone back or given up already."""
        if state is None or state.step in ("waiting", "swapping", "swapped", "launching"):
            raise unexpected(state, "a launch")
        if state.step in ("cancelled", "failed"):
            return await self._not_started(state)
        self._note(state)
        grown = await self.rise.watch(self.plan.expected, state, self.lock.stamp)
        if grown is None or grown.given_up or grown.health.state == "unhealthy":
            return await self._unhealthy(grown, state)
        if grown.health.state == "unknown":
            return self.undecided("; ".join(grown.health.why), grown)
        one = grown.stands
        await self.activation.order("done", f"{one.pid} {one.start}" if one is not None else "")
        after = await self.activation.until("healthy")
        self.scope.teller.tell(
            events.Healthy, pids=grown.trainers, by=grown.health.why, seconds=grown.seconds
        )
        for each in grown.health.findings:
            self.finding(each)
        if after is None or after.step != "healthy":
            at = after.step if after is not None else "no state"
            self.finding(f"what works in the container did not note that it is healthy: {at}")
        return self.outcome(self.plan.done)

    def _note(self, state: State) -> None:
        if state.release is not None or state.log_rotated is not None:
            rotated = state.log_rotated
            self.scope.teller.tell(events.Activated, release=state.release, log_rotated=rotated)
        self.note(state)

    async def _not_started(self, state: State) -> Outcome:
        """Nothing was replaced; or it was, and neither version came up."""
        why = state.reason or f"what works in the container has left ({state.step})"
        if await self.activation.old_lives():
            result: Result = "still_running" if self.signals else "deploy_failed"
            return self.outcome(result, reason=why)
        untouched = state.step == "cancelled" and not self.signals
        if untouched and not self.plan.spec.gone:
            return self.outcome("deploy_failed", reason=why)
        last = await self.rise.missed((why,)) if state.step == "failed" else ()
        self.scope.teller.tell(events.Unhealthy, why=(why,), log=last)
        return self.outcome("unhealthy", reason=f"{why}; NOTHING runs")

    async def _unhealthy(self, grown: Grown | None, state: State) -> Outcome:
        why, spec = self.rise.why(grown), self.plan.spec
        last = grown.last if grown is not None else await self.rise.missed(why)
        self.scope.teller.tell(events.Unhealthy, why=why, log=last)
        self.unwell = said = "; ".join(why)
        if not spec.roll_back or spec.launch_old is None:
            return await self._left_unhealthy(said, grown)
        if grown is not None and grown.family is not None:
            if not await self.activation.at_work():
                # ended, it would leave its GPUs to nobody
                old = version(spec.before, WHAT_RAN)
                left = f"it runs on: nobody is left there who would bring {old} back"
                return self.outcome("unhealthy", reason=f"{said}; {left}")
            # from here on nobody takes it for healthy, should we be cut short
            await self.activation.order("unwell", said)
            self.scope.teller.tell(events.RollingBack, release=spec.before)
            self._ending = GoingBack(self.scope, self.lock, grown.family)
            if (problem := await self._ending.run()) is not None:
                await self._kept(said)
                return self.outcome("unhealthy", reason=f"{said}; {problem}")
        else:
            self.scope.teller.tell(events.RollingBack, release=spec.before)
        await self.rise.mark_log()
        if not (await self.activation.look() or state).left:
            await self.activation.order("back", said)
        return await self._back(said)

    async def _left_unhealthy(self, said: str, grown: Grown | None) -> Outcome:
        runs = grown is not None and grown.family is not None
        if runs:
            await self._kept(said)
        elif (state := await self.activation.until("unhealthy")) and state.step == "rolled_back":
            self.finding("the files of the version before are back in place")
        left = left_unhealthy(self.plan.spec, runs)
        return self.outcome("unhealthy", reason=f"{said}; {left}")

    async def _kept(self, said: str) -> None:
        """It runs on as it is: who works there must not take it for healthy later."""
        await self.activation.order("keep", said)
        await self.activation.until("unhealthy")

    async def _back(self, said: str) -> Outcome:
        state = await self.activation.until("rolled_back")
        back = state is not None and state.step == "rolled_back"
        if state is None or not back or state.trainer is None:
            why = state.reason if state is not None and state.reason else "it told no reason"
            self._tell_back(None, why)
            name = version(self.plan.spec.before, WHAT_RAN)
            return self.outcome("unhealthy", reason=f"{said}; {name} did not come back: {why}")
        self._tell_back(state.trainer.pid, None)
        name = version(self.plan.spec.before, WHAT_RAN)
        expected = self.plan.expected_old or self.plan.expected
        grown = await self.rise.watch(expected, state, self.lock.stamp, old=True)
        if grown is None or grown.family is None:
            old = "; ".join(self.rise.why(grown, old=True))
            self.scope.teller.tell(events.Unhealthy, why=(old,), old=True)
            return self.outcome("unhealthy", reason=f"{said}; {name} is back and ended too: {old}")
        pids = ", ".join(map(str, grown.trainers)) or str(state.trainer.pid)
        if grown.health.state == "healthy":
            self.scope.teller.tell(
                events.Healthy, pids=grown.trainers, by=grown.health.why, seconds=grown.seconds,
                old=True,
            )  # fmt: skip
        else:
            self.scope.teller.tell(events.Unhealthy, why=grown.health.why, old=True)
            self.finding(f"{name} runs, but: {'; '.join(grown.health.why)}")
        reason = f"{said}; {name} runs again as {pids}{self.rise.neither(expected)}"
        return self.outcome("rolled_back", reason=reason)

    def _tell_back(self, pid: int | None, problem: str | None) -> None:
        before = self.plan.spec.before
        self.scope.teller.tell(events.RolledBack, release=before, pid=pid, problem=problem)

    async def let_go(self) -> None:
        """Gives the lock back, and lets what waits leave, or go on at once without us; bounded, and
        never an error."""
        told = "what works in the container could not be told that this run leaves"
        try:
            async with asyncio.timeout(_CANCEL_S):
                await self.activation.leave_it()
                told = "the lock could not be given back"
                if self._own_lock:
                    await self.lock.release(None)
        except (CouldNotLook, Refused, TimeoutError) as exc:
            self.scope.teller.finding(f"{told}: {str(exc) or 'it took too long'}")
