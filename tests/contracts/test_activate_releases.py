"""Which versions are kept for the way back, and that they can be brought up again."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts.activation import NEW, OLD, Activator, tree


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Activator]:
    made = Activator(tmp_path)
    made.old("train.sh", OLD)
    made.log.write_text("old tok/s\n")
    yield made
    made.close()


def test_five_releases_are_kept_and_what_is_needed(job: Activator) -> None:
    names = [f"r-{number}" for number in range(8)]
    for age, name in enumerate(reversed(names)):
        (job.base / "releases" / name / "files").mkdir(parents=True)
        (job.base / "releases" / name / "manifest.json").write_text("{}")
        os.utime(job.base / "releases" / name, (1e9 - age, 1e9 - age))
    kept = job.base / "releases/r-0"
    (kept / "files/train.sh").write_text(OLD)
    os.utime(kept, (1e9 - 100, 1e9 - 100))
    job.new("train.sh", NEW)
    job.begin(before="r-0")
    job.order("go")
    job.reach("launched")
    assert len(list((job.base / "releases").iterdir())) == 9
    job.order("done")
    job.end("healthy")
    left = {path.name for path in (job.base / "releases").iterdir()}
    assert left == {"r2", "r-7", "r-6", "r-5", "r-4", "r-0"}
    assert job.litter() == [".fleetstop/train/status/new.json.end"]


def test_a_kept_release_comes_back_and_stays_kept(job: Activator) -> None:
    """As `rollback` does it: what is brought up lies in a release already."""
    kept = job.base / "releases/r0"
    (kept / "files").mkdir(parents=True)
    (kept / "manifest.json").write_text("{}")
    os.utime(kept, (1e9, 1e9))
    job.new("train.sh", NEW)
    (job.stage / "files/train.sh").rename(kept / "files/train.sh")
    job.spec["files"][0]["staged"] = str(kept / "files/train.sh")
    job.begin(release="r0")
    job.order("go")
    assert job.reach("launched")["running"] == "r0"
    job.order("done")
    job.end("healthy")
    assert (job.dest / "train.sh").read_text() == NEW
    assert (kept / "files/train.sh").read_text() == NEW
    assert not job.stage.exists()
    assert kept.stat().st_mtime > time.time() - 600  # as old as its last use


def test_a_version_that_came_back_can_be_replaced_again(job: Activator) -> None:
    """What lies there is a copy of the kept file then, with its dates."""
    job.new("train.sh", "exit 3\n")
    job.begin()
    job.order("go")
    job.end("rolled_back")
    kept = job.base / "releases/r1/files/train.sh"
    assert not kept.samefile(job.dest / "train.sh")
    assert kept.stat().st_mtime_ns == (job.dest / "train.sh").stat().st_mtime_ns
    os.kill(job.runs_now("old"), 9)
    job.spec["files"].clear()
    job.new("train.sh", NEW)
    (job.base / "order").unlink()  # of the run before, which has the same name here
    job.begin(release="r3", launch=job.launch("again"), launch_old=None)
    job.order("go")
    job.reach("launched")
    job.order("done")
    job.end("healthy")
    assert (kept.read_text(), (job.dest / "train.sh").read_text()) == (OLD, NEW)
    assert [name for name in job.litter() if "status" not in name] == []


@pytest.mark.parametrize("way", ["well", "dies"])
def test_the_way_back_may_be_another_than_what_lies_there(job: Activator, way: str) -> None:
    """After one that was not well, or half a swap: kept as r1, that would be what comes back."""
    kept = job.base / "releases/r1/files"
    kept.mkdir(parents=True)
    (kept.parent / "manifest.json").write_text('{"id": "r1"}')
    (kept / "train.sh").write_text(OLD)
    (kept / "gone.py").write_text("old")
    job.old("train.sh", "exit 9\n")
    job.new("train.sh", NEW if way == "well" else "exit 3\n")
    job.new("gone.py", "new")
    job.begin(before_lies=False)
    job.order("go")
    if way == "well":
        job.reach("launched")
        job.order("done")
        assert job.end("healthy")["running"] == "r2"
        assert (job.dest / "train.sh").read_text() == NEW
    else:
        assert job.end("rolled_back")["running"] == "r1"
        assert (job.dest / "train.sh").read_text() == OLD
        assert (job.dest / "gone.py").read_text() == "old"
    assert (kept / "train.sh").read_text() == OLD
    assert job.litter() in ([], [f".fleetstop/train/status/{m}.json.end" for m in ("new",)],
                            [".fleetstop/train/status/old.json.end"])  # fmt: skip


def test_a_way_back_that_is_not_kept_is_none(job: Activator) -> None:
    before = tree(job.dest)
    job.new("train.sh", NEW)
    code, line = job.ask(before_lies=False)
    assert (code, line) == (1, "failed release r1, the way back, is not kept")
    assert {p: w for p, w in tree(job.dest).items() if "state" not in p} == before
