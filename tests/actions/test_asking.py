"""Questions of a climb: what is told, when they are withdrawn, and that nothing goes out early."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial

import pytest

from fleetstop import events
from fleetstop.actions import asking
from fleetstop.actions.asking import Desk
from fleetstop.core.climbing.consent import Choice, Question
from fleetstop.core.commands import Command
from tests.actions.stage import GENTLE, HARD, NOW, Stage, job, playbook, target
from tests.fakes.fake_host import FakeHost, Open, Trainer, a_job


def deaf(host: FakeHost) -> Trainer:
    return a_job(host, Trainer(host, hears=(), ignores=("INT",)))


def _close(trainer: Trainer) -> None:
    del trainer.files[8]


class Someone:
    """Answers `said` once `seconds` of the host's time have passed; None: never."""

    def __init__(self, host: FakeHost, said: bool | None, seconds: float = 0.0) -> None:
        self.host, self.said, self.seconds = host, said, seconds
        self.asked: list[Question] = []
        self.cancelled = 0
        self.open = self.most_open = 0

    async def __call__(self, question: Question) -> bool:
        self.asked.append(question)
        until = self.host.clock.now() + self.seconds
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            while self.said is None or self.host.clock.now() < until:
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.open -= 1
        return self.said


def test_a_yes_is_asked_for_told_and_looked_at_again_before_the_signal() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = deaf(host)
        someone, stage = Someone(host, True, 7.0), Stage(host)
        outcome = await stage.stop(HARD, desk=Desk(someone))
        assert outcome.result == "stopped"
        assert [each.signal for each in outcome.signals] == ["TERM"]
        (question,) = someone.asked
        assert (question.target, question.signal, question.pids) == ("ct200:train", "TERM", (10,))
        (asked,) = stage.of(events.Asked)
        assert (asked.about, asked.signal, asked.landing) == ("consent", "TERM", "fatal")
        (answered,) = stage.of(events.Answered)
        assert (answered.answer, answered.signal) == ("yes", "TERM")
        frames = [each.verb for each in host.frames]
        after = host.frames[frames.index("send") - 12 : frames.index("send")]
        assert [each.verb for each in after].count("look") >= 2
        assert ("TERM", trainer.pid) in host.kills
        assert any("as agreed when asked" in each for each in outcome.findings)

    asyncio.run(story())


def test_a_no_is_the_answer_and_the_job_runs_on() -> None:
    async def story() -> None:
        host = FakeHost()
        deaf(host)
        stage = Stage(host)
        outcome = await stage.stop(HARD, desk=Desk(Someone(host, False)))
        assert (outcome.result, outcome.signals) == ("still_running", ())
        assert host.kills == []
        assert [each.answer for each in stage.of(events.Answered)] == ["no"]
        assert host.ledgers == {}

    asyncio.run(story())


@pytest.mark.parametrize("said", [None, 1, "yes"])
def test_only_true_is_a_yes(said: object) -> None:
    async def story() -> None:
        host = FakeHost()
        deaf(host)

        async def confirm(question: Question) -> bool:
            return said  # type: ignore[return-value]

        outcome = await Stage(host).stop(HARD, desk=Desk(confirm))
        assert (outcome.signals, host.kills) == ((), [])

    asyncio.run(story())


def test_without_anybody_to_ask_it_is_as_ever() -> None:
    async def story() -> None:
        host = FakeHost()
        deaf(host)
        stage = Stage(host)
        outcome = await stage.stop(HARD)
        assert (outcome.result, stage.of(events.Asked)) == ("refused", [])

    asyncio.run(story())


def test_a_dry_run_asks_nobody() -> None:
    async def story() -> None:
        host = FakeHost()
        deaf(host)
        someone = Someone(host, True)
        outcome = await Stage(host).stop(HARD, dry_run=True, desk=Desk(someone))
        assert (outcome.result, someone.asked) == ("planned", [])

    asyncio.run(story())


