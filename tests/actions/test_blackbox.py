from __future__ import annotations

import asyncio
import gc

import msgspec
import pytest

from fleetstop import events
from fleetstop.actions.blackbox import BlackBoxes
from fleetstop.core.commands import Answer, Command
from fleetstop.core.kin.family import Family
from fleetstop.core.report import Outcome
from fleetstop.errors import RemoteFailed
from tests.actions.stage import GENTLE, HARD, NOW, Stage, a_send, job, kin, target, tree_of
from tests.fakes.fake_host import FakeHost, Open, Trainer, a_job, whole


def deaf(host: FakeHost) -> Trainer:
    return a_job(host, Trainer(host, hears=(), ignores=("INT", "QUIT")))


def forced(stage: Stage) -> Outcome:
    return asyncio.run(stage.stop(HARD, "given"))


def test_it_is_taken_once_before_the_first_signal_that_may_lose_work() -> None:
    host = FakeHost()
    trainer = deaf(host)
    host.gpus = [{trainer.pid: 700}]
    stage = Stage(host)
    assert forced(stage).result == "stopped"
    (box,) = stage.of(events.BlackBox)
    assert box.before == "TERM"
    found = next(each for each in box.processes if each.process.role == "trainer")
    assert (found.wchan, found.process.state) == ("do_sleep", "S")
    assert found.process.ignored is not None
    assert int(found.process.ignored, 16) & 2
    assert [each.path for each in found.files or ()] == ["/train.log"]
    assert box.nvidia_smi
    told = [type(each) for each in stage.told]
    assert told.index(events.BlackBox) < told.index(events.SignalSent)


def test_a_stop_that_is_cut_short_as_it_begins_leaves_no_work_undone(
    recwarn: pytest.WarningsRecorder,
) -> None:
    """Ctrl-C in the very instant: what was to be asked is not left behind as a coroutine."""

    async def story() -> None:
        host = FakeHost()
        trainer = deaf(host)
        stage = Stage(host, aim=target(job=job(log="/train.log")))
        send = msgspec.structs.replace(a_send(trainer, signal="TERM"), lossy=True)
        boxes, family = BlackBoxes(stage.scope, smi=True), Family(members=(kin(trainer),))
        wanted = boxes.wanted(send, family, tree_of(host), None)
        asked = asyncio.ensure_future(wanted)
        await asyncio.sleep(0)
        asked.cancel()
        await asyncio.wait({asked})
        assert asked.cancelled()

    asyncio.run(story())
    gc.collect()
    assert [str(each.message) for each in recwarn] == []


def test_a_save_that_begins_while_it_is_taken_is_not_cut() -> None:
    """The look that decided is old by then: the signal waits for a new one."""
    host = FakeHost()
    trainer = deaf(host)
    ends: list[float] = []

    def begin(command: Command) -> None:
        now = host.clock.now()
        trainer.files[7] = Open("/ck/step.pt", since=now, rate=1e6)

        def finish() -> None:
            if host.procs.get(trainer.pid) is trainer:
                ends.append(host.clock.now())
                trainer.files.pop(7)
                host.write("/ck/step.pt", whole())

        host.later(3.0, finish)

    stage = Stage(host)
    stage.world.host.before("wchan", begin)
    assert forced(stage).result == "stopped"
    assert "/ck/step.pt" in host.files
    assert len(ends) == 1
    assert host.kills[0][0] == "TERM"


def test_a_gentle_stop_takes_none() -> None:
    host = FakeHost()
    a_job(host)
    stage = Stage(host)
    assert asyncio.run(stage.stop(GENTLE)).result == "stopped"
    assert stage.of(events.BlackBox) == []
    assert stage.world.host.sent("wchan") == []


def test_what_cannot_be_had_is_named_and_hinders_nothing() -> None:
    host = FakeHost()
    deaf(host)
    aim = target(job=job(log="/train.log"))
    stage = Stage(host, aim=aim)

    def refuse(command: Command) -> None:
        raise RemoteFailed("the kernel would not say")

    stage.world.host.before("wchan", refuse)
    # the first is the stop's own question, the second the box's
    stage.world.host.after("gpus", lambda _: None, lambda _: Answer(31, b""))
    assert forced(stage).result == "stopped"
    (box,) = stage.of(events.BlackBox)
    assert set(box.missing) == {
        "where they sleep: the kernel would not say",
        "nvidia-smi: status 31",
        "the log's end: it could not be read",
    }
    assert (box.nvidia_smi, box.log) == (None, None)


def test_a_fault_in_it_lets_the_signal_out() -> None:
    host = FakeHost()
    deaf(host)
    stage = Stage(host)

    def broken(command: Command) -> None:
        raise ZeroDivisionError

    stage.world.host.before("wchan", broken)
    assert forced(stage).result == "stopped"
    assert stage.of(events.BlackBox) == []
    assert "ZeroDivisionError" in stage.faults[0]


def test_a_kill_at_once_is_not_held_up() -> None:
    host = FakeHost()
    deaf(host)
    stage = Stage(host)
    began = host.clock.now()
    assert asyncio.run(stage.stop(NOW, "given")).result == "stopped"
    (box,) = stage.of(events.BlackBox)
    sent = stage.of(events.SignalSent)[0]
    assert box.seconds <= 3.0
    assert float(sent.at.rpartition("+")[2]) - (began - 1000.0) < 3.0


def test_snapshots_stand_at_the_turning_points() -> None:
    host = FakeHost()
    a_job(host)
    stage = Stage(host)
    asyncio.run(stage.stop(GENTLE))
    moments = [each.moment for each in stage.of(events.Snapshot)]
    assert moments == ["found", "before INT", "end"]
    first, *_, last = stage.of(events.Snapshot)
    assert {each.state for each in first.processes} == {"S"}
    # gone: its identity is kept, its state is not
    assert {(each.pid, each.state) for each in last.processes} == {(10, None), (5, None)}
