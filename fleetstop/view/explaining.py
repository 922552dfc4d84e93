"""A word of the glossary, and the list of them all, as lines. Knows no stream."""

from __future__ import annotations

from collections.abc import Sequence

from fleetstop.core.glossary import Kind, Meaning
from fleetstop.view.layout import Line, fact

_TITLES: dict[Kind, str] = {
    "verdict": "verdicts, the worst first",
    "landing": "landings: how a signal would land",
    "result": "results",
    "reason": "reasons: how that of an unclean end begins",
    "check": "checks of what was started",
    "thing": "things",
    "exit code": "exit codes",
}


def meaning(each: Meaning) -> list[Line]:
    lines = [Line("", f"{each.word} ({each.kind})", "head"), fact("means", each.means)]
    lines.append(fact("seen by", each.seen))
    return [*lines, *([fact("next", each.next)] if each.next else [])]


def words(every: Sequence[Meaning]) -> list[Line]:
    """Each kind's words, in the order of the contract."""
    lines = []
    for kind, title in _TITLES.items():
        lines.append(Line("", title, "head"))
        lines.append(Line("  ", ", ".join(each.word for each in every if each.kind == kind)))
    return [*lines, Line("", "One of them: fleetstop explain deaf")]
