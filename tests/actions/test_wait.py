from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from fleetstop import events
from fleetstop.actions.wait import Aim, What, wait
from fleetstop.core.commands import Answer
from fleetstop.core.inventory import Healthcheck, Job
from fleetstop.core.report import Outcome, exit_code_of
from fleetstop.errors import ConnectionLost, HostUnreachable, RemoteFailed
from tests.actions.stage import Stage, job, target
from tests.fakes.fake_host import FakeHost, Open, Proc, Trainer, a_job, torn, whole


def waited(
    stage: Stage, what: What = "gone", seconds: float | None = 30.0
) -> tuple[Outcome, float]:
    clock = stage.host.clock
    began = clock.now()
    until = None if seconds is None else began + seconds
    outcome = asyncio.run(wait(stage.scope, Aim(what=what, until=until, limit_s=seconds)))
    assert stage.of(events.TargetFinished)[-1].outcome == outcome
    assert (stage.world.host.changes(), stage.world.within.changes()) == ([], [])
    assert (stage.host.kills, stage.host.ledgers) == ([], {})
    return outcome, clock.now() - began


def of(aim: Job, host: FakeHost) -> Stage:
    return Stage(host, aim=target(job=aim))


def _add(host: FakeHost, proc: Proc) -> None:
    host.add(proc)


# gone


def test_gone_is_reached_soon_after_the_last_of_them_ended() -> None:
    host = FakeHost()
    trainer = a_job(host)
    host.later(10.0, lambda: host.end(trainer))
    stage = Stage(host)
    outcome, took = waited(stage)
    assert (outcome.result, exit_code_of(outcome)) == ("not_running", 0)
    # 0.05 s more for the wrapper; watched at 10 Hz, and a few frames
    assert 10.0 < took < 10.6
    assert outcome.verdict == "gone"
    assert [each.pid for each in stage.of(events.MemberExited)] == [10, 5]
    assert [each.moment for each in stage.of(events.Snapshot)] == ["found", "end"]


def test_nothing_there_is_gone_at_once() -> None:
    host = FakeHost()
    host.add(Proc(1000, 1, ("init",)))
    outcome, took = waited(Stage(host))
    assert outcome.result == "not_running"
    assert took < 1.0


def test_past_its_limit_it_still_runs() -> None:
    host = FakeHost()
    a_job(host)
    outcome, took = waited(Stage(host), seconds=5.0)
    assert (outcome.result, exit_code_of(outcome)) == ("still_running", 1)
    assert 5.0 <= took < 5.5
    assert outcome.verdict == "busy"


def test_a_wrapper_that_stays_is_no_end() -> None:
    host = FakeHost()
    trainer = a_job(host)
    host.procs[1005].ends_with_children = False
    host.later(2.0, lambda: host.end(trainer))
    outcome, _ = waited(Stage(host), seconds=6.0)
    assert (outcome.result, exit_code_of(outcome)) == ("unclean", 6)
    assert outcome.reason == "not_reached: the trainers ended, but 5 bash run.sh is left"


def test_a_wrapper_that_outlives_its_job_is_not_waited_for() -> None:
    host = FakeHost()
    trainer = a_job(host)
    host.procs[1005].ends_with_children = False
    host.later(2.0, lambda: host.end(trainer))
    outcome, took = waited(of(job(wrapper="outlives"), host))
    assert outcome.result == "not_running"
    assert took < 3.0


def test_a_worker_that_was_born_meanwhile_is_waited_for() -> None:
    host = FakeHost()
    trainer = a_job(host)
    worker = Proc(1050, 1010, ("renamed",), flags=0x40)
    host.later(3.0, partial(_add, host, worker))
    host.later(6.0, lambda: host.end(trainer))
    host.later(12.0, lambda: host.end(worker))
    outcome, took = waited(Stage(host))
    assert outcome.result == "not_running"
    assert outcome.findings == ()
    assert took > 12.0


