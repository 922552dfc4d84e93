"""Once it is launched: who judges the new version, and when the old one comes back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.activation import NEW, OLD, Activator, alive, start_of, until

LEAVES_ONE = "sleep 300 & echo $! >child; exit 4\n"
QUICK = {"within_s": 0.2, "log_matches": "tok/s"}


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Activator]:
    made = Activator(tmp_path)
    made.old("train.sh", OLD)
    made.log.write_text("old tok/s\n")
    yield made
    made.close()


def launched(job: Activator, text: str, **spec: Any) -> dict[str, Any]:
    job.new("train.sh", text)
    job.begin("go", **spec)
    return job.reach("launched")


def back(job: Activator) -> dict[str, Any]:
    state = job.end("rolled_back")
    assert (state["files"], state["running"], state["confirmed_by"]) == ("old", "r1", None)
    assert (job.dest / "train.sh").read_text() == OLD
    assert (job.base / "releases/r2/files/train.sh").exists()  # to see what was wrong with it
    pid = job.runs_now("old")
    until(lambda: "old tok/s" in job.log.read_text(), "the old version logs")
    assert job.secrets() == []
    assert Path(f"/proc/{pid}/cmdline").read_text() == "sleep\x00300\x00"
    return state


def test_a_version_that_dies_after_a_while_is_taken_back(job: Activator) -> None:
    started = time.monotonic()
    launched(job, "sleep 2; echo no --lr; exit 7\n")
    state = back(job)
    assert time.monotonic() - started > 2
    assert (state["exit"], state["signal"]) == (7, None)
    assert state["reason"] == 'sh train.sh ended with exit code 7 (last line: "no --lr")'


def test_a_version_that_cannot_be_executed_is_taken_back(job: Activator) -> None:
    """Its interpreter was there when that was asked."""
    job.new("train.sh", NEW)
    python = job.old("python", "#!/bin/sh\n", 0o755)
    job.begin(launch=job.launch("new", argv=[str(python), "train.sh"]))
    python.unlink()
    job.order("go")
    state = back(job)
    assert state["reason"] == f"cannot run {python}: No such file or directory"
    assert (state["exit"], state["signal"]) == (None, None)


@pytest.mark.parametrize(
    ("last", "told"),
    [
        ("train.py: error: no --lr", ' (last line: "train.py: error: no --lr")'),
        ("KeyError: 1\\033[0m\\r", ' (last line: "KeyError: 1?[0m")'),
        ("HF_TOKEN=hf_AbCdEf", ""),  # a secret is not kept: better no line than that
        ("", ""),
    ],
)
def test_a_wrappers_0_is_not_kept_as_its_trainers_end(job: Activator, last: str, told: str) -> None:
    job.new("train.sh", f"printf 'more\\n{last}\\n'; sh -c 'exit 2'; exit 0\n")
    if not last:
        job.new("train.sh", "true\n")
        job.spec["files"].pop(0)
    job.begin()
    job.order("go")
    reason = back(job)["reason"]
    assert reason == f"sh train.sh ended with exit code 0, its trainer's own end is not known{told}"


def test_a_version_that_a_signal_ends_is_taken_back(job: Activator) -> None:
    launched(job, NEW)
    os.kill(job.runs_now("new"), signal.SIGSEGV)
    state = back(job)
    assert (state["exit"], state["signal"]) == (None, "SEGV")
    assert state["reason"] == 'sh train.sh was ended by SEGV (last line: "new tok/s")'


def test_what_the_client_finds_unhealthy_it_ends_and_sends_back(job: Activator) -> None:
    launched(job, NEW, roll_back=False, health={"within_s": 300, "log_matches": "tok/sec"})
    new = job.runs_now("new")
    job.order("back")
    until(lambda: job.state["order"] == "back", "it tells that it heard")
    time.sleep(0.5)
    assert job.state["step"] == "launched"  # it lives: nothing is put back under its feet
    assert (job.dest / "train.sh").read_text() == NEW
    os.kill(new, signal.SIGKILL)
    assert back(job)["signal"] == "KILL"


def test_what_is_not_ended_stays(job: Activator) -> None:
    launched(job, NEW)
    new = job.runs_now("new")
    job.order("back")
    state = job.end("unhealthy")
    assert state["reason"] == f"PID {new} is alive: the old version was not brought back"
    assert (state["files"], state["running"]) == ("new", "r2")
    job.runs_now("new")


@pytest.mark.parametrize("roll_back", [True, False])
def test_what_is_unhealthy_and_kept_is_never_called_healthy(
    job: Activator, roll_back: bool
) -> None:
    """Its log tells of health, as that of a deaf one does; its client is gone soon after."""
    text = "echo 12 tok/s; exec sleep 300\n"
    launched(job, text, roll_back=roll_back, stale_s=1.0, health=QUICK)
    job.order("keep")
    state = job.end("unhealthy")
    assert (state["order"], state["confirmed_by"]) == ("keep", None)
    assert state["reason"] == "the client found it so; it was left running"
    assert (state["files"], state["running"]) == ("new", "r2")
    job.runs_now("new")
    assert job.litter() == [".fleetstop/train/status/new.json.end"]  # its supervisor's own


def test_what_is_unwell_comes_back_by_itself_once_it_has_ended(job: Activator) -> None:
    """The client left in the middle of ending it."""
    launched(job, "echo 12 tok/s; exec sleep 300\n", stale_s=0.5, patience_s=60.0, health=QUICK)
    new = job.runs_now("new")
    job.order("unwell")
    until(lambda: job.state["order"] == "unwell", "it tells that it heard")
    time.sleep(1.5)  # it would have been called healthy by now
    assert (job.state["step"], job.state["ended_at"]) == ("launched", None)
    os.kill(new, signal.SIGINT)
    assert back(job)["signal"] == "INT"


def test_what_is_unwell_and_does_not_end_is_not_waited_for_for_ever(job: Activator) -> None:
    launched(job, "echo 12 tok/s; exec sleep 300\n", stale_s=0.5, patience_s=1.0, health=QUICK)
    job.order("unwell")
    state = job.end("unhealthy")
    assert state["reason"] == "the client found it so, and left before it had ended"
    assert (state["files"], state["running"]) == ("new", "r2")
    job.runs_now("new")


def test_without_a_way_back_it_stays_down(job: Activator) -> None:
    job.new("train.sh", "exit 3\n")
    job.begin(roll_back=False)
    job.order("go")
    state = job.end("unhealthy")
    assert (state["exit"], state["reason"]) == (3, "sh train.sh ended with exit code 3")
    assert (state["files"], state["running"], state["trainer"]) == ("new", None, None)
    assert (job.dest / "train.sh").read_text() == "exit 3\n"


def test_done_is_not_believed_of_what_is_dead(job: Activator) -> None:
    launched(job, NEW, roll_back=False)
    job.children.append(job.activator)
    os.kill(job.activator[0], signal.SIGSTOP)
    os.kill(job.runs_now("new"), signal.SIGKILL)
    until(lambda: json.loads((job.base / "status/new.json").read_text())["ended_at"], "it is dead")
    job.order("done")
    os.kill(job.activator[0], signal.SIGCONT)
    assert job.end("unhealthy")["signal"] == "KILL"


@pytest.mark.parametrize("code", [4, 0])
def test_nothing_is_started_beside_what_the_new_version_left(job: Activator, code: int) -> None:
    """As a run.sh that puts its trainer into the background: that one may train on. Of its 0 it is
    not said that its trainer's end is unknown: that lives."""
    leaves_one = LEAVES_ONE.replace("exit 4", f"exit {code}")
    job.new("train.sh", leaves_one)
    job.begin()
    job.order("go")
    until(lambda: job.state["exit"] == code, "its end is told")
    child = int((job.dest / "child").read_text())
    one = child, start_of(child)
    job.children.append(one)
    time.sleep(1.0)
    state = job.state
    assert (state["step"], state["ended_at"]) == ("launched", None)
    [finding] = state["findings"]
    said = f"sh train.sh ended with exit code {code}"
    assert finding.startswith(f"{said}, but what it started lives on: ")
    assert finding.endswith(f" {child}")
    assert (job.dest / "train.sh").read_text() == leaves_one
    os.kill(child, signal.SIGKILL)
    state = back(job)
    assert state["exit"] == code
    # whoever reads it last is not told of somebody who lives on
    told = f"{said}; what it had started ended after it: {child}"
    assert state["findings"] == [told]


