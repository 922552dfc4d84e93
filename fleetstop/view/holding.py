"""What a hold waits for, in one line, and what of it is news. Knows no clock."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fleetstop.core import redact
from fleetstop.events import Holding
from fleetstop.view import words

NUMBER = re.compile(r"[\d.,]+( ?[KMGT]i?B(/s)?)?")
# what became of our signal is worth a line of its own, whatever the verdict
ACCOUNT = re.compile(r"\d+ took [A-Z]+ |[A-Z]+ is still pending|it trains on")

# what a save in progress is at from look to look: the file stays the same
_DOING = re.compile(r" (?:open for writing by |growing$|may not be whole yet$|has no final name).*")
_TEMPORARY = re.compile(r"\.(?:tmp|part)$")
_SAID = {
    "saving": ("saving: {}", "no signal until {} whole", "it would cut this checkpoint"),
    "stopping": ("moving since the signal: {}", "", "it is still stopping"),
    "unseen": ("cannot see whether it saves: {}", "no signal for now", "it may be saving"),
}


def news(event: Holding) -> tuple[str, frozenset[str]]:
    """Two holds of which the later one's part is in the earlier one's tell the same."""
    texts = _plain(event.evidence)
    if event.why == "saving":
        texts = [_TEMPORARY.sub("", _DOING.sub("", each)) for each in texts]
    return event.why, frozenset(NUMBER.sub("#", each) for each in texts)


def facts(evidence: Sequence[str]) -> str:
    """Those of one kind told once, with their number; accounts only where nothing else is."""
    kinds: dict[str, list[str]] = {}
    for each in _plain(evidence):
        kinds.setdefault(NUMBER.sub("#", each), []).append(redact.text(each, 160))
    told = [
        first if not more else f"{first} (and {len(more)} more like it)"
        for first, *more in kinds.values()
    ]
    return ", ".join(told) or "no detail"


def _plain(evidence: Sequence[str]) -> list[str]:
    return [each for each in evidence if not ACCOUNT.search(each)] or list(evidence)


def sentence(event: Holding) -> str:
    """`saving: step_41212.tmp …, growing; no signal until it is whole`."""
    opening, aim, _ = _SAID[event.why]
    said = facts(event.evidence)
    if event.why == "stopping" and "no sign of progress" in said:
        opening = "quiet since the signal: {}"  # what moves not is not told as moving
    text = opening.format(said)
    files = [each for each in event.evidence if _DOING.search(each)]
    whole = aim.format("they are" if len(files) > 1 else "it is")
    return f"{text}; {whole}" if aim and not event.over_wait else text


def outlived(event: Holding, wait_s: float | None) -> list[str]:
    """The hold goes on when its rung's time is over."""
    danger = _SAID[event.why][2]
    over = f"{words.wait(wait_s)} are over; nothing more is sent: {danger}"
    return [over, facts(event.evidence)]
