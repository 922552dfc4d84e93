"""A job started by hand gets a name: what is written reads back, and finds the same process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fleetstop.lab import Started
from fleetstop.lab.login import login

from .bed import Bed, lives, until
from .test_above import four_ranks, needs_torch
from .test_consent import Terminal

pytestmark = pytest.mark.bed

_OLD = """\
# ours
containers:   # by number
  other: {host: lab1, vmid: 100000001, tags: ['a', "b"]}
"""


@dataclass
class Adopted:
    code: int
    told: dict[str, Any]
    people: str
    text: str

    @property
    def stanza(self) -> dict[str, Any]:
        found = self.told["stanza"]
        assert isinstance(found, dict), self.people
        return found

    @property
    def notes(self) -> str:
        return "\n".join(self.told["notes"])


def bare(box: Bed, where: Path, more: str = _OLD) -> Path:
    """The lab's hosts, and none of its containers."""
    text = box.lab.inventory.read_text()
    path = where / "fleet.yaml"
    path.write_text(text[: text.index("containers:")] + more)
    return path


def adopt(
    box: Bed, inventory: Path, pid: int, *words: str, name: str = "train", target: str | None = None
) -> Adopted:
    aim = target or f"lab1/{box.vmid}"
    line = [sys.executable, "-m", "fleetstop", "adopt", aim, "--pid", str(pid), "--as", name]
    done = subprocess.run(
        [*line, "--json", "-i", str(inventory), *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    told = json.loads(done.stdout) if done.stdout else {}
    return Adopted(done.returncode, told, done.stderr, inventory.read_text())


def same_process(box: Bed, inventory: Path, job: Started, name: str = "train") -> dict[str, Any]:
    """`status` by the written file finds this very process, and nothing else trains."""
    ran = box.run("status", f"{box.name}:{name}", inventory=inventory)
    assert ran.code == 0, ran.people
    assert ran.target["result"] == "running", ran.people
    found = [(m["host_pid"], m["start"]) for m in ran.target["family"] if m["role"] == "trainer"]
    assert found == [(job.process.pid, job.process.start)], ran.people
    assert lives(job)
    return ran.target


def test_the_deaf_job_of_the_incident(box: Bed, tmp_path: Path) -> None:
    """`nohup run.sh &`; its PID is that of the shell, of the trainer, or of a data worker."""
    job = box.start(
        "--gpus", "0", "--checkpoints", "/workspace/out dir", "--save-seconds", "0.1",
        "--save-every", "2", how="deaf",
    )  # fmt: skip
    until(lambda: list((box.lab.rootfs(box.vmid) / "workspace/out dir").glob("*.pt")), 60)
    inventory = bare(box, tmp_path)
    before = inventory.read_text()
    shown = adopt(box, inventory, job.pid)
    assert shown.code == 5, shown.people
    assert shown.text == before
    assert "NOT written: nobody could be asked" in " ".join(shown.people.split())
    assert adopt(box, inventory, job.pid, "-n").code == 0
    made = adopt(box, inventory, job.pid - 1, "--yes", name=f"{box.name}:train")
    assert made.code == 0, made.people
    assert made.stanza == {
        "match": {"script": "train.py"},
        "log": "/workspace/train.log",
        "checkpoints": "/workspace/out dir",
        "gpus": [0],
        "launch": {
            "run": [
                "/bin/bash", "/root/run.sh", "--gpus", "0", "--checkpoints", "/workspace/out dir",
                "--save-seconds", "0.1", "--save-every", "2",
            ],
            "cwd": "/root",
            "user": "root",
        },
        "deploy": {"dest": "/root"},
    }  # fmt: skip
    assert "it hears neither INT nor TERM now" in made.notes
    assert made.text.startswith(before), "all that was there is there"
    found = same_process(box, inventory, job)
    assert found["verdict"] == "deaf"
    again = adopt(box, inventory, job.pid, "--yes", name="again", target=box.name)
    assert again.code == 5
    assert "is the inventory's job train already" in again.people


def test_as_another_user_with_all_that_a_process_is_born_with(box: Bed, tmp_path: Path) -> None:
    """Groups, umask, limits and nice are told; secrets are named, and nowhere to be read."""
    secret = "hf_" + "Zk3" * 11
    home = box.lab.rootfs(box.vmid)
    for each in ("workspace", "var/gpu"):
        (home / each).chmod(0o1777)
    text = (
        "cd /workspace && umask 027 && ulimit -Sn 512 && env -i PATH=/opt/conda/bin:/usr/bin:/bin"
        f" HF_TOKEN={secret} MY_PASSWORD=hunter2secret 'RUN_NAME=a b: c' EMPTY= SHLVL=3 OLDPWD=/x"
        " SSH_CONNECTION='1 2 3 4' USER=root HOME=/root LANG=C.UTF-8 OMP_NUM_THREADS=8"
        " nice -n 5 setsid -f setpriv --reuid 34 --regid 34 --groups 4,44"
        " python3 -u /root/train.py >/workspace/train.log 2>&1 </dev/null"
    )
    job = box.start(text, how="raw", trainers=1, seconds=60)
    inventory = bare(box, tmp_path)
    made = adopt(box, inventory, job.pid, "--yes")
    assert made.code == 0, made.people
    launch = made.stanza["launch"]
    assert launch["env"] == {
        "EMPTY": "",
        "HOME": "/root",
        "OMP_NUM_THREADS": "8",
        "PATH": "/opt/conda/bin:/usr/bin:/bin",
        "RUN_NAME": "a b: c",
        "USER": "root",
    }
    assert (launch["cwd"], launch["user"]) == ("/workspace", "backup")
    assert launch["run"] == ["python3", "-u", "/root/train.py"]
    assert made.told["secrets"] == ["HF_TOKEN", "MY_PASSWORD"]
    assert "umask 027, nice 5, limit NOFILE 512" in made.notes
    assert "groups 4, 44" in made.notes
    assert made.stanza["stop_signal"] == "INT"
    for said in (made.text, made.people, json.dumps(made.told)):
        assert secret not in said
        assert "hunter2secret" not in said
    same_process(box, inventory, job)


def test_behind_tee_its_file_is_the_log(box: Bed, tmp_path: Path) -> None:
    job = box.start("--gpus", "1", how="tee")
    inventory = bare(box, tmp_path)
    made = adopt(box, inventory, job.pid, "--yes")
    assert made.code == 0, made.people
    assert made.stanza["log"] == "/workspace/train.log"
    pipe = "python3 -u /root/train.py --gpus 1 2>&1 | tee /workspace/train.log"
    assert made.stanza["launch"]["run"] == ["bash", "-c", pipe]
    same_process(box, inventory, job)
    # by the stanza it is stopped as gently as any: one INT, heard, and it saves
    ran = box.run("stop", f"{box.name}:train", "--graceful", inventory=inventory)
    assert ran.code == 0, ran.people
    assert ran.signals == [("INT", [job.pid])]
    assert box.signals_seen(job) == 1
    assert len(box.saved()) == 1


@pytest.mark.skipif(shutil.which("supervisord") is None, reason="supervisor is not installed")
def test_what_a_supervisor_keeps_is_said_to_be_its_own(box: Bed, tmp_path: Path) -> None:
    (box.lab.rootfs(box.vmid) / "root/sv.conf").write_text(
        "[supervisord]\nnodaemon=true\nlogfile=/dev/null\nlogfile_maxbytes=0\npidfile=/tmp/sv.pid\n"
        "[program:train]\ncommand=/usr/bin/python3 -u /root/train.py\ndirectory=/workspace\n"
        'environment=MODE="fast"\nautorestart=true\nredirect_stderr=true\n'
        "stdout_logfile=/workspace/train.log\n"
    )
    text = "cd /root; setsid -f supervisord -n -c /root/sv.conf >/dev/null 2>&1 </dev/null"
    job = box.start(text, how="raw", trainers=1, seconds=60)
    inventory = bare(box, tmp_path)
    made = adopt(box, inventory, job.pid, "--yes")
    assert made.code == 0, made.people
    assert "train (autorestart=true) above it starts it again" in made.notes
    assert made.stanza["launch"]["env"] == {"MODE": "fast"}
    assert made.stanza["launch"]["cwd"] == "/workspace"
    assert "log: its output goes to a pipe, which is no file" in made.notes
    same_process(box, inventory, job)


def test_two_of_the_same_name_are_told_apart_by_their_path_or_not_at_all(
    box: Bed, tmp_path: Path
) -> None:
    home = box.lab.rootfs(box.vmid) / "workspace"
    shutil.copy(box.lab.rootfs(box.vmid) / "root/train.py", home / "train.py")
    one = box.start(how="polite")
    text = "cd /workspace; setsid -f python3 -u train.py --gpus 2 >/workspace/2.log 2>&1 </dev/null"
    two = box.start(text, how="raw", trainers=1, seconds=60, log="/workspace/2.log")
    inventory = bare(box, tmp_path)
    made = adopt(box, inventory, two.pid, "--yes", name="second")
    assert made.code == 0, made.people
    assert made.stanza["match"] == {"script": "/workspace/train.py"}
    assert made.stanza["deploy"] == {"dest": "/workspace"}
    same_process(box, inventory, two, "second")
    third = box.start(
        text.replace("2.log", "3.log").replace("--gpus 2", "--gpus 3"), how="raw", trainers=1,
        seconds=60, log="/workspace/3.log",
    )  # fmt: skip
    before = inventory.read_text()
    refused = adopt(box, inventory, third.pid, "--yes", name="third")
    assert refused.code == 5, refused.people
    assert refused.text == before
    assert "tells" in refused.people
    made = adopt(box, inventory, one.pid, "--yes", name="first")
    assert made.code == 0, made.people
    assert made.stanza["match"] == {"script": "/root/train.py"}
    same_process(box, inventory, one, "first")


@needs_torch
def test_a_rank_stands_for_its_launcher(box: Bed, tmp_path: Path) -> None:
    """The real torchrun: whatever rank is named, it is what started them that starts them anew."""
    four_ranks(box)
    shown = box.run("status", box.name, "--script", "ranks.py")
    ranks = [each for each in shown.target["family"] if each["role"] == "trainer"]
    inventory = bare(box, tmp_path)
    made = adopt(box, inventory, ranks[2]["pid"], "--yes")
    assert made.code == 0, made.people
    assert made.stanza["match"] == {"script": "ranks.py"}
    run = made.stanza["launch"]["run"]
    assert run[:4] == ["/usr/bin/python3", "-u", "-m", "torch.distributed.run"]
    assert run[-1] == "/root/ranks.py"
    assert made.stanza["log"] == "/workspace/train.log"
    assert made.stanza["gpus"] == [0, 1, 2, 3]
    assert "RANK" not in made.stanza["launch"].get("env", {})
    ran = box.run("status", f"{box.name}:train", inventory=inventory)
    found = {each["host_pid"] for each in ran.target["family"] if each["role"] == "trainer"}
    assert found == {each["host_pid"] for each in ranks}


def test_a_question_at_a_terminal(box: Bed, tmp_path: Path) -> None:
    job = box.start(how="polite")
    inventory = bare(box, tmp_path)
    before = inventory.read_text()
    words = ("adopt", f"lab1/{box.vmid}", "--pid", str(job.pid), "--as", "train")
    for answer, code in (("\n", 5), ("\x03", 130), ("\x04", 5), ("y\n", 0)):
        seen = Terminal(box, *words, inventory=inventory)
        seen.until("Write it? [y/N]")
        assert "match: {script: train.py}" in seen.text
        assert inventory.read_text() == before
        seen.type(answer)
        assert seen.end() == code, seen.text
        assert (inventory.read_text() == before) == (code != 0)
    same_process(box, inventory, job)


def test_without_root_on_the_host_it_is_read_in_the_container(box: Bed, tmp_path: Path) -> None:
    text = (
        "cd /root; TAG=x FLEETSTOP_MARK=old setsid -f python3 -u train.py"
        " >/workspace/train.log 2>&1 </dev/null"
    )
    job = box.start(text, how="raw", trainers=1, seconds=60)
    inventory = bare(box, tmp_path)
    with login() as who:
        who.allow(str(box.lab.pct), str(box.lab.nvidia_smi))
        inventory.write_text(inventory.read_text().replace("root@127", f"{who.name}@127"))
        made = adopt(box, inventory, job.pid, "--yes")
        assert made.code == 0, made.people
        launch = made.stanza["launch"]
        assert (launch["cwd"], launch["env"], launch["user"]) == ("/root", {"TAG": "x"}, "root")
        assert launch["run"] == ["python3", "-u", "train.py"]
        assert made.stanza["deploy"] == {"dest": "/root"}
        same_process(box, inventory, job)


def test_a_machine_itself_may_have_the_job(box: Bed, tmp_path: Path) -> None:
    """No container: its own users, its own numbers; the script is told by its path."""
    script = tmp_path / "adopted.py"
    script.write_text("import time\nprint('up', flush=True)\ntime.sleep(120)\n")
    log = tmp_path / "host.log"
    with log.open("ab") as file:
        job = subprocess.Popen(
            ["/usr/bin/python3", "-u", "adopted.py"], cwd=tmp_path, stdout=file,
            env={"PATH": "/usr/bin:/bin", "PWD": str(tmp_path), "TAG": "h"},
            start_new_session=True,
        )  # fmt: skip
    try:
        until(lambda: b"up" in log.read_bytes())
        inventory = bare(box, tmp_path)
        made = adopt(box, inventory, job.pid, "--yes", target="lab1")
        assert made.code == 0, made.people
        assert made.stanza["match"] == {"script": "adopted.py"}
        assert made.stanza["log"] == str(log)
        launch = made.stanza["launch"]
        assert (launch["cwd"], launch["env"]) == (str(tmp_path), {"TAG": "h"})
        assert made.stanza["deploy"] == {"dest": str(tmp_path)}
        ran = box.run("status", "lab1:train", inventory=inventory)
        assert [each["pid"] for each in ran.target["family"]] == [job.pid], ran.people
    finally:
        job.kill()
        job.wait()


def test_by_address_without_any_inventory(box: Bed, tmp_path: Path) -> None:
    """A file is made where one is looked for; the host comes with it. The lab's pct is not where
    an address looks for it, so nothing is asked in the container: it is told from the host."""
    job = box.start(how="polite")
    settings = tmp_path / "home/.ssh"
    settings.mkdir(parents=True)
    lab = box.lab.inventory.read_text()
    key, known, port = (
        next(line.split(": ")[1] for line in lab.splitlines() if f"{word}: " in line)
        for word in ("identity", "known_hosts", "port")
    )
    (settings / "config").write_text(
        f"Host 127.0.0.1\n  IdentityFile {key}\n  UserKnownHostsFile {known}\n"
    )
    env = {**os.environ, "HOME": str(tmp_path / "home"), "XDG_CONFIG_HOME": str(tmp_path / "none")}
    env.pop("FLEETSTOP_INVENTORY", None)
    address = f"ssh://root@127.0.0.1:{port}/{box.vmid}"
    line = [sys.executable, "-m", "fleetstop", "adopt", address, "--pid", str(job.pid)]
    done = subprocess.run(
        [*line, "--as", "ct9:train", "--yes"], cwd=tmp_path, env=env, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    text = (tmp_path / "inventory/fleet.yaml").read_text()
    assert text.startswith(f"hosts:\n  127.0.0.1:\n    ssh: root@127.0.0.1\n    port: {port}\n")
    assert f"  ct9:\n    host: 127.0.0.1\n    vmid: {box.vmid}\n    jobs:\n      train:\n" in text
