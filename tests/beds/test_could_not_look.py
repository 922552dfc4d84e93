"""What cannot be seen is said in one sentence, in bounded time, and nothing hangs behind."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from .bed import Bed, Ran, lives

pytestmark = pytest.mark.bed


def changed(box: Bed, where: Path, *changes: tuple[str, str]) -> Path:
    """The lab's inventory with some text replaced; each replacement must bite."""
    text = box.lab.inventory.read_text()
    for old, new in changes:
        text, count = re.subn(old, new, text)
        assert count, old
    path = where / "fleet.yaml"
    path.write_text(text)
    return path


def one_clear_sentence(ran: Ran) -> str:
    assert ran.code == 4, ran.people
    assert ran.target["result"] == "unreachable"
    assert ran.signals == []
    assert ran.target["verdict"] in ("unknown", "frozen")
    assert ran.seconds < 25
    reason = ran.target["reason"]
    assert isinstance(reason, str)
    assert "\n" not in reason
    assert "Traceback" not in ran.people
    return reason


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_frozen(box: Bed, dry: tuple[str, ...]) -> None:
    job = box.start()
    box.lab.freeze(box.vmid)
    try:
        ran = box.run("stop", box.name, "--graceful", *dry)
        assert "frozen" in one_clear_sentence(ran)
        assert ran.target["verdict"] == "frozen"
        assert "lxc-unfreeze" in ran.target["hint"]
        assert ran.pct_calls == 0
        assert box.litter() == []
    finally:
        box.lab.thaw(box.vmid)
    assert lives(job)


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_missing(box: Bed, tmp_path: Path, dry: tuple[str, ...]) -> None:
    inventory = changed(box, tmp_path, (f"vmid: {box.vmid}", "vmid: 987654321"))
    ran = box.run("stop", box.name, *dry, inventory=inventory)
    assert "no container 987654321" in one_clear_sentence(ran)
    assert "pct list" in ran.target["hint"]


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_host_down(box: Bed, tmp_path: Path, dry: tuple[str, ...]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    inventory = changed(box, tmp_path, (r"port: \d+", f"port: {port}"))
    ran = box.run("stop", box.name, *dry, inventory=inventory)
    assert "refused" in one_clear_sentence(ran)


def test_host_that_never_speaks(box: Bed, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        inventory = changed(box, tmp_path, (r"port: \d+", f"port: {port}"))
        ran = box.run("stop", box.name, inventory=inventory)
    one_clear_sentence(ran)
    assert 9 < ran.seconds < 25


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_wrong_key(box: Bed, tmp_path: Path, dry: tuple[str, ...]) -> None:
    key = tmp_path / "other"
    subprocess.run(["ssh-keygen", "-qt", "ed25519", "-N", "", "-f", str(key)], check=True)
    inventory = changed(box, tmp_path, (r"identity: .*", f"identity: {key}"))
    ran = box.run("stop", box.name, *dry, inventory=inventory)
    assert "login refused" in one_clear_sentence(ran)
    assert "ssh-copy-id" in ran.people


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_unknown_host_key(box: Bed, tmp_path: Path, dry: tuple[str, ...]) -> None:
    empty = tmp_path / "known_hosts"
    empty.write_text("")
    inventory = changed(box, tmp_path, (r"known_hosts: .*", f"known_hosts: {empty}"))
    ran = box.run("stop", box.name, *dry, inventory=inventory)
    assert "host key" in one_clear_sentence(ran)
    assert "ssh" in ran.target["hint"]
    assert empty.read_text() == ""


def test_changed_host_key(box: Bed, tmp_path: Path) -> None:
    key = tmp_path / "host"
    subprocess.run(["ssh-keygen", "-qt", "ed25519", "-N", "", "-f", str(key)], check=True)
    kind, blob = (tmp_path / "host.pub").read_text().split()[:2]
    known = tmp_path / "known_hosts"
    known.write_text(f"[127.0.0.1]:{box.lab.state.port} {kind} {blob}\n")
    inventory = changed(box, tmp_path, (r"known_hosts: .*", f"known_hosts: {known}"))
    ran = box.run("stop", box.name, inventory=inventory)
    assert "changed" in one_clear_sentence(ran).lower()
    assert "ssh-keygen -R" in ran.target["hint"]


def test_pct_that_is_not_there(box: Bed, tmp_path: Path) -> None:
    box.start()
    inventory = changed(box, tmp_path, (r"pct: .*", "pct: /nonexistent/pct"))
    ran = box.run("stop", box.name, inventory=inventory)
    assert "/nonexistent/pct" in one_clear_sentence(ran)
    assert "inventory" in ran.target["hint"]


def test_a_lock_directory_that_is_a_link_is_refused(box: Bed, tmp_path: Path) -> None:
    job = box.start()
    place = Path(f"/run/lock/fleetstop.{box.vmid}")
    place.symlink_to(tmp_path)
    try:
        ran = box.run("stop", box.name)
    finally:
        place.unlink()
    assert "lock" in one_clear_sentence(ran)
    assert lives(job)
    assert list(tmp_path.iterdir()) == []


def test_checkpoints_that_cannot_be_listed_may_be_a_save(box: Bed) -> None:
    """What cannot be seen may be a save: the signal waits for the hold, then a lossless stop
    ends with the job's chance intact."""
    job = box.start()
    shutil.rmtree(box.checkpoints)
    os.mkfifo(box.checkpoints)
    playbook = box.lab.root / f"short-{box.vmid}.yaml"
    playbook.write_text(
        "lossless: true\nladder: [{signal: INT, to: trainers, wait: 5s}]\n"
        "hold: {saving: 9s, stopping: 2s}\n"
    )
    ran = box.run("stop", box.name, "-p", str(playbook))
    assert (ran.code, ran.target["result"]) == (1, "still_running"), ran.people
    assert ran.signals == []
    held = [each for each in ran.events if each["event"] == "holding"]
    assert "is not a directory" in held[0]["evidence"][0]
    assert lives(job)


def test_a_file_for_a_directory_of_checkpoints_is_told_before_anything_waits(box: Bed) -> None:
    job = box.start()
    shutil.rmtree(box.checkpoints)
    box.checkpoints.with_name("last.pt").write_text("weights")
    box.checkpoints.symlink_to("last.pt")
    said = "checkpoints: /workspace/checkpoints is a file there, and no directory"
    shown = box.run("status", box.name)
    assert shown.code == 0, shown.people
    assert f"{said}: name the directory that it lies in" in shown.target["findings"]
    ran = box.run("stop", box.name, "--force")
    assert (ran.code, ran.target["result"], ran.signals) == (4, "unreachable", []), ran.people
    assert said in ran.target["reason"]
    assert ran.target["hint"] == "name the directory in the inventory: checkpoints: /workspace"
    assert not [each for each in ran.events if each["event"] == "holding"]
    assert lives(job)
    # without a hold nothing would wait for it; what was saved stays unseen, and is not claimed
    ran = box.run("stop", box.name, "-p", "now", "--force")
    assert (ran.code, [name for name, _ in ran.signals]) == (0, ["KILL"]), ran.people
    assert any("could not be seen" in each for each in ran.target["findings"])


def test_a_save_that_cannot_be_seen_is_never_called_saved(box: Bed) -> None:
    box.start("--no-save")
    shutil.rmtree(box.checkpoints)
    box.checkpoints.write_text("not a directory")
    playbook = box.lab.root / f"nohold-{box.vmid}.yaml"
    playbook.write_text("ladder: [{signal: INT, to: trainers, wait: 5s}]\nhold: none\n")
    ran = box.run("stop", box.name, "-p", str(playbook))
    assert (ran.code, ran.target["result"]) == (6, "unclean"), ran.people
    assert ran.target["reason"].startswith("save_unseen")
