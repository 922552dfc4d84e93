"""Rungs that are no signal, through the real lock and ledger: their line first, then the ask."""

from __future__ import annotations

import asyncio
from functools import partial

import msgspec
import pytest

from fleetstop import events
from fleetstop.actions.asks import first_word
from fleetstop.core.commands import Command
from fleetstop.core.inventory import Match
from fleetstop.core.playbook import Does, Playbook, Rung
from fleetstop.core.report import Outcome
from fleetstop.errors import RemoteFailed
from tests.actions.stage import Stage, job, target
from tests.fakes.fake_host import FakeHost, Trainer, a_job, nothing


def _cancel(work: asyncio.Future[Outcome]) -> None:
    work.cancel()


TMUX = target(job=job(match=Match(tmux="train")))


def book(does: Does, argument: str, wait_s: float = 60.0, **more: object) -> Playbook:
    rung = msgspec.structs.replace(Rung("", "trainers", wait_s, does, argument), **more)
    return Playbook(name="asks", ladder=(rung,), lossless=True)


def stop_file(host: FakeHost) -> Trainer:
    """Deaf, but it looks for its stop file."""
    trainer = a_job(host, Trainer(host, hears=(), ignores=("INT",)))
    trainer.on_file = lambda path: trainer.hear("TOUCH")
    return trainer


def test_a_stop_file_is_noted_touched_and_obeyed() -> None:
    async def story() -> None:
        host = FakeHost()
        stop_file(host)
        stage = Stage(host)
        outcome = await stage.stop(book("touch", "/root/STOP"))
        assert outcome.result == "stopped"
        assert [(s.signal, s.landing, s.pids) for s in outcome.signals] == [
            ("TOUCH", "asked", (10,))
        ]
        assert (host.kills, host.files["/root/STOP"].data) == ([], b"")
        verbs = [each.verb for each in host.frames]
        assert verbs.index("note") < verbs.index("before")
        (sent,) = stage.of(events.SignalSent)
        assert sent.argument == "/root/STOP"
        assert outcome.checkpoint is not None
        assert outcome.checkpoint.written_after_signal

    asyncio.run(story())


def test_no_line_no_ask() -> None:
    async def story() -> None:
        host = FakeHost()
        stop_file(host)
        stage = Stage(host)
        stage.world.host.before("note", lambda _: host.ledgers.clear())
        outcome = await stage.stop(book("touch", "/root/STOP"))
        assert outcome.result == "unreachable"
        assert "/root/STOP" not in host.files

    asyncio.run(story())


def test_a_trainer_that_is_another_process_by_now_is_not_asked() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = stop_file(host)
        stage = Stage(host)
        stage.world.host.before("note", lambda _: setattr(trainer, "start", 1))
        await stage.stop(book("touch", "/root/STOP"))
        assert "/root/STOP" not in host.files
        assert host.sends() == []

    asyncio.run(story())


def test_a_later_run_asks_no_second_time() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = stop_file(host)
        trainer._takes_s = 50.0
        first, second = Stage(host, "run1"), Stage(host, "run2")
        work = asyncio.ensure_future(first.stop(book("touch", "/root/STOP", wait_s=5.0)))
        host.later(10.0, partial(_cancel, work))
        with pytest.raises(asyncio.CancelledError):
            await work
        host.files.pop("/root/STOP", None)
        outcome = await second.stop(book("touch", "/root/STOP"))
        assert (outcome.result, trainer.lost) == ("stopped", False)
        assert "/root/STOP" not in host.files
        (watched,) = second.of(events.WatchedOn)
        assert (watched.signal, watched.by_run) == ("TOUCH", "run1")

    asyncio.run(story())


def test_a_command_tells_its_last_words_and_the_looks_go_on() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host, Trainer(host, hears=(), ignores=("INT",)))

        def command(text: str) -> tuple[float, str, str]:
            assert text == "/root/save.sh --now"
            host.later(1.0, lambda: trainer.hear("RUN"))
            return 2.0, "0", "saving\nsaved it\n"

        host.on_command = command
        stage = Stage(host)
        outcome = await stage.stop(book("run", "/root/save.sh --now", lossless=True))
        assert outcome.result == "stopped"
        (ended,) = stage.of(events.CommandEnded)
        assert (ended.how, ended.line) == ("0", "saved it")
        assert len(host.sends()) == 0  # its line went with the trainer
        assert host.kills == []

    asyncio.run(story())


