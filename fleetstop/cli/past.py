"""`fleetstop history`: the runs there were, and one of them told again."""

from __future__ import annotations

import os
import sys

from fleetstop.api import Record, past_run, past_runs
from fleetstop.cli.explaining import show as show_lines
from fleetstop.cli.running import complain
from fleetstop.errors import FleetstopError
from fleetstop.view import past
from fleetstop.view.choose import colored, headed, width
from fleetstop.view.json_lines import line
from fleetstop.view.layout import Line
from fleetstop.view.stream import Outlet


def listing(limit: int, target: str | None, as_json: bool) -> int:
    try:
        found = past_runs(limit, target)
    except FleetstopError as exc:
        return complain(exc)
    out = Outlet(sys.stdout)
    if as_json:
        out.write(line({"event": "history", "schema": 1, "runs": found}) + "\n")
        return 0
    rows = [
        past.row(each.run, each.at, each.command, each.targets, each.results, each.state,
                 each.exit_code)
        for each in found
    ]  # fmt: skip
    for text in headed(past.table(rows, target), sys.stdout):
        out.write(text + "\n")
    return 0


def show(run: str, as_json: bool, no_color: bool) -> int:
    try:
        record, state = past_run(run)
    except FleetstopError as exc:
        return complain(exc)
    out = Outlet(sys.stdout)
    if as_json:
        out.write(line(record) + "\n")
        return 0
    _tell(out, record, state, no_color)
    return 0


def _tell(out: Outlet, record: Record, state: str, no_color: bool) -> None:
    def say(lines: list[Line]) -> None:
        show_lines(out, lines, no_color=no_color)

    say(past.title(record.run, record.started, record.version, state))
    color = colored(sys.stdout, no_color=no_color, environ=os.environ)
    past.replay(record.events, record.report, sys.stdout, color=color, width=width(sys.stdout))
    if record.report is None and state != "running":
        say([past.unfinished(record.last_at)])
    for box in record.black_boxes:
        say(past.black_box(box))
    if record.unread:
        say([Line("  ! ", f"{record.unread} events of a newer fleetstop are not shown")])
