"""The screens of `discover`: a whole cluster, one that could only be seen in part, none at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fleetstop.core.cluster import ClusterSeen, Guest, Node, Status
from fleetstop.core.discovery import Answered, Newcomers, Unanswered, newcomers
from fleetstop.core.inventory import Container, Host, Inventory
from fleetstop.view.discovering import ended, shown, text
from fleetstop.view.layout import Line

GOLDEN = Path(__file__).parent / "golden"
KNOWN = Inventory(
    {"pve1": Host("pve1", "root@10.1.2.6"), "pve2": Host("pve2", "root@10.1.2.7")},
    {"ct200": Container("ct200", host="pve1", vmid=200), "x": Container("x", host="pve1", vmid=7)},
)
COMMAND = "fleetstop discover -i fleet.yaml --write"


def guests(of_pve2: Status = "running") -> tuple[Guest, ...]:
    return (
        Guest(200, "pve1", "train", "running", ("gpu", "train"), pool="ml"),
        Guest(201, "pve1", "eval", "stopped", lock="backup"),
        Guest(202, "pve2", "b\x1b[31mad", of_pve2, ("gpu",)),
        Guest(900, "pve2", "debian-12", "stopped", template=True),
    )


def screen(answers: list[Answered], failures: list[Unanswered], ending: list[Line]) -> str:
    new = newcomers(KNOWN, answers) if answers else Newcomers()
    lines = shown(KNOWN, answers, failures, new) + ending
    return text(lines, width=104, color=False)


PVE1 = Node("pve1", "10.1.2.6", True, local=True)
WHOLE = Answered(("pve1",), ClusterSeen("lab", (PVE1, Node("pve2", "10.1.2.7", True)), guests()))
PROBLEM = "cannot be reached from the node that was asked: Connection timed out (596)"
PARTIAL = Answered(
    ("pve1", "pve2"),
    ClusterSeen(
        "lab",
        (
            PVE1,
            Node("pve2", "10.1.2.7", True, problem=PROBLEM),
            Node("pve3", "10.1.2.8", False, problem="is offline"),
        ),
        guests("unknown"),
        (
            "the cluster has no quorum: what it says may be old",
            f"pve2 {PROBLEM}; the status of 2 containers is unknown",
            "pve3 is offline",
        ),
        complete=False,
    ),
)
BLIND = Answered(
    ("https://10.1.2.6:8006",),
    ClusterSeen(
        None,
        (Node("pve1", online=True),),
        (),
        ("no containers are told because the token lacks VM.Audit: pveum acl modify /vms …",),
        complete=False,
    ),
)
DEAD = Unanswered("pve9", "https://10.9.9.9:8006: no route to host", "", 4)
FOREIGN = Unanswered(
    "pve8",
    "https://10.9.9.8:8006: its certificate is not signed by a CA that this machine knows; "
    "nothing was sent to it",
    "ca: a copy of its /etc/pve/pve-root-ca.pem",
    4,
)
NEW = newcomers(KNOWN, [WHOLE])
SCREENS = {
    "discover_good": screen(
        [WHOLE], [], ended(NEW, whole=True, file=None, written=False, command=COMMAND)
    ),
    "discover_written": screen(
        [WHOLE], [], ended(NEW, whole=False, file="fleet.yaml", written=True, command=COMMAND)
    ),
    "discover_undecided": screen(
        [PARTIAL],
        [DEAD],
        ended(newcomers(KNOWN, [PARTIAL]), whole=False, file=None, written=False, command=COMMAND),
    ),
    "discover_blind": screen(
        [BLIND],
        [],
        ended(Newcomers(), whole=False, file="fleet.yaml", written=False, command=COMMAND),
    ),
    "discover_bad": screen([], [FOREIGN, DEAD], []),
}


@pytest.mark.parametrize("name", SCREENS)
def test_screen(name: str) -> None:
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(SCREENS[name])
    assert SCREENS[name] == path.read_text()
    assert "\x1b" not in SCREENS[name]
