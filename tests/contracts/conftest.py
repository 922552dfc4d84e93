"""One practice fleet for the contracts that need real sshd and real containers."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetstop.lab import Lab


@pytest.fixture(scope="session")
def lab(bed: None) -> Iterator[Lab]:
    root = Path(tempfile.mkdtemp(prefix="fsl-", dir="/tmp"))
    fleet = None
    try:
        fleet = Lab.up(root, 1, first_vmid=random.randrange(23_000, 900_000_000, 100))
        yield fleet
    finally:
        if fleet is not None:
            fleet.down()
        shutil.rmtree(root, ignore_errors=True)