def test_one_that_came_back_is_waited_for_and_told() -> None:
    host = FakeHost()
    trainer = a_job(host)
    host.procs[1005].ends_with_children = False

    def again() -> None:
        host.add(Trainer(host, 1031, 1005))

    host.later(2.0, lambda: host.end(trainer))
    host.later(4.0, again)
    stage = Stage(host)
    outcome, _ = waited(stage, seconds=10.0)
    assert (outcome.result, exit_code_of(outcome)) == ("still_running", 1)
    assert outcome.findings == ("the job runs again as 31; waiting on",)
    assert {each.pid for each in outcome.family if each.role == "trainer"} == {31}


def test_between_two_lives_is_not_gone() -> None:
    host = FakeHost()
    host.add(Proc(1000, 1, ("init",)))
    host.add(Proc(1060, 1000, ("torchrun", "train.py")))
    stage = Stage(host)
    outcome, _ = waited(stage, seconds=5.0)
    assert (outcome.result, exit_code_of(outcome)) == ("unclean", 6)
    assert "60 torchrun train.py" in outcome.findings[0]


def test_a_container_that_is_stopped_meanwhile_is_gone() -> None:
    host = FakeHost()
    a_job(host)
    stage = Stage(host)

    def stop() -> None:
        host.procs.clear()
        stage.world.status = "stopped"

    host.later(4.0, stop)
    outcome, took = waited(stage)
    assert (outcome.result, outcome.reason) == (
        "not_running",
        "it is gone: container 200 was stopped",
    )
    assert took < 5.0


def test_a_torn_look_is_no_end() -> None:
    """The table missed the trainer once; its identity is asked for before gone is said."""
    host = FakeHost()
    trainer = a_job(host)
    stage = Stage(host)

    def without(command: object) -> Answer:
        kept = dict(host.procs)
        for pid in (1005, trainer.pid):
            host.procs.pop(pid)
        answer = host._look(("lxc:200",))
        host.procs = kept
        return answer

    # the first look finds it, the second is torn
    stage.world.host.after("look", lambda _: None, without)
    outcome, _ = waited(stage, seconds=8.0)
    assert outcome.result == "still_running"


def test_frozen_or_lost_is_unknown_never_gone() -> None:
    host = FakeHost()
    a_job(host)
    stage = Stage(host)
    host.later(3.0, lambda: setattr(host, "frozen", True))
    outcome, _ = waited(stage)
    assert (outcome.verdict, exit_code_of(outcome)) == ("frozen", 4)

    lost = FakeHost()
    a_job(lost)
    stage = Stage(lost)
    stage.world.no_way_back = HostUnreachable("no route")

    def drop(command: object) -> None:
        raise ConnectionLost("pve1: the connection went away")

    stage.world.host.before("watch", lambda _: None, drop)
    outcome, _ = waited(stage)
    assert (outcome.verdict, exit_code_of(outcome)) == ("unknown", 4)


def nothing(command: object) -> None:
    pass


def test_a_connection_that_drops_is_made_anew_and_the_waiting_goes_on() -> None:
    host = FakeHost()
    trainer = a_job(host)
    stage = Stage(host)
    stage.world.ways_back = [HostUnreachable("no route")] * 3
    stage.world.host.before("watch", nothing, lambda _: stage.world.cut())
    host.later(20.0, lambda: host.end(trainer))
    outcome, took = waited(stage, "gone", None)
    assert (outcome.result, exit_code_of(outcome)) == ("not_running", 0)
    assert took < 25.0
    assert len(stage.of(events.Reconnected)) == 1


def test_without_a_way_back_the_limit_holds_and_it_is_unknown() -> None:
    host = FakeHost()
    a_job(host)
    stage = Stage(host)
    stage.world.no_way_back = HostUnreachable("no route")
    stage.world.host.before("watch", nothing, lambda _: stage.world.cut())
    outcome, took = waited(stage, "gone", 12.0)
    assert (outcome.verdict, exit_code_of(outcome)) == ("unknown", 4)
    assert took <= 12.5
    assert "could not be re-made" in (outcome.reason or "")


def test_two_unrelated_trees_are_refused_as_a_stop_would() -> None:
    host = FakeHost()
    a_job(host)
    host.add(Trainer(host, 1020, 1000))
    outcome, _ = waited(Stage(host))
    assert (outcome.result, exit_code_of(outcome)) == ("refused", 5)
    assert len(outcome.evidence) == 2


