"""New hosts and containers in an inventory's file: all else byte for byte, and read back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fleetstop.config import extended, write
from fleetstop.config.files import inventory_files, load_inventory
from fleetstop.errors import Refused

HOSTS: dict[str, Any] = {"pve2": {"ssh": "root@fd00::2"}}
CONTAINERS: dict[str, Any] = {
    "ct201": {"host": "pve2", "vmid": 201, "tags": ("gpu", "no", "1.5", "a: b")}
}


def files(where: Path) -> tuple[Path, ...]:
    return inventory_files(where, {}, where, where)


def test_into_the_file_that_has_hosts(tmp_path: Path) -> None:
    jobs = tmp_path / "fleet-a.yaml"
    jobs.write_text("groups: {all: [ct200]}\n")
    hosts = tmp_path / "fleet-b.yaml"
    hosts.write_text(
        "hosts: {pve1: {ssh: root@10.1.2.6}}   # one line\n"
        "containers:\n    ct200: {host: pve1, vmid: 200}   # the big one\n"
    )
    change = extended(files(tmp_path), tmp_path, HOSTS, CONTAINERS)
    write(change)
    assert jobs.read_text() == "groups: {all: [ct200]}\n"
    assert hosts.read_text().startswith("hosts: {pve1: {ssh: root@10.1.2.6}, pve2: {ssh:")
    assert "# one line\n" in hosts.read_text()
    found = load_inventory(tmp_path, {}, tmp_path, tmp_path)
    assert found == change.inventory
    assert found.hosts["pve2"].ssh == "root@fd00::2"
    # text that some reader of YAML takes for something else stays text
    assert found.containers["ct201"].tags == ("gpu", "no", "1.5", "a: b")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("defaults: {host: &x {pct: /usr/sbin/pct}}\nhosts: *x\n", "is an alias"),
        ("hosts: {pve2: {ssh: root@10.1.2.7}}\n", "is there already"),
    ],
)
def test_what_cannot_be_added_to_is_left_alone(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(text)
    with pytest.raises(Exception, match=said) as caught:
        extended((path,), tmp_path, HOSTS, CONTAINERS)
    assert caught.type.__module__ == "fleetstop.errors"
    assert path.read_text() == text


def test_a_file_that_was_changed_meanwhile_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text("hosts: {}\n")
    change = extended((path,), tmp_path, HOSTS, CONTAINERS)
    path.write_text("hosts: {a: {ssh: b@c}}\n")
    with pytest.raises(Refused, match="changed meanwhile"):
        write(change)
    assert path.read_text() == "hosts: {a: {ssh: b@c}}\n"
