"""Doctor on the practice fleet: what is wrong is named, with what to type, and nothing else is."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fleetstop.lab.login import Login, login

from .bed import Bed, lives, until, with_job, words_of
from .test_could_not_look import changed

pytestmark = pytest.mark.bed


@dataclass
class Told:
    """One checkup: exit code, checks by place, what people saw, and what it took."""

    code: int
    checks: dict[tuple[str, str], dict[str, Any]]
    people: str
    seconds: float
    connections: int
    pct_calls: int

    def wrong(self) -> set[tuple[str, str]]:
        return {key for key, each in self.checks.items() if each["ok"] is False}

    def unseen(self) -> set[tuple[str, str]]:
        return {key for key, each in self.checks.items() if each["ok"] is None}


def doctor(box: Bed, *words: str, inventory: Path | None = None) -> Told:
    """Of the lab's host and this container, or of what the words say."""
    lab, began = box.lab, time.monotonic()
    before = lab.connections(), len(lab.pct_calls())
    named = words or ("lab1", box.name)
    line = [sys.executable, "-m", "fleetstop", "doctor", "--json"]
    line += ["-i", str(inventory or lab.inventory), *named]
    ran = subprocess.run(
        line,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "COLUMNS": "100"},
    )
    assert ran.stdout, ran.stderr
    report = json.loads(ran.stdout)
    assert report["exit_code"] == ran.returncode
    checks = {
        (each["place"].removeprefix(box.name), one["check"]): one
        for each in report["places"]
        for one in each["checks"]
    }
    calls = lab.connections() - before[0], len(lab.pct_calls()) - before[1]
    return Told(ran.returncode, checks, ran.stderr, time.monotonic() - began, *calls)


def end_those_that_hang(box: Bed) -> None:
    """The stand-ins of this lab that sleep for ever, as a real one would in the driver."""
    mine = str(box.lab.nvidia_smi).encode()
    for entry in Path("/proc").glob("[0-9]*"):
        pid = int(entry.name)
        if mine in words_of(pid):
            os.kill(pid, signal.SIGKILL)


def test_all_is_well(box: Bed) -> None:
    job = box.start("--save-every", "1", "--save-seconds", "0.2")
    told = doctor(box)
    assert (told.code, told.wrong(), told.unseen()) == (0, set(), set()), told.people
    assert "all is well" in told.people
    assert {each for _, each in told.checks} == {
        *("reachable", "host_key", "login", "root", "pct", "tools", "nvidia_smi", "clock"),
        *("kernel_log", "container", "entered", "lock", "job", "stops", "log", "checkpoints"),
    }
    assert (told.connections, told.pct_calls) == (1, 1)
    assert lives(job)
    assert (box.signals_seen(job), box.lock_files()) == (0, [])
    box.note("doctor", "all well", f"0, {len(told.checks)} checks, {told.seconds:.1f} s")


def test_a_deaf_job_is_named_before_anybody_needs_to_stop_it(box: Bed) -> None:
    job = box.start(how="deaf")
    told = doctor(box)
    assert (told.code, told.wrong(), told.unseen()) == (0, {(":train", "stops")}, set())
    check = told.checks[":train", "stops"]
    assert f"deaf: {job.pid} ignores INT" in check["says"]
    assert check["fix"].startswith(f"fleetstop restart {box.name}:train --after-checkpoint")
    assert lives(job)
    assert box.signals_seen(job) == 0


def test_without_log_and_checkpoints_no_pct_and_deaf_all_the_same(box: Bed, tmp_path: Path) -> None:
    box.start(how="deaf")
    told = doctor(box, inventory=with_job(box, tmp_path, "match: {script: train.py}"))
    assert told.wrong() == {(":train", "stops")}
    assert (told.connections, told.pct_calls) == (1, 0)
    assert "--force" in told.checks[":train", "stops"]["fix"]


