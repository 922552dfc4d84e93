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


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("root:100000:65536\n", True),
        ("someone:100000:65536\nroot:1:65536\n", False),
        ("0:65536:200000\n", True),
        ("root:100000:65535\n", False),
        ("root:100000\n\n", False),
    ],
)
def test_roots_share_of_ids(tmp_path: Path, text: str, given: bool) -> None:
    (tmp_path / "subuid").write_text(text)
    assert requirements._is_given(tmp_path / "subuid") is given


def test_where_shadow_hands_out_ids_root_must_have_its_share(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tool = tmp_path / "newuidmap"
    tool.touch(0o755)
    monkeypatch.setattr(requirements, "_SEARCHED", str(tmp_path))
    monkeypatch.setattr(requirements, "_is_given", lambda _place: False)
    told = "root may not use its range of IDs: echo root:100000:65536 >> /etc/subuid"
    assert requirements.missing_maps() == [told]
    tool.unlink()
    assert requirements.missing_maps() == []
