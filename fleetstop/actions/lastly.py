"""How a job was started last, and what it lacks of that next time; starts nothing."""

from __future__ import annotations

from collections.abc import Collection

from fleetstop.actions.grounding import ground, python_of, what_it_loads
from fleetstop.actions.locate import Scene
from fleetstop.actions.lots import Lot
from fleetstop.actions.origins import began
from fleetstop.actions.telling import Scope
from fleetstop.core.adopting.stanza import launch_line
from fleetstop.core.kin.family import Family
from fleetstop.core.launching.activation import State
from fleetstop.core.launching.dropped import dropped, missed
from fleetstop.core.launching.recipe import Known
from fleetstop.core.launching.restored import Ran
from fleetstop.core.launching.spec import LaunchSpec
from fleetstop.core.releases.ground import Ground
from fleetstop.core.releases.home import base_of, home
from fleetstop.core.releases.manifest import Release, told_argv
from fleetstop.core.releases.tried import NEVER
from fleetstop.errors import CouldNotLook, DeployFailed, Refused


async def runs_now(scope: Scope, scene: Scene, family: Family) -> str | None:
    """None: it cannot be told."""
    try:
        found = await began(scope, scene.tree, family)
    except (Refused, CouldNotLook):
        return None
    return f"as it runs: {launch_line(told_argv(found.head.argv), found.cwd)}"


async def ran_last(scope: Scope) -> str | None:
    """Of one that does not run, by the releases that are kept; None: none is, or nothing says
    where."""
    job = scope.target.job
    found = home(job) if job is not None else None
    if job is None or found is None:
        return None
    python = python_of(job, None)
    try:
        loads = await what_it_loads(scope, python, None, (found,))
        dest = loads.home or loads.real.get(found, found)
        there = await ground(scope, python, base_of(dest, job), dest, ())
    except (CouldNotLook, DeployFailed):
        return None
    last = last_start(there)
    if last is None or last.argv is None:
        return None
    return f"as release {last.id} was started: {launch_line(last.argv, last.cwd)}"


def comes_no_more(
    lot: Lot, place: Known, spec: LaunchSpec, typed: Collection[str]
) -> tuple[str, ...]:
    """What this start lacks of what runs, else of what was started last; sentences."""
    launch = lot.job.launch
    if lot.now is not None:
        return dropped(launch, place, spec, typed)
    last = last_start(lot.ground)
    if last is None:
        return ()
    ran = Ran(last.argv, last.cwd, last.env, last.secrets)
    return missed(launch, place, spec, ran, last.id, typed)


def last_start(there: Ground) -> Release | None:
    """What ran last and is not known to have failed; else the newest that was healthy."""
    known = {name: each for name, each in there.releases.items() if each.argv}
    running = there.state.running if isinstance(there.state, State) else None
    tried = {name: there.tried.get(name, NEVER) for name in known}
    good = [name for name in known if tried[name].failed is None or tried[name].healthy is not None]
    healthy = [name for name in good if tried[name].healthy is not None]
    if running in good:
        return known[running or ""]
    best = max(healthy or good, default=None)
    return known[best] if best is not None else None
