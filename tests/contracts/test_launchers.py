"""A launch in a tmux session, by the shells there are: the real tmux, on a socket of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetstop.core.inventory import Job, Launch, Launcher, Match
from fleetstop.core.launching.launchers import prefix
from tests.contracts.test_supervise import RAISES, SAVES, SCRIPT, Run, alive, until

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
SHELLS = {"dash": ["dash"], "bash": ["bash", "--posix"], "busybox": ["busybox", "sh"]}


class InTmux(Run):
    def __init__(self, place: Path, sockets: Path, shell: list[str]) -> None:
        super().__init__(place)
        self.base = place / ".fleetstop" / "train$x;"
        self.base.mkdir(parents=True)
        for script in (SCRIPT, SCRIPT.with_name("stay.py")):
            shutil.copy(script, self.base)
        self.file = self.base / "launch $HOME;"
        self.spec |= {"output": "pane", "stop": "fleetstop stop ct200:train"}
        self.env = {**os.environ, "TMUX_TMPDIR": str(sockets)}
        self.shell = shell

    def launch(self, name: str = "mine", python: str = sys.executable, **spec: Any) -> list[str]:
        self.file.write_text(json.dumps(self.spec | spec))
        launcher = Launcher("tmux", name)
        job = Job("train", Match(script="a"), launch=Launch(("a",), launcher=launcher))
        words = [*prefix(job), python, "-I", f"{self.base}/supervise.py", str(self.file)]
        done = subprocess.run(
            [*self.shell, *words[1:]], env=self.env, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=90, check=False,
        )  # fmt: skip
        assert done.stderr == ""
        assert done.stdout.count("\n") == 1
        said = done.stdout.split(" ", 1)
        assert done.returncode == (said[0] != "started")
        if said[0] == "started":
            self.pid, self.start = (int(word) for word in said[1].split())
        assert not Path(f"{self.file}.report").exists()
        return [said[0], said[1].strip()]

    def tmux(self, *words: str) -> str:
        done = subprocess.run(
            ["tmux", *words], env=self.env, capture_output=True, text=True, timeout=60, check=False
        )
        return done.stdout

    def pane(self) -> str:
        return self.tmux("capture-pane", "-p", "-J", "-t", "=mine:")

    def panes(self) -> str:
        return self.tmux("list-panes", "-s", "-t", "=mine", "-F", "#{pane_dead}").strip()


@pytest.fixture(params=SHELLS)
def run(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[InTmux]:
    shell = SHELLS[request.param]
    if shutil.which(shell[0]) is None:
        pytest.skip(f"{shell[0]} is not installed")
    sockets = Path(tempfile.mkdtemp(prefix="fst-", dir="/tmp"))
    made = InTmux(tmp_path, sockets, shell)
    yield made
    pairs = [(made.pid, made.start)]
    if made.status.exists() and made.state["trainer"]:
        pairs += [made.supervisor]
    for pid, start in pairs:
        if pid and alive(pid, start):
            os.kill(pid, signal.SIGKILL)
    made.tmux("kill-server")
    shutil.rmtree(sockets, ignore_errors=True)


def test_a_pane_shows_the_run_and_its_end_and_is_used_again(run: InTmux) -> None:
    assert run.launch(argv=[sys.executable, "-c", SAVES])[0] == "started"
    until(lambda: "up\n" in run.pane(), "the pane shows what it writes")
    assert run.tmux("list-sessions", "-F", "#{session_name}") == "mine\n"
    os.kill(run.pid, signal.SIGINT)
    assert run.ended() == (0, None)
    until(lambda: run.panes() == "1", "the pane's process leaves, and the pane stays")
    assert f"saved\nfleetstop: the trainer ({run.pid}) exited 0\n" in run.pane()
    first = run.pid
    assert run.launch(argv=[sys.executable, "-c", RAISES])[0] == "started"
    assert (run.panes(), run.pid != first) == ("0", True)
    os.kill(run.pid, signal.SIGKILL)
    assert run.ended() == (None, "KILL")
    until(lambda: "was ended by KILL" in run.pane(), "the end is shown")


def test_a_living_pane_is_left_alone(run: InTmux) -> None:
    """As somebody's own shell in the session: the trainer would take its place."""
    run.tmux("new-session", "-d", "-s", "mine", "sleep 300")
    began = time.monotonic()
    word, sentence = run.launch(argv=["touch", str(run.base / "it-ran")])
    assert (word, time.monotonic() - began > 5) == ("failed", True)
    assert sentence == "the tmux session mine has a living pane (tmux attach -t mine)"
    assert not (run.base / "it-ran").exists()
    assert run.panes() == "0"


def test_the_old_runs_pane_is_waited_for(run: InTmux) -> None:
    run.tmux("new-session", "-d", "-s", "mine", "sleep 2", ";", "set", "remain-on-exit", "on")
    assert run.launch(argv=["true"])[0] == "started"
    assert run.ended() == (0, None)


def test_the_end_of_tmux_is_not_the_trainers(run: InTmux) -> None:
    run.launch(argv=[sys.executable, "-c", SAVES])
    run.said("up")
    run.tmux("kill-server")
    time.sleep(0.5)
    assert alive(run.pid, run.start)
    os.kill(run.pid, signal.SIGINT)
    assert run.ended() == (0, None)
    assert run.log.read_text() == "up\nsaved\n"


def test_what_does_not_start_is_said_at_once(run: InTmux) -> None:
    began = time.monotonic()
    assert run.launch(argv=["/no/such"]) == [
        "failed", "cannot run /no/such: No such file or directory",
    ]  # fmt: skip
    assert run.launch(python="/no/such/python") == [
        "failed", "it ended before it told whether the trainer started",
    ]  # fmt: skip
    assert time.monotonic() - began < 25
