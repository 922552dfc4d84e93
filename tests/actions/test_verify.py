from __future__ import annotations

import asyncio
from functools import partial

import pytest

from fleetstop import events
from fleetstop.core.commands import Answer
from fleetstop.core.playbook import Verify
from fleetstop.core.report import Outcome
from tests.actions.stage import GENTLE, Stage, job, playbook, target, verifying
from tests.fakes.fake_host import FakeHost, Open, Proc, Trainer, a_job, nothing


def stopped(host: FakeHost, **facts: object) -> Outcome:
    return asyncio.run(Stage(host, aim=target(job=job(**facts))).stop())


def with_gpu(*, mib: int = 500) -> tuple[FakeHost, Trainer]:
    host = FakeHost()
    trainer = a_job(host)
    host.gpus = [{trainer.pid: mib}, {}]
    return host, trainer


def joins_at_the_end(host: FakeHost, trainer: Trainer, *others: Proc) -> None:
    """These appear in the moment in which the trainer ends."""

    def asked(signal: str) -> None:
        trainer.hear(signal)
        for each in others:
            host.later(2.0, partial(host.procs.update, {each.pid: each}))

    trainer.on_signal = asked


def test_a_trainer_that_was_started_again_is_seen() -> None:
    host = FakeHost()
    trainer = a_job(host)
    again = Trainer(host, 1050, 1000)
    again.start = 100_200
    joins_at_the_end(host, trainer, again)
    outcome = stopped(host)
    assert (outcome.result, outcome.reason) == (
        "unclean",
        "respawned: the job runs again as 50",
    )
    assert outcome.verdict == "respawned"
    assert outcome.evidence == ("it runs again as 50; by whom is not seen",)
    assert again.heard == []


def test_a_saver_that_a_trainer_forked_away_is_no_new_life() -> None:
    """fork, setsid, fork: no session of the family's, its very command line, and half a save."""
    host = FakeHost()
    trainer = a_job(host)
    saver = Trainer(host, 1050, 1000)
    saver.flags, saver.start = 0x40, trainer.start + 1
    joins_at_the_end(host, trainer, saver)
    outcome = stopped(host)
    assert (outcome.result, outcome.verdict) == ("unclean", "gone")
    assert (outcome.reason or "").startswith("50 python")
    assert "was forked by a trainer before that ended, and lives on: it may still save" in (
        outcome.reason or ""
    )
    assert saver.heard == []


def test_the_same_number_with_another_start_is_another_trainer() -> None:
    host = FakeHost()
    trainer = a_job(host, wrapper=False)
    again = Trainer(host, 1010, 1000)
    again.start = 100_200

    def asked(signal: str) -> None:
        trainer.hear(signal)
        host.later(2.01, lambda: host.procs.update({1010: again}))

    trainer.on_signal = asked
    outcome = stopped(host)
    assert outcome.reason == "respawned: the job runs again as 10"
    assert again.heard == []


def test_a_launcher_left_over_would_start_it_again() -> None:
    host = FakeHost()
    trainer = a_job(host)
    joins_at_the_end(host, trainer, Proc(1060, 1000, ("torchrun", "train.py")))
    outcome = stopped(host)
    assert outcome.result == "unclean"
    assert outcome.reason == "respawned: 60 torchrun train.py would start it again"


def test_one_that_outlives_its_jobs_may_stay() -> None:
    host = FakeHost()
    trainer = a_job(host)
    joins_at_the_end(host, trainer, Proc(1060, 1000, ("torchrun", "train.py")))
    assert stopped(host, wrapper="outlives").result == "stopped"


def test_the_shells_of_fleetstop_itself_are_no_job() -> None:
    host = FakeHost()
    trainer = a_job(host)
    ours = Trainer(host, 90_000, 1000, vmid=200)
    joins_at_the_end(host, trainer, ours)
    assert stopped(host).result == "stopped"


def test_gpus_that_are_free_are_told_with_the_time_it_took() -> None:
    host, _ = with_gpu()
    stage = Stage(host)
    outcome = asyncio.run(stage.stop())
    (told,) = stage.of(events.GpusReleased)
    assert told.indexes == (0,)
    assert told.seconds < 0.2
    assert outcome.gpus is not None
    (record,) = outcome.gpus
    assert (record.index, record.held_mib, record.holders) == (0, 0, ())


