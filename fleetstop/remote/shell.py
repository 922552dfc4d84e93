"""A persistent remote shell that speaks in frames; knows frames, not what they mean."""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
import shlex
from collections.abc import Callable
from importlib import resources

from fleetstop.core.commands import Answer, Command
from fleetstop.errors import ConnectionLost, FrameTimedOut, RemoteFailed
from fleetstop.remote.ssh import Channel

_ODD = re.compile(rb"[^!-\[\]-~]")
_LIMIT = 64 * 2**20
_END = "#fleetstop-end"
# Reads the boot script line by line from stdin and forks nothing; argv stays short, so that a
# `ps` on the host shows a short line and no pattern of ours.
LOADER = f'b=; while IFS= read -r l && [ "$l" != "{_END}" ]; do b="$b$l\n"; done; eval "$b"'


def boot_script() -> bytes:
    return resources.files("fleetstop.remote").joinpath("scripts/boot.sh").read_bytes()


def loader_words() -> list[str]:
    """The command that waits for the boot script; its last word is the name `ps` shows."""
    return ["sh", "-c", LOADER, "fleetstop"]


def quoted(words: list[str]) -> str:
    return " ".join(shlex.quote(word) for word in words)


def encode(word: str) -> bytes:
    """A word without blanks: what is printed in ASCII as it is, but for the backslash; all else as
    \\0ooo for printf %b. The far end splits a line at its blanks, and parses nothing (set -f)."""
    raw = word.encode("utf-8", "surrogateescape")
    if not raw or b"\0" in raw:
        raise ValueError(f"a word that is empty or holds a NUL cannot be framed: {word!r}")
    return _ODD.sub(lambda found: b"\\0%03o" % found[0][0], raw)


class FramedShell:
    """One remote shell over one channel. Frames run one after another, in order.

    A frame whose deadline passed makes the shell useless: it is given up, never waited for,
    and every later `run` raises. A cancelled frame is drained before the next one.
    """

    def __init__(self, channel: Channel, name: str) -> None:
        self._channel = channel
        self._name = name
        self._buffer = bytearray()
        self._turn = asyncio.Lock()
        self._unread: bytes | None = None
        self._given_up: str | None = None
        self._over = False

    @property
    def ended(self) -> bool:
        """Its far end is over, or out of reach for good."""
        return self._over

    @property
    def given_up(self) -> bool:
        return self._given_up is not None

    async def first_line(self, prefix: bytes, deadline_s: float) -> bytes:
        """The first line that starts with `prefix`, without it; what comes before is noise."""
        pattern = re.compile(rb"(?:^|\n)" + re.escape(prefix) + rb"([^\n]*)\n")
        try:
            async with asyncio.timeout(deadline_s):
                while not (found := pattern.search(self._buffer)):
                    await self._more()
        except TimeoutError as exc:
            raise self._give_up(f"it did not start within {deadline_s:g} s") from exc
        value, end = bytes(found[1]), found.end()
        del self._buffer[:end]
        return value

    async def boot(self, deadline_s: float) -> dict[str, str]:
        """Sends the boot script; returns what `hello` says. Noise before it is dropped."""
        await self._write(boot_script() + f"\n{_END}\n".encode())
        answer = await self.run(Command("hello", deadline_s=deadline_s))
        _, found, fields = answer.data.rpartition(b"\nready\n")
        if not found:
            raise RemoteFailed(f"{self._name}: the remote shell answered something else")
        lines = [line.partition("=") for line in fields.decode("ascii", "replace").split("\n")]
        return {name: value for name, equals, value in lines if equals}

    async def run(self, command: Command) -> Answer:
        async with self._turn:
            if self._given_up is not None:
                raise FrameTimedOut(f"{self._name}: {self._given_up}")
            try:
                async with asyncio.timeout(command.deadline_s):
                    return await self._frame(command)
            except ConnectionLost:
                self._over = True
                raise
            except TimeoutError as exc:
                late = f"no answer to '{command.verb}' within {command.deadline_s:g} s"
                raise self._give_up(late) from exc

    def _give_up(self, why: str) -> FrameTimedOut:
        self._given_up = why
        self._buffer.clear()
        self._channel.abandon()
        return FrameTimedOut(f"{self._name}: {why}")

    async def _frame(self, command: Command) -> Answer:
        if self._unread is not None:
            await self._until(self._unread)
            self._unread = None
        nonce = secrets.token_hex(12).encode()
        words = [nonce, command.verb.encode(), *(encode(word) for word in command.words)]
        self._unread = nonce
        await self._write(b" ".join(words) + b"\n")
        data, status = await self._until(nonce)
        self._unread = None
        return Answer(status=status, data=data)

    async def _write(self, data: bytes) -> None:
        try:
            self._channel.write(data)
            await self._channel.drain()
        except ConnectionLost as exc:
            # the far end may be over before it is spoken to: what it said then is the reason
            raise exc if self._channel.exit_status is None else await self._last_words() from exc

    async def _until(self, nonce: bytes) -> tuple[bytes, int]:
        """Reads to the end line of this frame: newline, nonce, blank, status, newline."""
        mark, start = b"\n" + nonce + b" ", 0
        while True:
            at = self._buffer.find(mark, start)
            stop = self._buffer.find(b"\n", at + len(mark)) if at >= 0 else -1
            if stop >= 0:
                status = bytes(self._buffer[at + len(mark) : stop])
                if status.isdigit():
                    data = bytes(self._buffer[:at])
                    del self._buffer[: stop + 1]
                    return data, int(status)
                start = at + len(mark)  # our own line, echoed by something that is no shell
                continue
            start = max(0, len(self._buffer) - len(mark)) if at < 0 else at
            await self._more()

    async def _more(self) -> None:
        chunk = await self._channel.read()
        if not chunk:
            raise await self._last_words()
        self._buffer += chunk
        if len(self._buffer) > _LIMIT:
            told = self._give_up(f"an answer of more than {_LIMIT >> 20} MiB; given up")
            raise RemoteFailed(str(told))

    async def _last_words(self) -> ShellEnded:
        """Its status may arrive after the end of its output, and what it said after its status."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._channel.wait_closed(), 1.0)
        said = self._channel.stderr[-400:].decode("utf-8", "backslashreplace").strip()
        return ShellEnded(self._name, self._channel.exit_status, said, bytes(self._buffer[-400:]))

    async def close(self) -> None:
        """EOF ends the shell at the far end; nothing is waited for.

        Where an answer is still to come it may hang in that: it is given up, as after a deadline.
        """
        if self._given_up is None and self._unread is not None:
            self._given_up = "closed before it had answered"
        if self._given_up is None:
            self._channel.eof()
        self._channel.close()


class ShellEnded(ConnectionLost):
    """The remote shell ended by itself; `said` is its stderr, `status` its exit status."""

    def __init__(self, name: str, status: int | None, said: str, out: bytes) -> None:
        text = said or out.decode("utf-8", "backslashreplace").strip() or "nothing"
        super().__init__(f"{name}: the remote shell ended (status {status}); it said: {text}")
        self.status = status
        self.said = said
        self.out = out


class Current:
    """Whichever shell is the current one: who holds this never holds a given-up one."""

    def __init__(self, which: Callable[[], FramedShell]) -> None:
        self._which = which

    async def run(self, command: Command) -> Answer:
        return await self._which().run(command)
