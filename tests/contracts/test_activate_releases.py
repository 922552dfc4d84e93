"""Which versions are kept for the way back, and that they can be brought up again."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts.activation import NEW, OLD, Activator


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
    """What lies there is the kept file itself then."""
    job.new("train.sh", "exit 3\n")
    job.begin()
    job.order("go")
    job.end("rolled_back")
    kept = job.base / "releases/r1/files/train.sh"
    assert kept.samefile(job.dest / "train.sh")
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
