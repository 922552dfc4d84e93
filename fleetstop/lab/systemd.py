"""A practice container whose first process is systemd, with units of the test's own."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from pathlib import Path

from fleetstop.errors import LabUnavailable
from fleetstop.lab.container import Container, run_tool

SYSTEMD = Path("/lib/systemd/systemd")
# what systemd, PAM and the C library need; the machine's own units must not run in there
_ETC = (
    "passwd group nsswitch.conf pam.d ld.so.cache ld.so.conf hosts alternatives"
    " login.defs localtime"
).split()


def reboot_with_systemd(container: Container, units: Mapping[str, str], seconds: float) -> None:
    """Kill it and boot it anew with systemd and these units (name -> text) in an /etc of its
    own; returns when systemd says that it is up, without having started any of them."""
    if not SYSTEMD.exists():
        raise LabUnavailable(f"there is no {SYSTEMD} on this machine")
    if container.unprivileged:
        raise LabUnavailable("systemd is not played in an unprivileged container")
    container.kill()
    config = container.home / "config"
    text = config.read_text().replace("sys:ro", "sys:mixed cgroup:mixed")
    lines = [line for line in text.splitlines() if not line.startswith("lxc.mount.entry = /etc ")]
    lines = [f"lxc.init.cmd = {SYSTEMD}" if "init.cmd" in line else line for line in lines]
    config.write_text("\n".join(lines) + "\n")
    _fill(container.rootfs, units)
    container.start()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done = run_tool(container.attach(["systemctl", "is-system-running"]))
        if done.stdout.strip() in ("running", "degraded"):
            return
        time.sleep(0.3)
    raise LabUnavailable(f"systemd did not come up in container {container.vmid}")


def _fill(rootfs: Path, units: Mapping[str, str]) -> None:
    etc = rootfs / "etc"
    for name in _ETC:
        source = Path("/etc") / name
        if source.is_dir():
            shutil.copytree(source, etc / name, symlinks=True, dirs_exist_ok=True)
        elif source.exists():
            shutil.copy(source, etc / name)
    (etc / "machine-id").write_text("0" * 31 + "1\n")
    (rootfs / "var/log").mkdir(parents=True, exist_ok=True)
    if not (rootfs / "var/run").exists():
        (rootfs / "var/run").symlink_to("/run")
    place = etc / "systemd/system"
    place.mkdir(parents=True, exist_ok=True)
    for name, text in units.items():
        (place / name).write_text(text)
