"""The live view in a pseudo terminal: the same words, and no escape that is not rich's own."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from fleetstop.view.waiting import Waiting
from tests.core.test_redact import controls
from tests.view import launches, redeploys
from tests.view import scenes as s

ROOT = Path(__file__).parents[2]
SCRIPT = """
import sys, time
from fleetstop.view.choose import people
from tests.view import scenes as s
with people(sys.stderr, no_color={no_color}) as view:
    print(type(view).__name__)
    for event in s.{name}:
        view(event)
        time.sleep(0.03)
"""
# cursor hidden and shown, line erased, up, colours
OWN = re.compile(r"\x1b\[(?:\?25[lh]|2?K|1?A|[0-9;]*m)|\r")


def in_a_terminal(
    name: str, *, term: str = "xterm-256color", no_color: bool = False, shrink_to: int = 0
) -> str:
    """What arrives at a terminal of 120 columns; stdout's first line is the view's class."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    env = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS", "LINES")}
    child = subprocess.Popen(
        [sys.executable, "-c", SCRIPT.format(name=name, no_color=no_color)],
        stdin=theirs, stdout=theirs, stderr=theirs, cwd=ROOT,
        env={**env, "TERM": term, "TZ": "UTC", "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    os.close(theirs)
    data = b""
    with contextlib.suppress(OSError):  # EIO: the other side is closed
        while part := os.read(ours, 65536):
            data += part
            if shrink_to and b"waiting" in data:
                fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 40, shrink_to, 0, 0))
    os.close(ours)
    assert child.wait(30) == 0
    return data.decode()


def golden(name: str) -> list[str]:
    path = Path(__file__).parent / "golden" / f"stop_{name}.txt"
    return path.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize(
    ("scene", "name"),
    [("POLITE", "polite"), ("DEAF_GRACEFUL", "deaf_graceful"), ("HOSTILE_EVENTS", "hostile")],
)
def test_the_same_lines_and_no_foreign_escape(scene: str, name: str) -> None:
    raw = in_a_terminal(scene)
    assert raw.startswith("LiveLines")
    assert "\x1b[?25h" in raw[raw.rindex("\x1b[?25l") :]  # the cursor came back
    plain = OWN.sub("", raw)
    assert controls(plain.replace("\n", "")) == []
    for line in golden(name):
        assert line in plain


def test_no_status_line_is_left_behind() -> None:
    after = in_a_terminal("POLITE").rpartition("saved step_41212.")[2]
    assert OWN.sub("", after).strip() == ""


def test_a_shrinking_terminal_is_survived() -> None:
    plain = OWN.sub("", in_a_terminal("SLOW", shrink_to=50))
    told = " ".join(plain.split())
    assert "ct200:train stopped in 3 min 36 s, saved step_41212; one signal sent." in told
    assert any("…" in each for each in plain.splitlines() if "·" in each)


def test_without_colour_no_colour() -> None:
    raw = in_a_terminal("POLITE", no_color=True)
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", raw)


def test_a_dumb_terminal_gets_plain_lines() -> None:
    raw = in_a_terminal("POLITE", term="dumb")
    assert raw.startswith("Lines")
    assert "\x1b" not in raw


def test_the_bottom_line_says_what_is_waited_for() -> None:
    waiting = Waiting()
    assert waiting.line(0.0) == ""
    waiting.observe(s.started(), 0.0)
    assert waiting.line(1.4) == "looking, 1 s"
    waiting.observe(s.sent("14:02:11"), 2.0)
    assert waiting.line(14.0) == "INT sent, waiting for 26982, 12 s of 3m"
    waiting.observe(s.held("14:02:14", "saving", "step.tmp\x1b 2.1 GiB"), 15.0)
    waiting.observe(s.held("14:02:15", "saving", "step.tmp\x1b 2.4 GiB"), 16.0)
    assert waiting.line(20.0) == r"saving: step.tmp\x1b 2.4 GiB, 5 s"
    waiting.observe(redeploys.SENDING, 18.0)
    assert waiting.line(19.0) == "sending: 12.0 MiB of 200 MiB, 9.0 MiB/s, 1 s"
    waiting.observe(launches.launched("14:02:20", pid=31002), 20.0)
    assert waiting.line(24.0) == "looking whether 31002 is healthy, 4 s of 10s"
    waiting.observe(launches.said("14:02:25", "step 1 loss 2.1\r", "step 2 loss 1.9\x1b"), 25.0)
    assert waiting.line(25.0) == (
        r'looking whether 31002 is healthy, 5 s of 10s; log: "step 2 loss 1.9\x1b"'
    )
    waiting.observe(s.POLITE[-2], 21.0)
    assert waiting.line(22.0) == ""
    waiting.observe(s.many()[0], 30.0)
    assert waiting.line(31.0) == "1 of 4 done; ct200:train: looking, 1 s"
