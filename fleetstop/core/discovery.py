"""What clusters are against what the inventory has: which names are known, which are new. Knows
no file and no connection."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence

from msgspec import Struct

from fleetstop.core.address import parse_destination
from fleetstop.core.adopting.stanza import Tree
from fleetstop.core.cluster import ClusterSeen, Guest, Node
from fleetstop.core.inventory import Api, Host, Inventory, is_name
from fleetstop.core.spelling import plain
from fleetstop.errors import BadUsage


class Answered(Struct, frozen=True):
    """A cluster, and the inventory's hosts (or the url) by whose API it was seen. `api`: one that
    was typed, and belongs to no host yet."""

    by: tuple[str, ...]
    seen: ClusterSeen
    api: Api | None = None


class Unanswered(Struct, frozen=True):
    by: str
    reason: str
    hint: str
    exit_code: int


class Newcomers(Struct, frozen=True):
    """What an inventory lacks, with what would be written of each; `notes`: what it should not be
    silent about, and what is not written."""

    hosts: dict[str, Tree] = {}
    containers: dict[str, Tree] = {}
    notes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.hosts or self.containers)


def merged(answers: Sequence[Answered]) -> tuple[Answered, ...]:
    """Hosts of one cluster tell the same cluster: the first answer that is whole stands for it."""
    found: dict[object, Answered] = {}
    for at, each in enumerate(answers):
        nodes = frozenset((node.name, node.address) for node in each.seen.nodes)
        key: object = (each.seen.name, nodes) if each.seen.name is not None else at
        known = found.get(key)
        if known is None:
            found[key] = each
            continue
        # the first in `by` is who was asked for what is told
        first = known.seen.complete or not each.seen.complete
        best, other = (known, each) if first else (each, known)
        found[key] = Answered(best.by + other.by, best.seen, known.api or each.api)
    return tuple(found.values())


def exit_code(answers: Sequence[Answered], failures: Sequence[Unanswered]) -> int:
    """4 where something could not be looked at; a wrong configuration counts where nothing else."""
    codes = {each.exit_code for each in failures}
    codes |= {4 for each in answers if not each.seen.complete}
    return 4 if 4 in codes else max(codes, default=0)


def hosts_of(inventory: Inventory, answered: Answered) -> dict[str, str]:
    """Nodes that the inventory has, by its names of them."""
    found: dict[str, str] = {}
    for node in answered.seen.nodes:
        names = [each.name for each in inventory.hosts.values() if _is_node(each, node)]
        if names:
            found[node.name] = names[0]
    asked = answered.by[0]
    for node in answered.seen.nodes:
        # an alias of ~/.ssh/config tells no address; but a url may be that of several nodes, so
        # this counts last
        if node.local and node.name not in found and asked not in found.values():
            found |= {node.name: asked} if asked in inventory.hosts else {}
    return found


def known_as(inventory: Inventory, answered: Answered) -> dict[int, str]:
    """The inventory's names of this cluster's containers, wherever in it each is said to be."""
    hosts = set(hosts_of(inventory, answered).values())
    return {each.vmid: name for name, each in inventory.containers.items() if each.host in hosts}


def newcomers(inventory: Inventory, answers: Sequence[Answered]) -> Newcomers:
    """Names are unique over all kinds; a container is `ct` and its number where that is free."""
    taken = {*inventory.hosts, *inventory.containers, *inventory.groups}
    hosts: dict[str, Tree] = {}
    containers: dict[str, Tree] = {}
    notes: list[str] = []
    for answered in answers:
        names = hosts_of(inventory, answered)
        known = known_as(inventory, answered)
        fresh = [it for it in answered.seen.containers if it.vmid not in known and not it.template]
        for node in _wanted(answered, names, fresh):
            name = _free_name((node.name, f"{answered.seen.name}-{node.name}"), taken)
            if node.address is None or name is None:
                why = "no address of it is told" if name else "its name is taken by another"
                notes.append(f"{plain(node.name)} and its containers are not written: {why}")
                continue
            hosts[name] = _host_tree(node, answered)
            names[node.name] = name
            taken.add(name)
        for guest in fresh:
            host = names.get(guest.node)
            name = _free_name((f"ct{guest.vmid}", f"ct{guest.vmid}-{host}"), taken)
            if host is not None and name is not None:
                containers[name] = _container_tree(guest, host)
                taken.add(name)
        notes += _notes(inventory, answered, names, known)
    return Newcomers(hosts, containers, tuple(notes))


def _is_node(host: Host, node: Node) -> bool:
    try:
        _, address = parse_destination(host.ssh)
    except BadUsage:
        return False
    if address == node.address:
        return True
    # an address that is a number is another machine's, whatever the host is called
    return not _numeric(address) and node.name in (host.name, address, address.split(".")[0])


def _numeric(address: str) -> bool:
    try:
        ipaddress.ip_address(address.strip("[]"))
    except ValueError:
        return False
    return True


def _wanted(answered: Answered, names: dict[str, str], fresh: Sequence[Guest]) -> Iterator[Node]:
    """Nodes that are to be written: those with containers to write, and whose API was typed."""
    for node in answered.seen.nodes:
        here = any(each.node == node.name for each in fresh)
        if node.name not in names and (here or (node.local and answered.api is not None)):
            yield node


def _free_name(wanted: Sequence[str], taken: set[str]) -> str | None:
    return next((each for each in wanted if is_name(each) and each not in taken), None)


def _host_tree(node: Node, answered: Answered) -> Tree:
    tree: dict[str, Tree] = {"ssh": f"root@{node.address}"}
    api = answered.api
    if api is not None and (node.local or len(answered.seen.nodes) == 1):
        told: dict[str, Tree] = {"url": api.url, "token_id": api.token_id}
        told["token_secret"] = dict(api.token_secret)
        if api.ca is not None:
            told["ca"] = api.ca
        if api.fingerprint is not None:
            told["fingerprint"] = api.fingerprint
        tree["api"] = told
    return tree


def _container_tree(guest: Guest, host: str) -> Tree:
    tree: dict[str, Tree] = {"host": host, "vmid": guest.vmid}
    return tree | ({"tags": guest.tags} if guest.tags else {})


def _notes(
    inventory: Inventory, answered: Answered, names: dict[str, str], known: dict[int, str]
) -> Iterator[str]:
    local = next((names.get(each.name) for each in answered.seen.nodes if each.local), None)
    host = inventory.hosts.get(local or "")
    if answered.api is not None and host is not None and host.api is None:
        yield f"{host.name} is in the inventory without this api; add it there by hand"
    seen = {each.vmid: each for each in answered.seen.containers}
    for vmid, name in known.items():
        said = inventory.containers[name].host
        guest = seen.get(vmid)
        if guest is None and answered.seen.complete:
            yield f"{name} (VMID {vmid}, on {said} in the inventory) is not in the cluster"
        elif guest is not None and (now := names.get(guest.node, guest.node)) != said:
            yield f"{name} is on {plain(now)} now; the inventory has it on {said}: change its host"
