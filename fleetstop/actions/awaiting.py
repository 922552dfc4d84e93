"""The job does not run, and what works in the container is about to start it: it is waited for.

Nothing else tells then where its code lies, or how it was started.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fleetstop.actions import reading
from fleetstop.actions.locate import families_with, locate
from fleetstop.actions.telling import Scope
from fleetstop.core.inventory import Job
from fleetstop.core.kin.family import Family
from fleetstop.core.launching.activation import State, state_of
from fleetstop.core.process import Process, ProcessTree
from fleetstop.core.releases.home import base_in, base_of
from fleetstop.errors import Refused

_WAIT_S = 180.0
_LOOK_S = 2.0


def activators(tree: ProcessTree) -> Iterator[tuple[Process, str]]:
    """Every one there, of whatever job, with its base."""
    for each in tree.processes.values():
        base = base_in((each.argv or ())[:5]) if each.alive else None
        if base is not None:
            yield each, base


def named(tree: ProcessTree, job: Job) -> Process | None:
    """The activator of this job by its name, wherever its code lies."""
    own = base_of("/", job)
    return next((who for who, base in activators(tree) if base.endswith(own)), None)


async def at_work(scope: Scope, tree: ProcessTree, family: Family | None) -> Process | None:
    """The activator of what was asked for, under whatever name it was asked for: one may wait for
    the end of `ct200:train`, of which another knows no more than its PID."""
    job = scope.target.job
    if job is not None and (who := named(tree, job)) is not None:
        return who
    ours = {(kin.pid, kin.id.start) for kin in family.members} if family is not None else set()
    for who, base in activators(tree) if ours else ():
        state = await state_in(scope, base)
        if state is None or state.left or not is_its(state, who):
            continue
        its = {(each.pid, each.start) for each in state.gone}
        if state.trainer is not None:
            its.add((state.trainer.pid, state.trainer.start))
        if ours & its:
            return who
    return None


def is_its(state: State, who: Process) -> bool:
    return state.activator is not None and state.activator.start == who.id.start


async def state_in(scope: Scope, base: str) -> State | None:
    path = f"{base}/state.json"
    shell = await scope.place.inside()
    return state_of((await reading.heads(shell, (path,))).get(path))


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
