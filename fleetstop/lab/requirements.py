"""What this machine must have before a practice fleet can stand on it."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path

from fleetstop.lab import cgroups
from fleetstop.lab.container import FIRST_ID, ID_COUNT

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


def missing_maps() -> list[str]:
    """What keeps this machine from unprivileged containers; only a lab that has some asks.

    Where shadow's newuidmap is installed, LXC (conf.c, lxc_map_ids) wants root to have been given
    the range; where it is not, root writes the map itself.
    """
    found = []
    if Path("/proc/sys/user/max_user_namespaces").read_text().strip() == "0":
        found.append("user namespaces are off: sysctl user.max_user_namespaces=10000")
    for program, name in (("newuidmap", "subuid"), ("newgidmap", "subgid")):
        if shutil.which(program, path=_SEARCHED) and not _is_given(Path("/etc", name)):
            line = f"root:{FIRST_ID}:{ID_COUNT}"
            found.append(f"root may not use its range of IDs: echo {line} >> /etc/{name}")
    return found


def _is_given(place: Path) -> bool:
    """Whether a line of subuid(5) gives root all of the range."""
    with suppress(OSError):
        for line in place.read_text().splitlines():
            owner, first, count, *_ = [*line.split(":"), "", ""]
            if owner in ("root", "0") and first.isdigit() and count.isdigit():
                start, end = int(first), int(first) + int(count)
                if start <= FIRST_ID and end >= FIRST_ID + ID_COUNT:
                    return True
    return False


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
