"""A dry run: what a ladder would do from here, by its own decisions; sends and changes nothing."""

from __future__ import annotations

from typing import Literal

import msgspec

from fleetstop.core.birth import grow
from fleetstop.core.ladder import Ladder, standing_of, was_sent, watching_on
from fleetstop.core.playbook import FOREVER
from fleetstop.core.process import ProcessTree
from fleetstop.core.report import PlannedStep
from fleetstop.core.rungs import Send, Skip, WatchOn, decide


def plan(ladder: Ladder, tree: ProcessTree) -> tuple[PlannedStep, ...]:
    """What this ladder would do from here, by the same decisions; sends and changes nothing."""
    ladder = msgspec.structs.replace(ladder, family=grow(ladder.family, tree))
    steps: list[PlannedStep] = []
    for index, rung in enumerate(ladder.playbook.ladder):
        decision = decide(index, rung, standing_of(ladder, tree))
        first = not any(step.would == "send" for step in steps)
        if isinstance(decision, Skip):
            steps.append(_planned(decision, "skip", decision.reason, None))
            continue
        if isinstance(decision, WatchOn):
            said = f"run {decision.heard.run} sent it {decision.heard.ago_s:.0f} s ago; watched on"
            steps.append(_planned_send(decision, "heard", "skip", said))
            ladder = watching_on(ladder, decision, tree, 0.0)
            continue
        reason_ = "" if first else "if it still runs by then"
        steps.append(
            _planned_send(decision, decision.landing, "send" if first else "send_if", reason_)
        )
        ladder = was_sent(ladder, decision, tree, 0.0)
    return tuple(steps)


def _planned(skip: Skip, would: Literal["skip"], reason_: str, wait_s: float | None) -> PlannedStep:
    return PlannedStep(
        signal=skip.signal,
        to=skip.to,
        pids=skip.pids,
        landing=skip.landing or "unseen",
        would=would,
        reason=reason_,
        wait_s=wait_s,
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
    )
