from __future__ import annotations

import asyncio
from functools import partial

import pytest

from fleetstop import events
from fleetstop.core.commands import Answer, Command
from fleetstop.core.playbook import Hold, Verify
from fleetstop.core.report import Outcome
from tests.actions.stage import GENTLE, HARD, NOW, Stage, job, playbook, target, verifying
from tests.fakes.fake_host import FakeHost, Hook, Open, Proc, Trainer, a_job, nothing, torn, whole

BAD: list[Hook] = [lambda _: Answer(41, b"1.0\n")]


async def interrupted(stage: Stage) -> None:
    """A stop that gets Ctrl-C just when its signal has gone out."""

    def cancel(_: Command) -> None:
        work.cancel()

    stage.world.host.after("send", cancel)
    work = asyncio.ensure_future(stage.stop())
    with pytest.raises(asyncio.CancelledError):
        await work


def saves_unseen(trainer: Trainer, signal: str) -> None:
    """Nobody sees the file open: a helper writes it, say."""
    trainer.hear(signal)
    del trainer.files[7]


def stopped(host: FakeHost, **facts: object) -> Outcome:
    return asyncio.run(Stage(host, aim=target(job=job(**facts))).stop())


def test_a_new_whole_checkpoint_of_its_own_is_proof() -> None:
    host = FakeHost()
    a_job(host)
    stage = Stage(host)
    outcome = asyncio.run(stage.stop())
    assert (outcome.result, outcome.reason, outcome.findings) == ("stopped", None, ())
    record = outcome.checkpoint
    assert record is not None
    assert (record.path, record.complete, record.written_after_signal) == (
        "/ck/last.pt",
        True,
        True,
    )
    assert record.age_s is not None
    assert record.age_s < 2.0
    (told,) = stage.of(events.CheckpointVerified)
    assert (told.name, told.size) == ("last.pt", len(whole()))


def test_one_that_leaves_without_a_save_is_unclean_and_says_what_is_lost() -> None:
    host = FakeHost()
    a_job(host, Trainer(host, saves=None))
    outcome = stopped(host)
    assert outcome.result == "unclean"
    assert outcome.reason == (
        "not_saved: no checkpoint was written after the signal; lost about 8 min (since old.pt),"
        " more than max_loss 1m"
    )


def test_no_more_is_lost_than_since_its_start() -> None:
    """The newest checkpoint is an earlier run's: what came before this start was not this job."""
    host = FakeHost()
    trainer = a_job(host, Trainer(host, saves=None))
    trainer.start = int((float(host.uptime) - 120.0) * 100)
    outcome = stopped(host)
    assert outcome.result == "unclean"
    assert outcome.reason == (
        "not_saved: no checkpoint was written after the signal; "
        "lost about 2 min, all since its start (old.pt is from before it), more than max_loss 1m"
    )


@pytest.mark.parametrize("up_s", [4.0, 34.0])
def test_what_an_earlier_run_saved_is_not_what_this_one_has_lost(up_s: float) -> None:
    """By the age of another run's checkpoint it went on once, and not half a minute later, though
    each time no more than what it had done itself was lost."""
    host = FakeHost()
    trainer = a_job(host, Trainer(host, saves=None))
    trainer.start = int((float(host.uptime) - up_s) * 100)
    outcome = stopped(host)
    assert outcome.result == "stopped"
    assert outcome.checkpoint is not None
    assert not outcome.checkpoint.written_after_signal
    assert outcome.findings == (
        f"it did not save on the way out: lost about {up_s:.0f} s, all since its start "
        "(old.pt is from before it), within max_loss 1m",
    )


def test_one_whose_newest_checkpoint_is_young_enough_is_only_told_of() -> None:
    host = FakeHost()
    a_job(host, Trainer(host, saves=None))
    outcome = stopped(host, max_loss_s=600.0)
    assert outcome.result == "stopped"
    assert outcome.findings == (
        "it did not save on the way out: lost about 8 min (since old.pt), within max_loss 10m",
    )


