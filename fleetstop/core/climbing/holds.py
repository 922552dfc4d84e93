"""How long a signal waits for a save: clocks that stand still while something grows."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from fleetstop.core.playbook import Hold
from fleetstop.core.verdict import Judged

Why: TypeAlias = Literal["saving", "stopping", "unseen"]
# A writer may sleep between two bursts (network storage): so long nothing need move.
QUIET_S = 5.0


class HoldClock(Struct, frozen=True):
    """Started when a hold began. `idle_s`: saving without growth; `cpu_s`: stopping by CPU
    alone; `moving_s`: stopping with memory or bytes; `quiet_s`: since anything moved."""

    at: float
    written: int = 0
    idle_s: float = 0.0
    cpu_s: float = 0.0
    moving_s: float = 0.0
    quiet_s: float = 0.0


def reason(judged: Judged, *, after_signal: bool, clock: HoldClock | None) -> Why | None:
    """Why the next signal has to wait, judged by one look; None where nothing speaks for it."""
    if judged.saving:
        return "saving"
    if judged.saving is None:
        return "unseen"
    if not after_signal or judged.trains_on:
        return None
    moves = judged.moves_cpu or judged.moves_memory or judged.moves_bytes
    if moves or judged.verdict == "stopping":
        return "stopping"
    return "stopping" if clock is None or clock.quiet_s < QUIET_S else None


def facts_for(why: Why, judged: Judged) -> tuple[str, ...]:
    """What is worth telling of a hold."""
    if why == "unseen":
        return judged.unseen
    return judged.saves or judged.evidence


def tick(clock: HoldClock | None, judged: Judged, why: Why, now: float) -> HoldClock:
    """The clock one look later."""
    if clock is None:
        return HoldClock(at=now, written=judged.written)
    step = max(0.0, now - clock.at)
    moves = judged.moves_cpu or judged.moves_memory or judged.moves_bytes
    new = msgspec.structs.replace(
        clock,
        at=now,
        written=judged.written,
        quiet_s=0.0 if moves else clock.quiet_s + step,
    )
    if why == "saving":
        return msgspec.structs.replace(new, idle_s=0.0 if _grows(judged) else clock.idle_s + step)
    if judged.moves_memory or judged.moves_bytes:
        return msgspec.structs.replace(new, moving_s=clock.moving_s + step)
    return msgspec.structs.replace(new, cpu_s=clock.cpu_s + step)


def _grows(judged: Judged) -> bool:
    """The save itself: a chatty log beside a file that stands still is no growth of that file."""
    return any(save.endswith("growing") for save in judged.saves)


def exhausted(clock: HoldClock, hold: Hold, why: Why) -> bool:
    if why == "saving":
        return clock.idle_s >= hold.saving_s
    return clock.cpu_s >= hold.stopping_s or clock.moving_s >= hold.moving_s
