"""Looks at a cluster through its API: nodes, addresses, containers. Changes nothing."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from fleetstop.core.cluster import (
    ClusterSeen,
    Guest,
    Node,
    guests_of,
    joined,
    may_see_containers,
    node_findings,
    nodes_named,
    nodes_of,
)
from fleetstop.core.commands import Command
from fleetstop.core.pve_files import parse_guests
from fleetstop.core.spelling import plain
from fleetstop.errors import (
    FleetstopError,
    NodeUnreachable,
    PrivilegeMissing,
    RemoteFailed,
    ToolMissing,
)
from fleetstop.ports import Cluster, Shell

# a node each; the API of one node carries them all
_NODES_AT_ONCE = 8
# statuses of the verb `guests`
_NOT_THERE, _NOT_READ = 40, 41
_RIGHTS = "pveum acl modify {path} --tokens '{token}' --roles PVEAuditor"


async def discover(cluster: Cluster, token_id: str) -> ClusterSeen:
    """Raises what `Cluster.get` raises where the API itself gives no answer; a node that gives
    none is a finding, and its containers' status is unknown."""
    resources = await _listed(cluster, "cluster/resources")
    broadcast = guests_of(resources)
    name, nodes, findings = await _nodes(cluster, token_id)
    known = {each.name for each in nodes}
    absent = sorted({each.node for each in broadcast} - known)
    nodes = (*nodes, *(Node(each) for each in absent))
    looked = await _own_lists(cluster, nodes)
    nodes = tuple(node for node, _ in looked)
    own = {node.name: guests for node, guests in looked if guests is not None}
    containers, moved = joined(broadcast, own, nodes)
    blind = await _blind(cluster, token_id) if not containers else ()
    return ClusterSeen(
        name,
        nodes,
        containers,
        (*findings, *node_findings(nodes, containers), *moved, *blind),
        complete=not blind and not any(each.problem and each.online is not False for each in nodes),
    )


async def discover_files(shell: Shell, host: str, directory: str = "/etc/pve") -> ClusterSeen:
    """The same from a node's own files, without the API; the status of other nodes' containers is
    not in them. Raises ToolMissing where there is no Proxmox, PrivilegeMissing, RemoteFailed."""
    answer = await shell.run(Command("guests", (directory,)))
    if answer.status == _NOT_THERE:
        raise ToolMissing(f"{host}: no {directory} there: it is no node of Proxmox")
    if answer.status == _NOT_READ:
        raise PrivilegeMissing(
            f"{host}: {directory} cannot be read by this login",
            hint="log in as root, let it run `sudo -n sh`, or put it into the group www-data",
        )
    if answer.status != 0:
        raise RemoteFailed(f"{host}: {directory} could not be read ({answer.status})")
    return parse_guests(answer.data)


async def _nodes(
    cluster: Cluster, token_id: str
) -> tuple[str | None, tuple[Node, ...], tuple[str, ...]]:
    try:
        name, nodes, findings = nodes_of(await _listed(cluster, "cluster/status"))
    except PrivilegeMissing:
        grant = _RIGHTS.format(path="/", token=plain(token_id))
        said = f"the token lacks Sys.Audit on /, so the nodes' addresses are not told: {grant}"
        return None, nodes_named(await _listed(cluster, "nodes")), (said,)
    return name, nodes, findings


async def _own_lists(
    cluster: Cluster, nodes: tuple[Node, ...]
) -> list[tuple[Node, tuple[Guest, ...] | None]]:
    """Each node with its own list; None, and its problem said, where there is none."""
    turn = asyncio.Semaphore(_NODES_AT_ONCE)

    async def one(node: Node) -> tuple[Node, tuple[Guest, ...] | None]:
        if node.online is False:
            return replace(node, problem="is offline"), None
        async with turn:
            try:
                return node, guests_of(await _listed(cluster, f"nodes/{node.name}/lxc"), node.name)
            except NodeUnreachable as exc:
                problem = f"cannot be reached from the node that was asked: {exc.message}"
            except FleetstopError as exc:
                problem = f"gave no list of its containers: {exc.message}"
            return replace(node, problem=problem), None

    return list(await asyncio.gather(*map(one, nodes)))


async def _blind(cluster: Cluster, token_id: str) -> tuple[str, ...]:
    """Lists are never refused: without the right they are empty."""
    try:
        permissions = await cluster.get("access/permissions")
    except RemoteFailed as exc:
        return (
            f"no containers are told, and whether the token may see any neither: {exc.message}",
        )
    if may_see_containers(permissions):
        return ()
    grant = _RIGHTS.format(path="/vms", token=plain(token_id))
    return (f"no containers are told because the token lacks VM.Audit: {grant}",)


async def _listed(cluster: Cluster, path: str) -> list[object]:
    found = await cluster.get(path)
    if not isinstance(found, list):
        raise RemoteFailed(f"{cluster.url}: {path}: answers no list, as no Proxmox API does")
    return found
