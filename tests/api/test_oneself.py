"""Whether another process of this machine is gone for certain: only then is its lock taken over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from fleetstop.api import oneself

TELLS = "from fleetstop.api import oneself; print(oneself.here(), flush=True); input()"


def other() -> tuple[subprocess.Popen[str], str]:
    child = subprocess.Popen(
        [sys.executable, "-c", TELLS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert child.stdout is not None
    return child, child.stdout.readline().strip()


def test_who_was_killed_is_dead_and_who_lives_is_not() -> None:
    child, word = other()
    assert word.split(":")[1] == str(child.pid)
    assert not oneself.dead(word)
    child.send_signal(signal.SIGKILL)
    while not oneself.dead(word):  # it is not reaped yet, and dead
        assert child.returncode is None
    child.wait()
    child.communicate()
    assert oneself.dead(word)


def test_of_what_this_machine_cannot_know_nobody_is_called_dead() -> None:
    machine, pid, start = oneself.here().split(":")
    assert not oneself.dead(oneself.here())
    assert oneself.dead(f"{machine}:{pid}:{int(start) - 1}")  # its number is ours by now
    nobody = 4_194_304  # beyond pid_max (proc(5))
    assert oneself.dead(f"{machine}:{nobody}:5")
    for word in (f"{machine[::-1]}:{nobody}:5", "", ":", f":{nobody}:5", f"{machine}:x:5"):
        assert not oneself.dead(word)
    assert int(pid) == os.getpid()
