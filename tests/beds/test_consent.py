"""Consent and asks on real sshd, real containers and a real terminal."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .bed import Bed, alive, lives, until, with_job, words_of

pytestmark = pytest.mark.bed

LOOK = "        checkpoints: /workspace/checkpoints\n        log: /workspace/train.log"


# a session of its own, with this as its terminal: what Ctrl-C needs
OWN_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); "
    "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
)


class Terminal:
    """`fleetstop` at a terminal of its own: what it shows, and what is typed."""

    def __init__(self, box: Bed, *words: str, inventory: Path | None = None) -> None:
        ours, theirs = pty.openpty()
        line = [sys.executable, "-c", OWN_TERMINAL, "-m", "fleetstop", *words]
        line += ["-i", str(inventory or box.lab.inventory)]
        env = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
        self.child = subprocess.Popen(
            line,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**env, "TERM": "xterm-256color", "NO_COLOR": "1"},
            start_new_session=True,
        )
        os.close(theirs)
        self._ours = ours
        self.text = ""

    @property
    def said(self) -> str:
        """What it shows, wherever a line of it is broken."""
        return " ".join(re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.text).split())

    def until(self, words: str, seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while words not in self.text:
            assert time.monotonic() < deadline, self.text
            if not self._read():
                assert words in self.text, self.text
                return

    def _read(self) -> bool:
        try:
            part = os.read(self._ours, 65536)
        except OSError:  # EIO: it has ended
            return False
        self.text += part.decode("utf-8", "replace")
        return bool(part)

    def type(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def end(self, seconds: float = 60.0) -> int:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self._read():
            pass
        code = self.child.wait(max(1.0, deadline - time.monotonic()))
        with contextlib.suppress(OSError):
            os.close(self._ours)
        return code


# A question at a terminal


def test_a_yes_at_the_terminal_ends_it(box: Bed) -> None:
    job = box.start(how="deaf")
    seen = Terminal(box, "stop", box.name)
    seen.until("send TERM? [y/N]")
    assert "may lose work: no handler" in seen.said
    assert lives(job)
    time.sleep(1.5)  # it keeps looking, and sends nothing
    assert lives(job)
    seen.type("y\n")
    assert seen.end() == 0, seen.text
    assert not lives(job)
    assert "agreed; looking once more before it is sent" in seen.said
    assert "by TERM, NOT saved" in seen.said
    assert box.lock_files() == []


def test_what_was_typed_before_the_question_answers_nothing(box: Bed) -> None:
    job = box.start(how="deaf")
    seen = Terminal(box, "stop", box.name)
    seen.type("y\n")
    seen.until("send TERM? [y/N]")
    time.sleep(1.5)
    assert lives(job)
    assert "a no leaves out KILL as well" in seen.said
    seen.type("n\n")
    assert seen.end() == 1, seen.text
    assert "send KILL?" not in seen.said
    assert lives(job)
    assert "The answer was no." in seen.said
    assert "nothing was sent" in seen.said
    assert box.lock_files() == []


def test_the_question_is_withdrawn_when_the_job_ends(box: Bed) -> None:
    job = box.start(how="deaf")
    seen = Terminal(box, "stop", box.name)
    seen.until("send TERM? [y/N]")
    os.kill(job.process.pid, signal.SIGKILL)
    seen.until("the question is withdrawn: the job has ended", 20)
    seen.end()
    assert "agreed" not in seen.said


def test_the_question_is_withdrawn_for_a_save_and_the_save_is_whole(box: Bed) -> None:
    """A yes just when the save begins: TERM at that moment would leave nothing whole."""
    box.start("--save-every", "6", "--in-place", "--save-seconds", "3", how="deaf")
    until(lambda: box.saved() == ["latest.pt"], 30)
    seen = Terminal(box, "stop", box.name)
    seen.until("the question is withdrawn: a checkpoint is being written")
    asked = seen.text.count("send TERM? [y/N]")
    seen.type("y\n")  # to a question that is no longer open
    deadline = time.monotonic() + 60
    while seen.text.count("send TERM? [y/N]") <= asked and time.monotonic() < deadline:
        seen._read()
    seen.type("y\n")
    assert seen.end(90) == 0, seen.text
    assert box.saved() == ["latest.pt"]


def test_ctrl_c_at_the_question_is_an_interruption(box: Bed) -> None:
    job = box.start(how="deaf")
    seen = Terminal(box, "stop", box.name)
    seen.until("send TERM? [y/N]")
    seen.type("\x03")
    assert seen.end() == 130, seen.text
    assert "nothing was sent" in seen.said
    assert lives(job)
    assert box.lock_files() == []


def test_end_of_input_is_no_yes(box: Bed) -> None:
    job = box.start(how="deaf")
    seen = Terminal(box, "stop", box.name, "--ladder", "TERM/5s")
    seen.until("send TERM? [y/N]")
    seen.type("y\x04\x04")  # typed, but never sent off with Enter
    assert seen.end() == 1, seen.text
    assert lives(job)


@pytest.mark.parametrize(("said", "code"), [("TERM", 0), ("neither", 5)])
def test_which_signal_saves_is_asked_at_a_terminal(
    box: Bed, tmp_path: Path, said: str, code: int
) -> None:
    """Python hears INT anyway; this one saves on TERM, and INT would end it unsaved."""
    job = box.start("--on", "TERM", "--save-seconds", "0.5")
    stanza = "match: {script: train.py}\n" + LOOK
    seen = Terminal(
        box, "stop", box.name, "--graceful", "--yes", inventory=with_job(box, tmp_path, stanza)
    )
    seen.until("which one makes it save? [INT/TERM/neither]")
    seen.type(f"{said.lower()}\n")
    assert seen.end() == code, seen.text
    assert lives(job) is (code == 5)
    assert len(box.saved()) == (1 if code == 0 else 0)


def test_without_a_terminal_nobody_is_asked(box: Bed) -> None:
    job = box.start(how="deaf")
    ran = box.run("stop", box.name, "--yes")
    assert ran.code == 5, ran.people
    assert "asked" not in ran.names()
    assert lives(job)


# Limited consent


@pytest.mark.parametrize(
    "words",
    [
        ["--graceful", "--max-loss", "10m"],
        ["--graceful", "--after-checkpoint"],
        ["--force", "--max-loss", "10m"],
        ["--at-most", "2h"],
        ["--max-loss", "forever"],
    ],
)
def test_consents_that_contradict_each_other_are_a_usage_error(box: Bed, words: list[str]) -> None:
    ran = subprocess.run(
        [
            *(sys.executable, "-m", "fleetstop", "stop", box.name, *words),
            *("-i", str(box.lab.inventory)),
        ],
        check=False,
        capture_output=True,
        stdin=subprocess.DEVNULL,
    )
    assert ran.returncode == 2


def test_max_loss_ends_a_deaf_job_with_a_young_checkpoint(box: Bed) -> None:
    job = box.start("--save-every", "4", "--save-seconds", "0.5", how="deaf")
    until(lambda: bool(box.saved()), 30)
    ran = box.run("stop", box.name, "--max-loss", "10m")
    assert ran.code == 0, ran.people
    assert ran.signals == [("TERM", [job.pid])]
    assert any("as agreed with --max-loss" in each for each in ran.target["findings"])
    assert box.saved()


def test_max_loss_refuses_where_more_would_be_lost(box: Bed) -> None:
    job = box.start("--save-every", "4", "--save-seconds", "0.2", how="deaf")
    until(lambda: bool(box.saved()), 30)
    for each in box.checkpoints.glob("*.pt"):
        os.utime(each, (time.time() - 1080, time.time() - 1080))
    os.kill(job.process.pid, signal.SIGSTOP)  # nothing new is written meanwhile
    ran = box.run("stop", box.name, "--max-loss", "10m")
    assert (ran.code, ran.signals) == (5, []), ran.people
    reasons = [each["reason"] for each in ran.target["skipped"]]
    assert any("is 18 min old, and no more than 10 min may be lost." in r for r in reasons)
    os.kill(job.process.pid, signal.SIGCONT)
    assert lives(job)


def test_after_checkpoint_ends_a_deaf_job_right_after_its_own_save(box: Bed) -> None:
    """Wrong choices: at once, and all since the last save is lost; into the save, and that too."""
    job = box.start("--save-every", "10", "--save-seconds", "3", how="deaf")
    until(lambda: bool(box.saved()), 60)
    before = set(box.saved())
    time.sleep(1.0)
    ran = box.run("stop", box.name, "--after-checkpoint", "--at-most", "2m", deadline=120)
    assert ran.code == 0, ran.people
    assert ran.signals == [("TERM", [job.pid])]
    (new,) = set(box.saved()) - before
    (awaited,) = [each for each in ran.events if each["event"] == "checkpoint_awaited"]
    assert awaited["name"] == new
    steps = [line for line in box.log(job).splitlines() if line.startswith("step ")]
    last, kept = int(steps[-1].split()[1]), int(new.removeprefix("step_").removesuffix(".pt"))
    # 0.25 s a step: what is lost is what it did between the save's end and TERM
    assert last - kept <= 40, (last, kept)
    assert not [each for each in box.checkpoints.iterdir() if each.name.endswith(".tmp")]


def test_after_checkpoint_sends_nothing_when_none_comes(box: Bed) -> None:
    job = box.start(how="deaf")
    ran = box.run("stop", box.name, "--after-checkpoint", "--at-most", "3s")
    assert (ran.code, ran.signals) == (1, []), ran.people
    assert "no new complete checkpoint came within 3 s" in ran.target["reason"]
    assert lives(job)


def test_after_checkpoint_without_checkpoints_refuses_at_once(box: Bed, tmp_path: Path) -> None:
    job = box.start(how="deaf")
    stanza = "match: {script: train.py}\n        stop_signal: INT"
    ran = box.run("stop", box.name, "--after-checkpoint", inventory=with_job(box, tmp_path, stanza))
    assert (ran.code, ran.signals) == (5, []), ran.people
    assert lives(job)


# Asks


def _playbook(where: Path, *rungs: str, lossless: bool = True, hold: str = "") -> str:
    path = where / "asks.yaml"
    lines = [f"lossless: {str(lossless).lower()}", "ladder:", *(f"  - {each}" for each in rungs)]
    path.write_text("\n".join([*lines, hold or "hold: {saving: 30m, stopping: 5s}"]) + "\n")
    return str(path)


def test_a_stop_file_is_touched_and_obeyed(box: Bed, tmp_path: Path) -> None:
    job = box.start("--stop-file", "/workspace/STOP", "--save-seconds", "1", how="deaf")
    book = _playbook(tmp_path, "{touch: /workspace/STOP, wait: 1m}")
    ran = box.run("stop", box.name, "-p", book)
    assert ran.code == 0, ran.people
    assert ran.signals == [("TOUCH", [job.pid])]
    assert len(box.saved()) == 1
    assert ran.target["checkpoint"]["written_after_signal"] is True
    assert box.signals_seen(job) == 0


def test_a_stop_file_waits_for_a_periodic_save_and_is_not_touched_twice(
    box: Bed, tmp_path: Path
) -> None:
    job = box.start("--stop-file", "/workspace/STOP", "--save-seconds", "8", how="deaf")
    book = _playbook(tmp_path, "{touch: /workspace/STOP, wait: 1m}")
    first = box.popen("stop", box.name, "-p", book)
    until(lambda: "saving" in box.log(job))
    first.process.send_signal(signal.SIGINT)
    ran = box.finish(first, 20)
    assert ran.code == 130, ran.people
    again = box.run("stop", box.name, "-p", book)
    assert again.code == 0, again.people
    assert again.signals == []
    watched = [each for each in again.events if each["event"] == "watched_on"]
    assert [each["signal"] for each in watched] == ["TOUCH"]
    assert len(box.saved()) == 1
    assert not (box.lab.rootfs(box.vmid) / "workspace/STOP").exists()


def test_a_command_in_the_container_asks_and_tells_its_last_words(box: Bed, tmp_path: Path) -> None:
    job = box.start("--stop-file", "/workspace/STOP", "--save-seconds", "1", how="deaf")
    text = "echo one; touch /workspace/STOP; echo 'asked it to stop'"
    book = _playbook(tmp_path, f'{{run: "{text}", wait: 1m, lossless: true}}')
    ran = box.run("stop", box.name, "-p", book)
    assert ran.code == 0, ran.people
    assert ran.signals == [("RUN", [job.pid])]
    (ended,) = [each for each in ran.events if each["event"] == "command_ended"]
    assert (ended["how"], ended["line"]) == ("0", "asked it to stop")
    assert len(box.saved()) == 1


def test_a_command_nobody_vouches_for_needs_consent(box: Bed, tmp_path: Path) -> None:
    job = box.start("--stop-file", "/workspace/STOP", how="deaf")
    book = _playbook(tmp_path, '{run: "touch /workspace/STOP", wait: 1m}', lossless=False)
    ran = box.run("stop", box.name, "-p", book)
    assert (ran.code, ran.signals) == (5, []), ran.people
    assert not (box.lab.rootfs(box.vmid) / "workspace/STOP").exists()
    assert lives(job)


def test_keys_reach_the_job_in_its_pane_and_not_its_neighbour(box: Bed, tmp_path: Path) -> None:
    job = box.start(
        "tmux new-session -d -s work 'exec python3 -u /root/train.py --listen --ignore INT,TERM "
        "--save-seconds 1 >/workspace/train.log 2>&1' \\; "
        "new-window -d -t work \"bash -c 'read -r x; echo \\$x >/workspace/neighbour'\"",
        how="raw",
        trainers=1,
    )
    stanza = "match: {tmux: work}\n" + LOOK
    book = _playbook(tmp_path, "{keys: stop Enter, wait: 1m, lossless: true}")
    ran = box.run(
        "stop", box.name, "-p", book, inventory=with_job(box, tmp_path, stanza), deadline=90
    )
    assert ran.code == 0, ran.people
    assert ran.signals == [("KEYS", [job.pid])]
    assert len(box.saved()) == 1
    assert not (box.lab.rootfs(box.vmid) / "workspace/neighbour").exists()


def test_a_server_drains_and_gets_its_second_int_after_the_budget(box: Bed, tmp_path: Path) -> None:
    job = box.start("--drain", "--no-save")
    book = _playbook(
        tmp_path,
        "{signal: INT, to: trainers, wait: 3s}",
        "{signal: INT, to: trainers, wait: 30s, again: true, lossless: true}",
        hold="verify: {checkpoint: none}\nhold: {saving: 30m, stopping: 2s}",
    )
    ran = box.run("stop", box.name, "-p", book)
    assert ran.code == 0, ran.people
    assert ran.signals == [("INT", [job.pid]), ("INT", [job.pid])]
    assert "draining" in box.log(job)


def test_the_second_int_is_no_way_into_a_trainers_save(box: Bed, tmp_path: Path) -> None:
    """The same playbook for a trainer by mistake: it saves for longer than the budget."""
    job = box.start("--save-seconds", "9", "--size-mb", "20")
    book = _playbook(
        tmp_path,
        "{signal: INT, to: trainers, wait: 2s}",
        "{signal: INT, to: trainers, wait: 30s, again: true, lossless: true}",
        hold="hold: {saving: 30m, stopping: 60s}",
    )
    ran = box.run("stop", box.name, "-p", book)
    assert ran.code == 0, ran.people
    assert ran.signals == [("INT", [job.pid])]
    assert box.signals_seen(job) == 1
    assert len(box.saved()) == 1


# PGID 0

NEIGHBOUR = """\
import signal, sys, time
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, frame: print("signalled", number, flush=True))
print("up", flush=True)
while True:
    time.sleep(0.1)
