"""End what was just started so that the version before can come back: gently, and never in a save.

It is our own newborn of seconds or minutes, so that its end is agreed to; what it writes is not.
"""

from __future__ import annotations

from fleetstop.actions.climb import Climb
from fleetstop.actions.locate import locate
from fleetstop.actions.lock import Lock
from fleetstop.actions.telling import Scope
from fleetstop.core.climbing.requests import choose_stop_signal
from fleetstop.core.kin.family import Family, standing
from fleetstop.core.ladder import End, begin
from fleetstop.core.playbook import Hold, Playbook, Rung, Verify
from fleetstop.core.report import SignalRecord

LADDER = Playbook(
    name="going back",
    ladder=(
        Rung("stop_signal", "trainers", 30.0),
        Rung("TERM", "trainers", 15.0),
        Rung("KILL", "tree", 15.0),
    ),
    # a checkpoint that it writes is held for, like everybody's: it may have replaced the last one
    hold=Hold(),
    verify=Verify(checkpoint="none", gpus="ignore"),
)


class Ended:
    """What became of it: `problem` None: all of it has ended."""

    def __init__(self, end: End, climb: Climb) -> None:
        self.problem = None if end.how == "gone" else (end.reason or "it still runs")
        self.signals: tuple[SignalRecord, ...] = climb.signals
        self.findings: tuple[str, ...] = tuple(climb.doubts)
        self.family: Family = climb.family
        self.alive = standing(climb.family, climb.look.tree)


async def end_newborn(scope: Scope, lock: Lock, family: Family) -> Ended | None:
    """Up the ladder, the trainers first. None: nothing of it lived any more."""
    scene = await locate(scope, gpus=False)
    if not standing(family, scene.tree):
        return None
    job = scope.target.job
    said = job.stop_signal if job is not None else None
    signal = said or choose_stop_signal(family, scene.tree) or "INT"
    ladder = begin(
        LADDER,
        family,
        stop_signal=signal,
        consent="given",
        checkpoints=bool(job and job.checkpoints),
    )
    climb = Climb(scope, scene, ladder, lock)
    return Ended(await climb.run(), climb)
