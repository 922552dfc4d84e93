"""Several sshd's before the same ten containers: many hosts, as far as a client can tell."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fleetstop.lab import Lab, sshd
from fleetstop.lab.sshd import Sshd


@contextmanager
def servers(lab: Lab, count: int, where: Path) -> Iterator[list[Sshd]]:
    started, ids = [], []
    try:
        for number in range(count):
            server, own = Sshd(where / f"ssh{number}").start(lab.pct.parent)
            started.append(server)
            ids.append(own)
        yield started
    finally:
        for own in ids:
            sshd.stop(own)


def host(server: Sshd, pct: str) -> dict[str, Any]:
    return {
        "ssh": f"root@{sshd.ADDRESS}", "port": server.port, "pct": pct,
        "identity": str(server.identity), "known_hosts": str(server.known_hosts),
    }  # fmt: skip


def inventory(
    fleet: Lab, hosts: Mapping[str, tuple[Sshd, str]], where: Path, each: int | None = None
) -> Path:
    """The same containers on each, all of the lab or the first `each`; jobs without files, so that
    nobody has to go inside."""
    told: dict[str, Any] = {"hosts": {}, "containers": {}}
    for name, (server, pct) in hosts.items():
        told["hosts"][name] = host(server, pct)
        for number, vmid in enumerate(fleet.vmids[:each]):
            job = {"match": {"script": "train.py"}, "stop_signal": "INT"}
            told["containers"][f"{name}-{number}"] = {
                "host": name, "vmid": vmid, "tags": [f"n{number}"], "jobs": {"train": job},
            }  # fmt: skip
    path = where / "fleet.yaml"
    path.write_text(json.dumps(told))  # JSON is YAML
    return path
