"""Without root: the line first, then the kill inside; what is said between the two decides."""

from __future__ import annotations

import asyncio

import pytest

from fleetstop.core.commands import Answer, Command
from fleetstop.core.crossing import from_inside
from fleetstop.core.inventory import Host
from fleetstop.core.ledger import parse_ledger
from fleetstop.core.procfs import parse_detail
from fleetstop.errors import (
    ConnectionLost,
    CouldNotLook,
    FrameTimedOut,
    PrivilegeMissing,
    RemoteFailed,
)
from fleetstop.ports import Shell
from fleetstop.remote.host import lacking
from fleetstop.remote.rootless import STRIKE_S, Rootless
from tests.fakes.fake_shell import FakeShell

LOOK = (
    b"uptime:1.0\n/proc/4010/status:NSpid:\t4010\t10\n/proc/4011/status:NSpid:\t4011\t11\t1\n"
    b"/proc/77/status:NSpid:\t77\n"
)
SEND = ("200", "run1", "3@99", "INT", "heard", "cont", "lxc:200")
ONE = ("4010", "555", "00", "02")
TWO = ("4011", "556", "-", "-")


class Here:
    """A host shell without rights, and one in the container that has them."""

    def __init__(self) -> None:
        self.outside, self.within = FakeShell(), FakeShell()
        self.entering: CouldNotLook | None = None
        self.outside.on("look", LOOK).on("note", b"").on("unsent", b"").on("claim", b"")
        self.within.on("clock", b"uptime:40.9\n").on("strike", b"sent 41.0 0\n")
        self.shell = Rootless(self.outside, self._rights)

    async def _rights(self) -> Shell:
        if self.entering is not None:
            raise self.entering
        return self.within

    def send(self, *recipients: tuple[str, ...], looked: bool = True) -> Answer:
        async def story() -> Answer:
            if looked:
                await self.shell.run(Command("look", ("lxc:200",)))
            words = (*SEND, *(word for each in recipients or (ONE, TWO) for word in each))
            return await self.shell.run(Command("send", words, changes=True))

        return asyncio.run(story())


def test_the_line_by_the_hosts_numbers_the_kill_by_the_containers() -> None:
    here = Here()
    assert here.send() == Answer(0, b"sent 41.0 0\n")
    assert here.outside.sent("note") == [(*SEND, *ONE, *TWO)]
    inside = ("10", "555", "00", "02", "11", "556", "-", "-")
    assert here.within.sent("strike") == [(str(40 + STRIKE_S), "INT", "cont", *inside)]
    assert here.outside.verbs() == ["look", "note"]
    assert all(each.changes for each in (*here.outside.commands[1:], here.within.commands[-1]))


@pytest.mark.parametrize("status", [2, 10, 11, 12, 13, 14, 20, 21])
def test_no_line_no_kill(status: int) -> None:
    here = Here()
    here.outside.on("note", Answer(status, b"why"))
    assert here.send() == Answer(status, b"why")
    assert "strike" not in here.within.verbs()


@pytest.mark.parametrize("status", [2, 10, 12, 13, 14])
def test_a_kill_that_was_refused_takes_its_line_back(status: int) -> None:
    """Else a later run would wait for the effect of a signal that nobody has sent."""
    here = Here()
    here.within.on("strike", Answer(status, b"why"))
    assert here.send() == Answer(status, b"why")
    assert here.outside.sent("unsent") == [("200", "run1", "3")]


@pytest.mark.parametrize("error", [ConnectionLost, FrameTimedOut, RemoteFailed])
def test_an_answer_that_is_lost_leaves_the_line(error: type[CouldNotLook]) -> None:
    """It may be out: taken back, a later run would send it again, into the save."""
    here = Here()
    here.within.on("strike", error("lost"))
    with pytest.raises(error):
        here.send()
    assert "unsent" not in here.outside.verbs()


def test_an_answer_that_nobody_knows_leaves_the_line() -> None:
    here = Here()
    here.within.on("strike", Answer(1, b""))
    assert here.send().status == 1
    assert "unsent" not in here.outside.verbs()


