"""New files into an unprivileged container, where root is nobody to what the host has given it."""

from __future__ import annotations

import os
import stat

import pytest

from fleetstop.actions.staging import unstage

from .bed import Bed
from .test_staging import Deploy, Mounts, by_stream, fails, host_litter, play

__all__ = ["by_stream"]

pytestmark = pytest.mark.bed
UNPRIVILEGED = True
SHIFT = 100_000


@pytest.mark.parametrize("way", ["tar", "push", "question"])
def test_files_are_roots_in_there_with_their_modes(box: Bed, way: str) -> None:
    if way == "push":
        Mounts(box).over_tar("/dev/null")

    async def story(deploy: Deploy) -> None:
        deploy.payload.add("pkg/é.py", b"x = 1\n", 0o640)
        deploy.payload.add("run-it.sh", b"#!/bin/sh\n", 0o755)
        deploy.payload.large("w.bin", 1 if way == "question" else 12)
        done = await deploy.stage(prove='"$FLEETSTOP_PYTHON" -c pass')
        deploy.whole(done)
        into = box.lab.rootfs(box.vmid) / "root/.fleetstop/train/stage-7f3a/files"
        found = (into / "run-it.sh").stat()
        assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (SHIFT, 0o755)
        assert host_litter(box) == []
        assert await unstage(deploy.scope, deploy.wish) == ""

    play(box, story)


def test_a_directory_of_the_host_whose_owner_has_no_number_there_is_refused(box: Bed) -> None:
    """A bind mount that nobody has chowned to the container's range."""
    place = box.lab.rootfs(box.vmid) / "workspace/given"
    place.mkdir()
    os.chown(place, 1000, 1000)

    async def story(deploy: Deploy) -> None:
        deploy.payload.add("train.py", b"x = 1\n")
        error = await fails(deploy, "/workspace/given belongs to somebody who has no number")
        assert "shows as 65534" in error.hint
        assert "100000" in error.hint
        os.chown(place, SHIFT, SHIFT)
        deploy.whole(await deploy.stage())

    play(box, story, "/workspace/given")


def test_nor_is_a_file_replaced_whose_owner_could_not_be_kept(box: Bed) -> None:
    old = box.lab.rootfs(box.vmid) / "root/config.py"
    old.write_text("x = 0\n")
    os.chown(old, 1000, 1000)

    async def story(deploy: Deploy) -> None:
        deploy.payload.add("config.py", b"x = 1\n")
        await fails(deploy, "the owner of /root/config.py has no number")
        os.chown(old, SHIFT + 1234, SHIFT + 1234)
        (placed,) = (await deploy.stage()).files
        assert (placed.there.uid, placed.there.unmapped) == (1234, False)

    play(box, story)