def test_done_is_not_believed_of_a_wrapper_that_ended_either(job: Activator) -> None:
    job.new("train.sh", LEAVES_ONE)
    job.begin()
    job.order("go")
    until((job.dest / "child").exists, "it leaves a child")
    job.reach("launched")
    job.order("done")
    state = job.end("unconfirmed")
    child = int((job.dest / "child").read_text())
    job.children.append((child, start_of(child)))
    assert state["reason"] == "sh train.sh ended with exit code 4, before the client had judged"
    [finding] = state["findings"]
    assert finding.endswith(f"but what it started lives on: {child}")
    assert (state["confirmed_by"], state["files"]) == (None, "new")


@pytest.mark.parametrize("lives", [True, False])
def test_done_is_believed_of_the_very_process_that_its_client_has_judged(
    job: Activator, lives: bool
) -> None:
    """A version that puts itself into the background: healthy to whoever looked, and to everybody
    afterwards one that nobody had seen."""
    job.new("train.sh", LEAVES_ONE)
    job.begin()
    job.order("go")
    until(lambda: (job.dest / "child").exists() and (job.dest / "child").read_text(), "its child")
    child = int((job.dest / "child").read_text())
    start = start_of(child)
    job.children.append((child, start))
    until(lambda: job.state["exit"] == 4, "its end is told")
    job.order(f"done {child} {start if lives else start + 1}")
    state = job.end("healthy" if lives else "unconfirmed")
    if lives:
        mark = f"new-{job.tag}"
        assert state["trainer"] == {"pid": child, "start": start, "mark": mark}
        assert (state["confirmed_by"], state["running"]) == ("client", "r2")
    assert alive(child, start)


