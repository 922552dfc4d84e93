"""Where targets live: one connection per host, a host shell per target, and the way inside."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from pathlib import Path

from fleetstop.core.commands import Answer, Command
from fleetstop.core.inventory import Host
from fleetstop.core.process import ProcessId
from fleetstop.errors import ContainerFrozen, CouldNotLook, HostUnreachable
from fleetstop.ports import Shell
from fleetstop.remote.container import InsideShell, enter, frozen, is_frozen, pct_status
from fleetstop.remote.dry_run import DryShell
from fleetstop.remote.host import HostShell, open_shell
from fleetstop.remote.ssh import Connection, Tunnels, connect

FAILED_S = 5.0
AT_ONCE = 3
"""Targets of one host worked on at once: two channels each stay under sshd's MaxSessions, and
a pct call costs a core for up to a second."""

WAITING_AT_ONCE = 4
"""Who waits keeps its two channels for hours and costs nothing: 4 of them are 8 channels."""


class Site:
    """One host: its connection, opened on first use and shared by its targets."""

    def __init__(self, host: Host, tunnels: Tunnels, ssh_config: Path | None = None) -> None:
        self.host = host
        self._tunnels = tunnels
        self._ssh_config = ssh_config
        self._connection: Connection | None = None
        self._connecting = asyncio.Lock()
        self._failed: HostUnreachable | None = None
        self._failed_at = 0.0
        self._now = time.monotonic
        self.turn = asyncio.Semaphore(AT_ONCE)
        self._waiting = asyncio.Semaphore(WAITING_AT_ONCE)
        self.pct_calls = 0

    def turn_of(self, command: str) -> asyncio.Semaphore:
        return self._waiting if command == "wait" else self.turn

    @property
    def ssh_connections(self) -> int:
        return self._connection.connections if self._connection else 0

    async def connection(self) -> Connection:
        """Made on first use, and anew when it was lost. A host that was down a moment ago is
        down for its other targets too: they are not made to wait for it one after another."""
        async with self._connecting:
            if self._failed is not None and self._now() - self._failed_at < FAILED_S:
                raise self._failed
            if self._connection is None or self._connection.lost:
                try:
                    self._connection = await connect(
                        self.host, tunnels=self._tunnels, ssh_config=self._ssh_config
                    )
                except HostUnreachable as exc:
                    self._failed, self._failed_at = exc, self._now()
                    raise
            return self._connection

    async def place(self, vmid: int | None, *, dry_run: bool) -> SitePlace:
        connection = await self.connection()
        return SitePlace(self, connection, await open_shell(connection, self.host), vmid, dry_run)

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()


class _Outside:
    """Whichever host shell is the current one: who holds this never holds a given-up one."""

    def __init__(self, place: SitePlace) -> None:
        self._place = place

    async def run(self, command: Command) -> Answer:
        return await self._place.outside.shell.run(command)


class SitePlace:
    """A target's two vantage points; see ports.Place."""

    def __init__(
        self, site: Site, connection: Connection, outside: HostShell, vmid: int | None, dry: bool
    ) -> None:
        self._site = site
        self._connection = connection
        self.outside = outside
        self.hanging: frozenset[int] = frozenset()
        self._vmid = vmid
        self._dry = dry
        self._opened: list[InsideShell] = []
        self._second: HostShell | None = None
        self._entering = asyncio.Lock()
        self.pct_calls = 0

    @property
    def hz(self) -> int:
        return self.outside.hz

    @property
    def own_pid(self) -> int:
        return self.outside.pid

    @property
    def ssh_connections(self) -> int:
        return self._site.ssh_connections

    @property
    def host(self) -> Shell:
        return DryShell(_Outside(self)) if self._dry else _Outside(self)

    async def unstick(self) -> frozenset[int]:
        old = self.outside
        self.outside = await open_shell(self._connection, self._site.host)
        words = (str(old.pid), str(old.start))
        answer = await self.outside.shell.run(Command("stuck", words))
        await self.outside.shell.run(Command("endtree", words))
        found = frozenset(int(pid) for pid in re.findall(rb"/proc/(\d+)/", answer.data))
        self.hanging |= found
        return found

    @property
    def inside_pid(self) -> int | None:
        """Our own shell's PID in the container, so that it is never taken for the job."""
        return self._opened[0].pid if self._opened else None

    async def is_frozen(self) -> bool:
        if self._vmid is None:
            return False
        return is_frozen((await self.host.run(Command("frozen", (str(self._vmid),)))).data)

    def frozen_error(self) -> ContainerFrozen:
        assert self._vmid is not None
        return frozen(self._site.host, self._vmid)

    async def inside(self) -> Shell:
        async with self._entering:
            return await self._inside()

    async def _inside(self) -> Shell:
        if self._vmid is None:
            if self._second is None:
                self._second = await open_shell(self._connection, self._site.host)
            return DryShell(self._second.shell)
        if not self._opened:
            # lxc-attach hangs for good in a frozen container, so look at the freezer first
            if await self.is_frozen():
                raise self.frozen_error()
            self.pct_calls += 1
            await enter(
                self._connection, self._site.host, self._vmid, self.outside.shell, self._opened
            )
        # what belongs to the container is only ever read by a stop
        return DryShell(self._opened[0].shell)

    async def pct_status(self) -> str:
        """`running` or `stopped`; raises ContainerMissing."""
        assert self._vmid is not None
        self.pct_calls += 1
        return await pct_status(self._connection, self._site.host, self._vmid)

    async def close(self) -> None:
        """Leaves nothing behind: given-up shells are ended from the host, by identity."""
        stuck: list[ProcessId] = []
        for inside in self._opened:
            with contextlib.suppress(CouldNotLook):
                await inside.shell.close()
            # known only now: one that still owed an answer is given up by closing it
            if inside.shell.given_up and inside.attach.start:
                stuck.append(inside.attach)
        outside = [each for each in (self.outside, self._second) if each is not None]
        for each in outside:
            with contextlib.suppress(CouldNotLook):
                await each.shell.close()
            if each.shell.given_up:
                stuck.append(ProcessId(each.pid, each.start))
        if stuck:
            with contextlib.suppress(CouldNotLook, TimeoutError):
                async with asyncio.timeout(10.0):
                    await self._end(stuck)

    async def _end(self, stuck: list[ProcessId]) -> None:
        """Through a fresh shell: the one that was used may be the one that hangs. A dry run
        does this too: they are our own shells, and nothing of the job."""
        fresh = await open_shell(self._connection, self._site.host)
        for each in stuck:
            await fresh.shell.run(Command("endtree", (str(each.pid), str(each.start))))
        await fresh.shell.close()
