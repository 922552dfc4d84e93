"""Refuse to start anything beside what is there; and name what asks for an explanation first."""

from __future__ import annotations

from fleetstop.actions import looks, reading
from fleetstop.actions.locate import Scene
from fleetstop.actions.lock import Lock
from fleetstop.actions.telling import Scope
from fleetstop.core.gpu import GpuView, Unseen
from fleetstop.core.kin.family import Family
from fleetstop.core.launching.activation import State, state_of
from fleetstop.core.launching.beside import Obstacle, activator_at_work, beside
from fleetstop.core.launching.ended import Record, last_death, parse_record
from fleetstop.errors import Refused


async def in_the_way(
    scope: Scope, scene: Scene, base: str, ours: Family | None = None
) -> tuple[str, ...]:
    """Findings, told already. Raises Refused, with every obstacle. `ours`: what is stopped first,
    None for a launch; `base`: where the job's releases lie."""
    if not scene.running:
        vmid = scope.target.vmid
        raise Refused(f"container {vmid} is stopped", hint=f"on the host: pct start {vmid}")
    state, record = await _last_run(scope, base)
    job = scope.target.job
    wanted = job.gpus if job is not None else None
    view = await _view(scope, scene, wanted)
    found = beside(scene.found, scene.tree, view, wanted, ours)
    at_work = activator_at_work(state, scene.tree, scope.run.id, await _operator(scope, state))
    obstacles = (*((at_work,) if at_work is not None else ()), *found.obstacles)
    if obstacles:
        raise _refused(scope, obstacles)
    death = last_death(record, scope.clock.wall()) if ours is None else None
    said = (*((death,) if death is not None else ()), *found.findings)
    return tuple(scope.teller.finding(each) for each in said)


async def _last_run(scope: Scope, base: str) -> tuple[State | None, Record | None]:
    """What the last activator wrote, and what its trainer's supervisor recorded."""
    shell = await scope.place.inside()
    path = f"{base}/state.json"
    state = state_of((await reading.heads(shell, (path,))).get(path))
    if state is None or state.trainer is None or state.trainer.mark is None:
        return state, None
    status = f"{base}/status/{state.trainer.mark}.json"
    return state, parse_record((await reading.heads(shell, (status,))).get(status))


async def _view(scope: Scope, scene: Scene, wanted: tuple[int, ...] | None) -> GpuView | Unseen:
    """Where nothing matched, the first look did not ask for the GPUs."""
    if isinstance(scene.gpus, GpuView) or not wanted:
        return scene.gpus
    return await looks.first_gpus(scope.place, scope.clock)


async def _operator(scope: Scope, state: State | None) -> str | None:
    """Who that run is, as the lock's ledger has it; None where it is not there any more."""
    if state is None or state.run == scope.run.id:
        return None
    lock = Lock(scope.place.host, scope.run, scope.target.vmid, scope.clock)
    ledger = await lock.read()
    return next((each.header for each in ledger.runs if each.run == state.run), None) or None


def _refused(scope: Scope, obstacles: tuple[Obstacle, ...]) -> Refused:
    first, name = obstacles[0], scope.target.name
    ways = [scope.run.typed(verb, name) for verb in first.verbs]
    hint = first.hint or ("; or ".join(ways) if ways else "")
    more = tuple(each.reason for each in obstacles[1:])
    evidence = (*first.evidence, *more, *(e for each in obstacles[1:] for e in each.evidence))
    return Refused(first.reason, hint=hint, evidence=evidence)
