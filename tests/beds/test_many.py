"""Many containers on many hosts: sshd keeps its default limits, and refuses nobody."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetstop.lab import Lab
from fleetstop.lab.sshd import Sshd

from . import crowd

pytestmark = [pytest.mark.bed, pytest.mark.slow]
HOSTS, EACH = 20, 10


@pytest.fixture(scope="module")
def fleet(bed: None) -> Iterator[Lab]:
    """Ten containers: in the first a polite job, in the second a deaf one, in the others none."""
    root = Path(tempfile.mkdtemp(prefix="fsl-", dir="/tmp"))
    lab = Lab.up(root, EACH, gpus=2, first_vmid=random.randrange(20_000, 900_000_000, 100))
    try:
        for vmid, how in zip(lab.vmids, ("polite", "deaf"), strict=False):
            lab.start(vmid, ["--gpus", "0"], how=how)  # type: ignore[arg-type]
        yield lab
    finally:
        lab.down()
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture
def asked(fleet: Lab, tmp_path: Path) -> Path:
    """A line for each nvidia-smi that was started."""
    log, real = tmp_path / "nvidia-smi.log", fleet.nvidia_smi.with_name("nvidia-smi.real")
    fleet.nvidia_smi.rename(real)
    fleet.nvidia_smi.write_text(f'#!/bin/sh\necho "$1" >>{log}\nexec {real} "$@"\n')
    fleet.nvidia_smi.chmod(0o755)
    return log


@pytest.fixture
def servers(fleet: Lab, tmp_path: Path) -> Iterator[list[Sshd]]:
    with crowd.servers(fleet, HOSTS, tmp_path) as started:
        yield started


def status(path: Path, *words: str, code: int = 0) -> tuple[dict[str, Any], str]:
    line = [sys.executable, "-m", "fleetstop", "status", *words, "--json", "-i", str(path)]
    done = subprocess.run(
        line, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=110, check=False,
        env={**os.environ, "COLUMNS": "100"},
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout), done.stderr


def refused(server: Sshd) -> list[str]:
    """By its MaxStartups and MaxSessions (sshd_config(5)), in its own words."""
    words = ("drop connection", "MaxStartups", "no more sessions")
    lines = server.log.read_text(errors="replace").splitlines()
    return [line for line in lines if any(word in line for word in words)]


@pytest.mark.timeout(180)
def test_200_containers_on_20_sshds_and_no_connection_is_refused(
    fleet: Lab, servers: list[Sshd], tmp_path: Path, asked: Path
) -> None:
    hosts = {f"pve{at}": (server, str(fleet.pct)) for at, server in enumerate(servers)}
    calls = len(fleet.pct_calls())
    report, people = status(crowd.inventory(fleet, hosts, tmp_path), "*")
    results = {each["target"]: (each["result"], each["verdict"]) for each in report["targets"]}
    assert len(results) == HOSTS * EACH
    for at in range(HOSTS):
        own = [results[f"pve{at}-{number}:train"] for number in range(EACH)]
        assert own[0][0] == "running"
        assert own[0][1] in ("busy", "saving")
        assert own[1] == ("running", "deaf")
        assert {each[0] for each in own[2:]} == {"not_running"}
    assert [server.connections() for server in servers] == [1] * HOSTS
    assert [refused(server) for server in servers] == [[]] * HOSTS
    assert len(fleet.pct_calls()) == calls
    assert "40 running, 160 not running" in people
    # a look at the GPUs is two questions; two jobs of a host need one
    assert len(asked.read_text().splitlines()) <= 3 * HOSTS


@pytest.mark.timeout(180)
def test_20_names_of_one_sshd_come_in_by_eights(
    fleet: Lab, servers: list[Sshd], tmp_path: Path
) -> None:
    """Each with a `pct` of its own is a host of its own: 20 connections to one sshd that lets ten
    be half-way in, and drops some of what is more. Nobody has a container that is there."""
    told: dict[str, Any] = {"hosts": {}, "containers": {}}
    for at in range(HOSTS):
        pct = tmp_path / f"pct{at}"
        pct.symlink_to(fleet.pct)
        told["hosts"][f"name{at}"] = crowd.host(servers[0], str(pct))
        told["containers"][f"none{at}"] = {"host": f"name{at}", "vmid": 900_000_100 + at}
    path = tmp_path / "fleet.yaml"
    path.write_text(json.dumps(told))
    report, _ = status(path, "*", "-P", "200", code=4)
    reasons = [each["reason"] for each in report["targets"]]
    assert len(reasons) == HOSTS
    assert all("900000" in each and "not" in each for each in reasons), reasons
    assert servers[0].connections() == HOSTS
    assert refused(servers[0]) == []
