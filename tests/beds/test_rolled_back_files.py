"""A rollback goes back by one redeploy, whichever files that was about: never to a mixture."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import versions
from .bed import Bed, with_job
from .redeploying import JOB, Code, redeploy

pytestmark = pytest.mark.bed


def test_after_a_redeploy_of_another_file_only_that_one_goes_back(box: Bed, tmp_path: Path) -> None:
    code, inventory = Code(box), with_job(box, tmp_path, JOB)
    (code.root / "model.py").write_text("V = 0\n")
    box.start("--save-seconds", "0.2")
    where = versions.sources(tmp_path / "src", model="V = 1\n")
    for name in ("train.py", "model.py"):
        ran = redeploy(box, str(where / name), inventory=inventory)
        assert ran.code == 0, ran.people
    assert (code.root / "model.py").read_text() == "V = 1\n"
    back = box.run("rollback", box.name, inventory=inventory, deadline=120.0, pct=6)
    assert back.code == 0, back.people
    assert (code.root / "model.py").read_text() == "V = 0\n"
    assert code.train == versions.GOOD
