"""The places of an inventory, by name, group and address. Knows no job's process."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import TypeAlias

from msgspec import Struct

from fleetstop.core.address import AdHoc, InGroup, OnHost, parse_address, parse_destination
from fleetstop.core.inventory import Container, Host, Inventory, Job
from fleetstop.core.spelling import and_then, did_you_mean, shown
from fleetstop.errors import BadUsage

# Host, destination, port, VMID: what makes two words mean one place.
PlaceKey: TypeAlias = tuple[str, str, int | None, int | None]
HostKey: TypeAlias = tuple[str, str, int | None]

_LIST = "`fleetstop ls` lists the names"
_NO_INVENTORY = "no inventory was found; an address works without one: root@HOST/VMID"


class Place(Struct, frozen=True):
    """A container, or a host itself (`vmid` None).

    `foreign_jobs`: jobs that the inventory knows at the same address under another login.
    """

    name: str
    host: Host
    vmid: int | None
    jobs: tuple[Job, ...] = ()
    protected: bool = False
    foreign_jobs: tuple[Job, ...] = ()

    @property
    def key(self) -> PlaceKey:
        return self.host.name, self.host.ssh, self.host.port, self.vmid


class Places(Struct, frozen=True):
    """`every_host`: a glob fits hosts without a job too."""

    inventory: Inventory
    named_places: dict[str, Place]
    every_host: bool = False

    @classmethod
    def of(cls, inventory: Inventory, *, every_host: bool = False) -> Places:
        containers = {
            name: _container(each, inventory.hosts[each.host])
            for name, each in inventory.containers.items()
        }
        hosts = {
            name: Place(name, each, None, each.jobs, each.protected)
            for name, each in inventory.hosts.items()
        }
        return cls(inventory, containers | hosts, every_host)

    def named(self, pattern: str) -> list[Place]:
        """One place by its name, or all that a glob fits; jobless hosts as `every_host` says."""
        if not is_glob(pattern):
            if pattern not in self.named_places:
                raise self._unknown(pattern)
            return [self.named_places[pattern]]
        found = [
            place
            for name, place in self.named_places.items()
            if fits(name, pattern) and (place.vmid is not None or place.jobs or self.every_host)
        ]
        if not found:
            near = did_you_mean(pattern.rstrip("*?"), self.named_places)
            jobless = "" if self.every_host else " with a job"
            raise BadUsage(
                f"{shown(pattern)} fits no container and no host{jobless}{near}",
                hint=self._hint(),
            )
        return found

    def members(self, group: str) -> list[str]:
        """The words of a group and of the groups in it, each group opened once."""
        groups = self.inventory.groups
        first = [name for name in groups if fits(name, group)]
        if not first:
            near = did_you_mean(group, groups)
            raise BadUsage(f"no group {shown(group)}{near}", hint=self._hint())
        words: list[str] = []
        seen: set[str] = set()
        waiting = [f"@{name}" for name in first]
        while waiting:
            word = waiting.pop(0)
            if not word.startswith("@"):
                words.append(word)
                continue
            opened = [name for name in groups if fits(name, word[1:]) and name not in seen]
            seen.update(opened)
            waiting[:0] = [member for name in opened for member in groups[name]]
        if not words:
            raise BadUsage(f"group {shown(group)} has no members", hint=self._hint())
        return words

    def on_host(self, address: OnHost) -> Place:
        """`pve1/200`: by the settings of the inventory's host."""
        host = self.inventory.hosts.get(address.host)
        if host is None:
            near = did_you_mean(address.host, self.inventory.hosts)
            raise BadUsage(
                f"no host {shown(address.host)} in the inventory{near}",
                hint="a host outside the inventory is addressed as root@HOST/VMID",
            )
        return self._at(host, address.vmid, f"{address.host}/{address.vmid}")

    def ad_hoc(self, address: AdHoc) -> Place:
        """The inventory's own place where the address is one; else a place with no name there."""
        for host in self.inventory.hosts.values():
            if (host.ssh, host.port) == (address.ssh, address.port):
                return self._at(host, address.vmid, address.name)
        known = [
            place
            for place in self.named_places.values()
            if place.vmid == address.vmid and _same_machine(place.host, address)
        ]
        guarded = any(
            host.protected for host in self.inventory.hosts.values() if _same_machine(host, address)
        )
        jobs = tuple(job for place in known for job in place.jobs)
        return Place(
            name=address.name,
            host=Host(name=address.address, ssh=address.ssh, port=address.port),
            vmid=address.vmid,
            # another login to a protected place does not make it a free one
            protected=guarded or any(p.protected for p in known) or any(j.protected for j in jobs),
            foreign_jobs=jobs,
        )

    def _at(self, host: Host, vmid: int | None, name: str) -> Place:
        for place in self.named_places.values():
            if place.host is host and place.vmid == vmid:
                return place
        return Place(name, host, vmid, protected=host.protected)

    def _unknown(self, name: str) -> BadUsage:
        known = [*self.named_places, *(f"@{group}" for group in self.inventory.groups)]
        if name in self.inventory.groups:
            return BadUsage(f"{shown(name)} is a group; write '@{name}'")
        near = did_you_mean(name, known)
        return BadUsage(f"no container or host {shown(name)}{near}", hint=self._hint())

    def _hint(self) -> str:
        return _LIST if self.named_places else _NO_INVENTORY


def host_key(place: Place) -> HostKey:
    return place.key[:3]


def is_glob(pattern: str) -> bool:
    return any(each in pattern for each in "*?[")


def fits(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern)


def no_job(job: str, place: str, known: Iterable[str]) -> BadUsage:
    """The error for a job that no chosen place has; `known`: those they have."""
    names = list(dict.fromkeys(known))
    there = f"there: {', '.join(names[:8])}" if names else "no job is listed there"
    kind = "fits no job" if is_glob(job) else "is no job"
    return BadUsage(
        f"{shown(job)} {kind} of {shown(place)}{and_then(did_you_mean(job, names), there)}",
        hint=_LIST,
    )


def check_member(inventory: Inventory, word: str) -> None:
    """Raises BadUsage unless a group of this inventory may have `word` as a member."""
    address = parse_address(word)
    fleet = Places.of(inventory)
    if isinstance(address, InGroup):
        if not any(fits(name, address.group) for name in inventory.groups):
            near = did_you_mean(address.group, inventory.groups)
            raise BadUsage(f"no group {shown(address.group)}{near}")
    elif isinstance(address, AdHoc | OnHost):
        raise BadUsage(f"{shown(word)} is an address; members are names of this inventory")
    else:
        jobs = [job.name for place in fleet.named(address.place) for job in place.jobs]
        if address.job is not None and not any(fits(job, address.job) for job in jobs):
            raise no_job(address.job, address.place, jobs)


def _container(container: Container, host: Host) -> Place:
    guarded = container.protected or host.protected
    return Place(container.name, host, container.vmid, container.jobs, guarded)


def _same_machine(host: Host, address: AdHoc) -> bool:
    _, known = parse_destination(host.ssh)
    same_port = (host.port or 22) == (address.port or 22)
    return address.address == host.name or (address.address == known and same_port)
