"""What a launch is given by who asks for it: the plan, and what he does meanwhile. Does nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from msgspec import Struct

from fleetstop.actions.lock import Lock
from fleetstop.core.launching.activator import ActivatorSpec
from fleetstop.core.launching.health import Expected
from fleetstop.core.report import Outcome, Result

Arm = Callable[[], Awaitable[None]]
Stop = Callable[[Lock, Arm], Awaitable[Outcome]]
"""Ends what runs by this lock, which is held already and stays held. `Arm` is to be awaited before
anything goes out: from then on what waits in the container goes on without us. What it raises has
to keep the signal in. It tells no end of the target itself."""


class LaunchPlan(Struct, frozen=True):
    """`python`: the job's interpreter, absolute; `scripts`: supervise.py, activate.py and what lies
    beside them, by name; `tools` where they go, None: into our own directory. `done`: running for
    a launch or restart, redeployed for new files. `expected_old`: of the version before, once it
    is back."""

    spec: ActivatorSpec
    python: str
    scripts: Mapping[str, str]
    expected: Expected
    expected_old: Expected | None = None
    done: Result = "running"
    tools: str | None = None


Late = Callable[[LaunchPlan], Awaitable[LaunchPlan]]
"""What can be planned only once the old run has ended."""
Renew = Callable[[], Awaitable[LaunchPlan]]
"""The same plan with everything prepared once more, after the activator was killed."""
