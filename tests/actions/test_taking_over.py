"""`--break-lock` and `--timeout`: who may still send, and what is said at the end."""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec
import pytest

from fleetstop import events
from fleetstop.actions.claiming import known_dead
from fleetstop.actions.fleet import Crew
from fleetstop.actions.telling import Run
from fleetstop.core.commands import Answer, Command
from fleetstop.core.inventory import Target
from fleetstop.core.ledger import holder
from fleetstop.core.report import Outcome, exit_code_of
from fleetstop.errors import LockTaken, Refused
from fleetstop.events import AnyEvent
from fleetstop.ports import Place
from tests.actions.stage import GENTLE, TARGET, Stage, a_send, playbook, tree_of, verifying
from tests.fakes.fake_host import FakeHost, Trainer, a_job, nothing
from tests.fakes.fake_place import FakeClock


def findings(stage: Stage) -> list[str]:
    return [each.text for each in stage.of(events.Finding)]


def test_a_broken_lock_is_said_to_be_whose_it_was_and_the_other_run_sends_nothing() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host)
        other = Stage(host, "run1").lock()
        await other.claim()
        host.clock.advance(12)
        with pytest.raises(Refused) as no:
            await Stage(host, "run2").lock().claim()
        assert "--break-lock" in no.value.hint
        stage = Stage(host, "run3")
        outcome = await stage.stop(break_lock=True)
        assert (outcome.result, trainer.heard) == ("stopped", ["INT"])
        (text,) = findings(stage)
        assert text.startswith("broke the lock of ann@laptop-run1 (run run1, since 12 s ago)")
        assert outcome.findings == (text,)
        again = Trainer(host, takes_s=1.0)
        host.add(again)
        with pytest.raises(Refused, match=r"run run3 \(ann@laptop-run3\) has taken the lock over"):
            await other.send(a_send(again), tree_of(host), {})
        assert again.heard == []

    asyncio.run(story())


def test_one_that_has_sent_already_sends_nothing_more_once_its_lock_is_broken() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host, Trainer(host, hears=("INT", "TERM"), takes_s=60.0))
        first = Stage(host, "run1").lock()
        await first.claim()
        await first.send(a_send(trainer), tree_of(host), {})
        stage = Stage(host, "run2")

        async def escalates() -> None:
            with pytest.raises(LockTaken, match="run run2 has taken the lock over; nothing more"):
                await first.send(a_send(trainer, signal="TERM"), tree_of(host), {})
            tried.append(1)

        tried: list[int] = []
        stage.world.within.before("list", *[nothing] * 5, lambda _: escalates())
        outcome = await stage.stop(playbook("INT/2m", lossless=True), break_lock=True)
        # what the first has sent counts: it is watched on, nothing is repeated
        (watched,) = stage.of(events.WatchedOn)
        assert (watched.by_run, outcome.signals, outcome.result) == ("run1", (), "stopped")
        assert (trainer.heard, trainer.lost, tried) == (["INT"], False, [1])

    asyncio.run(story())


def test_a_lock_that_is_lost_after_the_end_leaves_nothing_running() -> None:
    """Somebody goes to work there while its GPUs are still waited for: the job has ended all the
    same, and only that it ended clean was not seen."""

    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host, Trainer(host, saves=None, takes_s=1.0))
        host.gpus = [{trainer.pid: 700}]
        stage, other = Stage(host, "run1"), Stage(host, "run2").lock()

        async def takes_over() -> None:
            await other.claim(holder(await other.read()))
            host.clock.advance(40)  # the laptop slept

        stage.world.host.before("gpus", nothing, nothing, lambda _: takes_over())
        host.held_for_good.add(trainer.pid)
        outcome = await stage.stop(verifying(60.0))
        assert (outcome.result, exit_code_of(outcome)) == ("unclean", 6)
        assert outcome.reason is not None
        assert outcome.reason.startswith(
            "the trainers ended, and the rest was not proved: run run2"
        )
        assert [each.signal for each in outcome.signals] == ["INT"]

    asyncio.run(story())


def test_what_the_other_was_about_to_send_is_waited_for_and_counts() -> None:
    """It has looked at the ledger before the break, and its frame arrives 5 s after it: sending
    at once would be the second signal, into the save."""

    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host, Trainer(host, takes_s=60.0))
        first, stage = Stage(host, "run1"), Stage(host, "run2")
        lock = first.lock()
        await lock.claim()
        frame: list[Command] = []

        def stalled(command: Command) -> Answer:
            frame.append(command)
            return Answer(0, b"sent 1.0 0")

        first.world.host.before("send", stalled)
        await lock.send(a_send(trainer), tree_of(host), {})
        late: list[Answer] = []
        arrives = partial(host.later, 5.0, lambda: late.append(host._send(frame[0].words)))
        stage.world.host.after("claim", lambda _: arrives())
        outcome = await stage.stop(playbook("INT/2m", lossless=True), break_lock=True)
        assert [each.status for each in late] == [0]
        assert (trainer.heard, trainer.lost) == (["INT"], False)
        assert (outcome.result, outcome.signals) == ("stopped", ())

    asyncio.run(story())


