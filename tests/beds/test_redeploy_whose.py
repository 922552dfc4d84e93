"""Whose job it is stays so: another user's, a plain host's, one without a recipe, torchrun's."""

from __future__ import annotations

import os
import pwd
import signal
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetstop.lab import Started
from fleetstop.lab.login import Login, login

from . import versions
from .bed import Bed, Ran, lives, with_jobs
from .redeploying import (
    Code,
    Inside,
    argv,
    ask,
    environ,
    log,
    redeploy,
    stanza,
    stops_by_one_int,
    trainers,
)
from .test_above import four_ranks, needs_torch

pytestmark = [pytest.mark.bed, pytest.mark.timeout(300)]

BORN = (
    "cd /workspace && umask 027 && ulimit -Sn 512 && env -i PATH=/usr/bin:/bin TAG=old"
    " HF_TOKEN=hf_{secret} nice -n 5 setsid -f setpriv --reuid 34 --regid 34 --groups 4,44"
    " python3 -u /workspace/code/train.py --save-seconds 0.2"
    " >/workspace/train.log 2>&1 </dev/null"
)
SECRET = "Zk3" * 11


def of_another_user(box: Bed) -> tuple[Inside, Started]:
    inside, shift = Inside(box), box.lab.rootfs(box.vmid).stat().st_uid
    for top in ("/workspace", "/var/gpu"):
        inside.at(top).chmod(0o1777)
    code = inside.at("/workspace/code")
    code.mkdir()
    for name in ("train.py", "checkpoint_formats.py"):
        (code / name).write_text(inside.at(f"/root/{name}").read_text())
    (code / "train.py").chmod(0o640)
    for each in (code, *code.iterdir()):
        os.chown(each, shift + 34, shift + 44)
    job = box.start(BORN.format(secret=SECRET), how="raw", trainers=1, seconds=60)
    return inside, job


