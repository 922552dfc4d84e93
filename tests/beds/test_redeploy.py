"""Redeploying, on real sshd, real containers and real signals: what must be shown of issue 4."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from . import versions
from .bed import Bed, Ran, lives, running, until, with_job

pytestmark = pytest.mark.bed

JOB = """match: {script: train.py}
        stop_signal: INT
        log: /workspace/train.log
        checkpoints: /workspace/checkpoints
        healthcheck: {log_matches: "tok/s", within: 20s}"""


def tree(root: Path) -> dict[str, str]:
    """Every file below it by its hash."""
    return {
        str(each.relative_to(root)): hashlib.sha256(each.read_bytes()).hexdigest()
        for each in sorted(root.rglob("*"))
        if each.is_file() and not each.is_symlink()
    }


class Code:
    """The place where the job's code lies, seen from the host."""

    def __init__(self, box: Bed) -> None:
        self.box = box
        self.root = box.lab.rootfs(box.vmid) / "root"
        self.before = tree(self.root)

    @property
    def train(self) -> str:
        return (self.root / "train.py").read_text()

    def untouched(self) -> bool:
        """As before, and nothing of ours beside it."""
        return tree(self.root) == self.before and not (self.root / ".fleetstop").exists()


def redeploy(box: Bed, *words: str, inventory: Path, deadline: float = 120.0) -> Ran:
    return box.run("redeploy", box.name, *words, inventory=inventory, deadline=deadline, pct=6)


def log(box: Bed) -> str:
    return (box.lab.rootfs(box.vmid) / "workspace/train.log").read_text(errors="replace")


def test_new_code_in_old_run_out_next_stop_graceful(box: Bed, tmp_path: Path) -> None:
    """The incident, from its deaf start to the one INT that saves."""
    job = box.start("--save-every", "2", how="deaf")
    until(box.saved)
    inventory = with_job(box, tmp_path, JOB)
    where = versions.sources(tmp_path / "src")
    ran = redeploy(box, str(where / "train.py"), "--force", inventory=inventory)
    assert ran.code == 0, ran.people
    assert ran.target["result"] == "redeployed"
    assert not lives(job)
    assert "version good" in log(box)
    assert [signal for signal, _ in ran.signals] == ["TERM"]  # lossy for it, and agreed to
    then = box.run("stop", box.name, "--graceful", inventory=inventory)
    assert then.code == 0, then.people
    assert [signal for signal, _ in then.signals] == ["INT"]
    assert then.target["checkpoint"]["written_after_signal"] is True
    assert running(box, "train.py") == []


def test_polite_saves_and_the_new_one_runs(box: Bed, tmp_path: Path) -> None:
    job = box.start("--save-seconds", "0.5")
    code, inventory = Code(box), with_job(box, tmp_path, JOB)
    where = versions.sources(tmp_path / "src")
    ran = redeploy(box, str(where / "train.py"), inventory=inventory)
    assert ran.code == 0, ran.people
    assert ran.signals == [("INT", [job.pid])]
    assert len(box.saved()) == 1
    assert code.train == versions.GOOD
    assert ran.target["release"]
    for name in ("staged", "proved", "activated", "healthy"):
        assert name in ran.names()


@pytest.mark.parametrize("text", ["BROKEN", "NEWER"])
def test_what_does_not_compile_there_touches_nothing(box: Bed, tmp_path: Path, text: str) -> None:
    job, inventory = box.start(), with_job(box, tmp_path, JOB)
    code = Code(box)
    where = versions.sources(tmp_path / "src", getattr(versions, text))
    ran = redeploy(box, str(where / "train.py"), inventory=inventory)
    assert ran.code == 7, ran.people
    assert ran.target["result"] == "deploy_failed"
    assert ran.signals == []
    assert "train.py:" in ran.people
    assert lives(job)
    assert code.untouched()
    assert box.signals_seen(job) == 0


@pytest.mark.parametrize(
    ("text", "reason"),
    [("DIES", "ended"), ("SILENT", "tok/s"), ("DEAF", "ignores")],
)
def test_an_unhealthy_version_is_rolled_back(
    box: Bed, tmp_path: Path, text: str, reason: str
) -> None:
    job = box.start("--save-seconds", "0.2")
    code, inventory = Code(box), with_job(box, tmp_path, JOB)
    old = code.train
    where = versions.sources(tmp_path / "src", getattr(versions, text))
    ran = redeploy(box, str(where / "train.py"), inventory=inventory)
    assert ran.code == 8, ran.people
    assert ran.target["result"] == "rolled_back"
    assert reason in ran.target["reason"]
    assert code.train == old
    assert not lives(job)
    (now,) = running(box, "/root/train.py\0")[:1] or [0]
    assert now
    then = box.run("stop", box.name, "--graceful", inventory=inventory)
    assert then.code == 0, then.people
    assert [signal for signal, _ in then.signals] == ["INT"]


@pytest.mark.parametrize("match", ["{pgrep: train}", "{exe: python3}"])
def test_what_starts_it_again_is_not_taken_for_the_job(
    box: Bed, tmp_path: Path, match: str
) -> None:
    """Our own processes there are `python3 … /root/.fleetstop/train/…`. Taken for it, the job would
    be stopped, called not clean, and never started again."""
    job = box.start("--save-seconds", "0.5")
    inventory = with_job(box, tmp_path, JOB.replace("{script: train.py}", match))
    where = versions.sources(tmp_path / "src")
    ran = redeploy(box, str(where / "train.py"), "--to", "/root", inventory=inventory)
    assert ran.code == 0, ran.people
    assert ran.signals == [("INT", [job.pid])]
    assert not lives(job)
    assert len(box.saved()) == 1
    then = box.run("stop", box.name, "--graceful", inventory=inventory)
    assert then.code == 0, then.people
    assert [signal for signal, _ in then.signals] == ["INT"]
    assert len(box.saved()) == 2