def test_a_gpu_that_takes_a_while_is_waited_for() -> None:
    host, trainer = with_gpu()
    host.held_for_good.add(trainer.pid)
    host.later(6.0, host.gpus[0].clear)
    stage = Stage(host)
    assert asyncio.run(stage.stop()).result == "stopped"
    (told,) = stage.of(events.GpusReleased)
    assert 2.0 < told.seconds < 5.0


def test_a_gpu_that_is_never_released_is_held_by_name() -> None:
    host, trainer = with_gpu()
    host.held_for_good.add(trainer.pid)
    stage = Stage(host)
    began = host.clock.now()
    outcome = asyncio.run(stage.stop(verifying(5.0)))
    assert (outcome.result, outcome.reason) == (
        "unclean",
        "gpus_held: GPU 0 is still held by pid 1010 (500 MiB)",
    )
    assert 7.0 < host.clock.now() - began < 9.0
    assert outcome.gpus is not None
    assert [(each.index, each.held_mib) for each in outcome.gpus] == [(0, 500)]
    assert stage.of(events.GpusReleased) == []


def test_memory_that_belongs_to_nobody_is_held_too() -> None:
    host, trainer = with_gpu(mib=5000)

    def leaks(signal: str) -> None:
        trainer.hear(signal)
        host.later(2.0, partial(setattr, host, "unlisted_mib", 4000))

    trainer.on_signal = leaks
    outcome = asyncio.run(Stage(host).stop(verifying(3.0)))
    assert outcome.reason == (
        "gpus_held: GPU 0: 4000 MiB belong to no listed process, 10 at the first look"
    )


def test_a_neighbours_memory_is_not_ours() -> None:
    host, _ = with_gpu()
    host.gpus[0][4242] = 30_000
    outcome = asyncio.run(Stage(host).stop())
    assert outcome.result == "stopped"
    assert outcome.gpus is not None
    assert outcome.gpus[0].holders == (4242,)


@pytest.mark.parametrize(
    ("status", "why"),
    [(30, "there is no nvidia-smi on the host"), (31, "nvidia-smi did not answer within 8 s")],
)
def test_declared_gpus_that_could_not_be_asked_are_unseen(status: int, why: str) -> None:
    host, _ = with_gpu()
    stage = Stage(host, aim=target(job=job(gpus=(0, 1))))
    stage.world.host.on("gpus", Answer(status, b""))
    outcome = asyncio.run(stage.stop())
    assert outcome.result == "unclean"
    assert (outcome.reason or "").startswith(f"gpus_unseen: {why}")


def test_a_device_that_was_open_counts_where_nobody_can_be_asked() -> None:
    host, trainer = with_gpu()
    trainer.files[9] = Open("/dev/nvidia0", flags=2)
    stage = Stage(host)
    stage.world.host.on("gpus", Answer(31, b""))
    outcome = asyncio.run(stage.stop())
    assert (outcome.reason or "").startswith("gpus_unseen")


def test_a_job_without_gpus_needs_none() -> None:
    host = FakeHost()
    a_job(host)
    stage = Stage(host)
    outcome = asyncio.run(stage.stop())
    assert outcome.result == "stopped"
    assert "gpus" not in [each.what for each in stage.of(events.Verifying)]


def test_a_driver_that_fails_after_the_first_look_is_not_asked_for_long() -> None:
    host, _ = with_gpu()
    stage = Stage(host)
    stage.world.host.before("gpus", nothing, *[lambda _: Answer(31, b"")] * 200)
    began = host.clock.now()
    outcome = asyncio.run(stage.stop())
    assert outcome.result == "unclean"
    assert (outcome.reason or "").startswith("gpus_unseen: nvidia-smi did not answer")
    assert host.clock.now() - began < 5.0
    assert len(stage.world.host.sent("gpus")) == 2
    assert outcome.gpus is not None
    assert [(each.index, each.held_mib, each.holders) for each in outcome.gpus] == [(0, None, None)]


def test_a_playbook_may_ignore_gpus() -> None:
    host, trainer = with_gpu()
    host.held_for_good.add(trainer.pid)
    how = playbook("INT/1m", verify=Verify(gpus="ignore"))
    assert asyncio.run(Stage(host).stop(how)).result == "stopped"


def test_declared_gpus_are_proven_free_though_none_was_held() -> None:
    host, _ = with_gpu()
    outcome = stopped(host, gpus=(1,))
    assert outcome.gpus is not None
    assert [each.index for each in outcome.gpus] == [0, 1]