def test_it_is_withdrawn_when_the_job_ends() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = deaf(host)
        host.later(30.0, partial(host.end, trainer))
        someone, stage = Someone(host, None), Stage(host)
        outcome = await stage.stop(HARD, desk=Desk(someone))
        assert outcome.signals == ()
        assert someone.cancelled == 1
        (answered,) = stage.of(events.Answered)
        assert (answered.answer, answered.reason) == ("withdrawn", "the job has ended")
        assert len(stage.world.host.sent("stamp")) >= 4  # the lock lives as long as the question

    asyncio.run(story())


def test_a_save_that_begins_withdraws_it_and_the_yes_after_it_cuts_nothing() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = deaf(host)

        def begin() -> None:
            trainer.files[8] = Open("/ck/step.pt", since=host.clock.now(), rate=1e6)

        host.later(10.0, begin)
        host.later(20.0, partial(_close, trainer))
        someone, stage = Someone(host, True, 15.0), Stage(host)
        outcome = await stage.stop(HARD, desk=Desk(someone))
        assert [each.answer for each in stage.of(events.Answered)] == ["withdrawn", "yes"]
        (sent,) = stage.of(events.SignalSent)
        assert float(sent.at.partition("+")[2]) >= 20.0 + 15.0
        assert outcome.result == "stopped"

    asyncio.run(story())


def test_a_yes_that_comes_with_the_save_does_not_cut_it() -> None:
    """The answer is given while the look that would show the save is still under way."""

    async def story() -> None:
        host = FakeHost()
        trainer = deaf(host)

        async def confirm(question: Question) -> bool:
            if 8 not in trainer.files:
                trainer.files[8] = Open("/ck/step.pt", since=host.clock.now(), rate=1e6)
                host.later(9.0, partial(_close, trainer))
            return True

        stage = Stage(host)
        began = host.clock.now()
        await stage.stop(HARD, desk=Desk(confirm))
        (sent,) = stage.of(events.SignalSent)
        assert 8 not in trainer.files
        assert float(sent.at.partition("+")[2]) + 1000.0 - began >= 9.0

    asyncio.run(story())


def test_an_interruption_at_the_question_sends_nothing_and_closes_it() -> None:
    async def story() -> None:
        host = FakeHost()
        deaf(host)
        someone, stage = Someone(host, None), Stage(host)
        work = asyncio.ensure_future(stage.stop(HARD, desk=Desk(someone)))
        while not someone.asked:
            await asyncio.sleep(0)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        assert (host.kills, someone.cancelled) == ([], 1)
        assert stage.of(events.TargetFinished)[-1].outcome.interrupted
        assert host.ledgers == {}

    asyncio.run(story())


def test_a_bug_in_what_asks_is_a_fault_and_sends_nothing() -> None:
    async def story() -> None:
        host = FakeHost()
        deaf(host)

        async def confirm(question: Question) -> bool:
            raise KeyError("no such widget")

        outcome = await Stage(host).stop(HARD, desk=Desk(confirm))
        assert (outcome.result, host.kills) == ("fault", [])

    asyncio.run(story())


def test_one_question_at_a_time_over_all_targets() -> None:
    async def story() -> None:
        host = FakeHost()
        deaf(host)
        other = Trainer(host, 2010, 1000, hears=(), ignores=("INT",), saves=None, vmid=201)
        host.add(other)
        someone = Someone(host, False, 3.0)
        desk = Desk(someone)
        here = Stage(host, "run1")
        there = Stage(host, "run2", target(name="ct201:train", vmid=201, job=job(checkpoints=None)))
        await asyncio.gather(here.stop(NOW, desk=desk), there.stop(NOW, desk=desk))
        assert {each.target for each in someone.asked} == {"ct200:train", "ct201:train"}
        assert someone.most_open == 1

    asyncio.run(story())


def both(host: FakeHost) -> Trainer:
    trainer = a_job(host, Trainer(host, hears=("INT", "TERM")))

    def hear(signal: str) -> None:
        if signal == "TERM":
            Trainer.hear(trainer, signal)

    trainer.on_signal = hear
    return trainer


UNSAID = target(job=job(stop_signal=None))


