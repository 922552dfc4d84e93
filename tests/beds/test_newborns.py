"""What has just been started: it is watched, and ended as gently as any other."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import versions
from .bed import Bed, lives
from .redeploying import JOB, LAUNCH, ask, redeploy, stanza, stops_by_one_int, trainers

pytestmark = [pytest.mark.bed, pytest.mark.timeout(300)]
SOON = JOB.replace("within: 20s", "within: 4s")


def test_one_that_saves_is_not_cut(box: Bed, tmp_path: Path) -> None:
    """It rewrites its only checkpoint all the time and never logs what it should. KILL at once, or
    INT in a save, would leave no whole checkpoint at all."""
    job = box.start("--save-seconds", "0.2")
    inventory = stanza(box, tmp_path, LAUNCH, job=SOON)
    where = versions.sources(tmp_path / "src", versions.SILENT)
    words = ("--save-seconds", "3", "--save-every", "2", "--in-place")
    ran = redeploy(box, str(where / "train.py"), "--", *words, inventory=inventory)
    assert (ran.code, ran.target["result"]) == (8, "rolled_back"), ran.people
    assert box.whole(box.checkpoints / "latest.pt")
    assert [signal for signal, _ in ran.signals] == ["INT", "INT"]
    assert ran.signals[0] == ("INT", [job.pid])
    assert not lives(job)
    assert len(trainers(box)) == 1


def test_the_gpus_that_are_declared_are_seen_in_use(box: Bed, tmp_path: Path) -> None:
    inventory = stanza(box, tmp_path, LAUNCH, "\n        gpus: [0, 1]")
    ran = ask(box, "launch", "--", "--gpus", "0,1", inventory=inventory)
    assert ran.code == 0, ran.people
    assert "uses GPU 0-1" in " ".join(ran.people.split())
    stops_by_one_int(box, inventory)


def test_one_that_is_killed_by_a_fault_of_its_own(box: Bed, tmp_path: Path) -> None:
    """SIGSEGV, as a broken kernel module of CUDA has it: told by its name, with its last words."""
    box.start("--save-seconds", "0.2")
    inventory = stanza(box, tmp_path, LAUNCH)
    where = versions.sources(tmp_path / "src", versions.FAULTY)
    ran = redeploy(box, str(where / "train.py"), inventory=inventory)
    assert (ran.code, ran.target["result"]) == (8, "rolled_back"), ran.people
    assert "SEGV" in ran.target["reason"]
    assert "version faulty" in " ".join(ran.people.split())
    assert len(trainers(box)) == 1
