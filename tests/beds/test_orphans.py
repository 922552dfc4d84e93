"""Whom a trainer leaves behind, by how it made its workers and by what ended it.

Eight kinds of workers, each in three containers: the trainer gets KILL, TERM without a handler, or
INT. Facts: the table of orphans that was measured before. A signal that is fatal to the trainer
runs no clean-up of multiprocessing; a trainer that hears INT saves, leaves, and takes them along.
"""

from __future__ import annotations

import random
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetstop.lab import Lab

from .bed import Bed, Ran, alive, running, until

pytestmark = [pytest.mark.bed, pytest.mark.timeout(600)]

WORK = """\
import multiprocessing, os, signal, sys, time, zipfile
from concurrent.futures import ProcessPoolExecutor


def load(watched):
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a DataLoader's worker
    while not watched or os.getppid() == watched:
        time.sleep(5 if watched else 600)


def processes(method, watched=0):
    context = multiprocessing.get_context(method)
    made = [context.Process(target=load, args=(watched,), daemon=True) for _ in range(2)]
    for each in made:
        each.start()
    return made


def executor():
    made = ProcessPoolExecutor(2)
    list(made.map(time.sleep, [0.5, 0.5]))
    return made


KINDS = {
    "fork": lambda: processes("fork"),
    "spawn": lambda: processes("spawn"),
    "forkserver": lambda: processes("forkserver"),
    "executor": executor,
    "manager": multiprocessing.Manager,
    "pool": lambda: multiprocessing.Pool(2),
    "idle loader": lambda: processes("fork", os.getpid()),
    "stuck loader": lambda: processes("fork"),
}

if __name__ == "__main__":
    gpu = os.open(f"/dev/nvidia{sys.argv[2]}", os.O_RDWR)  # its forks hold it too
    try:
        made = KINDS[sys.argv[1]]()
        time.sleep(1)  # those that are spawned have come to their work
        print("up", flush=True)
        time.sleep(600)
    except KeyboardInterrupt:
        print("KeyboardInterrupt", flush=True)
        os.makedirs("/workspace/checkpoints", exist_ok=True)
        with zipfile.ZipFile("/workspace/checkpoints/step_1.pt", "w") as stream:
            stream.writestr("0", b"x" * 1000)
"""
# kind -> how many live on when the trainer ended without its clean-up
LEFT = {
    "fork": 2,
    "spawn": 3,  # and the resource tracker
    "forkserver": 4,  # and the fork server
    "executor": 2,
    "manager": 1,
    "pool": 0,  # they read the end of their pipe
    "idle loader": 0,  # they look for their parent every 5 s
    "stuck loader": 2,
}
ENDS = {
    "KILL": ("--force", "--ladder", "KILL:trainers/2"),
    "TERM": ("--force", "--ladder", "TERM/2"),
    "SWEEP": ("--force", "--ladder", "TERM/2 KILL:tree/10"),
    "INT": ("--force", "--ladder", "INT/10 KILL:tree/10"),
}
ROWS = [(kind, end) for end in ENDS for kind, left in LEFT.items() if end != "SWEEP" or left > 1]


@pytest.fixture
def fleet(bed: None) -> Iterator[Lab]:
    """A container for each kind and end."""
    root = Path(tempfile.mkdtemp(prefix="fso-", dir="/tmp"))
    first = random.randrange(20_000, 900_000_000, 100)
    with Lab.up(root, len(ROWS), gpus=len(ROWS), first_vmid=first) as made:
        yield made
    for vmid in made.vmids:
        shutil.rmtree(f"/run/lock/fleetstop.{vmid}", ignore_errors=True)


def started(fleet: Lab) -> dict[tuple[str, str], Bed]:
    """Kind and end -> a container in which such a trainer works."""
    boxes = {row: Bed(fleet, vmid) for row, vmid in zip(ROWS, fleet.vmids, strict=True)}
    for gpu, ((kind, _), box) in enumerate(boxes.items()):
        (box.lab.rootfs(box.vmid) / "root/train.py").write_text(WORK)
        line = f"python3 -u /root/train.py '{kind}' {gpu} >/workspace/train.log 2>&1"
        text = f"mkdir -p /dev/shm; exec setsid -f {line} </dev/null"
        box.start(text, how="raw", trainers=0)
    for box in boxes.values():
        until(lambda box=box: "up" in box.log(box.started[0]).split())  # type: ignore[misc]
    return boxes


def names(boxes: dict[tuple[str, str], Bed], end: str) -> list[str]:
    return [box.name for (_, other), box in boxes.items() if other == end]


def described(boxes: dict[tuple[str, str], Bed], tmp_path: Path) -> Path:
    """An inventory in which each has a GPU of its own."""
    text, number = next(iter(boxes.values())).lab.inventory.read_text(), iter(range(len(boxes)))
    path = tmp_path / "fleet.yaml"
    path.write_text(re.sub(r"gpus: \[0\]", lambda _: f"gpus: [{next(number)}]", text))
    return path


