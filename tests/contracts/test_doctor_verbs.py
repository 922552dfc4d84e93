"""The verbs of boot.sh that doctor asks, in each shell a host may have."""

from __future__ import annotations

import asyncio
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetstop.core.checkup.host import parse_have, parse_health
from fleetstop.core.checkup.job import PathSeen, parse_paths
from fleetstop.core.commands import Answer, Command
from tests.fakes.local_channel import SHELLS, is_installed, local_shell

NOBODY = 65534


@pytest.fixture(params=sorted(SHELLS))
def kind(request: pytest.FixtureRequest) -> str:
    if not is_installed(request.param):
        pytest.skip(f"{request.param} is not installed")
    return str(request.param)


def asked(kind: str, verb: str, *words: str, env: dict[str, str] | None = None) -> Answer:
    async def whole() -> Answer:
        async with local_shell(kind, env=env) as local:
            answer = await local.framed.run(Command(verb, words, deadline_s=30.0))
            again = await local.framed.run(Command("clock", deadline_s=10.0))
            assert again.status == 0  # the shell has borne it
            return answer

    return asyncio.run(whole())


def tool(where: Path, name: str, body: str) -> None:
    path = where / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def paths(kind: str, who: str, *words: Path) -> tuple[str, tuple[PathSeen, ...]]:
    answer = asked(kind, "paths", who, *map(str, words))
    assert answer.status == 0
    found = parse_paths(answer.data, len(words))
    assert found is not None, answer.data
    return found


def test_the_tools_that_are_there_and_the_time(kind: str) -> None:
    have = parse_have(asked(kind, "have", "grep", "no-such-tool", "$(touch /x)", "-v").data)
    assert have.tools == {"grep"}
    assert have.now is not None
    assert abs(have.now - time.time()) < 60


def test_a_find_that_cannot_print_is_none(kind: str, tmp_path: Path) -> None:
    """busybox's knows no -printf: with it no checkpoint could be listed."""
    for name in ("find", "stat"):
        tool(tmp_path, name, "echo unrecognized: $2 >&2; exit 1")
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    assert parse_have(asked(kind, "have", "find", "stat", "grep", env=env).data).tools == {"grep"}
    whole = parse_have(asked(kind, "have", "find", "stat", "grep").data)
    assert whole.tools == {"find", "stat", "grep"}


def test_health_tells_version_and_log(kind: str, tmp_path: Path) -> None:
    tool(tmp_path, "pct", "exit 9")
    tool(tmp_path, "dpkg-query", "printf 5.2.2")
    tool(tmp_path, "journalctl", "echo a line")
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    health = parse_health(asked(kind, "health", str(tmp_path / "pct"), env=env).data)
    assert (health.pct, health.version, health.kernel_log) == (True, "5.2.2", "journalctl")
    tool(tmp_path, "journalctl", "exit 1")
    tool(tmp_path, "dmesg", "echo not permitted >&2; exit 1")
    tool(tmp_path, "dpkg-query", "exit 1")
    health = parse_health(asked(kind, "health", str(tmp_path / "no"), env=env).data)
    assert (health.pct, health.version, health.kernel_log) == (False, None, None)


def test_a_journal_that_hangs_is_not_waited_for(kind: str, tmp_path: Path) -> None:
    tool(tmp_path, "journalctl", "exec sleep 20")
    tool(tmp_path, "dmesg", "echo a line")
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    began = time.monotonic()
    assert parse_health(asked(kind, "health", "pct", env=env).data).kernel_log == "dmesg"
    assert time.monotonic() - began < 15


def test_where_nothing_can_be_put_down_the_kernel_log_is_not_called_closed(
    kind: str, tmp_path: Path
) -> None:
    tool(tmp_path, "mktemp", "echo no space >&2; exit 1")
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    assert parse_health(asked(kind, "health", "pct", env=env).data).kernel_log == "?"


def test_what_paths_are_and_whether_we_may_write_them(kind: str, tmp_path: Path) -> None:
    log, odd = tmp_path / "a b.log", tmp_path / "to nowhere"
    log.write_text("x")
    odd.symlink_to(tmp_path / "gone")
    far = tmp_path / "no" / "such/dir"
    uid, (file, folder, other, none, below) = paths(
        kind, "-", log, tmp_path, odd, far, log / "under"
    )
    assert uid == str(os.getuid())
    assert file == PathSeen("file", True, str(log), os.getuid())
    assert folder == PathSeen("dir", True, str(tmp_path), os.getuid())
    assert other.what == "other"
    assert none == PathSeen("none", True, str(tmp_path), os.getuid())
    # a file is no directory to make one in
    assert (below.what, below.writable) == ("none", False)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a b.log", "to nowhere"]


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """pytest's own directories are closed to other users."""
    with tempfile.TemporaryDirectory(prefix="fsd-", dir="/tmp") as name:
        place = Path(name)
        place.chmod(0o755)
        yield place


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to ask for another user")
def test_another_user_is_asked_for_as_that_user(kind: str, open_to_all: Path) -> None:
    ours, theirs, group = (open_to_all / name for name in ("ours", "theirs", "group"))
    for each in (ours, theirs, group):
        each.mkdir(mode=0o755)
    os.chown(theirs, NOBODY, NOBODY)
    os.chown(group, 0, NOBODY)
    group.chmod(0o775)
    uid, (no, yes, by_group) = paths(kind, "nobody", ours, theirs, group)
    assert uid == str(NOBODY)
    assert (no.writable, yes.writable, by_group.writable) == (False, True, True)
    assert (no.owner, yes.owner) == (0, NOBODY)
    job = subprocess.Popen(["sleep", "60"], user=NOBODY, group=NOBODY, extra_groups=[])
    try:
        uid, (no, yes, _) = paths(kind, f"pid:{job.pid}", ours, theirs, group)
    finally:
        job.kill()
        job.wait()
    assert (uid, no.writable, yes.writable) == (str(NOBODY), False, True)


def test_a_user_that_is_not_there_and_words_that_are_none(kind: str) -> None:
    assert asked(kind, "paths", "no-such-user", "/").status == 40
    assert asked(kind, "paths", "$(id)", "/").status == 2
    assert asked(kind, "paths", "pid:1x", "/").status == 2
    assert asked(kind, "paths", "pid:4194303", "/").status == 40
