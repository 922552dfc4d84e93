"""What the files below /etc/pve on a node say of its cluster, without the API. Opens none.

`.members` and `.vmlist` are JSON of pmxcfs (pve-cluster, status.c); a container's file has its
own lines first, those of its snapshots behind `[name]` (pve-container, LXC/Config.pm). Neither
says what runs: the node that was asked tells that by its processes, of its own containers only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Set

from fleetstop.core.cluster import ClusterSeen, Guest, Status, guests_of, nodes_of
from fleetstop.errors import RemoteFailed

_LINE = re.compile(r".*?/nodes/([^/:]+)/lxc/(\d+)\.conf:(.*)")
_LABELS = ("members", "places", "files", "running")


def parse_guests(data: bytes) -> ClusterSeen:
    """Of the verb `guests`; raises RemoteFailed where that is not whole."""
    parts = data.decode("utf-8", "backslashreplace").split("\0")
    labelled = dict(part.partition("\n")[::2] for part in parts)
    if tuple(labelled) != _LABELS:
        raise RemoteFailed("the files below /etc/pve came in part only")
    members, places = (_read(labelled[key]) for key in ("members", "places"))
    running = frozenset(int(each) for each in re.findall(r"/lxc/(\d+)", labelled["running"]))
    local = str(members.get("nodename", ""))
    name, nodes, findings = nodes_of(_status(members, local))
    listed = [_item(vmid, each) for vmid, each in _entries(places.get("ids"))]
    known = _of_files(labelled["files"])
    guests = tuple(
        _told(each, known.get((each.node, each.vmid), {}), local, running)
        for each in sorted(guests_of(listed), key=lambda each: each.vmid)
    )
    others = {each.node for each in guests} - {local}
    if others:
        findings += (
            f"what runs on {', '.join(sorted(others))} is not in the files of {local}: ask there",
        )
    return ClusterSeen(name, nodes, guests, findings)


def _read(text: str) -> Mapping[str, object]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise RemoteFailed("/etc/pve/.members and .vmlist are not those of a Proxmox node")
    return found


def _entries(value: object) -> list[tuple[str, Mapping[str, object]]]:
    found = value.items() if isinstance(value, dict) else ()
    return [(str(name), each) for name, each in found if isinstance(each, dict)]


def _status(members: Mapping[str, object], local: str) -> list[dict[str, object]]:
    """As `/cluster/status` says it; a single node has neither cluster nor list."""
    listed = _entries(members.get("nodelist"))
    nodes: list[dict[str, object]] = [
        {**each, "type": "node", "name": name, "local": int(name == local)} for name, each in listed
    ]
    if not nodes and local:
        nodes = [{"type": "node", "name": local, "online": 1, "local": 1}]
    cluster = members.get("cluster")
    return [*nodes, {**cluster, "type": "cluster"}] if isinstance(cluster, dict) else nodes


def _item(vmid: str, each: Mapping[str, object]) -> dict[str, object]:
    return {"vmid": vmid, "node": each.get("node"), "type": each.get("type")}


def _of_files(text: str) -> dict[tuple[str, int], dict[str, object]]:
    """The lines of each container itself, without its snapshots'."""
    found: dict[tuple[str, int], dict[str, object]] = {}
    behind: set[tuple[str, int]] = set()
    for line in text.splitlines():
        said = _LINE.fullmatch(line)
        if said is None:
            continue
        key = (said[1], int(said[2]))
        if said[3].startswith("["):
            behind.add(key)
        elif key not in behind:
            name, _, value = said[3].partition(":")
            found.setdefault(key, {})[name] = value.strip()
    return found


def _told(guest: Guest, lines: Mapping[str, object], local: str, running: Set[int]) -> Guest:
    status: Status = "unknown"
    if guest.node == local:
        status = "running" if guest.vmid in running else "stopped"
    item = {**lines, "name": lines.get("hostname"), "status": status, "type": "lxc"}
    return guests_of([{**item, "vmid": guest.vmid, "node": guest.node}])[0]
