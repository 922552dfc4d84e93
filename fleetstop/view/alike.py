"""Targets that came to the very same are told together, none left out. Knows no table."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fleetstop.core.report import Outcome

FEW = 4
"""So many rows of the same are read one by one."""
_ADDRESS = re.compile(r"(?:\b\d{1,3}(?:\.\d{1,3}){3}\b|\[[0-9a-fA-F:]+\])(?::\d+)?|-p \d+")


def together(outcomes: Sequence[Outcome]) -> list[tuple[Outcome, ...]]:
    """In the order of the first of each. What a sentence says of its own target, host or address is
    no difference; what was seen running stands alone."""
    groups: dict[tuple[object, ...], list[Outcome]] = {}
    for each in outcomes:
        groups.setdefault(_same(each), []).append(each)
    told: dict[str, tuple[Outcome, ...]] = {}
    for group in groups.values():
        for some in [tuple(group)] if len(group) >= FEW else [(each,) for each in group]:
            told[some[0].target] = some
    return [told[each.target] for each in outcomes if each.target in told]


def _same(outcome: Outcome) -> tuple[object, ...]:
    if outcome.family or outcome.stacks or outcome.gpus:
        return (outcome.target,)
    names = sorted({outcome.target, outcome.target.partition(":")[0], outcome.host or ""}, key=len)
    texts = (outcome.reason or "", outcome.hint or "", *outcome.findings)
    said = [_ADDRESS.sub("\0", each) for each in texts]
    for name in filter(None, reversed(names)):
        said = [each.replace(name, "\0") for each in said]
    return outcome.result, outcome.verdict, outcome.interrupted, *said
