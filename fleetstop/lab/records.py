"""What a lab writes about itself: state, inventory for clients, Proxmox's container configs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fleetstop.errors import LabUnavailable
from fleetstop.lab.container import Container
from fleetstop.lab.launch import LOG
from fleetstop.lab.processes import ProcessId
from fleetstop.lab.sshd import ADDRESS, Sshd

SCHEMA = 1


@dataclass(frozen=True)
class State:
    """Everything another process needs to use or end this lab."""

    host: str
    gpus: int
    containers: tuple[tuple[int, str], ...]
    port: int
    sshd: ProcessId | None
    unprivileged: tuple[int, ...] = ()

    def write(self, root: Path) -> None:
        sshd = [self.sshd.pid, self.sshd.start] if self.sshd else None
        record = {**self.__dict__, "sshd": sshd, "schema": SCHEMA}
        temporary = root / "state.json.tmp"
        temporary.write_text(json.dumps(record, indent=1) + "\n")
        temporary.rename(root / "state.json")

    @classmethod
    def read(cls, root: Path) -> State:
        try:
            record = json.loads((root / "state.json").read_text())
        except FileNotFoundError:
            raise LabUnavailable(
                f"{root} holds no practice fleet",
                hint="`fleetstop lab up` starts one; `--root` names where it keeps its files",
            ) from None
        except (OSError, ValueError) as exc:
            raise LabUnavailable(f"{root}/state.json cannot be read: {exc}") from exc
        try:
            if record.pop("schema") != SCHEMA:
                raise LabUnavailable(f"{root} was made by another version")
            sshd = ProcessId(*record.pop("sshd")) if record["sshd"] else record.pop("sshd")
            containers = tuple((vmid, name) for vmid, name in record.pop("containers"))
            shifted = tuple(record.pop("unprivileged", ()))
            return cls(containers=containers, sshd=sshd, unprivileged=shifted, **record)
        except (KeyError, TypeError, ValueError, AttributeError) as exc:
            raise LabUnavailable(f"{root}/state.json is not that of a practice fleet") from exc


def write_inventory(root: Path, host: str, server: Sshd, containers: Sequence[Container]) -> Path:
    """`<root>/inventory/fleet.yaml`, which a client reads with `--inventory`."""
    lines = [
        "hosts:",
        f"  {host}:",
        f"    ssh: root@{ADDRESS}",
        f"    port: {server.port}",
        f"    identity: {server.identity}",
        f"    known_hosts: {server.known_hosts}",
        f"    pct: {root}/bin/pct",
        "containers:",
    ]
    for container in containers:
        lines += [
            f"  {container.name}:",
            f"    host: {host}",
            f"    vmid: {container.vmid}",
            "    jobs:",
            "      train:",
            "        match: {script: train.py}",
            "        stop_signal: INT",
            f"        log: {LOG}",
            "        checkpoints: /workspace/checkpoints",
            "        gpus: [0]",
        ]
    place = root / "inventory" / "fleet.yaml"
    place.parent.mkdir(exist_ok=True)
    place.write_text("\n".join(lines) + "\n")
    return place


def write_container_configs(root: Path, host: str, containers: Sequence[Container]) -> None:
    """nodes/NODE/lxc/VMID.conf as under /etc/pve: what makes `pct` know a container."""
    place = root / "pve" / "nodes" / host / "lxc"
    place.mkdir(parents=True)
    for container in containers:
        devices = [f"dev{index}: /dev/nvidia{index}" for index in range(container.gpus)]
        lines = ["arch: amd64", *devices, f"hostname: {container.name}", "memory: 2048"]
        disk = f"local:{container.vmid}/vm-{container.vmid}-disk-0.raw,size=8G"
        lines += ["ostype: debian", f"rootfs: {disk}", "swap: 0"]
        lines += ["unprivileged: 1"] if container.unprivileged else []
        (place / f"{container.vmid}.conf").write_text("\n".join(lines) + "\n")
