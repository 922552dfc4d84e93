"""A practice fleet for each file of bed tests; each test gets a container of its own."""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetstop.lab import Lab

from .bed import Bed


@pytest.fixture(scope="module")
def lab(bed: None, request: pytest.FixtureRequest) -> Iterator[Lab]:
    """As many containers as this file's tests use up; unprivileged where it says UNPRIVILEGED."""
    own = [item for item in request.session.items if item.nodeid.startswith(request.node.nodeid)]
    wanted = sum("box" in getattr(item, "fixturenames", ()) for item in own)
    root = Path(tempfile.mkdtemp(prefix="fsl-", dir="/tmp"))
    first = random.randrange(20_000, 900_000_000, 100)
    shifted = bool(getattr(request.module, "UNPRIVILEGED", False))
    count = max(1, wanted)
    fleet = Lab.up(root, count, gpus=4, first_vmid=first, unprivileged=shifted)
    fleet.set_gpus(release_delay_s=0.3)
    try:
        yield fleet
    finally:
        fleet.down()
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="module")
def _vmids(lab: Lab) -> list[int]:
    return list(lab.vmids)


@pytest.fixture
def box(lab: Lab, _vmids: list[int]) -> Iterator[Bed]:
    """A fresh container; nothing of ours may be left on the host when the test ends."""
    here = Bed(lab, _vmids.pop())
    yield here
    deadline = time.monotonic() + 15.0
    while here.litter() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert here.litter() == []
    lab.stop(here.vmid)
    shutil.rmtree(f"/run/lock/fleetstop.{here.vmid}", ignore_errors=True)
