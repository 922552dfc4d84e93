"""Places on a real host: what entering a container costs, how it can go wrong, what is left."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeAlias

import pytest

from fleetstop.core.commands import Command
from fleetstop.core.inventory import Host
from fleetstop.errors import (
    ConnectionLost,
    ContainerFrozen,
    ContainerMissing,
    FrameTimedOut,
    PrivilegeMissing,
    Refused,
    RemoteFailed,
    ToolMissing,
)
from fleetstop.lab import Lab
from fleetstop.lab.login import Login, login
from fleetstop.ports import Shell
from fleetstop.remote import container as container_module
from fleetstop.remote.site import Site, SitePlace
from fleetstop.remote.ssh import Tunnels

pytestmark = pytest.mark.bed
Story: TypeAlias = Callable[[SitePlace], Awaitable[None]]


@pytest.fixture(scope="module")
def lab(bed: None) -> Iterator[Lab]:
    root = Path(tempfile.mkdtemp(prefix="fsl-", dir="/tmp"))
    fleet = None
    try:
        fleet = Lab.up(root, 2, first_vmid=random.randrange(23_000, 900_000_000, 100))
        yield fleet
    finally:
        if fleet is not None:
            fleet.down()
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture
def vmid(lab: Lab) -> Iterator[int]:
    """A running container, in which and around which nothing of ours is left by the test."""
    vmid = lab.vmids[0]
    before = lab.host_pids(vmid)
    yield vmid
    lab.thaw(vmid)
    deadline = time.monotonic() + 5
    while (left := lab.host_pids(vmid) - before) or attached(vmid):
        assert time.monotonic() < deadline, f"left behind: {left} {attached(vmid)}"
        time.sleep(0.02)


def attached(vmid: int) -> list[int]:
    """The lxc-attach processes of this container on the host."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if words[0] == b"lxc-attach" and str(vmid).encode() in words:
                found.append(int(pid))
    return found


def host_of(lab: Lab, **other: str) -> Host:
    facts = {
        "name": "lab1",
        "ssh": "root@127.0.0.1",
        "identity": str(lab.server.identity),
        "known_hosts": str(lab.server.known_hosts),
        "pct": str(lab.pct),
        **other,
    }
    return Host(port=lab.state.port, **facts)  # type: ignore[arg-type]


@asynccontextmanager
async def opened(
    lab: Lab, vmid: int | None, *, dry_run: bool = False, **other: str
) -> AsyncIterator[SitePlace]:
    site = Site(host_of(lab, **other), Tunnels())
    try:
        place = await site.place(vmid, dry_run=dry_run)
        try:
            yield place
        finally:
            await place.close()
    finally:
        await site.close()


def play(lab: Lab, vmid: int | None, story: Story, *, dry_run: bool = False, **other: str) -> None:
    async def whole() -> None:
        async with opened(lab, vmid, dry_run=dry_run, **other) as place:
            await asyncio.wait_for(story(place), 40)

    asyncio.run(whole())


def execs(lab: Lab) -> list[list[str]]:
    return [each for each in lab.pct_calls() if each[0] == "exec"]


# ------------------------------------------------------------------------------------ it works


def test_one_connection_and_one_pct_exec_for_all_that_is_inside(lab: Lab, vmid: int) -> None:
    calls, connections = len(lab.pct_calls()), lab.connections()

    async def story(place: SitePlace) -> None:
        assert (place.pct_calls, place.ours_inside) == (0, frozenset())
        assert (await place.host.run(Command("hello"))).status == 0
        await asyncio.gather(*(place.inside() for _ in range(3)))
        shell = await place.inside()
        (ours,) = place.ours_inside
        assert f"pid={ours.pid}\n".encode() in (await shell.run(Command("hello"))).data
        assert (place.pct_calls, place.ssh_connections) == (1, 1)
        assert await place.pct_status() == "running"
        assert place.pct_calls == 2
        assert not await place.is_frozen()

    play(lab, vmid, story)
    assert [each[0] for each in lab.pct_calls()[calls:]] == ["exec", "status"]
    assert lab.connections() - connections == 1


