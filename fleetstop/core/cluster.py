"""What a Proxmox API says of its cluster, as values and findings. Asks nobody.

Shapes: pve-manager, Cluster.pm and API2Tools.pm; pve-container, API2/LXC.pm. Two sources of a
container are joined: `/cluster/resources` knows where every container belongs, and says of its
status what was broadcast up to 300 s ago; its node's own list is true now.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from fleetstop.core.inventory import VMID_LEAST, VMID_MOST
from fleetstop.core.spelling import plain

Status = Literal["running", "stopped", "unknown"]
_STATUSES: dict[str | None, Status] = {"running": "running", "stopped": "stopped"}
_BETWEEN_TAGS = re.compile(r"[;,\s]+")
Item = Mapping[str, object]


class Node(Struct, frozen=True):
    """`online` as the cluster says; None: it was not told. `problem`: why its own list of
    containers could not be had; then nothing of what it says of them is from now."""

    name: str
    address: str | None = None
    online: bool | None = None
    # the one that was asked
    local: bool = False
    problem: str | None = None


class Guest(Struct, frozen=True):
    """A container; `status` is unknown where its node did not tell it just now."""

    vmid: int
    node: str
    name: str | None = None
    status: Status = "unknown"
    tags: tuple[str, ...] = ()
    lock: str | None = None
    pool: str | None = None
    template: bool = False


class ClusterSeen(Struct, frozen=True):
    """`name` None: a single node, or it was not told. `complete`: every node that is said to run
    was looked at, and the token may see containers."""

    name: str | None
    nodes: tuple[Node, ...]
    containers: tuple[Guest, ...]
    findings: tuple[str, ...] = ()
    complete: bool = True


def nodes_of(status: object) -> tuple[str | None, tuple[Node, ...], tuple[str, ...]]:
    """The cluster's name, its nodes, and findings, of `/cluster/status`."""
    name, found, findings = None, [], []
    for item in _items(status):
        said = _text(item, "name")
        if item.get("type") == "cluster":
            name = said
            if not _true(item.get("quorate")):
                findings.append("the cluster has no quorum: what it says may be old")
        elif item.get("type") == "node" and said is not None:
            up = None if item.get("online") is None else _true(item["online"])
            found.append(Node(said, _text(item, "ip"), up, local=_true(item.get("local"))))
    return name, tuple(found), tuple(findings)


def nodes_named(listed: object) -> tuple[Node, ...]:
    """Of `/nodes`, which any token may read: no addresses in it."""
    words = {"online": True, "offline": False}
    return tuple(
        Node(name, online=words.get(str(item.get("status"))))
        for item in _items(listed)
        if (name := _text(item, "node")) is not None
    )


def guests_of(resources: object, node: str | None = None) -> tuple[Guest, ...]:
    """Containers of `/cluster/resources`, or of `/nodes/NODE/lxc`, which names no node."""
    found = (_guest(item, node) for item in _items(resources) if _is_container(item, node))
    return tuple(each for each in found if each is not None)


def may_see_containers(permissions: object) -> bool:
    """Whether `/access/permissions` has VM.Audit on any guest: else every list comes back empty."""
    if not isinstance(permissions, Mapping):
        return False
    return any(
        isinstance(rights, Mapping) and "VM.Audit" in rights
        for path, rights in permissions.items()
        if path == "/" or str(path).startswith(("/vms", "/pool"))
    )


def joined(
    broadcast: Sequence[Guest], own: Mapping[str, tuple[Guest, ...]], nodes: Sequence[Node]
) -> tuple[tuple[Guest, ...], tuple[str, ...]]:
    """`own`: the lists of the nodes that gave one. What such a node does not list is not there:
    it is where another lists it; where none does, it is gone, or on a node that was not seen."""
    unseen = {each.name for each in nodes} - own.keys()
    found: dict[int, Guest] = {}
    for guest in broadcast:
        live = next((it for each in own.values() for it in each if it.vmid == guest.vmid), None)
        if live is not None:
            found[guest.vmid] = replace(live, pool=guest.pool, tags=live.tags or guest.tags)
        elif guest.node not in own:
            found[guest.vmid] = replace(guest, status="unknown")
    findings = []
    for guest in broadcast:
        if guest.vmid not in found:
            where = f"not listed by {guest.node} itself any more"
            more = f", and may be on {_named(unseen)}" if unseen else ""
            findings.append(f"{guest.vmid} is {where}{more}")
    for guest in (it for each in own.values() for it in each):
        found.setdefault(guest.vmid, guest)  # created a moment ago
    return tuple(sorted(found.values(), key=lambda each: each.vmid)), tuple(findings)


def node_findings(nodes: Sequence[Node], containers: Sequence[Guest]) -> tuple[str, ...]:
    """Of nodes that were not looked at: how many containers that leaves unknown."""
    findings = []
    for node in nodes:
        if node.problem is None:
            continue
        count = sum(each.node == node.name for each in containers)
        many = f"; the status of {count} container{'' if count == 1 else 's'} is unknown"
        findings.append(f"{plain(node.name)} {node.problem}{many if count else ''}")
    return tuple(findings)


def _named(names: set[str]) -> str:
    return " or ".join(plain(each) for each in sorted(names))


def _items(listed: object) -> Iterator[Item]:
    if isinstance(listed, list):
        yield from (each for each in listed if isinstance(each, dict))


def _is_container(item: Item, node: str | None) -> bool:
    # a node's own list has no virtual machines in it, and older ones no type either
    return item.get("type", "lxc" if node is not None else None) == "lxc"


def _guest(item: Item, node: str | None) -> Guest | None:
    vmid = _vmid(item.get("vmid"))
    where = node or _text(item, "node")
    if vmid is None or where is None:
        return None
    return Guest(
        vmid,
        where,
        _text(item, "name"),
        _STATUSES.get(_text(item, "status"), "unknown"),
        tuple(each for each in _BETWEEN_TAGS.split(_text(item, "tags") or "") if each),
        _text(item, "lock"),
        _text(item, "pool"),
        _true(item.get("template")),
    )


def _vmid(value: object) -> int | None:
    """A number; text before pve-container 5.0.10."""
    if isinstance(value, str) and re.fullmatch("[0-9]{1,9}", value):
        value = int(value)
    if isinstance(value, int) and VMID_LEAST <= value <= VMID_MOST:
        return value
    return None


def _text(item: Item, key: str) -> str | None:
    value = item.get(key)
    return value if isinstance(value, str) and value else None


def _true(value: object) -> bool:
    """Perl's truth, as JSON carries it: 1, "1", true."""
    return value not in (None, 0, "0", "", False)
