"""Where in an inventory a job goes, and under which name. Knows no file and no process."""

from __future__ import annotations

import re
from typing import Literal

from msgspec import Struct

from fleetstop.core.address import parse_destination
from fleetstop.core.adopting.stanza import Tree
from fleetstop.core.inventory import Inventory, Target, is_name
from fleetstop.core.spelling import shown
from fleetstop.errors import BadUsage, Refused

_ALLOWED = "letters, digits and _ . - only, a letter or digit first"


class Placing(Struct, frozen=True):
    """`place` is the container's or host's name, `host` the host's; `new`: those of them that the
    inventory does not have yet, with what is written of them."""

    kind: Literal["containers", "hosts"]
    place: str
    host: str
    job: str
    new: dict[str, dict[str, Tree]] = {}

    @property
    def name(self) -> str:
        return f"{self.place}:{self.job}"

    @property
    def path(self) -> tuple[str, ...]:
        """The keys from the top of the file to the job."""
        return self.kind, self.place, "jobs", self.job


def placing(inventory: Inventory, target: Target, asked: str) -> Placing:
    """`asked` is JOB or PLACE:JOB. Raises BadUsage for a name that none can bear, Refused for one
    that is taken."""
    said, colon, job = asked.rpartition(":")
    for each in (job, *((said,) if colon else ())):
        if not is_name(each):
            raise BadUsage(f"--as {shown(asked)}: {shown(each)} is no name: {_ALLOWED}")
    host = _host(inventory, target)
    vmid = target.vmid
    if vmid is None:
        place, new = _plain_host(inventory, target, host, said)
        found = Placing("hosts", place, place, job, new)
    else:
        found = _container(inventory, target, vmid, host, said, job)
    _free(inventory, found)
    return found


def _host(inventory: Inventory, target: Target) -> str | None:
    """The inventory's name of the target's host; None: it has none."""
    known = inventory.hosts.get(target.host.name)
    return target.host.name if known == target.host else None


def _plain_host(
    inventory: Inventory, target: Target, host: str | None, said: str
) -> tuple[str, dict[str, dict[str, Tree]]]:
    if host is not None:
        _agrees(said, host, target)
        return host, {}
    name = said or _name_of(target.host.ssh)
    _not_taken(inventory, name)
    return name, {name: _host_tree(target)}


def _container(
    inventory: Inventory, target: Target, vmid: int, host: str | None, said: str, job: str
) -> Placing:
    for name, each in inventory.containers.items():
        if each.host == host and each.vmid == vmid:
            _agrees(said, name, target)
            return Placing("containers", name, each.host, job)
    place = said or f"ct{vmid}"
    _not_taken(inventory, place)
    new: dict[str, dict[str, Tree]] = {}
    if host is None:
        host = _name_of(target.host.ssh)
        _not_taken(inventory, host)
        if host == place:
            raise BadUsage(f"{shown(place)} would be the host and the container; name another")
        new[host] = _host_tree(target)
    new[place] = {"host": host, "vmid": vmid}
    return Placing("containers", place, host, job, new)


def _agrees(said: str, known: str, target: Target) -> None:
    if said and said != known:
        raise BadUsage(
            f"--as {said}:…: {target.name} is {shown(known)} in the inventory",
            hint=f"leave the place out, or write {known}:NAME",
        )


def _not_taken(inventory: Inventory, name: str) -> None:
    for kind in ("hosts", "containers", "groups"):
        if name in getattr(inventory, kind):
            raise Refused(
                f"{shown(name)} is another of the {kind} in the inventory already",
                hint="name the place too: --as PLACE:JOB",
            )


def _free(inventory: Inventory, found: Placing) -> None:
    place = getattr(inventory, found.kind).get(found.place)
    if place is not None and any(each.name == found.job for each in place.jobs):
        raise Refused(
            f"{found.name} is in the inventory already; it is not written over",
            hint="choose another name with --as, or change that stanza by hand",
        )


def _host_tree(target: Target) -> dict[str, Tree]:
    tree: dict[str, Tree] = {"ssh": target.host.ssh}
    return tree | ({"port": target.host.port} if target.host.port is not None else {})


def _name_of(ssh: str) -> str:
    """A host's address as a name: `pve1`, `10.1.2.6`, `fe80--1`."""
    _, address = parse_destination(ssh)
    return re.sub(r"[^A-Za-z0-9_.-]", "-", address).lstrip("_.-") or "host"