def test_places_that_share_hand_their_host_shell_on_but_no_broken_one(lab: Lab, vmid: int) -> None:
    """Ten containers of a host need one shell; nothing of it is left in the end."""

    async def whole() -> list[int]:
        site = Site(host_of(lab), Tunnels())
        pids = []
        for breaks in (False, True, False):
            place = await site.place(vmid, dry_run=True, shares=True)
            pids.append(place.own_pid)
            assert (await place.host.run(Command("hello"))).status == 0
            if breaks:
                own = f"{place.outside.pid}:{place.outside.start}"
                with pytest.raises(FrameTimedOut):
                    await place.host.run(Command("watch", ("1500", own), deadline_s=0.2))
            await place.close()
        alone = await site.place(vmid, dry_run=True)
        pids.append(alone.own_pid)
        await alone.close()
        assert site.ssh_connections == 1
        await site.close()
        return pids

    first, second, third, alone = asyncio.run(asyncio.wait_for(whole(), 40))
    assert first == second
    assert third != second
    assert alone != third
    deadline = time.monotonic() + 5
    while any(Path(f"/proc/{pid}").exists() for pid in (first, third, alone)):
        assert time.monotonic() < deadline, "a shell is left on the host"
        time.sleep(0.02)


def test_our_own_pids_are_known_on_both_sides(lab: Lab, vmid: int) -> None:
    async def story(place: SitePlace) -> None:
        shell = await place.inside()
        assert (await shell.run(Command("hello"))).status == 0
        [attach] = attached(vmid)
        assert place._opened[0].attach.pid == attach
        assert Path(f"/proc/{place.own_pid}/cmdline").read_bytes().endswith(b"\0fleetstop\0")
        (ours,) = place.ours_inside
        inner = f"/proc/{lab.containers[vmid].init_pid()}/root/proc/{ours.pid}/cmdline"
        assert Path(inner).read_bytes().endswith(b"\0fleetstop\0")
        assert place.hz == os.sysconf("SC_CLK_TCK")

    play(lab, vmid, story)
    assert attached(vmid) == []


def test_nothing_inside_and_nothing_dry_is_ever_changed(lab: Lab, vmid: int) -> None:
    claim = Command("claim", ("x", "run", "me"), changes=True)

    async def inside(place: SitePlace) -> None:
        with pytest.raises(Refused):
            await (await place.inside()).run(claim)

    async def outside(place: SitePlace) -> None:
        with pytest.raises(Refused):
            await place.host.run(claim)

    play(lab, vmid, inside)
    play(lab, vmid, outside, dry_run=True)


def test_a_stop_may_ask_in_the_container_and_a_dry_run_may_not(lab: Lab, vmid: int) -> None:
    mark = lab.rootfs(vmid) / "root/asked"
    touch = Command("before", ("9" * 9, "touch", "/root/asked"), changes=True)

    async def refused(place: SitePlace) -> None:
        with pytest.raises(Refused):
            await (await place.inside()).run(touch)

    async def asked(place: SitePlace) -> None:
        assert (await (await place.inside()).run(touch)).status == 0

    play(lab, vmid, refused, dry_run=True)
    assert not mark.exists()
    play(lab, vmid, asked)
    assert mark.exists()


def test_a_plain_host_has_a_second_shell_and_no_container(lab: Lab) -> None:
    async def story(place: SitePlace) -> None:
        second = await place.inside()
        assert await place.inside() is not None
        theirs = (await second.run(Command("hello"))).data
        assert f"pid={place.own_pid}\n".encode() not in theirs
        assert not await place.is_frozen()
        assert (place.pct_calls, place.ours_inside, place.ssh_connections) == (0, frozenset(), 1)

    play(lab, None, story)


