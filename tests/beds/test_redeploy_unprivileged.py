"""Redeploying in an unprivileged container: what is its own there stays so, root is not ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import versions
from .bed import Bed, lives
from .redeploying import Code, Inside, redeploy, refused_untouched, stanza, stops_by_one_int
from .test_redeploy_whose import as_it_was

pytestmark = [pytest.mark.bed, pytest.mark.timeout(300)]

UNPRIVILEGED = True
SHIFT = 100_000


def test_its_own_root(box: Bed, tmp_path: Path) -> None:
    job = box.start("--save-seconds", "0.2")
    inventory = stanza(box, tmp_path)
    where = versions.sources(tmp_path / "src", model="x = 1\n")
    words = (str(where / "train.py"), str(where / "model.py"))
    ran = redeploy(box, *words, inventory=inventory)
    assert ran.code == 0, ran.people
    assert not lives(job)
    root = Inside(box).at("/root")
    for name in ("train.py", "model.py", ".fleetstop/train/activate.py"):
        assert (root / name).stat().st_uid == SHIFT, name
    stops_by_one_int(box, inventory)


def test_another_user_of_it(box: Bed, tmp_path: Path) -> None:
    as_it_was(box, tmp_path)


def test_unwell_there_comes_back(box: Bed, tmp_path: Path) -> None:
    box.start("--save-seconds", "0.2")
    code, inventory = Code(box), stanza(box, tmp_path)
    where = versions.sources(tmp_path / "src", versions.DIES)
    ran = redeploy(box, str(where / "train.py"), inventory=inventory)
    assert ran.code == 8, ran.people
    assert ran.target["result"] == "rolled_back"
    assert code.train == versions.TRAINER.read_text()
    assert (code.root / "train.py").stat().st_uid == SHIFT
    stops_by_one_int(box, inventory)


def test_files_of_an_owner_that_has_no_number_there(box: Bed, tmp_path: Path) -> None:
    """Root of the host: the container can neither write nor give it back. Before the stop."""
    import os

    inside = Inside(box)
    place = inside.at("/workspace/code")
    place.mkdir()
    for name in ("train.py", "checkpoint_formats.py"):
        (place / name).write_text(inside.at(f"/root/{name}").read_text())
        (place / name).chmod(0o644)
    place.chmod(0o755)
    for each in (place, *place.iterdir()):
        os.chown(each, 0, 0)
    job = box.start(
        "cd /workspace/code && setsid -f python3 -u train.py >/workspace/train.log 2>&1"
        " </dev/null",
        how="raw", trainers=1, seconds=60,
    )  # fmt: skip
    code, inventory = Code(box, "/workspace/code"), stanza(box, tmp_path)
    where = versions.sources(tmp_path / "src")
    ran = redeploy(box, str(where / "train.py"), inventory=inventory)
    refused_untouched(ran, job, code, "/workspace/code")
