"""The real accelerate, deepspeed and Lightning above trainers that save on INT.

Real are the launchers (PyPI, .ci/launchers) on Debian's torch; the ranks hold practice GPUs, and
what accelerate's --multi_gpu starts needs no real one. Each job has a container's name for itself.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from fleetstop.lab.processes import command_line

from .bed import Bed, Ran, running, until, words_of
from .test_above import by_name, jobs, root

ROOT = Path(__file__).parents[2]
BUILT = ROOT / "build/launchers"
MADE_OF = (".ci/launchers", "tests/beds/launchers.txt", "tests/beds/deepspeed.txt")

pytestmark = [
    pytest.mark.bed,
    pytest.mark.timeout(400),
    pytest.mark.skipif(
        not Path("/usr/lib/python3/dist-packages/torch/distributed/run.py").exists(),
        reason="python3-torch is not installed",
    ),
]

# PLACE SECONDS WHO: where it saves, how long, and whether all ranks do or the first alone
RANK = """\
import os, sys, time, zipfile

def save(rank):
    place, seconds, who = sys.argv[1:4]
    print("rank", rank, "heard it", flush=True)
    if who == "first" and rank:
        sys.exit(1)
    at = f"{place}/step_1/rank_{rank}.pt"
    os.makedirs(os.path.dirname(at), exist_ok=True)
    with zipfile.ZipFile(at + ".tmp", "w") as file:
        for part in range(20):
            file.writestr(str(part), b"x" * 100_000)
            time.sleep(float(seconds) / 20)
    os.rename(at + ".tmp", at)

if __name__ == "__main__":
    rank = int(os.environ.get("RANK") or os.environ.get("OMPI_COMM_WORLD_RANK") or 0)
    gpu = open(f"/dev/nvidia{rank}")
    try:
        os.write(1, b"up\\n")
        while True:
            time.sleep(0.2)
    except KeyboardInterrupt:
        save(rank)
"""
LIGHTNING = """\
import sys, time
import torch, pytorch_lightning
from rank import save

class Saves(pytorch_lightning.Callback):
    def on_exception(self, trainer, model, error):
        save(trainer.global_rank)

class Model(pytorch_lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)
    def _register_sharded_tensor_state_dict_hooks_if_available(self):
        pass  # torch 1.13 under Python 3.11 cannot import what it would register
    def on_train_start(self):
        self.gpu = open(f"/dev/nvidia{self.global_rank}")
        sys.stdout.write("up\\n")
        sys.stdout.flush()
    def training_step(self, batch, _):
        time.sleep(0.5)
        return self.layer(batch).sum()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