def test_a_command_that_is_not_there_asks_nobody() -> None:
    """It was written down as an ask, and its whole wait was waited for nothing."""

    async def story() -> None:
        host = FakeHost()
        a_job(host, Trainer(host))
        stage = Stage(host)
        run = Rung("", "trainers", 600.0, "run", "A=1 /missing/save.sh --now", lossless=True)
        both = Playbook(name="asks", ladder=(run, Rung("INT", "trainers", 60.0)), lossless=True)
        outcome = await stage.stop(both)
        assert outcome.result == "stopped"
        # had it counted as asked, INT would have been a second ask, and kept back
        assert [sent.signal for sent in outcome.signals] == ["INT"]
        [skip] = outcome.skipped
        assert skip.signal == "RUN"
        assert "/missing/save.sh is no command there" in skip.reason
        assert (outcome.seconds or 0.0) < 60.0
        assert "note" not in [each.verb for each in host.frames]

    asyncio.run(story())


def test_a_command_that_fails_is_a_finding() -> None:
    async def story() -> None:
        host = FakeHost()
        a_job(host, Trainer(host, hears=(), ignores=("INT",)))
        host.on_command = lambda text: (1.0, "127", "sh: 1: nosuch: not found\n")
        stage = Stage(host)
        outcome = await stage.stop(book("run", "true; nosuch", wait_s=5.0, lossless=True))
        assert outcome.result == "still_running"
        assert "`true; nosuch` failed with status 127: sh: 1: nosuch: not found" in outcome.findings

    asyncio.run(story())


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("/root/save.sh --now", "/root/save.sh"),
        ("A=1 B=2 save", "save"),
        ("'/a b/save' x", None),
        ("cd /x && ./save", "cd"),
        ("save; true", None),
        ("$SAVE now", None),
        ("(save)", None),
        ("'unclosed", None),
        ("", None),
    ],
)
def test_what_a_line_of_shell_begins_with(text: str, word: str | None) -> None:
    assert first_word(text) == word


def test_a_command_is_bounded_by_its_rung() -> None:
    async def story() -> None:
        host = FakeHost()
        a_job(host, Trainer(host, hears=(), ignores=("INT",)))
        host.on_command = lambda text: (1e9, "0", "")
        stage = Stage(host)
        outcome = await stage.stop(book("run", "sleep 9999", wait_s=20.0, lossless=True))
        assert outcome.result == "still_running"
        (ended,) = stage.of(events.CommandEnded)
        assert ended.how == "late"

    asyncio.run(story())


def test_an_ask_that_failed_is_told_and_counts_as_asked() -> None:
    async def story() -> None:
        host = FakeHost()
        stop_file(host)
        stage = Stage(host)
        outcome = await stage.stop(book("touch", "/readonly/STOP", wait_s=2.0))
        assert outcome.result == "still_running"
        text = "TOUCH for 10 may not have reached it: touch /readonly/STOP failed (status 44)"
        assert text in outcome.findings
        assert len(host.sends()) == 1

    asyncio.run(story())


def test_a_stop_file_that_cannot_be_made_marks_nobody_so_the_right_path_is_still_heard() -> None:
    """A slip in the path; counted as asked, the trainer would never be asked again."""

    async def story() -> None:
        host = FakeHost()
        stop_file(host)
        slip = await Stage(host).stop(book("touch", "/missing/STOP", wait_s=2.0))
        assert (slip.result, slip.signals, host.sends()) == ("still_running", (), [])
        (said,) = [each.reason for each in slip.skipped]
        assert said == "/missing/STOP cannot be made there: no such directory, or read-only"
        assert (await Stage(host, "run2").stop(book("touch", "/root/STOP"))).result == "stopped"

    asyncio.run(story())


def test_where_the_container_cannot_be_entered_the_rung_is_skipped_and_nobody_is_marked() -> None:
    async def story() -> None:
        host = FakeHost()
        stop_file(host)
        stage = Stage(host, aim=target(job=job(checkpoints=None)))
        stage.world.entering = RemoteFailed("no pct")
        outcome = await stage.stop(book("touch", "/root/STOP"))
        assert (outcome.result, host.sends()) == ("still_running", [])
        assert [each.reason for each in outcome.skipped] == ["no pct"]

    asyncio.run(story())