def test_an_interruption_tells_what_runs_and_passes_on() -> None:
    async def story() -> None:
        host = FakeHost()
        a_job(host)
        stage = Stage(host)
        work = asyncio.ensure_future(wait(stage.scope, Aim()))
        while not stage.of(events.Waiting):
            await asyncio.sleep(0)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        (told,) = stage.of(events.Interrupted)
        assert (told.sent, set(told.running)) == ((), {10, 5})
        (done,) = stage.of(events.TargetFinished)
        assert exit_code_of(done.outcome) == 130

    asyncio.run(story())


# checkpoint


def saving(host: FakeHost, data: Callable[[], bytes] = whole) -> Trainer:
    trainer = a_job(host)

    def begin() -> None:
        trainer.files[7] = Open("/ck/next.pt", since=host.clock.now(), rate=1e6)
        host.write("/ck/next.pt", b"half")

    def finish() -> None:
        trainer.files.pop(7, None)
        host.write("/ck/next.pt", data())

    host.later(3.0, begin)
    host.later(8.0, finish)
    return trainer


def test_a_new_whole_checkpoint_is_reached_and_not_before() -> None:
    host = FakeHost()
    saving(host)
    stage = Stage(host)
    outcome, took = waited(stage, "checkpoint")
    assert (outcome.result, exit_code_of(outcome)) == ("running", 0)
    assert outcome.reason == "next.pt is new and complete"
    assert 8.0 < took < 10.5
    assert outcome.checkpoint is not None
    assert (outcome.checkpoint.path, outcome.checkpoint.complete) == ("/ck/next.pt", True)


def test_a_torn_one_does_not_count() -> None:
    host = FakeHost()
    saving(host, torn)
    outcome, _ = waited(Stage(host), "checkpoint", 15.0)
    assert (outcome.result, outcome.reason) == ("still_running", "no new checkpoint is complete")


def test_the_one_that_was_there_does_not_count() -> None:
    host = FakeHost()
    a_job(host)
    outcome, _ = waited(Stage(host), "checkpoint", 4.0)
    assert outcome.result == "still_running"


def test_a_save_on_its_way_out_counts() -> None:
    host = FakeHost()
    trainer = saving(host)
    host.later(8.1, lambda: host.end(trainer))
    outcome, _ = waited(Stage(host), "checkpoint")
    assert (outcome.result, exit_code_of(outcome)) == ("not_running", 0)


def test_one_that_ended_without_saving_is_told_soon() -> None:
    host = FakeHost()
    trainer = a_job(host)
    host.later(3.0, lambda: host.end(trainer))
    outcome, took = waited(Stage(host), "checkpoint", None)
    assert (outcome.result, exit_code_of(outcome)) == ("unclean", 6)
    assert outcome.reason == "not_reached: it ended, and nothing new is complete"
    assert took < 8.0


def test_where_no_directory_is_known_it_is_refused() -> None:
    host = FakeHost()
    a_job(host)
    outcome, _ = waited(of(job(checkpoints=None), host), "checkpoint")
    assert (outcome.result, exit_code_of(outcome)) == ("refused", 5)


def test_a_directory_that_cannot_be_listed_is_unknown() -> None:
    host = FakeHost()
    a_job(host)
    stage = Stage(host)
    stage.world.within.on("list", Answer(41, b""))
    outcome, _ = waited(stage, "checkpoint", 5.0)
    assert exit_code_of(outcome) == 4


@pytest.mark.parametrize("enters", [True, False])
def test_a_container_that_is_stopped_meanwhile_saves_no_more(enters: bool) -> None:
    """Without a limit too: the shell that was inside has ended with the container."""
    host = FakeHost()
    a_job(host)
    stage = Stage(host)

    def stop() -> None:
        host.procs.clear()
        stage.world.status = "stopped"
        if not enters:
            stage.world.within.on("list", Answer(137, b""))

    host.later(3.0, stop)
    outcome, took = waited(stage, "checkpoint", 60.0)
    assert (outcome.result, exit_code_of(outcome)) == ("unclean", 6)
    assert outcome.reason == "not_reached: container 200 was stopped, and nothing new is complete"
    assert took < 8.0


