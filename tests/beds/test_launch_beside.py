"""What a launch finds there: one that runs, leftovers, a holder of its GPU, the last death."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from .bed import Bed, lives, until
from .redeploying import LAUNCH, ask, stanza, trainers

pytestmark = [pytest.mark.bed, pytest.mark.timeout(300)]

GPU0 = "\n        gpus: [0]"
HOLDS = (
    "cd /root && setsid -f python3 -u other_train.py --gpus {gpu} --checkpoints /workspace/other"
    " >/workspace/other.log 2>&1 </dev/null"
)


def holder(box: Bed, gpu: int) -> int:
    place = box.lab.rootfs(box.vmid) / "root"
    (place / "other_train.py").write_text((place / "train.py").read_text())
    return box.start(HOLDS.format(gpu=gpu), how="raw", trainers=1, seconds=60).process.pid


def test_beside_a_running_one(box: Bed, tmp_path: Path) -> None:
    job, inventory = box.start(), stanza(box, tmp_path, LAUNCH)
    ran = ask(box, "launch", inventory=inventory)
    assert ran.code == 5, ran.people
    assert f"it runs already: {job.pid}" in ran.target["reason"]
    for verb in ("restart", "stop"):
        assert f"fleetstop {verb} {box.name}" in " ".join(ran.people.split())
    assert lives(job)
    assert ran.signals == []
    assert len(trainers(box)) == 1


def test_beside_leftovers(box: Bed, tmp_path: Path) -> None:
    """Data workers that outlived their trainer."""
    job = box.start("--workers", "2", "--worker-habit", "stuck")
    inventory = stanza(box, tmp_path, LAUNCH)
    os.kill(job.process.pid, signal.SIGKILL)
    until(lambda: not lives(job))
    ran = ask(box, "launch", inventory=inventory)
    assert ran.code == 5, ran.people
    assert "left" in ran.target["reason"]
    assert "fleetstop stop" in ran.people


@pytest.mark.parametrize(("gpu", "code"), [(0, 5), (1, 0)])
def test_beside_a_holder_of_a_gpu(box: Bed, tmp_path: Path, gpu: int, code: int) -> None:
    """Of its own: refused, naming it. A neighbour's on another does not matter."""
    other = holder(box, gpu)
    inventory = stanza(box, tmp_path, LAUNCH, GPU0)
    ran = ask(box, "launch", inventory=inventory)
    assert ran.code == code, ran.people
    assert Path(f"/proc/{other}").exists()
    if code:
        assert "GPU 0" in ran.target["reason"]
        assert "other_train.py" in ran.people
        assert trainers(box) == []
    else:
        assert len(trainers(box)) == 1


def test_the_last_death_that_nobody_explained_is_named(box: Bed, tmp_path: Path) -> None:
    inventory = stanza(box, tmp_path, LAUNCH)
    ran = ask(box, "launch", inventory=inventory)
    assert ran.code == 0, ran.people
    (pid,) = trainers(box)
    os.kill(pid, signal.SIGKILL)
    until(lambda: not trainers(box))
    again = ask(box, "launch", inventory=inventory)
    assert again.code == 0, again.people
    assert any("the last run ended by KILL" in each for each in again.target["findings"])
    assert "the last run ended by KILL" in again.people
    # a stop that was asked for explains itself
    assert box.run("stop", box.name, "--graceful", inventory=inventory).code == 0
    third = ask(box, "launch", inventory=inventory)
    assert third.code == 0, third.people
    assert not any("the last run ended" in each for each in third.target["findings"])


ODD = """#!/bin/bash
case "$*" in *-I*) echo "unknown option -I" >&2; exit 2;; esac
exec -a "$0" /usr/bin/python3 "$@"
"""


def test_a_python_that_is_none_for_us_starts_its_job_all_the_same(box: Bed, tmp_path: Path) -> None:
    """Too old, or a shim: another there does our work. With files nothing else may compile them."""
    launch = LAUNCH.replace("[python3,", "[/opt/odd/python3,")
    inventory = stanza(box, tmp_path, launch, "\n        deploy: {dest: /root}")
    odd = box.lab.rootfs(box.vmid) / "opt/odd/python3"
    odd.parent.mkdir(parents=True, exist_ok=True)
    odd.write_text(ODD)
    odd.chmod(0o755)
    ran = ask(box, "redeploy", str(box.lab.rootfs(box.vmid) / "root/train.py"), inventory=inventory)
    assert (ran.code, ran.target["result"]) == (7, "deploy_failed"), ran.people
    assert "/opt/odd/python3 did not answer" in ran.target["reason"]
    assert "Python 3.6 or later" in ran.target["hint"]
    assert trainers(box) == []
    ran = ask(box, "launch", inventory=inventory)
    assert ran.code == 0, ran.people
    assert any("python3 there starts the job instead" in each for each in ran.target["findings"])
    (first,) = trainers(box)
    # what runs is stopped only now that somebody is there who can bring it up again
    ran = ask(box, "restart", inventory=inventory)
    assert (ran.code, [each[0] for each in ran.signals]) == (0, ["INT"]), ran.people
    assert any("/opt/odd/python3 did not answer" in each for each in ran.target["findings"])
    assert box.saved()
    (second,) = trainers(box)
    assert second != first
    odd.unlink()


def test_a_redeploy_of_what_does_not_run_launches_it(box: Bed, tmp_path: Path) -> None:
    from . import versions

    inventory = stanza(box, tmp_path, LAUNCH, "\n        deploy: {dest: /root}")
    where = versions.sources(tmp_path / "src")
    ran = ask(box, "redeploy", str(where / "train.py"), inventory=inventory)
    assert ran.code == 0, ran.people
    assert ran.signals == []
    assert len(trainers(box)) == 1


def test_a_dry_run_of_a_launch_starts_nothing(box: Bed, tmp_path: Path) -> None:
    inventory = stanza(box, tmp_path, LAUNCH)
    ran = ask(box, "launch", "--dry-run", inventory=inventory)
    assert (ran.code, ran.target["result"]) == (0, "planned"), ran.people
    assert trainers(box) == []
    assert not (box.lab.rootfs(box.vmid) / "root/.fleetstop").exists()
