"""Why a login failed, in one sentence and with what to do; opens no connection itself."""

from __future__ import annotations

import errno
import os
import re
import shlex
import socket
from typing import Any

import asyncssh
from msgspec import Struct

from fleetstop import errors
from fleetstop.remote.known_hosts import HostKeys


class Witness(asyncssh.SSHClient):
    """What was seen of one attempt to log in: asyncssh reports to it, `explain` reads it."""

    def __init__(self) -> None:
        self.first = b""
        self.connected = False
        self.lost = False
        self.refused_key: asyncssh.SSHKey | None = None
        self._conn: asyncssh.SSHClientConnection | None = None

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:
        self.connected, self._conn = True, conn
        received = conn.data_received

        def tap(data: bytes, *rest: Any) -> None:
            # asyncssh throws away what comes before the version: there sshd says why it hangs up
            self.first = (self.first + data)[:512]
            if len(self.first) >= 8:
                del conn.data_received
            received(data, *rest)

        setattr(conn, "data_received", tap)  # noqa: B010  (mypy forbids the plain assignment)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True

    def validate_host_public_key(
        self, host: str, addr: str, port: int, key: asyncssh.SSHKey
    ) -> bool:
        self.refused_key = key
        return False

    @property
    def speaks_ssh(self) -> bool:
        return self.first.startswith(b"SSH-") or b"\nSSH-" in self.first

    @property
    def authenticating(self) -> bool:
        """The host key was accepted: from here on sshd counts a login attempt."""
        return self._conn is not None and self._conn.get_server_host_key() is not None


class Journey(Struct, frozen=True):
    """What messages say about a way to a host. `retry`: the ssh command a person would type."""

    name: str
    user: str
    address: str
    port: int
    retry: str
    copy_id: str
    tried: tuple[str, ...]
    locked: tuple[str, ...]
    host_keys: HostKeys
    jump: str | None
    proxied: bool

    @property
    def place(self) -> str:
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{host}:{self.port}" + (" (by its ProxyCommand)" if self.proxied else "")


def is_transient(exc: BaseException, seen: Witness) -> bool:
    """Worth another try: hung up on before the login, as MaxStartups does. Nothing else."""
    dropped = isinstance(exc, ConnectionResetError | BrokenPipeError | asyncssh.ConnectionLost)
    greeting = not seen.first or seen.speaks_ssh or b"MaxStartups" in seen.first
    return dropped and greeting and not seen.authenticating


def explain(way: Journey, exc: Exception, seen: Witness) -> errors.HostUnreachable:
    """The one translation of what asyncssh and the network raise; most specific first."""
    text = _clean(str(exc))
    if isinstance(exc, asyncssh.HostKeyNotVerifiable):
        return _host_key(way, text, seen)
    if isinstance(exc, asyncssh.PermissionDenied) or "authentication failures" in text:
        return _refused(way, text)
    if isinstance(exc, asyncssh.ChannelOpenError):
        told = f"{way.name}: jump host {way.jump} cannot reach {way.place}: {text}"
    elif isinstance(exc, socket.gaierror | UnicodeError):
        told = f"{way.name}: {_lookup(way.address, exc)}"
    elif seen.connected:
        told = f"{way.name}: {_after_connecting(way, exc, seen)}"
    else:
        told = f"{way.name}: {_network(way.place, exc)}"
    return errors.HostUnreachable(told, hint=f"see for yourself: {way.retry}")


def timed_out(way: Journey, seen: Witness, within_s: float) -> errors.HostUnreachable:
    limit = f"within {within_s:g} s"
    if not seen.connected:
        told = f"no answer from {way.place} {limit}"
    elif not seen.first:
        told = f"{way.place} accepts connections but said nothing {limit}"
    elif not seen.speaks_ssh:
        told = f"{way.place} is not an SSH server; it says {_quote(seen.first)}"
    else:
        stage = f"the login as {way.user}" if seen.authenticating else "the key exchange"
        told = f"{way.place} did not finish {stage} {limit}"
    return errors.HostUnreachable(f"{way.name}: {told}", hint=f"see for yourself: {way.retry}")