@pytest.mark.parametrize(("limit_s", "result"), [(503.0, "stopped"), (497.0, "unclean")])
def test_the_age_counts_at_the_signal_not_at_the_end(limit_s: float, result: str) -> None:
    host = FakeHost()
    a_job(host, Trainer(host, saves=None, takes_s=45.0))
    assert stopped(host, max_loss_s=limit_s).result == result


def test_a_young_one_that_is_not_whole_does_not_count() -> None:
    host = FakeHost()
    a_job(host, Trainer(host, saves=None))
    host.write("/ck/young.pt", torn(), age_s=5.0)
    outcome = stopped(host)
    assert outcome.result == "unclean"
    assert (outcome.reason or "").startswith("not_saved")


def test_without_any_checkpoint_everything_is_lost() -> None:
    host = FakeHost()
    a_job(host, Trainer(host, saves=None))
    host.files.clear()
    host.links["/ck"] = "/ck"
    assert (stopped(host).reason or "").endswith("there is no checkpoint at all")


def test_a_save_that_was_cut_is_not_saved_and_named() -> None:
    host = FakeHost()
    trainer = a_job(host)
    trainer.data = torn()
    outcome = stopped(host)
    assert outcome.result == "unclean"
    assert "not_saved: no checkpoint was written after the signal" in (outcome.reason or "")
    assert "last.pt is new too, and not whole" in outcome.findings


def test_a_broken_sibling_and_a_temporary_file_left_behind_are_findings() -> None:
    host = FakeHost()
    trainer = a_job(host)

    def more(signal: str) -> None:
        trainer.hear(signal)
        host.later(1.0, partial(host.write, "/ck/optimizer.pt", torn()))
        host.later(1.0, partial(host.write, "/ck/scheduler.pt.tmp", b"half"))

    trainer.on_signal = more
    outcome = stopped(host)
    assert outcome.result == "stopped"
    assert set(outcome.findings) == {
        "optimizer.pt is new too, and not whole",
        "scheduler.pt.tmp was left unfinished",
    }


def test_a_periodic_save_before_a_lossy_end_is_not_called_a_save_on_the_way_out() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host, Trainer(host, saves=None))
        trainer.obeys = False
        host.later(3.0, partial(host.write, "/ck/step2.pt", whole()))
        stage = Stage(host)
        how = playbook("INT/20s KILL:tree/5s", hold=Hold(stopping_s=5.0))
        outcome = await stage.stop(how, "given")
        assert [each.signal for each in outcome.signals] == ["INT", "KILL"]
        assert outcome.result == "stopped"
        assert outcome.checkpoint is not None
        assert outcome.checkpoint.path == "/ck/step2.pt"
        assert outcome.checkpoint.written_after_signal is False
        (text,) = outcome.findings
        # without a log nobody can tell whether INT was the reason for it: what happened is told
        assert text.startswith("ended by KILL, as agreed with --force; step2.pt was written after")
        assert text.endswith("s before that")
        assert stage.of(events.CheckpointVerified) == []

    asyncio.run(story())


def test_a_periodic_save_before_the_only_signal_is_no_save_after_it() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host, Trainer(host, saves=None))
        trainer.files[8] = Open("/ck/step2.pt", since=host.clock.now(), rate=1e6)

        def done() -> None:
            del trainer.files[8]
            host.write("/ck/step2.pt", whole())

        host.later(4.0, done)
        outcome = await Stage(host).stop(GENTLE)
        assert outcome.checkpoint is not None
        assert outcome.checkpoint.written_after_signal is False
        assert outcome.findings == (
            "it did not save on the way out: lost about 1 s (since step2.pt), within max_loss 1m",
        )

    asyncio.run(story())


