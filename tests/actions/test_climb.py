from __future__ import annotations

import asyncio
from functools import partial

import pytest

from fleetstop import events
from fleetstop.core.commands import Answer, Command
from fleetstop.core.playbook import Hold
from fleetstop.errors import (
    ConnectionLost,
    FleetstopError,
    FrameTimedOut,
    HostUnreachable,
    PrivilegeMissing,
    RemoteFailed,
)
from tests.actions.stage import GENTLE, HARD, Stage, a_send, job, playbook, target, tree_of
from tests.fakes.fake_host import (
    FakeHost,
    Hook,
    Open,
    Proc,
    Trainer,
    WorldShell,
    a_job,
    nothing,
    whole,
)


def ended(stage: Stage) -> events.TargetFinished:
    return stage.of(events.TargetFinished)[-1]


class Gate:
    """Holds a frame until the test has done what it wants to do meanwhile."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.go = asyncio.Event()

    async def __call__(self) -> None:
        self.reached.set()
        await self.go.wait()


def test_a_polite_job_hears_one_signal_saves_and_is_told_of_step_by_step() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host)
        stage = Stage(host)
        outcome = await stage.stop()
        assert (outcome.result, outcome.reason) == ("stopped", None)
        assert trainer.heard == ["INT"]
        assert [each.signal for each in outcome.signals] == ["INT"]
        told = [type(each) for each in stage.told]
        order = [events.Located, events.RungEntered, events.SignalSent, events.TargetFinished]
        assert [each for each in told if each in order] == order
        assert [each.own_playbook for each in stage.of(events.Located)] == ["standard"]
        exits = [(each.pid, each.role) for each in stage.of(events.MemberExited)]
        assert exits == [(10, "trainer"), (5, "wrapper")]
        assert host.ledgers == {}

    asyncio.run(story())


def test_an_end_is_told_before_the_next_look_at_everything() -> None:
    """A look takes its time, in a big container more than the end may stay untold."""

    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host)
        stage = Stage(host)
        untold: list[bool] = []

        def note(_: Command) -> None:
            gone = trainer.pid not in host.procs
            untold.append(gone and not stage.of(events.MemberExited))

        stage.world.host.before("look", *[note] * 50)
        await stage.stop()
        assert len(untold) > 5
        assert not any(untold)

    asyncio.run(story())


def test_a_later_look_is_told_only_when_its_verdict_changed() -> None:
    async def story() -> None:
        host = FakeHost()
        a_job(host, Trainer(host, takes_s=20.0))
        stage = Stage(host)
        await stage.stop()
        words = [each.verdict for each in stage.of(events.Looked)]
        assert words[0] == "saving"
        assert all(a != b for a, b in zip(["busy", *words], words, strict=False))
        assert len(stage.world.host.sent("look")) > len(words) + 10

    asyncio.run(story())


def test_no_signal_goes_out_into_a_periodic_save() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host)
        trainer.files[8] = Open("/ck/step.pt", since=host.clock.now(), rate=1e6)
        host.later(7.0, partial(_close, trainer))
        stage = Stage(host)
        await stage.stop()
        (sent,) = stage.of(events.SignalSent)
        assert float(sent.at.partition("+")[2]) >= 7.0
        assert {each.why for each in stage.of(events.Holding)[:1]} == {"saving"}

    asyncio.run(story())


def test_masks_that_changed_before_the_send_are_looked_at_again() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host)
        stage = Stage(host)
        stage.world.host.before("send", lambda _: trainer.ignores.add("USR1"))
        outcome = await stage.stop()
        verbs = stage.world.host.verbs()
        first = verbs.index("send")
        assert "look" in verbs[first : verbs.index("send", first + 1)]
        assert verbs.count("send") == 2
        assert trainer.heard == ["INT"]
        assert (outcome.result, len(outcome.signals)) == ("stopped", 1)

    asyncio.run(story())


def test_one_that_shut_its_ears_just_before_the_send_gets_nothing() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host)
        stage = Stage(host)
        stage.world.host.before("send", lambda _: trainer.ignores.add("INT"))
        outcome = await stage.stop()
        assert trainer.heard == []
        assert outcome.result == "still_running"
        assert "10 ignores it (SigIgn)" in outcome.skipped[0].reason

    asyncio.run(story())


def test_somebody_who_changes_each_time_ends_in_a_failure() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host)
        stage = Stage(host)
        stage.world.host.on("send", Answer(12, b"1010:10100 masks"))
        outcome = await stage.stop()
        assert outcome.result == "unreachable"
        assert "INT was not sent: changed just before the signal" in (outcome.reason or "")
        assert trainer.heard == []
        assert len(stage.world.host.sent("send")) < 100

    asyncio.run(story())


def test_one_gone_in_the_look_but_alive_in_the_watch_is_not_called_gone() -> None:
    async def story() -> None:
        host = FakeHost()
        a_job(host)
        stage = Stage(host)
        stage.world.host.on("watch", lambda _: _quiet(host))
        outcome = await stage.stop()
        assert outcome.result == "unreachable"
        assert outcome.reason == "a member lives, but is no longer seen in its place"
        assert 20 <= host.clock.slept.count(0.2) <= 30
        assert [each.signal for each in outcome.signals] == ["INT"]

    asyncio.run(story())


def _close(trainer: Trainer) -> None:
    del trainer.files[8]


def _quiet(host: FakeHost) -> Answer:
    host.clock.advance(0.5)
    return Answer(0, b"")


def test_a_torn_look_is_forgiven_when_the_next_one_shows_it_again() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host, wrapper=False)
        stage = Stage(host)
        stage.world.host.before("look", nothing, lambda _: host.procs.clear())
        stage.world.host.after("look", nothing, lambda _: host.procs.update({1010: trainer}))
        outcome = await stage.stop()
        assert (outcome.result, trainer.heard) == ("stopped", ["INT"])
        assert host.clock.slept[0] == 0.2

    asyncio.run(story())


def test_a_container_that_freezes_in_the_middle_is_told_with_what_was_sent() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host)
        stage = Stage(host)
        stage.world.host.after("send", lambda _: setattr(host, "frozen", True))
        outcome = await stage.stop()
        assert (outcome.result, outcome.verdict) == ("unreachable", "frozen")
        assert [each.signal for each in outcome.signals] == ["INT"]
        assert trainer.heard == ["INT"]
        assert len(host.sends()) == 1  # remembered for the next run, and given back
        assert host.ledgers["200"]["run1"][-1].startswith("done")

    asyncio.run(story())


def test_one_that_froze_right_before_the_signal_gets_none() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host)
        stage = Stage(host, aim=target(job=job(checkpoints=None)))
        asked: list[int] = []

        async def is_frozen() -> bool:
            asked.append(1)
            return len(asked) == 3  # to locate it, the climb's second look, then the send's own

        stage.world.is_frozen = is_frozen  # type: ignore[method-assign]
        outcome = await stage.stop()
        assert outcome.verdict == "frozen"
        assert "send" not in stage.world.host.verbs()
        assert trainer.heard == []

    asyncio.run(story())


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_interruption_during_the_send_waits_for_its_answer_and_tells_it(when: str) -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host)
        stage, gate = Stage(host), Gate()
        getattr(stage.world.host, when)("send", lambda _: gate())
        work = asyncio.ensure_future(stage.stop())
        await gate.reached.wait()
        work.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
        assert not work.done()
        gate.go.set()
        with pytest.raises(asyncio.CancelledError):
            await work
        outcome = ended(stage).outcome
        assert outcome.interrupted
        assert [each.signal for each in outcome.signals] == ["INT"]
        assert outcome.findings == ()
        assert (outcome.result, trainer.heard) == ("still_running", ["INT"])
        assert "interrupted; sent: INT to 10" in (outcome.reason or "")
        (told,) = stage.of(events.Interrupted)
        assert (told.sent, told.running) == (("INT to 10",), (5, 10))

    asyncio.run(story())


def test_an_interruption_whose_answer_never_came_is_told_as_a_doubt() -> None:
    async def story() -> None:
        host = FakeHost()
        a_job(host)
        stage, gate = Stage(host), Gate()

        async def lost() -> None:
            await gate()
            stage.world.no_way_back = HostUnreachable("no route")
            stage.world.cut()

        stage.world.host.after("send", lambda _: lost())
        work = asyncio.ensure_future(stage.stop())
        await gate.reached.wait()
        work.cancel()
        await asyncio.sleep(0)
        gate.go.set()
        with pytest.raises(asyncio.CancelledError):
            await work
        outcome = ended(stage).outcome
        text = "INT to 10 may have been sent: it was interrupted just then"
        assert outcome.findings == (text,)
        assert [each.text for each in stage.of(events.Finding)] == [text]

    asyncio.run(story())


def test_an_interruption_of_a_send_that_was_refused_tells_no_signal() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host)
        stage, gate = Stage(host), Gate()

        async def changed() -> None:
            await gate()
            trainer.ignores.add("USR1")

        stage.world.host.before("send", lambda _: changed())
        work = asyncio.ensure_future(stage.stop())
        await gate.reached.wait()
        work.cancel()
        await asyncio.sleep(0)
        gate.go.set()
        with pytest.raises(asyncio.CancelledError):
            await work
        outcome = ended(stage).outcome
        assert (outcome.signals, outcome.findings, trainer.heard) == ((), (), [])

    asyncio.run(story())


def test_an_interruption_before_the_send_frame_sends_nothing() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host)
        stage, gate = Stage(host), Gate()
        # the claim reads the ledger once; the second time is right before the send
        stage.world.host.before("ledger", nothing, lambda _: gate())
        work = asyncio.ensure_future(stage.stop())
        await gate.reached.wait()
        work.cancel()
        await asyncio.sleep(0)
        gate.go.set()
        with pytest.raises(asyncio.CancelledError):
            await work
        assert trainer.heard == []

    asyncio.run(story())


def test_a_second_interruption_while_the_answer_is_awaited_leaves_a_doubt() -> None:
    async def story() -> None:
        host = FakeHost()
        a_job(host)
        stage, gate = Stage(host), Gate()
        stage.world.host.after("send", lambda _: gate())
        work = asyncio.ensure_future(stage.stop())
        await gate.reached.wait()
        for _ in range(2):
            work.cancel()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        gate.go.set()
        with pytest.raises(asyncio.CancelledError):
            await work
        outcome = ended(stage).outcome
        assert outcome.signals or outcome.findings

    asyncio.run(story())


@pytest.mark.parametrize("error", [ConnectionLost("lost"), FrameTimedOut("late")])
def test_a_connection_lost_in_the_send_is_a_doubt_and_unreachable(error: FleetstopError) -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host)
        stage = Stage(host)
        stage.world.no_way_back = HostUnreachable("no route to pve1")
        stage.world.host.after("send", lambda _: stage.world.cut(error))
        outcome = await stage.stop()
        assert (outcome.result, outcome.verdict) == ("unreachable", "unknown")
        assert outcome.findings == (
            "INT to 10 may have been sent: the connection was lost just then",
        )
        assert trainer.heard == ["INT"]
        assert len(host.sends()) == 1

    asyncio.run(story())


def test_the_next_run_after_a_lost_answer_repeats_nothing() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host, Trainer(host, takes_s=100.0))
        first, second = Stage(host, "run1"), Stage(host, "run2")

        first.world.no_way_back = HostUnreachable("no route to pve1")
        first.world.host.after("send", lambda _: first.world.cut())
        await first.stop()
        outcome = await second.stop()
        (watched,) = second.of(events.WatchedOn)
        assert (watched.by_run, watched.signal, watched.pids) == ("run1", "INT", (10,))
        assert (trainer.heard, trainer.lost) == (["INT"], False)
        assert (outcome.result, outcome.signals) == ("stopped", ())

    asyncio.run(story())


def test_a_signal_of_another_run_between_claim_and_send_is_watched_on_for() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host, Trainer(host, takes_s=10.0))
        stage = Stage(host, "run1")

        async def another() -> None:
            host.clock.advance(31)
            other = Stage(host, "run2").lock()
            await other.claim()
            await other.send(a_send(trainer), tree_of(host), {})
            await other.release(None)

        # the claim reads the ledger once; the second time is right before the send
        stage.world.host.before("ledger", nothing, lambda _: another())
        outcome = await stage.stop(playbook("stop_signal/1m", hold=None))
        assert stage.world.host.sent("send") == []
        (watched,) = stage.of(events.WatchedOn)
        assert (watched.by_run, watched.signal) == ("run2", "INT")
        assert trainer.heard == ["INT"]
        assert not trainer.lost
        assert (outcome.result, outcome.signals) == ("stopped", ())

    asyncio.run(story())


def test_a_kill_that_missed_some_is_a_finding_beside_the_signal() -> None:
    async def story() -> None:
        host = FakeHost()
        a_job(host)
        host.kill_status = 1
        outcome = await Stage(host).stop()
        assert outcome.findings[0].endswith("may have been sent: kill could not reach all of 10")
        assert len(outcome.signals) == 1

    asyncio.run(story())


def test_open_files_that_cannot_be_listed_hold_the_signal() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host)
        stage = Stage(host)
        bad: list[Hook] = [lambda _: Answer(41, b"1.0\n")]
        stage.world.within.before("list", nothing, *bad * 40)
        how = playbook("stop_signal/1m", lossless=True, hold=Hold(stopping_s=5.0))
        outcome = await stage.stop(how)
        assert (outcome.result, trainer.heard) == ("still_running", [])
        assert "it may be saving, which could not be seen" in (outcome.reason or "")
        (held,) = stage.of(events.Holding)
        assert held.why == "unseen"
        assert held.evidence == ("the checkpoints: /ck is not a directory that can be entered",)

    asyncio.run(story())


@pytest.mark.parametrize("error", [RemoteFailed, FrameTimedOut, PrivilegeMissing])
@pytest.mark.parametrize("when", ["before", "later"])
def test_a_container_that_can_be_entered_no_more_may_be_saving(
    error: type[FleetstopError], when: str
) -> None:
    """It cannot fork, say, and its files are seen from nowhere: between two of them nothing is
    open, so that open files say nothing. The signal waits; the job's chance stays whole."""

    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host)
        stage = Stage(host)
        stage.world.entering = error("no pct") if when == "before" else None
        stage.world.host.after("claim", lambda _: setattr(stage.world, "entering", error("no pct")))
        outcome = await stage.stop(GENTLE)
        assert (outcome.result, trainer.heard) == ("still_running", [])
        assert "it may be saving, which could not be seen" in (outcome.reason or "")
        assert host.sends() == []
        (held,) = stage.of(events.Holding)
        assert (held.why, held.evidence) == ("unseen", ("the checkpoints: no pct",))

    asyncio.run(story())