def _lookup(address: str, exc: Exception) -> str:
    code = exc.errno if isinstance(exc, socket.gaierror) else socket.EAI_NONAME
    if code in (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", None)):
        return f"no such host name: {address}"
    return f"the host name {address} could not be looked up: {getattr(exc, 'strerror', exc)}"


def _after_connecting(way: Journey, exc: Exception, seen: Witness) -> str:
    if b"MaxStartups" in seen.first:
        return f"sshd at {way.place} has too many logins at once (MaxStartups)"
    if b"Not allowed at this time" in seen.first:
        return f"sshd at {way.place} refuses us for now (PerSourcePenalties)"
    if seen.first and not seen.speaks_ssh:
        return f"{way.place} is not an SSH server; it says {_quote(seen.first)}"
    if isinstance(exc, OSError | asyncssh.ConnectionLost):
        when = "during the login" if seen.authenticating else "before the login"
        return f"{way.place} dropped the connection {when}"
    return f"no common ground with {way.place}: {_clean(str(exc))}"


def _network(place: str, exc: Exception) -> str:
    code = getattr(exc, "errno", None)
    if code is None and (several := re.search(r"\[Errno (\d+)\]", str(exc))):
        code = int(several[1])  # asyncio joins the errors of several addresses into one text
    match code:
        case errno.ECONNREFUSED:
            return f"{place} refused the connection: nothing listens there"
        case errno.EHOSTUNREACH | errno.ENETUNREACH:
            return f"no route to {place}"
        case errno.ETIMEDOUT:
            return f"no answer from {place}"
        case None:
            return f"no connection to {place}: {exc}"
        case _:
            return f"no connection to {place}: {os.strerror(code)}"


def _refused(way: Journey, text: str) -> errors.LoginRefused:
    told = f"{way.name}: login refused for {way.user}"
    tried = ", ".join(way.tried) or "no key"
    if "authentication failures" in text:
        told += ": too many keys were tried"
        return errors.LoginRefused(told, hint=f"name the right key as `identity`; tried {tried}")
    if way.locked:
        told += f": {', '.join(way.locked)} needs a passphrase and was skipped"
        return errors.LoginRefused(told, hint=f"ssh-add {way.locked[0]}; tried {tried}")
    return errors.LoginRefused(told, hint=f"{way.copy_id}; tried {tried}")


def _host_key(way: Journey, text: str, seen: Witness) -> errors.HostUnreachable:
    keys, key = way.host_keys, seen.refused_key
    shown = f" ({key.get_algorithm()} {key.get_fingerprint()})" if key else ""
    if "revoked" in text:
        told = f"{way.name}: the host key of {way.place} is marked as revoked"
        lines = [f"{e.file}:{e.line}" for e in keys.known if e.marker == "@revoked"]
        return errors.HostKeyChanged(told, hint=f"do not log in; see {' '.join(lines)}")
    if keys.plain:
        first = keys.plain[0]
        where = f"{first.file}:{first.line}"
        told = f"{way.name}: the host key of {way.place} has changed{shown}; {where} knows another"
        forget = f"ssh-keygen -R {shlex.quote(keys.wanted)} -f {shlex.quote(first.file)}"
        return errors.HostKeyChanged(told, hint=f"if that is expected: {forget}")
    told = f"{way.name}: the host key of {way.place} is unknown{shown}"
    if keys.known:
        told += f"; no certificate of the authority in {keys.known[0].file}:{keys.known[0].line}"
    scan = f"ssh-keyscan -p {way.port} {way.address}, compare the fingerprint, add the line"
    target = f" to {shlex.quote(str(keys.files[0]))}" if keys.files else ""
    once = f"{way.retry} once"
    return errors.HostKeyUnknown(
        told, hint=once if way.jump or way.proxied else f"{scan}{target}; or {once}"
    )


def _quote(said: bytes) -> str:
    return f"'{_clean(said.splitlines()[0][:60].decode('ascii', 'backslashreplace'))}'"


def _clean(text: str) -> str:
    """Words of the other side, fit for a terminal."""
    return "".join(c if c.isprintable() else "?" for c in text)
