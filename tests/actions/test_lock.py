from __future__ import annotations

import asyncio

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetstop.actions.lock import Answered, Lock
from fleetstop.core.commands import Answer
from fleetstop.core.ledger import heard_before
from fleetstop.core.playbook import Hold
from fleetstop.core.process import ProcessId
from fleetstop.errors import Refused, RemoteFailed
from tests.actions.stage import Stage, a_send, kin, playbook, target, tree_of
from tests.fakes.fake_host import FakeHost, Proc, Trainer, a_job


async def has_sent(host: FakeHost, trainer: Proc) -> Lock:
    lock = Stage(host).lock()
    await lock.claim()
    await lock.send(a_send(trainer), tree_of(host), {})
    return lock


def ids(*procs: Proc) -> frozenset[ProcessId]:
    return frozenset(ProcessId(each.pid, each.start) for each in procs)


def test_the_first_claims_and_the_second_is_refused_with_a_name() -> None:
    async def story() -> None:
        host = FakeHost()
        first, second = Stage(host, "run1"), Stage(host, "run2")
        await first.lock().claim()
        with pytest.raises(
            Refused, match=r"ann@laptop-run1 is working on it since .*run run1"
        ) as no:
            await second.lock().claim()
        assert "should it be dead, its lock is free in at most 30 s" in no.value.hint
        assert list(host.ledgers["200"]) == ["run1"]  # who was refused leaves nothing behind

    asyncio.run(story())


def test_two_that_claim_at_once_never_both_hold_it() -> None:
    async def story() -> None:
        host = FakeHost()
        stages = [Stage(host, f"run{n}") for n in range(4)]
        claims = (each.lock().claim() for each in stages)
        done = await asyncio.gather(*claims, return_exceptions=True)
        assert sum(not isinstance(each, BaseException) for each in done) <= 1
        assert all(isinstance(e, Refused) for e in done if isinstance(e, BaseException))

    asyncio.run(story())


def test_a_claim_is_free_again_thirty_seconds_after_the_last_sign_of_life() -> None:
    async def story() -> None:
        host = FakeHost()
        held = Stage(host, "run1").lock()
        await held.claim()
        host.clock.advance(25)
        await held.stamp()
        host.clock.advance(25)
        with pytest.raises(Refused):
            await Stage(host, "run2").lock().claim()
        host.clock.advance(6)
        await Stage(host, "run3").lock().claim()

    asyncio.run(story())


def test_a_half_made_claim_of_somebody_is_waited_for_and_then_refuses() -> None:
    async def story() -> None:
        host = FakeHost()
        host.ledgers["200"] = {"slow": ["header bob@desk", f"stamp {host.uptime}"]}
        began = host.clock.now()
        with pytest.raises(Refused, match="the lock could not be had; nothing was sent"):
            await Stage(host).lock().claim()
        assert 1.9 <= host.clock.now() - began < 3.0
        assert "run1" not in host.ledgers["200"]

    asyncio.run(story())


def test_a_half_made_claim_that_is_made_up_in_time_decides() -> None:
    async def story() -> None:
        host = FakeHost()
        slow = ["header bob@desk", f"stamp {host.uptime}"]
        host.ledgers["200"] = {"slow": slow}
        stage = Stage(host)
        early = f"since {host.uptime}"
        stage.world.host.after("ledger", lambda _: slow.append(early))
        with pytest.raises(Refused, match="bob@desk"):
            await stage.lock().claim()  # theirs turns out to be the earlier one
        host.ledgers["200"] = {"slow": (slow := ["header bob@desk", f"stamp {host.uptime}"])}
        stage.world.host.after("ledger", lambda _: slow.append(f"since {host.uptime}"))
        await stage.lock().claim()  # and now the later one

    asyncio.run(story())


def test_a_second_claim_of_the_same_run_does_not_jump_the_queue() -> None:
    async def story() -> None:
        host = FakeHost()
        one = Stage(host, "run1").lock()
        await one.claim()
        await one.release(frozenset())
        host.ledgers["200"] = {"run1": ["header a", "stamp 900", "since 900", "done 901"]}
        await Stage(host, "run2").lock().claim()
        with pytest.raises(Refused, match="run run2"):
            await Stage(host, "run1").lock().claim()

    asyncio.run(story())