def told(ran: Ran) -> dict[str, dict[str, Any]]:
    return {each["target"].split(":")[0]: each for each in ran.report["targets"]}


def living(target: dict[str, Any]) -> list[int]:
    """The container's PIDs of members that live, whatever is said of them."""
    return [each["pid"] for each in target["family"] if alive(each["host_pid"], each["start"])]


def python_left(box: Bed) -> int:
    return len(running(box, "python"))


def test_who_is_left_behind_is_named_and_swept_only_by_consent(fleet: Lab, tmp_path: Path) -> None:
    boxes = started(fleet)
    first, inventory = next(iter(boxes.values())), described(boxes, tmp_path)
    going = {
        end: first.popen("stop", *names(boxes, end), "-P", "8", *words, inventory=inventory)
        for end, words in ENDS.items()
    }
    ended: dict[str, dict[str, Any]] = {}
    for child in going.values():
        ended |= told(first.finish(child, 300, alone=False))
    wrong = []
    for (kind, end), box in boxes.items():
        target = ended[box.name]
        left = 0 if end in ("INT", "SWEEP") else LEFT[kind]
        reason = target["reason"] or ""
        seen = (target["result"], len(living(target)), python_left(box), len(box.saved()))
        named = [pid for pid in living(target) if f"worker {pid}" in reason]
        sent = [(each["signal"], each["to"], each["pids"][0]) for each in target["signals"]]
        box.note(kind, end, target["result"], str(left), reason, str(sent))
        lead = next(each["pid"] for each in target["family"] if each["role"] == "trainer")
        expected = ("unclean" if left else "stopped", left, left, int(end == "INT"))
        if seen != expected or len(named) != left or sent[0][1:] != ("trainers", lead):
            wrong.append(f"{kind}, {end}: {seen}, not {expected}; {sent}; {reason}")
        if (len(sent) > 1) != (end == "SWEEP" and LEFT[kind] > 0):
            wrong.append(f"{kind}, {end}: {sent}")
    assert wrong == [], "\n".join(wrong)
    # what is no fork of the trainer does not match it: a later run must not call the place empty
    for kind, words in (("spawn", ("stop", "--force")), ("forkserver", ("status",))):
        box = boxes[kind, "KILL"]
        ran = box.run(*words, box.name, inventory=inventory)
        assert (ran.code, ran.target["result"]) == (0, "not_running"), ran.people
        assert ran.target["signals"] == []
        pids = ", ".join(str(pid) for pid in living(ended[box.name]))
        assert f"{pids} were left behind by a Python that has ended" in ran.target["reason"]
        assert python_left(box) == LEFT[kind]


DAEMON = """\
import multiprocessing, os, subprocess, sys, time


def load():
    time.sleep(600)


if __name__ == "__main__":
    if os.fork():
        os._exit(0)
    os.setsid()
    if os.fork():
        os._exit(0)
    if sys.argv[1] == "queue":
        own = multiprocessing.SimpleQueue()
    elif sys.argv[1] == "helper":
        own = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    else:
        context = multiprocessing.get_context("spawn")
        own = [context.Process(target=load, daemon=True) for _ in range(2)]
        for each in own:
            each.start()
    try:
        print("up", flush=True)
        time.sleep(600)
    except KeyboardInterrupt:
        os.makedirs("/workspace/checkpoints", exist_ok=True)
        with open("/workspace/checkpoints/state.raw", "wb") as stream:
            stream.write(b"x" * 1000)
"""


@pytest.mark.parametrize("what", ["queue", "helper", "spawned"])
def test_a_trainer_that_made_itself_a_daemon_is_stopped_by_one_int(
    box: Bed, tmp_path: Path, what: str
) -> None:
    """On a CPU nothing but its own pipes and children tells it from somebody's left-over worker."""
    (box.lab.rootfs(box.vmid) / "root/train.py").write_text(DAEMON)
    line = f"python3 -u /root/train.py {what} >/workspace/train.log 2>&1 </dev/null"
    job = box.start(f"mkdir -p /dev/shm; exec setsid -f {line}", how="raw", trainers=0)
    until(lambda: "up" in box.log(job).split())
    path = tmp_path / "fleet.yaml"
    path.write_text(re.sub(r" *gpus: \[0\]\n", "", box.lab.inventory.read_text()))
    ran = box.run("stop", box.name, "--graceful", "--ladder", "INT/20", inventory=path)
    assert ran.code == 0, ran.people
    assert ran.signals[0][0] == "INT"
    assert "left behind" not in ran.people
    assert (box.checkpoints / "state.raw").stat().st_size == 1000
