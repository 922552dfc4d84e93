"""A dry run: what a ladder would do from here, by its own decisions; sends and changes nothing."""

from __future__ import annotations

from typing import Literal

import msgspec

from fleetstop.core.climbing.requests import ASKS
from fleetstop.core.climbing.rungs import Send, Skip, WatchOn, decide, not_for
from fleetstop.core.kin.birth import grow
from fleetstop.core.ladder import Ladder, standing_of, was_sent, watching_on
from fleetstop.core.playbook import FOREVER, Rung
from fleetstop.core.process import ProcessTree
from fleetstop.core.report import PlannedStep
from fleetstop.core.saves.risk import AtRisk

_LATER = "if it still runs by then"


def plan(
    ladder: Ladder,
    tree: ProcessTree,
    *,
    risk: AtRisk | None = None,
    verdict: str | None = None,
) -> tuple[PlannedStep, ...]:
    """What this ladder would do from here, by the same decisions; sends and changes nothing.

    Verdicts and checkpoints count as they are now; what comes after the first send or wait is
    planned without them, since nobody knows what they will be.
    """
    ladder = msgspec.structs.replace(ladder, family=grow(ladder.family, tree))
    steps: list[PlannedStep] = []
    for index, rung in enumerate(ladder.playbook.ladder):
        first = not any(step.would in ("send", "wait") for step in steps)
        now = verdict if first else None
        if rung.does == "await":
            steps.append(_planned_wait(ladder, rung, now, first))
            continue
        if ladder.terms.after_checkpoint and not first:
            # by then there is a fresh checkpoint: that is what was waited for
            ladder = msgspec.structs.replace(ladder, consent="given")
        decision = decide(index, rung, standing_of(ladder, tree, risk=risk, verdict=now))
        if isinstance(decision, Skip):
            steps.append(_planned(decision, decision.reason))
            continue
        if isinstance(decision, WatchOn):
            said = f"run {decision.heard.run} sent it {decision.heard.ago_s:.0f} s ago; watched on"
            steps.append(_planned_send(decision, "heard", "skip", said))
            ladder = watching_on(ladder, decision, tree, 0.0)
            continue
        said = "" if first else _when(rung)
        would: Literal["send", "send_if"] = "send" if first else "send_if"
        steps.append(_planned_send(decision, decision.landing, would, said))
        ladder = was_sent(ladder, decision, tree, 0.0)
    return tuple(steps)


def _when(rung: Rung) -> str:
    if rung.when:
        return f"{_LATER} and is {' or '.join(rung.when)}"
    return f"{_LATER} and is not {' or '.join(rung.unless)}" if rung.unless else _LATER


def _planned_wait(ladder: Ladder, rung: Rung, verdict: str | None, first: bool) -> PlannedStep:
    reason = not_for(rung, verdict)
    if reason is None and not ladder.checkpoints:
        reason = "the job declares no checkpoints, so a new one could not be seen (checkpoints:)"
    would: Literal["wait", "skip"] = "wait" if reason is None else "skip"
    return PlannedStep(
        signal=ASKS["await"],
        to="trainers",
        pids=(),
        landing="unseen",
        would=would,
        reason=reason or ("" if first else _when(rung)),
        wait_s=None if rung.wait_s == FOREVER else rung.wait_s,
    )


def _planned(skip: Skip, reason_: str) -> PlannedStep:
    return PlannedStep(
        signal=skip.signal,
        to=skip.to,
        pids=skip.pids,
        landing=skip.landing or "unseen",
        would="skip",
        reason=reason_,
        wait_s=None,
    )


def _planned_send(
    step: Send | WatchOn,
    how: str,
    would: Literal["send", "send_if", "skip"],
    reason_: str,
) -> PlannedStep:
    return PlannedStep(
        signal=step.signal,
        to=step.to,
        pids=tuple(kin.pid for kin in step.recipients),
        landing=how,
        would=would,
        reason=reason_,
        wait_s=None if step.wait_s == FOREVER else step.wait_s,
        argument=step.argument if isinstance(step, Send) else "",
    )
