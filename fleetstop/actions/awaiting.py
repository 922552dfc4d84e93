"""The job does not run, and what works in the container is about to start it: it is waited for.

Nothing else tells then where its code lies, or how it was started.
"""

from __future__ import annotations

from collections.abc import Callable

from fleetstop.actions.locate import families_with, locate
from fleetstop.actions.telling import Scope
from fleetstop.core.inventory import Job
from fleetstop.core.process import Process, ProcessTree
from fleetstop.core.releases.home import base_in, base_of
from fleetstop.errors import Refused

_WAIT_S = 180.0
_LOOK_S = 2.0


def at_work(tree: ProcessTree, job: Job) -> Process | None:
    """The activator of this job, wherever its code lies."""
    own = base_of("/", job)
    for each in tree.processes.values():
        if each.alive and (base_in((each.argv or ())[:5]) or "").endswith(own):
            return each
    return None


def told(who: Process) -> str:
    return f"the job does not run, and the activator {who.pid} of an earlier run is at it"


def plan_later(scope: Scope) -> str:
    """For a dry run, which neither waits for it nor takes over."""
    look = scope.run.typed("status", scope.target.name)
    return f"{look} tells how it comes out; the command without -n waits for that by itself"


async def comes_up(scope: Scope, who: Process, tell: Callable[[str], object]) -> None:
    """Until the job runs, or its activator has left. Raises Refused where neither comes."""
    job = scope.target.job
    assert job is not None
    tell(f"{told(who)}: waiting for what it does by itself")
    end = scope.clock.now() + _WAIT_S
    while scope.clock.now() < end:
        await scope.clock.sleep(_LOOK_S)
        scene = await locate(scope, gpus=False)
        here = scene.tree.get(who.id)
        if here is None or not here.alive or families_with(scene.found, job.match):
            return
    raise Refused(
        f"{told(who)}, and has not started it within {_WAIT_S:.0f} s",
        hint=f"look again with: {scope.run.typed('status', scope.target.name)}",
    )
