from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import msgspec

from fleetstop.actions.doctor import Rounds, Visit, visit
from fleetstop.actions.doctor_job import look_over
from fleetstop.actions.telling import Run
from fleetstop.core.checkup.checks import Check, Checked, checkup
from fleetstop.core.commands import Answer
from fleetstop.core.inventory import Job, Match, Target
from fleetstop.errors import ContainerMissing, FrameTimedOut, HostUnreachable, RemoteFailed
from fleetstop.ports import Place
from tests.actions.stage import HOST, TARGET, Stage, a_send, job, target, tree_of
from tests.fakes.fake_host import FakeHost, Proc, Trainer, WorldPlace, a_job
from tests.fakes.fake_place import FakeClock

BARE = Job(name="train", match=Match(script="train.py"))


def told(host: FakeHost, aim: Target = TARGET, why: str | None = None) -> dict[str, Check]:
    """What is said of the job without its files."""
    stage = Stage(host, aim=aim)
    checks = asyncio.run(look_over(stage.scope, None, why))
    assert (host.kills, stage.world.host.changes(), stage.world.pct_calls) == ([], [], 0)
    return {each.check: each for each in checks}


def test_a_deaf_job_is_named_with_the_command_that_mends_it() -> None:
    host = FakeHost()
    a_job(host, Trainer(host, hears=(), ignores=("INT", "QUIT")))
    found = told(host)
    assert (found["job"].ok, found["stops"].ok) == (True, False)
    assert "deaf: 10 ignores INT" in found["stops"].says
    assert found["stops"].fix == "fleetstop restart ct200:train --after-checkpoint"
    # where nothing is known to be saved, that is said
    found = told(host, target(job=BARE))
    assert "--force   # loses what was not saved" in str(found["stops"].fix)


def test_one_that_hears_its_stop_signal_is_well() -> None:
    host = FakeHost()
    a_job(host)
    assert told(host)["stops"].ok
    assert told(host, target(job=job(stop_signal="TERM")))["stops"].ok is False


def test_one_that_has_heard_an_earlier_stop_and_shut_its_ears_is_not_called_deaf() -> None:
    host = FakeHost()
    trainer = a_job(host)
    stage = Stage(host)

    async def story() -> list[Check]:
        lock = stage.lock()
        await lock.claim()
        await lock.send(a_send(trainer), tree_of(host), {})
        trainer.hears, trainer.ignores = set(), {"INT"}
        host.kills.clear()
        return await look_over(stage.scope, None, None)

    found = {each.check: each for each in asyncio.run(story())}
    assert found["stops"].ok
    assert "earlier run" in found["stops"].says


def test_two_trees_and_a_stranger_on_the_gpu() -> None:
    host = FakeHost()
    a_job(host)
    host.add(Trainer(host, 1020, 1000))
    found = told(host)
    assert found["job"].ok is False
    assert "2 unrelated trees match" in found["job"].says
    host = FakeHost()
    trainer = a_job(host, Trainer(host, script="other.py"), wrapper=False)
    trainer.files[5] = type(trainer.files[1])("/dev/nvidia0")
    found = told(host)
    assert found["job"].ok is False
    assert found["job"].fix == "fleetstop adopt ct200 --pid 10 --as NAME"
    # one of another job is no stranger
    for match, well in ((Match(script="other.py"), True), (Match(script="third.py"), False)):
        known = [Job(name="other", match=match)]
        checks = asyncio.run(look_over(Stage(host).scope, None, None, known))
        assert checks[0].ok is well, checks


def test_what_does_not_run_is_no_problem() -> None:
    host = FakeHost()
    host.add(Proc(1000, 1, ("init",)))
    assert told(host)["job"] == Check("job", True, "it does not run")


def test_files_that_could_not_be_looked_at_are_not_well() -> None:
    host = FakeHost()
    a_job(host)
    found = told(host, target(job=job(log="/train.log")), "no pids left")
    assert [found[each].ok for each in ("log", "checkpoints")] == [None, None]
    assert found["log"].says == "could not be looked at: no pids left"


