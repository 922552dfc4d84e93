"""`discover --ssh` over a real sshd: what runs is read off real containers."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from fleetstop.actions.discover import discover_files
from fleetstop.config.files import load_inventory
from fleetstop.core.cluster import ClusterSeen
from fleetstop.core.inventory import Host
from fleetstop.remote.link import Link
from fleetstop.remote.ssh import Tunnels

from .bed import Bed

pytestmark = pytest.mark.bed


def looked(host: Host, root: Path) -> ClusterSeen:
    async def look() -> ClusterSeen:
        tunnels = Tunnels()
        link = Link(host, tunnels)
        try:
            _, outside = await link.opened()
            return await discover_files(outside.shell, host.name, str(root))
        finally:
            await link.close()
            await tunnels.close()

    return asyncio.run(look())


def test_what_runs_is_running_and_what_does_not_is_stopped(box: Bed, tmp_path: Path) -> None:
    """The files are made up, since no machine of the lab is a Proxmox node; the containers and
    the way to them are real. A shorter number
    that begins alike is another container's."""
    (tmp_path / "nodes/pve1/lxc").mkdir(parents=True)
    (tmp_path / f"nodes/pve1/lxc/{box.vmid}.conf").write_text("hostname: train\ntags: gpu\n")
    (tmp_path / ".members").write_text(json.dumps({"nodename": "pve1", "version": 0}))
    ids = {str(vmid): {"node": "pve1", "type": "lxc"} for vmid in (box.vmid, box.vmid // 10)}
    (tmp_path / ".vmlist").write_text(json.dumps({"version": 1, "ids": ids}))
    inventory = load_inventory(box.lab.inventory, {}, tmp_path, tmp_path)
    [host] = inventory.hosts.values()
    seen = looked(host, tmp_path)
    told = {each.vmid: (each.name, each.status) for each in seen.containers}
    assert told[box.vmid] == ("train", "running")
    assert told[box.vmid // 10] == (None, "stopped")


def test_a_host_without_proxmox_is_told_as_that(box: Bed) -> None:
    name = next(iter(load_inventory(box.lab.inventory, {}, Path("/"), Path("/")).hosts))
    words = ["discover", "--ssh", name, "-i", str(box.lab.inventory)]
    line = [sys.executable, "-m", "fleetstop", *words]
    ran = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 4, ran.stdout
    assert "no /etc/pve there: it is no node of Proxmox" in ran.stdout
