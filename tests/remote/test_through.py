"""Where a container's files are read: inside, or from the host; asked for as if it were inside."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from fleetstop.core.commands import Answer, Command
from fleetstop.errors import (
    ConnectionLost,
    ContainerFrozen,
    CouldNotLook,
    FrameTimedOut,
    PrivilegeMissing,
    RemoteFailed,
)
from fleetstop.ports import Shell
from fleetstop.remote.through import Files, Through
from tests.fakes.fake_shell import FakeShell


def look(pid: int = 4001, start: int = 555) -> bytes:
    """A container's first process, one of its others, one of a namespace nested in it."""
    rows = [(pid, "1", start), (4010, "10", 600), (4011, "11\t1", 601)]
    lines = ["uptime:10.0"]
    for host, inner, born in rows:
        lines += [
            f"/proc/{host}/stat:{host} (sh) S 1 1 1 0 0 0 0 0 0 0 0 0 0 0 20 0 1 0 {born}",
            f"/proc/{host}/cgroup:0::/lxc/200",
            f"/proc/{host}/status:NSpid:\t{host}\t{inner}",
        ]
    return "\n".join(lines).encode() + b"\n"


class Here:
    def __init__(self) -> None:
        self.within, self.beside = FakeShell(), FakeShell()
        self.entering: CouldNotLook | None = None
        self.entered = 0
        self.beside.on("look", look()).on("through", b"from the host")
        self.within.on("list", b"inside").on("log", b"inside")
        self.files = Files(self._inside, Through(self._beside, 200))

    async def _inside(self) -> Shell:
        self.entered += 1
        if self.entering is not None:
            raise self.entering
        return self.within

    async def _beside(self) -> Shell:
        return self.beside

    async def read(self, verb: str = "list", *words: str) -> Answer:
        return await self.files.run(Command(verb, words or ("/ck",), deadline_s=7.0))


def run(story: Callable[[Here], object]) -> Here:
    here = Here()

    async def whole() -> None:
        await story(here)  # type: ignore[misc]

    asyncio.run(whole())
    return here


def test_inside_where_that_works() -> None:
    async def story(here: Here) -> None:
        await here.files.ready()
        assert (await here.read()).data == b"inside"
        assert here.files.why is None
        assert here.beside.commands == []

    run(story)


@pytest.mark.parametrize("error", [RemoteFailed, FrameTimedOut, PrivilegeMissing])
def test_from_the_host_where_it_cannot_be_entered(error: type[CouldNotLook]) -> None:
    async def story(here: Here) -> None:
        here.entering = error("no pids left")
        await here.files.ready()
        assert here.files.why == "no pids left"
        assert (await here.read("list", "/ck", "5")).data == b"from the host"
        (words,) = here.beside.sent("through")
        assert words == ("4001", "555", "lxc:200", "list", "/ck", "5")
        assert here.beside.commands[-1].deadline_s == 7.0
        # another try to enter may take its 20 s: not at every look
        await here.files.ready()
        await here.read()
        assert here.entered == 1

    run(story)


def test_a_frozen_container_is_told_to_be_frozen() -> None:
    async def story(here: Here) -> None:
        here.entering = ContainerFrozen("frozen")
        with pytest.raises(ContainerFrozen):
            await here.files.ready()
        with pytest.raises(ContainerFrozen):
            await here.read()

    run(story)


def test_what_entering_said_is_said_where_the_host_shows_nothing_either() -> None:
    async def story(here: Here) -> None:
        here.entering = RemoteFailed("no pids left")
        here.beside.on("look", b"uptime:1.0\n")
        with pytest.raises(RemoteFailed, match="no pids left"):
            await here.files.ready()
        assert here.files.why is None
        here.entering = None
        await here.files.ready()
        assert (await here.read()).data == b"inside"

    run(story)


@pytest.mark.parametrize("status", [2, 9, 126, 127, 254])
def test_a_shell_inside_that_cannot_fork_any_more(status: int) -> None:
    async def story(here: Here) -> None:
        here.within.on("list", Answer(status, b""))
        assert (await here.read()).data == b"from the host"
        assert here.files.why == f"'list' cannot be done in the container (status {status})"

    run(story)


@pytest.mark.parametrize("status", [0, 1, 40, 41])
def test_what_it_says_inside_is_its_answer(status: int) -> None:
    async def story(here: Here) -> None:
        here.within.on("list", Answer(status, b"inside"))
        assert await here.read() == Answer(status, b"inside")
        assert here.beside.commands == []

    run(story)


def test_where_the_host_cannot_do_it_either_the_answer_inside_stands() -> None:
    async def story(here: Here) -> None:
        here.within.on("list", Answer(2, b""))
        here.beside.on("through", Answer(49, b""))
        assert await here.read() == Answer(2, b"")
        assert here.files.why is None

    run(story)


def test_an_answer_that_comes_too_late_inside_comes_from_the_host() -> None:
    async def story(here: Here) -> None:
        here.within.on("list", FrameTimedOut("no answer to 'list' within 20 s"))
        assert (await here.read()).data == b"from the host"
        # it may be the files that hang: that is not waited for twice as long
        assert here.beside.commands[-1].deadline_s == 5.0

    run(story)


def test_a_lost_connection_is_no_reason() -> None:
    async def story(here: Here) -> None:
        here.within.on("list", ConnectionLost("lost"))
        with pytest.raises(ConnectionLost):
            await here.read()
        assert here.beside.commands == []

    run(story)


def test_another_first_process_by_now_is_never_read() -> None:
    """The container was started anew: the next look asks who is first now."""

    async def story(here: Here) -> None:
        here.entering = RemoteFailed("no pids left")
        here.beside.on("through", Answer(48, b"of somebody else"), b"of the new one")
        with pytest.raises(RemoteFailed, match="another one by now"):
            await here.read()
        here.beside.on("look", look(5001, 777))
        assert (await here.read()).data == b"of the new one"
        assert here.beside.sent("through")[-1][:2] == ("5001", "777")

    run(story)


def test_a_path_that_cannot_be_followed_is_no_answer() -> None:
    async def story(here: Here) -> None:
        here.entering = RemoteFailed("no pids left")
        here.beside.on("through", Answer(49, b""))
        with pytest.raises(RemoteFailed, match="/ck could not be followed from the host; no pids"):
            await here.read()
        # it may be entered again by now
        here.entering = None
        assert (await here.read()).data == b"inside"

    run(story)


@pytest.mark.parametrize(
    "command",
    [
        Command("touch", ("/stop",), changes=True),
        Command("ran", ("/tmp",)),
        Command("pgrep", ("x",)),
    ],
)
def test_nothing_but_reading_is_done_from_the_host(command: Command) -> None:
    async def story(here: Here) -> None:
        here.entering = RemoteFailed("no pids left")
        with pytest.raises(RemoteFailed, match="is not done from the host"):
            await here.files.run(command)
        assert here.beside.sent("through") == []

    run(story)