def test_a_send_writes_its_line_before_the_signal_and_bears_the_latest_uptime() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host)
        stage = Stage(host)
        lock = stage.lock()
        await lock.claim()
        trainer.on_signal = lambda _: seen.extend(host.sends())
        seen: list[str] = []
        assert await lock.send(a_send(trainer), tree_of(host), {}) == Answered()
        words = stage.world.host.sent("send")[0]
        number, _, latest = words[2].partition("@")
        assert words[:2] == ("200", "run1")
        assert (number, words[3:7]) == ("1", ("INT", "heard", "-", "lxc:200"))
        assert 7 <= int(latest) - host.clock.now() <= 8
        assert words[7:] == ("1010", "10100", f"{0:016x}", f"{2:016x}")
        assert seen == [f"send 1 INT heard {host.uptime} 1010:10100"]

    asyncio.run(story())


def test_a_host_that_was_stalled_sends_nothing_late() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host)
        stage = Stage(host)
        lock = stage.lock()
        await lock.claim()
        stage.world.host.before("send", lambda _: host.clock.advance(12))
        with pytest.raises(RemoteFailed, match="INT was not sent: the host took too long"):
            await lock.send(a_send(trainer), tree_of(host), {})
        assert (trainer.heard, host.sends()) == ([], [])

    asyncio.run(story())


@pytest.mark.parametrize("status", [10, 11, 12])
def test_somebody_who_changed_is_a_refusal_and_no_failure(status: int) -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host)
        stage = Stage(host)
        lock = stage.lock()
        await lock.claim()
        stage.world.host.on("send", Answer(status, b"1010:10100 said so\n"))
        answered = await lock.send(a_send(trainer), tree_of(host), {})
        assert answered.refused == "changed just before the signal: 1010:10100 said so"
        assert not answered.out

    asyncio.run(story())


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (13, "INT was not sent: the host took too long"),
        (20, "INT was not sent: the ledger could not be written (status 20)"),
        (21, "(status 21)"),
        (23, "(status 23)"),
        (2, "(status 2)"),
    ],
)
def test_what_could_not_be_noted_was_not_sent(status: int, text: str) -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host)
        stage = Stage(host)
        lock = stage.lock()
        await lock.claim()
        stage.world.host.on("send", Answer(status, b""))
        with pytest.raises(RemoteFailed) as failed:
            await lock.send(a_send(trainer), tree_of(host), {})
        assert text in str(failed.value)

    asyncio.run(story())


def test_a_status_that_nobody_knows_is_a_doubt_where_the_line_stands() -> None:
    """Told as not sent it would be sent again, into the save."""

    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host)
        stage = Stage(host)
        lock = stage.lock()
        await lock.claim()
        stage.world.host.after("send", lambda _: Answer(1, b""))
        answered = await lock.send(a_send(trainer), tree_of(host), {})
        assert (answered.out, trainer.heard) == (True, ["INT"])
        assert answered.doubt == "it ended with status 1; the ledger has its line"

    asyncio.run(story())


@pytest.mark.parametrize(
    ("verb", "status", "text"),
    [
        ("claim", 20, "could not be written (status 20)"),
        ("claim", 21, "could not be written (status 21)"),
        ("claim", 23, "not sticky"),
        ("claim", 24, "could not be written (status 24)"),
        ("ledger", 21, "could not be read (status 21)"),
        ("ledger", 23, "not sticky"),
        ("ledger", 24, "file of another user"),
        ("ledger", 9, "could not be read (status 9)"),
    ],
)
def test_without_a_lock_directory_nothing_is_sent(verb: str, status: int, text: str) -> None:
    async def story() -> None:
        stage = Stage(FakeHost())
        stage.world.host.on(verb, Answer(status, b"uptime:1000.0\n"))
        with pytest.raises(RemoteFailed) as failed:
            await stage.lock().claim()
        assert text in str(failed.value)
        assert "nothing is sent without it" in str(failed.value)

    asyncio.run(story())


def test_an_answer_without_a_clock_is_no_ledger() -> None:
    async def story() -> None:
        stage = Stage(FakeHost())
        stage.world.host.on("ledger", b"")
        with pytest.raises(RemoteFailed, match="could not be read"):
            await stage.lock().claim()

    asyncio.run(story())


def test_a_kill_that_did_not_reach_all_is_a_doubt_and_out() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host)
        host.kill_status = 1
        lock = Stage(host).lock()
        await lock.claim()
        answered = await lock.send(a_send(trainer), tree_of(host), {})
        assert answered.out
        assert answered.doubt == "kill could not reach all of 10"

    asyncio.run(story())