def test_which_signal_saves_is_asked_where_both_are_heard() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = both(host)
        asked: list[Choice] = []

        async def choose(choice: Choice) -> str | None:
            asked.append(choice)
            return "TERM"

        stage = Stage(host, aim=UNSAID)
        outcome = await stage.stop(GENTLE, desk=Desk(None, choose))
        assert (outcome.result, trainer.heard) == ("stopped", ["TERM"])
        assert [(each.pids, each.signals) for each in asked] == [((10,), ("INT", "TERM"))]
        assert [each.answer for each in stage.of(events.Answered)] == ["TERM"]

    asyncio.run(story())


@pytest.mark.parametrize("said", [None, "HUP", "int"])
def test_neither_is_a_refusal(said: str | None) -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = both(host)

        async def choose(choice: Choice) -> str | None:
            return said

        outcome = await Stage(host, aim=UNSAID).stop(GENTLE, desk=Desk(None, choose))
        assert (outcome.result, trainer.heard) == ("refused", [])
        assert "nobody has said which one saves" in (outcome.reason or "")

    asyncio.run(story())


def test_a_job_that_ends_at_that_question_is_not_running() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = both(host)
        host.later(5.0, partial(host.end, trainer))

        async def choose(choice: Choice) -> str | None:
            await asyncio.Event().wait()
            return None

        stage = Stage(host, aim=UNSAID)
        outcome = await stage.stop(GENTLE, desk=Desk(None, choose))
        assert (outcome.result, host.kills) == ("not_running", [])
        assert [each.answer for each in stage.of(events.Answered)] == ["withdrawn"]

    asyncio.run(story())


def test_a_yes_from_before_another_runs_signal_is_none_for_what_it_would_cut_now() -> None:
    """It was asked about a whole group; by now the trainer saves for somebody else's INT."""

    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host, Trainer(host, hears=("INT", "TERM"), takes_s=30.0))
        trainer._saves = None  # in memory: nothing shows it yet

        def meanwhile(question: Question) -> bool:
            if "other" in host.ledgers["200"]:
                return False
            up = host.uptime
            trainer.hear("INT")
            line = f"send 1 INT heard {up} {trainer.word}"
            host.ledgers["200"]["other"] = ["header bob", f"stamp {up}", line, f"done {up}"]
            return True

        asked: list[Question] = []

        async def confirm(question: Question) -> bool:
            asked.append(question)
            return meanwhile(question)

        stage = Stage(host)
        outcome = await stage.stop(playbook("TERM:group/5", hold=None), desk=Desk(confirm))
        assert host.kills == []
        assert not trainer.lost
        assert outcome.signals == ()
        assert len(asked) == 2
        assert "heard a signal already" in asked[1].why

    asyncio.run(story())


def test_the_look_that_the_black_box_costs_costs_no_second_question() -> None:
    async def story() -> None:
        host = FakeHost()
        deaf(host)
        someone, stage = Someone(host, True, 3.0), Stage(host)
        outcome = await stage.stop(NOW, desk=Desk(someone))
        assert (outcome.result, len(someone.asked)) == ("stopped", 1)
        assert len(stage.of(events.BlackBox)) == 1
        verbs = [each.verb for each in host.frames]
        assert "look" in verbs[verbs.index("wchan") : verbs.index("send")]

    asyncio.run(story())


def test_a_save_that_begins_during_the_black_box_is_not_cut_by_the_yes() -> None:
    """The wrong choice, sending by the look before it, loses the checkpoint."""

    async def story() -> None:
        host = FakeHost()
        trainer = deaf(host)

        def begin(_: Command) -> None:
            trainer.files[8] = Open("/ck/step.pt", since=host.clock.now(), rate=1e6)
            host.later(20.0, partial(_close, trainer))

        someone, stage = Someone(host, True), Stage(host)
        stage.world.host.before("wchan", begin)
        await stage.stop(HARD, desk=Desk(someone))
        (sent,) = stage.of(events.SignalSent)
        (held, *_) = stage.of(events.Holding)
        assert held.why == "saving"
        assert 8 not in trainer.files
        assert sent.signal == "TERM"

    asyncio.run(story())