def test_a_save_made_between_the_last_look_and_the_signal_is_not_seen_as_older() -> None:
    """The listing that counts is the last one before the signal."""

    async def story() -> None:
        host = FakeHost()
        a_job(host, Trainer(host, saves=None))
        stage = Stage(host)
        stage.world.host.before("send", lambda _: host.write("/ck/step2.pt", whole()))
        outcome = await stage.stop()
        assert outcome.checkpoint is not None
        # it may have been either; told as after, since the last look did not have it
        assert outcome.checkpoint.written_after_signal is True

    asyncio.run(story())


def test_a_listing_unseen_at_the_signal_proves_nothing() -> None:
    """A periodic save that ended while the directory could not be listed, before the signal."""

    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host, Trainer(host, saves=None, takes_s=1.0))
        stage = Stage(host)
        stage.world.within.before("list", nothing, *BAD * 40)
        host.later(0.3, partial(host.write, "/ck/step2.pt", whole()))
        stage.world.host.after("send", lambda _: stage.world.within.forget_turns())
        outcome = await stage.stop(playbook("INT/20s", hold=Hold(stopping_s=1.0)), "given")
        assert trainer.heard == ["INT"]
        (sent,) = stage.of(events.SignalSent)
        assert float(sent.at.partition("+")[2]) > 1.0
        assert stage.of(events.CheckpointVerified) == []
        assert outcome.checkpoint is None or outcome.checkpoint.written_after_signal is None

    asyncio.run(story())


def test_a_first_listing_that_failed_makes_the_save_unseen() -> None:
    async def story() -> None:
        host = FakeHost()
        a_job(host)
        stage = Stage(host)
        stage.world.within.before("list", *BAD * 2)
        outcome = await stage.stop(playbook("INT/1m", hold=None))
        assert outcome.result == "unclean"
        assert outcome.reason == (
            "save_unseen: the checkpoints could not be listed at the first look"
        )

    asyncio.run(story())


def test_a_directory_that_cannot_be_listed_at_the_end_makes_it_unseen() -> None:
    async def story() -> None:
        host = FakeHost()
        a_job(host)
        stage = Stage(host)
        # once the job has ended: the signal goes out after 0.3 s, the save takes 2 s
        bad = Answer(41, b"1.0\n")
        host.later(2.35, partial(stage.world.within.scripted, "list", bad))
        outcome = await stage.stop(verifying(3.0))
        assert (outcome.result, outcome.reason) == (
            "unclean",
            "save_unseen: /ck is not a directory that can be entered",
        )

    asyncio.run(story())


def test_a_lossy_end_whose_save_is_unseen_is_a_finding() -> None:
    async def story() -> None:
        host = FakeHost()
        a_job(host)
        stage = Stage(host)
        stage.world.within.before("list", *BAD * 2)
        outcome = await stage.stop(NOW, "given")
        assert outcome.result == "stopped"
        closed, unproved = outcome.findings[:2]
        assert closed.endswith("what is saved could not be seen")
        assert unproved.startswith("whether anything was saved could not be seen")

    asyncio.run(story())


def test_files_that_never_come_to_rest_are_unseen() -> None:
    async def story() -> None:
        host = FakeHost()
        a_job(host, Trainer(host, saves=None))
        for n in range(60):
            host.later(n * 0.5, partial(host.write, "/ck/stranger.xyz", b"x" * n))
        outcome = await Stage(host).stop(verifying(4.0))
        assert outcome.result == "unclean"
        assert "did not come to rest" in (outcome.reason or "") or "may be another job's" in (
            outcome.reason or ""
        )

    asyncio.run(story())


def test_a_save_that_ends_a_while_after_the_process_is_waited_for() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host, Trainer(host, saves=None, takes_s=1.0))

        def saves(signal: str) -> None:
            trainer.hear(signal)
            trainer.files[7] = Open("/ck/last.pt.tmp", since=host.clock.now() - 1, rate=1e6)
            host.write("/ck/last.pt.tmp", b"half")
            host.later(4.0, partial(host.write, "/ck/last.pt", whole()))
            host.later(4.0, partial(host.files.__delitem__, "/ck/last.pt.tmp"))

        trainer.on_signal = saves
        outcome = await Stage(host).stop(verifying(10.0))
        assert (outcome.result, outcome.findings) == ("stopped", ())
        assert outcome.checkpoint is not None
        assert outcome.checkpoint.written_after_signal is True

    asyncio.run(story())