def test_a_first_look_that_saw_no_files_is_none_of_the_two_calm_ones() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host, Trainer(host, saves=None, takes_s=0.1))
        stage = Stage(host)
        bad: Hook = lambda _: Answer(41, b"1.0\n")  # noqa: E731
        stage.world.within.before("list", bad, bad)  # a listing is asked for twice
        await stage.stop(GENTLE)
        assert trainer.heard == ["INT"]
        kinds = [type(each) for each in stage.told]
        before = stage.told[: kinds.index(events.SignalSent)]
        assert [each.why for each in before if isinstance(each, events.Holding)] == ["unseen"]

    asyncio.run(story())


def two_shards(host: FakeHost, trainer: Trainer, gap_s: float) -> None:
    """One is written and closed, the other follows: unless the trainer is gone by then."""

    def follow() -> None:
        if not trainer.heard:
            host.write("/ck/step_2/model-00002-of-00002.pt", whole())

    host.write("/ck/step_2/model-00001-of-00002.pt", whole())
    host.later(gap_s, follow)


@pytest.mark.parametrize("when", ["before", "later"])
def test_between_two_shards_in_a_container_that_is_not_entered(when: str) -> None:
    """Nothing is open in the gap. INT then would cost the set: this trainer saves on none."""

    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host, Trainer(host, saves=None, takes_s=0.1))
        two_shards(host, trainer, 7.0)
        stage = Stage(host)
        stage.world.beside = WorldShell(host)
        no_pids = RemoteFailed("pct could not enter container 200")
        stage.world.entering = no_pids if when == "before" else None
        stage.world.host.after("claim", lambda _: setattr(stage.world, "entering", no_pids))
        outcome = await stage.stop(GENTLE)
        assert trainer.heard == ["INT"]
        assert "/ck/step_2/model-00002-of-00002.pt" in host.files
        kinds = [type(each) for each in stage.told]
        before = stage.told[: kinds.index(events.SignalSent)]
        assert {each.why for each in before if isinstance(each, events.Holding)} == {"saving"}
        # what it left is proved by the same way
        assert (outcome.result, outcome.reason) == ("stopped", None)
        assert outcome.checkpoint is not None
        assert (outcome.checkpoint.path, outcome.checkpoint.complete) == ("/ck/step_2", True)
        (told,) = [each for each in outcome.findings if "seen from the host" in each]
        assert "the container is not entered" in told
        assert "pct could not enter container 200" in told

    asyncio.run(story())


