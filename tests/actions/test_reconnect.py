"""Connections that go away: taken up again, one signal in all, and a true end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TypeAlias

import pytest

from fleetstop import events
from fleetstop.actions.reconnect import ReconnectingPlace
from fleetstop.actions.telling import Teller
from fleetstop.core.commands import Answer, Command
from fleetstop.core.report import Outcome
from fleetstop.errors import (
    ConnectionLost,
    FleetstopError,
    FrameTimedOut,
    HostUnreachable,
    LoginRefused,
)
from tests.actions.stage import GENTLE, Stage, playbook
from tests.fakes.fake_host import FakeHost, Hook, Trainer, WorldPlace, a_job, nothing
from tests.fakes.fake_place import FakeClock

Run: TypeAlias = Callable[[Command], Coroutine[None, None, Answer]]
LATE = FrameTimedOut("pve1: no answer to 'send' within 10 s")


class Counted(WorldPlace):
    """Cuts the connection at its Nth frame of all, before the host has it or after."""

    def __init__(self, host: FakeHost, at: int, when: str) -> None:
        super().__init__(host)
        self.at, self.when, self.frames = at, when, 0
        for shell in (self.host, self.within):
            shell.run = self._counting(shell.run)  # type: ignore[method-assign, assignment]

    def _counting(self, run: Run) -> Run:
        async def counting(command: Command) -> Answer:
            self.frames += 1
            if self.frames == self.at and self.when == "before":
                self.cut()
            number = self.frames
            answer = await run(command)
            if number == self.at and self.when == "after":
                self.cut()
            return answer

        return counting


def stopped_with_a_cut(at: int, when: str) -> tuple[Stage, Outcome, Trainer, Counted]:
    host = FakeHost()
    trainer = a_job(host)
    host.gpus = [{1010: 5000}]
    place = Counted(host, at, when)
    stage = Stage(host, place=place)
    return stage, asyncio.run(stage.stop()), trainer, place


ALL = stopped_with_a_cut(10**9, "never")[3].frames


@pytest.mark.parametrize("when", ["before", "after"])
def test_cut_at_any_frame_there_is_one_signal_and_it_is_stopped_and_saved(when: str) -> None:
    """The wrong choice, sending it again after the answer was lost, would cut the save."""
    assert ALL > 30
    doubts = 0
    for at in range(1, ALL + 1):
        stage, outcome, trainer, place = stopped_with_a_cut(at, when)
        assert trainer.heard == ["INT"], (at, when)
        assert not trainer.lost
        assert outcome.result == "stopped", (at, when, outcome.reason)
        assert [each.signal for each in outcome.signals] == ["INT"], (at, when)
        assert len(stage.host.sends()) == 0  # forgotten when all are gone
        doubts += bool(outcome.findings)
        if place.taken_up:
            (told,) = stage.of(events.Reconnected)
            assert (told.host, told.target) == ("pve1", "ct200:train")
    # only the answer of the send itself leaves a doubt
    assert doubts == (1 if when == "after" else 0)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_plan_is_made_over_a_new_connection_too(when: str) -> None:
    host = FakeHost()
    a_job(host)
    frames = Counted(host, 10**9, "never")
    asyncio.run(Stage(host, place=frames).stop(dry_run=True))
    assert frames.frames >= 8
    for at in range(1, frames.frames + 1):
        host = FakeHost()
        trainer = a_job(host)
        place = Counted(host, at, when)
        stage = Stage(host, place=place)
        outcome = asyncio.run(stage.stop(dry_run=True))
        assert outcome.result == "planned", (at, outcome.reason)
        assert len(stage.of(events.Reconnected)) == place.taken_up <= 1
        assert (trainer.heard, place.host.changes()) == ([], [])


def test_a_line_that_is_written_after_the_connection_was_re_made_counts_as_sent() -> None:
    """The shell was stalled in its send, and wakes in time to carry it out."""

    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host, Trainer(host, takes_s=20.0))
        stage = Stage(host)

        def stall(command: Command) -> None:
            host.later(5.0, lambda: late.append(host._send(command.words)))
            stage.world.cut(LATE)

        late: list[Answer] = []
        stage.world.host.before("send", stall)
        outcome = await stage.stop()
        assert late[0].status == 0
        assert (trainer.heard, trainer.lost) == (["INT"], False)
        assert outcome.result == "stopped"
        assert outcome.findings == (
            "INT to 10 may have been sent: its answer was lost; the ledger has its line",
        )

    asyncio.run(story())


def test_one_that_wakes_too_late_sends_nothing_and_the_next_look_decides() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host)
        stage = Stage(host)
        late: list[Answer] = []

        def stall(command: Command) -> None:
            host.later(11.0, lambda: late.append(host._send(command.words)))
            stage.world.cut(LATE)

        stage.world.host.before("send", stall)
        outcome = await stage.stop(playbook("stop_signal/1m", lossless=True, gpus_from="none"))
        host.clock.advance(60)
        host.settle()
        assert [each.status for each in late] != [0]
        assert (trainer.heard, outcome.result, outcome.findings) == (["INT"], "stopped", ())

    asyncio.run(story())


def test_a_way_back_that_takes_a_while_is_tried_again_and_the_lock_is_kept() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host, Trainer(host, takes_s=60.0))
        stage = Stage(host)
        stage.world.ways_back = [HostUnreachable("no route")] * 5
        stage.world.host.before("watch", nothing, nothing, nothing, lambda _: stage.world.cut())
        outcome = await stage.stop()
        assert (outcome.result, trainer.heard) == ("stopped", ["INT"])
        assert stage.world.taken_up == 6
        assert [s for s in host.clock.slept if s >= 0.5][:5] == [0.5, 1.0, 2.0, 4.0, 8.0]
        (told,) = stage.of(events.Reconnected)
        assert told.seconds == pytest.approx(15.5)

    asyncio.run(story())


def test_away_for_longer_than_the_lock_lasts_it_is_claimed_anew() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host, Trainer(host, takes_s=90.0))
        stage = Stage(host)
        stage.world.ways_back = [HostUnreachable("no route")] * 8
        stage.world.host.after("send", lambda _: stage.world.cut())
        outcome = await stage.stop()
        assert (outcome.result, trainer.heard) == ("stopped", ["INT"])
        assert len(stage.world.host.sent("claim")) == 2

    asyncio.run(story())


def test_who_has_taken_the_lock_meanwhile_keeps_it_and_nothing_more_is_sent() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host, Trainer(host, hears=("INT", "TERM")))
        trainer.obeys = False
        stage, other = Stage(host, "run1"), Stage(host, "run2").lock()

        async def come() -> None:
            host.clock.advance(40)
            await other.claim()
            stage.world.cut()

        stage.world.host.before("watch", *[nothing] * 6, lambda _: come())
        outcome = await stage.stop(playbook("INT/20s TERM/20s", hold=None), "given")
        assert outcome.result == "still_running"
        assert outcome.reason == "run run2 has taken the lock over; nothing more is sent"
        assert trainer.heard == ["INT"]

    asyncio.run(story())


@pytest.mark.parametrize(
    ("error", "most"), [(HostUnreachable("no route"), 20), (LoginRefused("no key"), 1)]
)
def test_without_a_way_back_what_was_sent_is_listed(error: FleetstopError, most: int) -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host, Trainer(host, takes_s=500.0))
        stage = Stage(host)
        stage.world.no_way_back = error
        stage.world.host.before("look", *[nothing] * 6, lambda _: stage.world.cut())
        began = host.clock.now()
        outcome = await stage.stop()
        assert (outcome.result, outcome.verdict) == ("unreachable", "unknown")
        assert [each.signal for each in outcome.signals] == ["INT"]
        assert (outcome.reason or "").startswith("pve1: the connection was lost; it could not be")
        assert str(error) in (outcome.reason or "")
        # host and container are asked at once: one of them waits for both
        assert stage.world.taken_up <= most
        assert host.clock.now() - began < 75
        assert trainer.heard == ["INT"]
        assert stage.of(events.Reconnected) == []

    asyncio.run(story())


def test_a_file_that_hangs_inside_is_no_lost_connection() -> None:
    """The listing is given up, the connection answers: unseen, and nothing is re-made."""

    async def story() -> None:
        host = FakeHost()
        a_job(host)
        stage = Stage(host)

        async def answers() -> bool:
            asked.append(1)
            return False

        asked: list[int] = []
        stage.world.again = answers  # type: ignore[method-assign]
        hang: list[Hook] = [lambda _: _raise(FrameTimedOut("list")) for _ in range(400)]
        stage.world.within.before("list", nothing, *hang)
        outcome = await stage.stop(playbook("INT/3s", lossless=True))
        assert asked
        assert stage.of(events.Reconnected) == []
        assert outcome.result in ("still_running", "unclean")

    asyncio.run(story())


def test_a_look_that_hangs_over_a_sound_connection_is_given_one_more_try() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host)
        stage = Stage(host)

        async def answers() -> bool:
            return False

        stage.world.again = answers  # type: ignore[method-assign]
        stage.world.host.before("look", nothing, lambda _: _raise(FrameTimedOut("look")))
        assert (await stage.stop()).result == "stopped"
        assert trainer.heard == ["INT"]
        a_job(host)
        again = Stage(host, "run2")
        again.world.again = answers  # type: ignore[method-assign]
        again.world.host.before("look", *[lambda _: _raise(FrameTimedOut("look"))] * 2)
        assert (await again.stop()).result == "unreachable"

    asyncio.run(story())


def _raise(error: Exception) -> None:
    raise error


def test_an_interruption_while_the_connection_is_away_leaves_a_doubt_and_does_not_wait() -> None:
    async def story() -> None:
        host = FakeHost()
        a_job(host)
        stage = Stage(host)
        trying, never = asyncio.Event(), asyncio.Event()

        async def again() -> bool:
            if trying.is_set():
                return False  # to give the lock back, which has its own five seconds otherwise
            trying.set()
            await never.wait()
            return True

        stage.world.again = again  # type: ignore[method-assign]
        stage.world.host.after("send", lambda _: stage.world.cut())
        work = asyncio.ensure_future(stage.stop(GENTLE))
        await trying.wait()
        for _ in range(2):  # the second one does not wait for the answer
            work.cancel()
            for _ in range(3):
                await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await work
        (ended,) = stage.of(events.TargetFinished)
        assert ended.outcome.findings == (
            "INT to 10 may have been sent: it was interrupted just then",
        )
        assert isinstance(stage.world.host.lost, ConnectionLost)

    asyncio.run(story())


def over(place: WorldPlace) -> ReconnectingPlace:
    clock = FakeClock()
    return ReconnectingPlace(place, "pve1", clock, Teller("ct200", lambda _: None, clock))


def test_hands_look_again_over_another_connection_and_change_nothing_twice() -> None:
    async def story() -> None:
        host = FakeHost()
        place = host.place()
        hands = await over(place).hands()
        place.within.before("clock", lambda _: place.cut())
        assert (await hands.run(Command("clock"))).status == 0
        assert place.taken_up == 1
        put = Command("put", ("/root/x", "600", "text"), changes=True)
        place.within.scripted("put", Answer(status=0, data=b""))
        place.within.lost = ConnectionLost("pve1: the connection was lost")
        with pytest.raises(ConnectionLost):
            await hands.run(put)
        assert place.taken_up == 1
        # whoever goes on looks first: that brings it back
        assert (await hands.run(Command("clock"))).status == 0
        assert (await hands.run(put)).status == 0

    asyncio.run(story())


def test_a_stream_is_carried_once_and_never_again() -> None:
    async def story() -> None:
        place = FakeHost().place()
        place.carries = [ConnectionLost("pve1: the connection was lost")]
        told: list[int] = []
        with pytest.raises(ConnectionLost):
            await over(place).carry(["cat"], b"x" * 10, 5.0, told.append)
        assert place.carried == [(("cat",), b"x" * 10)]
        assert place.taken_up == 0
        assert (await over(place).carry(["cat"], b"y", 5.0)).status == 0

    asyncio.run(story())