def test_a_question_outlives_a_lost_connection_and_its_yes_is_looked_at_anew() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = deaf(host)
        stage = Stage(host)
        asked: list[Question] = []

        async def confirm(question: Question) -> bool:
            asked.append(question)

            def cut(_: Command) -> None:
                # while nobody sees it, it begins to save
                trainer.files[8] = Open("/ck/step.pt", since=host.clock.now(), rate=1e6)
                host.later(20.0, partial(_close, trainer))
                stage.world.cut()

            if len(asked) == 1:
                stage.world.host.before("watch", cut)
                await asyncio.sleep(0)
            return True

        outcome = await stage.stop(HARD, desk=Desk(confirm))
        assert stage.world.taken_up == 1
        assert outcome.result == "stopped"
        assert 8 not in trainer.files
        assert [s.signal for s in outcome.signals] == ["TERM"]

    asyncio.run(story())


# somebody whose code swallows its cancellation


class Deafened:
    """Never lets go of a question, and says yes when it is much too late."""

    def __init__(self) -> None:
        self.asked = 0
        self.open = asyncio.Event()
        self.end = asyncio.Event()

    async def __call__(self, question: object) -> bool:
        self.asked += 1
        self.open.set()
        while not self.end.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await self.end.wait()
        return True


def test_a_question_that_is_not_let_go_of_ends_no_stop_and_its_late_yes_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The job ends by itself under the question; the wrong choice hangs here for ever."""
    monkeypatch.setattr(asking, "LET_GO_S", 0.05)

    async def story() -> None:
        host = FakeHost()
        trainer = deaf(host)
        host.later(5.0, lambda: host.end(trainer))
        stage, someone = Stage(host), Deafened()
        desk = Desk(someone)
        outcome = await asyncio.wait_for(stage.stop(HARD, desk=desk), 20)
        assert asking.NOT_LET_GO in outcome.findings
        assert [each.answer for each in stage.of(events.Answered)] == ["withdrawn"]
        # the next one is not asked beside it, and is not kept waiting: nobody agrees
        other = FakeHost()
        second = deaf(other)
        later = await asyncio.wait_for(Stage(other, "run2").stop(HARD, desk=desk), 20)
        assert (later.result, later.signals, someone.asked) == ("still_running", (), 1)
        someone.end.set()
        for _ in range(5):
            await asyncio.sleep(0)
        assert (trainer.heard, second.heard, host.kills, other.kills) == ([], [], [], [])
        assert not desk.kept

    asyncio.run(story())


def test_an_interruption_is_not_kept_waiting_by_it_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "LET_GO_S", 0.05)

    async def story() -> None:
        host = FakeHost()
        deaf(host)
        stage, someone = Stage(host), Deafened()
        work = asyncio.ensure_future(stage.stop(HARD, desk=Desk(someone)))
        await someone.open.wait()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(work, 20)
        (ended,) = stage.of(events.TargetFinished)
        assert ended.outcome.interrupted
        assert asking.NOT_LET_GO in ended.outcome.findings
        assert host.ledgers == {}
        someone.end.set()
        await asyncio.sleep(0)

    asyncio.run(story())


def test_who_is_asked_which_signal_saves_and_does_not_let_go_ends_no_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(asking, "LET_GO_S", 0.05)

    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host, Trainer(host, hears=("INT", "TERM")))
        host.later(5.0, lambda: host.end(trainer))
        someone = Deafened()

        async def choose(choice: Choice) -> str | None:
            await someone(choice)
            return "TERM"

        stage = Stage(host, aim=target(job=job(stop_signal=None)))
        outcome = await asyncio.wait_for(stage.stop(GENTLE, desk=Desk(None, choose)), 20)
        assert (outcome.result, outcome.signals) == ("not_running", ())
        assert asking.NOT_LET_GO in [each.text for each in stage.of(events.Finding)]
        someone.end.set()
        await asyncio.sleep(0)

    asyncio.run(story())
