"""One remote command over SSH: its streams and how it ended; knows no connection's beginnings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import asyncssh
from asyncssh.constants import EXTENDED_DATA_STDERR

from fleetstop import errors

STDERR_TAIL = 64 * 1024
_READ_AHEAD = 1024 * 1024


class Channel(asyncssh.SSHClientSession[bytes]):
    """One remote command: its stdin, stdout, and the last 64 KiB of its stderr.

    Closing it does not end the remote process.
    """

    def __init__(self, name: str, release: Callable[[], None]) -> None:
        self._name = name
        self._release: Callable[[], None] | None = release
        self._chan: asyncssh.SSHClientChannel[bytes] | None = None
        self._out = bytearray()
        self._err = bytearray()
        self._eof = False
        self._news = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._closed = asyncio.Event()

    @property
    def stderr(self) -> bytes:
        return bytes(self._err)

    @property
    def exit_status(self) -> int | None:
        """None while it runs, and for good when the connection went away before it ended."""
        return self._chan.get_returncode() if self._chan else None

    def write(self, data: bytes) -> None:
        """Buffers without limit; `drain` waits until the other side takes more."""
        self._send(lambda chan: chan.write(data))

    def eof(self) -> None:
        self._send(lambda chan: chan.write_eof())

    async def drain(self) -> None:
        await self._writable.wait()
        if self._closed.is_set():
            raise self._gone()

    async def read(self, most: int = 65536) -> bytes:
        """Up to `most` bytes of stdout, at least one; empty at its end."""
        while not self._out:
            if self._eof or (self._closed.is_set() and self.exit_status is not None):
                return b""
            if self._closed.is_set():
                raise self._gone()
            self._news.clear()
            await self._news.wait()
        data = bytes(self._out[:most])
        del self._out[:most]
        if self._chan and len(self._out) < _READ_AHEAD:
            self._chan.resume_reading()
        return data

    def close(self) -> None:
        if self._chan:
            self._chan.close()

    async def wait_closed(self) -> None:
        await self._closed.wait()

    def abandon(self) -> None:
        """It was never opened, or not to the end: give its place on the connection back."""
        self.close()
        self.connection_lost(None)

    def _send(self, act: Callable[[asyncssh.SSHClientChannel[bytes]], None]) -> None:
        if self._chan is None or self._closed.is_set():
            raise self._gone()
        try:
            act(self._chan)
        except OSError as exc:
            raise self._gone() from exc

    def _gone(self) -> errors.ConnectionLost:
        if self.exit_status is None:
            return errors.ConnectionLost(f"{self._name}: the connection was lost")
        return errors.ConnectionLost(f"{self._name}: the remote command has ended")

    # From here on: what asyncssh calls.

    def connection_made(self, chan: asyncssh.SSHClientChannel[bytes]) -> None:
        self._chan = chan

    def data_received(self, data: bytes, datatype: int | None) -> None:
        if datatype == EXTENDED_DATA_STDERR:
            self._err += data
            del self._err[:-STDERR_TAIL]
            return
        self._out += data
        if self._chan and len(self._out) >= _READ_AHEAD:
            self._chan.pause_reading()
        self._news.set()

    def eof_received(self) -> bool:
        self._eof = True
        self._news.set()
        return True  # stdin stays open; the exit status is still to come

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        for event in (self._closed, self._news, self._writable):
            event.set()
        release, self._release = self._release, None
        if release:
            release()