pytorch_lightning.Trainer(
    accelerator="cpu", devices=2, strategy="ddp", logger=False, enable_checkpointing=False,
    enable_progress_bar=False, enable_model_summary=False, callbacks=[Saves()],
).fit(Model(), torch.utils.data.DataLoader(torch.zeros(100_000, 2)))
"""
# torch 1.13 under Python 3.11 needs both redirections said: its enum has no zero
HERE = """\
export PATH=/opt/launchers/wheels/bin:/opt/launchers/built/bin:$PATH DS_ACCELERATOR=cpu
export PYTHONPATH=/opt/launchers/wheels:/opt/launchers/built PYTHONDONTWRITEBYTECODE=1
export PYTHONUNBUFFERED=1 PET_REDIRECTS=1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_plm=isolated OMPI_MCA_btl=self,vader OMPI_MCA_rmaps_base_oversubscribe=1
mkdir -p /dev/shm; cd /root
"""
ACCELERATE = "accelerate launch --num_machines 1 --mixed_precision no --dynamo_backend no"
# name -> its command line; {} is the script with its arguments, {port} one of its own
FORMS = {
    "many": f"{ACCELERATE} --multi_gpu --num_processes 2 --main_process_port {{port}} --tee 1"
    " --log_dir /workspace/tr {}",
    "one": f"{ACCELERATE} --cpu --num_processes 4 {{}}",
    "mpi": f"{ACCELERATE} --cpu --num_processes 2 --mpirun_hostfile hosts {{}}",
    "ds": "deepspeed --num_gpus 2 --no_local_rank --master_addr 127.0.0.1 --master_port {port} {}",
    "lit": "env MASTER_PORT={port} python3 -u {}",
}
RANKS = {"one": 1}

AGENT = "TERMs the other ranks as soon as one exits non-zero, and KILLs them 30 s later"
WAITS = "leaves when the one process it started does; a signal to it would leave the {} alone"
DEEPSPEED = "TERMs the other ranks one by one within a second of one that exits non-zero"
MPI = "ends all ranks when one exits non-zero"
LIT = "is the parent of other ranks; Lightning's KILLs them when it ends, and all of them, itself"
WILL = {
    "many": [AGENT],
    "one": [WAITS.format("trainer")],
    "mpi": [WAITS.format("trainer"), MPI],
    "ds": [WAITS.format("ranks"), DEEPSPEED],
    "lit": [LIT],
}


class Group:
    """Jobs of one container, each under a launcher, all up when this is made."""

    def __init__(self, box: Bed, names: tuple[str, ...], who: str, seconds: float) -> None:
        self.box, self.names = box, names
        home = root(box)
        place = home.parent / "opt/launchers"
        shutil.copytree(BUILT, place, copy_function=_link)
        (home / "hosts").write_text("localhost slots=2\n")
        (home / "rank.py").write_text(RANK)
        text = HERE
        for name in names:
            (home / f"{name}.py").write_text(LIGHTNING if name == "lit" else RANK)
            words = f"{name}.py /workspace/ck/{name} {seconds} {who}"
            line = FORMS[name].format(words, port=random.randrange(20_000, 32_000))
            text += f"setsid -f {line} >/workspace/{name}.log 2>&1 </dev/null\n"
        box.start(text, how="raw", trainers=0)
        until(lambda: all(self.log(n).count("up\n") >= RANKS.get(n, 2) for n in names), 150)

    def log(self, name: str) -> str:
        path = self.box.lab.rootfs(self.box.vmid) / f"workspace/{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def inventory(self, more: str = "") -> Path:
        text = "".join(
            f"      {name}: {{match: {{script: {name}.py}}, stop_signal: INT,"
            f" checkpoints: /workspace/ck/{name}{more}}}\n"
            for name in self.names
        )
        return jobs(self.box, text, "launchers")

    def run(self, *words: str, more: str = "") -> tuple[Ran, dict[str, dict[str, Any]]]:
        going = self.box.popen(*words, inventory=self.inventory(more))
        ran = self.box.finish(going, 150, alone=False)
        return ran, by_name(ran)

    def saved(self, name: str) -> list[str]:
        place = self.box.lab.rootfs(self.box.vmid) / f"workspace/ck/{name}"
        return sorted(each.name for each in place.rglob("*.pt") if self.box.whole(each))

    def ranks(self, name: str) -> list[int]:
        """Host PIDs of its trainers."""
        script = f"{name}.py".encode()
        return [
            pid
            for pid in running(self.box, f"{name}.py")
            if command_line(pid)[0].endswith("python3") and script in words_of(pid)[1:3]
        ]

    def launcher(self, *words: str) -> int:
        """The host PID of the launcher whose command line has all these words in it."""
        found = [
            pid
            for pid in running(self.box, words[0])
            if all(any(word in each for each in command_line(pid)) for word in words)
        ]
        assert len(found) == 1, found
        return found[0]


def _link(source: str, target: str) -> None:
    """A name more instead of 70 MB more, where both lie on one file system."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


@pytest.fixture(autouse=True)
def installed(bed: None) -> None:
    """Never a reason to skip: where torch is, `make test` has put them there."""
    wanted = "".join((ROOT / each).read_text() for each in MADE_OF).strip()
    stamp = BUILT / ".installed"
    if not stamp.exists() or stamp.read_text().strip() != wanted:
        pytest.fail(f"{BUILT} is missing or old: run .ci/launchers (make test does)")