def test_one_that_ended_where_nothing_can_be_listed_is_unknown_soon() -> None:
    host = FakeHost()
    trainer = a_job(host)
    stage = Stage(host)

    def end() -> None:
        host.end(trainer)
        stage.world.within.on("list", Answer(41, b""))

    host.later(3.0, end)
    outcome, took = waited(stage, "checkpoint", 60.0)
    assert (outcome.result, exit_code_of(outcome)) == ("unreachable", 4)
    assert took < 20.0


def test_a_directory_that_is_not_there_is_told_at_once() -> None:
    """A slip in the inventory would be waited for without end."""
    host = FakeHost()
    a_job(host)
    outcome, _ = waited(of(job(checkpoints="/nowhere"), host), "checkpoint", 4.0)
    assert "checkpoints: /nowhere does not exist there (yet)" in outcome.findings


def test_another_job_s_directory_is_told() -> None:
    host = FakeHost()
    saving(host)
    stage = Stage(host, aim=target(foreign_checkpoints=("/ck",)))
    outcome, _ = waited(stage, "checkpoint")
    assert any("another job saves to /ck too" in each for each in outcome.findings)


# gpu-free


def test_gpus_are_free_when_nobody_of_the_place_is_listed_any_more() -> None:
    host = FakeHost()
    trainer = a_job(host)
    host.gpus = [{trainer.pid: 700}, {}]
    host.held_for_good = {trainer.pid}
    host.later(3.0, lambda: host.end(trainer))
    host.later(9.0, host.gpus[0].clear)
    outcome, took = waited(Stage(host), "gpu-free")
    assert (outcome.result, outcome.reason) == ("not_running", "GPU 0 is free")
    assert 9.0 < took < 10.5
    assert [each.index for each in outcome.gpus or ()] == [0]


def test_another_of_the_same_place_on_a_declared_gpu_holds_it() -> None:
    host = FakeHost()
    trainer = a_job(host)
    host.add(Proc(1070, 1000, ("python", "eval.py")))
    host.gpus = [{trainer.pid: 700}, {1070: 300}]
    host.later(2.0, lambda: host.end(trainer))
    outcome, _ = waited(of(job(gpus=(0, 1)), host), "gpu-free", 6.0)
    assert (outcome.result, exit_code_of(outcome)) == ("unclean", 6)
    assert "GPU 1 is still held by pid 1070" in (outcome.reason or "")


def test_gpus_that_cannot_be_asked_are_not_free() -> None:
    host = FakeHost()
    trainer = a_job(host)
    host.gpus = [{trainer.pid: 700}]
    host.later(2.0, lambda: host.end(trainer))
    stage = Stage(host)
    late = Answer(31, b"")
    stage.world.host.after("gpus", *(lambda _: None,), *[lambda _: late] * 30)
    outcome, _ = waited(stage, "gpu-free", 8.0)
    assert (outcome.verdict, exit_code_of(outcome)) == ("unknown", 4)
    assert "cannot be seen" in (outcome.reason or "")


def test_a_device_that_is_open_without_being_listed_is_not_free() -> None:
    host = FakeHost()
    trainer = a_job(host)
    trainer.files[9] = Open("/dev/nvidia0", flags=2)
    host.gpus = [{}]
    outcome, _ = waited(of(job(gpus=(0,)), host), "gpu-free", 4.0)
    assert exit_code_of(outcome) == 1


def test_which_gpus_must_be_known() -> None:
    host = FakeHost()
    a_job(host)
    host.gpus = [{}]
    outcome, _ = waited(Stage(host), "gpu-free")
    assert (outcome.result, exit_code_of(outcome)) == ("refused", 5)


# healthy

SAYS = job(
    log="/train.log", checkpoints=None,
    healthcheck=Healthcheck(log_matches=r"step \d+", within_s=20.0),
)  # fmt: skip


