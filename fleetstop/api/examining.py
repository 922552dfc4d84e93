"""Which hosts a checkup visits, and all of them at once; looks at nothing itself."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from fleetstop.actions.doctor import Rounds, Visit, visit
from fleetstop.core.checkup.checks import Checked, Checkup, checkup
from fleetstop.core.inventory import Host, Inventory, Job, Target


def visits(inventory: Inventory, targets: Sequence[Target]) -> list[Visit]:
    """One for each host, in the order in which it was first named."""
    found: dict[tuple[str, str, int | None], list[Target]] = {}
    for each in targets:
        found.setdefault((each.host.name, each.host.ssh, each.host.port), []).append(each)
    return [_visit(inventory, each[0].host, each) for each in found.values()]


def _visit(inventory: Inventory, host: Host, targets: Sequence[Target]) -> Visit:
    there: dict[int | None, tuple[Job, ...]] = {
        each.vmid: each.jobs for each in inventory.containers.values() if each.host == host.name
    }
    containers = bool(there) or any(each.vmid is not None for each in targets)
    return Visit(host, tuple(targets), {**there, None: host.jobs}, containers)


async def examined(rounds: Rounds, all_: Sequence[Visit], parallel: int) -> Checkup:
    """`parallel`: hosts at once."""
    gate = asyncio.Semaphore(parallel)

    async def one(each: Visit) -> list[Checked]:
        async with gate:
            return await visit(rounds, each)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(each)) for each in all_]
    return checkup([each for task in tasks for each in task.result()])
