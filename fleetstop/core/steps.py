"""What a ladder asks for: the steps of a climb, in the order they are to be done."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from fleetstop.core.holds import Why
from fleetstop.core.rungs import Send, Skip, WatchOn

Ending: TypeAlias = Literal["gone", "trainers_alive", "refused", "hold_over", "leftover"]


class Enter(Struct, frozen=True):
    rung: int
    signal: str
    to: str
    wait_s: float


class Wait(Struct, frozen=True):
    """Look again after `seconds` at the latest, at once when a member ends."""

    seconds: float


class Held(Struct, frozen=True):
    why: Why
    evidence: tuple[str, ...]
    over_wait: bool


class End(Struct, frozen=True):
    """The climb is over. `refused`: nothing was sent and only consent was missing;
    `hold_over`: the hold ran out and a lossless ladder does not go past it."""

    how: Ending
    reason: str


Step: TypeAlias = Enter | Send | Skip | WatchOn | Held | Wait | End
