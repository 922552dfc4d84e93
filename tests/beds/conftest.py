"""One practice fleet for all bed tests; each test gets a container of its own."""

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

CONTAINERS = 100


@pytest.fixture(scope="session")
def lab(bed: None) -> Iterator[Lab]:
    root = Path(tempfile.mkdtemp(prefix="fsl-", dir="/tmp"))
    fleet = Lab.up(root, CONTAINERS, gpus=4, first_vmid=random.randrange(20_000, 900_000_000, 100))
    fleet.set_gpus(release_delay_s=0.3)
    try:
        yield fleet
    finally:
        fleet.down()
        shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="session")
def _vmids(lab: Lab) -> list[int]:
    return list(lab.vmids)


@pytest.fixture
def box(lab: Lab, _vmids: list[int]) -> Iterator[Bed]:
    """A fresh container; nothing of ours may be left on the host when the test ends."""
    here = Bed(lab, _vmids.pop())
    yield here
    deadline = time.monotonic() + 3.0
    while here.litter() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert here.litter() == []
    lab.stop(here.vmid)
    shutil.rmtree(f"/run/lock/fleetstop.{here.vmid}", ignore_errors=True)
