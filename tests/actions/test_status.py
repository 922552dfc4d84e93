from __future__ import annotations

import asyncio
from typing import Any

from fleetstop import events
from fleetstop.actions.status import status
from fleetstop.core.commands import Answer, Command
from fleetstop.core.inventory import Match
from fleetstop.core.report import exit_code_of
from fleetstop.errors import HostUnreachable, RemoteFailed
from tests.actions.stage import Stage, a_send, job, target, tree_of
from tests.fakes.fake_host import FakeHost, Hook, Open, Proc, Trainer, WorldShell, a_job, whole


def test_a_job_that_runs_is_looked_at_twice_and_told() -> None:
    host = FakeHost()
    trainer = a_job(host)
    host.gpus = [{trainer.pid: 700}]
    stage = Stage(host)
    outcome = asyncio.run(status(stage.scope))
    assert (outcome.result, outcome.verdict, exit_code_of(outcome)) == ("running", "busy", 0)
    assert outcome.evidence[0].startswith("CPU ")
    assert {(each.pid, each.role) for each in outcome.family} == {(10, "trainer"), (5, "wrapper")}
    assert outcome.gpus is not None
    assert [(each.index, each.held_mib) for each in outcome.gpus] == [(0, 700)]
    assert outcome.checkpoint is not None
    assert (outcome.checkpoint.path, outcome.checkpoint.complete) == ("/ck/old.pt", True)
    assert len(stage.world.host.sent("look")) == 2
    assert host.clock.slept == [0.25]
    (told,) = stage.of(events.Located)
    assert told.stops_on == ("INT",)
    assert told.landings == {"INT": "heard", "TERM": "fatal"}
    assert stage.of(events.TargetFinished)[0].outcome == outcome


def test_nothing_is_ever_changed_by_looking() -> None:
    host = FakeHost()
    a_job(host)
    stage = Stage(host)
    asyncio.run(status(stage.scope))
    assert (stage.world.host.changes(), stage.world.within.changes()) == ([], [])
    assert (host.kills, host.ledgers) == ([], {})


def test_a_save_shows() -> None:
    host = FakeHost()
    trainer = a_job(host)
    trainer.files[7] = Open("/ck/step.pt", rate=1e6)
    outcome = asyncio.run(status(Stage(host).scope))
    assert outcome.verdict == "saving"
    assert outcome.evidence[0].startswith("step.pt open for writing by 10")


def test_a_container_that_is_not_entered_shows_its_files_from_the_host_or_says_so() -> None:
    host = FakeHost()
    a_job(host)
    for beside in (WorldShell(host), None):
        stage = Stage(host)
        stage.world.entering, stage.world.beside = RemoteFailed("no pids left"), beside
        outcome = asyncio.run(status(stage.scope))
        assert (outcome.result, outcome.verdict) == ("running", "busy")
        (told,) = [each for each in outcome.findings if "no pids left" in each]
        if beside is not None:
            assert outcome.checkpoint is not None
            assert outcome.checkpoint.path == "/ck/old.pt"
            assert told == (
                "the container is not entered; its files are seen from the host: no pids left"
            )
        else:
            assert outcome.checkpoint is None
            assert told == "log and checkpoints could not be looked at: no pids left"


def test_checkpoints_that_cannot_be_looked_at_are_not_told_as_none() -> None:
    """The root of an unprivileged container cannot enter what is the host's root's alone."""
    host = FakeHost()
    a_job(host)
    stage = Stage(host)
    closed: list[Hook] = [lambda _: Answer(41, b"1.0\n")]
    stage.world.within.before("list", *closed * 4)
    outcome = asyncio.run(status(stage.scope))
    assert (outcome.result, outcome.verdict, outcome.checkpoint) == ("running", "busy", None)
    assert outcome.findings == (
        "checkpoints: /ck is not a directory that can be entered: what is saved could not be seen",
    )
    (told,) = stage.of(events.Located)
    assert told.checkpoints_unseen == "/ck is not a directory that can be entered"


def test_one_that_ignores_both_signals_is_deaf() -> None:
    host = FakeHost()
    a_job(host, Trainer(host, hears=(), ignores=("INT", "QUIT", "TERM")))
    outcome = asyncio.run(status(Stage(host).scope))
    assert outcome.verdict == "deaf"
    assert "10 ignores INT and TERM (SigIgn)" in outcome.evidence[0]


