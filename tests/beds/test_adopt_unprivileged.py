"""A job of an unprivileged container gets a name: its user and groups as the container counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetstop.lab.login import login

from .bed import Bed
from .test_adopt import adopt, bare, same_process

pytestmark = pytest.mark.bed

UNPRIVILEGED = True

SHIFT = 100_000


def start(box: Bed) -> str:
    home = box.lab.rootfs(box.vmid)
    for each in ("workspace", "var/gpu"):
        (home / each).chmod(0o1777)
    return (
        "cd /workspace && umask 027 && TAG=x setsid -f setpriv --reuid 34 --regid 34 --groups 4,44"
        " python3 -u /root/train.py >/workspace/train.log 2>&1 </dev/null"
    )


def test_its_own_root(box: Bed, tmp_path: Path) -> None:
    job = box.start(how="deaf")
    assert Path(f"/proc/{job.host_pid}").stat().st_uid == SHIFT
    inventory = bare(box, tmp_path)
    made = adopt(box, inventory, job.pid, "--yes")
    assert made.code == 0, made.people
    assert made.stanza["launch"]["user"] == "root"
    assert "no number in the container" not in made.notes
    same_process(box, inventory, job)


@pytest.mark.parametrize("root", [True, False])
def test_another_user_with_groups(box: Bed, tmp_path: Path, root: bool) -> None:
    job = box.start(start(box), how="raw", trainers=1, seconds=60)
    assert Path(f"/proc/{job.host_pid}").stat().st_uid == SHIFT + 34
    inventory = bare(box, tmp_path)
    with login() as who:
        if not root:
            who.allow(str(box.lab.pct), str(box.lab.nvidia_smi))
            inventory.write_text(inventory.read_text().replace("root@127", f"{who.name}@127"))
        made = adopt(box, inventory, job.pid, "--yes")
        assert made.code == 0, made.people
        assert made.stanza["launch"]["user"] == "backup"
        assert made.stanza["launch"]["env"]["TAG"] == "x"
        assert "groups 4, 44, umask 027" in made.notes
        assert "no number in the container" not in made.notes
        same_process(box, inventory, job)
