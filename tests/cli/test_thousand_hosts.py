"""A thousand hosts, some of them dead, slow or talking garbage: the right result for each."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from tests.fakes import swarm

HOSTS = 1000
MIB = 300  # design 11
ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("keys")
    for name in ("host", "client"):
        key = asyncssh.generate_private_key("ssh-ed25519")
        key.write_private_key(place / name)
        key.write_public_key(place / f"{name}.pub")
        (place / name).chmod(0o600)
    return place


@pytest.fixture(scope="module")
def port(keys: Path) -> Iterator[int]:
    with socket.socket() as probe:
        probe.bind(("127.1.0.1", 0))
        free = int(probe.getsockname()[1])
    words = [sys.executable, "-m", "tests.fakes.swarm", str(keys), str(free), str(HOSTS)]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        try:
            yield free
        finally:
            server.stdin.close()
            server.wait(30)


def inventory(where: Path, keys: Path, port: int, count: int) -> Path:
    public = " ".join((keys / "host.pub").read_text().split()[:2])
    known = where / "known_hosts"
    known.write_text(f"[127.1.*]:{port} {public}\n")
    job = {"match": {"script": "train.py"}, "stop_signal": "INT"}
    hosts = {
        f"h{number}": {
            "ssh": f"root@{swarm.address(number)}", "port": port, "jobs": {"train": job},
            "identity": str(keys / "client"), "known_hosts": str(known),
        }
        for number in range(count)
    }  # fmt: skip
    path = where / "fleet.yaml"
    path.write_text(json.dumps({"hosts": hosts}))
    return path


# Whose memory is asked for is a grandchild: a child forked here has had all that pytest has, and
# the most of that counts as its own, also once it has executed something else (getrusage(2)).
MEASURED = """
import resource, subprocess, sys
subprocess.run(sys.argv[2:], stdin=subprocess.DEVNULL)
most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
open(sys.argv[1], "w").write(str(most // 1024))
"""


def status(path: Path, where: Path) -> tuple[dict[str, Any], str, int]:
    """The report, what people see, and the most memory it took, MiB."""
    words = ["status", "*", "-P", "40", "--json", "-i", str(path)]
    line = [sys.executable, "-m", "fleetstop", *words]
    most = where / "most"
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(most), *line], cwd=ROOT, capture_output=True,
        text=True, check=True, timeout=280,
        env={**os.environ, "HOME": str(where), "COLUMNS": "100"},
    )  # fmt: skip
    return json.loads(done.stdout), done.stderr, int(most.read_text())


def test_each_of_a_thousand_hosts_gets_its_own_result(
    keys: Path, port: int, tmp_path: Path
) -> None:
    report, people, most = status(inventory(tmp_path, keys, port, HOSTS), tmp_path)
    told = {each["target"]: each for each in report["targets"]}
    assert len(told) == HOSTS
    assert report["exit_code"] == 4
    for number in range(HOSTS):
        one = told[f"h{number}:train"]
        if swarm.kind(number) in ("well", "slow"):
            assert (one["result"], one["verdict"]) == ("running", "busy"), one
            assert [each["role"] for each in one["family"]].count("trainer") == 1
        else:
            assert (one["result"], one["verdict"]) == ("unreachable", "unknown"), one
            assert one["reason"], one
    assert most <= MIB
    # each kind of them in one row, but for those who were cut off in the middle of a word
    rows = [line for line in people.splitlines() if " unreachable " in line]
    assert {f"h{number}:train" for number in swarm.ODD} <= {row.split()[0] for row in rows}
    assert len(rows) <= 2 * len(swarm.ODD)
    bad = sum(swarm.kind(number) not in ("well", "slow") for number in range(HOSTS))
    assert bad >= HOSTS * 0.025
    assert people.endswith(f"{HOSTS - bad} running, {bad} unreachable\n")
    assert "Traceback" not in people