@pytest.mark.parametrize("data", [b"", b"sent 1000.0 \n", b"sent 1000.0"])
def test_an_answer_that_says_no_kill_status_is_a_doubt_too(data: bytes) -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host)
        stage = Stage(host)
        lock = stage.lock()
        await lock.claim()
        stage.world.host.on("send", data)
        answered = await lock.send(a_send(trainer), tree_of(host), {})
        assert answered.doubt is not None

    asyncio.run(story())


def test_after_a_long_stall_the_signal_of_another_run_counts_and_none_follows() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host)
        stage = Stage(host, "run1")
        sleeper = stage.lock()
        await sleeper.claim()
        host.clock.advance(31)
        other = Stage(host, "run2").lock()
        await other.claim()
        await other.send(a_send(trainer), tree_of(host), {})
        await other.release(ids(trainer))
        answered = await sleeper.send(a_send(trainer), tree_of(host), {})
        assert {each: by.run for each, by in answered.heard.items()} == {
            ProcessId(1010, 10100): "run2"
        }
        assert not answered.out
        assert trainer.heard == ["INT"]
        assert stage.world.host.sent("send") == []

    asyncio.run(story())


def test_after_a_long_stall_a_run_that_holds_the_lock_now_refuses() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host)
        sleeper = Stage(host, "run1").lock()
        await sleeper.claim()
        host.clock.advance(31)
        other = Stage(host, "run2").lock()
        await other.claim()
        with pytest.raises(Refused, match="run run2"):
            await sleeper.send(a_send(trainer), tree_of(host), {})
        assert trainer.heard == []
        await other.send(a_send(trainer), tree_of(host), {})  # its claim was not hurt by that

    asyncio.run(story())


def test_a_run_that_has_signalled_and_lost_its_lock_sends_nothing_more() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host)
        trainer.obeys = False
        sleeper = Stage(host, "run1").lock()
        await sleeper.claim()
        await sleeper.send(a_send(trainer), tree_of(host), {})
        host.clock.advance(31)
        await Stage(host, "run2").lock().claim()
        with pytest.raises(RemoteFailed, match="run run2 has taken the lock over"):
            await sleeper.send(a_send(trainer, signal="TERM"), tree_of(host), {})
        assert trainer.heard == ["INT"]

    asyncio.run(story())


def test_what_was_known_before_and_its_own_lines_are_no_news() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host)
        trainer.hears, trainer.obeys = {"INT", "TERM"}, False
        first = Stage(host, "run1").lock()
        await first.claim()
        await first.send(a_send(trainer), tree_of(host), {})
        await first.release(ids(trainer))
        second = Stage(host, "run2").lock()
        known = heard_before(await second.claim(), ids(trainer))
        assert [by.run for by in known.values()] == ["run1"]
        assert (await second.send(a_send(trainer), tree_of(host), known)).out
        # its own line of just now is not another's
        assert (await second.send(a_send(trainer, signal="TERM"), tree_of(host), known)).out
        assert trainer.heard == ["INT", "INT", "TERM"]

    asyncio.run(story())


def test_another_signal_to_one_that_had_heard_one_before_is_news() -> None:
    """A second ask of another run, while this one slept: a third would be one too many."""

    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host)
        trainer.obeys = False
        first, second = Stage(host, "run1").lock(), Stage(host, "run2").lock()
        await first.claim()
        await first.send(a_send(trainer), tree_of(host), {})
        await first.release(ids(trainer))
        known = heard_before(await second.claim(), ids(trainer))
        host.clock.advance(31)
        third = Stage(host, "run3").lock()
        await third.claim()
        await third.send(a_send(trainer), tree_of(host), known)
        await third.release(ids(trainer))
        answered = await second.send(a_send(trainer), tree_of(host), known)
        (late,) = answered.heard.values()
        assert (late.run, late.times) == ("run3", 2)
        assert trainer.heard == ["INT", "INT"]

    asyncio.run(story())


def test_a_signal_that_ranks_heard_meanwhile_keeps_their_launchers_back() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host)
        launcher = host.add(Proc(1011, 1000, ("torchrun", "train.py"), hears=("INT",)))
        sleeper, other = Stage(host, "run1").lock(), Stage(host, "run2").lock()
        await sleeper.claim()
        host.clock.advance(31)
        await other.claim()
        await other.send(a_send(trainer), tree_of(host), {})
        await other.release(ids(trainer))
        through = msgspec.structs.replace(a_send(launcher), passed_on=(kin(trainer),))
        answered = await sleeper.send(through, tree_of(host), {})
        assert not answered.out
        assert launcher.heard == []

    asyncio.run(story())


