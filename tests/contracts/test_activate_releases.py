"""Which versions are kept for the way back, and that they can be brought up again."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.activation import NEW, OLD, RUN, Activator, tree


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


def shelf(job: Activator, *names: str) -> None:
    """Kept releases, the newest first."""
    for age, name in enumerate(names):
        place = job.base / "releases" / name
        (place / "files").mkdir(parents=True)
        (place / "files/train.sh").write_text(name)
        (place / "manifest.json").write_text("{}")
        os.utime(place, (1e9 - age, 1e9 - age))


def kept(job: Activator) -> set[str]:
    return {path.name for path in (job.base / "releases").iterdir()}


def test_a_restart_removes_what_is_too_much_whatever_lies_in_its_stage(job: Activator) -> None:
    """A restart's stage holds its plan still, and what an earlier run could not remove lies there:
    what is removed has to go elsewhere first."""
    shelf(job, *(f"r-{number}" for number in range(8)))
    (job.base / "gone-earlier-r-9/files").mkdir(parents=True)
    job.stage.mkdir()
    job.begin(release=None, before=None, before_manifest=None, stays="r-0")
    job.order("go")
    job.reach("launched")
    job.order("done")
    assert job.end("healthy")["findings"] == []
    assert kept(job) == {"r-0", "r-1", "r-2", "r-3", "r-4"}
    assert list(job.base.glob("gone-*")) == []
    assert not job.stage.exists()


def test_the_same_once_more_pushes_nothing_else_out(job: Activator) -> None:
    """Each rollback keeps what it has put in place: three of them would fill the shelf. Of the
    same files with the same words the one that was healthy counts."""
    shelf(job, *(f"r-{number}" for number in range(8)))
    for name, text in (("r-1", "a"), ("r-2", "b"), ("r-3", "a"), ("r-5", "b"), ("r-6", "c")):
        file = {"rel": "train.sh", "sha256": text * 64, "size": 1, "mode": 420}
        words = ["sh", "train.sh"] if name != "r-5" else ["sh", "train.sh", "--lr", "3"]
        told = {"id": name, "files": [file], "argv": words}
        (job.base / "releases" / name / "manifest.json").write_text(json.dumps(told))
    (job.base / "releases/r-3/tried.json").write_text('{"healthy": "2026"}')
    job.begin(release=None, before=None, before_manifest=None, stays="r-0")
    job.order("go")
    job.reach("launched")
    job.order("done")
    job.end("healthy")
    assert kept(job) == {"r-0", "r-2", "r-3", "r-4", "r-5"}  # r-1 is r-3 once more


def test_one_that_cannot_be_removed_does_not_keep_the_others(job: Activator) -> None:
    """And what is told of it is a sentence."""
    shelf(job, *(f"r-{number}" for number in range(8)))
    fixed = job.base / "releases/r-5/files/train.sh"
    if subprocess.run(["chattr", "+i", fixed], capture_output=True, check=False).returncode:
        pytest.skip("this file system knows no immutable files")
    job.stage.mkdir()
    job.begin(release=None, before=None, before_manifest=None, stays="r-0")
    try:
        job.order("go")
        job.reach("launched")
        job.order("done")
        (said,) = job.end("healthy")["findings"]
    finally:
        for path in job.base.glob("*/files/train.sh"):
            subprocess.run(["chattr", "-i", path], check=False)
        subprocess.run(["chattr", "-i", fixed], capture_output=True, check=False)
    gone = job.base / f"gone-{RUN}-r-5"
    assert said == f"release r-5 was not removed: cannot remove {gone}: Operation not permitted"
    assert kept(job) == {"r-0", "r-1", "r-2", "r-3", "r-4"}


def tried(job: Activator, release: str) -> dict[str, Any]:
    path = job.base / "releases" / release / "tried.json"
    return dict(json.loads(path.read_text())) if path.exists() else {}


def test_how_each_release_did_is_noted_beside_it(job: Activator) -> None:
    """Whoever goes back later has to know which was well; the state tells of the last alone."""
    job.runs().kill()
    job.children.pop()
    job.new("train.sh", NEW)
    job.begin()
    job.order("go")
    job.reach("launched")
    assert (set(tried(job, "r1")), tried(job, "r2")) == ({"ran"}, {})
    job.order("done")
    job.end("healthy")
    assert set(tried(job, "r2")) == {"healthy"}
    os.kill(job.runs_now("new"), 9)
    again(job, "r3", "exit 3\n")
    job.order("go")
    state = job.end("rolled_back")
    assert set(tried(job, "r3")) == {"failed", "reason"}
    assert tried(job, "r3")["reason"] == state["reason"] == "sh train.sh ended with exit code 3"
    assert set(tried(job, "r2")) == {"healthy"}
    assert [name for name in job.litter() if "status" not in name] == []


def again(job: Activator, release: str, text: str, **more: Any) -> None:
    """The next run, in the place of the one before."""
    (job.base / "order").unlink()
    job.spec |= {"launch": job.launch("third"), "launch_old": job.launch("back")}
    job.spec["files"].clear()
    job.spec["gone"].clear()
    job.new("train.sh", text)
    job.begin(release=release, before="r2", **more)


def test_what_is_left_running_though_unwell_is_noted_so(job: Activator) -> None:
    job.new("train.sh", NEW)
    job.begin()
    job.order("go")
    job.reach("launched")
    job.order("keep")
    state = job.end("unhealthy")
    assert tried(job, "r2")["reason"] == state["reason"]
    assert "healthy" not in tried(job, "r2")


def test_any_number_of_bad_ones_do_not_push_the_last_good_one_out(job: Activator) -> None:
    for age, name in enumerate(["good", *(f"bad-{number}" for number in range(7))]):
        place = job.base / "releases" / name
        place.mkdir(parents=True)
        (place / "manifest.json").write_text("{}")
        how = {"healthy": "2026"} if name == "good" else {"failed": "2026"}
        (place / "tried.json").write_text(json.dumps(how))
        os.utime(place, (1e9 + age, 1e9 + age))
    job.new("train.sh", NEW)
    job.begin()
    job.order("go")
    job.reach("launched")
    job.order("done")
    job.end("healthy")
    left = {path.name for path in (job.base / "releases").iterdir()}
    assert left == {"r2", "r1", "bad-6", "bad-5", "bad-4", "good"}


def restart(job: Activator, **spec: Any) -> None:
    """No files: what lies there is `r7`."""
    (job.base / "releases/r7").mkdir(parents=True)
    job.stage.mkdir()
    job.begin(release=None, before=None, before_manifest=None, stays="r7", **spec)


def test_a_restart_starts_the_release_that_lies_there(job: Activator) -> None:
    """Its status named it no more."""
    restart(job)
    job.order("go")
    assert job.reach("launched")["running"] == "r7"
    job.order("done")
    state = job.end("healthy")
    assert (state["release"], state["running"]) == (None, "r7")
    assert set(tried(job, "r7")) == {"healthy"}


def test_what_was_started_otherwise_than_by_its_manifest_makes_no_release_healthy(
    job: Activator,
) -> None:
    """It was gone back to, by the words of the manifest, and died."""
    restart(job, as_kept=False)
    job.order("go")
    job.reach("launched")
    job.order("done")
    assert job.end("healthy")["running"] == "r7"
    assert tried(job, "r7") == {}


def test_what_ran_otherwise_than_by_its_manifest_does_not_make_it_one_to_go_back_to(
    job: Activator,
) -> None:
    child = job.runs()
    job.new("train.sh", NEW)
    job.begin(ran_as_kept=False)
    child.kill()
    child.wait()
    job.order("go")
    job.reach("launched")
    job.order("done")
    job.end("healthy")
    assert (tried(job, "r1"), set(tried(job, "r2"))) == ({}, {"healthy"})


def test_a_restart_goes_back_to_how_it_ran(job: Activator) -> None:
    """The words were wrong: that says nothing of the release."""
    restart(job, launch=job.launch("new", argv=["sh", "-c", "exit 2"]))
    job.order("go")
    state = job.end("rolled_back")
    assert (state["running"], state["reason"]) == ("r7", "sh ended with exit code 2")
    assert state["files"] == "old"
    job.runs_now("old")
    assert tried(job, "r7") == {}


@pytest.mark.parametrize("files", [False, True])
def test_who_runs_is_known_also_while_and_after_a_stop_that_was_called_off(
    job: Activator, files: bool
) -> None:
    child = job.runs()
    its = {**job.spec["gone"][0], "mark": "m"}
    state = {"schema": 1, "run": "earlier", "trainer": its, "running": "r7", "ended_at": "2026"}
    state["resumes"] = ["--from", "@"]
    (job.base / "state.json").write_text(json.dumps(state))
    if files:
        job.new("train.sh", NEW)
        job.begin()
    else:
        restart(job)
    assert (job.state["trainer"], job.state["running"]) == (its, "r7")
    job.order("cancel")
    state = job.end("cancelled")
    assert (state["trainer"], state["running"], state["resumes"]) == (its, "r7", ["--from", "@"])
    child.kill()
    child.wait()
    (job.base / "order").unlink()
    job.stage.mkdir(exist_ok=True)
    job.spec["gone"].clear()
    job.spec["files"].clear()
    job.begin(release=None, before=None, before_manifest=None, stays="r7")
    assert (job.state["trainer"], job.state["running"]) == (None, None)
