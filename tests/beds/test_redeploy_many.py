"""Many files, a large file, directories, packages: what is sent, and what is not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from . import versions
from .bed import Bed, Ran, lives
from .redeploying import (
    LAUNCH,
    Code,
    Inside,
    ask,
    log,
    redeploy,
    refused_untouched,
    stanza,
    stops_by_one_int,
    trainers,
)

pytestmark = [pytest.mark.bed, pytest.mark.timeout(300)]

MIB = 1 << 20


def staged(ran: Ran) -> dict[str, int]:
    (only,) = (each for each in ran.events if each["event"] == "staged")
    return {name: only[name] for name in ("files", "size", "same")}


def test_three_hundred_files_in_one_go_and_again(box: Bed, tmp_path: Path) -> None:
    job = box.start("--save-seconds", "0.2")
    inventory, code = stanza(box, tmp_path, LAUNCH), Code(box)
    where = versions.sources(tmp_path / "src")
    for number in range(299):
        file = where / f"configs/d{number % 7}/c{number}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"lr: {number}\n")
    words = (str(where / "train.py"), str(where / "configs"))
    ran = redeploy(box, *words, inventory=inventory)
    assert ran.code == 0, ran.people
    assert (staged(ran)["files"], staged(ran)["same"]) == (300, 0)
    assert not lives(job)
    landed = list(code.root.glob("configs/*/*.yaml"))
    assert len(landed) == 299
    assert (code.root / "configs/d3/c3.yaml").read_text() == "lr: 3\n"
    (pid,) = trainers(box)

    again = redeploy(box, *words, inventory=inventory)
    assert again.code == 0, again.people
    assert again.signals == []
    assert trainers(box) == [pid]
    assert "staged" not in again.names()

    (where / "configs/d3/c3.yaml").write_text("lr: 0.1\n")
    third = redeploy(box, *words, inventory=inventory)
    assert third.code == 0, third.people
    assert staged(third) == {"files": 300, "size": 8, "same": 299}
    assert (code.root / "configs/d3/c3.yaml").read_text() == "lr: 0.1\n"
    assert trainers(box) != [pid]
    stops_by_one_int(box, inventory)


def test_one_file_of_200_mb(box: Bed, tmp_path: Path) -> None:
    box.start("--save-seconds", "0.2")
    where = versions.sources(tmp_path / "src")
    block = os.urandom(MIB)
    with (where / "weights.bin").open("wb") as file:
        for number in range(200):
            file.write(number.to_bytes(8, "big") + block[8:])
    words = (str(where / "train.py"), str(where / "weights.bin"))
    inventory = stanza(box, tmp_path, LAUNCH)
    ran = redeploy(box, *words, inventory=inventory, deadline=240, pct=2)
    assert ran.code == 0, ran.people
    landed = Inside(box).at("/root/weights.bin")
    assert landed.stat().st_size == 200 * MIB
    assert landed.read_bytes() == (where / "weights.bin").read_bytes()
    assert "MiB/s" in ran.people
    told = [each for each in ran.events if each["event"] == "staging"]
    assert told
    assert all(each["size"] >= 200 * MIB for each in told)
    assert any(each["rate"] for each in told)
    again = redeploy(box, *words, inventory=inventory, deadline=240)
    assert again.signals == []


def test_a_directory_with_patterns(box: Bed, tmp_path: Path) -> None:
    job = box.start("--save-seconds", "0.2")
    code = Code(box)
    where = versions.sources(tmp_path / "src", model="x = 1\n")
    names = ("data/big.bin", "notes.md", "keep.md", "__pycache__/a.pyc", ".git/HEAD", "c/d.py")
    for name in (*names, ".env", "c/id_rsa", "c/prod.env"):
        file = where / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"# {name}\n")
    (where / ".fleetstopignore").write_text("*.md\n!keep.md\n")
    ignore = "\n        deploy: {ignore: [data/, '!prod.env']}"
    inventory = stanza(box, tmp_path, LAUNCH, ignore)
    missed = redeploy(box, f"{where}/", inventory=inventory)
    refused_untouched(missed, job, code, "src/train.py would land as /root/src/train.py")
    ran = redeploy(box, f"{where}/.", inventory=inventory)
    assert ran.code == 0, ran.people
    for name in ("train.py", "model.py", "keep.md", "c/d.py", "c/prod.env"):
        assert (code.root / name).is_file(), name
    for name in ("data", "notes.md", ".git", ".env", "c/id_rsa"):
        assert not (code.root / name).exists(), name
    assert not (code.root / "__pycache__/a.pyc").exists()
    (destined,) = (each for each in ran.events if each["event"] == "destined")
    assert "data/" in str(destined["left_out"])
    # what may hold secrets is told, and shown by nobody once it is sent
    assert "holds secrets (2): .env, c/id_rsa; one is sent if" in " ".join(ran.people.split())
    (where / ".env").write_text("MYPASS=hunter2\n")
    (where / "model.py").write_text("API_KEY = 'hunter2'\nx = 2\n")
    files = [str(where / name) for name in (".env", "model.py", "train.py")]
    shown = redeploy(box, *files, "--diff", inventory=inventory)
    assert shown.code == 0, shown.people
    assert "hunter2" not in shown.people + shown.stdout
    assert ".env: new, 15 bytes, mode 0644, holds secrets, not shown" in shown.people
    assert "+API_KEY = '***'" in shown.people


def test_a_job_that_is_a_module(box: Bed, tmp_path: Path) -> None:
    """`python -m pkg.train`: it lands where that is loaded from, siblings beside it."""
    inside = Inside(box)
    inside.run("mkdir", "-p", "/workspace/app/pkg")
    app = inside.at("/workspace/app")
    (app / "pkg/__init__.py").write_text("")
    (app / "pkg/train.py").write_text(versions.TRAINER.read_text())
    inside.run("ln", "-s", "app", "/workspace/current")
    job = box.start(
        "cd /workspace/current && setsid -f python3 -u -m pkg.train --save-seconds 0.2"
        " >/workspace/train.log 2>&1 </dev/null",
        how="raw", trainers=1, seconds=60,
    )  # fmt: skip
    text = stanza(box, tmp_path).read_text()
    inventory = tmp_path / "module.yaml"
    inventory.write_text(text.replace("{script: train.py}", "{module: pkg.train}"))
    src = tmp_path / "laptop/app/pkg"
    src.mkdir(parents=True)
    (src / "train.py").write_text(versions.GOOD)
    (src / "model.py").write_text("x = 2\n")
    words = (str(src / "train.py"), str(src / "model.py"))
    ran = redeploy(box, *words, inventory=inventory)
    assert ran.code == 0, ran.people
    assert not lives(job)
    assert (app / "pkg/train.py").read_text() == versions.GOOD
    assert (app / "pkg/model.py").read_text() == "x = 2\n"
    assert "version good" in log(box)
    # a directory that is sent whole: what is asked next finds what is kept
    (src / "train.py").write_text(versions.RESUMED)
    ran = redeploy(box, str(src), inventory=inventory)
    assert ran.code == 0, ran.people
    assert (app / "pkg/train.py").read_text() == versions.RESUMED
    ran = ask(box, "rollback", inventory=inventory)
    assert ran.code == 0, ran.people
    assert (app / "pkg/train.py").read_text() == versions.GOOD
    assert [each.parent for each in app.parent.rglob(".fleetstop")] == [app]
    stops_by_one_int(box, inventory)


def test_a_dry_run_and_a_diff_change_nothing(box: Bed, tmp_path: Path) -> None:
    job = box.start("--save-seconds", "0.2")
    code, inventory = Code(box), stanza(box, tmp_path, LAUNCH)
    where = versions.sources(tmp_path / "src", model="x = 1\n")
    words = (str(where / "train.py"), str(where / "model.py"))
    planned = redeploy(box, *words, "--dry-run", inventory=inventory)
    shown = redeploy(box, *words, "--diff", inventory=inventory)
    for ran in (planned, shown):
        assert ran.code == 0, ran.people
        assert ran.target["result"] == "planned"
        assert ran.signals == []
    assert lives(job)
    assert code.untouched()
    assert box.lock_files() == []
    assert [each["would"] for each in planned.target["plan"]][:1] == ["send"]
    assert 'version good")' in shown.people
    assert "+x = 1" in shown.people
    assert box.signals_seen(job) == 0


def test_what_was_changed_by_hand_runs_old_code_until_then(box: Bed, tmp_path: Path) -> None:
    """The very files lie there already, put by hand, and the process is older: it is restarted."""
    job = box.start("--save-seconds", "0.2")
    inventory = stanza(box, tmp_path, LAUNCH)
    where = versions.sources(tmp_path / "src")
    Inside(box).at("/root/train.py").write_text(versions.GOOD)
    ran = ask(box, "redeploy", str(where / "train.py"), inventory=inventory)
    assert ran.code == 0, ran.people
    assert not lives(job)
    assert staged(ran)["same"] == 1
    assert "version good" in log(box)
