"""Where targets live: one connection per host, a host shell per target, and the way inside."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence

from fleetstop.core.commands import Carried, Command
from fleetstop.core.process import ProcessId
from fleetstop.errors import (
    ConnectionLost,
    ContainerFrozen,
    CouldNotLook,
    FrameTimedOut,
    PrivilegeMissing,
    Refused,
)
from fleetstop.ports import Chunks, Progress, Shell
from fleetstop.remote import carrying, leaving
from fleetstop.remote.container import (
    CannotEnter,
    InsideShell,
    enter,
    frozen,
    is_frozen,
    pct_status,
)
from fleetstop.remote.dry_run import ASKS, DryShell
from fleetstop.remote.host import HostShell, open_shell
from fleetstop.remote.link import Link
from fleetstop.remote.rootless import Rootless
from fleetstop.remote.sharing import SharingShell
from fleetstop.remote.shell import Current, FramedShell
from fleetstop.remote.ssh import Connection
from fleetstop.remote.through import Files, Through

NO_WAY_S = 60.0
ANSWERS_S = 5.0
"""A connection over which not even a fresh shell answers so soon is taken for stalled."""


class Site(Link):
    """One host: its connection is shared by its targets."""

    async def place(self, vmid: int | None, *, dry_run: bool, shares: bool = False) -> SitePlace:
        """`shares`: what is the host's is asked once, and its shell handed on to the next place."""
        connection, outside = await self.opened(used=shares)
        return SitePlace(self, connection, outside, vmid, dry_run, shares)


