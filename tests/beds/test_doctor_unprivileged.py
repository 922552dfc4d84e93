"""Doctor on unprivileged containers, and for a login that is not root."""

from __future__ import annotations

import pytest

from .bed import Bed, lives
from .test_doctor import doctor

pytestmark = pytest.mark.bed

UNPRIVILEGED = True


def test_all_is_well(box: Bed) -> None:
    job = box.start("--save-every", "1", "--save-seconds", "0.2")
    told = doctor(box)
    assert (told.code, told.wrong(), told.unseen()) == (0, set(), set()), told.people
    assert (told.connections, told.pct_calls) == (1, 1)
    assert lives(job)


def test_a_directory_of_the_hosts_root_is_named_before_a_save_is_lost_to_it(box: Bed) -> None:
    """The classic slip: the host's root made the directory, and inside it is nobody's."""
    box.checkpoints.mkdir(mode=0o755)
    job = box.start("--save-seconds", "0.2")
    told = doctor(box)
    assert told.wrong() == {(":train", "checkpoints")}, told.people
    check = told.checks[":train", "checkpoints"]
    assert "root cannot write in /workspace/checkpoints" in check["says"]
    assert check["fix"].startswith("chown 100000:100000")
    assert lives(job)