def script(host: FakeHost) -> WorldPlace:
    """A place whose host and container answer doctor's own questions well."""
    place = host.place()
    for shell in (place.host, place.within):
        shell.on("have", Answer(0, b"now 1767225600.0\ntool find\n"))
        shell.on("health", Answer(0, b"pct\ndevices 0\nkernel_log dmesg\n"))
        shell.on("paths", Answer(0, b"0\0dir\0yes\0/ck\0" + b"0\0"))
    return place


def rounds(opening: Callable[[Target], Awaitable[Place]], faults: list[str]) -> Rounds:
    def log(text: str) -> str:
        faults.append(text)
        return "/log/fault"

    turn = asyncio.Semaphore(3)
    run = Run(id="r", operator="ann", origin="")
    return Rounds(run, FakeClock(), opening, lambda _: turn, log)


def visited(opening: Callable[[Target], Awaitable[Place]], faults: list[str]) -> list[Checked]:
    other = msgspec.structs.replace(TARGET, name="ct300:train", vmid=300)

    async def story() -> list[Checked]:
        return await visit(rounds(opening, faults), Visit(HOST, (TARGET, other), {}, True))

    return asyncio.run(story())


def test_nothing_is_said_of_what_a_lost_host_has() -> None:
    async def opening(_: Target) -> Place:
        raise HostUnreachable("pve1: no answer", hint="ssh root@pve1")

    found = visited(opening, [])
    assert [(each.place, each.checks[0].check, each.checks[0].ok) for each in found] == [
        ("pve1", "reachable", False),
        ("ct200", "container", None),
        ("ct300", "container", None),
    ]
    assert checkup(found).exit_code == 4


def test_a_fault_in_one_container_leaves_the_others_be() -> None:
    host = FakeHost()
    a_job(host)
    faults: list[str] = []
    closed: list[WorldPlace] = []

    async def opening(aim: Target) -> Place:
        if aim.vmid == 300:
            raise KeyError("a bug")
        closed.append(script(host))
        return closed[-1]

    found = {each.place: each for each in visited(opening, faults)}
    assert found["ct300"].checks[0].check == "fault"
    assert found["ct300"].checks[0].fix == "less /log/fault"
    assert "KeyError" in faults[0]
    assert [each.ok for each in found["ct200:train"].checks] == [True, True, True]
    assert checkup(list(found.values())).exit_code == 70
    assert all(each.closed for each in closed)


def test_a_container_that_is_not_there_or_cannot_be_entered() -> None:
    host = FakeHost()
    a_job(host)

    async def opening(aim: Target) -> Place:
        place = script(host)
        if aim.vmid == 300:
            place.status = ContainerMissing("pve1 has no container 300", hint="pct list")
        elif aim.vmid == 200:
            place.entering = RemoteFailed("no pids left")
        return place

    found = {each.place: each for each in visited(opening, [])}
    assert found["ct300"].checks == (
        Check(
            "container", False, "pve1 has no container 300", "ssh root@pve1 '/usr/sbin/pct list'"
        ),
    )
    ways = {each.check: each.ok for each in found["ct200"].checks}
    assert ways == {"container": True, "entered": False, "lock": True}
    jobs = {each.check: each.ok for each in found["ct200:train"].checks}
    assert jobs == {"job": True, "stops": True, "checkpoints": None}


def test_a_host_that_stops_answering_is_not_called_well() -> None:
    host = FakeHost()
    a_job(host)

    async def opening(_: Target) -> Place:
        place = script(host)
        place.host.on("health", FrameTimedOut("pve1: no answer within 15 s"))
        return place

    async def answering(answer: Answer, _: Target) -> Place:
        place = script(host)
        place.host.on("have", answer)
        return place

    for answer in (Answer(9, b""), Answer(0, b"now \n")):
        found = visited(partial(answering, answer), [])
        assert {each.check for each in found[0].checks if each.ok is None} == {
            *("pct", "tools", "clock", "nvidia_smi", "kernel_log")
        }
    first = visited(opening, [])[0]
    unseen = {each.check for each in first.checks if each.ok is None}
    assert unseen == {"pct", "tools", "clock", "nvidia_smi", "kernel_log"}