def test_a_log_that_is_missing(box: Bed, tmp_path: Path) -> None:
    box.start()
    stanza = "{match: {script: train.py}, stop_signal: INT, log: /workspace/typo.log}"
    inventory = with_job(box, tmp_path, stanza[1:-1].replace(", ", "\n        "))
    told = doctor(box, inventory=inventory)
    assert (told.code, told.wrong()) == (0, {(":train", "log")}), told.people
    assert "/workspace/typo.log is not there" in told.checks[":train", "log"]["says"]
    assert told.checks[":train", "log"]["fix"].startswith("log: /workspace/train.log")


def test_checkpoints_that_its_user_cannot_write(box: Bed, tmp_path: Path) -> None:
    stanza = "match: {script: train.py}\n        checkpoints: /workspace/ck\n"
    stanza += "        launch: {run: [/root/run.sh], user: nobody}"
    inventory = with_job(box, tmp_path, stanza)
    place = box.lab.rootfs(box.vmid) / "workspace/ck"
    place.mkdir(mode=0o755, parents=True)
    told = doctor(box, inventory=inventory)
    assert told.wrong() == {(":train", "checkpoints")}, told.people
    assert "nobody cannot write in /workspace/ck" in told.checks[":train", "checkpoints"]["says"]
    # the fix is typed as it stands
    fix = shlex.split(told.checks[":train", "checkpoints"]["fix"])
    at = fix.index("root@127.0.0.1")
    subprocess.run(box.lab.ssh_command(*fix[at + 1 :]), check=True, timeout=30)
    assert doctor(box, inventory=inventory).wrong() == set()


