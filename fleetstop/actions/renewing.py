"""What ran has ended, and who was to start it was killed meanwhile: another takes his place."""

from __future__ import annotations

from collections.abc import Callable

from fleetstop.actions.activating import Activation
from fleetstop.actions.launch_plan import LaunchPlan, Renew
from fleetstop.errors import CouldNotLook, DeployFailed


async def renewed(
    activation: Activation, renew: Renew, tell: Callable[[str], object]
) -> LaunchPlan | str:
    """The plan, with everything prepared once more; or why that did not go, a sentence."""
    tell("what waited in the container was killed there; another takes its place")
    try:
        plan = await renew()
        waits = await activation.begin()
    except (DeployFailed, CouldNotLook) as exc:
        return exc.message
    return plan if waits.pid is not None else waits.problem or "nothing was told of why"