def test_two_that_break_the_same_lock_at_once_never_both_send() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host, Trainer(host, takes_s=50.0))
        await Stage(host, "run1").lock().claim()
        stages = [Stage(host, f"run{n}") for n in (2, 3, 4)]
        outcomes = await asyncio.gather(*(each.stop(break_lock=True) for each in stages))
        assert trainer.heard == ["INT"]
        assert not trainer.lost
        assert sum(bool(each.signals) for each in outcomes) == 1

    asyncio.run(story())


def test_a_broken_run_stays_broken_after_the_breaker_has_left() -> None:
    async def story() -> None:
        host = FakeHost()
        first, second = Stage(host, "run1").lock(), Stage(host, "run2").lock()
        ledger = await first.claim()
        mine = holder(ledger)
        assert mine is not None
        await second.break_in(mine)
        await second.release(frozenset())
        assert "run2" in host.ledgers["200"]
        third = Stage(host, "run3").lock()
        await third.claim()  # nobody holds it now
        await third.release(frozenset())
        host.clock.advance(31)
        last = Stage(host, "run4").lock()
        await last.claim()
        await last.release(frozenset())
        assert host.ledgers == {}

    asyncio.run(story())


def test_a_lock_nobody_holds_is_not_broken() -> None:
    async def story() -> None:
        host = FakeHost()
        a_job(host)
        stage = Stage(host)
        outcome = await stage.stop(break_lock=True)
        assert (outcome.result, findings(stage)) == ("stopped", [])
        assert [len(each) for each in stage.world.host.sent("claim")] == [3]

    asyncio.run(story())


def test_a_dry_run_tells_whose_lock_would_be_broken_and_breaks_none() -> None:
    async def story() -> None:
        host = FakeHost()
        a_job(host)
        await Stage(host, "run1").lock().claim()
        before = {run: list(lines) for run, lines in host.ledgers["200"].items()}
        stage = Stage(host, "run2")
        outcome = await stage.stop(break_lock=True, dry_run=True)
        assert outcome.result == "planned"
        assert outcome.findings[0].startswith("would break the lock of ann@laptop-run1")
        assert host.ledgers["200"] == before

    asyncio.run(story())


def paused(stage: Stage, verb: str, *turns: int) -> asyncio.Event:
    """The host does not answer this frame any more (the Nth of its kind)."""
    reached = asyncio.Event()

    async def wait() -> None:
        reached.set()
        await asyncio.Event().wait()

    stage.world.host.before(verb, *[nothing] * turns[0], lambda _: wait())
    return reached


def test_the_time_is_over_and_only_the_watching_ends() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host, Trainer(host, hears=("INT", "TERM"), takes_s=500.0))
        stage = Stage(host)
        paused(stage, "watch", 4)
        outcome = await stage.stop(playbook("INT/1s TERM/1s", lossless=True), timeout_s=0.3)
        assert (outcome.result, exit_code_of(outcome)) == ("still_running", 1)
        assert not outcome.interrupted
        assert outcome.reason == (
            "the --timeout of 0 s is over: no longer watched, nothing more is sent; "
            "the job may still finish"
        )
        assert [each.signal for each in outcome.signals] == ["INT"]
        assert trainer.heard == ["INT"]
        assert host.ledgers["200"]["run1"][-1].startswith("done ")

    asyncio.run(story())


def test_the_time_is_over_before_the_job_was_found() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host)
        stage = Stage(host)
        paused(stage, "look", 0)
        outcome = await stage.stop(timeout_s=0.2)
        assert (outcome.result, outcome.verdict, trainer.heard) == ("unreachable", "unknown", [])
        assert "nothing was sent" in (outcome.reason or "")
        assert host.ledgers == {}

    asyncio.run(story())


def test_the_time_is_over_while_its_end_is_proved() -> None:
    async def story() -> None:
        host = FakeHost()
        a_job(host)
        stage = Stage(host)
        host.gpus = [{1010: 5000}]
        paused(stage, "gpus", 1)
        outcome = await stage.stop(timeout_s=0.5)
        assert outcome.result == "unclean"
        assert (outcome.reason or "").endswith("is over before the end was proved")

    asyncio.run(story())


def test_the_time_is_over_during_the_send_and_its_answer_is_told() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host)
        stage = Stage(host)

        async def slow() -> None:
            await asyncio.sleep(1.5)

        stage.world.host.after("send", lambda _: slow())
        outcome = await stage.stop(timeout_s=1.0)
        assert (outcome.result, trainer.heard) == ("still_running", ["INT"])
        assert [each.signal for each in outcome.signals] == ["INT"]
        assert outcome.findings == ()

    asyncio.run(story())


def test_a_timeout_of_our_own_is_no_end_of_the_given_time() -> None:
    async def story() -> None:
        host = FakeHost()
        a_job(host)
        stage = Stage(host)

        def bug(_: Command) -> None:
            raise TimeoutError("ours")

        stage.world.host.before("gpus", bug)
        outcome = await stage.stop(timeout_s=60.0)
        assert (outcome.result, len(stage.faults)) == ("fault", 1)

    asyncio.run(story())


