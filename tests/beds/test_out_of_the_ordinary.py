"""Lost connections, killed clients, jobs outside containers: true words, and one signal only."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from .bed import Bed, alive, lives

pytestmark = pytest.mark.bed


def until(true: Callable[[], object], seconds: float = 15.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "did not come about"
        time.sleep(0.02)


def sessions(box: Bed) -> list[int]:
    """The sshd processes that carry this lab's connections."""
    server = box.lab.state.sshd
    assert server is not None
    found = []
    for entry in Path("/proc").iterdir():
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if entry.name.isdigit() and int(fields[1]) == server.pid:
            found.append(int(entry.name))
    return found


def test_a_lost_connection_after_the_signal_is_told_with_what_was_sent(box: Bed) -> None:
    job = box.start("--save-seconds", "4")
    before = set(sessions(box))
    running = box.popen("stop", box.name, "--graceful")
    until(lambda: "saving" in box.log(job))
    for pid in set(sessions(box)) - before:
        os.kill(pid, signal.SIGKILL)
    ran = box.finish(running, 30)
    assert ran.code == 4, ran.people
    assert ran.signals == [("INT", [job.pid])]
    assert ran.target["verdict"] == "unknown"
    assert "INT" in ran.people
    until(lambda: not lives(job))
    assert len(box.saved()) == 1
    # what is left of that run's lock says who it was, then expires
    again = box.run("stop", box.name)
    assert again.code == 0, again.people
    assert again.target["result"] == "not_running"


def test_a_killed_client_leaves_the_job_its_chance(box: Bed) -> None:
    """The ledger line stands: another laptop repeats nothing, and until the lock has expired
    it is told who holds it."""
    job = box.start("--save-seconds", "40", "--size-mb", "4")
    running = box.popen("stop", box.name, "--graceful")
    until(lambda: "saving" in box.log(job))
    running.process.kill()
    running.process.communicate()
    locked = box.run("stop", box.name, "--graceful")
    assert locked.code == 5, locked.people
    assert "working on it" in locked.target["reason"]
    time.sleep(31)
    after = box.run("stop", box.name, "--graceful", deadline=90)
    assert after.code == 0, after.people
    assert after.signals == []
    assert len(box.saved()) == 1


def test_a_job_outside_containers(box: Bed, tmp_path: Path) -> None:
    script = tmp_path / f"hosttrain_{box.vmid}.py"
    script.write_text(
        "import time\ntry:\n    print('up', flush=True)\n    time.sleep(600)\n"
        "except KeyboardInterrupt:\n    open('saved', 'w').write('x')\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-u", str(script)], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "up\n"
        text = box.lab.inventory.read_text()
        inventory = tmp_path / "fleet.yaml"
        inventory.write_text(
            text[: text.index("containers:")]
            + f"    jobs: {{train: {{match: {{script: {script.name}}}}}}}\n"
        )
        shown = box.run("status", "lab1", inventory=inventory)
        assert shown.target["result"] == "running", shown.people
        # our own test process is its parent: it ends the chain and is never family
        assert [each["role"] for each in shown.target["family"]] == ["trainer"]
        ran = box.run("stop", "lab1", "--graceful", inventory=inventory)
        # a zombie until we reap it: dead all the same
        assert ran.code == 0, ran.people
        assert ran.signals == [("INT", [child.pid])]
        assert (tmp_path / "saved").exists()
        assert ran.pct_calls == 0
    finally:
        child.kill()
        child.wait()
        if child.stdout is not None:
            child.stdout.close()


def test_a_container_job_is_not_seen_from_the_host_target(box: Bed, tmp_path: Path) -> None:
    job = box.start()
    text = box.lab.inventory.read_text()
    inventory = tmp_path / "fleet.yaml"
    inventory.write_text(
        text[: text.index("containers:")] + "    jobs: {train: {match: {script: train.py}}}\n"
    )
    ran = box.run("stop", "lab1", "--force", inventory=inventory)
    assert ran.target["result"] == "not_running", ran.people
    assert lives(job)


def test_status_of_a_place_without_a_job_lists_what_holds_a_gpu(box: Bed) -> None:
    job = box.start()
    box.start("setsid -f sleep 300 >/dev/null 2>&1 </dev/null", how="raw", trainers=0)
    ran = box.run("status", f"lab1/{box.vmid}")
    assert ran.code == 0, ran.people
    by_address = [each for each in ran.events if each["event"] == "located"]
    assert len(by_address) == 1
    assert job.pid in {each["pid"] for each in by_address[0]["family"]}


