"""A channel to a shell on this machine: what `FramedShell` needs of an SSH channel, without SSH."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import cast

from fleetstop.errors import ConnectionLost
from fleetstop.remote.shell import LOADER, FramedShell
from fleetstop.remote.ssh_channel import Channel

SHELLS: dict[str, list[str]] = {"dash": ["dash"], "bash": ["bash"], "busybox": ["busybox", "sh"]}

_TURNS = 3  # of the loop, until the last pipe has told that it is closed


def is_installed(kind: str) -> bool:
    return shutil.which(SHELLS[kind][0]) is not None


class LocalChannel:
    """As over SSH: closing and abandoning it does not end the process; `end` does."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        self.pid = process.pid
        self.written = bytearray()
        self.remembers = True
        self._process = process
        self._stdin = process.stdin
        self._err = bytearray()
        self._closed = asyncio.Event()
        self._listening = asyncio.create_task(self._hear_stderr())

    @classmethod
    async def start(cls, argv: Sequence[str], env: Mapping[str, str] | None = None) -> LocalChannel:
        pipe = asyncio.subprocess.PIPE
        return cls(
            await asyncio.create_subprocess_exec(
                *argv,
                stdin=pipe,
                stdout=pipe,
                stderr=pipe,
                env=None if env is None else {**os.environ, **env},
                start_new_session=True,
            )
        )

    @property
    def stderr(self) -> bytes:
        return bytes(self._err)

    @property
    def exit_status(self) -> int | None:
        return self._process.returncode

    def write(self, data: bytes) -> None:
        if self.remembers:
            self.written += data
        if self._closed.is_set():
            raise ConnectionLost("the local command has ended")
        self._stdin.write(data)

    async def drain(self) -> None:
        try:
            await self._stdin.drain()
        except OSError as exc:
            await self.wait_closed()
            raise ConnectionLost("the local command has ended") from exc

    async def read(self, most: int = 65536) -> bytes:
        if self._closed.is_set():
            raise ConnectionLost("the local command is closed")
        assert self._process.stdout is not None
        return await self._process.stdout.read(most)

    def eof(self) -> None:
        self._stdin.close()

    def close(self) -> None:
        self._closed.set()
        self._stdin.close()

    def abandon(self) -> None:
        self.close()

    async def wait_closed(self) -> None:
        await self._process.wait()
        await asyncio.wait({self._listening}, timeout=0.5)

    async def end(self) -> None:
        """Everything in the session that was started for it, which is nobody else's."""
        self.close()
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._listening.cancel()
        with suppress(asyncio.CancelledError):
            await self._listening
        # asyncio waits for the pipes too, which a child that left the session may hold
        with suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), 1.0)
        await self._let_go()

    async def _let_go(self) -> None:
        """Of the pipes: asyncio closes what is left of them only once their loop is closed, and
        then it cannot. Where the process had ended already it has waited for none of them."""
        if not self._stdin.get_extra_info("pipe").closed:  # what nobody reads keeps it open
            self._stdin.transport.abort()
        self._process._transport.close()  # type: ignore[attr-defined]
        for _ in range(_TURNS):
            await asyncio.sleep(0)

    async def _hear_stderr(self) -> None:
        assert self._process.stderr is not None
        while chunk := await self._process.stderr.read(65536):
            self._err += chunk


class LocalShell:
    """A framed shell on this machine, with its channel and what `hello` said."""

    def __init__(self, channel: LocalChannel, fields: dict[str, str]) -> None:
        self.channel = channel
        self.framed = framed_over(channel)
        self.fields = fields

    @property
    def pid(self) -> int:
        return self.channel.pid


def framed_over(channel: LocalChannel) -> FramedShell:
    return FramedShell(cast(Channel, channel), "local")


@asynccontextmanager
async def local_shell(
    kind: str = "dash", *, env: Mapping[str, str] | None = None, before: Sequence[str] = ()
) -> AsyncIterator[LocalShell]:
    """A booted shell of this kind; `before` are words in front of it, `unshare -m` say."""
    channel = await LocalChannel.start([*before, *SHELLS[kind], "-c", LOADER, "fleetstop"], env)
    shell = LocalShell(channel, {})
    try:
        shell.fields = await shell.framed.boot(10.0)
        yield shell
    finally:
        await channel.end()
