"""What cannot be put there, or fails its proof: 7, the old run untouched, nothing left lying."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fleetstop.lab import Started

from . import versions
from .bed import Bed, lives, until
from .redeploying import (
    LAUNCH,
    Code,
    Inside,
    redeploy,
    refused_untouched,
    stanza,
)

pytestmark = [pytest.mark.bed, pytest.mark.timeout(300)]

MIB = 1 << 20


def place(box: Bed, path: str, options: str) -> Inside:
    """The job's code on a file system of its own."""
    inside = Inside(box)
    inside.tmpfs(path, options)
    inside.run("cp", "-p", "/root/train.py", "/root/checkpoint_formats.py", path)
    return inside


def start(box: Bed, path: str) -> tuple[Code, Started]:
    job = box.start(
        f"cd {path} && setsid -f python3 -u train.py >/workspace/train.log 2>&1 </dev/null",
        how="raw", trainers=1, seconds=60,
    )  # fmt: skip
    return Code(box, path), job


def test_a_disk_that_is_too_full(box: Bed, tmp_path: Path) -> None:
    place(box, "/code", "size=4m")
    code, job = start(box, "/code")
    where = versions.sources(tmp_path / "src")
    (where / "weights.bin").write_bytes(os.urandom(6 * MIB))
    files = [str(where / name) for name in ("train.py", "weights.bin")]
    ran = redeploy(box, *files, inventory=stanza(box, tmp_path))
    refused_untouched(ran, job, code, "/code is too full")


def test_a_disk_that_fills_up_meanwhile(box: Bed, tmp_path: Path) -> None:
    """A truncated copy: room enough when asked, and none when the bytes come."""
    inside = place(box, "/code", "size=140m")
    code, job = start(box, "/code")
    where = versions.sources(tmp_path / "src")
    (where / "weights.bin").write_bytes(os.urandom(60 * MIB))
    files = [str(where / name) for name in ("train.py", "weights.bin")]
    child = box.popen("redeploy", box.name, *files, inventory=stanza(box, tmp_path))
    stage = inside.at("/code/.fleetstop")
    until(lambda: list(stage.glob("*/stage-*/files/weights.bin")))
    full = inside.at("/code/other")
    with full.open("wb") as other:  # another program of that machine
        try:
            while other.write(b"x" * MIB):
                other.flush()
        except OSError:
            pass
    ran = box.finish(child, pct=3)
    full.unlink()
    refused_untouched(ran, job, code, "weights.bin")


def test_a_swap_for_which_there_is_no_room(box: Bed, tmp_path: Path) -> None:
    """It fits once, as the stage, and not twice, beside its destination: told before the stop."""
    place(box, "/code", "size=16m")
    code, job = start(box, "/code")
    where = versions.sources(tmp_path / "src")
    (where / "weights.bin").write_bytes(os.urandom(9 * MIB))
    files = [str(where / name) for name in ("train.py", "weights.bin")]
    ran = redeploy(box, *files, inventory=stanza(box, tmp_path))
    refused_untouched(ran, job, code, "full")


def test_a_disk_that_is_read_only(box: Bed, tmp_path: Path) -> None:
    inside = place(box, "/code", "size=8m")
    inside.run("mount", "-o", "remount,ro", "/code")
    code, job = start(box, "/code")
    where = versions.sources(tmp_path / "src")
    ran = redeploy(box, str(where / "train.py"), inventory=stanza(box, tmp_path))
    refused_untouched(ran, job, code, "mounted read-only")


def test_a_destination_that_is_missing(box: Bed, tmp_path: Path) -> None:
    job, code = box.start(), Code(box)
    where = versions.sources(tmp_path / "src")
    words = (str(where / "train.py"), "--to", "/nowhere/code")
    ran = redeploy(box, *words, inventory=stanza(box, tmp_path))
    refused_untouched(ran, job, code, "/nowhere/code")
    inventory = stanza(box, tmp_path, "\n        deploy: {dest: /srv/code}")
    again = redeploy(box, str(where / "train.py"), inventory=inventory)
    refused_untouched(again, job, code, "/srv/code", "/root/train.py")


def test_a_destination_that_is_not_where_it_runs(box: Bed, tmp_path: Path) -> None:
    Inside(box).run("mkdir", "-p", "/srv/code")
    job, code = box.start(), Code(box)
    inventory = stanza(box, tmp_path, "\n        deploy: {dest: /srv/code}")
    where = versions.sources(tmp_path / "src")
    ran = redeploy(box, str(where / "train.py"), inventory=inventory)
    refused_untouched(ran, job, code, "/srv/code", "/root/train.py")
    assert not Inside(box).at("/srv/code/train.py").exists()


@pytest.mark.parametrize("what", ["import", "prove"])
def test_a_proof_of_ones_own(box: Bed, tmp_path: Path, what: str) -> None:
    """`prove:` runs in the staged directory: a module that cannot be imported is seen there."""
    job, code = box.start(), Code(box)
    command = '"$FLEETSTOP_PYTHON" -c "import model"' if what == "import" else "exit 3"
    inventory = stanza(box, tmp_path, LAUNCH, f"\n        deploy: {{prove: '{command}'}}")
    where = versions.sources(tmp_path / "src", model="import no_such_module\n")
    files = [str(where / name) for name in ("train.py", "model.py")]
    ran = redeploy(box, *files, inventory=inventory, pct=2)
    refused_untouched(ran, job, code, "no_such_module" if what == "import" else "status 3")


def test_an_interpreter_of_the_jobs_own_decides(box: Bed, tmp_path: Path) -> None:
    """Another Python than the system's: what runs is asked, not what is usual."""
    inside = Inside(box)
    inside.run("mkdir", "-p", "/opt/venv/bin")
    inside.run("sh", "-c", "printf '#!/bin/sh\\nexec /usr/bin/python3 \"$@\"\\n' >/opt/venv/bin/py")
    inside.run("ln", "-s", "/usr/bin/python3", "/opt/venv/bin/python3")
    job = box.start(
        "cd /root && setsid -f /opt/venv/bin/python3 -u train.py >/workspace/train.log 2>&1"
        " </dev/null",
        how="raw", trainers=1, seconds=60,
    )  # fmt: skip
    code = Code(box)
    where = versions.sources(tmp_path / "src", versions.NEWER)
    ran = redeploy(box, str(where / "train.py"), inventory=stanza(box, tmp_path))
    refused_untouched(ran, job, code, "/opt/venv/bin/python3 (3.11")
    assert lives(job)
