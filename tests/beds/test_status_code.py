"""What status says of the code that a job runs, and of what a deploy has left: on the real bed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from . import versions
from .bed import Bed, Ran, running, until, with_job
from .test_above import four_ranks, needs_torch

pytestmark = pytest.mark.bed

JOB = "match: {script: train.py}\n        stop_signal: INT"
FILES = JOB + "\n        log: /workspace/train.log\n        checkpoints: /workspace/checkpoints"
OLD = "/root/train.py is {} newer than the process: it runs the OLD code"


def code(ran: Ran) -> dict[str, Any]:
    """What was told of the one tree's code."""
    (told,) = [each for each in ran.events if each["event"] == "located"]
    found = told["code"]
    assert isinstance(found, dict)
    assert found["unseen"] is None, found
    return found


def status(box: Bed, inventory: Path, pct: int = 0) -> Ran:
    ran = box.run("status", box.name, inventory=inventory, pct=pct)
    assert ran.code == 0, ran.people
    return ran


def root(box: Bed) -> Path:
    return box.lab.rootfs(box.vmid) / "root"


def settle() -> None:
    """Until a file's date differs from a process's start by more than they are told to."""
    time.sleep(0.3)


def test_an_edit_after_the_start_is_told_and_costs_no_pct(box: Bed, tmp_path: Path) -> None:
    inventory = with_job(box, tmp_path, JOB)
    box.start()
    before = status(box, inventory)
    assert (code(before)["old"], before.target["findings"]) == (False, [])
    assert before.connections == 1
    assert before.pct_calls == 0
    settle()
    (root(box) / "other.py").write_text("# nothing of the job's\n")
    assert code(status(box, inventory))["old"] is False
    with (root(box) / "train.py").open("a") as file:
        file.write("# better\n")
    after = status(box, inventory)
    assert code(after)["old"] is True
    (said,) = after.target["findings"]
    assert said.startswith("/root/train.py is ")
    assert said.endswith(" newer than the process: it runs the OLD code")
    assert "  code    /root/train.py is " in after.people
    assert (after.connections, after.pct_calls) == (1, 0)
    # the same with log and checkpoints, for which the container is entered
    assert code(status(box, with_job(box, tmp_path, FILES), pct=1))["old"] is True


def test_dates_that_lie(box: Bed, tmp_path: Path) -> None:
    """scp -p, rsync -t and tar give a file the date it had elsewhere; touch gives it any."""
    inventory, train = with_job(box, tmp_path, JOB), root(box) / "train.py"
    os.utime(train, (time.time() + 86400,) * 2)  # tomorrow's date, before it was started
    settle()
    box.start()
    assert code(status(box, inventory))["old"] is False
    settle()
    new = tmp_path / "train.py"
    new.write_text(versions.GOOD)
    os.utime(new, (1_600_000_000,) * 2)
    # as scp -p does it: into the same file, and then its old date
    shutil.copy2(new, train)
    found = code(status(box, inventory))
    assert (found["old"], found["newer"]) == (None, "/root/train.py")
    assert "though its date is older: it may run the OLD code" in found["said"]
    # as rsync -t and tar do it: another file in its place
    shutil.copy2(new, train.with_name(".train.py.x"))
    os.rename(train.with_name(".train.py.x"), train)
    found = code(status(box, inventory))
    born = os.stat(train)  # where the file system tells when a file was made, it is sure
    sure = subprocess.run(["stat", "-c", "%W", train], capture_output=True, text=True, check=True)
    assert found["old"] is (True if int(sure.stdout) > 0 else None), (found, born)


def test_a_module_that_it_imports(box: Bed, tmp_path: Path) -> None:
    """No more is said of it than can be known: what was imported before is old."""
    inventory, home = with_job(box, tmp_path, JOB), root(box)
    (home / "model.py").write_text("LAYERS = 3\n")
    (home / "train.py").write_text("import model  # noqa\n" + versions.GOOD.replace(
        "from __future__ import annotations\n", ""))  # fmt: skip
    settle()
    box.start()
    settle()
    (home / "model.py").write_text("LAYERS = 4\n")
    found = code(status(box, inventory))
    assert (found["old"], found["newer"]) == (None, "/root/model.py")
    assert found["said"].startswith("/root/model.py, which it imports, is ")
    assert found["said"].endswith("what it imported from there before is the OLD code")


def test_a_module_run_by_its_name(box: Bed, tmp_path: Path) -> None:
    inventory = with_job(box, tmp_path, "match: {module: pkg.train}\n        stop_signal: INT")
    package = box.lab.rootfs(box.vmid) / "workspace/pkg"
    package.mkdir()
    for name in ("train.py", "stuck.py", "waits.py", "checkpoint_formats.py"):
        shutil.copy(root(box) / name, package / name)
    (package / "__init__.py").write_text("")
    settle()
    text = "cd /workspace; setsid -f python3 -u -m pkg.train >train.log 2>&1 </dev/null"
    job = box.start(text, how="raw", trainers=0)
    until(lambda: "step" in box.log(job))
    assert code(status(box, inventory))["old"] is False
    settle()
    (package / "__init__.py").write_text("# new\n")
    found = code(status(box, inventory))
    assert found["main"] == "/workspace/pkg/train.py"
    assert found["newer"] == "/workspace/pkg/__init__.py"
    (package / "train.py").write_text(versions.GOOD)
    assert code(status(box, inventory))["old"] is True
    box.run("stop", box.name, "--force", inventory=inventory)