def test_each_is_shown_with_what_it_does_and_all_ranks_save_in_one_burst(box: Bed) -> None:
    group = Group(box, tuple(FORMS), "all", 1)
    shown, found = group.run("status", box.name)
    for name in FORMS:
        above = found[name]["above"]
        assert [each["kind"] for each in above] == ["launcher"] * len(above) or name == "lit"
        assert len(above) == len(WILL[name]), shown.people
        for one, will in zip(above, WILL[name], strict=True):
            assert will in one["will"], name
        roles = sorted(each["role"] for each in found[name]["family"])
        below = ["trainer"] * RANKS.get(name, 2)
        assert roles == [*["launcher"] * (len(above) if name != "lit" else 0), *below], name
    ran, found = group.run("stop", box.name, "--all-jobs", "--graceful")
    told = {name: (found[name]["result"], found[name]["reason"]) for name in FORMS}
    assert told == dict.fromkeys(FORMS, ("stopped", None)), ran.people
    assert ran.code == 0
    for name in FORMS:
        ((signal_sent, pids),) = [(s["signal"], s["pids"]) for s in found[name]["signals"]]
        trainers = [m["pid"] for m in found[name]["family"] if m["role"] == "trainer"]
        assert (signal_sent, sorted(pids)) == ("INT", sorted(trainers)), name
        assert len(group.saved(name)) == RANKS.get(name, 2), name
        assert group.log(name).count("heard it") == RANKS.get(name, 2), name
    assert not running(box, "accelerate")
    assert not running(box, "deepspeed")


def test_only_rank_0_saves_and_nobody_has_said_so_comes_out_as_it_was_told(box: Bed) -> None:
    """Each launcher ends rank 0 in its save of 20 s, as the finding before the signal says."""
    names = ("many", "mpi", "ds", "lit")
    group = Group(box, names, "first", 20)
    # nobody will write what it would wait for
    book = box.lab.root / "soon.yaml"
    book.write_text("extends: graceful\nverify: {checkpoint: new, gpus: released, within: 2s}\n")
    ran, found = group.run("stop", box.name, "--all-jobs", "-p", str(book))
    for name in names:
        assert any("not promised" in each for each in found[name]["findings"]), ran.people
        assert (found[name]["result"], group.saved(name)) == ("unclean", []), ran.people
        assert len(found[name]["signals"]) == 1
    assert ran.code == 6
    assert "Forcefully terminating all other processes" in group.log("lit")


def test_rank0_saves_asks_who_hands_it_on_and_nobody_else(box: Bed) -> None:
    group = Group(box, ("many", "ds", "mpi"), "first", 4)
    agent = group.launcher("accelerate", "--multi_gpu")
    ran, found = group.run(
        "stop", box.name, "--all-jobs", "--graceful", more=", ranks: rank0_saves"
    )
    # through torch's agent: one signal, which every rank hears
    assert found["many"]["result"] == "stopped", ran.people
    (sent,) = [each for each in ran.events if each["event"] == "signal_sent"]
    assert (sent["signal"], sent["host_pids"]) == ("INT", [agent])
    assert group.saved("many") == ["rank_0.pt"]
    assert group.log("many").count("heard it") == 2
    # the others hand nothing on, so nothing is sent, and they train on
    for name, who in (("ds", "deepspeed"), ("mpi", "mpirun")):
        assert found[name]["result"] == "still_running", ran.people
        reasons = " ".join(each["reason"] for each in found[name]["skipped"])
        assert f"rank0_saves: {who} " in reasons, reasons
        assert "does not hand INT on" in reasons
        assert len(group.ranks(name)) == 2
    _by_hand(group)


def _by_hand(group: Group) -> None:
    """What is not done. The runner and accelerate die alone; what stands directly above the ranks
    ends rank 0 in its save."""
    for name, far, near in (
        ("ds", group.launcher("deepspeed", "--num_gpus"), group.launcher("deepspeed.launcher.l")),
        ("mpi", group.launcher("accelerate", "--mpirun"), group.launcher("mpirun", "--hostfile")),
    ):
        os.kill(far, signal.SIGINT)
        until(lambda far=far: not Path(f"/proc/{far}").exists(), 30)  # type: ignore[misc]
        time.sleep(0.5)
        assert len(group.ranks(name)) == 2, name
        assert "heard it" not in group.log(name)
        os.kill(near, signal.SIGINT)
        until(lambda name=name: not group.ranks(name), 60)  # type: ignore[misc]
        assert group.saved(name) == [], name
