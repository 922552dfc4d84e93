"""The connection to one host: made on first use, anew when lost; knows no container."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from fleetstop.core.inventory import Host
from fleetstop.errors import ConnectionLost, HostUnreachable
from fleetstop.remote.host import HostShell, open_shell
from fleetstop.remote.shell import ShellEnded
from fleetstop.remote.ssh import Connection, Tunnels, connect

FAILED_S = 5.0


class Link:
    """Shared by all targets of the host."""

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

    def drop(self, stalled: Connection) -> None:
        """For all targets of the host: who still uses it is told that it is lost."""
        if self._connection is stalled:
            self._forget()

    async def opened(self) -> tuple[Connection, HostShell]:
        """A fresh host shell. One more try where the connection went away under the opening:
        nothing was asked yet."""
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

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()


def _by_itself(exc: ConnectionLost) -> bool:
    """The far end has ended the shell and said so; it would say so again."""
    return isinstance(exc, ShellEnded) and exc.status is not None
