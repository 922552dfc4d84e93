"""The connection to one host: made on first use, anew when lost; knows no container."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path

from fleetstop.core.inventory import Host
from fleetstop.errors import ConnectionLost, CouldNotLook, HostUnreachable
from fleetstop.remote.host import HostShell, open_shell
from fleetstop.remote.sharing import Shared
from fleetstop.remote.shell import ShellEnded
from fleetstop.remote.ssh import Connection, Tunnels, connect

FAILED_S = 5.0
AT_ONCE = 3
"""Targets of one host worked on at once: two channels each stay under sshd's MaxSessions, and
a pct call costs a core for up to a second."""

WAITING_AT_ONCE = 4
"""Who waits keeps its two channels for hours and costs nothing: 4 of them are 8 channels."""


class Link:
    """Shared by all targets of the host, which take turns at it."""

    def __init__(self, host: Host, tunnels: Tunnels, ssh_config: Path | None = None) -> None:
        self.host = host
        self._tunnels = tunnels
        self._ssh_config = ssh_config
        self._connection: Connection | None = None
        self._before = 0
        self._connecting = asyncio.Lock()
        self._failed: HostUnreachable | None = None
        self._failed_at = 0.0
        self._now = time.monotonic
        self._idle: list[HostShell] = []
        self.turn = asyncio.Semaphore(AT_ONCE)
        self._waiting = asyncio.Semaphore(WAITING_AT_ONCE)
        self.shared = Shared()

    def turn_of(self, command: str) -> asyncio.Semaphore:
        return self._waiting if command == "wait" else self.turn

    @property
    def ssh_connections(self) -> int:
        return self._before + (self._connection.connections if self._connection else 0)

    async def connection(self) -> Connection:
        """Made on first use, and anew when it was lost. A host that was down a moment ago is
        down for its other targets too: they are not made to wait for it one after another."""
        async with self._connecting:
            if self._failed is not None and self._now() - self._failed_at < FAILED_S:
                raise self._failed
            if self._connection is None or self._connection.lost:
                self._forget()
                try:
                    self._connection = await connect(
                        self.host, tunnels=self._tunnels, ssh_config=self._ssh_config
                    )
                except HostUnreachable as exc:
                    self._failed, self._failed_at = exc, self._now()
                    raise
            return self._connection

    def now(self) -> float:
        return self._now()

    def _forget(self) -> None:
        if self._connection is not None:
            self._before += self._connection.connections
            self._connection.abort()
            self._connection = None
            self._idle.clear()  # gone with it

    def drop(self, stalled: Connection) -> None:
        """For all targets of the host: who still uses it is told that it is lost."""
        if self._connection is stalled:
            self._forget()

    async def opened(self, *, used: bool = False) -> tuple[Connection, HostShell]:
        """A fresh host shell; `used`: or one that another target has done with. One more try where
        the connection went away under the opening: nothing was asked yet."""
        while used and self._idle:
            shell = self._idle.pop()
            if self._connection is not None and _is_well(self._connection, shell):
                return self._connection, shell
        try:
            return await self._opened()
        except ConnectionLost as exc:
            if _by_itself(exc):
                raise
            return await self._opened()

    async def _opened(self) -> tuple[Connection, HostShell]:
        connection = await self.connection()
        try:
            return connection, await open_shell(connection, self.host)
        except ConnectionLost as exc:
            if not _by_itself(exc):
                self.drop(connection)
            raise

    def keep(self, connection: Connection, shell: HostShell) -> bool:
        """For another target, where it is fit for one; else it is the caller's to close."""
        fit = connection is self._connection and _is_well(connection, shell)
        if fit:
            self._idle.append(shell)
        return fit

    async def close(self) -> None:
        for each in self._idle:
            with contextlib.suppress(CouldNotLook):
                await each.shell.close()
        self._idle.clear()
        if self._connection is not None:
            await self._connection.close()


def _is_well(connection: Connection, shell: HostShell) -> bool:
    return not (connection.lost or shell.shell.given_up or shell.shell.ended)


def _by_itself(exc: ConnectionLost) -> bool:
    """The far end has ended the shell and said so; it would say so again."""
    return isinstance(exc, ShellEnded) and exc.status is not None
