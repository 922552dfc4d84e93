"""Adopting a job from Python: look, place, and the file's new text; written only when asked."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import platformdirs
from msgspec import Struct

from fleetstop import config
from fleetstop.actions.adopt import Seen, adopt
from fleetstop.actions.fleet import Action
from fleetstop.actions.telling import Scope
from fleetstop.core.adopting.adoption import Adoption
from fleetstop.core.adopting.placing import placing
from fleetstop.core.inventory import Inventory, Job, Target
from fleetstop.core.report import Outcome, Report
from fleetstop.errors import BadUsage

Running = Callable[[str, Sequence[str], Sequence[Target], Action, bool], Awaitable[Report]]


class Adopted(Struct, frozen=True):
    """`adoption` None: the report says why there is none. `write()` puts it into the inventory's
    file, which must be as it was looked at; raises Refused or BadConfig, and then nothing was."""

    report: Report
    adoption: Adoption | None = None
    change: config.Change | None = None

    def write(self) -> Inventory:
        """The inventory with the job."""
        if self.change is None:
            raise BadUsage("there is nothing to be written")
        config.write(self.change)
        return self.change.inventory


async def adopted(
    run: Running, inventory: Inventory, named: str | None, target: Target, pid: int, name: str
) -> Adopted:
    """Raises BadUsage and Refused for a name that cannot be, before anything is connected to."""
    where = placing(inventory, target, name)
    place = getattr(inventory, where.kind).get(where.place)
    known: tuple[Job, ...] = place.jobs if place is not None else ()
    held: list[Seen] = []

    async def action(scope: Scope) -> Outcome:
        outcome, seen = await adopt(scope, pid, known)
        held.append(seen)
        return outcome

    report = await run("adopt", (target.name,), (target,), action, True)
    if not held:
        return Adopted(report)
    cwd = Path.cwd()
    files = config.inventory_files(
        Path(named) if named is not None else None,
        os.environ,
        cwd,
        Path(platformdirs.user_config_dir("fleetstop")),
    )
    seen = held[0]
    change = config.change(files, cwd, where, seen.gathered.stanza)
    told = Adoption(
        target=target.name,
        host=target.host.name,
        vmid=target.vmid,
        placing=where,
        gathered=seen.gathered,
        family=seen.family,
        file=change.shown,
        new_file=change.before is None,
    )
    return Adopted(report, told, change)
