"""SSH connections, reached as OpenSSH would; knows no shell and no container."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, cast

import asyncssh
from msgspec import Struct
from msgspec.structs import replace
from tenacity import (
    AsyncRetrying,
    retry_if_exception,
    stop_after_attempt,
    wait_random,
)

from fleetstop import errors
from fleetstop.core.inventory import Host
from fleetstop.remote.ssh_channel import Channel
from fleetstop.remote.ssh_errors import Journey, Witness, explain, is_transient, timed_out
from fleetstop.remote.ssh_route import plan

__all__ = ["CHANNELS", "Channel", "Completed", "Connection", "Login", "Tunnels", "connect"]

# sshd allows 10 sessions on a connection (MaxSessions); two are left for those it still tears down
CHANNELS = 8
# how long a loaded sshd may take for more than those two: sessions that are over count until then
_TEARING_DOWN_S = (0.1, 0.3, 0.6, 1.0)
# of more than ten that are half-way in sshd drops some (MaxStartups 10:30:100, sshd_config(5));
# two are left for other people
AT_THE_DOOR = 8
CLOSE_WITHIN_S = 2.0

# what it has to say reaches people as one of our errors
logging.getLogger("asyncssh").setLevel(logging.CRITICAL)


class Completed(Struct, frozen=True):
    """How a command ended. `status` is negative when a signal ended it."""

    status: int | None
    out: bytes
    err: bytes


class Connection:
    """An authenticated connection. `connections` counts logins at sshd that it took: 1."""

    def __init__(self, host: Host, login: Login, tunnels: Tunnels | None) -> None:
        self.host = host
        self.connections = login.count
        self._login = login
        self._tunnels = tunnels  # ours to close
        self._slots = asyncio.Semaphore(CHANNELS)

    @property
    def lost(self) -> bool:
        return self._login.seen.lost

    async def open(self, command: str) -> Channel:
        """Raises ConnectionLost, or RemoteFailed when sshd does not give a session."""
        for pause in _TEARING_DOWN_S:
            try:
                return await self._open(command)
            except errors.RemoteFailed:
                await asyncio.sleep(pause)
        return await self._open(command)

    async def _open(self, command: str) -> Channel:
        await self._slots.acquire()
        channel = Channel(self.host.name, self._slots.release)
        try:
            await self._login.conn.create_session(
                lambda: channel, command, request_pty=False, encoding=None
            )
        except (asyncssh.Error, OSError) as exc:
            channel.abandon()
            raise self._no_session(exc) from exc
        except BaseException:
            channel.abandon()
            raise
        return channel

    async def run(
        self, command: str, *, stdin: bytes | None = None, deadline_s: float
    ) -> Completed:
        """One command to its end. Raises ConnectionLost, FrameTimedOut, RemoteFailed."""
        try:
            async with asyncio.timeout(deadline_s):
                channel = await self.open(command)
                try:
                    return await self._finish(channel, stdin)
                finally:
                    channel.close()
        except TimeoutError as exc:
            told = f"{self.host.name}: no answer within {deadline_s:g} s"
            raise errors.FrameTimedOut(told) from exc

    async def close(self) -> None:
        """Takes two seconds at the most, whatever the other side does."""
        await _close([self._login.conn, *(self._tunnels.take() if self._tunnels else ())])

    def abort(self) -> None:
        """At once: it is lost or stalled, and nothing waits for it any more."""
        self._login.conn.abort()

    async def _finish(self, channel: Channel, stdin: bytes | None) -> Completed:
        try:
            if stdin:
                channel.write(stdin)
            channel.eof()
        except errors.ConnectionLost:
            if channel.exit_status is None:
                raise
        out = bytearray()
        while data := await channel.read():
            out += data
        await channel.wait_closed()
        if channel.exit_status is None:
            raise errors.ConnectionLost(f"{self.host.name}: the connection was lost")
        return Completed(channel.exit_status, bytes(out), channel.stderr)

    def _no_session(self, exc: Exception) -> errors.CouldNotLook:
        if self._login.seen.lost or not isinstance(exc, asyncssh.ChannelOpenError):
            return errors.ConnectionLost(f"{self.host.name}: the connection was lost")
        told = f"{self.host.name}: sshd refused another session on this connection"
        return errors.RemoteFailed(told, hint="raise MaxSessions in its sshd_config to 10")


class Login(Struct, frozen=True):
    conn: asyncssh.SSHClientConnection
    seen: Witness
    count: int


class Tunnels:
    """Connections to jump hosts, one for each, shared by all that go through it; and how many may
    come in at one sshd at once, which may be several hosts by their names.

    Belongs to one event loop. `connections` counts what it opened.
    """

    def __init__(self) -> None:
        self.connections = 0
        self._doors: dict[Hashable, asyncio.Semaphore] = {}
        self._logins: dict[Hashable, Login] = {}
        self._locks: dict[Hashable, asyncio.Lock] = {}

    async def via(self, key: Hashable, reach: Callable[[], Awaitable[Login]]) -> Login:
        async with self._locks.setdefault(key, asyncio.Lock()):
            login = self._logins.get(key)
            if login is None or login.seen.lost:
                login = self._logins[key] = await reach()
                self.connections += login.count
            return login

    def door(self, way: Journey) -> asyncio.Semaphore:
        key = (way.address, way.port, way.jump)
        return self._doors.setdefault(key, asyncio.Semaphore(AT_THE_DOOR))

    def take(self) -> list[asyncssh.SSHClientConnection]:
        """What is open, for the caller to close; the last hop of a chain comes first."""
        logins, self._logins = list(self._logins.values()), {}
        return [login.conn for login in reversed(logins)]

    async def close(self) -> None:
        await _close(self.take())

    async def __aenter__(self) -> Tunnels:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.close()


class _Trip:
    """One call of `connect`: its config, its tunnels, and how far it has come, for the message."""

    def __init__(self, ssh_config: Path | None, tunnels: Tunnels) -> None:
        self.ssh_config = ssh_config
        self.tunnels = tunnels
        self.way: Journey | None = None
        self.seen = Witness()


async def connect(
    host: Host,
    *,
    connect_timeout_s: float = 10.0,
    ssh_config: Path | None = None,
    tunnels: Tunnels | None = None,
) -> Connection:
    """Log in, in `connect_timeout_s` altogether: look-up, jump hosts, retries, keys.

    Raises HostUnreachable or one of its children. `ssh_config`: instead of ~/.ssh/config.
    Without `tunnels` a jump host is reached for this connection alone.
    """
    own = None if tunnels else Tunnels()
    trip = _Trip(ssh_config, tunnels or cast(Tunnels, own))
    try:
        async with asyncio.timeout(connect_timeout_s):
            return Connection(host, await _reach(host, trip), own)
    except BaseException as exc:
        for conn in own.take() if own else ():
            conn.abort()  # no waiting: the time is up, or we are cancelled
        if isinstance(exc, TimeoutError):
            raise _late(host, trip, connect_timeout_s) from exc
        raise


def _late(host: Host, trip: _Trip, within_s: float) -> errors.HostUnreachable:
    if trip.way is None:
        return errors.HostUnreachable(f"{host.name}: not reached within {within_s:g} s")
    return timed_out(trip.way, trip.seen, within_s)


async def _reach(
    host: Host, trip: _Trip, *, path: tuple[str, ...] = (), through: Login | None = None
) -> Login:
    """`path`: the jump hosts being reached when this is one; `through`: already on its way."""
    way, options = await asyncio.to_thread(plan, host, trip.ssh_config, hop=bool(path))
    if way.jump and through is None:
        through = await _jump(host, way.jump, trip, path)
    options["tunnel"] = through.conn if through else None  # None: no second one by asyncssh
    return await _dial(way, options, trip)


async def _jump(host: Host, chain: str, trip: _Trip, path: tuple[str, ...]) -> Login | None:
    login: Login | None = None
    hops = chain.split(",")
    for index, hop in enumerate(hops):
        upto = ",".join(hops[: index + 1])
        if upto in path:
            raise errors.HostUnreachable(
                f"{host.name}: the jump host {hop} is to be reached through itself",
                hint="exclude it: `Host * !NAME` above its ProxyJump in ~/.ssh/config",
            )
        name = f"{path[0] if path else host.name}: jump host {hop}"
        at = replace(host, name=name, ssh=hop, port=None, jump=None)
        reach = partial(_reach, at, trip, path=(*(path or (host.name,)), upto), through=login)
        key = (trip.ssh_config, host.identity, host.known_hosts, upto)
        login = await trip.tunnels.via(key, reach)
    return login


async def _dial(way: Journey, options: dict[str, Any], trip: _Trip) -> Login:
    trip.way = way
    logins = 0

    async def once() -> asyncssh.SSHClientConnection:
        nonlocal logins
        trip.seen = seen = Witness()
        try:
            async with trip.tunnels.door(way):
                return await asyncssh.connect(client_factory=lambda: seen, **options)
        finally:
            logins += seen.authenticating

    retrying = AsyncRetrying(
        stop=stop_after_attempt(3),
        wait=wait_random(min=0.1, max=0.5),
        retry=retry_if_exception(lambda exc: is_transient(exc, trip.seen)),
        reraise=True,
    )
    try:
        conn: asyncssh.SSHClientConnection = await retrying(once)
    except (OSError, UnicodeError, asyncssh.Error) as exc:
        raise explain(way, exc, trip.seen) from exc
    return Login(conn, trip.seen, logins)


async def _close(conns: list[asyncssh.SSHClientConnection]) -> None:
    for conn in conns:
        conn.close()
    try:
        with suppress(TimeoutError, OSError, asyncssh.Error):  # we are leaving anyway
            async with asyncio.timeout(CLOSE_WITHIN_S):
                for conn in conns:
                    await conn.wait_closed()
    finally:
        for conn in conns:
            conn.abort()
