"""Unprivileged containers, as Proxmox makes them by default: root in there is 100000 out here."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fleetstop.lab.login import login

from .bed import Bed, lives, until
from .limits import no_forks
from .test_vantage import Rootless

pytestmark = pytest.mark.bed

UNPRIVILEGED = True

SHIFT = 100_000


def owners(place: Path) -> set[int]:
    return {each.lstat().st_uid for each in (place, *place.rglob("*"))}


def test_status_sees_it_as_any_other(box: Bed) -> None:
    job = box.start("--save-every", "1", "--save-seconds", "0.2")
    assert Path(f"/proc/{job.host_pid}").stat().st_uid == SHIFT
    until(box.saved)
    ran = box.run("status", box.name)
    assert ran.code == 0, ran.people
    assert [each["index"] for each in ran.target["gpus"]] == [0]
    assert [each["pid"] for each in ran.target["family"] if each["role"] == "trainer"] == [job.pid]
    assert ran.target["verdict"] in ("busy", "saving")
    assert ran.target["checkpoint"]["complete"] is True
    assert "INT" in ran.people
    assert ran.target["findings"] == []


def test_polite_saves_by_one_int_and_the_files_are_its_own(box: Bed) -> None:
    job = box.start("--save-seconds", "1")
    ran = box.run("stop", box.name, "--graceful")
    assert ran.code == 0, ran.people
    assert (ran.target["result"], ran.target["verdict"]) == ("stopped", "gone")
    assert ran.signals == [("INT", [job.pid])]
    assert ran.target["checkpoint"]["complete"] is True
    assert ran.target["checkpoint"]["written_after_signal"] is True
    assert ran.target["gpus"][0]["held_mib"] == 0
    assert len(box.saved()) == 1
    assert box.signals_seen(job) == 1
    assert "run.sh: trainer ended with 0" in box.log(job)
    assert owners(box.checkpoints) == {SHIFT}
    assert (ran.connections, ran.pct_calls) == (1, 1)
    assert ran.target["findings"] == []


def test_deaf_is_untouched_until_forced(box: Bed) -> None:
    job = box.start(how="deaf")
    ran = box.run("stop", box.name, "--graceful")
    assert (ran.code, ran.target["verdict"], ran.signals) == (1, "deaf", []), ran.people
    assert lives(job)
    ran = box.run("stop", box.name, "--force")
    assert ran.code == 0, ran.people
    assert ran.signals == [("TERM", [job.pid])]
    assert not lives(job)


def test_where_it_can_save_nothing_no_signal_costs_the_work(box: Bed) -> None:
    """The classic slip: the host's root made the directory, and inside it is nobody's."""
    box.checkpoints.mkdir(mode=0o755)
    job = box.start("--save-seconds", "0.2")
    ran = box.run("status", box.name)
    told = f"{job.pid} can write nothing there: it is closed to the container's root"
    assert told in " ".join(ran.target["findings"])
    for dry in ((), ("--dry-run",)):
        ran = box.run("stop", box.name, "--graceful", *dry)
        assert (ran.code, ran.signals) == (5, []), ran.people
        assert told in ran.target["reason"]
    assert lives(job)
    os.chown(box.checkpoints, SHIFT, SHIFT)
    ran = box.run("stop", box.name, "--graceful")
    assert ran.code == 0, ran.people
    assert len(box.saved()) == 1
    assert box.signals_seen(job) == 1


def test_with_consent_it_is_ended_there_too(box: Bed) -> None:
    box.checkpoints.mkdir(mode=0o755)
    job = box.start("--save-seconds", "0.2")
    ran = box.run("stop", box.name, "--force")
    assert ran.code == 6, ran.people
    assert ran.target["reason"].startswith("not_saved")
    assert "can write nothing there" in " ".join(ran.target["findings"])
    assert not lives(job)


def test_a_directory_of_its_own_below_one_that_is_closed_is_enough(box: Bed) -> None:
    (box.checkpoints / "run1").mkdir(parents=True)
    os.chown(box.checkpoints / "run1", SHIFT, SHIFT)
    job = box.start("--save-seconds", "0.2", "--checkpoints", "/workspace/checkpoints/run1")
    ran = box.run("stop", box.name, "--graceful")
    assert ran.code == 0, ran.people
    assert ran.signals == [("INT", [job.pid])]
    assert box.saved() != []


def test_what_is_closed_to_its_root_is_not_told_as_empty(box: Bed) -> None:
    box.checkpoints.mkdir(mode=0o700)
    job = box.start("--save-seconds", "0.2")
    ran = box.run("status", box.name)
    assert "what is saved could not be seen" in " ".join(ran.target["findings"])
    ran = box.run("stop", box.name, "--graceful", "--dry-run")
    assert "checkpoint  could not be seen" in ran.people
    assert lives(job)


def test_without_root_on_the_host_roots_shell_inside_does_it(box: Bed, tmp_path: Path) -> None:
    with login() as who:
        who.allow(str(box.lab.pct), str(box.lab.nvidia_smi))
        job = box.start("--save-seconds", "1")
        ran = Rootless(box, who, tmp_path).run("stop", box.name, "--graceful")
    assert ran.code == 0, ran.people
    assert ran.signals == [("INT", [job.pid])]
    assert ran.target["checkpoint"]["written_after_signal"] is True
    assert box.signals_seen(job) == 1
    assert owners(box.checkpoints) == {SHIFT}


def test_not_entered_its_files_are_seen_from_the_host(box: Bed) -> None:
    job = box.start("--save-seconds", "1")
    no_forks(box)
    ran = box.run("stop", box.name, "--graceful", deadline=120)
    assert ran.code == 0, ran.people
    assert ran.signals == [("INT", [job.pid])]
    assert "its files are seen from the host" in " ".join(ran.target["findings"])
    assert ran.target["checkpoint"]["complete"] is True
    assert box.signals_seen(job) == 1