def test_a_run_after_ctrl_c_finds_the_save_that_was_complete_before_it_looked() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host, Trainer(host, leaves_s=20.0))
        first = Stage(host, "run1")
        await interrupted(first)
        assert first.of(events.TargetFinished)[0].outcome.signals
        host.clock.advance(5.0)
        host.settle()
        assert "/ck/last.pt" in host.files
        second = Stage(host, "run2")
        outcome = await second.stop()
        assert (outcome.result, outcome.reason, outcome.signals) == ("stopped", None, ())
        assert outcome.findings == ("last.pt was written after run run1 sent INT",)
        assert outcome.checkpoint is not None
        assert outcome.checkpoint.written_after_signal is True
        assert trainer.heard == ["INT"]

    asyncio.run(story())


def test_a_run_after_ctrl_c_sees_that_nothing_was_saved() -> None:
    async def story() -> None:
        host = FakeHost()
        a_job(host, Trainer(host, saves=None, takes_s=20.0))
        first = Stage(host, "run1")
        await interrupted(first)
        host.clock.advance(5.0)
        outcome = await Stage(host, "run2").stop()
        assert outcome.result == "unclean"
        assert "not_saved" in (outcome.reason or "")

    asyncio.run(story())


def slowly(stage: Stage, verb: str, seconds: float, times: int) -> None:
    """A busy host: what this verb told is old when it is read."""

    def wait(_: object) -> None:
        stage.host.clock.advance(seconds)

    for shell in (stage.world.host, stage.world.within):
        shell.after(verb, *[wait] * times)


def test_a_host_that_is_slow_after_the_ledger_was_read_loses_no_save() -> None:
    """Seen: a file of the moment of the signal was called 2 s older than it, and lost."""

    async def story() -> None:
        host = FakeHost()
        a_job(host, Trainer(host, takes_s=0.1, leaves_s=30.0))
        await interrupted(Stage(host, "run1"))
        host.clock.advance(0.2)
        host.settle()
        host.clock.advance(5.0)
        assert "/ck/last.pt" in host.files
        second = Stage(host, "run2")
        slowly(second, "ledger", 3.0, 4)
        outcome = await second.stop()
        assert outcome.checkpoint is not None
        assert outcome.checkpoint.written_after_signal is True

    asyncio.run(story())


def test_a_host_that_is_slow_after_the_listing_does_not_make_an_old_file_the_save() -> None:
    """A periodic one of 2 s before the signal stays one of before it."""

    async def story() -> None:
        host = FakeHost()
        a_job(host, Trainer(host, saves=None, takes_s=30.0))
        host.write("/ck/step_1.pt", whole(), age_s=2.0)
        await interrupted(Stage(host, "run1"))
        host.clock.advance(5.0)
        second = Stage(host, "run2")
        slowly(second, "list", 3.0, 40)
        outcome = await second.stop()
        assert outcome.checkpoint is not None
        assert outcome.checkpoint.path == "/ck/step_1.pt"
        assert outcome.checkpoint.written_after_signal is False

    asyncio.run(story())


def test_a_run_after_ctrl_c_does_not_take_a_broken_file_for_a_save() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host, Trainer(host, leaves_s=20.0))
        trainer.data = torn()
        first = Stage(host, "run1")
        await interrupted(first)
        host.clock.advance(5.0)
        outcome = await Stage(host, "run2").stop()
        assert (outcome.result, "not_saved" in (outcome.reason or "")) == ("unclean", True)

    asyncio.run(story())


