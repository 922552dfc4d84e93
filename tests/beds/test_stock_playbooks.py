"""The stock playbooks for tmux and torchrun at work, and what they are there to avoid."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from .bed import Bed, running, until, with_job, words_of

pytestmark = pytest.mark.bed

TEE = "cd /root && python3 -u train.py --save-seconds 1 2>&1 | tee /workspace/train.log"


def inside(box: Bed, *words: str) -> str:
    done = box.lab.exec(box.vmid, list(words))
    assert done.returncode == 0, done.stderr
    return done.stdout


def claims(box: Bed) -> list[str]:
    """Trainers that train, `PID-START` as the container counts."""
    place = box.lab.rootfs(box.vmid) / "var/gpu"
    return [each.name for each in place.iterdir() if each.suffix != ".tmp"]


def trains(box: Bed) -> bool:
    """A trainer still stands in the container."""
    return any(word.endswith(b"train.py") for words in commands(box) for word in words)


def commands(box: Bed) -> list[list[bytes]]:
    return [words_of(pid) for pid in box.lab.host_pids(box.vmid)]


def in_a_pane(box: Bed, tmp_path: Path) -> Path:
    """A trainer behind `| tee`, typed into a tmux pane, and the inventory that finds it so."""
    inside(box, "tmux", "new-session", "-d", "-s", "work")
    inside(box, "tmux", "send-keys", "-t", "work", TEE, "Enter")
    until(lambda: claims(box))
    job = "match: {tmux: work}, stop_signal: INT, playbook: tmux"
    return with_job(box, tmp_path, f"{{{job}, checkpoints: /workspace/checkpoints}}")


@pytest.mark.skipif(not Path("/usr/bin/tmux").exists(), reason="needs tmux")
def test_in_a_tmux_pane_the_trainer_alone_is_signalled(box: Bed, tmp_path: Path) -> None:
    """In copy mode too, where typed keys would only leave that mode."""
    inventory = in_a_pane(box, tmp_path)
    inside(box, "tmux", "copy-mode", "-t", "work")
    ran = box.run("stop", box.name, inventory=inventory)
    assert ran.code == 0, ran.people
    assert [(name, len(pids)) for name, pids in ran.signals] == [("INT", 1)]
    assert len(box.saved()) == 1
    # the shell in the pane is nobody's to end
    assert inside(box, "tmux", "list-panes", "-t", "work", "-F", "#{pane_dead}").strip() == "0"


@pytest.mark.skipif(not Path("/usr/bin/tmux").exists(), reason="needs tmux")
def test_the_keys_it_does_not_type_would_lose_the_checkpoint(box: Bed, tmp_path: Path) -> None:
    in_a_pane(box, tmp_path)
    inside(box, "tmux", "send-keys", "-t", "work", "C-c")
    until(lambda: not trains(box))
    assert box.saved() == []


def under_torchrun(box: Bed, *more: str) -> int:
    """Two ranks under an agent; the agent's host PID. It is started with `&` by a shell that is
    not interactive: that agent and its ranks hear INT all the same, as it handles it itself."""
    # Debian's torch 1.13 on Python 3.11 fails without both of these; the trainer's ranks meet there
    options = "--redirects 1 --tee 1 --master_port 29555 --nproc_per_node 2"
    line = f"python3 -m torch.distributed.run {options} /root/train.py {' '.join(more)}"
    text = f"mkdir -p /tmp/ranks-29555; cd /root && exec {line} >/workspace/train.log 2>&1"
    inside(box, "bash", "-c", f"setsid sh -c '{text}' >/dev/null 2>&1 </dev/null &")
    until(lambda: len(claims(box)) == 2, 60)
    [agent] = running(box, "torch.distributed.run")
    return agent


@pytest.fixture(scope="module")
def torch() -> None:
    """Asked when it is needed: an import of torch takes seconds, also of a run without beds."""
    line = ["/usr/bin/python3", "-c", "import torch.distributed.run"]
    if subprocess.run(line, capture_output=True, check=False).returncode != 0:
        pytest.skip("needs python3-torch")


@pytest.mark.usefixtures("torch")
def test_under_torchrun_all_ranks_and_never_the_agent(box: Bed) -> None:
    agent = under_torchrun(box, "--save-seconds", "40")
    ran = box.run("stop", box.name, "-p", "torchrun", "--signal", "INT", deadline=110)
    assert ran.code == 0, ran.people
    [(name, pids)] = ran.signals
    assert (name, len(pids)) == ("INT", 2)
    roles = {each["host_pid"]: each["role"] for each in ran.target["family"]}
    assert roles[agent] == "launcher"
    assert len(box.saved()) == 2
    assert not Path(f"/proc/{agent}").exists()


@pytest.mark.usefixtures("torch")
def test_the_signal_to_the_agent_would_lose_a_long_save(box: Bed) -> None:
    """It hands the signal on, waits for 30 s, and kills: into a save that needs 40."""
    agent = under_torchrun(box, "--save-seconds", "40")
    os.kill(agent, signal.SIGINT)
    until(lambda: not trains(box), 120)
    assert box.saved() == []
    log = (box.lab.rootfs(box.vmid) / "workspace/train.log").read_text()
    assert "saving rank_0.pt.tmp" in log


def test_a_command_with_the_trainers_own_pid(box: Bed, tmp_path: Path) -> None:
    """`{pid}` is the number the command can use where it runs, in the container; vouched for, it
    needs no consent. Of several trainers none is `{pid}`: nothing is run."""
    playbook = tmp_path / "by-pid.yaml"
    rung = '{run: [sh, -c, "kill -INT $0", "{pid}"], wait: 20s, lossless: true}'
    playbook.write_text(f"lossless: true\nladder:\n  - {rung}\n")
    job = box.start("--save-seconds", "0.3")
    ran = box.run("stop", box.name, "-p", str(playbook), "--graceful")
    assert ran.code == 0, ran.people
    assert [(name, pids) for name, pids in ran.signals] == [("RUN", [job.pid])]
    assert (box.signals_seen(job), len(box.saved())) == (1, 1)
    both = box.start("--ranks", "2", "--save-seconds", "0.3")
    ran = box.run("stop", box.name, "-p", str(playbook), "--graceful")
    assert (ran.code, ran.signals) == (1, []), ran.people
    assert "{pid} cannot be filled in" in ran.target["skipped"][0]["reason"]
    assert box.signals_seen(both) == 0
