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
from fleetstop.core.ladder import begin
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


class GoingBack:
    """One end of a newborn; what was sent is known at any time, also when it is cut short."""

    def __init__(self, scope: Scope, lock: Lock, family: Family) -> None:
        self._scope, self._lock, self._family = scope, lock, family
        self._climb: Climb | None = None

    @property
    def signals(self) -> tuple[SignalRecord, ...]:
        return self._climb.signals if self._climb is not None else ()

    @property
    def doubts(self) -> tuple[str, ...]:
        return tuple(self._climb.doubts) if self._climb is not None else ()

    async def run(self) -> str | None:
        """None: all of it has ended. Else why it has not, and who runs on, a sentence."""
        scene = await locate(self._scope, gpus=False)
        if not standing(self._family, scene.tree):
            return None
        job = self._scope.target.job
        said = job.stop_signal if job is not None else None
        signal = said or choose_stop_signal(self._family, scene.tree) or "INT"
        ladder = begin(
            LADDER,
            self._family,
            stop_signal=signal,
            consent="given",
            checkpoints=bool(job and job.checkpoints),
        )
        climb = self._climb = Climb(self._scope, scene, ladder, self._lock)
        end = await climb.run()
        if end.how == "gone":
            return None
        alive = ", ".join(str(kin.pid) for kin in standing(climb.family, climb.look.tree))
        why = end.reason or "it still runs"
        return f"it could not be ended ({why}), so that {alive} runs on"
