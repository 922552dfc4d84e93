"""Streams into a real container over real SSH: as root, by sudo, on the host, and cut short."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fleetstop.core.commands import Command
from fleetstop.errors import (
    ConnectionLost,
    ContainerFrozen,
    ContainerMissing,
    FrameTimedOut,
    Refused,
    RemoteFailed,
)
from fleetstop.lab import Lab
from fleetstop.lab.login import Login
from fleetstop.remote.site import SitePlace
from tests.remote import test_site as site
from tests.remote.test_site import as_login, attached, gone_soon, opened, play

pytestmark = pytest.mark.bed
lab, vmid, someone = site.lab, site.vmid, site.someone
EVERY = bytes(range(256)) * 4096
ODD = "données/é \udc80 $(x)\n"


async def pieces(count: int) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield EVERY


async def whole(place: SitePlace, *, outside: bool = False) -> None:
    """Sixteen MiB of every byte, and a word that no locale of the host spares."""
    told: list[int] = []
    words = ["sh", "-c", 'sha256sum; printf %s "$1"; id -u >&2; exit 5', "x", ODD]
    done = await place.carry(words, pieces(16), 30.0, told.append, outside=outside)
    digest = hashlib.sha256(EVERY * 16).hexdigest()
    assert done.out == f"{digest}  -\n{ODD}".encode("utf-8", "surrogateescape")
    assert (done.status, told[-1]) == (5, 16 << 20)


async def ended(lab: Lab, vmid: int, before: set[int]) -> None:
    """What was told to end takes a moment for it on a busy machine."""
    until = time.monotonic() + 5
    while left := lab.host_pids(vmid) - before:
        assert time.monotonic() < until, f"left running: {left}"
        await asyncio.sleep(0.02)


def test_a_stream_goes_into_the_container_by_one_pct_exec_of_its_own(lab: Lab, vmid: int) -> None:
    before = len(lab.pct_calls())

    async def story(place: SitePlace) -> None:
        hands = await place.hands()
        await asyncio.gather(whole(place), hands.run(Command("clock")))
        done = await place.carry(["cat", "/proc/1/cmdline"], b"", 20.0)
        assert b"/init" in done.out
        assert place.pct_calls == 3
        assert place.ssh_connections == 1

    play(lab, vmid, story)
    assert len(lab.pct_calls()) - before == 3


def test_outside_it_goes_to_the_host(lab: Lab, vmid: int, tmp_path: Path) -> None:
    async def story(place: SitePlace) -> None:
        await whole(place, outside=True)
        target = tmp_path / "file"
        await place.carry(["dd", f"of={target}"], EVERY, 20.0, outside=True)
        assert target.read_bytes() == EVERY
        assert place.pct_calls == 0

    play(lab, vmid, story)


def test_a_plain_host_has_hands_and_takes_streams(lab: Lab, tmp_path: Path) -> None:
    async def story(place: SitePlace) -> None:
        await whole(place)
        words = (str(tmp_path / "put"), "600", "text")
        assert (await (await place.hands()).run(Command("put", words, changes=True))).status == 0
        assert (tmp_path / "put").read_text() == "text"

    play(lab, None, story)


def test_hands_may_change_what_inside_may_not(lab: Lab, vmid: int) -> None:
    async def story(place: SitePlace) -> None:
        put = Command("put", ("/root/put", "600", "text"), changes=True)
        with pytest.raises(Refused):
            await (await place.inside()).run(put)
        assert (await (await place.hands()).run(put)).status == 0
        assert (lab.rootfs(vmid) / "root/put").read_text() == "text"
        assert place.pct_calls == 1

    async def dry(place: SitePlace) -> None:
        put = Command("put", ("/root/dry", "600", "text"), changes=True)
        with pytest.raises(Refused):
            await (await place.hands()).run(put)
        assert (await (await place.hands()).run(Command("clock"))).status == 0
        for outside in (True, False):
            with pytest.raises(Refused):
                await place.carry(["touch", "/root/dry"], b"", 20.0, outside=outside)
        assert not (lab.rootfs(vmid) / "root/dry").exists()

    play(lab, vmid, story)
    play(lab, vmid, dry, dry_run=True)


@pytest.mark.parametrize("sudo", ["pct", "all"])
def test_without_root_it_goes_in_by_sudo(lab: Lab, someone: Login, vmid: int, sudo: str) -> None:
    someone.allow(str(lab.pct) if sudo == "pct" else "ALL")

    async def story(place: SitePlace) -> None:
        await whole(place)
        await whole(place, outside=True)
        assert (await place.carry(["id", "-u"], b"", 20.0)).out == b"0\n"
        there = (await place.carry(["id", "-u"], b"", 20.0, outside=True)).out.decode().strip()
        assert there == ("0" if sudo == "all" else str(someone.uid))

    as_login(lab, someone, vmid, story)


async def cancelled(place: SitePlace, mark: Path) -> None:
    text = "sleep 300 & setsid sleep 301 & echo x >/root/mark; cat >/dev/null; wait"
    task = asyncio.create_task(place.carry(["sh", "-c", text], b"x", 300.0))
    async with asyncio.timeout(20):
        while not mark.exists():
            await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    mark.unlink()


def test_a_cancelled_stream_leaves_nothing_in_the_container(lab: Lab, vmid: int) -> None:
    before = lab.host_pids(vmid)

    async def story(place: SitePlace) -> None:
        await cancelled(place, lab.rootfs(vmid) / "root/mark")
        assert gone_soon(vmid)
        await ended(lab, vmid, before)
        assert (await place.carry(["echo", "on"], b"", 20.0)).out == b"on\n"

    play(lab, vmid, story)


def test_nor_does_one_that_went_in_by_sudo(lab: Lab, someone: Login, vmid: int) -> None:
    someone.allow(str(lab.pct))
    before = lab.host_pids(vmid)

    async def story(place: SitePlace) -> None:
        await cancelled(place, lab.rootfs(vmid) / "root/mark")
        # the shell that ended it stays until the place is left
        assert place.pct_calls == 2

    as_login(lab, someone, vmid, story)
    deadline = time.monotonic() + 5
    while lab.host_pids(vmid) != before:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_where_nothing_moves_it_is_given_up_and_ended(lab: Lab, vmid: int) -> None:
    async def story(place: SitePlace) -> None:
        with pytest.raises(FrameTimedOut, match="nothing moved for 1 s"):
            await place.carry(["sh", "-c", "sleep 300; cat"], pieces(64), 1.0)
        assert gone_soon(vmid)
        with pytest.raises(FrameTimedOut, match="nothing moved for 1 s"):
            await place.carry(["sleep", "300"], b"", 1.0, outside=True)

    play(lab, vmid, story)


def test_a_lost_connection_under_a_stream_leaves_nothing(lab: Lab, vmid: int) -> None:
    before = lab.host_pids(vmid)

    async def slowly(place: SitePlace) -> AsyncIterator[bytes]:
        yield EVERY
        place._connection.abort()
        yield EVERY

    async def story(place: SitePlace) -> None:
        text = "trap '' HUP PIPE; cat >/dev/null; sleep 300"
        with pytest.raises(ConnectionLost):
            await place.carry(["sh", "-c", text], slowly(place), 20.0)
        assert await place.again()
        assert attached(vmid) == []
        await ended(lab, vmid, before)

    play(lab, vmid, story)


def test_what_keeps_it_out_is_said_as_for_the_shell(lab: Lab, vmid: int) -> None:
    async def frozen(place: SitePlace) -> None:
        lab.freeze(vmid)
        with pytest.raises(ContainerFrozen):
            await place.carry(["cat"], b"x", 20.0)
        assert place.pct_calls == 0

    async def missing(place: SitePlace) -> None:
        with pytest.raises(ContainerMissing):
            await place.carry(["cat"], pieces(64), 20.0)

    async def killed(place: SitePlace) -> None:
        with pytest.raises(RemoteFailed, match="was ended"):
            await place.carry(["sh", "-c", "kill -9 $PPID"], b"", 20.0)

    play(lab, vmid, frozen)
    lab.thaw(vmid)
    play(lab, 999_999_999, missing)
    play(lab, vmid, killed)


def test_memory_stays_bounded_over_ssh(lab: Lab, vmid: int) -> None:
    """The far end reads nothing for a while: we ask for no more of the source."""
    asked = 0

    async def counted() -> AsyncIterator[bytes]:
        nonlocal asked
        for _ in range(64):
            asked += 1
            yield EVERY

    async def story() -> None:
        async with opened(lab, vmid) as place:
            words = ["sh", "-c", "sleep 3; wc -c"]
            task = asyncio.create_task(place.carry(words, counted(), 30.0))
            await asyncio.sleep(2.0)
            assert 0 < asked <= 8
            assert (await task).out.strip() == str(64 << 20).encode()

    asyncio.run(story())