def born(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    wanted = ("Uid", "Gid", "Groups", "Umask")
    found = {each.split(":")[0]: " ".join(each.split()[1:]) for each in lines}
    limits = Path(f"/proc/{pid}/limits").read_text().splitlines()
    (files,) = (each for each in limits if each.startswith("Max open files"))
    nice = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[16]
    told = {name: found[name] for name in wanted}
    return told | {"files": " ".join(files.split()[3:5]), "nice": nice}


def as_it_was(box: Bed, tmp_path: Path) -> None:
    inside, job = of_another_user(box)
    was = born(job.process.pid)
    old = inside.at("/workspace/code/train.py").stat()
    inventory = stanza(box, tmp_path)
    where = versions.sources(tmp_path / "src", model="x = 1\n")
    words = (str(where / "train.py"), str(where / "model.py"))
    ran = redeploy(box, *words, inventory=inventory)
    assert ran.code == 0, ran.people
    assert not lives(job)
    (pid,) = trainers(box, "/workspace/code/train.py")
    assert born(pid) == was
    told = environ(pid)
    assert (told["TAG"], told["HF_TOKEN"]) == ("old", f"hf_{SECRET}")
    assert argv(pid)[-2:] == ["--save-seconds", "0.2"]
    new = inside.at("/workspace/code/train.py").stat()
    for name in ("st_uid", "st_gid"):
        assert getattr(new, name) == getattr(old, name)
    assert stat.S_IMODE(new.st_mode) == 0o640
    # a new file is the job's own too: it has to be able to read it
    added = inside.at("/workspace/code/model.py").stat()
    assert (added.st_uid, added.st_gid) == (old.st_uid, old.st_gid)
    base = inside.at("/workspace/code/.fleetstop")
    for each in base.rglob("*"):
        if each.is_file():
            assert SECRET not in each.read_text(errors="replace"), each
    assert SECRET not in ran.people + ran.stdout
    stops_by_one_int(box, inventory)


def test_a_job_of_another_user_stays_that_users(box: Bed, tmp_path: Path) -> None:
    as_it_was(box, tmp_path)


def test_a_rollback_gives_it_back_to_that_user(box: Bed, tmp_path: Path) -> None:
    inside, job = of_another_user(box)
    was = born(job.process.pid)
    file = inside.at("/workspace/code/train.py")
    old = file.stat()
    inventory = stanza(box, tmp_path)
    where = versions.sources(tmp_path / "src", versions.DIES)
    ran = redeploy(box, str(where / "train.py"), inventory=inventory)
    assert ran.code == 8, ran.people
    assert ran.target["result"] == "rolled_back"
    assert file.read_text() == versions.TRAINER.read_text()
    new = file.stat()
    assert (new.st_uid, new.st_gid, new.st_mode) == (old.st_uid, old.st_gid, old.st_mode)
    (pid,) = trainers(box, "/workspace/code/train.py")
    assert born(pid) == was
    stops_by_one_int(box, inventory)


def test_as_it_was_started_by_hand(box: Bed, tmp_path: Path) -> None:
    """No `launch:`: shown first, then the same words, directory and log."""
    job = box.start("--save-seconds", "0.2", "--size-mb", "1", how="polite")
    inventory = stanza(box, tmp_path)
    where = versions.sources(tmp_path / "src")
    ran = redeploy(box, str(where / "train.py"), inventory=inventory)
    assert ran.code == 0, ran.people
    assert not lives(job)
    (shown,) = (each for each in ran.events if each["event"] == "launch_shown")
    assert shown["adopted"] is True
    assert "/root/run.sh --save-seconds 0.2 --size-mb 1" in shown["command"]
    assert shown["log"] == "/workspace/train.log"
    (pid,) = trainers(box)
    assert argv(pid)[-4:] == ["--save-seconds", "0.2", "--size-mb", "1"]
    stops_by_one_int(box, inventory)


@needs_torch
def test_a_torchrun_job(box: Bed, tmp_path: Path) -> None:
    """What is started anew is torchrun, once; each rank hears INT; the log says they are up."""
    four_ranks(box)
    code = Code(box)
    text = (code.root / "ranks.py").read_text()
    jobs = """      train:
        match: {script: ranks.py}
        stop_signal: INT
        ranks: rank0_saves
        log: /workspace/train.log
        checkpoints: /workspace/checkpoints
"""
    inventory = with_jobs(box, tmp_path, jobs)
    before = box.run("status", box.name, inventory=inventory)
    old = {each["pid"] for each in before.target["family"] if each["role"] == "trainer"}
    where = tmp_path / "src"
    where.mkdir()
    (where / "ranks.py").write_text("print('version good', flush=True)\n" + text)
    ran = redeploy(box, str(where / "ranks.py"), "--graceful", inventory=inventory)
    assert ran.code == 0, ran.people
    new = {each["pid"] for each in ran.target["family"] if each["role"] == "trainer"}
    assert len(old) == len(new) == 4
    assert not old & new
    assert log(box).count("version good") == 4
    launchers = [each for each in ran.target["family"] if each["role"] == "launcher"]
    assert len(launchers) == 1
    stopped = ask(box, "stop", "--graceful", inventory=inventory)
    assert stopped.code == 0, stopped.people
    assert [signal for signal, _ in stopped.signals] == ["INT"]


@pytest.fixture
def plain(box: Bed) -> Iterator[tuple[Login, Path]]:
    """A login without root on the host, and its own directory."""
    with login() as who:
        where = box.lab.root / "plain"
        where.mkdir()
        file = where / f"train_{box.vmid}.py"
        file.write_text(PLAIN)
        for each in (where, file):
            os.chown(each, who.uid, pwd.getpwuid(who.uid).pw_gid)
        try:
            yield who, file
        finally:
            for pid in of_script(file):
                os.kill(pid, signal.SIGKILL)


def test_on_a_plain_host_as_an_ordinary_user(
    box: Bed, tmp_path: Path, plain: tuple[Login, Path]
) -> None:
    """No container and no root: the login's own job, its own files."""
    who, file = plain
    where = file.parent
    lines = box.lab.inventory.read_text().split("containers:")[0].rstrip()
    inventory = tmp_path / "fleet.yaml"
    inventory.write_text(
        f"{lines}\n    jobs:\n      train:\n        match: {{script: {file.name}}}\n"
        f"        stop_signal: INT\n        log: {where}/train.log\n"
        f"        checkpoints: {where}/out\n"
        f'        healthcheck: {{log_matches: "step", within: 20s}}\n'
        f"        launch: {{run: [/usr/bin/python3, -u, {file}], cwd: {where}}}\n"
    )
    inventory.write_text(inventory.read_text().replace("root@127", f"{who.name}@127"))

    def on_host(command: str, *words: str) -> Ran:
        ran = ask(box, command, *words, inventory=inventory, target="lab1:train", pct=0)
        assert ran.code == 0, ran.people
        return ran

    on_host("launch")
    (old,) = of_script(file)
    assert Path(f"/proc/{old}").stat().st_uid == who.uid
    src = tmp_path / "src"
    src.mkdir()
    (src / file.name).write_text(PLAIN.replace("step", "step of the new"))
    new = on_host("redeploy", str(src / file.name))
    assert [each for each, _ in new.signals] == ["INT"]
    assert (where / "out/last.pt").exists()
    (pid,) = of_script(file)
    assert pid != old
    assert Path(f"/proc/{pid}").stat().st_uid == who.uid
    assert file.stat().st_uid == who.uid
    assert "step of the new" in (where / "train.log").read_text()
    on_host("stop")
    assert of_script(file) == []


PLAIN = """\
import os, time, zipfile
print('step 1', flush=True)
try:
    time.sleep(600)
except KeyboardInterrupt:
    os.makedirs('out', exist_ok=True)
    with zipfile.ZipFile('out/last.pt.tmp', 'w') as file:
        file.writestr('archive/data.pkl', 'x')
        time.sleep(2)  # seen open: without root nothing else tells whose it is
        file.writestr('archive/version', '3')
    os.rename('out/last.pt.tmp', 'out/last.pt')
"""


def of_script(script: Path) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[-2:-1] == [str(script).encode()] and b"-u" in words:
            found.append(int(entry.name))
    return found
