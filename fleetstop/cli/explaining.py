"""`fleetstop explain`: what a word on the screen means."""

from __future__ import annotations

import os
import sys

from fleetstop.cli.running import complain
from fleetstop.core import glossary
from fleetstop.core.redact import text
from fleetstop.errors import BadUsage
from fleetstop.view.choose import colored, width
from fleetstop.view.explaining import meaning, words
from fleetstop.view.json_lines import line
from fleetstop.view.layout import Line, fold, painted
from fleetstop.view.stream import Outlet


def explain(word: str | None, as_json: bool, no_color: bool) -> int:
    found = glossary.ALL if word is None else glossary.explain(word)
    if word is not None and not found:
        near = " or ".join(glossary.near(word))
        meant = f"; did you mean {near}?" if near else ""
        return complain(
            BadUsage(
                f"{text(word, 40)!r} is no word of ours{meant}",
                hint="fleetstop explain lists them all",
            )
        )
    out = Outlet(sys.stdout)
    if as_json:
        out.write(line({"event": "glossary", "schema": 1, "words": found}) + "\n")
    elif word is None:
        show(out, words(found), no_color=no_color)
    else:
        show(out, [each for one in found for each in meaning(one)], no_color=no_color)
    return 0


def show(out: Outlet, lines: list[Line], *, no_color: bool) -> None:
    """Wrapped, and in colour where the terminal wants it."""
    color = colored(sys.stdout, no_color=no_color, environ=os.environ)
    room = width(sys.stdout)
    for each in lines:
        out.write("".join(painted(part, color) + "\n" for part in fold(each, room)))
