"""A trainer that is the first process of a PID namespace: of one nested in the container, or of
the container itself. The kernel gives such a process no signal that it has no handler for."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from .bed import Bed, alive, lives, until

pytestmark = pytest.mark.bed


NESTED = (
    "cd /root; exec setsid -f unshare -pf --mount-proc python3 -u /root/train.py --save-seconds 0.3"
    " >/workspace/train.log 2>&1 </dev/null"
)


def test_the_first_process_of_a_nested_namespace_is_an_ordinary_one(box: Bed) -> None:
    """TERM, which it has no handler for, is no way to end it; INT is heard, and saves."""
    job = box.start(NESTED, how="raw", trainers=1, seconds=60)
    assert job.pid == 1
    shown = box.run("status", box.name)
    (found,) = [each for each in shown.events if each["event"] == "located"]
    assert found["landings"] == {"INT": "heard", "TERM": "ignored"}, shown.people
    # nobody who can be waited for: it would wait for nothing
    ran = box.run("stop", box.name, "--force", "--ladder", "TERM/5")
    assert (ran.code, ran.signals, lives(job)) == (1, [], True), ran.people
    assert "TERM" in ran.target["skipped"][0]["signal"]
    ran = box.run("stop", box.name, "--graceful")
    assert ran.code == 0, ran.people
    ((name, pids),) = ran.signals
    (trainer,) = [each for each in ran.target["family"] if each["role"] == "trainer"]
    assert (name, pids, trainer["host_pid"]) == ("INT", [trainer["pid"]], job.host_pid)
    assert trainer["pid"] > 1
    assert len(box.saved()) == 1
    assert box.signals_seen(job) == 1


def test_the_first_process_of_a_nested_namespace_takes_kill(box: Bed) -> None:
    """From outside, as everybody does; the namespace goes with it."""
    job = box.start(NESTED, how="raw", trainers=1, seconds=60)
    ran = box.run("stop", box.name, "--force", "-p", "now")
    assert ran.code == 0, ran.people
    assert not lives(job)


def test_the_first_process_of_the_container_is_refused_and_pct_shutdown_named(box: Bed) -> None:
    """Whatever is agreed to: with it everything in the container would end."""
    box.lab.stop(box.vmid)
    config = box.lab.containers[box.vmid].home / "config"
    text = config.read_text().replace("lxc.init.cmd = /init", "lxc.init.cmd = /root/first.sh")
    config.write_text(text)
    script = box.lab.rootfs(box.vmid) / "root/first.sh"
    script.write_text(
        "#!/bin/bash\nuntil [ -w /dev/nvidia0 ]; do sleep 0.1; done\nexec >/workspace/train.log\n"
        "exec 2>&1 </dev/null python3 -u /root/train.py --save-seconds 0.3\n"
    )
    script.chmod(0o755)
    box.lab.boot(box.vmid)
    log = box.lab.rootfs(box.vmid) / "workspace/train.log"
    until(lambda: log.exists() and "step" in log.read_text())
    first = box.lab.containers[box.vmid].init_pid()
    assert first is not None
    start = int(Path(f"/proc/{first}/stat").read_text().rpartition(")")[2].split()[19])
    for words in (("--graceful",), ("--force",), ("--force", "-p", "now"), ("--force", "-n")):
        ran = box.run("stop", box.name, *words)
        assert (ran.code, ran.target["signals"]) == (5, []), ran.people
        assert "first process" in ran.target["reason"]
        assert f"pct shutdown {box.vmid}" in ran.people, ran.people
    shown = box.run("status", box.name)
    assert shown.code == 0
    assert alive(first, start)
    assert "KeyboardInterrupt" not in log.read_text()
    # what it would have been for nothing, and what would have ended everything
    inside = box.lab.exec(box.vmid, ["bash", "-c", "kill -KILL 1 && kill -TERM 1 && sleep 0.5"])
    os.kill(first, signal.SIGTERM)
    assert (inside.returncode, alive(first, start)) == (0, True)
    os.kill(first, signal.SIGINT)
    until(lambda: not alive(first, start))
    assert len(box.saved()) == 1