@pytest.mark.parametrize("opened", [True, False])
def test_behind_a_link_what_a_member_had_open_is_ours(opened: bool) -> None:
    host = FakeHost()
    trainer = a_job(host)
    host.links["/ck"] = "/data/ck"
    if not opened:
        trainer.on_signal = partial(saves_unseen, trainer)
    aim = target(job=job(), foreign_checkpoints=("/ck",))
    outcome = asyncio.run(Stage(host, aim=aim).stop())
    if opened:
        assert (outcome.result, outcome.reason) == ("stopped", None)
    else:
        assert outcome.result == "unclean"
        assert outcome.reason == (
            "unproven: last.pt is new and complete, but it may be another job's"
        )


@pytest.mark.parametrize("place", ["/data/ck/other.pt", "/ck/other.pt"])
def test_a_stranger_that_writes_there_too_leaves_it_unproven(place: str) -> None:
    host = FakeHost()
    trainer = a_job(host)
    host.links["/ck"] = "/data/ck"
    trainer.on_signal = partial(saves_unseen, trainer)
    host.add(Proc(1070, 1000, ("python", "other.py"))).files[5] = Open(place)
    outcome = stopped(host)
    assert (outcome.result, (outcome.reason or "")[:9]) == ("unclean", "unproven:")


def test_a_rotation_of_the_old_one_is_no_save() -> None:
    host = FakeHost()
    trainer = a_job(host, Trainer(host, saves=None))

    def rotates(signal: str) -> None:
        trainer.hear(signal)
        host.files["/ck/older.pt"] = host.files.pop("/ck/old.pt")

    trainer.on_signal = rotates
    outcome = stopped(host)
    assert (outcome.result, (outcome.reason or "")[:9]) == ("unclean", "not_saved")


def test_a_playbook_that_asks_for_none_looks_at_none() -> None:
    host = FakeHost()
    a_job(host, Trainer(host, saves=None))
    stage = Stage(host)
    how = playbook("INT/1m", verify=Verify(checkpoint="none"))
    outcome = asyncio.run(stage.stop(how))
    assert outcome.result == "stopped"
    assert "checkpoint" not in [each.what for each in stage.of(events.Verifying)]


def test_a_lossy_playbook_on_a_polite_job_still_proves_its_save() -> None:
    host = FakeHost()
    a_job(host)
    outcome = asyncio.run(Stage(host).stop(HARD, "given"))
    assert (outcome.result, len(outcome.signals), outcome.findings) == ("stopped", 1, ())


def test_a_cut_save_leaves_the_whole_one_before_it_to_count() -> None:
    host = FakeHost()
    trainer = a_job(host)
    trainer.data = torn()
    outcome = stopped(host, max_loss_s=600.0)
    assert outcome.result == "stopped"
    assert outcome.checkpoint is not None
    assert (outcome.checkpoint.path, outcome.checkpoint.complete) == ("/ck/old.pt", True)
    said = "it did not save on the way out: lost about 8 min (since old.pt), within max_loss 10m"
    assert said in outcome.findings


def test_a_linked_directory_that_is_made_by_the_save_itself_is_ours_too() -> None:
    host = FakeHost()
    trainer = a_job(host)
    host.files.clear()

    def makes_it(signal: str) -> None:
        host.links["/ck"] = "/data/ck"
        trainer.hear(signal)

    trainer.on_signal = makes_it
    aim = target(job=job(), foreign_checkpoints=("/ck",))
    outcome = asyncio.run(Stage(host, aim=aim).stop())
    assert (outcome.result, outcome.reason) == ("stopped", None)


def test_one_that_saved_on_the_first_signal_and_hung_is_not_called_unsaved() -> None:
    """A teardown that hangs after the save, ended by the next rung with consent."""
    host = FakeHost()
    trainer = a_job(host, Trainer(host, leaves_s=1e6))
    outcome = asyncio.run(Stage(host).stop(HARD, "given"))
    assert trainer.heard == ["INT"]
    assert outcome.result == "stopped"
    assert not any("without a save" in each for each in outcome.findings)


