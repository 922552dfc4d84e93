"""A job that is to be adopted: what it is, what would be written, what a person should know."""

from __future__ import annotations

from fleetstop.core.adopting.adoption import Adoption
from fleetstop.core.redact import brief, safe, typed
from fleetstop.core.report import Outcome
from fleetstop.view import words
from fleetstop.view.layout import Line, fact, fold, note, painted

QUESTION = "Write it? [y/N] "


def shown(made: Adoption, *, width: int, color: bool) -> str:
    """Before anything is written. The stanza's lines are never wrapped: they can be copied."""
    lines = [Line("", f"{made.name} on {made.host}, {_where(made)}", "head"), *_job(made)]
    text = "".join(_text(each, width, color) for each in lines)
    text += "".join(f"    {safe(line)}\n" for line in made.lines())
    return text + "".join(_text(each, width, color) for each in _told(made))


def _where(made: Adoption) -> str:
    new = ", a new file" if made.new_file else ""
    return f"to be written into {safe(made.file)}{new}"


def _job(made: Adoption) -> list[Line]:
    family = made.family
    lead = family.trainers[0]
    more = len(family.trainers) - 1
    told = f"{lead.pid} {brief(lead.argv)}, up {words.uptime(lead.up_s)}"
    told += f" (+{more} trainers)" if more else ""
    above = [kin for kin in family.members if kin.role in ("wrapper", "launcher")]
    if above:
        told += f", under {above[0].pid} {brief(above[0].argv)}"
    return [fact("job", told), fact("adds", "")]


def _told(made: Adoption) -> list[Line]:
    return [Line("  ! ", each, "warn") for each in made.gathered.notes]


def ended(made: Adoption, *, written: bool, why: str, inventory: str | None) -> list[Line]:
    """The last words; `why` it was not written, empty where nobody asked for that."""
    if written:
        status = typed(("status", made.name), inventory)
        return [Line("", f"{made.name} is in {safe(made.file)} now.", "good"), note("next", status)]
    lines = [Line("", f"{made.name} NOT written{why}.", "bad")]
    return lines if not why else [*lines, note("next", "the same command with --yes writes it")]


def failed(outcome: Outcome) -> list[Line]:
    """Where it could not be looked at, or is nothing to be adopted."""
    lines = [Line("", f"{outcome.target}: {outcome.reason}; nothing was written.", "bad")]
    return lines + ([note("next", outcome.hint)] if outcome.hint else [])


def text(lines: list[Line], *, width: int, color: bool) -> str:
    return "".join(_text(each, width, color) for each in lines)


def _text(line: Line, width: int, color: bool) -> str:
    return "".join(painted(part, color) + "\n" for part in fold(line, width))
