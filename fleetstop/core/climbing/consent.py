"""What was agreed to and what has to be asked; knows neither who answers nor how."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from fleetstop.core.durations import FOREVER, spoken
from fleetstop.core.saves.risk import AtRisk

Consent: TypeAlias = Literal["given", "refused", "absent"]
# A file rewritten in place under the same name: its age has to fall by more than a clock's step.
_STEP_S = 1.0
NEXT_TO_NOTHING_S = 60.0
"""A job's `max_loss` where nothing is said."""


class Terms(Struct, frozen=True):
    """Consent with limits, beside the plain yes and no. Seconds.

    `asks`: somebody can be asked at the moment of the rung. `max_loss_s`: agreed while the
    newest complete checkpoint of ours, of a known format, is younger than that.
    `after_checkpoint`: only once a newer one than at the start is there, waited for `at_most_s`.
    """

    asks: bool = False
    max_loss_s: float | None = None
    after_checkpoint: bool = False
    at_most_s: float = FOREVER

    @property
    def limited(self) -> bool:
        return self.max_loss_s is not None or self.after_checkpoint

    @property
    def most_s(self) -> float:
        """Who waits for a checkpoint means to lose next to nothing, unless it is said."""
        return self.max_loss_s if self.max_loss_s is not None else NEXT_TO_NOTHING_S


class Question(Struct, frozen=True):
    """May this be sent? `why` says what it may lose; `risk` is what the disk still holds.

    `saves`: what is being written at this moment; `over`: the hold ran out before that ended.
    `beyond`: what a no leaves out with it, and would else be asked for in the next moment.
    `target` is filled in by who asks.
    """

    rung: int
    signal: str
    to: str
    pids: tuple[int, ...]
    landing: str
    why: str
    verdict: str
    saves: tuple[str, ...] = ()
    risk: AtRisk | None = None
    over: bool = False
    beyond: tuple[str, ...] = ()
    target: str = ""

    @property
    def key(self) -> tuple[object, ...]:
        """What a yes is good for: the same rung with the same effect, and no save since."""
        return self.rung, self.signal, self.landing, bool(self.saves), self.over


class Choice(Struct, frozen=True):
    """Which of these signals makes the job save? Every trainer hears each of them."""

    pids: tuple[int, ...]
    signals: tuple[str, ...]
    target: str = ""


def missing(consent: Consent, terms: Terms, risk: AtRisk | None, arrived: bool) -> str | None:
    """What speaks against a rung that may lose work, as a sentence; None: it may be sent, or
    asked for. `arrived`: the checkpoint that was waited for is there."""
    if consent == "given":
        return None
    if terms.after_checkpoint and not arrived:
        return "No new complete checkpoint is there yet."
    if terms.limited:
        return too_much(risk, terms.most_s)
    return None if terms.asks else "Needs --force"


def too_much(risk: AtRisk | None, most_s: float) -> str | None:
    """Why more than `most_s` may be lost by the newest checkpoint, or None where it is not."""
    if risk is None:
        return "The checkpoints could not be looked at, so nobody knows what it would lose."
    if risk.name is None:
        return "No complete checkpoint is there, so it would lose everything."
    doubt = uncounted(risk)
    if doubt is not None:
        return doubt
    age = risk.age_s or 0.0
    if age >= most_s:
        return f"{risk.name} is {spoken(age)} old, and no more than {spoken(most_s)} may be lost."
    return None


def unsure(risk: AtRisk | None) -> bool:
    """It may be known a look later: the listing failed, or whose it is was not seen yet."""
    return risk is None or (risk.name is not None and (risk.ours is None or risk.age_s is None))


def uncounted(risk: AtRisk) -> str | None:
    """Why the newest checkpoint cannot be counted on, or None."""
    if risk.name is None:
        return "no complete checkpoint is there"
    if not risk.ours:
        return f"{risk.name} is not known to be this job's own."
    if not risk.known_format:
        return f"The format of {risk.name} is not known, so it cannot be said to be whole."
    if risk.age_s is None:
        return f"The age of {risk.name} is not known; its time may lie ahead of the clock there."
    return None


def newer(base: AtRisk, now: AtRisk) -> bool:
    """A newer checkpoint than `base` was at the look before.

    By the remote clock alone: what was there only grows older, and what comes to the fore when
    the newest one is deleted is older still. Names and our own clock prove nothing.
    """
    if now.name is None or now.age_s is None:
        return False
    if base.name is None:
        return True
    if base.age_s is None:
        return False
    return now.age_s < base.age_s - (_STEP_S if now.name == base.name else 0.0)


def older_base(base: AtRisk, now: AtRisk) -> AtRisk:
    """What the next look is compared with: the same checkpoint, a look older."""
    return now if now.name == base.name and now.age_s is not None else base
