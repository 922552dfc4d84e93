"""What stands in a pane or a unit for the trainer: real processes, a real terminal."""

from __future__ import annotations

import ast
import fcntl
import json
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fleetstop.core.kin.matching import records_the_end, stands_for_it
from tests.contracts.test_supervise import (
    PATIENCE_S,
    RAISES,
    SAVES,
    SCRIPT,
    Run,
    alive,
    until,
)
from tests.core.trees import process

# a second INT, or a worker's death, costs this one its checkpoint
FRAGILE = """
import os, subprocess, sys, time
worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print("up", flush=True)
try:
    time.sleep(60)
except KeyboardInterrupt:
    print("saving", flush=True)
    time.sleep(1.5)
    if worker.poll() is not None:
        sys.exit("lost: the worker is gone")
    print("saved", flush=True)
    worker.kill()
"""


class Staying(Run):
    """The same spec, with somebody who stays."""

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        self.base = place / ".fleetstop" / "job"
        self.base.mkdir(parents=True)
        for script in (SCRIPT, SCRIPT.with_name("stay.py")):
            shutil.copy(script, self.base)
        self.file = self.base / "spec.json"
        self.report = self.base / "spec.json.report"
        self.spec["stop"] = "fleetstop stop ct200:train"
        self.child: subprocess.Popen[bytes] | None = None
        self.master = -1
        self.shown = b""

    def begin(self, **spec: Any) -> None:
        """In a terminal of its own, as a pane has one."""
        self.spec |= spec
        self.file.write_text(json.dumps(self.spec))
        self.master, slave = pty.openpty()
        self.child = subprocess.Popen(
            [sys.executable, "-I", str(self.base / "stay.py"), str(self.file)],
            stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509
        )  # fmt: skip
        os.close(slave)
        until(self.report.exists, "it reports")

    def stay(self, **spec: Any) -> None:
        self.begin(**spec)
        word, pid, start = self.report.read_text().split()
        assert word == "started"
        self.pid, self.start = int(pid), int(start)
        assert self.state["trainer"] == {"pid": self.pid, "start": self.start}

    def stay_python(self, text: str, **spec: Any) -> None:
        self.stay(argv=[sys.executable, "-c", text], **spec)
        self.said("up")

    def read(self) -> str:
        while self.master >= 0 and select.select([self.master], [], [], 0)[0]:
            got = b""
            with suppress(OSError):  # EIO: nobody has it open any more
                got = os.read(self.master, 65536)
            if not got:
                break
            self.shown += got
        return self.shown.decode().replace("\r\n", "\n")

    def shows(self, text: str) -> None:
        until(lambda: text in self.read(), f"it shows {text}")

    def hang_up(self) -> None:
        self.read()
        os.close(self.master)
        self.master = -1

    def left(self) -> int:
        assert self.child is not None

        def gone() -> bool:
            self.read()
            return self.child is not None and self.child.poll() is not None

        until(gone, "it leaves")
        return self.child.returncode

    @property
    def own(self) -> int:
        assert self.child is not None
        return self.child.pid


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Staying]:
    made = Staying(tmp_path)
    yield made
    pairs = [(made.pid, made.start)]
    if made.status.exists() and made.state["trainer"]:
        pairs += [made.supervisor]
    for pid, start in pairs:
        if pid and alive(pid, start):
            os.kill(pid, signal.SIGKILL)
    if made.child is not None:
        made.child.kill()
        made.child.wait()
    if made.master >= 0:
        os.close(made.master)


@pytest.mark.parametrize("code", [0, 3, 130])
def test_the_exit_code_is_recorded_shown_and_its_own(run: Staying, code: int) -> None:
    run.stay(argv=["sh", "-c", f"echo out; exit {code}"], output="pane")
    assert run.left() == code
    assert run.ended() == (code, None)
    who = f"the trainer ({run.pid}) exited {code}"
    if code == 0:  # a shell's, which hides how what it started has ended
        who = f"sh ({run.pid}) exited 0; its trainer's own end is not known"
    assert run.read() == (
        f"started {run.pid} {run.start}\n"
        f"fleetstop: what it writes stands in {run.log}, and here\n"
        f"out\nfleetstop: {who}\n"
    )
    assert run.log.read_text() == "out\n"
    assert not list(run.base.glob("*.new"))


def to_one(run: Staying, name: str) -> None:
    os.kill(run.pid, getattr(signal, f"SIG{name}"))


def to_group(run: Staying, name: str) -> None:
    os.killpg(run.pid, getattr(signal, f"SIG{name}"))


