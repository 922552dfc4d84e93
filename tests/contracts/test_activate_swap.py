"""The swap itself: whole files, the way back kept, the log rotated, nothing left behind."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts.activation import NEW, OLD, RUN, Activator, tree, until

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can change who a process is")


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Activator]:
    made = Activator(tmp_path)
    made.old("train.sh", OLD)
    made.log.write_text("old tok/s\n")
    yield made
    made.close()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_new_files_are_there_and_the_old_ones_are_kept(job: Activator) -> None:
    dated = (job.dest / "train.sh").stat()
    job.old("lib/util.py", "old util")
    job.old("extra/util.py", "old extra", 0o755)
    job.new("train.sh", NEW, mode=0o750)
    job.new("lib/util.py", "new util")
    job.new("extra/util.py", "new extra", mode=0o600)  # the same name, another directory
    job.new("configs/deep/a.yaml", "x: 1\n")
    start = time.time()
    job.begin()
    # who asks whether it was changed since the old run began must not be misled by us
    assert (job.dest / "train.sh").stat().st_ctime_ns == dated.st_ctime_ns
    assert job.secrets() == []
    job.order("go")
    state = job.reach("launched")
    job.runs_now("new")
    until(lambda: "new tok/s" in job.log.read_text(), "the new version logs")
    job.order("done")
    state = job.end("healthy")
    assert (state["files"], state["running"], state["confirmed_by"]) == ("new", "r2", "client")
    assert (state["order"], state["findings"]) == ("done", [])
    texts = {rel: (job.dest / rel).read_text() for rel in ("train.sh", "lib/util.py")}
    assert texts == {"train.sh": NEW, "lib/util.py": "new util"}
    assert (job.dest / "extra/util.py").read_text() == "new extra"
    assert (job.dest / "configs/deep/a.yaml").read_text() == "x: 1\n"
    assert (mode(job.dest / "train.sh"), mode(job.dest / "extra/util.py")) == (0o750, 0o600)
    assert (job.dest / "train.sh").stat().st_mtime > start - 2  # newer than what ran before
    kept = tree(job.base / "releases")
    assert {path: what[0] for path, what in kept.items() if what[0] is not None} == {
        "r1/files/train.sh": OLD.encode(), "r1/files/lib/util.py": b"old util",
        "r1/files/extra/util.py": b"old extra", "r1/manifest.json": b'{"id": "r1"}\n',
        "r2/files/train.sh": NEW.encode(), "r2/files/lib/util.py": b"new util",
        "r2/files/extra/util.py": b"new extra", "r2/files/configs/deep/a.yaml": b"x: 1\n",
        "r2/manifest.json": b'{"id": "r2"}', "r2/tried.json": kept["r2/tried.json"][0],
    }  # fmt: skip
    old = (job.base / "releases/r1/files/train.sh").stat()
    assert (old.st_mtime_ns, old.st_mode) == (dated.st_mtime_ns, dated.st_mode)
    assert (job.litter(), job.secrets()) == ([".fleetstop/train/status/new.json.end"], [])
    assert stat.S_IMODE((job.base / "state.json").stat().st_mode) == 0o644


def test_what_somebody_changes_meanwhile_is_kept_too(job: Activator) -> None:
    job.new("train.sh", NEW)
    job.new("added.py", "new")
    job.begin()
    (job.dest / "edit").write_text("edited by hand")
    (job.dest / "edit").rename(job.dest / "train.sh")
    (job.dest / "added.py").write_text("theirs")
    job.order("go")
    findings = job.reach("launched")["findings"]
    late = job.base / f"late-{RUN}"
    told = "was changed while the old run was stopping: that is kept as"
    assert findings == [
        f"{job.dest}/train.sh {told} {late}/train.sh", f"{job.dest}/added.py {told} {late}/added.py"
    ]  # fmt: skip
    assert (late / "train.sh").read_text() == "edited by hand"
    assert (job.base / "releases/r1/files/train.sh").read_text() == OLD
    assert (job.dest / "train.sh").read_text() == NEW
    os.kill(job.runs_now("new"), 9)
    job.end("rolled_back")
    assert (job.dest / "train.sh").read_text() == "edited by hand"
    assert (job.dest / "added.py").read_text() == "theirs"


def test_what_is_kept_is_not_changed_by_whoever_writes_into_the_live_file(job: Activator) -> None:
    """scp writes into the file that is there: the way back must not lead to that."""
    job.new("train.sh", NEW)
    job.begin()
    kept = job.base / "releases/r1/files/train.sh"
    with (job.dest / "train.sh").open("r+") as live:
        live.write("scribbled over")
    assert kept.read_text() == OLD
    job.order("go")
    job.reach("launched")
    os.kill(job.runs_now("new"), 9)
    job.end("rolled_back")
    with (job.dest / "train.sh").open("r+") as live:
        live.write("and again")
    assert kept.read_text() == OLD
    assert (job.base / f"late-{RUN}/train.sh").read_text().startswith("scribbled over")


def test_a_link_that_is_laid_meanwhile_leads_nowhere(job: Activator, tmp_path: Path) -> None:
    """And the old version comes back, for what was to be brought up cannot be whole."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "util.py").write_text("theirs")
    job.old("lib/util.py", "old util")
    job.new("train.sh", NEW)
    job.new("lib/util.py", "new util")
    job.begin()
    (job.dest / "lib").rename(job.dest / "moved")
    (job.dest / "lib").symlink_to(elsewhere)
    job.order("go")
    state = job.end("rolled_back")
    assert state["reason"] == f"{job.dest}/lib is no directory of its own: no link is followed"
    assert {path: what[0] for path, what in tree(elsewhere).items()} == {"util.py": b"theirs"}
    assert (job.dest / "train.sh").read_text() == OLD
    assert (job.dest / "moved/util.py").read_text() == "old util"
    job.runs_now("old")