def test_a_redeploy_a_rollback_and_an_edit_after_it(box: Bed, tmp_path: Path) -> None:
    box.start("--save-seconds", "0.2")
    inventory = with_job(
        box, tmp_path, FILES + '\n        healthcheck: {log_matches: "tok/s", within: 20s}'
    )
    where = versions.sources(tmp_path / "src")
    ran = box.run(
        "redeploy", box.name, str(where / "train.py"), inventory=inventory, deadline=120.0, pct=6
    )
    assert ran.code == 0, ran.people
    new, before = ran.target["release"]["running"], ran.target["release"]["before"]
    told = status(box, inventory, pct=1)
    assert (code(told)["release"], code(told)["certain"], code(told)["old"]) == (new, True, False)
    assert told.target["release"] == {"id": new, "before": before, "running": new}
    assert told.target["findings"] == []
    assert f"  code    release {new} runs" in told.people
    # written again, the same: its hash tells that it is what runs
    settle()
    train = root(box) / "train.py"
    train.write_text(train.read_text())
    assert code(status(box, inventory, pct=1))["old"] is False
    with train.open("a") as file:
        file.write("# by hand, after the deploy\n")
    told = status(box, inventory, pct=1)
    assert (code(told)["release"], code(told)["old"]) == (new, True)
    back = box.run("rollback", box.name, inventory=inventory, deadline=120.0, pct=6)
    assert back.code == 0, back.people
    told = status(box, inventory, pct=1)
    assert code(told)["old"] is False, told.people
    assert code(told)["release"] == back.target["release"]["running"]
    # started again by hand: what lies on disk tells, as long as nothing was changed since
    box.run("stop", box.name, inventory=inventory)
    box.start()
    told = status(box, inventory, pct=1)
    assert (code(told)["release"], code(told)["certain"]) == (
        back.target["release"]["running"],
        False,
    )


def test_an_unhealthy_one_that_was_rolled_back_and_how_it_died(box: Bed, tmp_path: Path) -> None:
    # without a shell around it, which would tell of its own end only
    text = "cd /root; setsid -f python3 -u /root/train.py >/workspace/train.log 2>&1 </dev/null"
    box.start(text, how="raw")
    dest = "\n        deploy: {dest: /root}\n        healthcheck: {within: 4s}"
    inventory = with_job(box, tmp_path, JOB + dest)
    where = versions.sources(tmp_path / "src", versions.DIES)
    ran = box.run(
        "redeploy", box.name, str(where / "train.py"), "--force", inventory=inventory,
        deadline=120.0, pct=6,
    )  # fmt: skip
    assert ran.target["result"] == "rolled_back", ran.people
    told = status(box, inventory)
    assert code(told)["release"] == ran.target["release"]["running"]
    (said,) = told.target["findings"]
    assert said.startswith(f"release {ran.target['release']['id']} was not well at ")
    assert said.endswith("; what ran before is back")
    # and then it is killed by somebody: nothing of ours says a word, status does
    (pid,) = [each["host_pid"] for each in told.target["family"] if each["role"] == "trainer"]
    os.kill(pid, signal.SIGKILL)
    until(lambda: pid not in box.lab.host_pids(box.vmid))
    settle()
    told = status(box, inventory)
    assert told.target["result"] == "not_running"
    (rolled, death) = told.target["findings"]
    assert "was not well at" in rolled
    assert death.startswith("the last run ended by KILL at "), told.people


def test_the_activator_that_waits_and_one_that_has_lost_its_client(
    box: Bed, tmp_path: Path
) -> None:
    job = box.start("--save-seconds", "20")
    inventory = with_job(box, tmp_path, FILES)
    where = versions.sources(tmp_path / "src")
    client = box.popen("redeploy", box.name, str(where / "train.py"), inventory=inventory)
    until(lambda: box.signals_seen(job) > 0)
    told = box.run("status", box.name, inventory=inventory, pct=6)
    (said,) = [e for e in told.target["findings"] if e.startswith("the activator ")]
    assert said.endswith("is at it: it waits for the end of what runs")
    assert code(told)["old"] is False  # what the activator does beside it is no change of it
    client.process.kill()
    client.process.communicate()
    until(lambda: running(box, "supervise.py"), 90.0)  # it went on by itself
    until(lambda: "confirmed_by" in _state(box) or "unconfirmed" in _state(box), 90.0)
    told = status(box, inventory, pct=1)
    assert code(told)["release"] is not None, told.people
    assert code(told)["old"] is False


def _state(box: Bed) -> str:
    return (root(box) / ".fleetstop/train/state.json").read_text()


@needs_torch
def test_the_ranks_of_torchrun(box: Bed, tmp_path: Path) -> None:
    four_ranks(box)
    inventory = with_job(box, tmp_path, "match: {script: ranks.py}\n        stop_signal: INT")
    assert code(status(box, inventory))["old"] is False
    settle()
    with (root(box) / "ranks.py").open("a") as file:
        file.write("# better\n")
    found = code(status(box, inventory))
    assert (found["main"], found["old"]) == ("/root/ranks.py", True)
    box.run("stop", box.name, "--force", inventory=inventory)
