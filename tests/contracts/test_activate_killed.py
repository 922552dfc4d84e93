"""The activator is killed in any step: files are whole, the way back is kept, the state tells."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.activation import NEW, OLD, RUN, Activator, alive, tree, until

# The activator, and nobody else, is ended just before its n-th rename(2): there every step begins,
# every file is replaced and every state is told.
KILLS = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void count(void) {
    static int calls;
    char words[4096] = {0};
    FILE *file = fopen("/proc/self/cmdline", "r");
    size_t size = file ? fread(words, 1, sizeof words - 1, file) : 0;
    if (file) fclose(file);
    for (size_t i = 0; i < size; i++) if (!words[i]) words[i] = ' ';
    if (!strstr(words, "activate.py")) return;
    if (++calls == atoi(getenv("KILLED_AT"))) kill(getpid(), SIGKILL);
}

int rename(const char *from, const char *to) {
    count();
    return ((int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename"))(from, to);
}

int renameat(int one, const char *from, int other, const char *to) {
    count();
    return ((int (*)(int, const char *, int, const char *))dlsym(RTLD_NEXT, "renameat"))(
        one, from, other, to);
}
"""
FILES = {f"lib/m{number}.py": (f"old {number}", f"new {number}") for number in range(3)}
DIES = "exit 3\n"
# keep 4, waiting, go, swapping, 5 files, the release, swapped, the log, launching, launched,
# that it failed, rolling_back, 4 files, rolled_back; two more, for which it comes to its end
RENAMES = range(1, 27)


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Activator]:
    made = Activator(tmp_path)
    made.log.write_text("old tok/s\n")
    yield made
    made.close()


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler here")
    place = tmp_path_factory.mktemp("kills")
    (place / "kills.c").write_text(KILLS)
    words = [compiler, "-shared", "-fPIC", "-o", "kills.so", "kills.c", "-ldl"]
    subprocess.run(words, cwd=place, check=True)
    return place / "kills.so"


def filled(job: Activator, text: str) -> None:
    job.old("train.sh", OLD)
    for rel, (old, new) in FILES.items():
        job.old(rel, old)
        job.new(rel, new)
    job.new("train.sh", text)
    job.new("configs/a.yaml", "x: 1\n")


def whole(job: Activator, text: str) -> set[str]:
    """Which versions lie there; each file is the old or the new one, and what was is kept."""
    seen = set()
    for rel, (old, new) in {
        **FILES,
        "train.sh": (OLD, text),
        "configs/a.yaml": ("", "x: 1\n"),
    }.items():
        path, kept = job.dest / rel, job.base / "releases/r1/files" / rel
        there = path.read_text() if path.exists() else ""
        assert there in {old, new}, rel
        seen.add("new" if there == new else "old")
        if old and there == new:
            assert kept.read_text() == old
    return seen


def cleaned(job: Activator) -> None:
    """Nothing names the run any more; what lies at its place and what is kept stays."""
    kept = tree(job.base / "releases")
    releases = {path: what for path, what in kept.items() if not path.endswith("/tried.json.new")}
    assert job.clean() == (0, "cleaned")
    rooms = {".fleetstop/train/status/new.json.end", ".fleetstop/train/status/old.json.end"}
    assert set(job.litter()) <= rooms
    assert job.secrets() == []
    assert tree(job.base / "releases") == releases
    assert job.clean() == (0, "cleaned")


def again(job: Activator) -> None:
    """The client's next run, whatever was left, goes the whole way."""
    job.spec["files"].clear()
    filled(job, NEW)
    half = not (job.base / "releases/r1/manifest.json").exists()  # then it is made whole
    job.spec.update(launch=job.launch("again"), launch_old=job.launch("old-again"))
    (job.base / "order").unlink(missing_ok=True)  # a next run's id is another: no old order is its
    job.begin(before="r1" if half else "r1-again", release="r3")
    job.order("go")
    job.reach("launched")
    job.order("done")
    assert job.end("healthy")["running"] == "r3"
    assert whole(job, NEW) == {"new"}
    assert (job.base / "releases/r1/manifest.json").exists()