def test_that_holds_also_if_its_supervisor_was_killed(job: Activator) -> None:
    launched(job, "sleep 300 & echo $! >child; wait\n")
    until((job.dest / "child").exists, "it has a child")
    until((job.dest / "child").read_text, "the child is named")
    child = int((job.dest / "child").read_text())
    one = child, start_of(child)
    job.children.append(one)
    supervisor = json.loads((job.base / "status/new.json").read_text())["supervisor"]
    os.kill(supervisor["pid"], signal.SIGKILL)
    os.kill(job.runs_now("new"), signal.SIGKILL)
    until(lambda: job.state["findings"], "it tells who lives")
    told = f"sh train.sh ended, and how was not recorded, but what it started lives on: {child}"
    assert job.state["findings"] == [told]
    assert alive(*one)
    os.kill(child, signal.SIGKILL)
    assert back(job)["reason"] == "sh train.sh ended, and how was not recorded"


def test_an_old_version_that_does_not_start_either_is_told(job: Activator) -> None:
    job.new("train.sh", "exit 3\n")
    gone = job.place / "gone"
    gone.mkdir()
    job.begin(launch_old=job.launch("old", cwd=str(gone)))
    gone.rmdir()
    job.order("go")
    state = job.end("failed")
    told = f"the old version does not run: cannot change to {gone}: No such file or directory"
    assert state["reason"] == f"sh train.sh ended with exit code 3; {told}"
    assert (state["files"], state["trainer"], state["running"]) == ("old", None, None)
    assert (job.dest / "train.sh").read_text() == OLD


OWN_LOG = {
    ">>": ("exec >>{log} 2>&1; echo new tok/s; exec sleep 300", True),
    ">": ("exec >{log} 2>&1; sleep 0.5; echo new tok/s; exec sleep 300", True),
    "tee": ("(echo new tok/s; exec sleep 300) 2>&1 | tee -a {log}", True),
    # what the old one said there is not of this run
    "silent": ("exec >>{log} 2>&1; echo new; exec sleep 300", False),
}


@pytest.mark.parametrize("how", OWN_LOG)
@pytest.mark.parametrize("opened", ["", "run.log"])
def test_with_the_client_gone_the_log_that_it_opens_itself_tells(
    job: Activator, how: str, opened: str
) -> None:
    """run.sh redirects its trainer; its own output goes nowhere, or elsewhere."""
    text, well = OWN_LOG[how]
    job.log.write_text("old tok/s, and some more\n")
    job.new("train.sh", text.format(log=job.log) + "\n")
    own = str(job.dest / opened) if opened else None
    launches = {each: job.launch(each[-3:], log=own) for each in ("launch", "launch_old")}
    health = {"within_s": 1.5, "log_matches": "tok/s"}
    reads = dict.fromkeys(launches, str(job.log))
    job.begin("go", stale_s=1.0, health=health, log=own, reads=reads, **launches)
    state = job.end("healthy" if well else "unconfirmed")
    assert state["confirmed_by"] == ("activator" if well else None)
    assert state["trainer"]["log_from"] == len("old tok/s, and some more\n")
    assert state["log_rotated"] is None
    if how != ">":
        assert job.log.read_text().startswith("old tok/s, and some more\nnew")


@pytest.mark.parametrize("pattern", [None, r"\d+ tok/s$"])
def test_with_the_client_gone_health_is_what_the_spec_says(
    job: Activator, pattern: str | None
) -> None:
    job.new("train.sh", "printf 'loading 10%%\\rloading 100%%\\r12 tok/s\\n'; exec sleep 300\n")
    health = {"within_s": 1.5, "log_matches": pattern}
    job.begin("go", stale_s=1.0, health=health)
    state = job.end("healthy")
    assert (state["confirmed_by"], state["running"]) == ("activator", "r2")
    job.runs_now("new")


