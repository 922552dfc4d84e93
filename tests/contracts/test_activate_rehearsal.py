"""What would keep a start from happening is found before anything of the old run is touched."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.activation import NEW, OLD, Activator, start_of, tree

NOBODY = 65534
needs_root = pytest.mark.skipif(os.getuid() != 0, reason="another user is played by root")


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Activator]:
    one = Activator(tmp_path)
    one.old("train.sh", OLD)
    yield one
    one.close()


@pytest.fixture
def mine() -> Iterator[Activator]:
    """The trainer is another user's; the directories are open to everybody. They do not lie below
    pytest's own, which each of its workers closes anew."""
    place = Path(tempfile.mkdtemp(prefix="fsc-", dir="/tmp"))
    one = Activator(place)
    one.old("train.sh", OLD)
    for each in (one.place, *one.place.parents):
        if each == place or place in each.parents:
            each.chmod(0o755)
    yield one
    one.close()
    shutil.rmtree(place)


def nobodys(job: Activator, mark: str, **more: Any) -> dict[str, Any]:
    return job.launch(mark, uid=NOBODY, gid=NOBODY, groups=[], **more)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"argv": ["/no/such/python", "train.sh"]}, "cannot run /no/such/python: No such file"),
        ({"argv": ["no-such-program"]}, "cannot run no-such-program: No such file"),
        ({"argv": ["./train.sh"]}, "cannot run ./train.sh: Permission denied"),
        ({"cwd": "/no/such"}, "cannot change to /no/such: No such file"),
        ({"log": "/no/such/train.log"}, "cannot append to /no/such/train.log: No such file"),
        ({"limits": {"NOFILE": [9, 5]}}, "cannot set the limit NOFILE"),
    ],
)
@pytest.mark.parametrize("which", ["launch", "launch_old"])
def test_it_is_told_at_once_and_all_is_as_it_was(
    job: Activator, which: str, change: dict[str, Any], said: str
) -> None:
    job.new("train.sh", NEW)
    old = job.runs()
    before = tree(job.dest / "train.sh")
    code, line = job.ask(**{which: job.launch("new" if which == "launch" else "old", **change)})
    assert code == 1
    which = "what runs now could not be started again: " if which == "launch_old" else ""
    assert line.startswith(f"failed {which}{said}"), line
    assert old.poll() is None
    assert start_of(old.pid)
    assert tree(job.dest / "train.sh") == before
    assert not list(job.base.glob("stage-*"))
    assert not list((job.base / "status").glob("*"))
    assert not job.log.exists()


def test_what_could_not_come_back_and_need_not_is_only_told(job: Activator) -> None:
    """Its directory was deleted since, say: with --no-rollback that is no reason to stay."""
    job.new("train.sh", NEW)
    job.begin(roll_back=False, launch_old=job.launch("old", cwd="/no/such"))
    said = "what runs now could not be started again: cannot change to /no/such: No such file"
    assert job.state["findings"][0].startswith(said)
    job.order("go")
    job.reach("launched")


def test_a_program_that_comes_with_the_files_may_be_missing_as_yet(job: Activator) -> None:
    job.new("start.sh", f"#!/bin/sh\n{NEW}", mode=0o755)
    job.new("train.sh", NEW)
    job.begin(launch=job.launch("new", argv=["./start.sh"]))
    job.order("go")
    job.reach("launched")
    assert job.runs_now("new")


def test_one_that_comes_without_the_right_to_run_is_told(job: Activator) -> None:
    job.new("start.sh", f"#!/bin/sh\n{NEW}", mode=0o644)
    code, line = job.ask(launch=job.launch("new", argv=["./start.sh"]))
    assert (code, line) == (1, "failed cannot run ./start.sh: Permission denied")


@needs_root
@pytest.mark.parametrize("there", [True, False])
def test_a_log_that_root_had_opened_becomes_its_users(mine: Activator, there: bool) -> None:
    """`>train.log` by root's shell, then setpriv: the user alone could not open it again."""
    job = mine
    job.new("train.sh", NEW)
    (job.dest).chmod(0o755)
    if there:
        job.log.write_text("old lines\n")
        job.log.chmod(0o640)
    job.begin(launch=nobodys(job, "new"), launch_old=nobodys(job, "old"))
    if there:
        assert job.log.stat().st_uid == 0  # as yet nothing was changed
    job.order("go")
    job.reach("launched")
    seen = job.log.stat()
    assert (seen.st_uid, stat.S_IMODE(seen.st_mode)) == (NOBODY, 0o640 if there else 0o644)
    if there:
        rotated = Path(job.state["log_rotated"])
        assert rotated.read_text() == "old lines\n"
        assert rotated.stat().st_uid == 0
    assert Path(f"/proc/{job.runs_now('new')}").stat().st_uid == NOBODY


@needs_root
def test_a_log_that_somebody_else_writes_is_not_taken_from_him(mine: Activator) -> None:
    job = mine
    job.new("train.sh", NEW)
    job.log.write_text("old lines\n")
    job.log.chmod(0o640)
    with job.log.open("a") as held:
        other = subprocess.Popen(["sleep", "300"], stdout=held)
    try:
        code, line = job.ask(launch=nobodys(job, "new"), launch_old=nobodys(job, "old"))
        assert (code, line) == (1, f"failed cannot append to {job.log}: Permission denied")
    finally:
        other.kill()
        other.wait()
    # where it is the old run that writes it, that is gone by then
    with job.log.open("a") as held:
        child = subprocess.Popen(["sleep", "300"], stdout=held)
    one = {"pid": child.pid, "start": start_of(child.pid)}
    job.spec["files"].clear()
    job.new("train.sh", NEW)
    job.begin(launch=nobodys(job, "new"), launch_old=nobodys(job, "old"), gone=[one])
    child.kill()
    child.wait()
    job.order("go")
    job.reach("launched")
    assert job.log.stat().st_uid == NOBODY


@needs_root
def test_a_user_who_may_not_enter_or_run_it_is_told(mine: Activator) -> None:
    job = mine
    job.new("train.sh", NEW)
    closed = job.place / "closed"
    closed.mkdir(mode=0o700)
    code, line = job.ask(launch=nobodys(job, "new", cwd=str(closed)))
    assert (code, line) == (1, f"failed cannot change to {closed}: Permission denied")
