"""Many operators, old ledgers and long watches, in each shell a host may have."""

from __future__ import annotations

import asyncio
import subprocess
import time
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from fleetstop.core.commands import Answer
from fleetstop.core.ledger import broken_by, holder, undecided
from fleetstop.errors import Refused
from fleetstop.lab.processes import identify
from tests.bench.watching import share_of_a_core
from tests.contracts.test_boot_verbs import (
    LOCKS,
    Started,
    ask,
    kind,
    ledger,
    lock,
    play,
    started,
    target,
    who,
    word,
)
from tests.fakes.local_channel import LocalShell, local_shell

__all__ = ["kind", "started", "target"]


def craft(target: str, run: str, *lines: str) -> None:
    place = LOCKS / f"fleetstop.{target}"
    place.mkdir(mode=0o1777, exist_ok=True)
    (place / run).write_text("".join(f"{line}\n" for line in lines))


def test_of_ten_claims_at_once_exactly_one_holds(kind: str, target: str) -> None:
    async def whole() -> None:
        async with AsyncExitStack() as stack:
            shells = [await stack.enter_async_context(local_shell(kind)) for _ in range(10)]
            for number in range(3):
                locks = [lock(s.framed, target, f"r{n}-{number}") for n, s in enumerate(shells)]
                claims = (each.claim() for each in locks)
                tries = await asyncio.gather(*claims, return_exceptions=True)
                refused = [each for each in tries if isinstance(each, Refused)]
                assert len(refused) == 9, [t for t in tries if not isinstance(t, Refused)]
                (first,) = [n for n, each in enumerate(tries) if not isinstance(each, Exception)]
                named = [str(each) for each in refused if f"(run r{first}-{number})" in str(each)]
                assert len(named) == 9, refused
                for each in locks:
                    await each.release(frozenset())
        assert not (LOCKS / f"fleetstop.{target}").exists()

    asyncio.run(whole())


def test_hundreds_of_old_runs_with_long_lives_cost_little(kind: str, target: str) -> None:
    """A run of two hours leaves 1440 stamps behind; none of them is anybody's sign of life."""
    for number in range(300):
        stamps = [f"stamp {at}.25" for at in range(100, 100 + 1440 * 5, 5)]
        ids = f"{number + 10**7}:{number}"
        head = ["header a@b", "stamp 99.00", "since 99.00", f"send 1 INT heard 99.50 {ids}"]
        craft(target, f"old{number}", *head, *stamps)

    async def story(local: LocalShell) -> None:
        mine = lock(local.framed, target, "mine")
        began = time.monotonic()
        now = await mine.claim()
        took = time.monotonic() - began
        assert len(now.runs) == 301
        assert sum(bool(each.sends) for each in now.runs) == 300
        answer = await ask(local, "ledger", target)
        assert len(answer.data) < 300 * 400
        assert took < 10, took
        await mine.release(frozenset())
        assert not (LOCKS / f"fleetstop.{target}").exists()

    play(kind, story)


def test_the_stamps_of_the_last_half_minute_are_what_counts(kind: str, target: str) -> None:
    async def story(local: LocalShell) -> None:
        up = float(Path("/proc/uptime").read_text().split()[0])
        old = ["header a@b", "since 50.00", "send 1 INT heard 60.00 9:9", "break 61.00 x"]
        craft(target, "live", *old, f"stamp {up - 200:.2f}", f"stamp {up - 25:.2f}")
        craft(target, "dead", *old, f"stamp {up - 33:.2f}")
        found = await ledger(local, target)
        first = holder(found)
        assert first is not None
        assert first.run == "live"
        assert all(len(each.sends) == 1 and each.breaks == (("x", 61.0),) for each in found.runs)

    play(kind, story)