@pytest.mark.parametrize("number", RENAMES)
def test_before_any_rename(job: Activator, library: Path, number: int) -> None:
    filled(job, DIES)
    before = {path: what for path, what in tree(job.dest).items() if RUN not in path}
    job.before = ["env", f"LD_PRELOAD={library}", f"KILLED_AT={number}"]
    code, line = job.ask()
    job.before = []
    if number <= 5:  # while it prepares; whoever asked tidies up
        assert (code, line) == (1, "failed it was ended before it could tell")
        kept = ".fleetstop/train/releases"
        after = {path: what for path, what in tree(job.dest).items() if not path.startswith(kept)}
        own = {".fleetstop/train/status", ".fleetstop/train/state.json.new"}
        assert {path: what for path, what in after.items() if path not in own} == before
    else:
        assert line.startswith("waiting ")
        job.order("go")
        pid, start = job.activator
        until(lambda: not alive(pid, start), "it is killed")
        state, seen = job.state, whole(job, DIES)
        assert seen == {
            "waiting": {"old"}, "swapping": {"old", "new"}, "swapped": {"new"},
            "launching": {"new"}, "launched": {"new"}, "rolling_back": {"old", "new"},
            "rolled_back": {"old"},
        }[state["step"]] or state["files"] == "mixed"  # fmt: skip
        assert seen == {state["files"]} or state["files"] == "mixed"
        assert bool(state["ended_at"]) == (number > RENAMES[-1] - 2)
    cleaned(job)
    if number % 4 == 0:
        again(job)


def kill_in(job: Activator, step: str, also: Callable[[], bool] = lambda: True) -> dict[str, Any]:
    """Kills it while it is in a step that lasts; what it told last."""
    job.reach(step)
    until(also, f"that of {step}")
    pid, start = job.activator
    os.kill(pid, signal.SIGKILL)
    until(lambda: not alive(pid, start), "the activator is gone")
    return job.state


def test_while_it_waits(job: Activator) -> None:
    filled(job, NEW)
    before = {path: what for path, what in tree(job.dest).items() if RUN not in path}
    job.begin()
    pid = job.activator[0]
    said = f"failed run {RUN} is at it still: its activator is PID {pid}"
    assert job.clean() == (1, said)
    state = kill_in(job, "waiting")
    assert (state["ended_at"], state["files"]) == (None, "old")
    assert whole(job, NEW) == {"old"}
    cleaned(job)
    own = {".fleetstop/train/state.json", ".fleetstop/train/status"}
    after = {path: what for path, what in tree(job.dest).items() if "/releases" not in path}
    assert {path: what for path, what in after.items() if path not in own} == before
    again(job)


def test_while_it_launches(job: Activator) -> None:
    """What it asked for comes all the same; its supervisor's state file tells who it is."""
    filled(job, NEW)
    words = ["sh", "-c", 'touch asked; sleep 1; exec "$@"', "-"]
    job.begin(launch=job.launch("new", prefix=["env", "-C", str(job.dest), *words]))
    job.order("go")
    state = kill_in(job, "launching", (job.dest / "asked").exists)
    assert (state["ended_at"], state["files"], state["trainer"]) == (None, "new", None)
    assert whole(job, NEW) == {"new"}
    status = job.base / "status/new.json"
    until(lambda: status.exists() and json.loads(status.read_text())["trainer"], "it comes")
    trainer = json.loads(status.read_text())["trainer"]
    job.children.append((trainer["pid"], trainer["start"]))
    cleaned(job)
    assert alive(trainer["pid"], trainer["start"])


def test_while_it_watches(job: Activator) -> None:
    filled(job, NEW)
    job.begin()
    job.order("go")
    state = kill_in(job, "launched")
    assert (state["ended_at"], state["files"], state["running"]) == (None, "new", "r2")
    job.runs_now("new")
    assert whole(job, NEW) == {"new"}
    cleaned(job)
    job.runs_now("new")
    assert (job.base / "status/new.json.end").stat().st_size == 4096  # its supervisor's room


def test_what_is_no_run_is_not_cleaned(job: Activator) -> None:
    for name in ("../x", "", ".", "a b"):
        code, line = job.script("--clean", str(job.base), name)
        assert code == 1
        assert line.endswith("is no name for a run or a release")
    said = f"failed cannot look into {job.place}/no: No such file or directory"
    assert job.script("--clean", f"{job.place}/no", RUN) == (1, said)