def test_a_pattern_that_never_comes_is_not_confirmed(job: Activator) -> None:
    """What the old version logged does not count, and what lives is left alone."""
    with job.log.open("a") as log:  # so that it is not rotated
        log.write("99 tok/s\n")
        log.flush()
        job.new("train.sh", "echo hello; exec sleep 300\n")
        job.begin("go", stale_s=1.0, health={"within_s": 1.5, "log_matches": r"tok/s"})
        state = job.end("unconfirmed")
    told = "the client left before it had judged, and the log does not tell of health"
    assert state["reason"] == told
    assert (state["files"], state["running"], state["confirmed_by"]) == ("new", "r2", None)
    job.runs_now("new")
    assert job.log.read_text() == "old tok/s\n99 tok/s\nhello\n"


def test_with_the_client_gone_it_is_watched_for_the_whole_time(job: Activator) -> None:
    launched(job, "sleep 3; exit 1\n", stale_s=0.5, health={"within_s": 60, "log_matches": None})
    back(job)


def test_with_the_client_gone_a_wrapper_that_ended_is_not_health(job: Activator) -> None:
    job.new("train.sh", LEAVES_ONE)
    job.begin("go", stale_s=0.5, health={"within_s": 1.0, "log_matches": None})
    state = job.end("unconfirmed")
    child = int((job.dest / "child").read_text())
    job.children.append((child, start_of(child)))
    told = "the client left before it had judged, and sh train.sh ended with exit code 4"
    assert state["reason"] == told


BACKGROUND = ["sh", "-c", '"$@" >/dev/null 2>&1 &', "-"]


@pytest.mark.parametrize("prefix", [["env"], ["setsid", "-f"], BACKGROUND])
def test_a_launcher_may_stand_in_front(job: Activator, prefix: list[str]) -> None:
    """What it prints may be the supervisor's line, or nothing that can be seen."""
    job.new("train.sh", NEW)
    job.begin(launch=job.launch("new", prefix=prefix))
    job.order("go")
    job.reach("launched")
    assert job.secrets() == []
    pid = job.runs_now("new")
    status = Path(f"/proc/{pid}/status").read_text()
    ignored = int(status.partition("SigIgn:\t")[2].split()[0], 16)
    # 32 and 33 are libc's own: whoever is run by make has them ignored, and no program can tell
    assert ignored & ~(0b11 << 31) == 0
    job.order("done")
    job.end("healthy")


@pytest.mark.parametrize(
    ("prefix", "said"),
    [
        (["/no/such/tmux"], "cannot run /no/such/tmux: No such file or directory"),
        (["sh", "-c", "echo no server running >&2; exit 1"], "no server running"),
    ],
)
def test_a_launcher_that_fails_is_told(job: Activator, prefix: list[str], said: str) -> None:
    job.new("train.sh", NEW)
    job.begin(launch=job.launch("new", prefix=prefix))
    job.order("go")
    assert back(job)["reason"].endswith(said)


def test_the_launcher_of_a_dead_supervisor_is_told(job: Activator) -> None:
    job.new("train.sh", NEW)
    gone = job.place / "gone"
    gone.mkdir()
    job.begin(launch=job.launch("new", cwd=str(gone), prefix=BACKGROUND))
    gone.rmdir()
    job.order("go")
    assert back(job)["reason"] == f"cannot change to {gone}: No such file or directory"


def test_the_activator_is_no_parent_of_what_it_starts(job: Activator) -> None:
    launched(job, NEW)
    new = job.runs_now("new")
    os.kill(job.activator[0], signal.SIGKILL)
    until(lambda: not alive(*job.activator), "the activator is gone")
    assert alive(new, start_of(new))
    done = subprocess.run(["ps", "-o", "comm=", "-p", str(new)], capture_output=True, check=True)
    assert done.stdout.strip() == b"sleep"


def test_asked_to_leave_it_brings_nothing_back_after_what_it_launched(job: Activator) -> None:
    """Somebody stops that on purpose."""
    launched(job, "sleep 2\n", roll_back=True, health=QUICK)
    job.order("leave")
    state = job.end("unconfirmed")
    assert (state["order"], state["files"], state["confirmed_by"]) == ("leave", "new", None)
    time.sleep(2.5)
    assert job.state["step"] == "unconfirmed"


def test_a_log_that_is_a_pipe_is_refused_before_the_old_one_ends(job: Activator) -> None:
    """Its reader may end with the old run: who opens it next would wait for ever."""
    job.log.unlink()
    os.mkfifo(job.log)
    job.new("train.sh", NEW)
    code, line = job.ask()
    assert code == 1
    assert line.startswith("failed ")
    assert "log" in line
