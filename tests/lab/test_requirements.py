from __future__ import annotations

from pathlib import Path

import pytest

from fleetstop.errors import LabUnavailable
from fleetstop.lab import Lab, cgroups, missing_parts, requirements


def test_missing_programs_name_their_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "_SEARCHED", "/nowhere")
    assert "lxc-start is not installed: apt-get install lxc" in missing_parts()
    assert "sshd is not installed: apt-get install openssh-server" in missing_parts()


def test_an_ordinary_user_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert any(part.startswith("root is needed") for part in missing_parts())
    with pytest.raises(LabUnavailable, match="root is needed"):
        Lab.up(tmp_path / "lab", 1)
    assert not (tmp_path / "lab").exists()


def test_a_proxmox_node_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "exists", lambda self: str(self) == "/etc/pve")
    assert any(part.startswith("/etc/pve exists") for part in missing_parts())


def test_without_control_groups_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "hierarchies", list)
    assert any("no control groups" in part for part in missing_parts())


@pytest.mark.parametrize(("field", "locked"), [("!", True), ("!$6$x", True), ("*", False)])
def test_a_locked_root_cannot_log_in(
    monkeypatch: pytest.MonkeyPatch, field: str, locked: bool
) -> None:
    monkeypatch.setattr(Path, "read_text", lambda _self: f"root:{field}:19000:0:::\n")
    assert requirements._root_is_locked() is locked