def test_a_host_that_is_down(box: Bed, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        inventory = changed(box, tmp_path, (r"port: \d+", f"port: {taken.getsockname()[1]}"))
        told = doctor(box, inventory=inventory)
    assert (told.code, told.wrong()) == (4, {("lab1", "reachable")})
    assert told.unseen() == {("", "container")}
    assert "refused" in told.checks["lab1", "reachable"]["says"]
    assert told.connections == 0


def test_a_wrong_key(box: Bed, tmp_path: Path) -> None:
    key = tmp_path / "other"
    subprocess.run(["ssh-keygen", "-qt", "ed25519", "-N", "", "-f", str(key)], check=True)
    told = doctor(box, inventory=changed(box, tmp_path, (r"identity: .*", f"identity: {key}")))
    assert (told.code, told.wrong()) == (4, {("lab1", "login")})
    assert told.checks["lab1", "reachable"]["ok"] is True
    assert "ssh-copy-id" in told.checks["lab1", "login"]["fix"]


def test_a_host_key_that_is_unknown(box: Bed, tmp_path: Path) -> None:
    (tmp_path / "known_hosts").write_text("")
    change = (r"known_hosts: .*", f"known_hosts: {tmp_path / 'known_hosts'}")
    told = doctor(box, inventory=changed(box, tmp_path, change))
    assert (told.code, told.wrong()) == (4, {("lab1", "host_key")})


def test_a_host_without_pct(box: Bed, tmp_path: Path) -> None:
    """Who is deaf is seen all the same: processes are looked at from the host."""
    box.start(how="deaf")
    told = doctor(box, inventory=changed(box, tmp_path, (r"pct: .*", "pct: /no/such/pct")))
    assert told.code == 4, told.people
    assert told.wrong() == {("lab1", "pct"), ("", "entered"), (":train", "stops")}
    assert told.unseen() == {(":train", "log"), (":train", "checkpoints")}
    assert told.pct_calls == 0


def test_a_container_that_is_stopped_missing_or_frozen(box: Bed, tmp_path: Path) -> None:
    box.lab.freeze(box.vmid)
    try:
        told = doctor(box)
        assert (told.code, told.wrong()) == (0, {("", "container")}), told.people
        assert "lxc-unfreeze" in told.checks["", "container"]["fix"]
    finally:
        box.lab.thaw(box.vmid)
    gone = changed(box, tmp_path, (f"vmid: {box.vmid}", "vmid: 987654321"))
    told = doctor(box, inventory=gone)
    assert told.wrong() == {("", "container")}
    assert "no container 987654321" in told.checks["", "container"]["says"]
    box.lab.stop(box.vmid)
    told = doctor(box)
    assert (told.code, told.wrong()) == (0, {("", "container")})
    assert told.checks["", "container"]["fix"].endswith(f"start {box.vmid}'")


@pytest.mark.parametrize(
    ("knobs", "says", "fix"),
    [
        ({"fail": "driver_mismatch"}, "does not fit the loaded kernel module", "reboot"),
        ({"fail": "gpu_lost"}, "fell off the bus", "reboot"),
        ({"hang": True}, "did not answer within 8 s", "dmesg"),
    ],
)
def test_nvidia_smi_that_is_ill(box: Bed, knobs: dict[str, object], says: str, fix: str) -> None:
    job = box.start()
    box.lab.set_gpus(**knobs)
    try:
        told = doctor(box)
    finally:
        box.lab.set_gpus(fail=None, hang=False)
        end_those_that_hang(box)
    assert (told.code, told.wrong()) == (0, {("lab1", "nvidia_smi")}), told.people
    check = told.checks["lab1", "nvidia_smi"]
    assert says in check["says"]
    assert fix in check["fix"]
    assert told.seconds < 40
    assert lives(job)


def test_two_jobs_of_a_container_are_one_pct(box: Bed, tmp_path: Path) -> None:
    job = box.start()
    stanza = (
        "match: {script: train.py}\n        stop_signal: INT\n        log: /workspace/train.log"
    )
    stanza += "\n      other:\n        match: {script: other.py}\n        log: /workspace/other.log"
    told = doctor(box, inventory=with_job(box, tmp_path, stanza))
    assert (told.code, told.wrong(), told.unseen()) == (0, set(), set()), told.people
    assert told.checks[":other", "job"]["says"] == "it does not run"
    assert (told.connections, told.pct_calls) == (1, 1)
    assert lives(job)


@pytest.fixture
def someone() -> Iterator[Login]:
    with login() as who:
        yield who


def test_a_login_without_root_and_with_pct_is_well(
    box: Bed, someone: Login, tmp_path: Path
) -> None:
    box.start(how="deaf")
    inventory = changed(box, tmp_path, ("ssh: root@", f"ssh: {someone.name}@"))
    told = doctor(box, inventory=inventory)
    assert told.code == 4
    assert {("", "entered"), (":train", "stops")} <= told.wrong(), told.people
    assert "NOPASSWD" in told.checks["", "entered"]["fix"]
    someone.allow(str(box.lab.pct), str(box.lab.nvidia_smi))
    told = doctor(box, inventory=inventory)
    assert told.wrong() - {("lab1", "kernel_log")} == {(":train", "stops")}, told.people
    assert (told.code, told.checks["lab1", "root"]["ok"]) == (0, True)
    assert (told.connections, told.pct_calls) == (1, 1)


def test_ctrl_c_ends_it_at_once_and_leaves_nothing(box: Bed) -> None:
    job = box.start()
    box.lab.set_gpus(hang=True)
    try:
        line = [sys.executable, "-m", "fleetstop", "doctor", "--json", "-i", str(box.lab.inventory)]
        running = subprocess.Popen([*line, "lab1", box.name], stdout=subprocess.PIPE, text=True)
        until(box.litter)
        began = time.monotonic()
        running.send_signal(signal.SIGINT)
        out, _ = running.communicate(timeout=30)
        assert (running.returncode, out) == (130, "")
        assert time.monotonic() - began < 15
    finally:
        box.lab.set_gpus(hang=False)
        end_those_that_hang(box)
    assert lives(job)
    assert box.signals_seen(job) == 0
