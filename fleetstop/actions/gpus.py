"""What is on the GPUs of a host: one look from the host at all its containers, nothing sent."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from fleetstop import events
from fleetstop.actions import looks
from fleetstop.actions.present import outcome_of
from fleetstop.actions.telling import Scope
from fleetstop.core.gpu import GpuView, Unseen
from fleetstop.core.gpus import occupancy as occ
from fleetstop.core.gpus.sole import Held, sole
from fleetstop.core.gpus.whereabouts import (
    Known,
    Owned,
    asked_inside,
    container_of,
    known_at,
    owned,
    part_of,
    wanted,
)
from fleetstop.core.inventory import Inventory
from fleetstop.core.process import ProcessTree
from fleetstop.core.report import GpuRecord, Outcome
from fleetstop.errors import Refused, RemoteFailed


class Survey(Struct, frozen=True):
    """A host's GPUs and all that was seen of who is on them. `blind`: why open files were not."""

    view: GpuView | Unseen
    sight: occ.Sight
    blind: str | None

    @property
    def records(self) -> tuple[GpuRecord, ...] | None:
        return None if isinstance(self.view, Unseen) else occ.occupancy(self.view, self.sight)


async def gpus(scope: Scope, inventory: Inventory) -> Outcome:
    """Result `running` where somebody or something is on one of them, `not_running` where each is
    idle, `unreachable` where nvidia-smi could not be asked."""
    started = scope.clock.now()
    seen = await survey(scope, inventory)
    outcome = outcome_of(
        scope.target,
        **_facts(seen),
        seconds=round(scope.clock.now() - started, 3),
        cost=scope.cost(),
    )
    scope.teller.tell(events.TargetFinished, outcome=outcome)
    return outcome


def _facts(seen: Survey) -> dict[str, Any]:
    records = seen.records
    if records is None or isinstance(seen.view, Unseen):
        reason = seen.view.reason if isinstance(seen.view, Unseen) else "nothing was told"
        told = [f"/dev/nvidia* is open in {occ.called(each)}" for each in occ.opened(seen.sight)]
        told += [f"who has /dev/nvidia* open could not be seen: {seen.blind}"] if seen.blind else []
        facts = {"verdict": "unknown", "evidence": (reason,), "findings": tuple(told)}
        return {
            "result": "unreachable",
            "reason": f"what is on the GPUs is not known: {reason}",
        } | facts
    told = occ.findings(records, seen.sight, seen.blind) + list(_warnings(seen.view))
    told += _unnamed(seen, records)
    idle = all(each.state == "idle" for each in records)
    return {
        "result": "not_running" if idle else "running",
        "reason": "nobody is on a GPU" if idle else None,
        "gpus": records,
        "findings": tuple(dict.fromkeys(told)),
    }


def _warnings(view: GpuView) -> tuple[str, ...]:
    """Those of nvidia-smi itself; a fault has a finding of its own."""
    own = {f"GPU {each.index} {each.fault}" for each in view.gpus}
    return tuple(each for each in view.warnings if each not in own)


def _unnamed(seen: Survey, records: tuple[GpuRecord, ...]) -> list[str]:
    """Jobs that could be those of a holder without one, and nobody could ask."""
    nameless = {h.vmid for each in records for h in each.held_by or () if h.pid and h.job is None}
    return [
        f"{place.name}:{job.name} is found by asking inside the container, which `gpus` does not: "
        "a holder there may be that job"
        for vmid, place in seen.sight.places.items()
        for job in place.jobs
        if vmid in nameless and asked_inside(job)
    ]


async def held_by_one(scope: Scope, inventory: Inventory, index: int) -> Held | None:
    """The one job on this GPU; None where it is idle. Raises Refused, and CouldNotLook."""
    seen = await survey(scope, inventory)
    records = seen.records
    if records is None or isinstance(seen.view, Unseen):
        reason = seen.view.reason if isinstance(seen.view, Unseen) else "nothing was told"
        raise RemoteFailed(f"who is on GPU {index} of {scope.target.name} is not known: {reason}")
    return sole(records, index, seen.sight, _listed(seen.view) or frozenset(), scope.target.name)


async def still_there(scope: Scope, held: Held) -> None:
    """Raises Refused where what was seen on the GPU has ended: its number may be another's."""
    if await looks.all_gone(scope.place, [held.holder]):
        raise Refused("what held the GPU has just ended; nothing was sent", hint="look again")


async def survey(scope: Scope, inventory: Inventory) -> Survey:
    """Raises CouldNotLook where not even the process table can be read."""
    place, target = scope.place, scope.target
    view = await looks.first_gpus(place, scope.clock)
    opening = await looks.openers(place)
    tree = await looks.everything(place)
    openers = None if isinstance(opening, Unseen) else opening
    listed = _listed(view)
    holders = (listed or frozenset()) | set(openers or {})
    places = known_at(inventory, target.host)
    tree, jobs = await _joined(scope, tree, places, holders, listed)
    sight = occ.Sight(tree=tree, openers=openers, places=places, jobs=jobs)
    return Survey(view, sight, opening.reason if isinstance(opening, Unseen) else None)


def _listed(view: GpuView | Unseen) -> frozenset[int] | None:
    if isinstance(view, Unseen):
        return None
    return frozenset(each.pid for each in view.holders if each.pid is not None)


async def _joined(
    scope: Scope,
    tree: ProcessTree,
    places: dict[int | None, Known],
    holders: frozenset[int],
    listed: frozenset[int] | None,
) -> tuple[ProcessTree, dict[int, tuple[Owned, ...]]]:
    """The look with the words of all in a place where a GPU is held, and whose job each is."""
    where = {container_of(tree.processes[pid]) for pid in holders if pid in tree.processes}
    inside = {pid for vmid in where for pid in part_of(tree, vmid).processes}
    tree = await looks.add_argv(scope.place, tree, inside)
    closer = set(holders)
    for vmid in where & places.keys():
        closer |= wanted(tree, vmid, places[vmid])
    tree = await looks.add_detail(scope.place, tree, closer)
    jobs: dict[int, tuple[Owned, ...]] = {}
    for vmid in where & places.keys():
        jobs |= owned(tree, vmid, places[vmid], listed)
    return tree, jobs
