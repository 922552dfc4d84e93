"""The hosts whose GPUs are meant by words, and their look."""

from __future__ import annotations

from collections.abc import Iterable

from fleetstop.core.inventory import Host, Inventory, Target
from fleetstop.errors import BadUsage


def hosts_of(inventory: Inventory, targets: Iterable[Target] | None) -> tuple[Target, ...]:
    """The hosts of these targets, each once, or all of the inventory. The GPUs are the host's,
    whatever container uses them. A host is called what its targets call it."""
    chosen: list[tuple[str, Host]]
    if targets is None:
        chosen = list(inventory.hosts.items())
    else:
        names = {each.name: each for each in inventory.hosts.values()}
        chosen = [(_name(each, names), each.host) for each in targets]
    if not chosen:
        raise BadUsage(
            "no host is given, and no inventory names one",
            hint="an address needs none: fleetstop gpus root@HOST",
        )
    once = {(host.ssh, host.port): (name, host) for name, host in reversed(chosen)}
    return tuple(
        Target(name=name, host=host, vmid=None, job=None) for name, host in reversed(once.values())
    )


def _name(target: Target, known: dict[str, Host]) -> str:
    if known.get(target.host.name) == target.host:
        return target.host.name
    return target.name.partition("/")[0] if "//" not in target.name else target.name
