"""A launch whose client or activator is lost on the way: nobody's GPUs idle, nothing is guessed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, ClassVar

import msgspec
import pytest

from fleetstop import events as e
from fleetstop.actions import awaiting, launching
from fleetstop.actions.launch_plan import Arm, LaunchPlan
from fleetstop.actions.launching import launch_through
from fleetstop.actions.locate import locate
from fleetstop.actions.lock import Lock
from fleetstop.actions.stop import Interrupted
from fleetstop.core.inventory import Match
from fleetstop.core.launching.ended import Born
from fleetstop.core.process import Process
from fleetstop.core.report import Outcome, exit_code_of
from fleetstop.errors import DeployFailed, LockTaken, Refused
from tests.actions.stage import HARD, JOB, TARGET, Stage, job, target
from tests.actions.test_launching import (
    EXPECTED,
    Bringing,
    a_host,
    born,
    finished,
    plan,
    run,
    trainers,
)
from tests.fakes.fake_activator import BASE, FakeActivator, LaunchHost
from tests.fakes.fake_host import Proc, Trainer, a_job


def test_no_signal_goes_out_where_nobody_would_start_it_again() -> None:
    """The activator was killed while the stop was still waiting for the end of a save."""
    host = a_host()
    old = a_job(host)
    stage = Bringing(host)

    async def stop(lock: Lock, arm: Arm) -> Outcome:
        while not host.activators:  # it begins while the stop looks around
            await host.clock.sleep(0.1)
        host.end(host.activators[0].proc)
        with pytest.raises(Refused, match="nobody would start the job again"):
            await arm()
        return finished("refused")

    outcome = asyncio.run(stage.launch(plan(gone=(Born(old.inner, old.start),)), stop))
    assert (outcome.result, exit_code_of(outcome)) == ("refused", 5)
    assert "armed" not in host.orders
    assert host.procs[old.pid] is old


@pytest.mark.parametrize("can", [True, False])
def test_one_that_was_killed_in_the_save_is_replaced(can: bool) -> None:
    host = a_host(born())
    old = a_job(host)
    stage = Bringing(host)
    told = plan(gone=(Born(old.inner, old.start),))

    async def stop(lock: Lock, arm: Arm) -> Outcome:
        await arm()
        host.end(host.activators[0].proc)
        host.end(old)
        return finished("stopped")

    async def renew() -> LaunchPlan:
        if not can:
            raise DeployFailed("the disk is full by now")
        host.forget_stage("run1")
        return told

    async def go() -> Outcome:
        return await launch_through(stage.scope, told, stage.world.inside, stop, None, None, renew)

    outcome = asyncio.run(go())
    assert any("another takes its place" in each for each in outcome.findings)
    if can:
        assert outcome.result == "redeployed"
        assert host.orders == ["armed", "go", "done"]
        assert (len(host.activators), len(trainers(host))) == (2, 1)
    else:
        assert (outcome.result, exit_code_of(outcome)) == ("unhealthy", 8)
        assert outcome.reason == "the disk is full by now; NOTHING runs"


def test_before_a_newborn_is_ended_it_is_said_that_it_is_not_well() -> None:
    """Else whoever works there may call it healthy by its log, should we be cut off in between."""
    heard: list[list[str]] = []

    def never_well(host: LaunchHost, pid: int) -> Proc:
        made = Trainer(host, pid, hears=("INT",), saves=None)

        def hear(signal: str) -> None:
            heard.append(list(host.orders))
            host.end(made)

        made.on_signal = hear
        return made

    host = a_host(born(trainer=never_well), born())
    expected = msgspec.structs.replace(EXPECTED, log_matches="never said")
    outcome, _ = run(host, plan(expected=expected, expected_old=EXPECTED))
    assert outcome.result == "rolled_back"
    assert heard
    assert all(orders[-1] == "unwell" for orders in heard)


def activator(host: LaunchHost, name: str = "train") -> Proc:
    argv = ("python3", "-I", f"/root/.fleetstop/{name}/activate.py", "spec.json")
    return host.add(Proc(host.new_pid(), 1000, argv))


def start(host: LaunchHost) -> None:
    a_job(host)


async def seen(stage: Bringing) -> Process | None:
    return awaiting.named((await locate(stage.scope, gpus=False)).tree, JOB)


@pytest.mark.parametrize("way", ["started", "left", "neither", "another job's"])
def test_what_is_about_to_start_the_job_is_waited_for(way: str) -> None:
    host = a_host()
    stage = Bringing(host)
    who = activator(host, "other" if way == "another job's" else "train")
    told: list[str] = []
    if way == "started":
        host.later(20.0, lambda: start(host))
    elif way == "left":
        host.later(20.0, lambda: host.end(who))

    async def go() -> bool:
        found = await seen(stage)
        if found is not None:
            await awaiting.comes_up(stage.scope, found, told.append)
        return found is not None

    if way == "neither":
        with pytest.raises(Refused, match=r"has not started it within 180 s"):
            asyncio.run(go())
        return
    since = host.clock.now()
    assert asyncio.run(go()) is (way != "another job's")
    if way != "another job's":
        assert 20.0 <= host.clock.now() - since < 30.0
        assert f"the activator {who.inner} of an earlier run is at it" in told[0]


NEVER = msgspec.structs.replace(EXPECTED, log_matches="never said")


def cut(host: LaunchHost, stage: Bringing, told: LaunchPlan, when: Callable[[], bool]) -> Outcome:
    """Ctrl-C as soon as `when`."""

    async def story() -> Outcome:
        task = asyncio.ensure_future(stage.launch(told))
        while not when():
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(Interrupted) as caught:
            await task
        return caught.value.outcome

    return asyncio.run(story())


def test_who_leaves_with_ctrl_c_says_so_and_nobody_waits_for_his_silence() -> None:
    host = a_host(born())
    stage = Bringing(host)
    outcome = cut(host, stage, plan(), lambda: bool(stage.of(e.Launched)))
    assert outcome.interrupted
    assert host.text_of(f"{BASE}/order") == "run1 go alone\n"
    began = host.clock.now()
    while host.state["step"] == "launched":
        host.clock.advance(0.1)
        host.settle()
    assert (host.state["step"], host.state["confirmed_by"]) == ("healthy", "activator")
    assert host.clock.now() - began < 12.0  # `within`, and no 30 s of silence


def test_who_leaves_in_the_stop_leaves_no_gpu_idle() -> None:
    host = a_host(born())
    old = a_job(host)
    stage = Bringing(host)

    async def stop(lock: Lock, arm: Arm) -> Outcome:
        await arm()
        raise asyncio.CancelledError

    async def story() -> None:
        told = plan(gone=(Born(old.inner, old.start),))
        with pytest.raises(Interrupted):
            await launch_through(stage.scope, told, stage.world.inside, stop)

    asyncio.run(story())
    assert host.text_of(f"{BASE}/order") == "run1 armed alone\n"
    host.end(old)
    for _ in range(5):
        host.clock.advance(0.1)
        host.settle()
    assert host.state["step"] == "launched"


@pytest.mark.parametrize("at", ["before", "after"])
def test_who_took_an_armed_ones_place_leaves_it_armed_before_a_word_of_its_own(at: str) -> None:
    """What runs has heard the signal of a run before; `after`: its end is seen already."""
    host = a_host(born())
    old = a_job(host)
    stage = Bringing(host)

    async def stop(lock: Lock, arm: Arm) -> Outcome:
        while not stage.of(e.Armed):
            await asyncio.sleep(0)
        if at == "after":
            host.end(old)
        raise asyncio.CancelledError

    async def story() -> Outcome:
        told = plan(gone=(Born(old.inner, old.start),), succeeds="run0")
        with pytest.raises(Interrupted) as caught:
            await launch_through(stage.scope, told, stage.world.inside, stop)
        return caught.value.outcome

    told = asyncio.run(story())
    assert "starts the job by itself if what runs ends" in (told.reason or "")
    assert host.text_of(f"{BASE}/order") == "run1 armed alone\n"
    if at == "before":
        host.end(old)
    for _ in range(5):
        host.clock.advance(0.1)
        host.settle()
    assert host.state["step"] == "launched"


@pytest.mark.parametrize("former", ["run0", None])
@pytest.mark.parametrize("result", ["still_running", "unreachable"])
def test_who_took_an_armed_ones_place_and_stops_nothing_says_that_nobody_waits(
    former: str | None, result: Any
) -> None:
    """But where nobody could look, what has heard a signal may end yet, and somebody waits on."""
    host = a_host(born())
    old = a_job(host)
    stage = Bringing(host)

    async def stop(lock: Lock, arm: Arm) -> Outcome:
        return msgspec.structs.replace(finished(result), reason="because")

    told = plan(gone=(Born(old.inner, old.start),), succeeds=former)
    outcome = asyncio.run(stage.launch(told, stop))
    said = [each for each in outcome.findings if "nobody starts the job once what runs" in each]
    waits = former is not None and result == "unreachable"
    assert len(said) == (former is not None and not waits)
    assert ("cancel" in host.orders) == (not waits)
    assert ("starts the job by itself" in (outcome.reason or "")) == waits


def a_dead_clients(host: LaunchHost, old: Proc) -> FakeActivator:
    """It waits, armed, for this end."""
    spec = json.loads(plan(gone=(Born(old.inner, old.start),)).spec.text())
    made = FakeActivator(host, spec)
    host.activators.append(made)
    host.write(f"{BASE}/order", b"run1 armed\n")
    host.settle()
    return made


@pytest.mark.parametrize("named", ["by its job", "by its PID"])
def test_a_stop_sends_off_what_waits_for_this_end_however_the_job_is_named(named: str) -> None:
    """Told as stopped, it would run again half a minute later, by our own doing."""
    host = a_host(born())
    old = a_job(host)
    waits = a_dead_clients(host, old)
    by_hand = job(name="", match=Match(pid=old.inner))
    aim = TARGET if named == "by its job" else target(name="ct200", job=by_hand)
    stage = Stage(host, "run2", aim=aim)
    outcome = asyncio.run(stage.stop(HARD))
    assert outcome.result == "stopped", outcome
    assert any("it is told to leave" in each for each in outcome.findings)
    assert waits.told["step"] == "cancelled"
    for _ in range(600):
        host.clock.advance(0.1)
        host.settle()
    assert trainers(host) == []


def test_what_cannot_be_told_to_leave_is_named_before_anything_is_sent() -> None:
    """The directory was moved under it: told as stopped, the job might be started again."""
    host = a_host(born())
    old = a_job(host)
    a_dead_clients(host, old)
    stage = Stage(host, "run2")
    del host.files[f"{BASE}/state.json"]
    outcome = asyncio.run(stage.stop(HARD))
    assert (outcome.result, outcome.signals) == ("refused", ())
    assert f"cannot be told to leave: {BASE} is not there any more" in str(outcome.reason)


def test_what_waits_for_another_jobs_end_is_left_in_peace() -> None:
    host = a_host(born())
    old = a_job(host)
    other = host.add(Trainer(host, 3000, hears=("INT",), saves=None))
    waits = a_dead_clients(host, other)
    by_hand = job(name="", match=Match(pid=old.inner))
    stage = Stage(host, "run2", aim=target(name="ct200", job=by_hand))
    outcome = asyncio.run(stage.stop(HARD))
    assert outcome.result == "stopped", outcome
    assert waits.told["step"] == "waiting"


def test_where_nothing_matches_what_was_typed_but_somebody_is_about_to_start_a_job() -> None:
    host = a_host(born())
    old = a_job(host)
    a_dead_clients(host, old)
    host.end(old)
    host.end(host.procs[1005])
    by_hand = job(name="", match=Match(script="train.py"))
    stage = Stage(host, "run2", aim=target(name="ct200", job=by_hand))
    outcome = asyncio.run(stage.stop(HARD))
    assert (outcome.result, exit_code_of(outcome)) == ("refused", 5)
    assert "is at work for a job `train` here, and may be about to start it" in str(outcome.reason)


class Kept(launching.Launching):
    """So that a test can let its time run out."""

    all: ClassVar[list[launching.Launching]] = []

    def __init__(self, *facts: Any) -> None:
        super().__init__(*facts)
        self.all.append(self)


def locked(_: object) -> None:
    raise LockTaken("somebody else has it")


@pytest.mark.parametrize("over", ["timeout", "lock"])
def test_what_is_known_to_have_failed_has_failed_whatever_is_not_seen_after(
    over: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit 4 said: perhaps all is well."""

    def slow(host: LaunchHost, pid: int) -> Proc:
        return Trainer(host, pid, hears=("INT",), takes_s=500.0)

    monkeypatch.setattr(launching, "Launching", Kept)
    host = a_host(born(trainer=slow), born())
    stage = Bringing(host)

    async def story() -> Outcome:
        task = asyncio.ensure_future(stage.launch(plan(expected=NEVER, expected_old=EXPECTED)))
        while not stage.of(e.SignalSent):
            await asyncio.sleep(0)
        if over == "lock":
            stage.world.host.before("stamp", locked)
        else:
            limit = Kept.all[-1].limit
            assert limit is not None
            limit.reschedule(asyncio.get_running_loop().time())
        return await task

    outcome = asyncio.run(story())
    assert (outcome.result, exit_code_of(outcome)) == ("unhealthy", 8)
    assert outcome.reason is not None
    assert outcome.reason.startswith("nothing new in the log matches 'never said'; ")
    assert "brings the version before back if it ends" in outcome.reason
    assert [each.signal for each in outcome.signals] == ["INT"]
    assert host.text_of(f"{BASE}/order").startswith("run1 unwell alone nothing new in the log")


def test_both_versions_without_the_line_make_the_pattern_suspect() -> None:
    host = a_host(born(), born())
    outcome, _ = run(host, plan(expected=NEVER, expected_old=NEVER))
    assert outcome.result == "rolled_back"
    assert (outcome.reason or "").endswith(
        "its log does not match 'never said' either: is healthcheck.log_matches wrong, or `within` "
        "too short?"
    )
    assert host.activators[0].why == "nothing new in the log matches 'never said'"
    well = a_host(born(), born(says=((1.0, "never said"),)))
    outcome, _ = run(well, plan(expected=NEVER, expected_old=NEVER))
    assert "either" not in (outcome.reason or "")
