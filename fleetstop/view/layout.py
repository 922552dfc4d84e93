"""Lines with a lead and a tone, wrapped under themselves. Knows no event and no stream."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

WIDTH = 104
LABEL = 14

Tone = Literal["plain", "head", "good", "bad", "warn", "dim"]
_ANSI: dict[Tone, str] = {"head": "1", "good": "1;32", "bad": "1;31", "warn": "33", "dim": "2"}


class Line(NamedTuple):
    """`lead` is a clock or a label; what wraps stands under `text`."""

    lead: str
    text: str
    tone: Tone = "plain"


def fact(label: str, text: str) -> Line:
    """A line of a header: `  job         26982 python3 …`."""
    return Line(f"  {label}".ljust(LABEL), text)


def note(label: str, text: str, tone: Tone = "plain") -> Line:
    """A line below an ending: `  end it now   fleetstop …`."""
    return Line(f"  {label}".ljust(LABEL - 1) + "  ", text, tone)


def cells(text: str) -> int:
    """Columns on a terminal; harmless text only."""
    if text.isascii():
        return len(text)
    return sum(_cell(each) for each in text)


def _cell(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _pieces(word: str, room: int) -> list[str]:
    """A word in parts that fit; almost always the word itself."""
    parts, used = [""], 0
    for char in word:
        wide = _cell(char)
        if used + wide > room and parts[-1]:
            parts.append("")
            used = 0
        parts[-1] += char
        used += wide
    return parts


def wrap(text: str, width: int) -> list[str]:
    """Broken at blanks; a word longer than a whole line is cut."""
    lines, current = [], ""
    for index, word in enumerate(text.split(" ")):
        joined = f"{current} {word}" if index else word
        if cells(joined) <= width:
            current = joined
            continue
        if current.strip():
            lines.append(current.rstrip())
        *whole, current = [word] if cells(word) <= width else _pieces(word, width)
        lines += whole
    return [*lines, current]


def fold(line: Line, width: int) -> list[Line]:
    """The physical lines of one line."""
    room = max(width - cells(line.lead), 20)
    first, *rest = wrap(line.text, room)
    blank = " " * cells(line.lead) if line.lead else "  "
    if rest and not line.lead:  # a title or an ending: what follows is indented
        first, *rest = [first, *wrap(" ".join(rest), max(width - 2, 20))]
    return [line._replace(text=first), *(Line(blank, each, line.tone) for each in rest)]


def painted(line: Line, color: bool) -> str:
    """One physical line; colour only adds."""
    if not color:
        return (line.lead + line.text).rstrip()
    lead = f"\x1b[2m{line.lead}\x1b[0m" if line.lead.strip() else line.lead
    code = _ANSI.get(line.tone)
    return lead + (f"\x1b[{code}m{line.text}\x1b[0m" if code else line.text)


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows aligned, two blanks between columns."""
    widths = [max(cells(cell) for cell in column) for column in zip(*rows, strict=True)]
    return [_row(row, widths) for row in rows]


def _row(row: Iterable[str], widths: Sequence[int]) -> str:
    padded = (cell + " " * (wide - cells(cell)) for cell, wide in zip(row, widths, strict=True))
    return "  ".join(padded).rstrip()
