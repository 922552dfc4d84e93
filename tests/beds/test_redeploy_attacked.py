"""Redeploys beside other commands, other habits and odd places: nobody is told what is not so."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from fleetstop.lab.processes import inner_pid

from . import versions
from .bed import Ran, Running, lives, until, with_job, words_of
from .interrupting import JOB, STALE_S, Case
from .side_by_side import Told, side_by_side, wanted

pytestmark = pytest.mark.bed
STORIES: dict[str, Told] = {}
_QUIET = ">/workspace/train.log 2>&1 </dev/null"


def story(told: Told) -> Told:
    STORIES[told.__name__] = told
    return told


@pytest.fixture(scope="module")
def told(bed: None, request: pytest.FixtureRequest) -> Iterator[dict[str, Future[None]]]:
    with side_by_side({name: STORIES[name] for name in wanted(request)}) as futures:
        yield futures


def typed(case: Case, verb: str, *words: str, job: str = JOB) -> tuple[Running, Path]:
    """One more command by one more person; where what it tells is kept."""
    where = case.where / f"typed{len(list(case.where.glob('typed*')))}"
    where.mkdir()
    line = [sys.executable, "-m", "fleetstop", verb, case.box.name, "--events"]
    line += ["-i", str(with_job(case.box, where, job)), *words]
    env = {**os.environ, "LOGNAME": where.name, "XDG_STATE_HOME": str(where / "state")}
    with (where / "events").open("w") as out, (where / "people").open("w") as err:
        process = subprocess.Popen(
            line, stdin=subprocess.DEVNULL, stdout=out, stderr=err, text=True, env=env
        )
    return Running(process, (0, 0), time.monotonic(), 1), where


def ended(command: tuple[Running, Path], deadline: float = 240.0) -> Ran:
    running, where = command
    people = where / "people"
    try:
        code = running.process.wait(deadline)
    except subprocess.TimeoutExpired:
        running.process.kill()
        raise AssertionError(people.read_text()) from None
    told = [json.loads(line) for line in (where / "events").read_text().splitlines()]
    return Ran(code, told, people.read_text(), time.monotonic() - running.at, 0, 0)


def redeployed(case: Case, *words: str, job: str = JOB) -> Ran:
    where = versions.sources(case.where / "src", case.text)
    return ended(typed(case, "redeploy", str(where / "train.py"), *words, job=job))


def inside(case: Case, text: str) -> None:
    """Done by root in the container."""
    first = str(min(case.box.lab.host_pids(case.box.vmid)))
    subprocess.run(["nsenter", "-t", first, "-a", "sh", "-ec", text], check=True)


def nothing_comes(case: Case, seconds: float = STALE_S + 6) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert case.trainers() == []
        time.sleep(0.5)


def touched_nothing(case: Case, ran: Ran) -> None:
    assert ran.signals == []
    assert lives(case.job)
    assert case.heard() == 0
    until(lambda: not case.activators(), 20.0)
    assert case.litter() == []


@story
def a_stop_while_a_dead_clients_redeploy_waits(case: Case) -> None:
    """What waits would start the job half a minute after the stop had told its end."""
    case.start("--save-seconds", "40")
    case.interrupted(lambda: case.heard() == 1)
    ran = ended(typed(case, "stop", "--break-lock"))
    assert (ran.code, ran.target["result"]) == (0, "stopped"), ran.people
    assert any("told to leave" in each for each in ran.target["findings"])
    assert ran.signals == []
    assert case.heard() == 1
    assert case.box.saved()
    assert case.state["step"] == "cancelled"
    nothing_comes(case)
    assert (case.root / "train.py").read_text() == case.old_code


@story
def a_stop_after_ctrl_c(case: Case) -> None:
    case.start("--save-seconds", "30")
    case.interrupted(lambda: case.heard() == 1, signal.SIGINT)
    (pid,) = case.trainers()  # by hand, as somebody does who has no inventory
    ran = ended(typed(case, "stop", "--pid", str(inner_pid(pid)), "--signal", "INT"))
    assert ran.code == 0, ran.people
    assert any("told to leave" in each for each in ran.target["findings"])
    assert (ran.signals, case.heard()) == ([], 1)
    assert case.box.saved()
    nothing_comes(case)
    assert (case.root / "train.py").read_text() == case.old_code


@story
def a_restart_is_not_done_twice_where_nobody_saw_its_end(case: Case) -> None:
    """The same command of whoever was killed stops nothing a second time; meant anew, it does."""
    case.start("--save-seconds", "0.3")
    command = typed(case, "restart")
    until(lambda: '"launched"' in (command[1] / "events").read_text(), 120.0)
    command[0].process.kill()
    command[0].process.wait()
    (pid,) = case.trainers()
    ran = ended(typed(case, "restart"))
    assert (ran.code, ran.target["result"]) == (0, "running"), ran.people
    assert (ran.signals, case.heard(), case.trainers()) == ([], 1, [pid])
    assert "was asked the same, and what it started runs" in ran.people
    anew = ended(typed(case, "restart"))
    assert anew.code == 0, anew.people
    assert ([each for each, _ in anew.signals], case.heard()) == (["INT"], 2)
    assert case.trainers() != [pid]


@story
def a_stop_of_what_was_just_launched(case: Case) -> None:
    """Its end is no reason to bring the version before back."""
    case.start("--save-seconds", "2")
    case.interrupted(lambda: "launched" in case.told())
    ran = ended(typed(case, "stop", "--break-lock"))
    assert (ran.code, ran.target["result"]) == (0, "stopped"), ran.people
    assert [each for each, _ in ran.signals] == ["INT"]
    assert case.heard() == 2
    assert case.state["step"] == "unconfirmed"
    nothing_comes(case)
    assert case.litter() == []


@story
def a_dry_stop_only_tells_of_it(case: Case) -> None:
    case.start("--save-seconds", "40")
    case.interrupted(lambda: case.heard() == 1)
    ran = ended(typed(case, "stop", "--dry-run", "--break-lock"))
    assert (ran.code, ran.target["result"]) == (0, "planned"), ran.people
    assert any("would be told to leave" in each for each in ran.target["findings"])
    assert case.state["step"] == "waiting"
    assert case.by_itself_in() < STALE_S + 10


@story
def started_by_a_server_that_was_there_before(case: Case) -> None:
    """run.sh asks tmux and ends: two trainers would write the same checkpoints."""
    run = case.root / "ask.sh"
    words = "cd /root && python3 -u train.py --save-seconds 0.3 >>/workspace/train.log 2>&1"
    run.write_text(f"#!/bin/sh\ntmux -L x new-session -d -s t$$ '{words}'\n")
    run.chmod(0o755)
    own = f"cd /root; setsid -f python3 -u train.py --save-seconds 0.3 {_QUIET}"
    text = f"tmux -L x new-session -d -s base 'sleep 10000'; {own}"
    case.job = case.box.start(text, how="raw")
    ran = redeployed(case, job=f"{JOB}\n        launch: {{run: [/root/ask.sh], cwd: /root}}")
    assert (ran.code, ran.target["result"]) == (8, "unhealthy"), ran.people
    assert "nothing is started beside it" in ran.target["reason"]
    (pid,) = case.trainers()
    assert lives_as(pid)
    assert (case.root / "train.py").read_text() == case.text
    assert case.heard() == 1


@story
def others_name_its_script_meanwhile(case: Case) -> None:
    """Whoever watches train.py, or its log, is no reason to leave nothing running."""
    case.start("--save-seconds", "0.3")
    case.text = versions.version(
        "dies", "    import threading\n    threading.Timer(15.0, lambda: os._exit(3)).start()\n"
    )
    slow = JOB.replace("tok/s", "never said").replace("within: 8s", "within: 60s")
    command = typed(case, "redeploy", str(_train(case)), job=slow)
    until(lambda: "launched" in (command[1] / "events").read_text(), 120.0)
    case.box.lab.decoys(case.box.vmid, ["tail_log", "tail_script", "monitor", "vim"])
    ran = ended(command)
    assert (ran.code, ran.target["result"]) == (8, "rolled_back"), ran.people
    assert (case.root / "train.py").read_text() == case.old_code
    assert len([pid for pid in case.trainers() if b"monitor.py" not in words_of(pid)]) == 1


def lives_as(pid: int) -> bool:
    time.sleep(1.0)
    return Path(f"/proc/{pid}").exists()


@story
def the_timeout_ends_in_a_save(case: Case) -> None:
    """Only the watching ends: the new version comes up once the old one has saved."""
    case.start("--save-seconds", "70")
    command = typed(case, "redeploy", str(_train(case)), "--timeout", "45s")
    ran = ended(command)
    assert (ran.code, ran.target["result"]) == (1, "still_running"), ran.people
    assert "starts the job by itself" in ran.target["reason"]
    assert [each for each, _ in ran.signals] == ["INT"]
    assert case.by_itself_in() < STALE_S + 10
    case.step("healthy")
    case.is_right()


def _train(case: Case) -> Path:
    return versions.sources(case.where / "src", case.text) / "train.py"


@story
def its_lock_is_broken_once_it_was_launched(case: Case) -> None:
    """Files were replaced and another version runs: that is not the old one, still running."""
    case.start("--save-seconds", "0.3")
    slow = JOB.replace("tok/s", "never said").replace("within: 8s", "within: 30s")
    command = typed(case, "redeploy", str(_train(case)), job=slow)
    until(lambda: "launched" in (command[1] / "events").read_text(), 120.0)
    other = typed(case, "redeploy", str(_train(case)), "--break-lock", job=slow)
    ran = ended(command)
    other[0].process.kill()
    other[0].process.wait()
    # that it is not well was known by then
    assert (ran.code, ran.target["result"]) == (8, "unhealthy"), ran.people
    assert "taken the lock over" in ran.target["reason"]
    assert "leaves it as it is if it does not" in ran.target["reason"]
    assert [each for each, _ in ran.signals] == ["INT"]
    assert len(case.trainers()) == 1


@story
def a_full_disk_once_the_signal_is_sent(case: Case) -> None:
    """`go` cannot be written any more: what waits goes on by itself, and that is what is told."""
    text = "mkdir -p /srv/own; mount -t tmpfs -o size=3m none /srv/own; cp /root/train.py /srv/own"
    inside(case, text)
    own = f"cd /srv/own; setsid -f python3 -u train.py --save-seconds 8 {_QUIET}"
    case.job = case.box.start(own, how="raw")
    command = typed(case, "redeploy", str(_train(case)))
    until(lambda: case.heard() == 1, 120.0)
    inside(case, "dd if=/dev/zero of=/srv/own/fill bs=4k 2>/dev/null || true")
    ran = ended(command)
    assert ran.code == 4, ran.people
    assert "starts the job by itself" in ran.target["reason"]
    assert case.by_itself_in() < STALE_S + 10
    assert len(case.trainers()) == 1


@story
def a_file_that_is_a_mount_point(case: Case) -> None:
    inside(case, "cp /root/train.py /var/own.py; mount --bind /var/own.py /root/train.py")
    case.start("--save-seconds", "0.3")
    ran = redeployed(case)
    assert ran.code == 7, ran.people
    assert "mount point" in ran.target["reason"]
    touched_nothing(case, ran)


@story
def a_file_that_is_immutable(case: Case) -> None:
    case.start("--save-seconds", "0.3")
    inside(case, "chattr +i /root/train.py")
    try:
        ran = redeployed(case)
    finally:
        inside(case, "chattr -i /root/train.py")
    assert ran.code == 7, ran.people
    assert "immutable" in ran.target["reason"]
    touched_nothing(case, ran)


@story
def a_log_that_is_a_pipe(case: Case) -> None:
    """Its reader ends with the old run: whoever opens it next would wait for ever."""
    case.start("--save-seconds", "0.3")
    inside(case, "mkfifo /workspace/pipe")
    ran = redeployed(case, job=JOB.replace("/workspace/train.log", "/workspace/pipe"))
    assert ran.code == 7, ran.people
    touched_nothing(case, ran)


@story
def a_log_that_was_deleted(case: Case) -> None:
    """Health that is to be read there could never be seen."""
    case.start("--save-seconds", "0.3")
    inside(case, "mv /workspace/train.log /workspace/old; rm /workspace/old")
    ran = redeployed(case, job=JOB.replace("log: /workspace/train.log\n        ", ""))
    assert ran.code == 5, ran.people
    assert ran.signals == []
    assert lives(case.job)


@story
def a_directory_whose_name_holds_a_newline(case: Case) -> None:
    inside(case, 'd=$(printf \'/srv/new\\nline\'); mkdir -p "$d"; cp /root/train.py "$d/"')
    text = f"cd /srv/new*line; setsid -f python3 -u train.py --save-seconds 0.3 {_QUIET}"
    case.job = case.box.start(text, how="raw")
    ran = redeployed(case)
    assert ran.code == 5, ran.people
    assert "control character" in ran.target["reason"]
    touched_nothing(case, ran)


@story
def an_environment_that_is_not_utf_8(case: Case) -> None:
    own = f"cd /root; setsid -f python3 -u train.py --save-seconds 0.3 {_QUIET}"
    case.job = case.box.start(f"export ODD=$(printf 'a\\377b\\nc'); {own}", how="raw")
    ran = redeployed(case)
    assert ran.code == 0, ran.people
    (pid,) = case.trainers()
    assert b"ODD=a\xffb\nc" in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    case.is_right()


@story
def edited_in_place_after_a_roll_back(case: Case) -> None:
    """What is kept is not what lies there under another name."""
    case.start("--save-seconds", "0.3")
    case.text = versions.SILENT
    ran = redeployed(case)
    assert ran.target["result"] == "rolled_back", ran.people
    with (case.root / "train.py").open("a") as file:
        file.write("# edited\n")
    assert len(case.releases()) == 2  # each whole by its manifest


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", STORIES)
def test_attacked(told: dict[str, Future[None]], name: str) -> None:
    told[name].result(timeout=600)