def test_keys_reach_the_trainers_own_pane() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host, Trainer(host, hears=(), ignores=("INT",)), wrapper=False)
        trainer.on_file = lambda path: trainer.hear("KEYS")
        host.panes = {10: 1010}
        stage = Stage(host, aim=TMUX)
        outcome = await stage.stop(book("keys", "C-s Enter", lossless=True))
        assert outcome.result == "stopped"
        assert host.typed == [("train", "10", "C-s", "Enter")]

    asyncio.run(story())


def test_a_pane_that_went_between_is_no_ask() -> None:
    async def story() -> None:
        host = FakeHost()
        a_job(host, Trainer(host, hears=(), ignores=("INT",)), wrapper=False)
        host.panes = {10: 1010}
        stage = Stage(host, aim=TMUX)
        stage.world.host.after("claim", lambda _: host.panes.clear())
        outcome = await stage.stop(book("keys", "C-s", lossless=True))
        assert (host.typed, host.sends()) == ([], [])
        assert "no pane of the tmux session train holds the job" in outcome.skipped[0].reason

    asyncio.run(story())


def keeps_saving(host: FakeHost) -> Trainer:
    """In a tmux pane; a periodic save has begun, and keys typed into it cut it."""
    trainer = a_job(host, Trainer(host, hears=(), ignores=("INT",)), wrapper=False)
    trainer.on_file = lambda path: trainer.hear("KEYS")
    host.panes = {10: 1010}
    return trainer


def test_after_a_lost_connection_keys_are_typed_by_a_fresh_look_or_not_at_all() -> None:
    """Half a minute after its line the trainer may be in a save: the look behind it is old."""

    async def story() -> None:
        host = FakeHost()
        trainer = keeps_saving(host)
        stage = Stage(host, aim=TMUX)

        def cut(_: Command) -> None:
            trainer.hear("SAVE")  # it saves now, of itself
            host.clock.advance(1.5)
            stage.world.cut()

        # a minute goes by before the line is seen to stand there
        stage.world.host.after("note", cut)
        stage.world.host.before("ledger", *[nothing] * 2, lambda _: host.clock.advance(30))
        trainer._takes_s = 40.0
        outcome = await stage.stop(book("keys", "C-c", lossless=True))
        assert not trainer.lost
        assert host.typed == []
        assert outcome.result == "stopped"
        assert outcome.signals == ()

    asyncio.run(story())


def test_an_interruption_before_the_asking_leaves_no_line_and_asks_nobody() -> None:
    async def story() -> None:
        host = FakeHost()
        stop_file(host)
        stage = Stage(host)
        work = asyncio.ensure_future(stage.stop(book("touch", "/root/STOP")))

        async def stopped(_: Command) -> None:
            work.cancel()
            await asyncio.sleep(0)

        stage.world.host.after("note", stopped)
        with pytest.raises(asyncio.CancelledError):
            await work
        assert "/root/STOP" not in host.files
        (finished,) = stage.of(events.TargetFinished)
        assert finished.outcome.signals == ()
        assert host.ledgers == {}

    asyncio.run(story())


def test_an_interruption_while_it_is_asked_is_told() -> None:
    async def story() -> None:
        host = FakeHost()
        stop_file(host)
        stage = Stage(host)
        work = asyncio.ensure_future(stage.stop(book("touch", "/root/STOP")))

        async def stopped(_: Command) -> None:
            work.cancel()
            await asyncio.sleep(0)
            work.cancel()  # pressed twice: its answer is not waited for
            await asyncio.sleep(3600)

        stage.world.within.after("before", stopped)
        with pytest.raises(asyncio.CancelledError):
            await work
        (finished,) = stage.of(events.TargetFinished)
        text = "TOUCH for 10 may not have reached it: it was interrupted just then"
        assert text in finished.outcome.findings

    asyncio.run(story())


def test_where_the_container_closes_after_the_line_it_is_taken_back() -> None:
    """Nobody was asked: a later run must not wait for an answer to it."""

    async def story() -> None:
        host = FakeHost()
        stop_file(host)
        stage = Stage(host, aim=target(job=job(checkpoints=None)))
        stage.world.host.after(
            "note", lambda _: setattr(stage.world, "entering", RemoteFailed("no pct"))
        )
        outcome = await stage.stop(book("touch", "/root/STOP"))
        assert "/root/STOP" not in host.files
        assert (outcome.result, outcome.signals, host.ledgers) == ("still_running", (), {})
        assert [each.reason for each in outcome.skipped] == ["no pct"]

    asyncio.run(story())