def test_noise_of_pct_and_the_login_is_dropped(lab: Lab, vmid: int, tmp_path: Path) -> None:
    noisy = script(tmp_path, "echo 'Welcome to the cluster'; echo ready; printf hostpid", lab)

    async def story(place: SitePlace) -> None:
        shell = await place.inside()
        assert (await shell.run(Command("hello"))).status == 0

    play(lab, vmid, story, pct=str(noisy))


def script(directory: Path, text: str, lab: Lab) -> Path:
    """A `pct` that does this first."""
    place = directory / "pct"
    place.write_text(f'#!/bin/sh\n{text}\nexec {lab.pct} "$@"\n')
    place.chmod(0o755)
    return place


# ------------------------------------------------------------------------------ it goes wrong


def test_a_frozen_container_is_not_entered(lab: Lab, vmid: int) -> None:
    before = len(execs(lab))

    async def story(place: SitePlace) -> None:
        lab.freeze(vmid)
        assert await place.is_frozen()
        for _ in range(2):
            with pytest.raises(ContainerFrozen, match="entering it would hang") as caught:
                await place.inside()
            assert f"lxc-unfreeze -n {vmid}" in caught.value.hint
        assert isinstance(place.frozen_error(), ContainerFrozen)
        assert (place.pct_calls, attached(vmid)) == (0, [])
        lab.thaw(vmid)
        assert (await (await place.inside()).run(Command("hello"))).status == 0

    play(lab, vmid, story)
    assert len(execs(lab)) - before == 1


def test_a_container_that_freezes_behind_us_is_given_up_and_left_clean(lab: Lab, vmid: int) -> None:
    async def story(place: SitePlace) -> None:
        shell = await place.inside()
        lab.freeze(vmid)
        for _ in range(2):
            with pytest.raises(FrameTimedOut):
                await shell.run(Command("hello", deadline_s=0.3))
        assert (await place.host.run(Command("hello"))).status == 0

    play(lab, vmid, story)
    assert attached(vmid) == []


def test_a_missing_container_is_said_to_be_missing(lab: Lab) -> None:
    async def story(place: SitePlace) -> None:
        for ask in (place.inside, place.inside, place.pct_status):
            with pytest.raises(ContainerMissing, match="lab1 has no container 999999998"):
                await ask()
        assert place.ours_inside == frozenset()

    play(lab, 999_999_998, story)


def test_a_stopped_container_is_said_to_be_stopped(lab: Lab) -> None:
    vmid = lab.vmids[1]
    lab.stop(vmid)

    async def story(place: SitePlace) -> None:
        assert await place.pct_status() == "stopped"
        for _ in range(2):
            with pytest.raises(RemoteFailed, match="is not running"):
                await place.inside()
        lab.boot(vmid)
        assert (await (await place.inside()).run(Command("hello"))).status == 0

    play(lab, vmid, story)


def test_a_wrong_pct_names_the_key_to_set(lab: Lab, vmid: int) -> None:
    async def story(place: SitePlace) -> None:
        for ask in (place.inside, place.pct_status):
            with pytest.raises(ToolMissing, match="/nowhere/pct was not found") as caught:
                await ask()
            assert "pct: /path/to/pct" in caught.value.hint

    play(lab, vmid, story, pct="/nowhere/pct")


def test_a_given_up_shell_inside_is_ended_from_the_host(lab: Lab, vmid: int) -> None:
    fifo = lab.rootfs(vmid) / "workspace" / "fifo"
    os.mkfifo(fifo)

    async def story(place: SitePlace) -> None:
        shell = await place.inside()
        with pytest.raises(FrameTimedOut):
            await shell.run(Command("ends", ("/workspace/fifo",), deadline_s=0.4))
        assert len(attached(vmid)) == 1  # closing its channel ends nothing

    try:
        play(lab, vmid, story)
        assert gone_soon(vmid)
    finally:
        fifo.unlink()


