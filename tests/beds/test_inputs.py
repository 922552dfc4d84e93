"""Hostile names, secrets, addresses, several jobs and targets: on real processes."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .bed import Bed, lives, running, until, with_jobs

pytestmark = pytest.mark.bed
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
LINE = (sys.executable, "-m", "fleetstop")
EVIL = "\x1b]0;owned\x07\x1b[2J\x1b[31mSTOPPED\r\nct1:train stopped in 1 s, saved.\u202e"


def _address(box: Bed, where: Path) -> tuple[str, Path]:
    """An ad-hoc address of the lab, with an ssh config of its own in HOME."""
    home = where / "home"
    (home / ".ssh").mkdir(parents=True)
    server = box.lab.server
    (home / ".ssh/config").write_text(
        f"Host 127.0.0.1\n  IdentityFile {server.identity}\n"
        f"  UserKnownHostsFile {server.known_hosts}\n"
    )
    (home / ".ssh/config").chmod(0o600)
    return f"ssh://root@127.0.0.1:{box.lab.state.port}/{box.vmid}", home


def test_hostile_names_never_reach_the_terminal_raw(box: Bed) -> None:
    log = box.lab.rootfs(box.vmid) / "workspace/train.log"
    job = box.start("--checkpoints", f"/workspace/checkpoints/{EVIL!r}", how="deaf")
    with log.open("a") as file:
        file.write(EVIL + "\n")
    for words in (("status", box.name), ("stop", box.name, "--graceful", "-v")):
        ran = box.run(*words)
        assert not _CONTROL.search(ran.people), ran.people
        assert not _CONTROL.search(ran.stdout)
    assert lives(job)


def test_hostile_argv_and_comm(box: Bed) -> None:
    """A worker renames itself and its arguments; it is shown escaped and belongs all the same."""
    code = (
        "import ctypes, os, subprocess, sys, time;"
        "ctypes.CDLL(None).prctl(15, b'a) R 1 1\\n(x', 0, 0, 0);"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)',"
        " '\\x1b[2J', 'a\\nb', '--password=hunter2', '']);"
        "time.sleep(600)"
    )
    place = box.lab.rootfs(box.vmid) / "root/odd.py"
    place.write_text(code)
    box.start("setsid -f python3 -u /root/odd.py >/dev/null 2>&1 </dev/null", how="raw", trainers=0)
    until(lambda: running(box, "hunter2"))
    ran = box.run("stop", box.name, "--script", "odd.py", "--force", "--signal", "TERM")
    assert not _CONTROL.search(ran.people), ran.people
    assert "hunter2" not in ran.people + ran.stdout
    roles = {each["role"] for each in ran.target["family"]}
    assert roles == {"trainer", "worker"}
    assert ran.code == 0, ran.people


def test_secrets_in_arguments_are_redacted(box: Bed, tmp_path: Path) -> None:
    (box.lab.rootfs(box.vmid) / "root/secret.py").write_text("import time\ntime.sleep(600)\n")
    box.start(
        "setsid -f env HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz012345 python3 /root/secret.py"
        " --token s3cr3t --api-key=k3y >/dev/null 2>&1 </dev/null",
        how="raw",
        trainers=0,
    )
    ran = box.run("status", box.name, "--script", "secret.py", "-v")
    assert ran.target["result"] == "running", ran.people
    for secret in ("s3cr3t", "k3y", "hf_abcdef"):
        assert secret not in ran.people + ran.stdout


def test_an_address_needs_no_inventory(box: Bed, tmp_path: Path) -> None:
    job = box.start("--save-seconds", "0.3")
    address, home = _address(box, tmp_path)
    env = {**os.environ, "HOME": str(home), "FLEETSTOP_INVENTORY": ""}
    line = [*LINE, "stop", address]
    refused = subprocess.run(
        line, cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert refused.returncode == 2
    assert "--script" in refused.stderr
    done = subprocess.run(
        [*line, "--script", "train.py", "--graceful"],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"INT to {job.pid}" in done.stdout


@pytest.mark.parametrize("how", ["--pgrep", "--pid"])
def test_by_pgrep_and_by_pid(box: Bed, how: str) -> None:
    """pgrep -f would also list the shell that asks; only the trainer may hear the signal."""
    job = box.start("--save-seconds", "0.3")
    value = r"python3.*train\.py" if how == "--pgrep" else str(job.pid)
    ran = box.run("stop", box.name, how, value, "--graceful")
    assert ran.code == 0, ran.people
    assert ran.signals == [("INT", [job.pid])]


def test_a_bad_expression_is_said(box: Bed) -> None:
    done = box.run("stop", box.name, "--pgrep", "a[")
    assert done.code == 2, done.people
    assert "a [ that is not closed" in done.people


def test_both_signals_heard_is_refused_with_what_to_say(box: Bed, tmp_path: Path) -> None:
    (box.lab.rootfs(box.vmid) / "root/both.py").write_text(
        "import signal, time\nsignal.signal(signal.SIGTERM, lambda *a: exit(0))\n"
        "print('up', flush=True)\ntime.sleep(600)\n"
    )
    text = "setsid -f python3 /root/both.py >/workspace/both.log 2>&1 </dev/null"
    box.start(text, how="raw", trainers=0)
    log = box.lab.rootfs(box.vmid) / "workspace/both.log"
    until(lambda: log.exists() and "up" in log.read_text())
    ran = box.run("stop", box.name, "--script", "both.py", "--graceful")
    assert ran.code == 5, ran.people
    assert "stop_signal" in ran.target["hint"]
    assert ran.signals == []
    said = box.run("stop", box.name, "--script", "both.py", "--graceful", "--signal", "TERM")
    assert said.signals[0][0] == "TERM", said.people


def test_pid_one_is_never_signalled(box: Bed) -> None:
    ran = box.run("stop", box.name, "--pid", "1", "--force")
    assert ran.code == 2, ran.people
    assert "above 1" in ran.people
    assert box.lab.status()[box.name] == "running"


def test_several_jobs_are_listed_and_all_jobs_means_all(box: Bed, tmp_path: Path) -> None:
    (box.lab.rootfs(box.vmid) / "root/eval.py").write_text("import time\ntime.sleep(600)\n")
    jobs = (
        "      train: {match: {script: train.py}, stop_signal: INT}\n"
        "      eval: {match: {script: eval.py}, stop_signal: INT}\n"
    )
    inventory = with_jobs(box, tmp_path, jobs)
    box.start("--save-seconds", "0.3")
    box.start("setsid -f python3 /root/eval.py >/dev/null 2>&1 </dev/null", how="raw", trainers=0)
    ran = box.run("stop", box.name, inventory=inventory)
    assert ran.code == 5
    assert f"{box.name}:eval" in ran.people
    both = box.run("stop", box.name, "--all-jobs", "--graceful", inventory=inventory)
    assert {each["target"] for each in both.report["targets"]} == {
        f"{box.name}:train",
        f"{box.name}:eval",
    }
    # one container is one lock: its jobs are stopped one after the other
    assert {each["result"] for each in both.report["targets"]} == {"stopped"}, both.people


def test_a_locked_container_is_refused(box: Bed) -> None:
    job = box.start("--save-seconds", "5")
    first = box.popen("stop", box.name, "--graceful")
    deadline = time.monotonic() + 15
    while "saving" not in box.log(job):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    second = box.run("stop", box.name, "--force")
    assert second.code == 5, second.people
    assert "working on it" in second.target["reason"]
    done = box.finish(first, alone=False)
    assert done.code == 0, done.people
    assert len(box.saved()) == 1


def test_in_a_terminal_it_is_readable(box: Bed) -> None:
    """The live view in a real pseudo terminal: the story is there, the cursor comes back."""
    box.start("--save-seconds", "2")
    master, slave = pty.openpty()
    child = subprocess.Popen(
        [*LINE, "stop", box.name, "--graceful", "-i", str(box.lab.inventory)],
        stdin=subprocess.DEVNULL,
        stdout=slave,
        stderr=slave,
        env={**os.environ, "TERM": "xterm-256color"},
    )
    os.close(slave)
    seen = b""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        ready, _, _ = select.select([master], [], [], 0.2)
        if ready:
            try:
                seen += os.read(master, 65536)
            except OSError:
                break
        elif child.poll() is not None:
            break
    assert child.wait(timeout=10) == 0
    text = seen.decode()
    assert "stopped in" in text
    assert text.rfind("\x1b[?25h") >= text.rfind("\x1b[?25l")


def test_by_a_tmux_session(box: Bed, tmp_path: Path) -> None:
    """Through the pane to the trainer; keys sent there could wait behind typed text."""
    started = box.lab.exec(
        box.vmid,
        ["bash", "-c", "tmux new-session -d -s work 'bash /root/run.sh --save-seconds 0.3'"],
    )
    assert started.returncode == 0, started.stderr
    jobs = (
        "      train: {match: {tmux: work}, stop_signal: INT,"
        " checkpoints: /workspace/checkpoints}\n"
    )
    inventory = with_jobs(box, tmp_path, jobs)
    deadline = time.monotonic() + 10
    while not any((box.lab.rootfs(box.vmid) / "var/gpu").iterdir()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    ran = box.run("stop", box.name, "--graceful", inventory=inventory)
    assert ran.code == 0, ran.people
    assert [name for name, _ in ran.signals] == ["INT"]
    roles = [each["role"] for each in ran.target["family"]]
    assert roles.count("trainer") == 1
    assert len(box.saved()) == 1
    assert box.run("stop", box.name, inventory=inventory).target["result"] == "not_running"