def test_a_job_without_checkpoints_is_judged_by_open_files_where_its_log_is_unseen() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host)
        stage = Stage(host, aim=target(job=job(checkpoints=None, log="/train.log")))
        stage.world.entering = RemoteFailed("no pct")
        outcome = await stage.stop(GENTLE)
        assert (outcome.result, trainer.heard) == ("stopped", ["INT"])

    asyncio.run(story())


def test_every_rung_in_turn_until_it_ends() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host, Trainer(host, hears=("INT", "TERM"), saves=None))
        trainer.obeys = False
        host.write("/ck/last.pt", b"x", age_s=5)
        outcome = await Stage(host).stop(HARD, "given")
        assert [each.signal for each in outcome.signals] == ["INT", "TERM", "KILL"]
        assert outcome.result == "stopped"
        assert host.procs.keys() == {1000, 1090}
        assert ("KILL", 1090) not in host.kills

    asyncio.run(story())


def test_a_worker_born_after_the_first_look_is_killed_with_its_job() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host, Trainer(host, saves=None))
        trainer.obeys = False
        born = Proc(1030, 1010, ("python", "train.py"), flags=0x40)
        host.later(2.0, lambda: host.procs.update({1030: born}))
        await Stage(host).stop(playbook("INT/5s KILL:tree/5s"), "given")
        assert ("KILL", 1030) in host.kills

    asyncio.run(story())


