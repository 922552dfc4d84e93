"""What a script is told when a command is cut short before it began. Loads nothing heavy."""

from __future__ import annotations

import sys
from collections.abc import Sequence

_RUNS = ("stop", "status", "wait")


def cut_short(words: Sequence[str]) -> None:
    """For a command line that was interrupted while it was still being loaded."""
    before = list(words[: words.index("--")]) if "--" in words else list(words)
    command = next((each for each in before if not each.startswith("-")), None)
    if command in _RUNS and {"--json", "--events"} & set(before):
        report()


def report() -> None:
    """The report of a run that never looked at anything."""
    import json
    import secrets

    from fleetstop.view.stream import Outlet

    told = {"event": "report", "schema": 1, "run": secrets.token_hex(4), "exit_code": 130}
    line = json.dumps(told | {"targets": []}, separators=(",", ":"))
    Outlet(sys.stdout).write(line + "\n")