def test_a_shell_left_in_the_middle_of_an_answer_is_ended_too(lab: Lab, vmid: int) -> None:
    fifo = lab.rootfs(vmid) / "workspace" / "fifo"
    os.mkfifo(fifo)

    async def story(place: SitePlace) -> None:
        shell = await place.inside()
        task = asyncio.create_task(shell.run(Command("ends", ("/workspace/fifo",))))
        await asyncio.sleep(0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    try:
        play(lab, vmid, story)
        assert gone_soon(vmid)
    finally:
        fifo.unlink()


def gone_soon(vmid: int) -> bool:
    deadline = time.monotonic() + 3
    while attached(vmid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not attached(vmid)


def test_a_pct_that_hangs_is_ended_by_identity(
    lab: Lab, vmid: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container_module, "ENTER_S", 0.5)
    pidfile = tmp_path / "pid"
    hanging = script(tmp_path, f'echo $$ >"{pidfile}"; sleep 60 & wait', lab)

    async def story(place: SitePlace) -> None:
        with pytest.raises(FrameTimedOut):
            await place.inside()
        with pytest.raises(FrameTimedOut):
            await (await place.inside()).run(Command("hello"))
        assert place.pct_calls == 1
        assert Path(f"/proc/{pidfile.read_text().strip()}").exists()

    play(lab, vmid, story, pct=str(hanging))
    deadline = time.monotonic() + 3
    while Path(f"/proc/{pidfile.read_text().strip()}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_cancelled_entry_leaves_nothing(lab: Lab, vmid: int) -> None:
    lab.set_pct_cost(0.3)

    async def story(place: SitePlace) -> None:
        for patience in (0.02, 0.15, 0.45):
            async with opened(lab, vmid) as other:
                task = asyncio.create_task(other.inside())
                await asyncio.sleep(patience)
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
        assert (await (await place.inside()).run(Command("hello"))).status == 0

    try:
        play(lab, vmid, story)
    finally:
        lab.set_pct_cost(0)


def test_a_shell_that_was_given_up_in_a_file_is_replaced_by_root_but_not_at_every_look(
    lab: Lab, vmid: int
) -> None:
    fifo = lab.rootfs(vmid) / "workspace" / "fifo"
    os.mkfifo(fifo)
    stuck = Command("ends", ("/workspace/fifo",), deadline_s=0.4)

    async def story(place: SitePlace) -> None:
        now = time.monotonic()
        place._site._now = lambda: now
        with pytest.raises(FrameTimedOut):
            await (await place.inside()).run(stuck)
        (old,) = attached(vmid)
        assert (await (await place.inside()).run(Command("hello"))).status == 0
        assert place.pct_calls == 2
        assert old not in attached(vmid)  # it is ended at once, and keeps no channel
        # the same file again: not one pct for each look
        for _ in range(3):
            with pytest.raises(FrameTimedOut):
                await (await place.inside()).run(stuck)
        assert place.pct_calls == 2
        now += 61
        assert (await (await place.inside()).run(Command("hello"))).status == 0
        assert place.pct_calls == 3
        assert len(place.ours_inside) == 3

    try:
        play(lab, vmid, story)
        assert gone_soon(vmid)
    finally:
        fifo.unlink()


def test_one_that_hung_on_its_way_in_is_tried_again_after_a_while(
    lab: Lab, vmid: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container that could not be entered for a minute is not lost for the whole run."""
    monkeypatch.setattr(container_module, "ENTER_S", 1.0)
    hurdle = tmp_path / "hurdle"
    hurdle.touch()
    hanging = script(tmp_path, f'[ -e "{hurdle}" ] && sleep 60', lab)

    async def story(place: SitePlace) -> None:
        now = time.monotonic()
        place._site._now = lambda: now
        with pytest.raises(FrameTimedOut):
            await place.inside()
        hurdle.unlink()
        monkeypatch.setattr(container_module, "ENTER_S", 20.0)
        with pytest.raises(FrameTimedOut):
            await place.inside()
        assert place.pct_calls == 1
        now += 61
        assert (await (await place.inside()).run(Command("hello"))).status == 0
        assert place.pct_calls == 2

    play(lab, vmid, story, pct=str(hanging))


def test_the_second_shell_of_a_plain_host_is_replaced_too(lab: Lab, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)

    async def story(place: SitePlace) -> None:
        with pytest.raises(FrameTimedOut):
            await (await place.inside()).run(Command("ends", (str(fifo),), deadline_s=0.4))
        assert (await (await place.inside()).run(Command("hello"))).status == 0

    play(lab, None, story)


def test_after_a_restart_of_the_container_it_is_entered_anew(lab: Lab) -> None:
    vmid = lab.vmids[1]

    async def story(place: SitePlace) -> None:
        assert (await (await place.inside()).run(Command("hello"))).status == 0
        (old,) = place.ours_inside
        lab.stop(vmid)
        lab.boot(vmid)
        with pytest.raises(ConnectionLost):
            await (await place.inside()).run(Command("hello"))
        assert (await (await place.inside()).run(Command("hello"))).status == 0
        assert old in place.ours_inside
        assert len(place.ours_inside) == 2

    play(lab, vmid, story)


# ------------------------------------------------------------------------------- taken up again


async def until_lost(shell: Shell) -> None:
    """Until pct has seen, too, that what it ran is over."""
    for _ in range(100):
        await shell.run(Command("hello"))
        await asyncio.sleep(0.1)


def test_over_a_sound_connection_only_what_is_over_is_opened_anew(lab: Lab, vmid: int) -> None:
    connections = lab.connections()

    async def story(place: SitePlace) -> None:
        first, inside = place.own_pid, await place.inside()
        assert await place.again() is False
        assert (place.own_pid, place.pct_calls) == (first, 1)
        os.kill(place._opened[0].attach.pid, 9)
        with pytest.raises(ConnectionLost):
            await until_lost(inside)
        with pytest.raises(FrameTimedOut):
            await place.host.run(Command("watch", ("30000",), deadline_s=0.2))
        assert await place.again() is False
        assert place.own_pid != first
        # ended by identity, not left to itself: it would watch on; its parent reaps it in a moment
        async with asyncio.timeout(1.5):
            while Path(f"/proc/{first}").exists():
                await asyncio.sleep(0.01)
        assert (await place.host.run(Command("hello"))).status == 0
        assert (await (await place.inside()).run(Command("hello"))).status == 0
        assert place.pct_calls == 2

    play(lab, vmid, story)
    assert lab.connections() - connections == 1


def test_over_a_lost_connection_all_is_opened_anew_and_the_old_shells_are_ended(
    lab: Lab, vmid: int
) -> None:
    async def story(place: SitePlace) -> None:
        await place.inside()
        old = [place.own_pid, place._opened[0].attach.pid]
        sshd = _parent(old[0])
        os.kill(sshd, 19)  # sshd is silent: its shells know nothing of that
        try:
            assert await place.again() is True
            # dead, though their parent cannot reap them now
            deadline = time.monotonic() + 5
            while left := [each for each in old if _state(each) not in ("", "Z")]:
                assert time.monotonic() < deadline, left
                await asyncio.sleep(0.05)
            assert (await place.host.run(Command("hello"))).status == 0
            assert (await (await place.inside()).run(Command("hello"))).status == 0
            assert (place.pct_calls, place.ssh_connections) == (2, 2)
        finally:
            os.kill(sshd, 18)

    play(lab, vmid, story)


def _state(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return ""


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_two_targets_of_a_host_share_the_new_connection(lab: Lab) -> None:
    before = lab.connections()

    async def story() -> None:
        site = Site(host_of(lab), Tunnels())
        try:
            places = [await site.place(None, dry_run=False) for _ in range(2)]
            sshd = _parent(places[0].own_pid)
            os.kill(sshd, 9)
            for each in places:
                with pytest.raises(ConnectionLost):
                    await each.host.run(Command("hello"))
            assert await asyncio.gather(*(each.again() for each in places)) == [True, True]
            for each in places:
                assert (await each.host.run(Command("hello"))).status == 0
                await each.close()
        finally:
            await site.close()

    asyncio.run(asyncio.wait_for(story(), 40))
    assert lab.connections() - before == 2


# ---------------------------------------------------------------------------- without being root


@pytest.fixture
def someone(lab: Lab) -> Iterator[Login]:
    """A login without rights, for this test alone."""
    with login() as who:
        yield who


def as_login(lab: Lab, who: Login, vmid: int, story: Story, *, sudo: str = "auto") -> None:
    play(lab, vmid, story, ssh=f"{who.name}@127.0.0.1", sudo=sudo)


def test_a_login_without_root_is_told_what_to_do(lab: Lab, someone: Login) -> None:
    async def story() -> None:
        host = host_of(lab, ssh=f"{someone.name}@127.0.0.1", sudo="always")
        site = Site(host, Tunnels())
        try:
            with pytest.raises(PrivilegeMissing, match="root is needed") as caught:
                await site.place(None, dry_run=False)
            assert f"{someone.name}@127.0.0.1" in caught.value.hint
        finally:
            await site.close()

    asyncio.run(story())


@pytest.mark.parametrize("sudo", ["auto", "never"])
def test_a_login_without_any_rights_looks_and_does_not_enter(
    lab: Lab, someone: Login, vmid: int, sudo: str
) -> None:
    async def story(place: SitePlace) -> None:
        assert "no root on lab1" in (place.without_root or "")
        look = await place.host.run(Command("look", (f"lxc:{vmid}",)))
        assert b"SigIgn" in look.data
        with pytest.raises(PrivilegeMissing) as caught:
            await place.inside()
        assert str(lab.pct) in caught.value.hint
        with pytest.raises(PrivilegeMissing):
            await place.inside()
        # one that cannot be entered costs one pct, not one at every look
        assert place.pct_calls == 1
        assert place.ours_inside == frozenset()

    as_login(lab, someone, vmid, story, sudo=sudo)


def test_a_dry_run_without_root_refuses_what_changes(lab: Lab, someone: Login, vmid: int) -> None:
    someone.allow(str(lab.pct))

    async def story(place: SitePlace) -> None:
        for verb in ("claim", "send"):
            with pytest.raises(Refused):
                await place.host.run(Command(verb, (str(vmid),), changes=True))

    async def whole() -> None:
        name = f"{someone.name}@127.0.0.1"
        async with opened(lab, vmid, dry_run=True, ssh=name) as place:
            await asyncio.wait_for(story(place), 40)

    asyncio.run(whole())


def test_a_shell_lost_in_hanging_files_is_replaced_and_ended_inside(
    lab: Lab, someone: Login, vmid: int
) -> None:
    """The kill goes through it: the next one must not wait for the first."""
    someone.allow(str(lab.pct))

    async def story(place: SitePlace) -> None:
        inside = await place.inside()
        lab.freeze(vmid)
        with pytest.raises(FrameTimedOut):
            await inside.run(Command("clock", deadline_s=0.3))
        lab.thaw(vmid)
        host = await place.host.run(Command("look", (f"lxc:{vmid}",)))
        init = min(int(word) for word in host.data.split(b"/proc/")[1:2][0].split(b"/")[:1])
        answer = await place.host.run(Command("detail", (str(init),)))
        assert f"/proc/{init}/task/".encode() in answer.data
        assert place.pct_calls == 2

    as_login(lab, someone, vmid, story)
