from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from fleetstop import events
from fleetstop.actions.attempt import Wish
from fleetstop.actions.fleet import Crew, Rolling
from fleetstop.actions.present import outcome_of
from fleetstop.actions.refusals import protected
from fleetstop.actions.stop import stop
from fleetstop.actions.telling import Run, Scope
from fleetstop.core.commands import Command
from fleetstop.core.inventory import Host, Target
from fleetstop.core.report import Outcome, exit_code, exit_code_of
from fleetstop.errors import BadConfig, HostUnreachable, LoginRefused
from fleetstop.events import AnyEvent
from fleetstop.ports import Place
from tests.actions.stage import GENTLE, job, target
from tests.fakes.fake_host import FakeHost, Trainer, WorldPlace, a_job
from tests.fakes.fake_place import FakeClock

Opening = Callable[[Target], Awaitable[Place]]


def aim(number: int, vmid: int = 200, name: str = "train") -> Target:
    host = Host(name=f"pve{number}", ssh=f"root@pve{number}")
    return target(name=f"{host.name}-{vmid}:{name}", host=host, vmid=vmid, job=job(name=name))


class Fleet:
    """A host of its own for every SSH address, each with one job in container 200."""

    def __init__(self, *, parallel: int = 20, rolling: Rolling | None = None) -> None:
        self.clock = FakeClock()
        self.hosts: dict[str, FakeHost] = {}
        self.places: dict[str, WorldPlace] = {}
        self.told: list[AnyEvent] = []
        self.faults: list[str] = []
        self.open: Opening = self._open
        self.turns: dict[str, asyncio.Semaphore] = {}
        self.crew = Crew(
            Run(id="run1", operator="ann", origin="laptop"),
            self.clock,
            self.told.append,
            self._opening,
            lambda each: self.turns.setdefault(each.host.name, asyncio.Semaphore(3)),
            self._log,
            parallel,
            rolling=rolling,
        )

    def _log(self, text: str) -> str | None:
        self.faults.append(text)
        return None

    def host(self, of: Target) -> FakeHost:
        if of.host.name not in self.hosts:
            self.hosts[of.host.name] = FakeHost(self.clock)
            a_job(self.hosts[of.host.name])
        return self.hosts[of.host.name]

    def trainer(self, of: Target) -> Trainer:
        found = self.host(of).procs[1010]
        assert isinstance(found, Trainer)
        return found

    async def _opening(self, of: Target) -> Place:
        return await self.open(of)

    async def _open(self, of: Target) -> Place:
        await asyncio.sleep(0)
        self.places[of.name] = self.host(of).place()
        return self.places[of.name]

    def finished(self) -> list[Outcome]:
        return [each.outcome for each in self.told if isinstance(each, events.TargetFinished)]


async def stopping(scope: Scope) -> Outcome:
    return await stop(scope, Wish(playbook=GENTLE, consent="absent"))


class Counting:
    """An action that waits to be let go, and knows how many are at work; `apart`: how many had
    ended when each was begun."""

    def __init__(self) -> None:
        self.now = self.most = self.ended = 0
        self.names: list[str] = []
        self.apart: list[int] = []

    async def __call__(self, scope: Scope) -> Outcome:
        self.now += 1
        self.apart.append(self.ended)
        self.most = max(self.most, self.now)
        self.names.append(scope.target.name)
        for _ in range(10):
            await asyncio.sleep(0)
        self.now -= 1
        self.ended += 1
        return outcome_of(scope.target, "stopped")


def test_every_target_gets_its_outcome_in_the_order_they_were_named() -> None:
    fleet = Fleet()
    targets = [aim(n) for n in range(5)]
    outcomes = asyncio.run(fleet.crew.run_all(targets, stopping, exclusive=True))
    assert [each.target for each in outcomes] == [each.name for each in targets]
    assert {each.result for each in outcomes} == {"stopped"}
    assert {each.name for each in targets} == {each.target for each in fleet.finished()}
    assert all(place.closed for place in fleet.places.values())
    assert sum(isinstance(each, events.Connected) for each in fleet.told) == 5


def test_one_that_cannot_be_reached_hurts_nobody() -> None:
    fleet = Fleet()
    targets = [aim(n) for n in range(3)]

    async def opening(of: Target) -> Place:
        if of is targets[1]:
            raise LoginRefused("no key was taken", hint="ssh-copy-id")
        return await fleet._open(of)

    fleet.open = opening
    outcomes = asyncio.run(fleet.crew.run_all(targets, stopping))
    assert [each.result for each in outcomes] == ["stopped", "unreachable", "stopped"]
    assert (outcomes[1].reason, outcomes[1].hint) == ("no key was taken", "ssh-copy-id")
    assert (outcomes[1].verdict, outcomes[1].evidence) == ("unknown", ("no key was taken",))
    assert exit_code(outcomes) == 4
    assert len(fleet.finished()) == 3


def test_a_batch_has_ended_before_the_next_one_is_begun() -> None:
    fleet, counting = Fleet(rolling=Rolling(batch=2)), Counting()
    targets = [aim(n) for n in range(5)]
    outcomes = asyncio.run(fleet.crew.run_all(targets, counting))
    assert [each.target for each in outcomes] == [each.name for each in targets]
    assert (counting.most, counting.names) == (2, [each.name for each in targets])
    assert counting.apart == [0, 0, 2, 2, 4]