class SitePlace:
    """A target's two vantage points; see ports.Place."""

    def __init__(
        self, site: Site, connection: Connection, outside: HostShell, vmid: int | None,
        dry: bool, shares: bool = False,
    ) -> None:  # fmt: skip
        self._site = site
        self._shares = shares
        self._connection, self.outside = connection, outside
        self.hanging: frozenset[int] = frozenset()
        self._vmid, self._dry = vmid, dry
        self._opened: list[InsideShell] = []
        self._second: HostShell | None = None
        self._no_way: CouldNotLook | None = None
        self._no_way_at = 0.0
        self._current = Current(lambda: self.outside.shell)
        self._rootless = Rootless(self._current, self._rights)
        self._files = self._unread()
        self._entering = asyncio.Lock()
        self._left, self._left_inside = list[ProcessId](), list[ProcessId]()
        self._were_inside: list[ProcessId] = []
        self._replaced_at = float("-inf")
        self.pct_calls = 0

    @property
    def hz(self) -> int:
        return self.outside.hz

    @property
    def own_pid(self) -> int:
        return self.outside.pid

    @property
    def ssh_connections(self) -> int:
        return self._site.ssh_connections

    @property
    def host(self) -> Shell:
        way: Shell = self._current if self._vmid is None or self.has_root else self._rootless
        way = SharingShell(way, self._site.shared) if self._shares else way
        return DryShell(way) if self._dry else way

    @property
    def has_root(self) -> bool:
        return self.outside.without_root is None

    @property
    def without_root(self) -> str | None:
        return self.outside.without_root

    async def unstick(self) -> frozenset[int]:
        if self._opened and self._opened[-1].shell.given_up and not self.has_root:
            return await self._unstick_inside(self._opened[-1])
        old = self.outside
        self.outside = await open_shell(self._connection, self._site.host)
        words = (str(old.pid), str(old.start))
        answer = await self.outside.shell.run(Command("stuck", words))
        await self.outside.shell.run(Command("endtree", words))
        found = frozenset(int(pid) for pid in re.findall(rb"/proc/(\d+)/", answer.data))
        self.hanging |= found
        return found

    async def _unstick_inside(self, old: InsideShell) -> frozenset[int]:
        """The same in the container, where the files are read without root on the host."""
        fresh, words = await self._rights(), (str(old.pid), str(old.start))
        answer = await fresh.run(Command("stuck", words))
        await fresh.run(Command("endtree", words))
        inside = {int(pid) for pid in re.findall(rb"/proc/(\d+)/", answer.data)}
        found = frozenset(out for out, pid in self._rootless.inner.items() if pid in inside)
        self.hanging |= found
        return found

    async def again(self) -> bool:
        """The connection first, then the shells: what still answers is kept. See ports.Place."""
        if not self._connection.lost and await self._answers():
            return False
        self._site.drop(self._connection)
        connection = await self._site.connection()
        try:
            outside = await open_shell(connection, self._site.host)
        except (ConnectionLost, FrameTimedOut):
            self._site.drop(connection)
            raise
        async with self._entering:
            self._leave(*self._opened)
            second = [self._second] if self._second is not None else []
            self._left += [ProcessId(each.pid, each.start) for each in (self.outside, *second)]
            self._opened, self._second, self._no_way = [], None, None
            self._connection, self.outside = connection, outside
            self._files = self._unread()
        await self._end_those_left()
        return True

    async def _answers(self) -> bool:
        """Whether this connection still carries anything; then a fresh host shell where ours is
        over. Our own shell may just be busy: that it does not answer at once says nothing."""
        try:
            await self._connection.run("true", deadline_s=ANSWERS_S)
            if self.outside.shell.given_up or self.outside.shell.ended:
                old = ProcessId(self.outside.pid, self.outside.start)
                self.outside = await open_shell(self._connection, self._site.host)
                self._left.append(old)
        except (ConnectionLost, FrameTimedOut):
            return False
        # one that has ended is opened anew when it is needed; one that hangs is left to `close`
        over = [each for each in self._opened if each.shell.ended]
        self._opened = [each for each in self._opened if each not in over]
        self._leave(*over)
        await self._end_those_left()
        return True

    def _leave(self, *shells: InsideShell) -> None:
        self._were_inside += [ProcessId(each.pid, each.start) for each in shells if each.pid]
        self._left += [each.attach for each in shells if each.attach.start]
        # without root on the host only its number in the container is known
        unattached = [each for each in shells if each.start and not each.attach.start]
        self._left_inside += [ProcessId(each.pid, each.start) for each in unattached]

    async def _end_those_left(self) -> None:
        """Given-up shells must not be able to signal later."""
        await leaving.end_each(self._current, self._left)

    @property
    def ours_inside(self) -> frozenset[ProcessId]:
        """Also those that were given up or left: they may still be there."""
        lived = (ProcessId(each.pid, each.start) for each in self._opened if each.pid)
        return frozenset((*lived, *self._were_inside))

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

    async def hands(self) -> Shell:
        async with self._entering:
            shell = await self._inner()
        return DryShell(shell) if self._dry else shell

    async def carry(
        self,
        words: Sequence[str],
        chunks: Chunks,
        deadline_s: float,
        progress: Progress | None = None,
        *,
        outside: bool = False,
    ) -> Carried:
        if self._dry:
            raise Refused("a dry run carries nothing over")
        vmid, host = None if outside else self._vmid, self._site.host
        if vmid is not None:
            if await self.is_frozen():
                raise self.frozen_error()
            self.pct_calls += 1
        stream = await carrying.start(self._connection, host, vmid, words, root=self.has_root)
        try:
            return await stream.run(chunks, deadline_s, progress)
        except BaseException:
            # at once where that can be; else when the connection is re-made, or on leaving
            stream.leave(self._left, self._left_inside)
            async with leaving.briefly():
                await self._end_those_left()
                if self._left_inside:
                    await leaving.end_each(await self._rights(), self._left_inside)
            raise

    async def _inside(self) -> Shell:
        return self._only_asks(await self._inner())

    async def _inner(self) -> FramedShell:
        if self._vmid is None:
            return await self._beside()
        if self._opened and self._is_over(self._opened[0].shell, lived=bool(self._opened[0].pid)):
            await self._end_at_once(self._opened.pop(0))
        if not self._opened:
            await self._enter(self._vmid)
        elif self._no_way is not None and not self._opened[0].pid:
            raise self._no_way  # it hung on its way in: there is no shell to be asked
        return self._opened[0].shell

    async def _beside(self) -> FramedShell:
        """The host's second shell: it may be lost in hanging files without losing the first."""
        old = self._second
        if old is not None and self._is_over(old.shell):
            self._second = None
            self._left.append(ProcessId(old.pid, old.start))
            await self._end_those_left()
        if self._second is None:
            self._second = await open_shell(self._connection, self._site.host)
        return self._second.shell

    def _is_over(self, shell: FramedShell, *, lived: bool = True) -> bool:
        """It has ended, or is stuck: in somebody's file, or on its way in. The next one may hang in
        the same place, so that is replaced only once in a while; without root it is what the kill
        goes through, and `_rights` sees to it."""
        if not lived and self._site.now() - self._no_way_at < NO_WAY_S:
            return False
        if shell.ended:
            return True
        stuck = shell.given_up and (self.has_root or self._vmid is None)
        if not stuck or self._site.now() - self._replaced_at < NO_WAY_S:
            return False
        self._replaced_at = self._site.now()
        return True

    async def _end_at_once(self, old: InsideShell) -> None:
        """A shell that hangs keeps a channel of sshd until it is ended."""
        self._leave(old)
        await self._end_those_left()

    def _unread(self) -> Files | None:
        """The way to the container's files, with root; no way is known to be closed yet."""
        if self._vmid is None or not self.has_root:
            return None
        return Files(self.inside, Through(self._beside, self._vmid))

    async def files(self) -> Shell:
        if self._files is None:
            return await self.inside()
        await self._files.ready()
        return self._files

    @property
    def files_from_host(self) -> str | None:
        return self._files.why if self._files is not None else None

    def _only_asks(self, shell: Shell) -> Shell:
        """What belongs to the container is only ever read by a stop, its asks aside."""
        return DryShell(shell, frozenset() if self._dry else ASKS)

    async def _rights(self) -> FramedShell:
        """Root in the container: where the kill goes through without root on the host. A shell
        that was lost in somebody's hanging files is replaced."""
        assert self._vmid is not None
        async with self._entering:
            if not self._opened or self._opened[-1].shell.given_up:
                await self._enter(self._vmid)
            return self._opened[-1].shell

    async def _enter(self, vmid: int) -> None:
        """One `pct exec`. One that failed is not tried again at every look: it costs a core for
        up to a second, and its time-out is longer than a look should take."""
        if self._no_way is not None and self._site.now() - self._no_way_at < NO_WAY_S:
            raise self._no_way
        # lxc-attach hangs for good in a frozen container, so look at the freezer first
        if await self.is_frozen():
            raise self.frozen_error()
        self.pct_calls += 1
        way, opened = self.outside.shell, self._opened
        try:
            await enter(self._connection, self._site.host, vmid, way, opened, root=self.has_root)
        except (CannotEnter, FrameTimedOut, PrivilegeMissing) as exc:
            self._no_way, self._no_way_at = exc, self._site.now()
            raise

    async def pct_status(self) -> str:
        """`running` or `stopped`; raises ContainerMissing."""
        assert self._vmid is not None
        self.pct_calls += 1
        return await pct_status(self._connection, self._site.host, self._vmid)

    async def close(self) -> None:
        """Leaves nothing behind: given-up shells are ended from the host, by identity."""
        stuck, lost = await leaving.closed_inside(self._opened)
        stuck, lost = [*self._left, *stuck], [*self._left_inside, *lost]
        if lost:
            async with leaving.briefly():
                await leaving.end_inside(self._rootless, self._rights, lost)
        outside = [self._second] if self._second is not None else []
        if not (self._shares and self._site.keep(self._connection, self.outside)):
            outside.append(self.outside)
        stuck += await leaving.closed_outside(outside)
        if stuck:
            async with leaving.briefly():
                await leaving.end_outside(self._connection, self._site.host, stuck)
