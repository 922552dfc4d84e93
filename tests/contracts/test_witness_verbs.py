"""The verbs that only bear witness, `wchan` and `stacks`, in each shell a host may have."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from fleetstop.actions import looks
from fleetstop.core.commands import Answer
from tests.contracts.test_boot_verbs import Started, ask, kind, play, started
from tests.fakes.fake_place import FakePlace
from tests.fakes.local_channel import SHELLS, LocalShell

__all__ = ["kind", "started"]  # fixtures


def test_wchan_names_where_each_sleeps_and_leaves_out_the_gone(kind: str, started: Started) -> None:
    job, gone = started.sleeper(), started.zombie()
    gone.wait()

    async def story(local: LocalShell) -> None:
        answer = await ask(local, "wchan", str(job.pid), str(gone.pid))
        assert answer.status == 0
        place = FakePlace()
        place.host.on("wchan", answer)
        told = await looks.wchan(place, [job.pid])
        assert set(told) == {job.pid}
        assert await ask(local, "wchan", "1; id") == Answer(2, b"")

    play(kind, story)


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """All that `stacks` needs, and no py-spy but the one a test writes."""
    place = tmp_path / "bin"
    place.mkdir()
    for name in ("mktemp", "cat", "rm", "sleep", "id", "getconf", "sh", "grep"):
        if found := shutil.which(name):
            (place / name).symlink_to(found)
    return place


def with_spy(kind: str, tools: Path, tmp_path: Path, script: str, story: object) -> None:
    if script:
        (tools / "py-spy").write_text(f"#!/bin/sh\n{script}\n")
        (tools / "py-spy").chmod(0o755)
    found = shutil.which(SHELLS[kind][0])
    assert found is not None
    (tools / SHELLS[kind][0]).symlink_to(found)
    (tmp_path / "t").mkdir()
    play(kind, story, env={"PATH": str(tools), "TMPDIR": str(tmp_path / "t")})  # type: ignore[arg-type]
    # nothing is left behind
    assert list((tmp_path / "t").iterdir()) == []


def test_without_py_spy(kind: str, tools: Path, tmp_path: Path) -> None:
    async def story(local: LocalShell) -> None:
        assert await ask(local, "stacks", "4711", "2000") == Answer(30, b"")

    with_spy(kind, tools, tmp_path, "", story)


def test_py_spy_is_asked_without_stopping_the_process(
    kind: str, tools: Path, tmp_path: Path
) -> None:
    async def story(local: LocalShell) -> None:
        answer = await ask(local, "stacks", "4711", "9000")
        assert answer == Answer(0, b"dump --nonblocking -p 4711\nThread 4711\n")

    with_spy(kind, tools, tmp_path, 'echo "$@"; echo Thread 4711', story)


def test_what_py_spy_says_of_its_failure_comes_through(
    kind: str, tools: Path, tmp_path: Path
) -> None:
    async def story(local: LocalShell) -> None:
        answer = await ask(local, "stacks", "4711", "9000")
        assert answer == Answer(1, b"Permission Denied\n")
        assert (await ask(local, "stacks", "0", "9000")).status == 2

    with_spy(kind, tools, tmp_path, "echo Permission Denied >&2; exit 1", story)


def test_a_py_spy_that_hangs_is_ended_and_the_shell_goes_on(
    kind: str, tools: Path, tmp_path: Path
) -> None:
    note = tmp_path / "pid"

    async def story(local: LocalShell) -> None:
        began = time.monotonic()
        assert (await ask(local, "stacks", "4711", "300")).status == 31
        assert time.monotonic() - began < 10
        assert (await ask(local, "hello")).status == 0
        pid = int(note.read_text())
        until = time.monotonic() + 10
        while alive_pid(pid):
            assert time.monotonic() < until
            time.sleep(0.02)

    with_spy(kind, tools, tmp_path, f"echo $$ >{note}; exec sleep 617", story)


def alive_pid(pid: int) -> bool:
    """A zombie that its shell has not waited for yet is no longer running."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