@pytest.mark.parametrize("batch", [1, None])
def test_once_enough_have_failed_no_more_is_begun(batch: int | None) -> None:
    """The others are told so, hear no signal, and keep what they would have lost."""
    fleet = Fleet(rolling=Rolling(batch=batch, max_failures=2), parallel=1)
    targets = [aim(n) for n in range(5)]

    async def opening(of: Target) -> Place:
        if of in targets[1:3]:
            raise LoginRefused("no key was taken")
        return await fleet._open(of)

    fleet.open = opening
    outcomes = asyncio.run(fleet.crew.run_all(targets, stopping, exclusive=True))
    results = [each.result for each in outcomes]
    assert results == ["stopped", "unreachable", "unreachable", "refused", "refused"]
    for each in outcomes[3:]:
        assert each.reason == "not begun: 2 failed before, and --max-failures is 2"
        assert each.hint == "once that is settled: --failed-in run1 takes up what is left"
        assert each.signals == ()
    lives = [1010 in fleet.host(each).procs for each in targets]
    assert lives == [False, True, True, True, True]
    assert len(fleet.finished()) == 5
    assert exit_code(outcomes) == 4


def test_a_bug_in_one_is_its_fault_and_the_others_go_on() -> None:
    fleet = Fleet()
    targets = [aim(n) for n in range(3)]

    async def action(scope: Scope) -> Outcome:
        if scope.target is targets[0]:
            raise KeyError("ours")
        return await stopping(scope)

    outcomes = asyncio.run(fleet.crew.run_all(targets, action))
    assert [each.result for each in outcomes] == ["fault", "stopped", "stopped"]
    assert outcomes[0].reason == "a fault in fleetstop: KeyError: 'ours'"
    assert "Traceback" in fleet.faults[0]
    assert exit_code(outcomes) == 70
    assert fleet.places[targets[0].name].closed
    assert sum(isinstance(each, events.Fault) for each in fleet.told) == 1


def test_a_bug_after_a_signal_keeps_the_signal_in_the_outcome() -> None:
    fleet = Fleet()
    targets = [aim(0), aim(1)]

    def bug(_: Command) -> None:
        raise KeyError("ours")

    async def opening(of: Target) -> Place:
        place = await fleet._open(of)
        if of is targets[0]:
            shell = fleet.places[of.name].host
            shell.after("send", lambda _: shell.before("look", bug))
        return place

    fleet.open = opening
    outcomes = asyncio.run(fleet.crew.run_all(targets, stopping))
    assert [each.result for each in outcomes] == ["fault", "stopped"]
    assert [each.signal for each in outcomes[0].signals] == ["INT"]


def test_a_bug_while_connecting_is_a_fault_too() -> None:
    fleet = Fleet()

    async def opening(of: Target) -> Place:
        raise ZeroDivisionError("ours")

    fleet.open = opening
    (outcome,) = asyncio.run(fleet.crew.run_all([aim(0)], stopping))
    assert (outcome.result, exit_code_of(outcome)) == ("fault", 70)


@pytest.mark.parametrize("where", ["host", "job"])
def test_a_protected_one_is_refused_before_anybody_connects(where: str) -> None:
    fleet = Fleet()
    guarded = aim(0)
    if where == "host":
        guarded = msgspec.structs.replace(guarded, protected=True)
    else:
        guarded = msgspec.structs.replace(guarded, job=job(protected=True))
    outcomes = asyncio.run(fleet.crew.run_all([guarded, aim(1)], stopping, protected))
    assert [each.result for each in outcomes] == ["refused", "stopped"]
    assert outcomes[0].reason == "protected in the inventory: never signalled"
    assert set(fleet.places) == {aim(1).name}
    assert fleet.hosts.keys() == {"pve1"}


def test_no_more_than_so_many_at_once() -> None:
    fleet, action = Fleet(parallel=4), Counting()
    targets = [aim(n) for n in range(15)]
    asyncio.run(fleet.crew.run_all(targets, action))
    assert (action.most, len(action.names)) == (4, 15)


def test_one_host_takes_only_its_share() -> None:
    fleet, action = Fleet(), Counting()
    targets = [aim(0, vmid) for vmid in range(200, 210)]
    asyncio.run(fleet.crew.run_all(targets, action))
    assert action.most == 3


@pytest.mark.parametrize(("exclusive", "most"), [(True, 1), (False, 3)])
def test_jobs_of_one_container_go_one_after_another_when_they_change_it(
    exclusive: bool, most: int
) -> None:
    fleet, action = Fleet(), Counting()
    targets = [aim(0, 200, name) for name in ("a", "b", "c")]
    asyncio.run(fleet.crew.run_all(targets, action, exclusive=exclusive))
    assert (action.most, action.names) == (most, [each.name for each in targets])


def test_jobs_of_two_containers_go_together() -> None:
    fleet, action = Fleet(), Counting()
    asyncio.run(fleet.crew.run_all([aim(0, 200), aim(0, 201)], action, exclusive=True))
    assert action.most == 2


