"""Screens on a narrow terminal wrap under themselves, and their titles stand out."""

from __future__ import annotations

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

COLUMNS = 72


def on_a_terminal(*words: str, cwd: Path) -> str:
    """What the command writes to a real terminal of 72 columns."""
    main, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
    env = {key: each for key, each in os.environ.items() if key not in ("COLUMNS", "NO_COLOR")}
    root = str(Path(__file__).parents[2])
    child = subprocess.Popen(
        [sys.executable, "-m", "fleetstop", *words],
        stdin=side, stdout=side, stderr=side, cwd=cwd,
        env={**env, "TERM": "xterm-256color", "PYTHONPATH": root, "HOME": str(cwd)},
    )  # fmt: skip
    os.close(side)
    told = b""
    try:
        while piece := os.read(main, 65536):
            told += piece
    except OSError:  # EIO: the other side is closed
        pass
    os.close(main)
    child.wait(60)
    return told.decode().replace("\r\n", "\n")


@pytest.mark.parametrize(
    "line",
    [
        "explain deaf",
        "explain",
        "playbook show standard",
        "playbook show systemd",
        "playbook rehearse standard --against deaf",
    ],
)
def test_no_line_is_wider_than_the_terminal(line: str, tmp_path: Path) -> None:
    text = on_a_terminal(*line.split(), cwd=tmp_path)
    first, *rest = text.splitlines()
    assert first.startswith("\x1b[1m"), "the title stands out"
    plain = [re.sub(r"\x1b\[[0-9;]*m", "", each) for each in (first, *rest)]
    assert len(plain) > 5
    assert [each for each in plain if len(each) > COLUMNS] == []


def test_the_one_line_of_quiet_wraps_under_itself_too(tmp_path: Path) -> None:
    (tmp_path / "inventory").mkdir()
    (tmp_path / "inventory/fleet.yaml").write_text(
        "hosts: {pve1: {ssh: root@pve1.invalid}}\n"
        "containers: {ct200: {host: pve1, vmid: 200, protected: true, jobs: {train: {match: "
        "{script: train.py}}}}}\n"
    )
    text = on_a_terminal("restart", "ct200", "--quiet", cwd=tmp_path)
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", each) for each in text.splitlines()]
    assert len(lines) == 2, lines
    assert lines[0].startswith("ct200:train REFUSED: ")
    assert lines[1].startswith("  ")
    assert [each for each in lines if len(each) > COLUMNS] == []
