"""`fleetstop adopt`: shows the stanza, asks, and writes it."""

from __future__ import annotations

import asyncio
import os
import sys
import termios
from collections.abc import Mapping
from typing import Any

from fleetstop.api import Adopted, Fleet
from fleetstop.cli.asking import at_terminal
from fleetstop.cli.running import complain, tell_unrecorded, work_alone
from fleetstop.core.adopting.adoption import Adoption
from fleetstop.errors import FleetstopError
from fleetstop.view import adopting
from fleetstop.view.choose import colored, width
from fleetstop.view.json_lines import line
from fleetstop.view.stream import Outlet

REFUSED = 5
Given = Mapping[str, Any]


def run_adopt(**given: Any) -> int:
    try:
        return _adopt(given)
    except FleetstopError as exc:
        return complain(exc)
    except (KeyboardInterrupt, asyncio.CancelledError):
        return 130


def _adopt(given: Given) -> int:
    fleet = Fleet.load(given["inventory"])

    async def work(fleet: Fleet) -> Adopted:
        return await fleet.adopt(given["target"], pid=given["pid"], name=given["name"])

    made = asyncio.run(work_alone(fleet, work))
    screen = _Screen(given)
    tell_unrecorded(fleet)
    if made.adoption is None:
        screen.lines(adopting.failed(made.report.targets[0]))
        return _told(given, made, made.report.exit_code, written=False)
    screen.adoption(made.adoption)
    if given["dry_run"]:
        return _told(given, made, 0, written=False)
    agreed, why = (True, "") if given["yes"] else _asked(given, screen)
    if agreed:
        made.write()
    screen.lines(
        adopting.ended(made.adoption, written=agreed, why=why, inventory=given["inventory"])
    )
    return _told(given, made, 0 if agreed else REFUSED, written=agreed)


def _asked(given: Given, screen: _Screen) -> tuple[bool, str]:
    """Whether somebody said yes; why nobody could be asked, else."""
    if at_terminal(given, sys.stdout) is None:
        return False, ": nobody could be asked (no terminal, and no --yes)"
    # what was typed before the question stood there answers none
    termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
    screen.write(adopting.QUESTION)
    return sys.stdin.readline().strip().lower() in ("y", "yes"), ""


class _Screen:
    """For people: stdout, or stderr where a script reads that."""

    def __init__(self, given: Given) -> None:
        stream = sys.stderr if given["as_json"] else sys.stdout
        self._out = Outlet(stream)
        self._width = width(stream)
        self._color = colored(stream, no_color=given["no_color"], environ=os.environ)

    def adoption(self, made: Adoption) -> None:
        self.write(adopting.shown(made, width=self._width, color=self._color))

    def lines(self, lines: list[Any]) -> None:
        self.write(adopting.text(lines, width=self._width, color=self._color))

    def write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()


def _told(given: Given, made: Adopted, code: int, *, written: bool) -> int:
    if given["as_json"]:
        told = made.adoption
        facts = {
            "event": "adoption",
            "schema": 1,
            "exit_code": code,
            "name": told.name if told else None,
            "file": told.file if told else None,
            "written": written,
            "stanza": told.gathered.stanza.tree() if told else None,
            "secrets": told.gathered.secrets if told else [],
            "notes": told.gathered.notes if told else [],
            "target": made.report.targets[0],
        }
        Outlet(sys.stdout).write(line(facts) + "\n")
    return code