def test_one_that_was_never_connected_in_time_could_not_be_looked_at() -> None:
    async def story() -> None:
        clock = FakeClock()
        told: list[AnyEvent] = []

        async def opening(_: Target) -> Place:
            await asyncio.Event().wait()
            raise AssertionError

        async def never(_: object) -> Outcome:
            raise AssertionError

        crew = Crew(
            Run(id="run1", operator="ann", origin="laptop"),
            clock,
            told.append,
            opening,
            lambda _: asyncio.Semaphore(1),
            lambda _: None,
            limit_s=0.2,
        )
        (outcome,) = await crew.run_all([TARGET], never)
        assert (outcome.result, exit_code_of(outcome)) == ("unreachable", 4)
        assert "not connected within the --timeout of 0 s; nothing was sent" in str(outcome.reason)

    asyncio.run(story())


def test_the_action_is_given_what_is_left_of_the_time() -> None:
    async def story() -> None:
        host = FakeHost()
        a_job(host)
        stage = Stage(host)
        scope = msgspec.structs.replace(stage.scope, limit_s=30.0, until=host.clock.now() + 20.0)
        host.clock.advance(5.0)
        assert scope.left() == 15.0
        host.clock.advance(50.0)
        assert scope.left() == 0.0
        assert stage.scope.left() is None
        assert (await stage.stop(GENTLE, timeout_s=600.0)).result == "stopped"

    asyncio.run(story())


def of_a_process(stage: Stage, client: str, *dead: str) -> Stage:
    stage.run = msgspec.structs.replace(stage.run, client=client, dead=lambda each: each in dead)
    stage.scope = msgspec.structs.replace(stage.scope, run=stage.run)
    return stage


@pytest.mark.parametrize("dead", ["m:7:70", "m:8:80"])
def test_the_lock_of_a_killed_process_is_taken_over_with_what_it_has_sent(dead: str) -> None:
    """Who watched was killed while the trainer saved: it hears no second signal, and nobody waits
    for half a minute. Where that process may live, it is as ever."""

    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host, Trainer(host, takes_s=60.0, saves=None))
        first = of_a_process(Stage(host, "run1"), "m:7:70").lock()
        await first.claim()
        assert (await first.send(a_send(trainer), tree_of(host), {})).out
        host.clock.advance(2)
        stage = of_a_process(Stage(host, "run2"), "m:9:90", dead)
        began = host.clock.now()
        outcome = await stage.stop()
        assert (trainer.heard, trainer.lost) == (["INT"], False)
        if dead != "m:7:70":
            assert outcome.result == "refused"
            assert "free in at most 28 s" in (outcome.hint or "")
            return
        assert (outcome.result, outcome.signals) == ("unclean", ())  # it tells nobody of a save
        (text,) = findings(stage)
        assert text.startswith("took over the lock of ann@laptop-run1 (run run1, since ")
        assert ", and waits up to 9 s for what it may have sent last: " in text
        assert text.endswith("its process here is dead")
        # for what it was about to send is waited, and for the save
        assert 58.0 < host.clock.now() - began < 70.0

    asyncio.run(story())


def test_who_waits_for_a_dead_runs_lock_looks_anew() -> None:
    """The save ends in these 9 s: what was seen before them is not what is there."""

    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host, Trainer(host, takes_s=6.0, saves=None))
        first = of_a_process(Stage(host, "run1"), "m:7:70").lock()
        await first.claim()
        assert (await first.send(a_send(trainer), tree_of(host), {})).out
        host.clock.advance(2)
        stage = of_a_process(Stage(host, "run2"), "m:9:90", "m:7:70")
        outcome = await stage.stop()
        assert outcome.result == "not_running"
        assert stage.of(events.Located) == []  # nothing is told as if it still ran

    asyncio.run(story())


@pytest.mark.parametrize("dead", ["m:7:70", "m:8:80"])
def test_a_dry_run_goes_by_the_same_proof_of_a_dead_client(dead: str) -> None:
    """It called alive what a real run takes over at once; and it takes over nothing itself."""

    async def story() -> None:
        host = FakeHost()
        a_job(host)
        await of_a_process(Stage(host, "run1"), "m:7:70").lock().claim()
        before = {run: list(lines) for run, lines in host.ledgers["200"].items()}
        stage = of_a_process(Stage(host, "run2"), "m:9:90", dead)
        lock = stage.lock()
        await known_dead(lock)  # as a launch does, whose activator is asked about by run
        outcome = await stage.stop(dry_run=True)
        assert host.ledgers["200"] == before
        if dead != "m:7:70":
            assert (outcome.result, lock.dead) == ("refused", set())
            return
        assert (outcome.result, lock.dead) == ("planned", {"run1"})
        (text,) = findings(stage)
        assert text.startswith("would take over the lock of ann@laptop-run1 (run run1, since ")
        assert text.endswith(": its process here is dead")

    asyncio.run(story())
