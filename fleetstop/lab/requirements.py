"""What this machine must have before a practice fleet can stand on it."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path

from fleetstop.lab import cgroups

_SEARCHED = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PACKAGES = {
    "lxc-start": "lxc",
    "lxc-attach": "lxc",
    "sshd": "openssh-server",
    "ssh-keygen": "openssh-client",
    "setsid": "util-linux",
    "bash": "bash",
    "pgrep": "procps",
}


def missing_parts() -> list[str]:
    """One plain sentence for each thing that is missing or in the way; empty: it can stand."""
    if not sys.platform.startswith("linux"):
        return [f"needs Linux, this is {sys.platform}"]
    return [*_missing_programs(), *_missing_rights(), *_in_the_way()]


def _missing_programs() -> list[str]:
    absent = [name for name in _PACKAGES if not shutil.which(name, path=_SEARCHED)]
    found = [f"{name} is not installed: apt-get install {_PACKAGES[name]}" for name in absent]
    if not Path("/usr/bin/python3").exists():
        # containers see this machine's /usr and nothing else of it
        found.append("/usr/bin/python3 is missing: apt-get install python3")
    return found


def _missing_rights() -> list[str]:
    found = []
    if os.geteuid() != 0:
        found.append("root is needed: containers, device nodes and sshd are made")
    if not cgroups.hierarchies():
        found.append("no control groups are mounted: mount -t cgroup2 none /sys/fs/cgroup")
    elif os.geteuid() == 0 and not any(os.access(top, os.W_OK) for top in cgroups.hierarchies()):
        found.append("control groups are mounted read-only: this is a confined container itself")
    return found


def _in_the_way() -> list[str]:
    found = []
    if Path("/etc/pve").exists():
        found.append("/etc/pve exists: this is a Proxmox node, and practice belongs elsewhere")
    if _root_is_locked():
        found.append("root's password is locked with '!', so sshd refuses it: usermod -p '*' root")
    return found


def _root_is_locked() -> bool:
    """Without PAM sshd refuses an account whose password field begins with '!', sshd(8)."""
    with suppress(OSError):
        for line in Path("/etc/shadow").read_text().splitlines():
            if line.startswith("root:"):
                return line.startswith("root:!")
    return False
