"""What a Proxmox API says of its cluster: broadcast and own lists joined, nothing unknown sold as
known."""

from __future__ import annotations

from typing import Any

import pytest

from fleetstop.core.cluster import (
    Guest,
    Node,
    guests_of,
    joined,
    may_see_containers,
    node_findings,
    nodes_named,
    nodes_of,
)


def lxc(vmid: object, **more: object) -> dict[str, Any]:
    known = {"vmid": vmid, "type": "lxc", "status": "running", "node": "pve1"}
    return known | more


def test_a_whole_item_is_read() -> None:
    item = lxc(200, name="a", tags="gpu;train", lock="backup", pool="ml", template=0, uptime=5)
    assert guests_of([item]) == (
        Guest(200, "pve1", "a", "running", ("gpu", "train"), "backup", "ml", False),
    )


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"status": "unknown"}, "unknown"),  # its node's broadcast is older than 300 s
        ({"status": "stopped"}, "stopped"),
        ({"status": None}, "unknown"),
        ({"status": "prelaunch"}, "unknown"),
        ({"status": ["running"]}, "unknown"),
    ],
)
def test_what_is_neither_running_nor_stopped_is_unknown(
    more: dict[str, object], expected: str
) -> None:
    assert guests_of([lxc(200, **more)])[0].status == expected


@pytest.mark.parametrize("vmid", [None, "x", "12", 12, 99, 2**40, "²³⁴", 200.0, [], {}])
def test_what_has_no_number_is_no_container(vmid: object) -> None:
    assert guests_of([lxc(vmid), lxc("200"), "garbage", None, 3]) == guests_of([lxc(200)])


def test_virtual_machines_are_left_out_and_an_own_list_has_no_type() -> None:
    assert guests_of([lxc(900, type="qemu"), {"vmid": 200, "node": "pve1"}]) == ()
    assert guests_of([{"vmid": "200", "status": "stopped"}], "pve2") == (
        Guest(200, "pve2", status="stopped"),
    )


def test_tags_however_they_are_parted_and_templates() -> None:
    [guest] = guests_of([lxc(200, tags="gpu, train;a b;", template="1")])
    assert guest.tags == ("gpu", "train", "a", "b")
    assert guest.template


@pytest.mark.parametrize("answer", [None, {}, "x", 5, [None], [[]]])
def test_what_is_no_list_of_things_has_none(answer: object) -> None:
    assert guests_of(answer) == ()
    assert nodes_of(answer) == (None, (), ())
    assert nodes_named(answer) == ()


def test_nodes_of_a_cluster_and_of_one_machine() -> None:
    cluster = [
        {"type": "cluster", "name": "lab", "quorate": 1},
        {"type": "node", "name": "pve1", "ip": "10.1.2.6", "online": 1, "local": 1},
        {"type": "node", "name": "pve2", "ip": "10.1.2.7", "online": 0, "local": 0},
    ]
    assert nodes_of(cluster) == (
        "lab",
        (Node("pve1", "10.1.2.6", True, local=True), Node("pve2", "10.1.2.7", False)),
        (),
    )
    assert nodes_of([cluster[1]])[0] is None
    cluster[0]["quorate"] = 0
    assert nodes_of(cluster)[2] == ("the cluster has no quorum: what it says may be old",)


def test_nodes_without_the_right_to_their_addresses() -> None:
    listed = [{"node": "a", "status": "online"}, {"node": "b", "status": "unknown"}]
    assert nodes_named(listed) == (Node("a", online=True), Node("b"))


NODES = (Node("pve1"), Node("pve2"))


def test_its_own_list_is_true_and_the_broadcast_old() -> None:
    said = (Guest(200, "pve1", "a", "running", ("gpu",), pool="ml"),)
    own = {"pve1": (Guest(200, "pve1", "a", "stopped"),), "pve2": ()}
    assert joined(said, own, NODES) == (
        (Guest(200, "pve1", "a", "stopped", ("gpu",), pool="ml"),),
        (),
    )


def test_what_a_node_that_was_not_seen_runs_is_unknown_though_it_was_broadcast() -> None:
    said = (Guest(200, "pve1", "a", "running"), Guest(201, "pve2", "b", "running"))
    guests, findings = joined(said, {"pve1": (said[0],)}, NODES)
    assert [each.status for each in guests] == ["running", "unknown"]
    assert findings == ()
    nodes = (Node("pve1"), Node("pve2", problem="is offline"))
    assert node_findings(nodes, guests) == (
        "pve2 is offline; the status of 1 container is unknown",
    )


def test_one_that_moved_between_the_two_looks_is_where_it_is_listed() -> None:
    said = (Guest(200, "pve1", "a", "running", pool="ml"),)
    own = {"pve1": (), "pve2": (Guest(200, "pve2", "a", "running"),)}
    assert joined(said, own, NODES) == ((Guest(200, "pve2", "a", "running", pool="ml"),), ())


def test_one_that_went_and_one_that_came_between_the_two_looks() -> None:
    said = (Guest(200, "pve1", "a", "running"),)
    guests, findings = joined(said, {"pve1": (Guest(201, "pve1"),), "pve2": ()}, NODES)
    assert guests == (Guest(201, "pve1"),)
    assert findings == ("200 is not listed by pve1 itself any more",)
    guests, findings = joined(said, {"pve1": ()}, NODES)
    assert guests == ()
    assert findings == ("200 is not listed by pve1 itself any more, and may be on pve2",)


@pytest.mark.parametrize(
    ("permissions", "may"),
    [
        ({"/vms": {"VM.Audit": 1}}, True),
        ({"/": {"VM.Audit": 0}}, True),  # 0: it does not propagate
        ({"/vms/200": {"VM.Audit": 1}}, True),
        ({"/pool/ml": {"VM.Audit": 1}}, True),
        ({"/nodes": {"VM.Audit": 1}}, False),
        ({"/vms": {"VM.Console": 1}}, False),
        ({}, False),
        ([], False),
        (None, False),
    ],
)
def test_an_empty_list_is_believed_only_with_the_right(permissions: object, may: bool) -> None:
    assert may_see_containers(permissions) is may
