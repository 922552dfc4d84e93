"""The same against a fake of Proxmox's API that others wrote (fakepve on PyPI)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import fakepve  # type: ignore[import-untyped]
import pytest
from fakepve.certs import make_cert  # type: ignore[import-untyped]

from fleetstop.actions.discover import discover
from fleetstop.core.cluster import ClusterSeen
from fleetstop.core.inventory import Api
from fleetstop.errors import LoginRefused
from fleetstop.remote.proxmox import ProxmoxCluster

TOKEN_ID, SECRET = "fleet@pve!look", "11111111-2222-3333-4444-555555555555"


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PVE_TOKEN", SECRET)
    monkeypatch.setenv("NO_PROXY", "*")


def seen(where: Path, *rights: tuple[str, str], secret: str = SECRET, offline: str = "") -> Any:
    """Two nodes, two containers, a virtual machine; looked at with these rights."""

    async def look() -> ClusterSeen:
        pve = fakepve.FakePve(host="127.0.0.1", port=0)
        certificate, key = make_cert(str(where), hosts=("127.0.0.1",))[:2]
        pve.add_node("pve2")
        for ct in (
            fakepve.FakeCt(
                200, "train", status="running", config={"tags": "gpu;train"}, lock="backup"
            ),
            fakepve.FakeCt(201, "eval", node="pve2", status="stopped", pool="ml"),
        ):
            pve.cts.append(ct)
        pve.add_vm(900, "machine", status="running")
        pve.apitokens[TOKEN_ID] = secret
        for path, right in rights:
            pve.grant(TOKEN_ID, path, right)
        if offline:
            pve.set_node_offline(offline)
        await pve.start(certificate, key)
        try:
            api = Api(pve.url, TOKEN_ID, {"env": "PVE_TOKEN"}, ca=certificate)
            return await discover(ProxmoxCluster(api), TOKEN_ID)
        finally:
            await pve.stop()

    return asyncio.run(look())


ALL = (("/", "Sys.Audit"), ("/vms", "VM.Audit"))


def test_its_containers_and_nodes_are_read(tmp_path: Path) -> None:
    found = seen(tmp_path, *ALL)
    assert found.name == "fakecluster"
    assert [(each.name, each.online) for each in found.nodes] == [("pve1", True), ("pve2", True)]
    told = [(each.vmid, each.node, each.name, each.status) for each in found.containers]
    assert told == [(200, "pve1", "train", "running"), (201, "pve2", "eval", "stopped")]
    assert found.containers[0].tags == ("gpu", "train")
    assert found.containers[0].lock == "backup"
    assert found.complete


def test_a_node_of_it_is_off(tmp_path: Path) -> None:
    found = seen(tmp_path, *ALL, offline="pve2")
    assert [each.status for each in found.containers] == ["running", "unknown"]
    assert found.findings == ("pve2 is offline; the status of 1 container is unknown",)


def test_a_token_without_rights_and_one_with_another_secret(tmp_path: Path) -> None:
    found = seen(tmp_path, ("/nodes", "Sys.Audit"))
    assert found.containers == ()
    assert any("lacks VM.Audit" in each for each in found.findings)
    assert not found.complete
    with pytest.raises(LoginRefused, match="authentication failure"):
        seen(tmp_path, *ALL, secret="another")
