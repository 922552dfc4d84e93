"""Looks over a host, its containers and their jobs; judges nothing itself, changes nothing."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct

from fleetstop.actions import looks
from fleetstop.actions.doctor_job import look_over
from fleetstop.actions.locate import all_of_it
from fleetstop.actions.lock import Lock
from fleetstop.actions.telling import Run, Scope, Teller
from fleetstop.core.checkup import host as judge
from fleetstop.core.checkup.checks import Check, Checked, Name, on_host
from fleetstop.core.commands import Command
from fleetstop.core.gpu import Unseen
from fleetstop.core.inventory import Host, Job, Target
from fleetstop.errors import (
    ContainerFrozen,
    ContainerMissing,
    CouldNotLook,
    HostKeyChanged,
    HostKeyUnknown,
    HostUnreachable,
    LoginRefused,
    PrivilegeMissing,
    Refused,
    RemoteFailed,
)
from fleetstop.events import AnyEvent
from fleetstop.ports import Clock, Place, Shell

Opening: TypeAlias = Callable[[Target], Awaitable[Place]]


class Rounds(Struct, frozen=True):
    """What every visit works with. `turn`: how many places of one host are open at once."""

    run: Run
    clock: Clock
    opening: Opening
    turn: Callable[[Target], asyncio.Semaphore]
    log_fault: Callable[[str], str | None]


class Visit(Struct, frozen=True):
    """One host with those of its targets that were asked for. `known`: all jobs that the inventory
    has there, by VMID (None: on the host itself); `containers`: whether it has any."""

    host: Host
    targets: tuple[Target, ...]
    known: Mapping[int | None, tuple[Job, ...]] = {}
    containers: bool = False

    @property
    def jobs(self) -> tuple[Job, ...]:
        return self.known.get(None, ())


async def visit(rounds: Rounds, one: Visit) -> list[Checked]:
    """The host first: where it cannot be reached nothing of it can be looked at."""
    itself = Target(one.host.name, one.host, None, None)
    turn = rounds.turn(itself)
    async with turn:
        opened = await _guarded(rounds, _opened(rounds, itself))
    if isinstance(opened, tuple):
        return [_host(one, opened), *_not_reached(one)]
    places = _by_place(one.targets)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(_host_checks(rounds, one, opened, turn))
        rest = [group.create_task(_place(rounds, one, vmid, each)) for vmid, each in places.items()]
    return [_host(one, first.result()), *(each for task in rest for each in task.result())]


def _host(one: Visit, checks: Sequence[Check]) -> Checked:
    return Checked(one.host.name, "host", one.host.name, checks=tuple(checks))


def _by_place(targets: Sequence[Target]) -> dict[int | None, list[Target]]:
    found: dict[int | None, list[Target]] = {}
    for each in targets:
        if each.vmid is not None or each.job is not None:
            found.setdefault(each.vmid, []).append(each)
    return found


async def _guarded(
    rounds: Rounds, work: Awaitable[Place | tuple[Check, ...]]
) -> Place | tuple[Check, ...]:
    """A bug of ours ends this look and no other."""
    try:
        return await work
    except Exception as exc:
        return (_fault(rounds, exc),)


def _fault(rounds: Rounds, exc: Exception) -> Check:
    path = rounds.log_fault("".join(traceback.format_exception(exc)))
    says = f"a fault in fleetstop: {type(exc).__name__}: {exc}"
    return Check("fault", None, says, f"less {path}" if path else None)


async def _opened(rounds: Rounds, itself: Target) -> Place | tuple[Check, ...]:
    try:
        return await rounds.opening(itself)
    except CouldNotLook as exc:
        return _no_way(exc)


def _no_way(exc: CouldNotLook) -> tuple[Check, ...]:
    reached = (Check("reachable", True, "it answers"), Check("host_key", True, "its key is known"))
    # what a hint says before the command, and behind it, is for a sentence
    fix, _, more = exc.hint.removeprefix("see for yourself: ").partition("; tried ")
    said = (exc.message + (f"; tried {more}" if more else ""), fix or None)
    match exc:
        case HostKeyUnknown() | HostKeyChanged():
            return (reached[0], Check("host_key", False, *said))
        case LoginRefused():
            return (*reached, Check("login", False, *said))
        case HostUnreachable():
            return (Check("reachable", False, *said),)
        case PrivilegeMissing():
            blind = Check("tools", None, "not looked at, for want of root")
            return (*reached, Check("login", True, "let in"), Check("root", False, *said), blind)
    return (*reached, Check("login", None, *said))


def _not_reached(one: Visit) -> list[Checked]:
    lost = Check("container", None, f"not looked at: see {one.host.name}")
    found = []
    for vmid, targets in _by_place(one.targets).items():
        if vmid is not None:
            found.append(_checked(targets[0], [lost], whole=True))
        else:
            gone = Check("job", None, f"not looked at: see {one.host.name}")
            found += [_checked(each, [gone]) for each in targets]
    return found


def _checked(target: Target, checks: Sequence[Check], *, whole: bool = False) -> Checked:
    """`whole`: of the container, not of its job."""
    name, host = target.name.partition(":")[0] if whole else target.name, target.host.name
    if whole and "/" in target.name:
        name = target.name
    job = None if whole else target.job_name
    return Checked(name, "container" if whole else "job", host, target.vmid, job, tuple(checks))


async def _host_checks(
    rounds: Rounds, one: Visit, place: Place, turn: asyncio.Semaphore
) -> list[Check]:
    host = one.host
    checks = [
        Check("reachable", True, "it answers"),
        Check("host_key", True, "its key is known"),
        Check("login", True, f"let in as {host.ssh}"),
        judge.root(place.without_root, host, bool(one.jobs)),
    ]
    async with turn:
        try:
            checks += await _host_frames(rounds, one, place)
        except Exception as exc:
            checks.append(_fault(rounds, exc))
        finally:
            await place.close()
    return checks


async def _host_frames(rounds: Rounds, one: Visit, place: Place) -> list[Check]:
    host = one.host
    try:
        have, clock = await tools_of(rounds.clock, place.host, host, None)
        answer = await place.host.run(Command("health", (host.pct,), deadline_s=15.0))
        if answer.status != 0:
            raise RemoteFailed(f"it could not say how it is (status {answer.status})")
        health = judge.parse_health(answer.data)
    except CouldNotLook as exc:
        unseen: tuple[Name, ...] = ("pct", "tools", "clock", "nvidia_smi", "kernel_log")
        return [Check(each, None, f"could not be looked at: {exc.message}") for each in unseen]
    return [
        judge.pct(health, host, one.containers),
        judge.tools(have, one.jobs, host, None),
        clock,
        await _gpus(one, place, health),
        judge.kernel_log(health, host),
    ]


async def _gpus(one: Visit, place: Place, health: judge.Health) -> Check:
    named = any(job.gpus for job in (*one.jobs, *(each.job for each in one.targets if each.job)))
    try:
        view = await looks.gpus(place)
    except CouldNotLook as exc:
        return Check("nvidia_smi", None, f"could not be asked: {exc.message}")
    missing = isinstance(view, Unseen) and "no nvidia-smi" in view.reason
    return judge.nvidia_smi(view, missing, health, one.host, named)


async def tools_of(
    clock: Clock, shell: Shell, host: Host, vmid: int | None
) -> tuple[judge.Have, Check]:
    """One frame: the tools that are there, and the clock by which it answered."""
    before = clock.wall()
    answer = await shell.run(Command("have", judge.ASKED, deadline_s=10.0))
    have = judge.parse_have(answer.data)
    if answer.status != 0 or have.now is None:
        # what could not be asked for is not missing
        raise RemoteFailed(f"it could not say which tools it has (status {answer.status})")
    return have, judge.clock(have.now, before, clock.wall(), host, vmid)


async def _place(
    rounds: Rounds, one: Visit, vmid: int | None, targets: Sequence[Target]
) -> list[Checked]:
    """A container with its jobs, or the jobs of the host itself: one place, one shell inside."""
    first = targets[0]
    async with rounds.turn(first):
        try:
            place = await rounds.opening(first)
        except CouldNotLook as exc:
            lost = Check("container", None, exc.message, exc.hint or None)
            return [_checked(first, [lost], whole=vmid is not None)]
        except Exception as exc:
            return [_checked(first, [_fault(rounds, exc)], whole=vmid is not None)]
        try:
            return await _looked_over(rounds, one, place, vmid, targets)
        except Exception as exc:
            return [_checked(first, [_fault(rounds, exc)], whole=vmid is not None)]
        finally:
            await place.close()


async def _looked_over(
    rounds: Rounds, one: Visit, place: Place, vmid: int | None, targets: Sequence[Target]
) -> list[Checked]:
    first = _scope(rounds, targets[0], place)
    checks = [] if vmid is None else [await _container(first)]
    if checks and not checks[0].ok:
        return [_checked(targets[0], checks, whole=True)]
    jobs = [each for each in targets if each.job is not None]
    entered = await _enter(rounds, place, targets[0], [each.job for each in jobs if each.job])
    found = []
    for each in jobs:
        others = [job for job in one.known.get(vmid, ()) if job is not each.job]
        scope = _scope(rounds, each, place)
        told = await look_over(scope, entered.shell, entered.why, others)
        found.append(_checked(each, told))
    # the host has told of its own tools already
    if vmid is None:
        return found
    checks += [*entered.checks, await _lock(first)]
    return [_checked(targets[0], checks, whole=True), *found]


def _scope(rounds: Rounds, target: Target, place: Place) -> Scope:
    def unheard(_event: AnyEvent) -> None:
        """What is found is returned."""

    teller = Teller(target.name, unheard, rounds.clock)
    return Scope(rounds.run, target, place, rounds.clock, teller, rounds.log_fault)


async def _container(scope: Scope) -> Check:
    host, vmid = scope.target.host, scope.target.vmid
    try:
        tree = await all_of_it(scope)
        if tree.processes and await scope.place.is_frozen():
            raise scope.place.frozen_error()
    except ContainerFrozen as exc:
        why = on_host(host, "lxc-info", "-n", str(vmid), "-s")
        fix = f"{why}   # and once you know why: lxc-unfreeze -n {vmid}"
        return Check("container", False, exc.message, fix)
    except ContainerMissing as exc:
        # it may have moved to another node
        return Check("container", False, exc.message, on_host(host, host.pct, "list"))
    except CouldNotLook as exc:
        return Check("container", None, exc.message, exc.hint or None)
    if not tree.processes:
        start = on_host(host, host.pct, "start", str(vmid))
        return Check("container", False, "it is stopped", start)
    return Check("container", True, f"runs, {len(tree.processes)} processes")


async def _lock(scope: Scope) -> Check:
    """Whether a stop could write what it sends before it sends it; it would refuse, else."""
    lock = Lock(scope.place.host, scope.run, scope.target.vmid, scope.clock)
    try:
        await lock.claimable()
    except (CouldNotLook, Refused) as exc:
        refused = isinstance(exc, Refused | RemoteFailed)
        return Check("lock", False if refused else None, exc.message, exc.hint or None)
    return Check("lock", True, "a stop could take it")


class Entered(Struct, frozen=True):
    """`shell` None: nothing had to be asked in there, or, with `why`, nothing could be."""

    shell: Shell | None = None
    why: str | None = None
    checks: tuple[Check, ...] = ()


async def _enter(rounds: Rounds, place: Place, target: Target, jobs: Sequence[Job]) -> Entered:
    """One `pct exec` where anything in there is to be seen, and none else."""
    # without root on the host a signal goes through it, too
    if place.without_root is None and not any(_within(each) for each in jobs):
        return Entered()
    host, vmid = target.host, target.vmid
    try:
        shell = await place.inside()
        if vmid is None:
            return Entered(shell)
        have, clock = await tools_of(rounds.clock, shell, host, vmid)
    except CouldNotLook as exc:
        no = Check("entered", False, exc.message, exc.hint or None)
        return Entered(None, exc.message, (no,))
    way = Check("entered", True, "it can be entered")
    return Entered(shell, None, (way, judge.tools(have, jobs, host, vmid), clock))


def _within(job: Job) -> bool:
    match = job.match
    asks = (job.log, job.checkpoints, job.launch, job.deploy, match.pgrep, match.tmux)
    return any(each is not None for each in asks)