"""


@pytest.fixture
def neighbour(box: Bed) -> Path:
    (box.lab.rootfs(box.vmid) / "root/neighbour.py").write_text(NEIGHBOUR)
    return box.lab.rootfs(box.vmid) / "workspace/neighbour.log"


def test_a_group_rung_without_a_group_number_spares_the_neighbour(
    box: Bed, tmp_path: Path, neighbour: Path
) -> None:
    """Both jobs come from one attach without a tty: PGID 0 inside, and one group on the host."""
    text = (
        "cd /root; trap '' HUP; python3 -u neighbour.py >/workspace/neighbour.log 2>&1 </dev/null &"
        " env --default-signal=INT python3 -u train.py --save-seconds 1"
        " >/workspace/train.log 2>&1 </dev/null & sleep 0.3"
    )
    job = box.start(text, how="raw", trainers=1)
    until(lambda: neighbour.exists() and "up" in neighbour.read_text())
    others = _named(box, b"neighbour.py")
    group = {os.getpgid(pid) for pid, _ in others} | {os.getpgid(job.process.pid)}
    assert len(group) == 1
    assert _inner_pgid(job.process.pid) == "0"
    ran = box.run("stop", box.name, "--force", "--ladder", "INT:group/30s")
    assert ran.code == 0, ran.people
    assert ran.signals == [("INT", [job.pid])]
    assert len(box.saved()) == 1
    assert all(alive(*each) for each in others)
    assert "signalled" not in neighbour.read_text()


def _inner_pgid(pid: int) -> str:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("NSpgid:"):
            return line.split()[-1]
    return "?"


def _named(box: Bed, name: bytes) -> list[tuple[int, int]]:
    found = []
    for pid in sorted(box.lab.host_pids(box.vmid)):
        if name in words_of(pid):
            start = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
            found.append((pid, int(start)))
    return found