@pytest.mark.parametrize(
    ("name", "send"), [("KILL", to_one), ("INT", to_one), ("TERM", to_group), ("RTMIN", to_one)]
)
def test_the_signal_that_ended_it_is_recorded_and_shown(
    run: Staying, name: str, send: Callable[[Staying, str], None]
) -> None:
    run.stay_python(RAISES)
    assert os.getsid(run.pid) == os.getpgid(run.pid) == run.pid
    send(run, name)
    assert run.left() == 128 + getattr(signal, f"SIG{name}")
    assert run.ended() == (None, name)
    assert f"fleetstop: the trainer ({run.pid}) was ended by {name}\n" in run.read()


def test_it_and_its_supervisor_are_known_by_their_command_lines(run: Staying) -> None:
    run.stay_python(SAVES)
    for pid in (run.own, run.supervisor[0]):
        words = Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0").split("\0")
        one = process(50, " ".join(f"'{word}'" for word in words))
        assert records_the_end(one)
        assert stands_for_it(one) is (pid == run.own)
    above = Path(f"/proc/{run.supervisor[0]}/stat").read_text().rpartition(")")[2].split()[1]
    assert int(above) == run.own  # so the pane is seen above the trainer


@pytest.mark.parametrize(
    ("typed", "key"), [(b"\x03", "Ctrl-C"), (b"\x1c", "Ctrl-\\"), (b"\x1a", "Ctrl-Z")]
)
def test_what_is_typed_reaches_no_trainer_and_is_not_lost(
    run: Staying, typed: bytes, key: str
) -> None:
    run.stay_python(SAVES, output="pane")
    run.shows("up\n")
    os.write(run.master, typed)
    run.shows(
        f"fleetstop: {key} does not reach the trainer ({run.pid});"
        " `fleetstop stop ct200:train` lets it save and leave\n"
    )
    time.sleep(0.3)
    assert run.log.read_text() == "up\n"
    os.kill(run.pid, signal.SIGINT)
    run.shows("saved\n")
    assert run.left() == 0
    assert run.ended() == (0, None)


def test_the_terminals_end_is_not_the_trainers(run: Staying) -> None:
    """It prints on: to its log, never to the terminal, where EIO would end it."""
    text = SAVES.replace("    time.sleep(60)", "    while not time.sleep(0.05): print('on')")
    run.stay_python(text, output="pane", env={**run.spec["env"], "PYTHONUNBUFFERED": "1"})
    run.shows("on\n")
    run.hang_up()
    before = run.log.stat().st_size
    until(lambda: run.log.stat().st_size > before + 20, "it trains on")
    assert run.child is not None
    assert run.child.poll() is None
    os.kill(run.pid, signal.SIGINT)
    assert run.left() == 0
    assert run.ended() == (0, None)
    assert run.log.read_text().endswith("saved\n")


def test_a_terminal_that_takes_nothing_holds_nobody_up(run: Staying) -> None:
    """Ctrl-S, or a pane that nobody reads: a trainer that writes to it would stand still."""
    run.begin(
        argv=[sys.executable, "-c", "for _ in range(20000): print('x' * 99)\nprint('over')"],
        output="pane",
    )
    until(lambda: self_ended(run), "its end is recorded though nobody reads the terminal")
    assert run.log.stat().st_size == 100 * 20000 + 5
    assert run.child is not None
    assert run.child.wait(PATIENCE_S) == 0


def self_ended(run: Staying) -> bool:
    return run.status.exists() and run.state["ended_at"] is not None


def test_a_held_terminal_shows_it_all_later(run: Staying) -> None:
    run.stay_python(SAVES, output="pane")
    os.write(run.master, b"\x13")
    with run.log.open("a") as log:
        log.write("y" * 300_000 + "\n")
    time.sleep(0.6)
    assert "y" * 100_000 not in run.read()
    os.write(run.master, b"\x11")
    run.shows("y" * 300_000)


def test_whatever_signal_is_the_jobs_own_is_handed_on(run: Staying) -> None:
    text = "import signal\nsignal.signal(signal.SIGUSR1, signal.default_int_handler)\n" + SAVES
    run.stay_python(text, hand_on="USR1")
    os.kill(run.own, signal.SIGUSR1)
    assert run.left() == 0
    assert run.log.read_text() == "up\nsaved\n"


@pytest.mark.parametrize("again", [0, 1])
def test_the_stop_signal_is_handed_on_once_and_to_the_trainer_alone(
    run: Staying, again: int
) -> None:
    """To its group it would cost the worker, sent twice it would cut the save."""
    run.stay_python(FRAGILE, hand_on="INT")
    for _ in range(1 + again):
        os.kill(run.own, signal.SIGINT)
        run.said("saving")
        time.sleep(0.4)
    assert run.left() == 0
    assert run.log.read_text() == "up\nsaving\nsaved\n"
    assert run.ended() == (0, None)
    assert f"INT was handed on to the trainer ({run.pid}), which has all" in run.read()
    assert run.read().count("INT was handed on before") == again


