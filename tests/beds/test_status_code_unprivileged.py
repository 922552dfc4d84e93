"""What status says of a job's code in an unprivileged container, and without root on the host."""

from __future__ import annotations

from pathlib import Path

import pytest

from .bed import Bed, with_job
from .test_status_code import JOB, code, root, settle, status

pytestmark = pytest.mark.bed
UNPRIVILEGED = True


def test_its_files_are_read_from_the_host_below_its_own_root(box: Bed, tmp_path: Path) -> None:
    inventory = with_job(box, tmp_path, JOB)
    box.start()
    assert code(status(box, inventory))["old"] is False
    settle()
    with (root(box) / "train.py").open("a") as file:
        file.write("# better\n")
    ran = status(box, inventory)
    assert code(ran)["old"] is True
    assert ran.pct_calls == 0
