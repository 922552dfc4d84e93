"""One look at a host's GPUs for all its containers, and never another's failure."""

from __future__ import annotations

import asyncio

import pytest

from fleetstop.core.commands import Answer, Command
from fleetstop.errors import FrameTimedOut
from fleetstop.remote import sharing
from fleetstop.remote.sharing import Shared, SharingShell

GPUS = Command("gpus", ("8000",), deadline_s=15.0)


class Slow:
    """Counts what it is asked, and answers once it is let go."""

    def __init__(self, *, fails: bool = False) -> None:
        self.asked: list[str] = []
        self.go = asyncio.Event()
        self._fails = fails

    async def run(self, command: Command) -> Answer:
        self.asked.append(command.verb)
        await self.go.wait()
        if self._fails:
            raise FrameTimedOut("pve1: no answer")
        return Answer(0, b"%d" % len(self.asked))


def test_ten_that_ask_at_once_get_one_answer() -> None:
    async def story() -> None:
        shell, shared = Slow(), Shared()
        asking = [asyncio.create_task(SharingShell(shell, shared).run(GPUS)) for _ in range(10)]
        await asyncio.sleep(0)
        shell.go.set()
        assert {answer.data for answer in await asyncio.gather(*asking)} == {b"1"}
        assert shell.asked == ["gpus"]
        await SharingShell(shell, shared).run(GPUS)
        assert shell.asked == ["gpus"]

    asyncio.run(story())


def test_what_is_of_one_target_is_asked_for_each() -> None:
    async def story() -> None:
        shell, shared = Slow(), Shared()
        shell.go.set()
        for _ in range(3):
            await SharingShell(shell, shared).run(Command("look", ("lxc:200",)))
        assert shell.asked == ["look"] * 3

    asyncio.run(story())


def test_an_old_answer_is_nobodys(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        shell, shared = Slow(), Shared()
        shell.go.set()
        await SharingShell(shell, shared).run(GPUS)
        monkeypatch.setattr(sharing, "FRESH_S", -1.0)
        await SharingShell(shell, shared).run(GPUS)
        assert shell.asked == ["gpus", "gpus"]

    asyncio.run(story())


def test_who_waited_for_one_that_failed_asks_by_itself() -> None:
    async def story() -> None:
        broken, well, shared = Slow(fails=True), Slow(), Shared()
        first = asyncio.create_task(SharingShell(broken, shared).run(GPUS))
        second = asyncio.create_task(SharingShell(well, shared).run(GPUS))
        await asyncio.sleep(0)
        broken.go.set()
        well.go.set()
        with pytest.raises(FrameTimedOut):
            await first
        assert (await second).data == b"1"
        assert (broken.asked, well.asked) == (["gpus"], ["gpus"])

    asyncio.run(story())


def test_who_asked_first_may_leave_and_the_others_hear_it_all_the_same() -> None:
    async def story() -> None:
        shell, shared = Slow(), Shared()
        first = asyncio.create_task(SharingShell(shell, shared).run(GPUS))
        second = asyncio.create_task(SharingShell(shell, shared).run(GPUS))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.sleep(0)
        shell.go.set()
        assert (await second).data == b"1"
        with pytest.raises(asyncio.CancelledError):
            await first

    asyncio.run(story())
