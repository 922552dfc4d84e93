"""Streams bytes into one command at the far end, on a channel of its own; knows no file, no job.

The command runs below a small shell that first says who it is and at last how the command ended,
in band: the exit codes of ssh, pct and the command collide.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence

from fleetstop.core.commands import Carried
from fleetstop.core.inventory import Host
from fleetstop.core.process import ProcessId
from fleetstop.errors import ConnectionLost, CouldNotLook, FrameTimedOut, RemoteFailed
from fleetstop.remote.container import ENTER_S, explain, rooted
from fleetstop.remote.host import with_rights
from fleetstop.remote.shell import encode, quoted
from fleetstop.remote.ssh import Connection
from fleetstop.remote.ssh_channel import Channel

OUT_MOST = 1024 * 1024
_PIECE = 128 * 1024
_NOISE_MOST = 64 * 1024
_LAST_WORDS_S = 1.0
_NAMED_S = 3.0
# $s is the shell's own line of /proc/self/stat: the redirection is its own, nothing is forked.
# The words come encoded, since pct passes ASCII only (pve-common JSONSchema.pm, decode locale).
_TELLING = (
    "n=$1; shift; IFS= read -r s </proc/self/stat; k=$#; "
    'while [ $k -gt 0 ]; do t=$(printf %b. "$1"); shift; set -- "$@" "${t%.}"; k=$((k - 1)); done; '
    'printf "\\n%s begun %s\\n" "$n" "$s"; "$@"; c=$?; printf "\\n%s ended %s\\n" "$n" "$c"'
)
# pct ends in exec(lxc-attach), so the process said here stays that one (pve-container pct.pm exec)
_ATTACHING = (
    'n=$1; shift; IFS= read -r s </proc/self/stat; printf "\\n%s attach %s\\n" "$n" "$s"; '
    'exec "$0" exec "$@"'
)


def telling_words(nonce: str, words: Sequence[str]) -> list[str]:
    """The command that runs these words and tells of them."""
    inner = [encode(word).decode("ascii") if word else "" for word in words]
    return ["sh", "-c", _TELLING, "fleetstop", nonce, *inner]


class Stream:
    """One stream over one channel. `attach` and `own`: who is to be ended where it is left: the
    lxc-attach as the host counts, and the small shell as its own /proc does; None while unknown."""

    def __init__(self, channel: Channel, host: Host, vmid: int | None, nonce: str) -> None:
        self._channel = channel
        self._host, self._vmid = host, vmid
        self._name = host.name if vmid is None else f"{host.name}/{vmid}"
        self._nonce = nonce.encode()
        self._buffer = bytearray()
        self._sent = 0
        self._moved_at = 0.0
        self.attach: ProcessId | None = None
        self.own: ProcessId | None = None

    async def run(
        self,
        chunks: AsyncIterator[bytes] | bytes,
        deadline_s: float,
        progress: Callable[[int], None] | None,
    ) -> Carried:
        """Raises FrameTimedOut when for `deadline_s` not a byte moved either way."""
        await self._begin()
        self._moved()
        reading = asyncio.create_task(self._to_the_end())
        pouring = asyncio.create_task(self._pour(chunks, progress))
        try:
            while not reading.done():
                left = self._moved_at + deadline_s - time.monotonic()
                if left <= 0:
                    late = f"{self._name}: nothing moved for {deadline_s:g} s"
                    raise FrameTimedOut(f"{late} after {self._sent} bytes")
                both = {each for each in (reading, pouring) if not each.done()}
                await asyncio.wait(both, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                self._heed(pouring)
            return reading.result()
        finally:
            for each in (reading, pouring):
                each.cancel()
            await asyncio.gather(reading, pouring, return_exceptions=True)
            self._channel.close()

    def leave(self, on_host: list[ProcessId], inside: list[ProcessId]) -> None:
        """Adds whoever of it may still run to those who are to be ended."""
        if self._vmid is None:
            on_host += [self.own] if self.own is not None else []
        elif self.attach is not None and self._channel.exit_status is None:
            on_host.append(self.attach)
        elif self.own is not None:
            # what lxc-attach has attached outlives it
            inside.append(self.own)

    async def _begin(self) -> None:
        """Until the command is about to run: nothing is sent to one that cannot be entered."""
        try:
            async with asyncio.timeout(ENTER_S):
                while not (found := self._mark(b"begun")):
                    await self._more(_NOISE_MOST)
        except TimeoutError as exc:
            told = f"{self._name}: it did not start within {ENTER_S:g} s"
            raise FrameTimedOut(told) from exc
        except asyncio.CancelledError:
            # it may have begun all the same; who is to be ended is known once it has said so
            with contextlib.suppress(CouldNotLook, TimeoutError):
                async with asyncio.timeout(_NAMED_S):
                    while not (self._mark(b"attach") or self._mark(b"begun")):
                        await self._more(_NOISE_MOST)
            self._channel.close()
            raise
        finally:
            self.attach, self.own = self._said(b"attach"), self._said(b"begun")
        del self._buffer[: found.end()]

    def _said(self, word: bytes) -> ProcessId | None:
        found = self._mark(word)
        return identity(found[1]) if found else None

    def _mark(self, word: bytes) -> re.Match[bytes] | None:
        line = rb"\n" + self._nonce + b" " + word + rb" ([^\n]*)\n"
        return re.search(line, self._buffer)

    async def _pour(
        self, chunks: AsyncIterator[bytes] | bytes, progress: Callable[[int], None] | None
    ) -> None:
        async for chunk in _one(chunks) if isinstance(chunks, bytes) else chunks:
            for at in range(0, len(chunk), _PIECE):
                piece = chunk[at : at + _PIECE]
                self._channel.write(piece)
                # waits while the other side takes no more: that is what keeps memory bounded
                await self._channel.drain()
                self._sent += len(piece)
                self._moved()
                if progress is not None:
                    progress(self._sent)
        self._channel.eof()

    def _heed(self, pouring: asyncio.Task[None]) -> None:
        """A source that fails ends it all. That the far end takes no more does not: it may have
        ended early, and says how."""
        error = pouring.exception() if pouring.done() and not pouring.cancelled() else None
        if error is not None and not isinstance(error, ConnectionLost):
            raise error

    async def _to_the_end(self) -> Carried:
        while not (found := self._mark(b"ended")):
            await self._more(OUT_MOST)
            self._moved()
        out, status = bytes(self._buffer[: found.start()]), int(found[1])
        with contextlib.suppress(TimeoutError):
            # its last words come by another pipe, and may be later than this
            await asyncio.wait_for(self._channel.wait_closed(), _LAST_WORDS_S)
        return Carried(status=status, out=out, err=self._channel.stderr)

    async def _more(self, most: int) -> None:
        data = await self._channel.read()
        if not data:
            await self._channel.wait_closed()
            raise self._last_words()
        self._buffer += data
        del self._buffer[: -most - len(self._nonce) - 64]

    def _last_words(self) -> CouldNotLook:
        status = self._channel.exit_status
        if status is None:
            return ConnectionLost(f"{self._name}: the connection was lost")
        said = self._channel.stderr[-400:].decode("utf-8", "backslashreplace").strip()
        if self._vmid is not None and self.own is None:
            return explain(self._host, self._vmid, said, status)
        told = (
            f"{self._name}: the command was ended (status {status}) and said: {said or 'nothing'}"
        )
        return RemoteFailed(told)

    def _moved(self) -> None:
        self._moved_at = time.monotonic()


async def _one(chunk: bytes) -> AsyncIterator[bytes]:
    if chunk:
        yield chunk


def identity(line: bytes) -> ProcessId | None:
    """From a line of /proc/PID/stat; the name in brackets may hold anything (proc(5))."""
    pid, _, _ = line.partition(b" ")
    fields = line.rpartition(b")")[2].split()
    if not pid.isdigit() or len(fields) < 20 or not fields[19].isdigit():
        return None
    return ProcessId(int(pid), int(fields[19]))


async def start(
    connection: Connection, host: Host, vmid: int | None, words: Sequence[str], *, root: bool
) -> Stream:
    """Opens the channel: on the host with the rights of its shells, or in the container through
    one `pct exec`. The caller has made sure that it is not frozen, and ends what is left."""
    nonce = secrets.token_hex(12)
    inner = telling_words(nonce, words)
    if vmid is None:
        line = with_rights(host, inner)
    elif root:
        attach = ["/bin/sh", "-c", _ATTACHING, host.pct, nonce, str(vmid), "--", *inner]
        line = rooted(host, attach)
    else:
        sudo = [] if host.sudo == "never" else ["sudo", "-n"]
        line = quoted([*sudo, host.pct, "exec", str(vmid), "--", *inner])
    return Stream(await connection.open(line), host, vmid, nonce)