def test_healthy_is_a_line_written_since_the_waiting_began() -> None:
    host = FakeHost()
    a_job(host)
    old = b"step 41 loss 2\n"
    host.write("/train.log", old)
    host.later(5.0, lambda: host.write("/train.log", old + b"loading\nstep 42 loss 2\n"))
    outcome, took = waited(of(SAYS, host), "healthy", None)
    assert (outcome.result, outcome.reason) == ("running", "the log says: step 42 loss 2")
    assert 5.0 < took < 7.0


def test_an_old_line_is_no_health_and_the_check_has_its_own_limit() -> None:
    host = FakeHost()
    a_job(host)
    host.write("/train.log", b"step 41 loss 2\n")
    outcome, took = waited(of(SAYS, host), "healthy", None)
    assert (outcome.result, exit_code_of(outcome)) == ("still_running", 1)
    assert outcome.reason == r"not healthy: nothing in the log matches 'step \\d+' yet"
    assert 20.0 <= took < 22.0


def test_an_old_line_beside_new_ones_is_no_health() -> None:
    host = FakeHost()
    a_job(host)
    old = b"step 41 loss 2\n"
    host.write("/train.log", old)
    host.later(4.0, lambda: host.write("/train.log", old + b"loading data, 7 shards\n"))
    outcome, _ = waited(of(SAYS, host), "healthy", 12.0)
    assert outcome.result == "still_running"


def test_a_log_that_was_begun_anew_is_all_new() -> None:
    host = FakeHost()
    a_job(host)
    host.write("/train.log", b"step 41 loss 2\n" * 50)
    host.later(4.0, lambda: host.write("/train.log", b"step 1 loss 9\n"))
    outcome, _ = waited(of(SAYS, host), "healthy", None)
    assert outcome.reason == "the log says: step 1 loss 9"


def test_one_that_has_just_begun_is_not_healthy_for_its_first_line() -> None:
    """As a launch has it: what fails in its first batch has logged too."""
    host = FakeHost()
    host.add(Proc(1000, 1, ("init",)))

    def begun() -> None:
        young = Trainer(host, 1010, 1000)
        young.start = int(host.clock.now() * 100)
        host.add(young)
        host.write("/train.log", b"step 1 loss 9\n")

    host.later(3.0, begun)
    outcome, took = waited(of(SAYS, host), "healthy", None)
    assert outcome.reason == "the log says: step 1 loss 9"
    assert 8.0 <= took < 12.0


def test_the_line_of_one_that_has_died_since_is_no_health() -> None:
    host = FakeHost()
    host.add(Proc(1000, 1, ("init",)))
    first = Trainer(host, 1010, 1000)

    def begun() -> None:
        first.start = int(host.clock.now() * 100)
        host.add(first)
        host.write("/train.log", b"step 1 loss 9\n")

    def again() -> None:
        host.end(first)
        host.add(Trainer(host, 1011, 1000))

    host.later(3.0, begun)
    host.later(6.0, again)
    outcome, _ = waited(of(SAYS, host), "healthy", None)
    assert outcome.result == "still_running"
    assert outcome.reason == r"not healthy: nothing in the log matches 'step \\d+' yet"


def test_it_waits_for_one_that_does_not_run_yet() -> None:
    host = FakeHost()
    host.add(Proc(1000, 1, ("init",)))
    host.later(5.0, partial(_add, host, Trainer(host, 1010, 1000)))
    outcome, took = waited(of(job(checkpoints=None), host), "healthy", 60.0)
    assert (outcome.result, outcome.reason) == ("running", "the same trainers live for 10 s")
    assert 15.0 < took < 19.0


def test_one_that_dies_and_comes_again_is_not_healthy() -> None:
    host = FakeHost()
    trainer = a_job(host)
    host.procs[1005].ends_with_children = False
    lives = [trainer]

    def again() -> None:
        host.end(lives[-1])
        lives.append(Trainer(host, 1011 + len(lives), 1005))
        host.add(lives[-1])
        host.later(6.0, again)

    host.later(6.0, again)
    outcome, _ = waited(of(job(checkpoints=None), host), "healthy", 40.0)
    assert outcome.result != "running"
    assert "the same trainers were not seen to live for 10 s" in (outcome.reason or "")