def test_one_that_has_heard_a_signal_and_shut_its_ears_is_no_deaf_one() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host, Trainer(host, hears=("INT", "TERM"), takes_s=300.0))
        lock = Stage(host, "run1").lock()
        await lock.claim()
        await lock.send(a_send(trainer), tree_of(host), {})
        await lock.release(None)
        trainer.ignores = {"INT", "TERM"}
        trainer.files.pop(7)
        host.files.pop("/ck/last.pt.tmp")
        outcome = await status(Stage(host, "run2").scope)
        assert outcome.verdict == "stopping"

    asyncio.run(story())


def test_a_ledger_that_cannot_be_read_does_not_hurt() -> None:
    host = FakeHost()
    a_job(host)
    stage = Stage(host)
    stage.world.host.on("ledger", Answer(23, b""))
    assert asyncio.run(status(stage.scope)).result == "running"


def test_two_trees_are_both_told_and_stop_would_refuse() -> None:
    host = FakeHost()
    a_job(host)
    host.add(Trainer(host, 1020, 1000))
    stage = Stage(host)
    outcome = asyncio.run(status(stage.scope))
    assert outcome.result == "running"
    assert "2 unrelated trees match; stop would refuse" in outcome.findings
    assert len(stage.of(events.Located)) == 2


def test_the_worst_of_several_is_the_verdict() -> None:
    host = FakeHost()
    a_job(host)
    host.add(Trainer(host, 1020, 1000)).state = "T"
    outcome = asyncio.run(status(Stage(host).scope))
    assert outcome.verdict == "suspended"


def test_nothing_there_is_not_running() -> None:
    host = FakeHost()
    host.add(Proc(1000, 1, ("init",)))
    outcome = asyncio.run(status(Stage(host).scope))
    assert (outcome.result, outcome.reason, exit_code_of(outcome)) == (
        "not_running",
        "nothing matches",
        0,
    )


def test_a_stopped_container_is_not_running() -> None:
    stage = Stage(FakeHost())
    stage.world.status = "stopped"
    outcome = asyncio.run(status(stage.scope))
    assert (outcome.result, outcome.reason) == ("not_running", "container 200 is stopped")


def test_between_two_lives_it_runs_and_is_unknown() -> None:
    host = FakeHost()
    host.add(Proc(1000, 1, ("init",)))
    host.add(Proc(1060, 1000, ("torchrun", "train.py")))
    outcome = asyncio.run(status(Stage(host).scope))
    assert (outcome.result, outcome.verdict) == ("running", "unknown")
    assert "60 torchrun train.py" in (outcome.reason or "")


def test_where_it_cannot_be_told_who_trains_it_says_so() -> None:
    host = FakeHost()
    trainer = a_job(host)
    host.add(Trainer(host, 1020, trainer.pid))
    outcome = asyncio.run(status(Stage(host).scope))
    assert outcome.result == "running"
    assert any("which of them trains cannot be seen" in each for each in outcome.findings)


def test_a_frozen_container_is_seen_as_that() -> None:
    host = FakeHost()
    a_job(host)
    host.frozen = True
    outcome = asyncio.run(status(Stage(host).scope))
    assert (outcome.result, outcome.verdict, exit_code_of(outcome)) == ("unreachable", "frozen", 4)


def test_gpus_that_cannot_be_asked_are_unknown_and_hurt_nothing() -> None:
    host = FakeHost()
    a_job(host)
    stage = Stage(host)
    stage.world.host.on("gpus", Answer(31, b""))
    outcome = asyncio.run(status(stage.scope))
    assert outcome.result == "running"
    assert stage.of(events.Located)[0].gpus is None


def test_a_place_without_a_job_shows_whatever_holds_a_gpu() -> None:
    host = FakeHost()
    trainer = a_job(host)
    trainer.files[9] = Open("/dev/nvidia0", flags=2)
    stage = Stage(host, aim=target(job=None, name="ct200"))
    outcome = asyncio.run(status(stage.scope))
    assert outcome.result == "running"
    assert outcome.job is None
    assert "10" in [str(each.pid) for each in outcome.family]


def test_a_pid_inside_the_container_is_enough_to_name_a_job() -> None:
    host = FakeHost()
    a_job(host)
    aim = target(job=job(match=Match(pid=10)))
    assert asyncio.run(status(Stage(host, aim=aim).scope)).result == "running"


def test_a_set_that_lacks_a_shard_is_a_save_in_progress_and_the_one_before_it_counts() -> None:
    host = FakeHost()
    a_job(host)
    host.write("/ck/step_5/m-00001-of-00002.safetensors", b"x" * 50, age_s=20.0)
    stage = Stage(host)
    outcome = asyncio.run(status(stage.scope))
    assert (outcome.verdict, outcome.evidence) == ("saving", ("step_5 may not be whole yet",))
    [located] = stage.of(events.Located)
    seen = located.checkpoint
    assert seen is not None
    assert (seen.name, seen.complete, seen.known_format) == ("step_5", False, True)
    assert seen.whole == "old.pt"
    assert seen.whole_age_s is not None
    assert 499.0 < seen.whole_age_s < 502.0


