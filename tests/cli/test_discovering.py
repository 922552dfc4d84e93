"""`fleetstop discover` as it is typed, against an API that plays a cluster and its faults."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetstop.config.files import load_inventory
from tests.fakes.fake_proxmox import (
    SECRET,
    TOKEN_ID,
    Answer,
    FakeProxmox,
    data,
    guest,
    refusal,
    served,
    silent_node,
    three_nodes,
)


@pytest.fixture
def pve(tmp_path: Path) -> Iterator[FakeProxmox]:
    with served(three_nodes(), tmp_path / "pve") as fake:
        yield fake


def inventory(where: Path, fake: FakeProxmox, *, extra: str = "", **api: str) -> Path:
    told = {"url": fake.url, "token_id": TOKEN_ID, "ca": str(fake.ca)} | api
    keys = "".join(f"      {key}: {json.dumps(value)}\n" for key, value in told.items() if value)
    path = where / "fleet.yaml"
    path.write_text(
        "# our machines\nhosts:\n  pve1:   # the first\n    ssh: root@10.1.2.6\n    api:\n"
        f"{keys}      token_secret: {{env: PVE_TOKEN}}\n{extra}"
    )
    return path


def typed(where: Path, *words: str, secret: str = SECRET) -> tuple[int, str, str]:
    """Exit code, stdout, stderr; nothing of it, and no file that it left, holds the secret."""
    state = where / "state"
    known = {"PATH": os.environ["PATH"], "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    homes = {name: str(state) for name in ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME")}
    line = [sys.executable, "-m", "fleetstop", "discover", *words]
    assert not any(SECRET in each for each in line)
    done = subprocess.run(
        line,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        cwd=where,
        env=known | homes | {"PVE_TOKEN": secret, "NO_PROXY": "*"},
    )
    left = [each.read_bytes() for each in where.rglob("*") if each.is_file()]
    assert SECRET not in done.stdout + done.stderr
    assert not any(SECRET.encode() in each for each in left)
    return done.returncode, done.stdout, done.stderr


def told(where: Path, *words: str) -> dict[str, Any]:
    code, out, err = typed(where, *words, "--json")
    found: dict[str, Any] = json.loads(out)
    assert found["exit_code"] == code, err
    return found


def statuses(cluster: dict[str, Any]) -> dict[int, str]:
    return {each["vmid"]: each["status"] for each in cluster["containers"]}


def test_one_node_dead_of_three(pve: FakeProxmox, tmp_path: Path) -> None:
    path = inventory(tmp_path, pve)
    found = told(tmp_path, "-i", str(path))
    [cluster] = found["clusters"]
    assert found["exit_code"] == 0
    assert statuses(cluster) == {200: "running", 201: "stopped", 202: "running", 203: "unknown"}
    assert cluster["findings"] == ["pve3 is offline; the status of 1 container is unknown"]
    # a node that is known to be off is not asked: that would cost 30 s
    assert "nodes/pve3/lxc" not in [path for path, _ in pve.asked]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (silent_node(595, "No route to host"), "No route to host (595)"),
        (silent_node(596, "Connection timed out"), "Connection timed out (596)"),
        (refusal(500, "hostname lookup 'pve3' failed"), "hostname lookup 'pve3' failed"),
        (Answer(0), "it hung up without an answer"),
    ],
)
def test_a_node_that_is_said_to_run_and_does_not_answer_is_that_node_only(
    pve: FakeProxmox, tmp_path: Path, answer: Answer, said: str
) -> None:
    """Its broadcast says `running` for 300 s more: that is not believed."""
    pve.answers["cluster/status"] = data(
        [
            {"type": "cluster", "name": "lab", "quorate": 1},
            *(
                {"type": "node", "name": f"pve{n}", "ip": f"10.1.2.{n}", "online": 1}
                for n in (1, 3)
            ),
        ]
    )
    pve.answers["cluster/resources"] = data([guest(200, "pve1"), guest(203, "pve3")])
    pve.answers["nodes/pve3/lxc"] = answer
    found = told(tmp_path, "-i", str(inventory(tmp_path, pve)))
    [cluster] = found["clusters"]
    assert statuses(cluster)[200] == "running"
    assert statuses(cluster)[203] == "unknown"
    assert found["exit_code"] == 4
    assert not cluster["complete"]
    [finding] = cluster["findings"]
    assert finding.startswith("pve3 ")
    assert said in finding


def test_no_rights_at_all_is_told_as_that(pve: FakeProxmox, tmp_path: Path) -> None:
    for path in ("cluster/resources", "nodes/pve1/lxc", "nodes/pve2/lxc"):
        pve.answers[path] = data([])
    pve.answers["access/permissions"] = data({})
    code, out, _ = typed(tmp_path, "-i", str(inventory(tmp_path, pve)))
    assert code == 4
    words = " ".join(out.split())
    assert "no containers are told because the token lacks VM.Audit" in words
    assert f"pveum acl modify /vms --tokens '{TOKEN_ID}' --roles PVEAuditor" in words
    # with the right, none is none
    pve.answers["access/permissions"] = data({"/vms": {"VM.Audit": 1}})
    found = told(tmp_path, "-i", str(tmp_path / "fleet.yaml"))
    assert found["exit_code"] == 0
    assert found["clusters"][0]["containers"] == []


def test_without_sys_audit_containers_are_told_and_addresses_are_not(
    pve: FakeProxmox, tmp_path: Path
) -> None:
    pve.answers["cluster/status"] = refusal(403, "Permission check failed (/, Sys.Audit)")
    pve.answers["nodes/pve3/lxc"] = silent_node(595, "No route to host")
    found = told(tmp_path, "-i", str(inventory(tmp_path, pve)))
    [cluster] = found["clusters"]
    assert statuses(cluster) == {200: "running", 201: "stopped", 202: "running", 203: "unknown"}
    assert [each["address"] for each in cluster["nodes"]] == [None] * 3
    assert "lacks Sys.Audit on /" in cluster["findings"][0]


def test_a_wrong_ca_a_wrong_fingerprint_and_a_wrong_token(pve: FakeProxmox, tmp_path: Path) -> None:
    with served(FakeProxmox(), tmp_path / "other") as other:
        code, _, _ = typed(tmp_path, "-i", str(inventory(tmp_path, pve, ca=str(other.ca))))
        [failed] = told(tmp_path, "-i", str(tmp_path / "fleet.yaml"))["failed"]
    assert code == 4
    assert "its certificate is not signed by" in failed["reason"]
    path = inventory(tmp_path, pve, ca="", fingerprint=":".join(["AB"] * 32))
    [failed] = told(tmp_path, "-i", str(path))["failed"]
    assert f"shows {pve.fingerprint}, not the pinned AB:AB" in failed["reason"]
    assert pve.asked == []  # nothing was sent to it, the token least of all
    path = inventory(tmp_path, pve, ca="", fingerprint=pve.fingerprint)
    assert told(tmp_path, "-i", str(path))["failed"] == []
    code, out, _ = typed(tmp_path, "-i", str(path), secret="another")
    assert code == 4
    assert f"the token {TOKEN_ID} was refused: Authentication failed!" in out


def test_one_api_that_fails_hurts_no_other(pve: FakeProxmox, tmp_path: Path) -> None:
    again = f"""\
  pve2:
    ssh: root@10.1.2.7
    api: {{url: "{pve.url}", token_id: "{TOKEN_ID}", token_secret: {{env: PVE_TOKEN}},
          ca: {pve.ca}}}
  far:
    ssh: root@10.8.0.1
    api: {{url: "https://127.0.0.1:1", token_id: "{TOKEN_ID}", token_secret: {{env: PVE_TOKEN}}}}
  unset:
    ssh: root@10.8.0.2
    api: {{url: "https://127.0.0.1:1", token_id: "{TOKEN_ID}", token_secret: {{env: PVE_UNSET}}}}
