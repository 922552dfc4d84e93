"""A process whose files in /proc hang: skipped and named, and the look goes on without it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from fleetstop.actions import looks
from fleetstop.core.commands import Answer, Command
from fleetstop.core.process import Process, ProcessId, ProcessTree
from fleetstop.errors import FrameTimedOut, RemoteFailed
from fleetstop.remote import shell as shell_module
from tests.fakes.fake_place import FakePlace
from tests.fakes.local_channel import local_shell


def process(pid: int) -> Process:
    return Process(
        id=ProcessId(pid, pid),
        ppid=1,
        pgid=1,
        sid=1,
        state="S",
        comm="x",
        flags=0,
        threads=1,
        ticks=0,
    )


TREE = ProcessTree(processes={pid: process(pid) for pid in (7, 8)}, uptime=9.0)


def test_who_hangs_the_read_is_found_from_a_fresh_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table is played by files: a FIFO that somebody holds open never ends a read."""
    for pid in ("7", "8"):
        (tmp_path / pid).mkdir()
    (tmp_path / "7/cmdline").write_bytes(b"python3\0train.py\0")
    os.mkfifo(tmp_path / "8/cmdline")
    script = shell_module.boot_script().decode()
    played = script.replace("/proc/$p/cmdline", f"{tmp_path}/$p/cmdline")
    played = played.replace("'/proc/[0-9]*'", f"'{tmp_path}/[0-9]*'")
    assert played.count(str(tmp_path)) == 2
    monkeypatch.setattr(shell_module, "boot_script", played.encode)

    async def story() -> None:
        async with local_shell("dash") as stuck, local_shell("dash") as fresh:
            with pytest.raises(FrameTimedOut):
                await stuck.framed.run(Command("argv", ("7", "8"), deadline_s=1.0))
            words = (stuck.fields["pid"], stuck.fields["start"])
            answer = await fresh.framed.run(Command("stuck", words))
            assert answer.data.decode().split() == [f"{tmp_path}/8/cmdline"]
            # not of another process that happens to have that number
            other = await fresh.framed.run(Command("stuck", (words[0], "1")))
            assert other == Answer(status=0, data=b"")
            await fresh.framed.run(Command("endtree", words))

    held = os.open(tmp_path / "8/cmdline", os.O_RDWR)
    try:
        asyncio.run(story())
    finally:
        os.close(held)


def test_the_look_goes_on_without_it() -> None:
    place = FakePlace()
    place.hangs_on = frozenset({8})
    place.host.on("argv", FrameTimedOut("late"), b"/proc/7/cmdline:python3\0train.py\0\n")
    tree = asyncio.run(looks.add_argv(place, TREE))
    assert place.host.sent("argv") == [("7", "8"), ("7",)]
    assert tree.processes[7].argv == ("python3", "train.py")
    assert tree.processes[8].argv is None
    assert place.hanging == {8}


def test_a_late_answer_for_another_reason_is_raised() -> None:
    place = FakePlace()
    place.host.on("argv", FrameTimedOut("late"))
    with pytest.raises(FrameTimedOut):
        asyncio.run(looks.add_argv(place, TREE))


def test_too_many_that_hang_end_the_look() -> None:
    place = FakePlace()
    place.hangs_on = frozenset({8})
    place.host.on("detail", FrameTimedOut("late"))
    with pytest.raises(RemoteFailed, match="1 processes hang"):
        asyncio.run(looks.add_detail(place, TREE, {7, 8}))