def test_frozen_in_the_middle_is_told_and_nothing_more_is_sent(box: Bed) -> None:
    job = box.start("--save-seconds", "6")
    running = box.popen("stop", box.name, "--graceful")
    until(lambda: "saving" in box.log(job))
    box.lab.freeze(box.vmid)
    try:
        ran = box.finish(running, 60)
    finally:
        box.lab.thaw(box.vmid)
    assert ran.code == 4, ran.people
    assert ran.target["verdict"] in ("frozen", "unknown")
    assert ran.signals == [("INT", [job.pid])]
    until(lambda: not lives(job))
    assert len(box.saved()) == 1


def test_a_worker_that_stays_is_unclean_and_named(box: Bed) -> None:
    """A ladder without a tree rung sweeps nothing: 15 s, then 6 with its name."""
    box.start("--workers", "1", "--worker-habit", "stuck", "--save-seconds", "0.3")
    ran = box.run("stop", box.name, "--force", "--ladder", "TERM/5", deadline=90)
    assert ran.code == 6, ran.people
    worker = next(each for each in ran.target["family"] if each["role"] == "worker")
    assert str(worker["pid"]) in ran.target["reason"]
    assert alive(worker["host_pid"], worker["start"])
    assert [name for name, _ in ran.signals] == ["TERM"]


def test_gpu_memory_that_stays_is_unclean(box: Bed) -> None:
    box.start("--save-seconds", "0.3", "--gpus", "3")
    playbook = box.lab.root / f"quick-{box.vmid}.yaml"
    playbook.write_text(
        "lossless: true\nladder: [{signal: INT, to: trainers, wait: 1m}]\n"
        "verify: {checkpoint: new, gpus: released, within: 3s}\n"
    )
    box.lab.set_gpus(release_delay_s=600)
    try:
        ran = box.run("stop", box.name, "-p", str(playbook))
    finally:
        box.lab.set_gpus(release_delay_s=0.3)
    assert ran.code == 6, ran.people
    assert "gpus_held" in ran.target["reason"]


def test_nvidia_smi_that_fails_is_unknown_never_free(box: Bed) -> None:
    box.start("--save-seconds", "0.3")
    box.lab.set_gpus(fail="driver_mismatch")
    try:
        ran = box.run("stop", box.name, "--graceful")
    finally:
        box.lab.set_gpus(fail=None)
    assert ran.code == 6, ran.people
    assert "gpus_unseen" in ran.target["reason"]


def test_a_loop_that_starts_it_again_is_respawned(box: Bed) -> None:
    text = (
        "setsid -f bash -c 'cd /root; while true; do python3 -u train.py --save-seconds 0.2;"
        " done' >/workspace/train.log 2>&1 </dev/null"
    )
    box.start(text, how="raw", trainers=1)
    ran = box.run("stop", box.name, "--graceful", deadline=90)
    assert ran.code == 6, ran.people
    assert "again" in ran.target["reason"] or "wrapper" in ran.target["reason"]
    assert len(ran.signals) == 1


def test_a_dead_leader_with_a_living_thread_still_runs(box: Bed) -> None:
    """Its cmdline is empty and its state Z: neither not running nor gone."""
    (box.lab.rootfs(box.vmid) / "root/headless.py").write_text(
        "import ctypes, threading, time\n"
        "threading.Thread(target=time.sleep, args=(600,)).start()\n"
        "ctypes.CDLL(None).pthread_exit(None)\n"
    )
    text = "setsid -f python3 /root/headless.py >/dev/null 2>&1 </dev/null"
    job = box.start(text, how="raw", trainers=0)
    until(lambda: "Z" in Path(f"/proc/{job.process.pid}/stat").read_text().split(")")[-1][:3])
    shown = box.run("status", box.name, "--script", "headless.py")
    assert shown.target["result"] == "running", shown.people
    # its open files cannot be read, so it may be saving: the hold for that comes first
    playbook = box.lab.root / f"short-{box.vmid}.yaml"
    playbook.write_text(
        "ladder: [{signal: KILL, to: tree, wait: 5s}]\nhold: {saving: 9s, stopping: 2s}\n"
    )
    ran = box.run("stop", box.name, "--script", "headless.py", "--force", "-p", str(playbook))
    assert ran.code == 0, ran.people
    assert any(each["event"] == "holding" and each["why"] == "unseen" for each in ran.events)
    assert [name for name, _ in ran.signals] == ["KILL"]
