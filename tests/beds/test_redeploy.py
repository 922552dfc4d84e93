"""Redeploying, on real sshd, real containers and real signals: what must be shown of issue 4."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from . import versions
from .bed import Bed, lives, until
from .redeploying import (
    JOB,
    LAUNCH,
    Code,
    Inside,
    ask,
    log,
    redeploy,
    refused_untouched,
    rotated,
    stanza,
    stops_by_one_int,
    trainers,
)

pytestmark = [pytest.mark.bed, pytest.mark.timeout(300)]


@pytest.mark.parametrize("consent", ["--force", "--after-checkpoint"])
def test_new_code_in_old_run_out_next_stop_graceful(box: Bed, tmp_path: Path, consent: str) -> None:
    """The incident, from its deaf start to the one INT that saves."""
    job = box.start("--save-every", "5", how="deaf")
    until(box.saved)
    inventory = stanza(box, tmp_path)
    where = versions.sources(tmp_path / "src")
    ran = redeploy(box, str(where / "train.py"), consent, inventory=inventory)
    assert ran.code == 0, ran.people
    assert ran.target["result"] == "redeployed"
    assert not lives(job)
    assert "version good" in log(box)
    assert [signal for signal, _ in ran.signals] == ["TERM"]  # lossy for it, and agreed to
    old = rotated(box)
    assert old.count(".pt.tmp: 0%") == old.count("saved /") >= 1  # and not in the middle of a save
    stops_by_one_int(box, inventory)
    assert trainers(box) == []


def test_without_consent_the_deaf_one_runs_on_and_nothing_is_left(box: Bed, tmp_path: Path) -> None:
    """A stop that was not had: its exit code, nothing activated, the stage removed."""
    job, inventory = box.start(how="deaf"), stanza(box, tmp_path)
    code = Code(box)
    before = code.train
    where = versions.sources(tmp_path / "src")
    ran = redeploy(box, str(where / "train.py"), "--graceful", inventory=inventory)
    assert ran.code == 1, ran.people
    assert ran.target["result"] == "still_running"
    assert lives(job)
    assert code.train == before
    assert not list(code.root.rglob("stage-*"))
    assert not list(code.root.glob(".*.fleetstop-*"))


def test_polite_saves_and_the_new_one_runs(box: Bed, tmp_path: Path) -> None:
    job = box.start("--save-seconds", "0.5")
    code, inventory = Code(box), stanza(box, tmp_path)
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
    job, inventory = box.start(), stanza(box, tmp_path)
    code = Code(box)
    where = versions.sources(tmp_path / "src", getattr(versions, text))
    ran = redeploy(box, str(where / "train.py"), inventory=inventory)
    refused_untouched(ran, job, code, "train.py:", "cannot compile")


@pytest.mark.parametrize(
    ("text", "reason"),
    [("DIES", '; last line: "'), ("SILENT", "tok/s"), ("DEAF", "ignores")],
)
def test_an_unhealthy_version_is_rolled_back(
    box: Bed, tmp_path: Path, text: str, reason: str
) -> None:
    job = box.start("--save-seconds", "0.2")
    inside = Inside(box)
    file = inside.at("/root/train.py")
    os.chown(file, 33, 34)
    file.chmod(0o640)
    code, inventory = Code(box), stanza(box, tmp_path)
    old = code.train
    where = versions.sources(tmp_path / "src", getattr(versions, text))
    ran = redeploy(box, str(where / "train.py"), inventory=inventory)
    assert ran.code == 8, ran.people
    assert ran.target["result"] == "rolled_back"
    assert reason in ran.target["reason"]
    assert code.train == old
    seen = file.stat()
    assert (seen.st_uid, seen.st_gid, stat.S_IMODE(seen.st_mode)) == (33, 34, 0o640)
    assert not lives(job)
    assert len(trainers(box)) == 1
    stops_by_one_int(box, inventory)


@pytest.mark.parametrize("text", ["DIES", "DEAF"])
def test_no_rollback_leaves_it_as_it_is(box: Bed, tmp_path: Path, text: str) -> None:
    box.start("--save-seconds", "0.2")
    code, inventory = Code(box), stanza(box, tmp_path)
    where = versions.sources(tmp_path / "src", getattr(versions, text))
    ran = redeploy(box, str(where / "train.py"), "--no-rollback", inventory=inventory)
    assert ran.code == 8, ran.people
    assert ran.target["result"] == "unhealthy"
    assert code.train == getattr(versions, text)
    assert len(trainers(box)) == (text == "DEAF")
    assert "as --no-rollback has it" in ran.target["reason"]
    assert [signal for signal, _ in ran.signals] == ["INT"]
    if text == "DIES":  # what it says is needed for the way back is enough for it
        told = " ".join(ran.people.split())
        assert "where its code lies, so say there: deploy: {dest: /root} next" in told
        again = stanza(box, tmp_path, "\n        deploy: {dest: /root}")
        back = ask(box, "rollback", inventory=again)
        assert back.code == 0, back.people
        assert code.train != getattr(versions, text)


RUN_SH = {
    "drops": ("cd /root; exec python3 -u /root/train.py", "word"),
    "cleans": ('cd /root; exec env -i PATH="$PATH" python3 -u /root/train.py "$@"', "TAG"),
    "waits": ('cd /root; python3 -u /root/train.py "$@" &\nwait', "ignores INT"),
    "leaves": ('cd /root; nohup python3 -u /root/train.py "$@" &', "ignores INT"),
}


@pytest.mark.parametrize("how", RUN_SH)
def test_a_run_sh_that_loses_what_it_is_given(box: Bed, tmp_path: Path, how: str) -> None:
    """Arguments, environment, or the ears of what it starts: a finding, and 8."""
    text, said = RUN_SH[how]
    job = box.start("--save-seconds", "0.2")
    Inside(box).at("/root/run.sh").write_text(f"#!/bin/bash\n{text}\n")
    launch = "\n        launch: {run: [/root/run.sh], cwd: /root, env: {TAG: x}}"
    inventory = stanza(box, tmp_path, launch)
    where = versions.sources(tmp_path / "src")
    words = (str(where / "train.py"), "--no-rollback", "--", "--save-seconds", "0.3")
    ran = redeploy(box, *words, inventory=inventory)
    assert ran.code == 8, ran.people
    assert ran.target["result"] == "unhealthy"
    assert said in ran.target["reason"], ran.target["reason"]
    assert not lives(job)
    assert len(trainers(box)) == 1  # it runs on: nobody asked for more
    assert ("`exec python …`, or no &; then: " in " ".join(ran.people.split())) is (
        said == "ignores INT"  # nothing is wrong with the file that was sent
    )
    if how == "waits":  # the same run.sh would start the next one: told before anything is stopped
        again = ask(box, "restart", "-n", "--force", inventory=inventory)
        assert again.code == 0, again.people
        (found,) = (each for each in again.target["findings"] if "into the background" in each)
        assert found.endswith("in run.sh: `exec python …`, or no &")
        assert "(run.sh) hears INT, and " in " ".join(again.people.split())
        stop = ask(box, "stop", "--graceful", inventory=inventory)
        assert (stop.code, stop.signals) == (1, [])
        assert stop.target["evidence"][0].endswith("run.sh, which hears INT itself")
        assert "launches it able to hear" not in stop.people  # it would not
        file = Inside(box).at("/root/run.sh")
        file.write_text(file.read_text().replace(" &\nwait", "\n"))
        mended = ask(box, "restart", "-n", "--force", inventory=inventory)
        assert "into the background" not in " ".join(mended.target["findings"])


PASSES = {
    "plain": 'python3 -u train.py "$@"',
    "exec": 'exec python3 -u train.py "$@"',
    # its own output goes nowhere, and it logs by itself: that is where its health is read
    "logs": 'python3 -u train.py "$@" >> /workspace/train.log 2>&1',
    "tees": 'exec python3 -u train.py "$@" 2>&1 | tee -a /workspace/train.log',
}


@pytest.mark.parametrize("how", PASSES)
def test_a_run_sh_that_passes_all_on(box: Bed, tmp_path: Path, how: str) -> None:
    own = how in ("logs", "tees")
    Inside(box).at("/root/run.sh").write_text(f"#!/bin/bash\ncd /root\n{PASSES[how]}\n")
    box.start("--save-seconds", "0.2", **({"log": "/dev/null"} if own else {}))
    launch = "\n        launch: {run: [/root/run.sh], cwd: /root, env: {TAG: x}}"
    job = JOB.replace("log: /workspace/train.log\n        ", "") if how == "tees" else JOB
    inventory = stanza(box, tmp_path, launch if how != "logs" else "", job=job)
    where = versions.sources(tmp_path / "src")
    words = (str(where / "train.py"), "--", "--save-seconds", "0.3")
    ran = redeploy(box, *words, inventory=inventory)
    assert ran.code == 0, ran.people
    (shown,) = (each for each in ran.events if each["event"] == "launch_shown")
    assert (shown["log"] is None, shown["reads"]) == (own, "/workspace/train.log")
    assert ("train.log, which it opens itself" in ran.people) is own
    assert log(box).count("version good") == 1  # nobody else opens it too
    stops_by_one_int(box, inventory)


def test_the_very_same_again_sends_nothing_and_stops_nothing(box: Bed, tmp_path: Path) -> None:
    box.start("--save-seconds", "0.2")
    inventory = stanza(box, tmp_path, LAUNCH)
    where = versions.sources(tmp_path / "src")
    first = redeploy(box, str(where / "train.py"), inventory=inventory)
    assert first.code == 0, first.people
    (pid,) = trainers(box)
    again = ask(box, "redeploy", str(where / "train.py"), inventory=inventory)
    assert again.code == 0, again.people
    assert again.signals == []
    assert trainers(box) == [pid]
    assert JOB in inventory.read_text()


@pytest.mark.parametrize("match", ["{pgrep: train}", "{exe: python3}"])
def test_what_starts_it_again_is_not_taken_for_the_job(
    box: Bed, tmp_path: Path, match: str
) -> None:
    """Our own processes there are `python3 … /root/.fleetstop/train/…`. Taken for it, the job would
    be stopped, called not clean, and never started again."""
    job = box.start("--save-seconds", "0.5")
    inventory = stanza(box, tmp_path, job=JOB.replace("{script: train.py}", match))
    where = versions.sources(tmp_path / "src")
    ran = redeploy(box, str(where / "train.py"), "--to", "/root", inventory=inventory)
    assert ran.code == 0, ran.people
    assert ran.signals == [("INT", [job.pid])]
    assert not lives(job)
    assert len(box.saved()) == 1
    stops_by_one_int(box, inventory)