def test_how_often_it_saves_is_told_in_event_and_report() -> None:
    host = FakeHost()
    a_job(host)
    for number in range(3):
        host.write(f"/ck/step_{number}.pt", whole(), age_s=100.0 + 600.0 * (2 - number))
    stage = Stage(host)
    outcome = asyncio.run(status(stage.scope))
    [located] = stage.of(events.Located)
    assert located.checkpoint is not None
    assert located.checkpoint.usual_s is not None
    assert round(located.checkpoint.usual_s) == 600
    assert outcome.checkpoint is not None
    assert outcome.checkpoint.known_format is True
    assert outcome.checkpoint.usual_s == located.checkpoint.usual_s


def test_an_old_file_of_unknown_format_is_not_called_incomplete() -> None:
    host = FakeHost()
    a_job(host)
    host.write("/ck/old.h5", b"x" * 50, age_s=300.0)
    stage = Stage(host)
    asyncio.run(status(stage.scope))
    seen = stage.of(events.Located)[0].checkpoint
    assert seen is not None
    assert (seen.name, seen.complete, seen.known_format) == ("old.h5", True, False)
    host.write("/ck/new.h5", b"x" * 50)
    fresh = Stage(host)
    asyncio.run(status(fresh.scope))
    seen = fresh.of(events.Located)[0].checkpoint
    assert seen is not None
    assert (seen.name, seen.complete) == ("new.h5", None)


def test_one_that_does_nothing_is_looked_at_a_little_longer() -> None:
    """A quarter of a second is no evidence; and even a second is too little to call it stalled."""
    host = FakeHost()
    a_job(host).idle = True
    stage = Stage(host)
    outcome = asyncio.run(status(stage.scope))
    assert host.clock.slept == [0.25, 0.8]
    assert outcome.verdict == "busy"
    assert outcome.evidence[1].startswith("no sign of progress in 1")
    assert outcome.evidence[1].endswith("too short to tell")


def test_a_connection_lost_at_any_frame_is_made_anew_and_the_look_goes_on_and_says_so() -> None:
    """One look, two connections; how many is told, and nothing is taken for gone."""
    host = FakeHost()
    a_job(host)
    calm = Stage(host)
    asyncio.run(status(calm.scope))
    count = len(host.frames)
    assert count > 5
    for at in range(count):
        host = FakeHost()
        trainer = a_job(host)
        host.gpus = [{trainer.pid: 700}]
        stage = Stage(host)
        cut_at(stage, at)
        outcome = asyncio.run(status(stage.scope))
        assert (outcome.result, outcome.verdict) == ("running", "busy"), (at, outcome.reason)
        assert "the connection was lost during the look, which went on over a new one" in (
            outcome.findings
        )
        assert len(stage.of(events.Reconnected)) == 1
        assert exit_code_of(outcome) == 0


def cut_at(stage: Stage, at: int) -> None:
    """The connection goes away before its frame number `at` of both shells together."""
    left = [at]
    for shell in (stage.world.host, stage.world.within):
        run = shell.run

        async def counting(command: Command, run: Any = run) -> Answer:
            left[0] -= 1
            if left[0] == -1:
                stage.world.cut()
            answer: Answer = await run(command)
            return answer

        shell.run = counting  # type: ignore[method-assign]


def test_without_a_way_back_a_status_ends_in_seconds_and_says_why() -> None:
    host = FakeHost()
    a_job(host)
    stage = Stage(host)
    stage.world.no_way_back = HostUnreachable("no route")
    cut_at(stage, 2)
    began = host.clock.now()
    outcome = asyncio.run(status(stage.scope))
    assert (outcome.result, outcome.verdict) == ("unreachable", "unknown")
    assert "could not be re-made" in (outcome.reason or "")
    assert host.clock.now() - began <= 12
    assert exit_code_of(outcome) == 4


def test_a_place_without_jobs_says_what_to_type_where_nobody_holds_a_gpu() -> None:
    host = FakeHost()
    a_job(host)
    stage = Stage(host, aim=target(name="root@h/200", job=None))
    outcome = asyncio.run(status(stage.scope))
    assert (outcome.result, outcome.hint) == (
        "not_running",
        "fleetstop status root@h/200 --script train.py",
    )
    assert outcome.reason == "no process that could be looked at holds a GPU here"
