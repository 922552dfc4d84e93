"""A login without root on the practice host, while it is needed, and what sudo allows it."""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fleetstop.errors import LabUnavailable
from fleetstop.lab.container import run_tool

SUDOERS = Path("/etc/sudoers.d")
_SBIN = "/usr/sbin:/sbin"


@dataclass(frozen=True)
class Login:
    """A system user of a name that nobody else has; its sudoers file is named after it."""

    name: str

    @property
    def uid(self) -> int:
        return int(run_tool(["id", "-u", self.name]).stdout)

    def allow(self, *commands: str, found_in: Path | None = None) -> None:
        """What `sudo -n` runs for it as root, each as sudoers spells it; none: nothing at all.

        `found_in`: a directory that comes first in root's PATH then, as the lab's is at login.
        """
        place = SUDOERS / self.name
        place.unlink(missing_ok=True)
        if not commands:
            return
        if not shutil.which("visudo", path=_SBIN):
            raise LabUnavailable("sudo is not installed: apt-get install sudo")
        # sudo leaves out files whose name holds a dot: written whole before it counts
        draft = SUDOERS / f"{self.name}.new"
        path = f"{found_in}:{_SBIN}:/usr/bin:/bin" if found_in else ""
        lines = [f'Defaults:{self.name} secure_path="{path}"'] if found_in else []
        lines.append(f"{self.name} ALL=(root) NOPASSWD: {', '.join(commands)}")
        draft.write_text("\n".join(lines) + "\n")
        draft.chmod(0o440)
        done = run_tool(["visudo", "-cqf", str(draft)])
        if done.returncode != 0:
            draft.unlink()
            raise LabUnavailable(f"sudo does not take this: {done.stderr or done.stdout}")
        os.replace(draft, place)


@contextmanager
def login() -> Iterator[Login]:
    """A user that may do nothing yet; gone again afterwards, with all that was allowed to it."""
    if not shutil.which("useradd", path=_SBIN):
        raise LabUnavailable("useradd is not installed: apt-get install passwd")
    here = Login(f"fs{secrets.token_hex(4)}")
    # a password field of '!' would make sshd refuse it (sshd(8)); '*' is merely no password
    words = ["-M", "-N", "-d", "/nonexistent", "-s", "/bin/sh", "-p", "*", here.name]
    done = run_tool(["useradd", *words])
    if done.returncode != 0:
        raise LabUnavailable(f"no user can be added here: {done.stderr.strip()}")
    try:
        yield here
    finally:
        here.allow()
        _remove(here)


def _remove(here: Login, patience: float = 15.0) -> None:
    """userdel refuses as long as sshd has a process of this login."""
    deadline = time.monotonic() + patience
    while run_tool(["userdel", here.name]).returncode != 0:
        if time.monotonic() > deadline:
            raise LabUnavailable(f"the user {here.name} is left behind: userdel {here.name}")
        time.sleep(0.1)
