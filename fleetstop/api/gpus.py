"""The hosts whose GPUs are meant by words, and the words for the job on one of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fleetstop.core.address import AdHoc, Named, parse_address
from fleetstop.core.gpus.sole import Held
from fleetstop.core.inventory import Host, Inventory, Match, Target
from fleetstop.core.report import Outcome
from fleetstop.core.selection import select
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
    scheme, slashes, rest = target.name.rpartition("://")
    return scheme + slashes + rest.partition("/")[0]


def host_of(inventory: Inventory, words: Sequence[str]) -> Target:
    """The one host whose GPU is to be freed. Raises BadUsage: in a container the same GPU may bear
    another number."""
    address = parse_address(words[0]) if len(words) == 1 else None
    by_name = isinstance(address, Named) and address.job is None
    if not (by_name and words[0] in inventory.hosts) and not (
        isinstance(address, AdHoc) and address.vmid is None
    ):
        raise BadUsage(
            "--gpu counts as the host does, so it takes one host: pve1, or root@10.1.2.6",
            hint="fleetstop gpus shows who is on which",
        )
    (host,) = hosts_of(inventory, select(inventory, words, purpose="status"))
    return host


def target_of(inventory: Inventory, host: Target, held: Held) -> Target:
    """As a stop names it: the inventory's job with all its settings, or a PID where it has none."""
    if held.target is not None:
        (found,) = select(inventory, (held.target,), purpose="stop")
        return found
    place = host.name if held.vmid is None else f"{host.name}/{held.vmid}"
    match = Match(pid=held.pid)
    (found,) = select(inventory, (place,), adhoc_match=match, purpose="stop")
    return found


def nobody_on(host: Target, index: int) -> Outcome:
    return Outcome(
        target=host.name,
        host=host.host.name,
        vmid=None,
        job=None,
        result="not_running",
        reason=f"nobody is on GPU {index}",
    )