def overwrites(host: FakeHost, trainer: Trainer, signal: str) -> None:
    """It saves in place, in a format that does not tell whether a file is whole."""
    trainer.hear(signal)
    trainer.files[7] = Open("/ck/latest.h5", since=host.clock.now() - 0.1, rate=10.0)
    host.write("/ck/latest.h5", b"y" * 40)


def test_a_half_overwritten_file_of_unknown_format_is_not_called_whole() -> None:
    """KILL in the middle of a save in place; a second later it stands still like a whole one."""

    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host, Trainer(host, saves=None, takes_s=60.0))
        host.write("/ck/latest.h5", b"x" * 90, age_s=400.0)
        trainer.on_signal = partial(overwrites, host, trainer)
        outcome = await Stage(host).stop(playbook("INT/2s KILL:tree/5s", hold=None), "given")
        assert [each.signal for each in outcome.signals] == ["INT", "KILL"]
        assert outcome.checkpoint is not None
        # the older whole one is what is left
        assert outcome.checkpoint.path == "/ck/old.pt"
        assert outcome.findings[0] == (
            "latest.h5 was being written when KILL went out; "
            "its format does not tell if it is whole"
        )
        assert "lost about 8 min (since old.pt)" in outcome.findings[-1]

    asyncio.run(story())


def test_where_that_file_is_all_there_is_its_completeness_is_not_known() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host, Trainer(host, saves=None, takes_s=60.0))
        host.files.clear()
        host.write("/ck/latest.h5", b"x" * 90, age_s=400.0)
        trainer.on_signal = partial(overwrites, host, trainer)
        outcome = await Stage(host).stop(playbook("INT/2s KILL:tree/5s", hold=None), "given")
        assert outcome.checkpoint is not None
        assert (outcome.checkpoint.path, outcome.checkpoint.complete) == ("/ck/latest.h5", None)
        assert "whether latest.h5 is whole is not known" in outcome.findings[-1]

    asyncio.run(story())


def test_a_file_of_unknown_format_that_stood_still_long_before_kill_is_whole() -> None:
    async def story() -> None:
        host = FakeHost()
        a_job(host, Trainer(host, saves=None))
        host.files.clear()
        host.write("/ck/latest.h5", b"x" * 90, age_s=400.0)
        outcome = await Stage(host).stop(NOW, "given")
        assert outcome.checkpoint is not None
        assert (outcome.checkpoint.complete, outcome.checkpoint.known_format) == (True, False)

    asyncio.run(story())


def leaves_while(host: FakeHost, trainer: Trainer, after_s: float, path: str) -> None:
    """Somebody else's checkpoint is written and closed while ours leaves without one."""

    def both(signal: str) -> None:
        trainer.hear(signal)
        host.later(after_s, partial(host.write, path, whole()))

    trainer.on_signal = both


def test_a_neighbours_closed_checkpoint_is_not_ours() -> None:
    host = FakeHost()
    trainer = a_job(host, Trainer(host, saves=None))
    host.add(Proc(1070, 1000, ("python", "other.py", "--out=/ck")))
    leaves_while(host, trainer, 1.0, "/ck/other_5.pt")
    outcome = stopped(host)
    assert (outcome.result, (outcome.reason or "")[:9]) == ("unclean", "unproven:")


def test_what_was_written_after_the_last_member_had_ended_is_not_ours() -> None:
    """The dead write nothing, whoever else did."""
    host = FakeHost()
    trainer = a_job(host, Trainer(host, saves=None, takes_s=1.0))

    def both(signal: str) -> None:
        trainer.hear(signal)
        # a temporary name keeps the proof waiting until it is done
        host.later(0.8, partial(host.write, "/ck/other.pt.tmp", b"half"))
        host.later(4.0, partial(host.write, "/ck/other.pt", whole()))
        host.later(4.0, partial(host.files.__delitem__, "/ck/other.pt.tmp"))

    trainer.on_signal = both
    outcome = stopped(host)
    assert (outcome.result, (outcome.reason or "")[:9]) == ("unclean", "unproven:")


