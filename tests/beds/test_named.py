"""A job named by something that is not the trainer: its shell's PID, a pattern that fits more."""

from __future__ import annotations

from pathlib import Path

import pytest

from .bed import Bed, lives, with_job

pytestmark = pytest.mark.bed

DETACHED = "exec setsid -f bash -c '{}' >/workspace/train.log 2>&1 </dev/null"
TRAINER = "python3 -u /root/train.py"


def test_a_pattern_that_fits_the_log_of_tee_leaves_tee_alone(box: Bed) -> None:
    """INT to tee as well, which --force agrees to, and the save dies of SIGPIPE."""
    pipe = f"{TRAINER} 2>&1 | tee /workspace/train.py.log"
    job = box.start(DETACHED.format(pipe), how="raw")
    ran = box.run("stop", box.name, "--pgrep", "train.py", "--force", "--ladder", "INT/20s")
    assert ran.code == 0, ran.people
    assert ran.signals == [("INT", [job.pid])]
    assert len(box.saved()) == 1


def test_the_pid_file_of_the_shell_that_started_it_asks_the_trainer(
    box: Bed, tmp_path: Path
) -> None:
    started = f"echo $$ >/workspace/pid; {TRAINER}; date"
    job = box.start(DETACHED.format(started), how="raw")
    stanza = "match: {pidfile: /workspace/pid}\n        checkpoints: /workspace/checkpoints"
    stanza += "\n        stop_signal: INT"
    ran = box.run("stop", box.name, inventory=with_job(box, tmp_path, stanza))
    assert ran.code == 0, ran.people
    assert ran.signals == [("INT", [job.pid])]
    assert len(box.saved()) == 1
    assert not lives(job)