def test_a_base_that_is_exchanged_is_not_used(job: Activator, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    job.new("train.sh", NEW)
    job.begin(stale_s=1.0)
    pid = job.activator[0]
    shutil.copytree(job.base, elsewhere)
    before = tree(elsewhere)
    job.base.rename(job.base.parent / "moved")
    job.base.symlink_to(elsewhere)
    time.sleep(2.5)
    assert tree(elsewhere) == before
    os.kill(pid, 9)  # it goes on trying to tell how it ended


@as_root
def test_it_comes_back_with_owner_and_mode(job: Activator) -> None:
    old = job.old("train.sh", OLD, 0o640)
    os.chown(old, NOBODY, NOBODY)
    os.utime(old, (1_000_000_000, 1_000_000_000))
    job.new("train.sh", "exit 3\n", mode=0o755)
    job.new("new/deep/extra.py", "x")
    job.begin()
    job.order("go")
    state = job.end("rolled_back")
    assert (state["exit"], state["signal"], state["reason"]) == (
        3,
        None,
        "sh train.sh ended with exit code 3",
    )
    assert (state["files"], state["running"]) == ("old", "r1")
    job.runs_now("old")
    of = old.stat()
    assert old.read_text() == OLD
    assert (of.st_uid, of.st_gid, mode(old), of.st_mtime) == (NOBODY, NOBODY, 0o640, 1e9)
    assert not (job.dest / "new").exists()  # made for this run, and empty again
    assert (job.base / "releases/r2/files/train.sh").read_text() == "exit 3\n"


@as_root
def test_what_cannot_be_linked_is_copied(job: Activator) -> None:
    """A directory that is a file system of its own."""
    (job.dest / "mnt").mkdir()
    holder = subprocess.Popen(["unshare", "-m", "sleep", "300"])
    job.children.append((holder.pid, int(Path(f"/proc/{holder.pid}/stat").read_text().split()[21])))
    inside = ["nsenter", "-m", "-t", str(holder.pid)]
    until(
        lambda: (
            Path(f"/proc/{holder.pid}/ns/mnt").readlink() != Path("/proc/self/ns/mnt").readlink()
        ),
        "a mount namespace",
    )
    mount = ["mount", "-t", "tmpfs", "none", str(job.dest / "mnt")]
    if subprocess.run([*inside, *mount], check=False).returncode != 0:
        pytest.skip("no file system can be mounted here")
    seen = Path(f"/proc/{holder.pid}/root{job.dest}/mnt/a.py")
    seen.write_text("old a")
    seen.chmod(0o604)
    os.chown(seen, NOBODY, 12)
    job.new("train.sh", "exit 3\n")
    job.new("mnt/a.py", "new a")
    job.before = inside
    job.begin()
    kept = job.base / "releases/r1/files/mnt/a.py"
    assert (kept.read_text(), mode(kept), kept.stat().st_uid) == ("old a", 0o604, NOBODY)
    job.order("go")
    job.end("rolled_back")
    assert (seen.read_text(), mode(seen)) == ("old a", 0o604)
    assert (seen.stat().st_uid, seen.stat().st_gid) == (NOBODY, 12)
    holder.kill()
    holder.wait()


@as_root
def test_a_user_who_is_not_root_does_it_for_himself() -> None:
    outside = Path(subprocess.check_output(["mktemp", "-d", "/tmp/fsa-XXXXXX"], text=True).strip())
    outside.chmod(0o755)
    job = Activator(outside)
    try:
        job.old("train.sh", OLD)
        job.new("train.sh", NEW, uid=NOBODY, gid=NOBODY)
        for launch in (job.spec["launch"], job.spec["launch_old"]):
            launch.update(uid=NOBODY, gid=NOBODY, groups=[])
        job.owner = NOBODY
        python = shutil.which("python3", path="/usr/bin:/bin")
        assert python is not None
        job.python = python
        job.before = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        job.begin()
        job.order("go")
        job.reach("launched")
        pid = job.runs_now("new")
        assert f"Uid:\t{NOBODY}" in Path(f"/proc/{pid}/status").read_text()
        os.kill(pid, 9)
        job.end("rolled_back")
        assert (job.dest / "train.sh").read_text() == OLD
        job.spec["files"].clear()
        job.new("theirs.py", "x", uid=0, gid=0)
        code, line = job.ask()
        said = f"failed cannot write {job.dest}/theirs.py: Operation not permitted"
        assert (code, line) == (1, said)
    finally:
        job.close()
        shutil.rmtree(outside)


@as_root
def test_the_log_is_rotated_with_owner_and_mode(job: Activator) -> None:
    job.log.write_text("old tok/s\n")
    job.log.chmod(0o640)
    os.chown(job.log, NOBODY, 12)
    os.utime(job.log, (1_000_000_000, 1_000_000_000))
    there = job.old("train.log.20010909-014640", "rotated before")
    job.new("train.sh", NEW)
    job.begin()
    job.order("go")
    rotated = f"{there}-2"
    assert job.reach("launched")["log_rotated"] == rotated
    assert Path(rotated).read_text() == "old tok/s\n"
    assert there.read_text() == "rotated before"
    of = job.log.stat()
    assert (of.st_uid, of.st_gid, mode(job.log)) == (NOBODY, 12, 0o640)
    until(lambda: job.log.read_text() == "new tok/s\n", "the new log is the new version's")


def test_a_log_that_somebody_writes_stays(job: Activator) -> None:
    job.new("train.sh", NEW)
    with job.log.open("a"), job.log.open():
        job.begin()
        job.order("go")
        state = job.reach("launched")
    assert state["findings"] == [f"{job.log} was not rotated: PID {os.getpid()} writes it"]
    assert state["log_rotated"] is None
    until(lambda: job.log.read_text() == "old tok/s\nnew tok/s\n", "it is appended to")


def test_a_log_that_is_only_read_is_rotated(job: Activator) -> None:
    job.new("train.sh", NEW)
    tail = subprocess.Popen(["tail", "-f", str(job.log)], stdout=subprocess.DEVNULL)
    job.begin()
    job.order("go")
    state = job.reach("launched")
    tail.kill()
    tail.wait()
    assert state["findings"] == []
    assert Path(state["log_rotated"]).read_text() == "old tok/s\n"


def test_what_is_no_plain_log_is_left_alone(job: Activator, tmp_path: Path) -> None:
    job.log.rename(tmp_path / "log")
    job.log.symlink_to(tmp_path / "log")
    job.new("train.sh", NEW)
    job.begin()
    job.order("go")
    state = job.reach("launched")
    said = "was not rotated: train.log is there and is no regular file"
    assert state["findings"] == [f"{job.log} {said}"]
    assert job.log.is_symlink()


def test_nothing_but_a_launch(job: Activator) -> None:
    before = tree(job.dest)
    job.begin(release="r1", before="r1", launch_old=None)
    job.order("go")
    assert job.reach("launched")["running"] == "r1"
    job.order("done")
    job.end("healthy")
    assert (job.dest / "train.sh").read_text() == OLD
    own = tree(job.dest).keys() - before.keys()
    assert {path for path in own if not path.startswith("train.log.")} == {
        ".fleetstop/train/order", ".fleetstop/train/state.json", ".fleetstop/train/status",
        ".fleetstop/train/status/new.json", ".fleetstop/train/status/new.json.end",
    }  # fmt: skip


def test_nothing_but_files(job: Activator) -> None:
    job.new("train.sh", NEW)
    job.begin(launch=None, launch_old=None, log=None)
    job.order("go")
    state = job.end("swapped")
    assert (state["files"], state["trainer"], state["running"]) == ("new", None, None)
    assert (job.dest / "train.sh").read_text() == NEW
    assert job.litter() == []


def test_no_bytecode_is_left(job: Activator) -> None:
    job.before = [sys.executable, "-c", "import os, sys; os.execv(sys.argv[1], sys.argv[1:])"]
    job.begin()
    assert not list(job.base.rglob("__pycache__"))
    job.order("cancel")
    job.end("cancelled")
