"""Closes shells so that nothing of them is left at the far end; knows no target."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

from fleetstop.core.commands import Command
from fleetstop.core.inventory import Host
from fleetstop.core.process import ProcessId
from fleetstop.errors import CouldNotLook
from fleetstop.ports import Shell
from fleetstop.remote.container import InsideShell
from fleetstop.remote.host import HostShell, open_shell
from fleetstop.remote.rootless import Rootless
from fleetstop.remote.shell import FramedShell
from fleetstop.remote.ssh import Connection


async def closed_inside(
    opened: Iterable[InsideShell],
) -> tuple[list[ProcessId], list[ProcessId]]:
    """Those that were given up: by their attach on the host, and by their number inside."""
    stuck: list[ProcessId] = []
    lost: list[ProcessId] = []
    for inside in opened:
        with contextlib.suppress(CouldNotLook):
            await inside.shell.close()
        # known only now: one that still owed an answer is given up by closing it
        if inside.shell.given_up and inside.attach.start:
            stuck.append(inside.attach)
        elif inside.shell.given_up and inside.start:
            lost.append(ProcessId(inside.pid, inside.start))
    return stuck, lost


async def closed_outside(shells: Iterable[HostShell]) -> list[ProcessId]:
    """Those that were given up."""
    stuck: list[ProcessId] = []
    for each in shells:
        with contextlib.suppress(CouldNotLook):
            await each.shell.close()
        if each.shell.given_up:
            stuck.append(ProcessId(each.pid, each.start))
    return stuck


@contextlib.asynccontextmanager
async def briefly() -> AsyncIterator[None]:
    """What is tried on leaving: for ten seconds at the most, and it may fail."""
    with contextlib.suppress(CouldNotLook, TimeoutError):
        async with asyncio.timeout(10.0):
            yield


async def end_each(shell: Shell, left: list[ProcessId]) -> None:
    """Those who were left, one by one; whoever was ended is on the list no more."""
    while left:
        last = left[-1]
        await shell.run(Command("endtree", (str(last.pid), str(last.start))))
        left.remove(last)


async def end_inside(
    rootless: Rootless, rights: Callable[[], Awaitable[FramedShell]], lost: list[ProcessId]
) -> None:
    """Without root on the host only root in the container can end them; most end by
    themselves, once their answer is out, and cost no `pct` then."""
    left = [each for each in lost if await rootless.lingers(each)]
    fresh = await rights() if left else None
    for each in left:
        assert fresh is not None
        await fresh.run(Command("endtree", (str(each.pid), str(each.start))))
    if fresh is not None:
        await fresh.close()


async def end_outside(connection: Connection, host: Host, stuck: list[ProcessId]) -> None:
    """Through a fresh shell: the one that was used may be the one that hangs. A dry run
    does this too: they are our own shells, and nothing of the job."""
    fresh = await open_shell(connection, host)
    for each in stuck:
        await fresh.shell.run(Command("endtree", (str(each.pid), str(each.start))))
    await fresh.shell.close()