def test_what_ranks_heard_through_their_launcher_is_known_when_it_is_gone() -> None:
    """Its own file is kept for the ranks' sake, and a later run finds them in it: a second
    signal would cut the save that the first one began."""

    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host)
        launcher = host.add(Proc(1011, 1000, ("torchrun", "train.py"), hears=("INT",)))
        first = Stage(host, "run1").lock()
        await first.claim()
        through = msgspec.structs.replace(a_send(launcher), passed_on=(kin(trainer),))
        assert (await first.send(through, tree_of(host), {})).out
        assert (launcher.heard, trainer.heard) == (["INT"], [])  # it hands it on, we do not
        host.end(launcher)
        await first.release(ids(trainer))
        known = heard_before(await Stage(host, "run2").lock().claim(), ids(trainer))
        assert [by.signal for by in known.values()] == ["INT"]

    asyncio.run(story())


def test_the_same_runs_signal_for_another_job_counts_as_heard() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host)
        one, two = Stage(host, "run1").lock(), Stage(host, "run1").lock()
        await one.claim()
        await one.send(a_send(trainer), tree_of(host), {})
        await one.release(ids(trainer))
        known = heard_before(await two.claim(), ids(trainer))
        assert [by.run for by in known.values()] == ["run1"]
        # and where the claim had not told it, the send does
        answered = await two.send(a_send(trainer), tree_of(host), {})
        assert [by.signal for by in answered.heard.values()] == ["INT"]
        assert trainer.heard == ["INT"]

    asyncio.run(story())


def test_lines_of_one_run_are_numbered_on_over_its_jobs() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host)
        neighbour = host.add(Trainer(host, 1020, 1000, script="other.py"))
        one, two = Stage(host, "run1").lock(), Stage(host, "run1").lock()
        await one.claim()
        await one.send(a_send(trainer), tree_of(host), {})
        await one.release(ids(trainer))
        await two.claim()
        assert (await two.send(a_send(neighbour), tree_of(host), {})).out
        assert [line.split()[1] for line in host.sends()] == ["1", "2"]

    asyncio.run(story())


def test_two_overlapping_jobs_of_one_run_give_one_signal_in_all() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host, Trainer(host, takes_s=80.0))
        ends = []
        for name in ("a", "b"):
            stage = Stage(host, "run1", target(name=name))
            ends.append((await stage.stop(playbook("stop_signal/1m", hold=None))).result)
        assert ends == ["still_running", "stopped"]
        assert trainer.heard == ["INT"]
        assert not trainer.lost

    asyncio.run(story())


def test_suspended_ones_are_continued_in_the_same_frame() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host)
        trainer.state = "T"
        stage = Stage(host)
        lock = stage.lock()
        await lock.claim()
        await lock.send(a_send(trainer, resume=True), tree_of(host), {})
        assert stage.world.host.sent("send")[0][5] == "cont"
        assert [signal for signal, _ in host.kills] == ["INT", "CONT"]

    asyncio.run(story())


def test_kill_asks_for_no_masks_and_is_remembered_by_nobody() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host)
        trainer.survives_kill = True
        stage = Stage(host)
        lock = stage.lock()
        await lock.claim()
        send, tree = a_send(trainer, signal="KILL"), tree_of(host)
        trainer.ignores.add("INT")
        assert (await lock.send(send, tree, {})).out
        assert stage.world.host.sent("send")[0][-2:] == ("-", "-")
        assert heard_before(await lock.read(), ids(trainer)) == {}

    asyncio.run(story())


def test_another_process_by_the_same_number_is_never_signalled() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host)
        lock = Stage(host).lock()
        await lock.claim()
        send, tree = a_send(trainer), tree_of(host)
        host.end(trainer)
        other = host.add(Trainer(host))
        other.start += 5
        assert (await lock.send(send, tree, {})).refused is not None
        assert (other.heard, host.sends()) == ([], [])

    asyncio.run(story())


def test_a_stamp_is_written_every_five_seconds_at_most() -> None:
    async def story() -> None:
        host = FakeHost()
        stage = Stage(host)
        lock = stage.lock()
        await lock.claim()
        for _ in range(20):
            await lock.stamp()
            host.clock.advance(1.0)
        assert 3 <= len(stage.world.host.sent("stamp")) <= 4
        host.ledgers.clear()
        host.clock.advance(6.0)
        with pytest.raises(RemoteFailed, match="the lock could not be renewed"):
            await lock.stamp()

    asyncio.run(story())


