"""The files of a cluster, read in real shells."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from fleetstop.actions.discover import discover_files
from fleetstop.core.cluster import ClusterSeen
from fleetstop.errors import FleetstopError, PrivilegeMissing, RemoteFailed, ToolMissing
from tests.core.test_pve_files import MEMBERS, PLACES
from tests.fakes.local_channel import SHELLS, is_installed, local_shell


@pytest.fixture(params=sorted(SHELLS))
def kind(request: pytest.FixtureRequest) -> str:
    if not is_installed(request.param):
        pytest.skip(f"{request.param} is not installed")
    return str(request.param)


def pve(where: Path) -> Path:
    """A directory as pmxcfs shows it, its name one that a shell would trip over."""
    root = where / "etc $(pve) 'x'"
    for node in ("pve1", "pve2"):
        (root / "nodes" / node / "lxc").mkdir(parents=True)
    (root / ".members").write_text(json.dumps(MEMBERS))
    (root / ".vmlist").write_text(json.dumps(PLACES))
    (root / "nodes/pve1/lxc/200.conf").write_text(
        "#tags: no\narch: amd64\nhostname: train\ntags: gpu;train\n"
        "lxc.environment: API_KEY=verysecret\n\n[before]\nhostname: older\n"
    )
    (root / "nodes/pve2/lxc/202.conf").write_text("hostname: $(touch x)\n")
    return root


def asked(kind: str, root: Path) -> tuple[ClusterSeen, bytes]:
    async def whole() -> tuple[ClusterSeen, bytes]:
        from fleetstop.core.commands import Command

        async with local_shell(kind) as local:
            seen = await discover_files(local.framed, "here", str(root))
            return seen, (await local.framed.run(Command("guests", (str(root),)))).data

    return asyncio.run(whole())


def test_a_cluster_is_read_and_secrets_stay_where_they_are(kind: str, tmp_path: Path) -> None:
    seen, raw = asked(kind, pve(tmp_path))
    told = [(each.vmid, each.node, each.name, each.tags) for each in seen.containers]
    assert told == [
        (200, "pve1", "train", ("gpu", "train")),
        (201, "pve1", None, ()),
        (202, "pve2", "$(touch x)", ()),
    ]
    assert [each.address for each in seen.nodes] == ["10.1.2.6", "10.1.2.7"]
    assert b"verysecret" not in raw
    assert seen.containers[2].status == "unknown"


def test_no_containers_and_no_proxmox(kind: str, tmp_path: Path) -> None:
    root = pve(tmp_path)
    for each in root.rglob("*.conf"):
        each.unlink()
    (root / ".vmlist").write_text('{"version": 1, "ids": {}}')
    assert asked(kind, root)[0].containers == ()
    failed: list[tuple[Path, type[FleetstopError]]] = [(tmp_path / "no", ToolMissing)]
    (root / ".vmlist").write_text("")
    failed.append((root, RemoteFailed))
    (tmp_path / "empty").mkdir()
    failed.append((tmp_path / "empty", PrivilegeMissing))
    for where, problem in failed:
        with pytest.raises(problem):
            asked(kind, where)
