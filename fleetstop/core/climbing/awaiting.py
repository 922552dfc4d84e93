"""The rung that waits for a checkpoint: what counts as one, how long, and what if none comes."""

from __future__ import annotations

import msgspec

from fleetstop.core.climbing.consent import Terms, newer, older_base, uncounted
from fleetstop.core.climbing.position import Facts, Ladder, moved
from fleetstop.core.climbing.requests import ASKS
from fleetstop.core.climbing.rungs import Skip, not_for
from fleetstop.core.climbing.steps import Arrived, End, Enter, Step, Wait
from fleetstop.core.durations import spoken
from fleetstop.core.playbook import FOREVER, Playbook, Rung
from fleetstop.core.saves.risk import AtRisk

LOOK_S = 1.0
"""A checkpoint is looked for at this distance."""
UNSEEN_S = 10.0
"""So long the listing may fail before the rung is given up as one that cannot be seen."""


def first_rung(playbook: Playbook, terms: Terms) -> Playbook:
    """`--after-checkpoint` is a rung before all others."""
    if not terms.after_checkpoint:
        return playbook
    wait = Rung("", "trainers", terms.at_most_s, does="await", argument="checkpoint")
    return msgspec.structs.replace(playbook, ladder=(wait, *playbook.ladder))


def await_checkpoint(
    ladder: Ladder, rung: Rung, seen: Facts, now: float
) -> tuple[Ladder, list[Step]]:
    """Steps that end in Wait or End, or else the rung is over and the next follows at once."""
    steps: list[Step] = []
    ours = ladder.terms.after_checkpoint and ladder.rung == 0
    if not ladder.entered and (not_now := not_for(rung, seen.judged.verdict)) is not None:
        return _given_up(ladder, steps, not_now, ours)
    if not ladder.checkpoints:
        why = "the job declares no checkpoints, so a new one could not be seen (checkpoints:)"
        return _given_up(ladder, steps, why, ours)
    if not ladder.entered:
        ladder = moved(ladder, entered=True, entered_at=now, no_since=None)
        steps.append(Enter(ladder.rung, ASKS["await"], rung.to, rung.wait_s))
    waited = now - (ladder.entered_at if ladder.entered_at is not None else now)
    if ladder.base is None:
        if seen.risk is not None:
            return moved(ladder, base=seen.risk), [*steps, Wait(LOOK_S)]
        if waited < min(UNSEEN_S, rung.wait_s):
            return ladder, [*steps, Wait(LOOK_S)]
        return _given_up(ladder, steps, "the checkpoints could not be looked at", ours)
    here = seen.risk
    if here is not None and newer(ladder.base, here) and _counts(here, strict=ours):
        arrived = Arrived(ladder.rung, here.name, here.age_s, waited)
        return moved(ladder, arrived=True), [*steps, arrived]
    if here is not None and not newer(ladder.base, here):
        ladder = moved(ladder, base=older_base(ladder.base, here))
    if rung.wait_s == FOREVER or waited < rung.wait_s:
        return ladder, [*steps, Wait(min(LOOK_S, max(0.05, rung.wait_s - waited)))]
    steps.append(Arrived(ladder.rung, None, None, waited))
    if ours:
        steps.append(End("trainers_alive", _none_came(here, rung.wait_s)))
    return ladder, steps


def _counts(risk: AtRisk, *, strict: bool) -> bool:
    """For somebody's consent only one that is known to be whole; for a rung's pause any of ours."""
    return uncounted(risk) is None if strict else bool(risk.ours)


def _given_up(ladder: Ladder, steps: list[Step], why: str, ours: bool) -> tuple[Ladder, list[Step]]:
    skip = Skip(ladder.rung, ASKS["await"], "trainers", (), None, why)
    ladder = moved(ladder, skipped=(*ladder.skipped, skip))
    steps.append(skip)
    if ours:
        steps.append(End("refused", f"{why}; --after-checkpoint cannot be kept"))
    return ladder, steps


def _none_came(risk: AtRisk | None, wait_s: float) -> str:
    doubt = uncounted(risk) if risk is not None else "the checkpoints could not be looked at"
    more = f" ({doubt.rstrip('.')})" if doubt else ""
    return f"no new complete checkpoint came within {spoken(wait_s)}{more}"