def test_a_long_lived_trainer_is_not_said_to_have_lived_shortly() -> None:
    host = FakeHost()
    a_job(host)
    outcome, _ = waited(Stage(host), "healthy", 4.0)
    assert outcome.result == "still_running"
    assert outcome.reason == "not healthy: the same trainers were not seen to live for 10 s yet"


def test_a_pattern_without_a_log_is_refused() -> None:
    host = FakeHost()
    a_job(host)
    aim = job(log=None, healthcheck=Healthcheck(log_matches="x"))
    outcome, _ = waited(of(aim, host), "healthy")
    assert exit_code_of(outcome) == 5


# a container that is started anew


def new_life(host: FakeHost, at_s: float, *, after_s: float = 4.0, number: int = 90) -> None:
    """`pct stop` and `pct start`: the same numbers are given out again, to others."""

    def start() -> None:
        host.procs.clear()
        init = host.add(Proc(2000, 1, ("init",)))
        init.start = 99
        host.add(Trainer(host, 2000 + number, 2000)).start = 12345

    host.later(at_s, host.procs.clear)
    host.later(at_s + after_s, start)


def test_the_number_our_shell_once_had_is_the_job_s_in_the_new_life() -> None:
    """It was taken for our own shell, and the job of the new life was never seen."""
    host = FakeHost()
    host.write("/log", b"old\n")
    a_job(host)
    stage = of(job(log="/log", healthcheck=Healthcheck(within_s=5.0)), host)
    new_life(host, 2.0)
    stage.world.status = "stopped"
    outcome, took = waited(stage, "healthy", 40.0)
    assert (outcome.result, exit_code_of(outcome)) == ("running", 0), outcome.reason
    assert {each.pid for each in outcome.family if each.role == "trainer"} == {90}
    assert took < 20


def test_while_the_container_is_stopped_or_boots_its_log_is_waited_for() -> None:
    host = FakeHost()
    host.write("/log", b"old\n")
    a_job(host)
    stage = of(job(log="/log", healthcheck=Healthcheck(log_matches="tok/s", within_s=60.0)), host)
    new_life(host, 2.0)
    stage.world.status = "stopped"

    def closed() -> None:
        stage.world.ours_inside = frozenset()
        stage.world.entering = RemoteFailed("container 200 on pve1 is not running")

    host.later(2.0, closed)
    host.later(8.0, lambda: setattr(stage.world, "entering", None))
    host.later(9.0, lambda: host.write("/log", b"old\n14.0K tok/s\n"))
    outcome, _ = waited(stage, "healthy", 40.0)
    assert (outcome.result, exit_code_of(outcome)) == ("running", 0), outcome.reason
    assert outcome.reason == "the log says: 14.0K tok/s"


def test_one_that_can_never_be_entered_is_unknown_and_says_why() -> None:
    host = FakeHost()
    host.write("/log", b"old\n")
    a_job(host)
    stage = of(job(log="/log", healthcheck=Healthcheck(log_matches="tok/s", within_s=60.0)), host)
    host.later(
        2.0, lambda: setattr(stage.world, "entering", RemoteFailed("pct could not enter it"))
    )
    outcome, took = waited(stage, "healthy", 10.0)
    assert (outcome.result, exit_code_of(outcome)) == ("unreachable", 4)
    assert "pct could not enter it" in (outcome.reason or "")
    assert took < 12


@pytest.mark.parametrize("what", ["gone", "healthy"])
def test_a_look_between_stopped_and_started_is_looked_at_again(what: What) -> None:
    """Its processes were not there yet, and then it was said to run."""
    host = FakeHost()
    host.write("/log", b"old\n")
    a_job(host)
    stage = of(job(log="/log", healthcheck=Healthcheck(within_s=5.0)), host)
    new_life(host, 2.0, after_s=0.5)
    outcome, _ = waited(stage, what, 12.0)  # pct says running although nothing can be seen
    expected = ("still_running", 1) if what == "gone" else ("running", 0)
    assert (outcome.result, exit_code_of(outcome)) == expected, outcome.reason