def test_ours_is_proven_beside_a_neighbours_newer_one() -> None:
    host = FakeHost()
    trainer = a_job(host)
    host.add(Proc(1070, 1000, ("python", "other.py", "--out=/ck")))
    leaves_while(host, trainer, 2.5, "/ck/other_5.pt")
    outcome = stopped(host)
    assert (outcome.result, outcome.reason) == ("stopped", None)
    assert outcome.checkpoint is not None
    assert outcome.checkpoint.path == "/ck/last.pt"


def test_a_directory_named_by_another_job_one_level_up_is_its_too() -> None:
    host = FakeHost()
    trainer = a_job(host)
    trainer.on_signal = partial(saves_unseen, trainer)
    aim = target(job=job(), foreign_checkpoints=("/ck/",))
    outcome = asyncio.run(Stage(host, aim=aim).stop())
    assert (outcome.reason or "").startswith("unproven: last.pt")


def test_a_signal_waits_for_the_shard_that_is_still_to_come() -> None:
    """Between two shards nothing is open and nothing moves: INT then would cost the set."""

    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host, Trainer(host, saves="/ck/last.pt"))
        host.write("/ck/step_5/m-00001-of-00002.safetensors", b"x" * 50)
        there = []

        def second() -> None:
            host.write("/ck/step_5/m-00002-of-00002.safetensors", b"x" * 50)
            there.append(host.clock.now())

        host.later(3.0, second)
        stage = Stage(host)
        heard = []
        hear = trainer.hear

        def notes(signal: str) -> None:
            heard.append(host.clock.now())
            hear(signal)

        trainer.on_signal = notes
        outcome = await stage.stop()
        assert outcome.result == "stopped"
        assert len(heard) == 1
        assert heard[0] > there[0]

    asyncio.run(story())


def test_a_half_set_that_nobody_goes_on_with_is_a_leftover_after_a_minute() -> None:
    host = FakeHost()
    a_job(host)
    host.write("/ck/step_5/m-00001-of-00002.safetensors", b"x" * 50, age_s=61.0)
    began = host.clock.now()
    assert stopped(host).result == "stopped"
    assert host.clock.now() - began < 15.0


def heard_at(host: FakeHost, trainer: Trainer) -> list[float]:
    times: list[float] = []

    def notes(signal: str) -> None:
        times.append(host.clock.now())
        trainer.hear(signal)

    trainer.on_signal = notes
    return times


def test_a_save_whose_position_stands_still_is_not_cut_while_the_file_grows() -> None:
    """Written by pwrite for longer than the hold waits for one without growth; INT would cut it."""

    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host)
        times = heard_at(host, trainer)
        trainer.files[8] = Open("/ck/step2.pt", since=host.clock.now())
        for tenth in range(200):
            host.later(tenth / 10, partial(host.write, "/ck/step2.pt", b"x" * (tenth + 1)))

        def done() -> None:
            del trainer.files[8]
            host.write("/ck/step2.pt", whole())

        host.later(20.0, done)
        began = host.clock.now()
        how = playbook("INT/1m", hold=Hold(saving_s=5.0))
        outcome = await Stage(host).stop(how, "given")
        assert outcome.result == "stopped"
        assert len(times) == 1
        assert times[0] - began >= 20.0, "the save was cut"

    asyncio.run(story())


def test_a_file_that_was_left_open_holds_only_so_long_whatever_else_is_written() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host)
        times = heard_at(host, trainer)
        trainer.files[8] = Open("/ck/left.bin", since=host.clock.now())
        trainer.files[9] = Open("/ck/train.log", since=host.clock.now(), rate=1e6)
        began = host.clock.now()
        how = playbook("INT/1m", hold=Hold(saving_s=5.0))
        outcome = await Stage(host).stop(how, "given")
        assert outcome.result == "stopped"
        assert len(times) == 1
        assert times[0] - began < 15.0

    asyncio.run(story())
