"""What moved between two looks, over all living members of a family together."""

from __future__ import annotations

from msgspec import Struct

from fleetstop.core.kin.family import Family
from fleetstop.core.process import Process, ProcessTree

_MIB = 1024


class Motion(Struct, frozen=True):
    """`written`: bytes between the looks. `percent` of one core, None without a look before."""

    cpu: bool
    memory: bool
    bytes: bool
    written: int
    percent: float | None


def moved(before: ProcessTree | None, now: ProcessTree, family: Family, span_s: float) -> Motion:
    """`span_s`: seconds between the two."""
    ticks = rss = written = 0
    for kin in family.members:
        new = now.get(kin.id)
        old = before.get(kin.id) if before else None
        if new is None or old is None:
            continue
        ticks += max(0, new.ticks - old.ticks)
        rss += max(0, new.rss_kib - old.rss_kib)
        written += max(0, (_written(new) or 0) - (_written(old) or 0))
    return Motion(
        cpu=ticks > 0,
        memory=rss >= _MIB,
        bytes=written >= 65536,
        written=written,
        percent=100.0 * ticks / now.hz / span_s if span_s > 0 else None,
    )


def _written(process: Process) -> int | None:
    return process.detail.written if process.detail else None
