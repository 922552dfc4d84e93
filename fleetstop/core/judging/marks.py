"""How a trainer was when it heard a signal; what it does later is held against that."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from fleetstop.core.ledger import Heard
from fleetstop.core.process import ProcessId, ProcessTree
from fleetstop.core.signals import NUMBERS


class Mark(Struct, frozen=True):
    """`at`: seconds since the host's boot. `switches`: of the main thread, see process.Detail.

    None: not known.
    """

    ignored: int
    ticks: int
    signal: str | None = None
    at: float | None = None
    switches: int | None = None
    written: int | None = None


def marks_of(
    tree: ProcessTree, heard: Mapping[ProcessId, tuple[str, float]]
) -> dict[ProcessId, Mark]:
    """`heard`: the signal, and how many seconds before this look."""
    marks = {}
    for each, (signal, ago_s) in heard.items():
        process = tree.get(each)
        if process is not None:
            marks[each] = Mark(
                ignored=process.masks.ignored if process.masks else 0,
                ticks=process.ticks,
                signal=signal,
                at=tree.uptime - ago_s,
                switches=process.detail.switches if process.detail else None,
                written=process.detail.written if process.detail else None,
            )
    return marks


def earlier_marks(tree: ProcessTree, past: Mapping[ProcessId, Heard]) -> dict[ProcessId, Mark]:
    """Marks of those who heard an earlier run: what they heard, they did not ignore then."""
    heard = {each: (told.signal, told.ago_s) for each, told in past.items()}
    marks = {}
    for each, mark in marks_of(tree, heard).items():
        number = NUMBERS.get(past[each].signal)  # None: an ask that was no signal
        bit = 0 if number is None else 1 << (number - 1)
        marks[each] = msgspec.structs.replace(mark, ignored=mark.ignored & ~bit)
    return marks
