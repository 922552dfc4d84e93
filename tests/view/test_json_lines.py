"""What scripts read, and that a reader who leaves changes nothing."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from fleetstop.core.report import Report
from fleetstop.events import AnyEvent
from fleetstop.view.choose import people
from fleetstop.view.json_lines import JsonLines
from fleetstop.view.json_lines import line as json_line
from fleetstop.view.lines import Lines
from fleetstop.view.table import StatusTable
from tests.view import scenes as s

ROOT = Path(__file__).parents[2]


def written(story: list[AnyEvent], *, events: bool) -> list[str]:
    out = io.StringIO()
    listener = JsonLines(out, events=events)
    for event in story:
        listener(event)
    return out.getvalue().splitlines()


def test_json_is_the_report_alone_on_one_line() -> None:
    (line,) = written(s.POLITE, events=False)
    assert msgspec.json.decode(line, type=Report) == s.POLITE[-1]
    keys = json.loads(line)["targets"][0]
    assert keys["hint"] is None
    assert keys["result"] == "stopped"


def test_events_begin_with_started_and_end_with_the_report() -> None:
    names = [json.loads(each)["event"] for each in written(s.POLITE, events=True)]
    assert names[0] == "started"
    assert names[-1] == "report"
    assert len(names) == len(s.POLITE)


def test_every_event_has_at_and_target() -> None:
    for line in written(s.SLOW + s.INTERRUPTED + s.FAULT, events=True):
        value = json.loads(line)
        assert value["event"] == "report" or {"at", "target"} <= value.keys()


def test_hostile_text_is_whole_and_harmless() -> None:
    lines = written(s.HOSTILE_EVENTS, events=True)
    assert all(each.isascii() and each.isprintable() for each in lines)
    assert "Zq9xW3vK7pLm2RtY" not in "".join(lines)
    found = json.loads(lines[1])
    assert found["log"]["line"] == s.FORGED
    assert json.loads(lines[-1])["targets"][0]["evidence"] == ["\\xff held by 31 \x07"]


def test_infinity_is_null() -> None:
    line = json_line(s.sent("14:02:11", wait_s=float("inf")))
    assert json.loads(line)["wait_s"] is None
    assert "null" in json_line([float("nan")])
    assert json.loads(json_line(["\U0001f600 é"])) == ["\U0001f600 é"]


CLOSED = """
import sys
from fleetstop.view.json_lines import JsonLines
from fleetstop.view.lines import Lines
from fleetstop.view.table import StatusTable
from tests.view import scenes as s
for listener in (JsonLines(sys.stdout, events=True), Lines(sys.stdout), StatusTable(sys.stdout)):
    for event in s.POLITE * 50:
        listener(event)
print("still here")
sys.exit(6)
"""


@pytest.mark.parametrize("kind", ["reader gone", "closed from the start", "full"])
def test_a_lost_stdout_changes_no_exit_code(kind: str) -> None:
    command = [sys.executable, "-c", CLOSED]
    if kind == "full":
        command = ["sh", "-c", 'exec "$@" >/dev/full', "sh", *command]
    elif kind == "closed from the start":
        command = ["sh", "-c", 'exec "$@" >&-', "sh", *command]
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb") as out:
        done = subprocess.run(
            command, stdout=out, stderr=subprocess.PIPE, cwd=ROOT, check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=60,
        )  # fmt: skip
    told = b"fleetstop: not all of the output could be written: No space left on device\n"
    assert done.stderr == (told if kind == "full" else b"")
    assert done.returncode == 6


class Broken(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(5, "gone")


def test_a_broken_stream_hurts_no_listener() -> None:
    heard = 0
    for listener in (Lines(Broken()), StatusTable(Broken()), JsonLines(Broken(), events=True)):
        for event in s.POLITE:
            listener(event)
            heard += 1
    for event in s.POLITE:
        Lines(None)(event)
    assert heard == 3 * len(s.POLITE)


def test_a_narrow_encoding_is_no_error() -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="ascii")
    with Lines(out) as lines:
        lines(s.sent("14:02:11", pids=tuple(range(100, 120, 2))))
        lines(s.held("14:02:12", "saving", "höhe…"))
    assert b"100, 102, 104 ... 118 (10 in all)" in raw.getvalue()
    assert b"h\\xf6he..." in raw.getvalue()


def test_plain_lines_where_there_is_no_real_terminal() -> None:
    assert type(people(io.StringIO(), environ={"TERM": "xterm"})) is Lines
    assert type(people(None)) is Lines