def test_who_has_no_number_inside_is_not_signalled_and_nobody_else() -> None:
    here = Here()
    assert here.send(ONE, ("77", "1", "-", "-")).status == 10
    assert here.outside.verbs() == ["look"]
    assert here.within.verbs() == ["clock"]


@pytest.mark.parametrize("clock", [Answer(9, b""), Answer(0, b"x"), FrameTimedOut("late")])
def test_without_a_clock_inside_nothing_is_noted(clock: Answer | FrameTimedOut) -> None:
    here = Here()
    here.within.on("clock", clock)
    with pytest.raises(RemoteFailed, match="not sent"):
        here.send()
    assert here.outside.verbs() == ["look"]


@pytest.mark.parametrize("verb", ["claim", "send"])
def test_where_nothing_could_be_sent_the_lock_is_not_taken(verb: str) -> None:
    here = Here()
    here.entering = PrivilegeMissing("no")
    with pytest.raises(PrivilegeMissing):
        asyncio.run(here.shell.run(Command(verb, (*SEND, *ONE), changes=True)))
    assert here.outside.verbs() == []


def test_details_are_read_inside_and_told_by_the_hosts_numbers() -> None:
    here = Here()
    here.within.on(
        "detail",
        b"/proc/10/task/10/status:State:\tS\n/proc/11/io:wchar: 5\n\n\0"
        b"/proc/10/fd/3\0/proc/10/x\0/proc/11/cwd\0/root\0/proc/12/cwd\0/\0",
    )

    async def story() -> Answer:
        await here.shell.run(Command("look", ("lxc:200",)))
        return await here.shell.run(Command("detail", ("4010", "deep:4011", "5000")))

    answer = asyncio.run(story())
    assert here.within.sent("detail") == [("10", "deep:11")]
    assert answer.data == (
        b"/proc/4010/task/4010/status:State:\tS\n/proc/4011/io:wchar: 5\n\n\0"
        b"/proc/4010/fd/3\0/proc/4010/x\0/proc/4011/cwd\0/root\0/proc/0/cwd\0/\0"
    )


def test_what_the_first_thread_did_is_told_without_root_too() -> None:
    """Python acts on signals in its first thread: the others' wakings tell nothing of that."""
    lines = [
        f"/proc/10/task/{tid}/status:{line}"
        for tid, woke in ((10, 3), (12, 9000))
        for line in ("State:\tS", "SigBlk:\t0", f"voluntary_ctxt_switches:\t{woke}")
    ]
    answer = from_inside("\n".join(lines).encode() + b"\n\n\0", {4010: 10})
    assert parse_detail(answer)[4010].switches == 3


@pytest.mark.parametrize("error", [PrivilegeMissing("no"), RemoteFailed("no")])
def test_where_nobody_may_enter_what_the_host_shows_is_shown(error: CouldNotLook) -> None:
    here = Here()
    here.entering = error
    here.outside.on("detail", b"masks")
    answer = asyncio.run(here.shell.run(Command("detail", ("4010",))))
    assert answer.data == b"masks"


def test_a_line_that_was_taken_back_is_no_signal() -> None:
    text = (
        b"uptime:50\n/run/lock/fleetstop.200/a:send 1 INT heard 40 5:6\n"
        b"/run/lock/fleetstop.200/a:send 2 TERM heard 41 5:6\n"
        b"/run/lock/fleetstop.200/a:unsent 1\n"
    )
    found = parse_ledger(text)
    assert found is not None
    assert [(each.n, each.signal) for each in found.runs[0].sends] == [(2, "TERM")]


def test_why_there_is_no_root() -> None:
    host = Host(name="pve1", ssh="ml@pve1")
    assert lacking(host, {"uid": "0"}, "") is None
    said = "sudo: a password is required"
    assert lacking(host, {"uid": "1000"}, f"lecture\n{said}") == f"no root on pve1 ({said})"
    never = Host(name="pve1", ssh="ml@pve1", sudo="never")
    assert lacking(never, {"uid": "1000"}, "") == "no root on pve1 (sudo: never)"