def test_release_forgets_a_run_whose_trainers_are_all_gone() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host)
        lock = await has_sent(host, trainer)
        host.end(trainer)
        await lock.release(frozenset())
        assert host.ledgers == {}
        assert not lock.claimed

    asyncio.run(story())


@pytest.mark.parametrize("seen", [True, False])
def test_release_keeps_the_memory_of_one_that_lives_or_may_live(seen: bool) -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host)
        lock = await has_sent(host, trainer)
        await lock.release(ids(trainer) if seen else None)
        assert len(host.sends()) == 1
        await Stage(host, "run2").lock().claim()  # it was given back all the same

    asyncio.run(story())


def test_release_forgets_old_runs_only_when_it_knows_who_lives() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host)
        old = {
            "spent": ["header a", "stamp 900", "since 900", "send 1 INT heard 901 77:770"],
            "kept": ["header a", "stamp 900", "since 900", "send 1 INT heard 901 1010:10100"],
            "live": ["header a"],
        }
        for alive, left in ((None, {"spent", "kept", "live"}), (ids(trainer), {"kept", "live"})):
            host.ledgers["200"] = {run: list(lines) for run, lines in old.items()}
            stage = Stage(host, "me")
            lock = stage.lock()
            await lock.claim()
            host.ledgers["200"]["live"].append(f"since {host.uptime}")  # the next in the queue
            await lock.release(alive)
            assert set(host.ledgers["200"]) == left

    asyncio.run(story())


def test_release_without_a_claim_asks_nothing() -> None:
    async def story() -> None:
        host = FakeHost()
        await Stage(host).lock().release(frozenset())
        assert host.frames == []

    asyncio.run(story())


def test_a_host_job_has_a_lock_of_its_own() -> None:
    async def story() -> None:
        host = FakeHost()
        on_host = Stage(host, "run1", target(vmid=None)).lock()
        await on_host.claim()
        await Stage(host, "run2").lock().claim()
        assert set(host.ledgers) == {"host", "200"}

    asyncio.run(story())


BRIEF = playbook(
    "stop_signal/3s TERM/3s", lossless=True, hold=Hold(stopping_s=4.0), gpus_from="none"
)
pauses = st.sampled_from([0.0, 1.0, 29.0, 31.0, 70.0])


@settings(max_examples=50, deadline=None, derandomize=True)
@given(
    st.lists(st.tuples(st.sampled_from(["run1", "run2"]), pauses, st.booleans()), max_size=5),
    st.sampled_from([0.5, 20.0, 200.0]),
    st.booleans(),
)
def test_no_two_runs_ever_both_signal_one_trainer(
    turns: list[tuple[str, float, bool]], takes_s: float, obeys: bool
) -> None:
    """Any order of stops by two people, also ones that sleep between their claim and their
    first send, also ones whose answer got lost: without --force one signal in all."""

    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host, Trainer(host, hears=("INT", "TERM"), takes_s=takes_s, saves=None))
        trainer.obeys = obeys
        for number, (run, pause, stalls) in enumerate(turns):
            stage = Stage(host, f"{run}-{number}")
            if stalls:
                stage.world.host.before("send", lambda _: host.clock.advance(31.0))
                stage.world.host.after("claim", lambda _: host.clock.advance(31.0))
            others = [Stage(host, f"{run}-{number}-other")] if stalls else []
            await asyncio.gather(*(each.stop(BRIEF) for each in (stage, *others)))
            host.clock.advance(pause)
            host.settle()
            if not number and not stalls:
                assert trainer.heard == ["INT"]
        assert len(trainer.heard) <= 1
        assert not trainer.lost

    asyncio.run(story())


def test_what_cannot_be_done_before_a_signal_keeps_it_from_going_out() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host)
        lock = Stage(host).lock()
        await lock.claim()

        async def cannot() -> None:
            raise RemoteFailed("the activator could not be told")

        lock.before = cannot
        with pytest.raises(RemoteFailed, match="could not be told"):
            await lock.send(a_send(trainer), tree_of(host), {})
        assert (trainer.heard, host.sends()) == ([], [])

        async def done() -> None:
            assert trainer.heard == []

        lock.before = done
        assert (await lock.send(a_send(trainer), tree_of(host), {})).out
        assert trainer.heard == ["INT"]

    asyncio.run(story())
