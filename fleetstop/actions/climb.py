"""Drive the ladder: look, judge, do what it says, and tell; the only caller of `lock.send`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import assert_never

from fleetstop import events
from fleetstop.actions import looks
from fleetstop.actions.files import JobFiles
from fleetstop.actions.locate import Scene
from fleetstop.actions.lock import Answered, Lock
from fleetstop.actions.telling import Scope
from fleetstop.core.birth import may_be_marked
from fleetstop.core.checkpoint import Listing
from fleetstop.core.family import Family, Kin, standing
from fleetstop.core.gpu import Unseen
from fleetstop.core.joblog import LogTail, trains_on
from fleetstop.core.ladder import (
    End,
    Enter,
    Held,
    Ladder,
    Step,
    Wait,
    earlier_marks,
    heard_meanwhile,
    observe,
    was_sent,
)
from fleetstop.core.playbook import FOREVER
from fleetstop.core.process import ProcessId, ProcessTree
from fleetstop.core.redact import command
from fleetstop.core.report import SignalRecord
from fleetstop.core.rungs import Send, Skip, WatchOn
from fleetstop.core.verdict import Judged, Look, judge
from fleetstop.errors import ConnectionLost, FrameTimedOut, Refused, RemoteFailed

_CHANGED_TRIES = 50
_TORN_TRIES = 25


class Climb:
    """One climb, from the first look to the ladder's end. Keeps what verifying needs."""

    def __init__(self, scope: Scope, scene: Scene, ladder: Ladder, lock: Lock) -> None:
        self._scope = scope
        self._lock = lock
        self._changed = 0
        self._torn = 0
        self._gone: set[ProcessId] = set()
        self._told: Held | None = None
        self._earlier = earlier_marks(scene.tree, ladder.past)
        self.ladder = ladder
        self.look = Look(at=scene.at, tree=scene.tree, real=scene.real)
        self.judged: Judged | None = None
        self.files = JobFiles(scope, scene)
        self.log_at_signal: LogTail | None = None
        self.listing_at_signal: Listing | Unseen | None = None
        self.listing_at_first: Listing | Unseen | None = None
        self.sent: list[SignalRecord] = []
        self.trained_on = False
        self.doubts: list[str] = []
        self.signalled_at = self.watched_at = scene.at

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
        self.judged = self._judge(None, self.look)
        while True:
            self.ladder, steps = observe(
                self.ladder, self.look.tree, self.judged, self._scope.clock.now()
            )
            self._tell_exits()
            for step in steps:
                if (end := await self._do(step)) is not None:
                    return end
            await self._lock.stamp()
            before, self.look = self.look, await self._look_again()
            was, self.judged = self.judged, self._judge(before, self.look)
            if self.judged.verdict != was.verdict:
                told = {"verdict": self.judged.verdict, "evidence": self.judged.evidence}
                self._scope.teller.tell(events.Looked, **told)
            self.files.remember(self.family, self.look.tree)

    async def _do(self, step: Step) -> End | None:
        tell = self._scope.teller.tell
        match step:
            case Enter():
                wait = _finite(step.wait_s)
                tell(
                    events.RungEntered,
                    rung=step.rung,
                    signal=step.signal,
                    to=step.to,
                    wait_s=wait,
                )
            case Skip():
                tell(
                    events.RungSkipped,
                    rung=step.rung,
                    signal=step.signal,
                    landing=step.landing,
                    pids=step.pids,
                    reason=step.reason,
                )
            case WatchOn():
                # what is new from here on came after the earlier run's signal
                self.log_at_signal = self.log_at_signal or self.files.log
                self.listing_at_signal = self.listing_at_signal or self.files.latest
                self.watched_at = self._scope.clock.now()
                tell(
                    events.WatchedOn,
                    signal=step.signal,
                    pids=_pids(step.recipients),
                    by_run=step.heard.run,
                    ago_s=step.heard.ago_s,
                    wait_s=_finite(step.wait_s),
                )
            case Held():
                self._tell_hold(step)
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
        await looks.watch(self._scope.place, ids if len(ids) <= 20 else trainers, seconds, every)

    def _zombie(self, kin: Kin) -> bool:
        process = self.look.tree.get(kin.id)
        return process is None or process.zombie

    async def _send(self, send: Send) -> None:
        """Sends, or finds that somebody changed; then the next look decides anew."""
        place = self._scope.place
        if self._scope.target.vmid is not None and await place.is_frozen():
            raise place.frozen_error()
        answered = await self._out(send)
        if answered.heard:
            self.ladder = heard_meanwhile(self.ladder, answered.heard)
        elif answered.refused is not None:
            self._changed += 1
            if self._changed > _CHANGED_TRIES:
                text = f"{send.signal} was not sent: {answered.refused}, again and again"
                raise RemoteFailed(text)
        else:
            self._note_sent(send, answered.doubt)

    async def _out(self, send: Send) -> Answered:
        """The send itself. An interruption waits for its answer, so that it can be told, and
        keeps it from going out where it has not yet."""
        go = [True]
        work = self._lock.send(send, self.look.tree, self.ladder.past, lambda: go[0])
        task = asyncio.ensure_future(work)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            go[0] = False
            try:
                await asyncio.wait([task])
            finally:
                self._after_interruption(send, task)
            raise
        except (RemoteFailed, Refused):
            raise  # said so itself: nothing went out
        except (ConnectionLost, FrameTimedOut):
            self._doubt(send, "the connection was lost just then")
            raise
        except Exception:
            self._doubt(send, "its answer was lost just then")
            raise

    def _after_interruption(self, send: Send, task: asyncio.Task[Answered]) -> None:
        if not task.done() or task.cancelled() or task.exception() is not None:
            self._doubt(send, "it was interrupted just then")
        elif task.result().out:
            self._note_sent(send, task.result().doubt)

    def _doubt(self, send: Send, why: str) -> None:
        pids = ", ".join(str(pid) for pid in _pids(send.recipients))
        text = f"{send.signal} to {pids} may have been sent: {why}"
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
                pids=_pids(send.recipients),
                landing=send.landing,
                at=self._scope.clock.wall(),
            )
        )
        self._scope.teller.tell(
            events.SignalSent,
            signal=send.signal,
            to=send.to,
            pids=_pids(send.recipients),
            host_pids=tuple(kin.id.pid for kin in send.recipients),
            landing=send.landing,
            wait_s=_finite(send.wait_s),
            continued=send.resume,
        )

    async def _look_again(self) -> Look:
        """Host and container at once: they are two shells. Raises ContainerFrozen."""
        place = self._scope.place
        if await place.is_frozen():
            raise place.frozen_error()
        tree, files = await looks.together(self._tree(), self.files.look())
        return Look(
            at=self._scope.clock.now(),
            tree=tree,
            changed=files.changed,
            temporary=files.temporary,
            real=self.files.real,
            files_unseen=files.unseen,
            trains_on=bool(self.ladder.touched) and trains_on(self.log_at_signal, self.files.log),
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
        signals = {
            self.ladder.stop_signal if rung.signal == "stop_signal" else rung.signal
            for rung in self.ladder.playbook.ladder
        } - {"KILL"}
        return judge(
            before,
            now,
            self.family,
            stop_signals=tuple(sorted(signals)),
            checkpoints=job.checkpoints if job else None,
            heard={**self._earlier, **self.ladder.marks},
        )

    def _tell_exits(self) -> None:
        for kin in self._exits():
            self._gone.add(kin.id)
            self._scope.teller.tell(
                events.MemberExited,
                pid=kin.pid,
                role=kin.role,
                cmd=command(kin.argv),
                zombie=self.look.tree.get(kin.id) is not None,
            )

    def _exits(self) -> Iterator[Kin]:
        alive = {kin.id for kin in standing(self.family, self.look.tree)}
        order = {"trainer": 0, "worker": 1}
        members = sorted(self.family.members, key=lambda kin: order.get(kin.role, 2))
        return (kin for kin in members if kin.id not in alive and kin.id not in self._gone)

    def _tell_hold(self, held: Held) -> None:
        """Whenever the facts change; a screen decides how often it shows that."""
        if held != self._told:
            self._told = held
            self._scope.teller.tell(
                events.Holding, why=held.why, evidence=held.evidence, over_wait=held.over_wait
            )


def _pids(recipients: tuple[Kin, ...]) -> tuple[int, ...]:
    return tuple(kin.pid for kin in recipients)


def _finite(seconds: float) -> float | None:
    return None if seconds == FOREVER else seconds