def test_a_claim_may_break_another(kind: str, target: str) -> None:
    async def story(local: LocalShell) -> None:
        await ask(local, "claim", target, "one", "ann@desk")
        assert (await ask(local, "claim", target, "two", "bob@desk", "one")).status == 0
        found = await ledger(local, target)
        first = holder(found)
        assert first is not None
        assert first.run == "two"
        one = next(each for each in found.runs if each.run == "one")
        assert broken_by(found, one) == first
        assert not undecided(found, "two")
        # its stamps go on, and bring nothing back; a claim made anew is the later one
        assert (await ask(local, "stamp", target, "one")).status == 0
        assert (holder(await ledger(local, target)) or one).run == "two"
        await ask(local, "claim", target, "one", "ann@desk")
        assert (holder(await ledger(local, target)) or one).run == "two"
        await ask(local, "done", target, "two")
        assert (holder(await ledger(local, target)) or first).run == "one"
        for name in ("../x", ".x", "a/b"):
            assert (await ask(local, "claim", target, "three", "c", name)).status == 2

    play(kind, story)


def test_a_stamp_that_comes_late_is_none(kind: str, target: str) -> None:
    async def files(local: LocalShell) -> list[bytes]:
        told = (await ask(local, "ledger", target)).data.splitlines()
        return [each for each in told if not each.startswith((b"uptime:", b"wall:"))]

    async def story(local: LocalShell) -> None:
        await ask(local, "claim", target, "run", "me")
        up = float(Path("/proc/uptime").read_text().split()[0])
        told = await ask(local, "stamp", target, "run", str(int(up) + 5))
        assert told.status == 0
        assert up <= float(told.data) < up + 5
        before = await files(local)
        assert await ask(local, "stamp", target, "run", str(int(up) - 1)) == Answer(13, b"")
        assert await files(local) == before

    play(kind, story)


_NO_STDOUT = "import os, sys, time; print(flush=True); os.close(1); time.sleep(60)"


@pytest.mark.parametrize("stdout", [True, False])
def test_an_end_between_two_full_looks_is_noticed(
    kind: str, started: Started, stdout: bool
) -> None:
    """Ten times: the end falls between the looks in full, which come once a second."""

    async def one(others: list[str], number: int) -> None:
        job = started.sleeper() if stdout else started.python(_NO_STDOUT)
        mine = word(who(job))
        async with local_shell(kind) as local:
            waiting = asyncio.create_task(ask(local, "watch", "2000/50", *others, mine))
            await asyncio.sleep(0.25 + number * 0.03)
            job.kill()
            ended = time.monotonic()
            assert (await waiting).data.decode().split()[:2] == [mine, "0"]
            assert time.monotonic() - ended < 1.5

    async def whole() -> None:
        others = [word(who(started.sleeper())) for _ in range(5)]
        for first in (0, 5):  # each in a shell of its own; a few at once, since they mostly wait
            await asyncio.gather(*(one(others, first + number) for number in range(5)))

    asyncio.run(asyncio.wait_for(whole(), 40))


def test_one_that_ends_and_is_reaped_between_is_gone(kind: str, started: Started) -> None:
    async def story(local: LocalShell) -> None:
        job = subprocess.Popen(["sleep", "60"])
        identity = identify(job.pid)
        assert identity is not None
        mine = f"{identity.pid}:{identity.start}"
        waiting = asyncio.create_task(ask(local, "watch", "2000", mine))
        await asyncio.sleep(0.25)
        job.kill()
        job.wait()
        assert (await waiting).data.decode().split() == [mine, "3"]

    play(kind, story)


def shares(kind: str, *asked: tuple[int, float]) -> list[float]:
    """For each count of processes and seconds, measured side by side: the share is CPU time."""

    async def whole() -> list[float]:
        measures = (share_of_a_core(kind, count, seconds=seconds) for count, seconds in asked)
        return list(await asyncio.gather(*measures))

    return asyncio.run(whole())


def test_watching_ten_processes_costs_little(kind: str) -> None:
    """Seen: 1.4 % of a core in dash, 1.8 in bash, 1.6 in busybox; 3 is wanted. The bound is wide
    for a loaded machine. More processes cost more, so that the figure is one."""
    ten, few, many = shares(kind, (10, 3.0), (1, 1.5), (150, 1.5))
    assert 0 < ten < 0.15, ten
    assert many > few