def test_new_lines_of_the_old_shape_in_the_log_end_the_wait_for_a_shutdown() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host, Trainer(host, saves=None))
        trainer.obeys = False
        lines = [f"step {n} loss 0.5" for n in range(20)]
        host.write("/train.log", "\n".join(lines[:5]).encode())
        for n in range(5, 20):
            text = "\n".join(lines[:n]).encode()
            host.later(n * 2.0, partial(host.write, "/train.log", text))
        aim = target(job=job(log="/train.log", checkpoints=None))
        stage = Stage(host, aim=aim)
        outcome = await stage.stop(playbook("INT/10s", lossless=True))
        assert outcome.result == "still_running"
        assert "new steps in the log after the signal: it trains on" in outcome.evidence
        assert outcome.seconds is not None
        assert outcome.seconds < 30  # a shutdown would have been waited for, for 60 s

    asyncio.run(story())


def test_the_lock_is_stamped_during_a_long_wait() -> None:
    async def story() -> None:
        host = FakeHost()
        a_job(host, Trainer(host, takes_s=50.0))
        stage = Stage(host)
        await stage.stop(GENTLE)
        assert 8 <= len(stage.world.host.sent("stamp")) <= 12

    asyncio.run(story())


def test_a_host_that_took_too_long_sent_nothing_and_leaves_no_doubt() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host)
        stage = Stage(host)
        stage.world.host.before("send", lambda _: host.clock.advance(12))
        outcome = await stage.stop()
        assert (outcome.result, outcome.findings, outcome.signals) == ("unreachable", (), ())
        assert (outcome.reason or "").startswith("INT was not sent")
        assert (trainer.heard, host.ledgers) == ([], {})

    asyncio.run(story())


def test_a_look_long_after_the_last_claims_it_anew_and_sends_once() -> None:
    """The client slept for 40 s, and nobody else came."""

    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host)
        stage = Stage(host)
        stage.world.host.before("ledger", nothing, lambda _: host.clock.advance(40))
        outcome = await stage.stop()
        assert (outcome.result, trainer.heard, host.ledgers) == ("stopped", ["INT"], {})
        assert len(stage.world.host.sent("claim")) == 2

    asyncio.run(story())
