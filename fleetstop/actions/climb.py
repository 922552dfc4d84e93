"""Drive the ladder: look, judge, do what it says, and tell; the only caller of `lock.send`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import assert_never

from fleetstop import events
from fleetstop.actions import looks
from fleetstop.actions.asking import Asking, Desk
from fleetstop.actions.asks import Asks
from fleetstop.actions.blackbox import BlackBoxes
from fleetstop.actions.exits import Exits, in_order
from fleetstop.actions.files import JobFiles
from fleetstop.actions.locate import Scene
from fleetstop.actions.lock import Answered, Lock
from fleetstop.actions.narrate import narrate, pids_of
from fleetstop.actions.snapshots import snapshot
from fleetstop.actions.telling import Scope
from fleetstop.core.climbing.requests import requests
from fleetstop.core.climbing.rungs import Send, Skip, WatchOn
from fleetstop.core.gpu import Unseen
from fleetstop.core.joblog import LogTail, trains_on
from fleetstop.core.judging.marks import earlier_marks
from fleetstop.core.kin.birth import may_be_marked
from fleetstop.core.kin.family import Family, Kin, standing
from fleetstop.core.ladder import (
    Arrived,
    Ask,
    End,
    Enter,
    Held,
    Ladder,
    Step,
    Wait,
    Withdraw,
    answered,
    heard_meanwhile,
    left_out,
    observe,
    was_sent,
)
from fleetstop.core.process import ProcessTree
from fleetstop.core.report import SignalRecord
from fleetstop.core.saves.checkpoint import Listing
from fleetstop.core.verdict import Judged, Look, follow, judge, news
from fleetstop.errors import (
    ConnectionLost,
    FrameTimedOut,
    PrivilegeMissing,
    Refused,
    RemoteFailed,
)

_ANSWER_S = 12.0
_CHANGED_TRIES = 50
_TORN_TRIES = 25


class Climb:
    """One climb, from the first look to the ladder's end. Keeps what verifying needs."""

    def __init__(
        self, scope: Scope, scene: Scene, ladder: Ladder, lock: Lock, desk: Desk | None = None
    ) -> None:
        self._scope = scope
        self._lock = lock
        self.doubts: list[str] = []
        self._asking = Asking(desk or Desk(), scope, self.doubts)
        self._asks = Asks(scope, self.doubts)
        self._changed = 0
        self._torn = 0
        self._exits = Exits(scope.teller)
        self._told: Held | None = None
        self._earlier = earlier_marks(scene.tree, ladder.past)
        self.ladder = ladder
        self.look = scene.first_look()
        self._progress = follow(None, self.look, ladder.family)
        self.judged: Judged | None = None
        self.files = JobFiles(scope, scene)
        self._boxes = BlackBoxes(scope, smi=ladder.playbook.gpus_from == "nvidia-smi")
        self.log_at_signal: LogTail | None = None
        self.listing_at_signal: Listing | Unseen | None = None
        self.listing_at_first: Listing | Unseen | None = None
        self.sent: list[SignalRecord] = []
        self.trained_on = False
        self.signalled_at = scene.at

    @property
    def family(self) -> Family:
        return self.ladder.family

    @property
    def signals(self) -> tuple[SignalRecord, ...]:
        return tuple(self.sent)

    async def stamp(self) -> None:
        """A sign of life; whoever works on beyond the climb calls it too."""
        await self._lock.stamp()

    async def run(self) -> End:
        """Until the ladder ends. The first look is the one that found the job."""
        try:
            end = await self._climbed()
            self.ladder = await self._asks.poll(self.ladder)
            return end
        finally:
            await self._asking.close()

    async def _climbed(self) -> End:
        self.judged = self._judge(None, self.look)
        while True:
            if (yes := self._asking.answer()) is not None:
                self.ladder = answered(self.ladder, yes)
            now = self._scope.clock.now()
            self.ladder, steps = observe(
                self.ladder, self.look.tree, self.judged, now, self.look.risk
            )
            self._exits.seen(self.family, self.look.tree)
            for step in steps:
                if (end := await self._do(step)) is not None:
                    return end
            await self._lock.stamp()
            self.ladder = await self._asks.poll(self.ladder)
            before, self.look = self.look, await self._look_again()
            was, self.judged = self.judged, self._judge(before, self.look)
            if news(was, self.judged):
                told = {"verdict": self.judged.verdict, "evidence": self.judged.evidence}
                self._scope.teller.tell(events.Looked, **told)
            self.files.remember(self.family, self.look.tree)

    async def _do(self, step: Step) -> End | None:
        match step:
            case Enter() | Skip() | Arrived():
                narrate(self._scope.teller, step)
            case WatchOn():
                await self._lock.arm()
                # what is new from here on came after the earlier run's signal
                self.log_at_signal = self.log_at_signal or self.files.log
                self.listing_at_signal = self.listing_at_signal or self.files.latest
                narrate(self._scope.teller, step)
            case Held():
                self._tell_hold(step)
            case Ask():
                self._asking.ask(step.question)
            case Withdraw():
                await self._asking.withdraw(step.reason)
            case Wait():
                await self._wait(step.seconds)
            case Send():
                await self._send(step)
            case End():
                return step if step.how != "gone" or await self._confirmed() else None
            case _:
                assert_never(step)
        return None

    async def _confirmed(self) -> bool:
        """A look may be torn: gone is said only after asking for each identity once more."""
        # nobody stands: who is seen alive all the same has become something else by exec
        became = {p.id for p in self.look.tree.processes.values() if p.alive}
        ids = [kin.id for kin in self.family.members if kin.id not in became]
        if not ids or await looks.all_gone(self._scope.place, ids):
            return True
        self._torn += 1
        if self._torn > _TORN_TRIES:
            raise RemoteFailed("a member lives, but is no longer seen in its place")
        await self._scope.clock.sleep(0.2)
        return False

    async def _wait(self, seconds: float) -> None:
        """Watches all that is alive; a big family's workers are looked at by the next look."""
        alive = standing(self.family, self.look.tree)
        ids = [kin.id for kin in alive if not self._zombie(kin)]
        trainers = [kin.id for kin in alive if kin.role == "trainer" and not self._zombie(kin)]
        every = self.ladder.playbook.every_s
        watched = ids if len(ids) <= 20 else trainers
        gone = await looks.watch(self._scope.place, watched, seconds, every)
        # told at once: the next look takes its time
        self._exits.told([(kin, False) for kin in in_order(self.family) if kin.id in gone])

    def _zombie(self, kin: Kin) -> bool:
        process = self.look.tree.get(kin.id)
        return process is None or process.zombie

    async def _send(self, send: Send) -> None:
        """Sends, or finds that somebody changed; then the next look decides anew."""
        place = self._scope.place
        if self._scope.target.vmid is not None and await place.is_frozen():
            raise place.frozen_error()
        if await self._boxes.wanted(send, self.family, self.look.tree, self.judged):
            return
        if send.does != "signal" and not await self._can_ask(send):
            return
        snapshot(self._scope, f"before {send.signal}", self.family, self.look.tree, self.judged)
        out = await self._out(send)
        if out.heard:
            self.ladder = heard_meanwhile(self.ladder, out.heard)
        elif out.refused is not None:
            self._changed += 1
            if self._changed > _CHANGED_TRIES:
                text = f"{send.signal} was not sent: {out.refused}, again and again"
                raise RemoteFailed(text)
        else:
            self._note_sent(send, out.doubt)

    async def _can_ask(self, send: Send) -> bool:
        """Before its line is written, so that a trainer that cannot be asked is not marked."""
        try:
            await self._asks.ready(send, self.look.tree)
        except RemoteFailed as exc:
            self.ladder, skip = left_out(self.ladder, send, exc.message)
            await self._do(skip)
            return False
        return True

    async def _deliver(self, send: Send, go: Callable[[], bool]) -> Answered:
        """The line and the signal; or the line, and then what is no signal."""
        out = await self._lock.send(send, self.look.tree, self.ladder.past, go)
        if send.does == "signal" or not out.out:
            return out
        self._lock.unsure = True  # its line stands: from here on it may have been asked
        asked = await self._asks.do(send) if go() else Answered(refused="taken back")
        if asked.refused is not None:
            await self._lock.take_back()
        self._lock.unsure = False
        return asked

    async def _out(self, send: Send) -> Answered:
        """The send itself. An interruption waits for its answer, so that it can be told, and
        keeps it from going out where it has not yet."""
        go = [True]
        task = asyncio.ensure_future(self._deliver(send, lambda: go[0]))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            go[0] = False
            try:
                # no longer than the frame may take: a lost connection is not waited for
                await asyncio.wait([task], timeout=_ANSWER_S)
            finally:
                task.cancel()
                self._after_interruption(send, task)
            raise
        except (RemoteFailed, Refused, PrivilegeMissing):
            raise  # said so itself: nothing went out
        except (ConnectionLost, FrameTimedOut):
            if self._lock.unsure:
                self._doubt(send, "the connection was lost just then")
            raise
        except Exception:
            self._doubt(send, "its answer was lost just then")
            raise

    def _after_interruption(self, send: Send, task: asyncio.Task[Answered]) -> None:
        if not task.done() or task.cancelled() or task.exception() is not None:
            if self._lock.unsure:
                self._doubt(send, "it was interrupted just then")
        elif task.result().out:
            self._note_sent(send, task.result().doubt)

    def _doubt(self, send: Send, why: str) -> None:
        pids = ", ".join(str(pid) for pid in pids_of(send.recipients))
        text = f"{send.signal} to {pids} may have been sent: {why}"
        if send.does != "signal":
            text = f"{send.signal} for {pids} may not have reached it: {why}"
        self.doubts.append(self._scope.teller.finding(text))

    def _note_sent(self, send: Send, doubt: str | None) -> None:
        """It is out. What was saved so far was not saved because of it."""
        self.log_at_signal, self.listing_at_signal = self.files.log, self.files.latest
        # it went on with its steps after an earlier signal: what it saved then was no answer
        self.trained_on |= self.look.trains_on
        if not self.sent:
            self.listing_at_first = self.files.latest
        self.signalled_at = self._scope.clock.now()
        if doubt is not None:
            self._doubt(send, doubt)
        now = self._scope.clock.now()
        self.ladder = was_sent(self.ladder, send, self.look.tree, now)
        self.sent.append(
            SignalRecord(
                signal=send.signal,
                to=send.to,
                pids=pids_of(send.recipients),
                landing=send.landing,
                at=self._scope.clock.wall(),
            )
        )
        narrate(self._scope.teller, send)

    async def _look_again(self) -> Look:
        """Host and container at once: they are two shells. Raises ContainerFrozen."""
        place = self._scope.place
        if await place.is_frozen():
            raise place.frozen_error()
        tree, files = await looks.together(self._tree(), self.files.look())
        if (news := self.files.news()) is not None:
            self.doubts.append(self._scope.teller.finding(news))
        return Look(
            at=self._scope.clock.now(),
            tree=tree,
            changed=files.changed,
            temporary=files.temporary,
            real=self.files.real,
            files_unseen=files.unseen,
            risk=files.risk,
            trains_on=bool(self.ladder.touched) and trains_on(self.log_at_signal, self.files.log),
            log=self.files.log,
        )

    async def _tree(self) -> ProcessTree:
        place, target = self._scope.place, self._scope.target
        tree = await looks.look(place, target.vmid)
        members = {each.id.pid for each in self.family.members}
        born = {each.id.pid for pid in members for each in tree.below(pid)} - members
        born |= may_be_marked(self.family, tree)
        # exec keeps the identity: what was a wrapper may be somebody's shell by now
        above = {kin.id.pid for kin in self.family.of("wrapper", "launcher")}
        tree = await looks.add_detail(place, tree, members | born)
        return await looks.add_argv(place, tree, above | born)

    def _judge(self, before: Look | None, now: Look) -> Judged:
        job = self._scope.target.job
        if before is not None:
            self._progress = follow(self._progress, now, self.family)
        return judge(
            before,
            now,
            self.family,
            stop_signals=requests(self.ladder.playbook, self.ladder.stop_signal),
            checkpoints=job.checkpoints if job else None,
            heard={**self._earlier, **self.ladder.marks},
            progress=self._progress,
        )

    def _tell_hold(self, held: Held) -> None:
        """Whenever the facts change; a screen decides how often it shows that."""
        if held != self._told:
            self._told = held
            narrate(self._scope.teller, held)
