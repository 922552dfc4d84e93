"""What a ladder asks for: the steps of a climb, in the order they are to be done."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from fleetstop.core.climbing.consent import Question
from fleetstop.core.climbing.holds import Why
from fleetstop.core.climbing.rungs import Send, Skip, WatchOn

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


class Ask(Struct, frozen=True):
    """Somebody's yes is needed. It comes with every look while the question is open, with the
    facts of that look; the answer goes back through `answered`."""

    question: Question


class Withdraw(Struct, frozen=True):
    """The open question has no object any more; whatever is answered to it counts for nothing."""

    question: Question
    reason: str


class Arrived(Struct, frozen=True):
    """The checkpoint that an await rung waited for; `name` None: it did not come in time."""

    rung: int
    name: str | None
    age_s: float | None
    waited_s: float


class End(Struct, frozen=True):
    """The climb is over. `refused`: nothing was sent and only consent was missing;
    `hold_over`: the hold ran out and a lossless ladder does not go past it."""

    how: Ending
    reason: str


Step: TypeAlias = Enter | Send | Skip | WatchOn | Held | Ask | Withdraw | Arrived | Wait | End