def test_another_signal_than_the_stop_signal_is_not_handed_on(run: Staying) -> None:
    run.stay_python(SAVES, hand_on="INT")
    every = set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP, signal.SIGINT}
    faults = {f"SIG{each}" for each in "SEGV BUS FPE ILL TRAP SYS".split()}
    for each in every - {signal.Signals[name] for name in faults}:
        os.kill(run.own, each)
    run.shows("fleetstop: TERM is not handed on to the trainer")
    time.sleep(0.3)
    assert alive(run.pid, run.start)
    assert run.log.read_text() == "up\n"


@pytest.mark.parametrize("line", ['"$@"; echo over', '"$@" 2>&1 | tee seen; echo over'])
@pytest.mark.parametrize("shell", ["bash", "dash"])
def test_below_a_script_the_one_that_trains_is_told(run: Staying, shell: str, line: str) -> None:
    """To the script INT does nothing, and to its group it takes the tee away in mid-save."""
    run.stay(argv=[shell, "-c", line, "-", sys.executable, "-c", SAVES], hand_on="INT")
    run.said("up")
    os.kill(run.own, signal.SIGINT)
    assert run.left() == 0
    assert run.log.read_text() == "up\nsaved\nover\n"


def test_where_it_cannot_be_seen_who_trains_nobody_is_told(run: Staying) -> None:
    text = '"$@" & sleep 60; wait'
    run.stay(argv=["bash", "-c", text, "-", sys.executable, "-c", SAVES], hand_on="INT")
    run.said("up")
    os.kill(run.own, signal.SIGINT)
    run.shows(
        f"fleetstop: INT is not handed on: below {run.pid} it cannot be seen who trains;"
        " `fleetstop stop ct200:train` looks closer\n"
    )
    assert run.log.read_text() == "up\n"
    os.killpg(run.pid, signal.SIGKILL)
    assert run.left() == 128 + 9


def test_killed_it_leaves_trainer_and_record_alone(run: Staying) -> None:
    run.stay_python(SAVES)
    assert run.child is not None
    run.child.kill()
    run.child.wait()
    run.hang_up()
    time.sleep(0.3)
    assert alive(run.pid, run.start)
    os.kill(run.pid, signal.SIGINT)
    assert run.ended() == (0, None)
    assert run.log.read_text() == "up\nsaved\n"


def test_without_the_supervisor_it_waits_on_and_claims_no_record(run: Staying) -> None:
    run.stay_python(SAVES)
    os.kill(run.supervisor[0], signal.SIGKILL)
    time.sleep(0.5)
    assert run.child is not None
    assert run.child.poll() is None
    assert alive(run.pid, run.start)
    os.kill(run.pid, signal.SIGKILL)
    assert run.left() == 137
    assert run.state["ended_at"] is None
    assert f"the trainer ({run.pid}) ended by KILL; its supervisor was gone by then" in run.read()


def test_it_stays_until_what_the_trainer_left_behind_is_gone(run: Staying, tmp_path: Path) -> None:
    text = "(while [ ! -e leave ]; do sleep 0.05; done) & exit 4"
    run.stay(argv=["sh", "-c", text])
    run.shows(f"the trainer ({run.pid}) exited 4\n")
    time.sleep(0.4)
    assert run.child is not None
    assert run.child.poll() is None
    (tmp_path / "leave").touch()
    assert run.left() == 4


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"argv": ["/no/such"]}, "cannot run /no/such: No such file or directory"),
        ({"cwd": "here"}, "{file} has to name a program, and absolute cwd and status"),
        ({"log": None, "output": "pane"},
         "{file} has no log: the trainer does not write to a terminal itself"),
        ({"hand_on": 2}, "{file} does not tell hand_on as it should"),
    ],
)  # fmt: skip
def test_what_cannot_start_is_reported(run: Staying, spec: dict[str, Any], sentence: str) -> None:
    run.begin(**spec)
    assert run.left() == 1
    assert run.report.read_text() == f"failed {sentence.format(file=run.file)}\n"
    assert run.read() == run.report.read_text()


def test_a_report_that_cannot_be_written_ends_nobody(run: Staying) -> None:
    run.file.write_text(json.dumps(run.spec | {"argv": ["true"]}))
    run.report.mkdir()
    words = [sys.executable, "-I", str(run.base / "stay.py"), str(run.file)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    assert f"(not reported in {run.report}: Is a directory)\n" in done.stdout
    assert run.ended() == (0, None)


def test_it_reads_as_python_3_6_and_imports_only_the_standard_library() -> None:
    text = SCRIPT.with_name("stay.py").read_text()
    names: set[str] = set()
    for node in ast.walk(ast.parse(text, feature_version=(3, 6))):
        if isinstance(node, ast.Import):
            names |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    with suppress(KeyError):
        names.remove("__main__")
    assert names <= set(sys.stdlib_module_names) - {"__future__"}
