"""A cluster as the files below /etc/pve say it."""

from __future__ import annotations

import json

import pytest

from fleetstop.core.cluster import Guest, Node
from fleetstop.core.pve_files import parse_guests
from fleetstop.errors import RemoteFailed

MEMBERS = {
    "nodename": "pve1",
    "version": 5,
    "cluster": {"name": "lab", "version": 3, "nodes": 2, "quorate": 1},
    "nodelist": {
        "pve1": {"id": 1, "online": 1, "ip": "10.1.2.6"},
        "pve2": {"id": 2, "online": 0, "ip": "10.1.2.7"},
    },
}
PLACES = {
    "version": 7,
    "ids": {
        "201": {"node": "pve1", "type": "lxc", "version": 3},
        "200": {"node": "pve1", "type": "lxc", "version": 2},
        "202": {"node": "pve2", "type": "lxc", "version": 4},
        "900": {"node": "pve1", "type": "qemu", "version": 1},
    },
}
FILES = """\
/etc/pve/nodes/pve1/lxc/200.conf:hostname: /nodes/x/lxc/1.conf:y
/etc/pve/nodes/pve1/lxc/200.conf:tags: gpu;train
/etc/pve/nodes/pve1/lxc/200.conf:[before]
/etc/pve/nodes/pve1/lxc/200.conf:hostname: older
/etc/pve/nodes/pve1/lxc/200.conf:lock: snapshot
/etc/pve/nodes/pve1/lxc/201.conf:lock: backup
/etc/pve/nodes/pve2/lxc/202.conf:template: 1
"""


def told(
    members: object = MEMBERS, places: object = PLACES, files: str = FILES, running: str = ""
) -> bytes:
    parts = (f"members\n{json.dumps(members)}\n", f"places\n{json.dumps(places)}\n")
    return "\0".join((*parts, f"files\n{files}", f"running\n{running}")).encode()


def test_a_cluster_is_read_and_snapshots_are_not() -> None:
    seen = parse_guests(told(running="/lxc/200/\n/lxc/2012/\n/lxc/202/\n"))
    assert seen.name == "lab"
    assert seen.nodes == (
        Node("pve1", "10.1.2.6", True, local=True),
        Node("pve2", "10.1.2.7", False),
    )
    # what runs elsewhere is unknown, whatever has that number here; 2012 is not 201
    assert seen.containers == (
        Guest(200, "pve1", "/nodes/x/lxc/1.conf:y", "running", ("gpu", "train")),
        Guest(201, "pve1", None, "stopped", lock="backup"),
        Guest(202, "pve2", None, "unknown", template=True),
    )
    assert seen.findings == ("what runs on pve2 is not in the files of pve1: ask there",)


def test_a_single_node_has_no_cluster() -> None:
    seen = parse_guests(told({"nodename": "pve1", "version": 0}, {"version": 1, "ids": {}}, ""))
    assert (seen.name, seen.containers, seen.findings) == (None, (), ())
    assert seen.nodes == (Node("pve1", None, True, local=True),)


@pytest.mark.parametrize(
    "data", [b"", b"members\n{}", told("no"), told(places=[]), b"x\n\0" + told()]
)
def test_what_is_not_whole_is_no_empty_cluster(data: bytes) -> None:
    with pytest.raises(RemoteFailed):
        parse_guests(data)
