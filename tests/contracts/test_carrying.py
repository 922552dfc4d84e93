"""What a carried stream promises: every byte, bounded memory, an end in band, nothing left over."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import os
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from fleetstop.core.commands import Carried
from fleetstop.errors import FrameTimedOut, RemoteFailed
from tests.contracts import test_boot_verbs as verbs
from tests.fakes.local_channel import SHELLS, LocalChannel
from tests.fakes.local_place import LocalPlace, local_place

kind = verbs.kind
Story: TypeAlias = Callable[[LocalPlace], Awaitable[None]]
ODD = "a b $(touch x) '\"\n`é%s\\0 \n"


@pytest.fixture(autouse=True)
def its_sh(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`sh` is the shell of this kind, as it may be in a container."""
    place = tmp_path / "bin"
    place.mkdir()
    (place / "sh").write_text(f'#!/bin/bash\nexec {" ".join(SHELLS[kind])} "$@"\n')
    (place / "sh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")


def play(story: Story) -> None:
    async def whole() -> None:
        async with local_place() as place:
            await asyncio.wait_for(story(place), 60)

    asyncio.run(whole())


async def pieces(count: int, piece: bytes) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield piece


def test_every_byte_and_every_word_arrives(tmp_path: Path) -> None:
    target = tmp_path / "out"
    every = bytes(range(256)) * 1000

    async def story(place: LocalPlace) -> None:
        words = ["sh", "-c", 'cat >"$1"; printf "%s" "$2"; printf said >&2; exit 7', "x"]
        done = await place.carry([*words, str(target), ODD], pieces(3, every), 20)
        assert done == Carried(status=7, out=ODD.encode(), err=b"said")
        assert target.read_bytes() == every * 3
        assert await place.carry(["cat"], b"", 20) == Carried(status=0, out=b"", err=b"")
        assert (await place.carry(["cat"], every, 20)).out == every

    play(story)


def test_how_far_it_is_is_told(tmp_path: Path) -> None:
    told: list[int] = []

    async def story(place: LocalPlace) -> None:
        await place.carry(["wc", "-c"], pieces(5, b"x" * 200_000), 20, told.append)

    play(story)
    assert told[-1] == 1_000_000
    assert told == sorted(told)


def test_memory_stays_bounded_while_the_far_end_is_slow() -> None:
    async def story(place: LocalPlace) -> None:
        words = ["sh", "-c", "sleep 1; sha256sum"]
        tracemalloc.start()
        done = await place.carry(words, pieces(800, b"\1" * 131_072), 30)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert done.out.split()[0].decode() == hashlib.sha256(b"\1" * 131_072 * 800).hexdigest()
        assert peak < 8 << 20

    play(story)


def test_what_it_says_is_kept_to_its_end_only() -> None:
    async def story(place: LocalPlace) -> None:
        text = "head -c 5000000 /dev/zero | tr '\\0' x; echo the end"
        done = await place.carry(["sh", "-c", text], b"", 30)
        assert done.out.endswith(b"xthe end\n")
        assert len(done.out) < 1_100_000

    play(story)


def test_a_command_that_ends_early_tells_its_own_status() -> None:
    """A disk that is full, say: nobody reads what is still to come."""

    async def story(place: LocalPlace) -> None:
        words = ["sh", "-c", "head -c 10 >/dev/null; echo no space >&2; exit 3"]
        done = await place.carry(words, pieces(1000, b"x" * 131_072), 20)
        assert (done.status, done.err) == (3, b"no space\n")

    play(story)


def test_a_program_that_is_not_there_is_told_by_its_status() -> None:
    async def story(place: LocalPlace) -> None:
        assert (await place.carry(["no-such-program"], b"x", 20)).status == 127

    play(story)


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


async def gone(*pids: int) -> None:
    until = time.monotonic() + 60
    while any(map(lives, pids)):
        assert time.monotonic() < until, "left running"
        await asyncio.sleep(0.02)


async def number(path: Path) -> int:
    while not (path.exists() and path.read_text().strip()):
        await asyncio.sleep(0.02)
    return int(path.read_text())


def test_where_nothing_moves_it_is_ended_with_all_below_it(tmp_path: Path) -> None:
    mark = tmp_path / "pid"

    async def story(place: LocalPlace) -> None:
        text = f"sleep 300 & echo $! >{mark}; wait"
        with pytest.raises(FrameTimedOut, match="nothing moved for 1 s"):
            await place.carry(["sh", "-c", text], pieces(1000, b"x" * 131_072), 1)
        await gone(await number(mark))

    play(story)


def test_the_deadline_is_one_without_progress_not_one_in_all() -> None:
    async def slowly() -> AsyncIterator[bytes]:
        for _ in range(6):
            await asyncio.sleep(0.5)
            yield b"x"

    async def story(place: LocalPlace) -> None:
        assert (await place.carry(["wc", "-c"], slowly(), 2)).out.strip() == b"6"

    play(story)


def test_a_cancelled_stream_leaves_nothing_running(tmp_path: Path) -> None:
    mark = tmp_path / "pid"

    async def story(place: LocalPlace) -> None:
        text = f"sleep 300 & echo $! >{mark}; cat >/dev/null; wait"
        task = asyncio.create_task(place.carry(["sh", "-c", text], b"x", 300))
        pid = await number(mark)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await gone(pid, place.streams[0].pid)

    play(story)


def test_cancelled_before_it_was_heard_that_it_has_begun_it_is_ended_too(tmp_path: Path) -> None:
    mark = tmp_path / "pid"

    async def story(place: LocalPlace) -> None:
        text = f"sleep 300 & echo $! >{mark}; wait"
        task = asyncio.create_task(place.carry(["sh", "-c", text], b"x", 300))
        while not place.streams:
            await asyncio.sleep(0)
        while not (mark.exists() and mark.read_text().strip()):
            time.sleep(0.02)  # the loop stands: what the shell said of itself is not read
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await gone(int(mark.read_text()), place.streams[0].pid)

    play(story)


def test_a_source_that_fails_ends_it_with_its_own_error(tmp_path: Path) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"x"
        raise OSError("the disk here is broken")

    async def story(place: LocalPlace) -> None:
        with pytest.raises(OSError, match="the disk here"):
            await place.carry(["cat"], broken(), 20)
        await gone(place.streams[0].pid)

    play(story)


def test_one_that_is_killed_under_it_is_a_failure() -> None:
    async def story(place: LocalPlace) -> None:
        with pytest.raises(RemoteFailed, match="was ended"):
            await place.carry(["sh", "-c", "echo last words >&2; kill -9 $PPID"], b"", 20)

    play(story)


def test_no_pipe_is_left_to_a_loop_that_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that left the session holds its pipes on; Python told of them in another test."""
    told: list[str] = []
    monkeypatch.setattr("sys.unraisablehook", lambda each: told.append(repr(each.exc_value)))

    async def story() -> None:
        channel = await LocalChannel.start(["bash", "-c", "setsid sleep 2 & exit 0"])
        channel.write(b"x" * 1_000_000)  # more than a pipe takes
        await asyncio.sleep(0.3)
        await channel.end()

    asyncio.run(story())
    gc.collect()
    assert told == []
