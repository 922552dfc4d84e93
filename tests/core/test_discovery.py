"""Clusters set against an inventory: what is known by which name, what is new, what fits not."""

from __future__ import annotations

from typing import Any

from fleetstop.core.cluster import ClusterSeen, Guest, Node
from fleetstop.core.discovery import (
    Answered,
    Unanswered,
    exit_code,
    hosts_of,
    known_as,
    merged,
    newcomers,
)
from fleetstop.core.inventory import Api, Container, Host, Inventory

API = Api("https://10.1.2.6:8006", "fleet@pve!x", {"env": "T"}, fingerprint="AB")
PVE1 = Node("pve1", "10.1.2.6", True, local=True)
PVE2 = Node("pve2", "10.1.2.7", True)
SEEN = ClusterSeen("lab", (PVE1, PVE2), (Guest(200, "pve1", "a"), Guest(201, "pve2", "b")))


def answered(seen: ClusterSeen = SEEN, *by: str, **more: Any) -> Answered:
    return Answered(by or ("https://10.1.2.6:8006",), seen, **more)


def inventory(**places: Host | Container) -> Inventory:
    return Inventory(
        {name: each for name, each in places.items() if isinstance(each, Host)},
        {name: each for name, each in places.items() if isinstance(each, Container)},
    )


def test_an_empty_inventory_gets_hosts_and_containers_and_the_api_that_was_typed() -> None:
    new = newcomers(Inventory(), [answered(api=API)])
    assert new.hosts == {
        "pve1": {
            "ssh": "root@10.1.2.6",
            "api": {
                "url": "https://10.1.2.6:8006",
                "token_id": "fleet@pve!x",
                "token_secret": {"env": "T"},
                "fingerprint": "AB",
            },
        },
        "pve2": {"ssh": "root@10.1.2.7"},
    }
    assert new.containers == {
        "ct200": {"host": "pve1", "vmid": 200},
        "ct201": {"host": "pve2", "vmid": 201},
    }
    assert new.notes == ()


def test_hosts_are_known_by_address_by_name_and_at_last_by_who_was_asked() -> None:
    known = inventory(
        big=Host("big", "ml@10.1.2.6"), second=Host("second", "pve2.lan"), x=Host("x", "10.9.9.9")
    )
    assert hosts_of(known, answered()) == {"pve1": "big", "pve2": "second"}
    # an alias of ~/.ssh/config
    assert hosts_of(inventory(gpu=Host("gpu", "gpu-box")), answered(SEEN, "gpu")) == {"pve1": "gpu"}
    # the url may be that of a balancer: pve2's login stays pve2's
    asked = inventory(gpu=Host("gpu", "root@10.1.2.7"))
    assert hosts_of(asked, answered(SEEN, "gpu")) == {"pve2": "gpu"}
    # a name says nothing beside an address that is another's
    assert hosts_of(inventory(pve1=Host("pve1", "root@10.66.0.1")), answered()) == {}


def test_what_is_known_is_not_written_again_and_templates_never() -> None:
    known = inventory(
        pve1=Host("pve1", "root@10.1.2.6"), train=Container("train", host="pve1", vmid=200)
    )
    seen = ClusterSeen("lab", (PVE1,), (Guest(200, "pve1"), Guest(900, "pve1", template=True)))
    assert known_as(known, answered(seen)) == {200: "train"}
    assert not newcomers(known, [answered(seen)])


def test_a_container_that_moved_is_told_and_not_written_twice() -> None:
    known = inventory(
        pve1=Host("pve1", "root@10.1.2.6"),
        pve2=Host("pve2", "root@10.1.2.7"),
        train=Container("train", host="pve1", vmid=201),
        old=Container("old", host="pve1", vmid=300),
        ct200=Container("ct200", host="pve1", vmid=200),
    )
    new = newcomers(known, [answered()])
    assert not new
    assert new.notes == (
        "train is on pve2 now; the inventory has it on pve1: change its host",
        "old (VMID 300, on pve1 in the inventory) is not in the cluster",
    )
    # where not all was seen, nothing is said to be away
    partial = ClusterSeen("lab", SEEN.nodes, SEEN.containers, complete=False)
    assert len(newcomers(known, [answered(partial)]).notes) == 1


def test_names_that_are_taken() -> None:
    other = ClusterSeen("west", (Node("pve1", "10.8.0.1"),), (Guest(200, "pve1"),))
    new = newcomers(Inventory(groups={"ct201": ("a",)}), [answered(), answered(other)])
    assert new.containers == {
        "ct200": {"host": "pve1", "vmid": 200},
        "ct201-pve2": {"host": "pve2", "vmid": 201},
        "ct200-west-pve1": {"host": "west-pve1", "vmid": 200},
    }
    assert list(new.hosts) == ["pve1", "pve2", "west-pve1"]


def test_a_node_whose_address_is_not_told_is_not_written() -> None:
    seen = ClusterSeen(None, (Node("pve1"),), (Guest(200, "pve1"),))
    new = newcomers(Inventory(), [answered(seen)])
    assert not new
    assert new.notes == ("pve1 and its containers are not written: no address of it is told",)


def test_two_hosts_of_one_cluster_tell_it_once_and_the_whole_answer_counts() -> None:
    nodes = (PVE1, PVE2)
    partial = ClusterSeen("lab", nodes, (), complete=False)
    [both] = merged([answered(partial, "pve1"), answered(SEEN, "pve2")])
    assert both.by == ("pve2", "pve1")
    assert both.seen is SEEN
    # single machines have no name: two of them are two
    alone = ClusterSeen(None, (PVE1,), ())
    assert len(merged([answered(alone, "a"), answered(alone, "b")])) == 2


def test_exit_codes() -> None:
    partial = ClusterSeen("lab", (), (), complete=False)
    secret = Unanswered("pve1", "", "", 3)
    dead = Unanswered("pve2", "", "", 4)
    assert exit_code([answered()], []) == 0
    assert exit_code([answered(partial)], []) == 4
    assert exit_code([answered()], [secret]) == 3
    assert exit_code([], [secret, dead]) == 4