def test_a_leftover_makes_nobody_wait_for_its_gpu() -> None:
    host = FakeHost()
    trainer = a_job(host)
    worker = host.add(Proc(1030, 1010, ("python", "train.py"), flags=0x40))
    host.gpus = [{trainer.pid: 500, worker.pid: 100}]
    outcome = asyncio.run(Stage(host).stop(GENTLE))
    assert outcome.result == "unclean"
    assert "the trainers ended, but" in (outcome.reason or "")
    assert "worker 30" in (outcome.reason or "")
    assert "gpus_held: GPU 0 is still held by pid 1030 (100 MiB)" in (outcome.reason or "")
    assert len(host.frames) < 400


def test_all_problems_are_told_together() -> None:
    host, trainer = with_gpu()
    host.held_for_good.add(trainer.pid)
    again = Trainer(host, 1050, 1000)
    again.start = 100_200
    joins_at_the_end(host, trainer, again)
    stage = Stage(host)
    outcome = asyncio.run(stage.stop(verifying(2.0)))
    assert (outcome.reason or "").split("; ")[0].startswith("respawned")
    assert "gpus_held" in (outcome.reason or "")
    order = [each.what for each in stage.of(events.Verifying)]
    assert order == ["checkpoint", "gpus", "above"]  # a supervisor needs its time


# a first look whose two tables are of two moments


def torn(mib: int) -> Answer:
    """The GPU's memory as before the trainer had it, its process as after."""
    tables = f"gpus 0\n0, GPU-0, 40, 0, 80000\n\n\0apps 0\nGPU-0, 1010, {mib}\n"
    return Answer(0, tables.encode())


def answering(stage: Stage, *answers: Answer) -> None:
    stage.world.host.before("gpus", *[lambda _, each=each: each for each in answers])


@pytest.mark.parametrize("times", [1, 2])
def test_a_torn_first_look_is_asked_again_and_no_memory_is_missed(times: int) -> None:
    """Kept, every later look would have 1024 MiB more without an owner than it: exit 6."""
    host, trainer = with_gpu(mib=1024)
    stage = Stage(host)
    answering(stage, *[torn(1024)] * times)
    outcome = asyncio.run(stage.stop())
    assert (outcome.result, outcome.reason) == ("stopped", None)
    assert trainer.heard == ["INT"]
    # asked before anything was sent, and once after
    assert len(stage.world.host.sent("gpus")) == times + 2
    assert host.clock.slept.count(0.3) == times


def test_one_that_says_the_same_each_time_is_kept() -> None:
    """A driver may list too much for good. Nobody is left and 10 MiB are in use: that is free."""
    host, _ = with_gpu(mib=1024)
    stage = Stage(host)
    answering(stage, *[torn(1024)] * 3)
    outcome = asyncio.run(stage.stop(verifying(0.0)))
    assert (outcome.result, outcome.reason) == ("stopped", None)
    # three before anything was sent, one after it
    assert len(stage.world.host.sent("gpus")) == 4


def test_while_others_start_the_first_look_is_asked_longer() -> None:
    """Seen with fifteen that start on one GPU: three looks were torn, each by another."""
    host, trainer = with_gpu(mib=1024)
    stage = Stage(host)
    answering(stage, *[torn(1000 + each) for each in range(5)])
    outcome = asyncio.run(stage.stop())
    assert (outcome.result, outcome.reason) == ("stopped", None)
    assert trainer.heard == ["INT"]
    assert len(stage.world.host.sent("gpus")) == 5 + 2


def test_after_a_torn_first_look_memory_beside_a_neighbour_is_not_called_ours() -> None:
    """1024 MiB were missing then: whether the neighbour or a leak of ours fills them, no one knows.
    It is neither sold as free nor told as held."""
    host, _ = with_gpu(mib=1024)
    stage = Stage(host)
    neighbour = Answer(0, b"gpus 0\n0, GPU-0, 40, 2088, 80000\n\n\0apps 0\nGPU-0, 4711, 2048\n")
    answering(stage, *[torn(1024)] * 3, *[neighbour] * 40)
    outcome = asyncio.run(stage.stop(verifying(0.5)))
    assert outcome.result == "unclean"
    assert outcome.reason == (
        "gpus_unseen: GPU 0 had more listed than in use at the first look: free cannot be told"
    )


def test_a_first_look_that_fits_is_asked_once() -> None:
    host, _ = with_gpu(mib=1024)
    stage = Stage(host)
    answering(stage, torn(200))  # within the slack
    asyncio.run(stage.stop())
    assert len(stage.world.host.sent("gpus")) == 2
