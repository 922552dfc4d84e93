"""A Place on this machine: real shells and real streams, without SSH and without a container."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import cast

from fleetstop.core.commands import Carried, Command
from fleetstop.core.inventory import Host
from fleetstop.core.process import ProcessId
from fleetstop.errors import ConnectionLost
from fleetstop.ports import Chunks, Progress, Shell
from fleetstop.remote.carrying import Stream, telling_words
from fleetstop.remote.ssh_channel import Channel
from tests.fakes.fake_place import FakePlace
from tests.fakes.local_channel import LocalChannel, LocalShell, local_shell

HERE = Host(name="local", ssh="local")


class _Cut(Exception):
    pass


class LocalPlace(FakePlace):
    """`streams` are the channels of all that was carried, in order; `sent` counts its bytes.
    `cut`: after so many bytes the connection is lost under a stream."""

    def __init__(self, shell: LocalShell, env: Mapping[str, str] | None) -> None:
        super().__init__(own_pid=shell.pid)
        self.shell = shell
        self._env = env
        self.streams: list[LocalChannel] = []
        self.sent = 0
        self.cut: int | None = None

    async def inside(self) -> Shell:
        return self.shell.framed

    async def carry(
        self,
        words: Sequence[str],
        chunks: Chunks,
        deadline_s: float,
        progress: Progress | None = None,
        *,
        outside: bool = False,
    ) -> Carried:
        nonce = secrets.token_hex(8)
        env = None if outside else self._env
        channel = await LocalChannel.start(telling_words(nonce, words), env)
        channel.remembers = False
        self.streams.append(channel)
        stream = Stream(cast(Channel, channel), HERE, None, nonce)

        def counted(sent: int) -> None:
            self.sent = sent
            if self.cut is not None and sent >= self.cut:
                raise _Cut
            if progress is not None:
                progress(sent)

        try:
            return await stream.run(chunks, deadline_s, counted)
        except BaseException as exc:
            left: list[ProcessId] = []
            stream.leave(left, left)
            for each in left:
                words = (str(each.pid), str(each.start))
                await self.shell.framed.run(Command("endtree", words))
            if isinstance(exc, _Cut):
                raise ConnectionLost("local: the connection was lost") from exc
            raise


@asynccontextmanager
async def local_place(
    kind: str = "dash", *, env: Mapping[str, str] | None = None
) -> AsyncIterator[LocalPlace]:
    async with local_shell(kind, env=env) as shell:
        place = LocalPlace(shell, env)
        try:
            yield place
        finally:
            for each in place.streams:
                await each.end()
