"""Where targets live: one connection per host, a host shell per target, and the way inside."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from fleetstop.core.commands import Command
from fleetstop.core.inventory import Host
from fleetstop.errors import ContainerFrozen, CouldNotLook
from fleetstop.ports import Shell
from fleetstop.remote.container import InsideShell, enter, frozen, is_frozen, pct_status
from fleetstop.remote.dry_run import DryShell
from fleetstop.remote.host import HostShell, open_shell
from fleetstop.remote.ssh import Connection, Tunnels, connect

AT_ONCE = 3
"""Targets of one host worked on at once: two channels each stay under sshd's MaxSessions, and
a pct call costs a core for up to a second."""


class Site:
    """One host: its connection, opened on first use and shared by its targets."""

    def __init__(self, host: Host, tunnels: Tunnels, ssh_config: Path | None = None) -> None:
        self.host = host
        self._tunnels = tunnels
        self._ssh_config = ssh_config
        self._connection: Connection | None = None
        self._connecting = asyncio.Lock()
        self.turn = asyncio.Semaphore(AT_ONCE)
        self.pct_calls = 0

    @property
    def ssh_connections(self) -> int:
        return self._connection.connections if self._connection else 0

    async def connection(self) -> Connection:
        async with self._connecting:
            if self._connection is None:
                self._connection = await connect(
                    self.host, tunnels=self._tunnels, ssh_config=self._ssh_config
                )
            return self._connection

    async def place(self, vmid: int | None, *, dry_run: bool) -> SitePlace:
        connection = await self.connection()
        return SitePlace(self, connection, await open_shell(connection, self.host), vmid, dry_run)

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()


class SitePlace:
    """A target's two vantage points; see ports.Place."""

    def __init__(
        self, site: Site, connection: Connection, outside: HostShell, vmid: int | None, dry: bool
    ) -> None:
        self._site = site
        self._connection = connection
        self._outside = outside
        self._vmid = vmid
        self._dry = dry
        self._opened: list[InsideShell] = []
        self._second: HostShell | None = None
        self._entering = asyncio.Lock()
        self.pct_calls = 0

    @property
    def hz(self) -> int:
        return self._outside.hz

    @property
    def own_pid(self) -> int:
        return self._outside.pid

    @property
    def ssh_connections(self) -> int:
        return self._site.ssh_connections

    @property
    def host(self) -> Shell:
        return DryShell(self._outside.shell) if self._dry else self._outside.shell

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
                self._connection, self._site.host, self._vmid, self._outside.shell, self._opened
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
        with contextlib.suppress(CouldNotLook):
            for inside in self._opened:
                await inside.shell.close()
                if inside.shell.given_up and inside.attach.start:
                    await self._outside.shell.run(
                        Command("endtree", (str(inside.attach.pid), str(inside.attach.start)))
                    )
        for outside in (self._outside, self._second):
            if outside is not None:
                with contextlib.suppress(CouldNotLook):
                    await outside.shell.close()