"""
    path = inventory(tmp_path, pve, extra=again)
    found = told(tmp_path, "-i", str(path))
    # one cluster, told by two of its nodes, is told once
    assert [each["asked"] for each in found["clusters"]] == [["pve1", "pve2"]]
    reasons = {each["by"]: each["reason"] for each in found["failed"]}
    assert reasons["far"].endswith("connection refused")
    assert "the variable PVE_UNSET" in reasons["unset"]
    assert found["exit_code"] == 4
    assert told(tmp_path, "pve2", "-i", str(path))["exit_code"] == 0


def test_write_makes_an_inventory_that_finds_them_again(pve: FakeProxmox, tmp_path: Path) -> None:
    first = ["--url", pve.url, "--login", TOKEN_ID, "--key-from", "env:PVE_TOKEN"]
    code, out, err = typed(tmp_path, *first, "--ca", "pve/pve-root-ca.pem")
    assert code == 0, err
    assert "The inventory lacks 3 hosts and 4 containers" in out
    path = tmp_path / "inventory" / "fleet.yaml"
    code, out, _ = typed(tmp_path, *first, "--ca", "pve/pve-root-ca.pem", "--write", "-n")
    assert "would be added to inventory/fleet.yaml; nothing was written" in out
    assert not path.exists()
    code, out, err = typed(tmp_path, *first, "--ca", "pve/pve-root-ca.pem", "--write")
    assert code == 0, err
    assert "3 hosts and 4 containers added to inventory/fleet.yaml." in out
    made = load_inventory(path, {}, tmp_path, tmp_path)
    assert {each.name: each.ssh for each in made.hosts.values()} == {
        "pve1": "root@10.1.2.6",
        "pve2": "root@10.1.2.7",
        "pve3": "root@10.1.2.8",
    }
    assert made.containers["ct200"].tags == ("gpu", "train")
    # by its own inventory now; nothing is lacking, nothing is written
    before = path.read_bytes()
    found = told(tmp_path, "--write")
    assert found["clusters"][0]["known_as"]["203"] == "ct203"
    assert (found["written"], found["new"]["hosts"]) == (False, {})
    assert path.read_bytes() == before
    assert "The inventory lacks nothing of this." in typed(tmp_path, "--write")[1]
    pve.answers["nodes/pve2/lxc"] = silent_node(596, "Connection timed out")
    assert "Of what was seen nothing is new." in typed(tmp_path, "--write")[1]


def test_write_merges_and_keeps_every_byte_that_was_there(pve: FakeProxmox, tmp_path: Path) -> None:
    extra = "containers:\n  big:   # ours\n    host: pve1\n    vmid: 200\n\n# the end\n"
    path = inventory(tmp_path, pve, extra=extra)
    before = path.read_text()
    found = told(tmp_path, "-i", str(path), "--write")
    assert found["written"] is True
    after = path.read_text()
    # additions only: what is left of the new text without them is the old text
    rest = iter(after.splitlines())
    assert all(line in rest for line in before.splitlines())
    made = load_inventory(path, {}, tmp_path, tmp_path)
    assert sorted(made.containers) == ["big", "ct201", "ct202", "ct203"]
    assert sorted(made.hosts) == ["pve1", "pve2", "pve3"]
    # a file that is to be made where it is named
    code, _, err = typed(tmp_path, "-i", "new.yaml", "--write", *_url(pve))
    assert code == 0, err
    assert len(load_inventory(tmp_path / "new.yaml", {}, tmp_path, tmp_path).containers) == 4


def _url(fake: FakeProxmox) -> list[str]:
    known = ["--url", fake.url, "--login", TOKEN_ID, "--key-from", "env:PVE_TOKEN"]
    return [*known, "--fingerprint", fake.fingerprint]


def test_an_interruption_does_not_wait_for_a_slow_api(pve: FakeProxmox, tmp_path: Path) -> None:
    pve.answers["cluster/resources"] = Answer(after_s=30)
    path = inventory(tmp_path, pve)
    line = [sys.executable, "-m", "fleetstop", "discover", "-i", str(path)]
    environ = os.environ | {"PVE_TOKEN": SECRET, "NO_PROXY": "*"}
    with subprocess.Popen(line, env=environ, stderr=subprocess.PIPE, text=True) as child:
        until = time.monotonic() + 60
        while not pve.asked and time.monotonic() < until:
            time.sleep(0.05)
        began = time.monotonic()
        child.send_signal(signal.SIGINT)
        assert child.wait(60) == 130
        assert time.monotonic() - began < 10
        assert child.stderr is not None
        assert "Traceback" not in child.stderr.read()


def test_by_ssh_a_host_that_is_not_there_is_4(tmp_path: Path) -> None:
    code, out, _ = typed(tmp_path, "--ssh", "ssh://root@127.0.0.1:1", "-i", "x.yaml", "--write")
    assert code == 4
    assert "ssh://root@127.0.0.1:1: " in out
    assert not (tmp_path / "x.yaml").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "no host in the inventory has an api:"),
        (["box"], "box has no api: in the inventory"),
        (["bx"], "no host 'bx', did you mean 'box'?"),
        (["--ssh", "bx"], "--ssh 'bx': no host, did you mean 'box'?"),
        (["--ssh", "root@h/200"], "--ssh 'root@h/200': no host"),
        (["box", "--ssh", "box"], "--ssh asks one host without its API"),
        (["--ca", "x"], "--ca belongs to --url"),
        (["--url", "https://h:8006"], "--url needs --login and --key-from too"),
        (["--url", "h", "--login", "a@b!c", "--key-from", "env:T"], "--url must be like"),
        (
            ["--url", "https://h", "--login", "a@b", "--key-from", "env:T"],
            "--login must be like",
        ),
        (
            ["box", "--url", "https://h", "--login", "a@b!c", "--key-from", "env:T"],
            "name one of them",
        ),
        (
            ["--url", "https://h", "--login", "a@b!c", "--key-from", "0f5c1d3e-7a52"],
            "a secret is never typed",
        ),
    ],
)
def test_what_cannot_be_asked(tmp_path: Path, words: list[str], said: str) -> None:
    (tmp_path / "fleet.yaml").write_text("hosts: {box: {ssh: ml@box7}}\n")
    code, _, err = typed(tmp_path, "-i", "fleet.yaml", *words)
    assert code == 2
    assert said in " ".join(err.split())
    assert "0f5c1d3e" not in err