def test_a_container_is_the_same_whatever_its_host_is_called() -> None:
    fleet, action = Fleet(), Counting()
    one = aim(0)
    same = msgspec.structs.replace(one.host, name="another-name")
    two = msgspec.structs.replace(one, name="two", host=same)
    asyncio.run(fleet.crew.run_all([one, two], action, exclusive=True))
    assert action.most == 1


def test_two_jobs_of_one_container_that_name_the_same_trainer_signal_it_once() -> None:
    fleet = Fleet()
    targets = [aim(0, 200, name) for name in ("a", "b")]
    trainer = fleet.trainer(targets[0])
    outcomes = asyncio.run(fleet.crew.run_all(targets, stopping, exclusive=True))
    assert trainer.heard == ["INT"]
    assert [each.result for each in outcomes] == ["stopped", "not_running"]


def test_after_an_interruption_every_target_has_an_outcome() -> None:
    async def story() -> None:
        fleet = Fleet(parallel=3)
        targets = [aim(n) for n in range(5)]
        fleet.trainer(targets[0])  # stopped; then one signalled, one connecting, two waiting
        hang = asyncio.Event()
        reached = asyncio.Event()

        async def opening(of: Target) -> Place:
            if of is targets[2]:
                await hang.wait()
            return await fleet._open(of)

        async def action(scope: Scope) -> Outcome:
            if scope.target is targets[1]:
                place = fleet.places[scope.target.name]
                place.host.after("send", lambda _: reached.set())
                fleet.trainer(targets[1])._takes_s = 1e6
            elif scope.target is not targets[0]:
                await hang.wait()
            return await stopping(scope)

        fleet.open = opening
        work = asyncio.ensure_future(fleet.crew.run_all(targets, action, exclusive=True))
        await reached.wait()
        while not fleet.finished():
            await asyncio.sleep(0)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        outcomes = fleet.crew.so_far(targets)
        assert [each.target for each in outcomes] == [each.name for each in targets]
        assert [each.result for each in outcomes[:3]] == ["stopped", "still_running", "refused"]
        assert [each.interrupted for each in outcomes] == [False, True, True, True, True]
        assert [each.signal for each in outcomes[1].signals] == ["INT"]
        assert outcomes[2].reason == "interrupted while connecting"
        assert outcomes[4].reason == "interrupted before it began"
        assert exit_code(outcomes) == 130
        assert all(each.closed for each in fleet.places.values())
        lines = fleet.hosts["pve1"].ledgers["200"]["run1"]
        assert lines[-1].startswith("done ")

    asyncio.run(story())


def test_an_action_that_tells_nothing_when_interrupted_was_begun_all_the_same() -> None:
    """`status` is such an action."""

    async def story() -> None:
        fleet = Fleet()
        reached = asyncio.Event()

        async def action(scope: Scope) -> Outcome:
            reached.set()
            await asyncio.Event().wait()
            raise AssertionError

        work = asyncio.ensure_future(fleet.crew.run_all([aim(0)], action))
        await reached.wait()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        (outcome,) = fleet.crew.so_far([aim(0)])
        assert outcome.interrupted
        assert outcome.reason != "interrupted before it began"

    asyncio.run(story())


def test_a_close_that_fails_is_one_targets_failure_only() -> None:
    fleet = Fleet()
    targets = [aim(0), aim(1)]

    async def opening(of: Target) -> Place:
        place = await fleet._open(of)
        if of is targets[0]:

            async def close() -> None:
                raise HostUnreachable("gone while closing")

            fleet.places[of.name].close = close  # type: ignore[method-assign]
        return place

    fleet.open = opening
    outcomes = asyncio.run(fleet.crew.run_all(targets, stopping))
    assert outcomes[1].result == "stopped"
    assert len(outcomes) == 2


def test_a_close_that_fails_does_not_hide_what_was_sent() -> None:
    fleet = Fleet()

    async def opening(of: Target) -> Place:
        place = await fleet._open(of)

        async def close() -> None:
            raise HostUnreachable("gone while closing")

        fleet.places[of.name].close = close  # type: ignore[method-assign]
        return place

    fleet.open = opening
    (outcome,) = asyncio.run(fleet.crew.run_all([aim(0)], stopping))
    assert [each.signal for each in outcome.signals] == ["INT"]


def test_a_refusal_of_the_configuration_is_no_refusal_to_signal() -> None:
    fleet = Fleet()

    async def opening(of: Target) -> Place:
        raise BadConfig("fleet.yaml:3: ssh: odd")

    fleet.open = opening
    (outcome,) = asyncio.run(fleet.crew.run_all([aim(0)], stopping))
    assert outcome.result == "unreachable"


def test_the_same_target_twice_is_stopped_once() -> None:
    fleet = Fleet()
    trainer = fleet.trainer(aim(0))
    outcomes = asyncio.run(fleet.crew.run_all([aim(0), aim(0)], stopping, exclusive=True))
    assert trainer.heard == ["INT"]
    assert [each.result for each in outcomes] == ["stopped", "not_running"]
