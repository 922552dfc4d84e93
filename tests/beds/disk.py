"""A disk in a container that can be made to hang: a loop-mounted ext4 under fsfreeze(8)."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from .bed import Bed


@dataclass
class Disk:
    """Mounted at `path` in the container only."""

    init: int
    path: str
    frozen: bool = False

    def inside(self, *words: str) -> None:
        """In the container's mount namespace, with the host's rights."""
        subprocess.run(["nsenter", f"--mount=/proc/{self.init}/ns/mnt", *words], check=True)

    def freeze(self) -> None:
        self.inside("fsfreeze", "-f", self.path)
        self.frozen = True

    def thaw(self) -> None:
        if self.frozen:
            self.inside("fsfreeze", "-u", self.path)
        self.frozen = False


@contextlib.contextmanager
def disk(box: Bed, image: Path, path: str = "/workspace/slow") -> Iterator[Disk]:
    """Skips where loop devices or ext4 cannot be had (a failure where beds are required)."""
    with image.open("wb") as stream:
        stream.truncate(48 << 20)
    made = subprocess.run(
        ["mkfs.ext4", "-q", str(image)], capture_output=True, text=True, check=False
    )
    setup = ["losetup", "-f", "--show", str(image)]
    loop = subprocess.run(setup, capture_output=True, text=True, check=False)
    if made.returncode or loop.returncode:
        pytest.skip(f"no loop device with ext4 here: {made.stderr}{loop.stderr}")
    init = box.lab.containers[box.vmid].init_pid()
    assert init is not None
    here, device = Disk(init, path), loop.stdout.strip()
    try:
        number = device.removeprefix("/dev/loop")
        here.inside("mknod", f"/dev/loop{number}", "b", "7", number)
        here.inside("mkdir", "-p", path)
        here.inside("mount", f"/dev/loop{number}", path)
        yield here
    finally:
        here.thaw()
        subprocess.run(["losetup", "-d", device], check=False)
