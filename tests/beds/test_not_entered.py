"""A container that cannot be entered: its files are seen from the host, or the signal waits."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fleetstop.lab import Started

from .bed import Bed, Ran, Running, lives, until, words_of
from .limits import more_memory, no_forks, out_of_memory

pytestmark = pytest.mark.bed

INDEX = "model.safetensors.index.json"


def shards(box: Bed) -> list[Path]:
    return sorted(box.checkpoints.rglob("*.safetensors"))


def flat(text: str) -> str:
    return " ".join(text.split())


def told(ran: Ran) -> str:
    return " ".join(ran.target["findings"]) + (ran.target["reason"] or "")


def held_before(ran: Ran) -> set[str]:
    """Why the first signal waited."""
    before = ran.events[: ran.names().index("signal_sent")]
    return {each["why"] for each in before if each["event"] == "holding"}


def in_a_gap(box: Bed, *more: str) -> Started:
    """Saves by itself only, three shards and their index, with 2.5 s of nothing open after each; on
    INT it leaves at once. The set that is being written is all that it will ever have saved."""
    job = box.start(
        *("--format", "sharded", "--save-every", "6", "--file-gap", "2.5", "--save-seconds", "0.4"),
        *("--no-save", *more),
    )
    until(lambda: len(shards(box)) == 1, 60)
    time.sleep(0.3)  # it is closed
    return job


# ------------------------------------------------------------------------------- no PIDs left


def test_with_no_pids_left_a_signal_waits_between_two_shards(box: Bed) -> None:
    job = in_a_gap(box)
    no_forks(box)
    ran = box.run("stop", box.name, "--graceful", "--ladder", "INT/30", deadline=120)
    log = box.log(job)
    assert "saved sharded" in log, (log, ran.people)
    assert log.index("saved sharded") < log.index("KeyboardInterrupt"), log
    assert len(shards(box)) == 3
    assert list(box.checkpoints.rglob(INDEX))
    assert ran.code == 0, ran.people  # younger than max_loss
    assert [name for name, _ in ran.signals] == ["INT"]
    assert held_before(ran) <= {"saving"}  # a slow machine may come too late for the gap
    assert ran.target["checkpoint"]["complete"] is True
    assert ran.target["checkpoint"]["known_format"] is True
    assert "is not entered" in told(ran)
    assert "its files are seen from the host" in told(ran)
    assert ran.pct_calls == 1


def test_the_limit_is_reached_only_after_the_container_was_entered(box: Bed) -> None:
    """Its shell lives on and cannot fork: that is no list of checkpoints, and not an empty one."""
    job = in_a_gap(box)
    running = box.popen("stop", box.name, "--graceful", "--ladder", "INT/30")
    until(box.lock_files)
    no_forks(box)
    ran = box.finish(running, 120)
    log = box.log(job)
    assert "saved sharded" in log, (log, ran.people)
    assert log.index("saved sharded") < log.index("KeyboardInterrupt"), log
    assert ran.code == 0, ran.people
    assert held_before(ran) <= {"saving"}  # a slow machine may come too late for the gap
    assert "its files are seen from the host" in told(ran)
    assert "cannot be done in the container" in told(ran)
    assert ran.pct_calls == 1


def test_the_files_are_shown_by_status(box: Bed) -> None:
    box.start("--save-every", "1", "--save-seconds", "0.2")
    until(box.saved, 60)
    no_forks(box)
    ran = box.run("status", box.name)
    assert (ran.code, ran.target["result"]) == (0, "running"), ran.people
    assert "its files are seen from the host" in told(ran)
    assert ran.target["checkpoint"]["complete"] is True
    assert "log" in ran.people
    assert "could not be looked at" not in told(ran)


def test_waiting_for_a_checkpoint_needs_no_way_in(box: Bed) -> None:
    box.start("--save-every", "3", "--save-seconds", "0.5")
    no_forks(box)
    ran = box.run("wait", box.name, "--for", "checkpoint", "--timeout", "60s", deadline=90)
    assert ran.code == 0, ran.people
    assert "is new and complete" in ran.people


# ------------------------------------------------------------------------- links in the container


def linked(box: Bed, to: str) -> None:
    """/workspace/checkpoints is an absolute link, as people have it on a second disk."""
    if box.checkpoints.is_dir():
        shutil.rmtree(box.checkpoints)
    done = box.lab.exec(box.vmid, ["mkdir", "-p", to])
    assert done.returncode == 0, done
    box.checkpoints.symlink_to(to)


@pytest.fixture
def decoy() -> Iterator[Path]:
    """A directory of the host, with a checkpoint that is none of the job's."""
    place = Path(tempfile.mkdtemp(prefix="fsx-", dir="/tmp"))
    (place / "step_99999.pt").write_text("the host's own")
    yield place
    shutil.rmtree(place)


def test_an_absolute_link_is_followed_in_the_container_and_not_on_the_host(
    box: Bed, decoy: Path
) -> None:
    """The host has that path too: the kernel would follow /proc/PID/root/… to it."""
    linked(box, str(decoy))
    job = box.start("--save-seconds", "1")
    init = box.lab.containers[box.vmid].init_pid()
    assert [p.name for p in Path(f"/proc/{init}/root/workspace/checkpoints").iterdir()] == [
        "step_99999.pt"
    ]
    no_forks(box)
    ran = box.run("stop", box.name, "--graceful", deadline=120)
    assert (ran.code, ran.signals) == (0, [("INT", [job.pid])]), ran.people
    found = ran.target["checkpoint"]
    assert found["written_after_signal"] is True
    assert "99999" not in ran.people
    assert box.whole(Path(f"/proc/{init}/root{decoy}") / Path(found["path"]).name)


def test_a_path_that_cannot_be_followed_holds_the_signal(box: Bed, tmp_path: Path) -> None:
    """It may be saving: hold.stopping applies, and a lossless ladder ends with its chance whole."""
    job = box.start("--save-seconds", "0.5")
    loop = box.checkpoints.parent / "loop"
    loop.symlink_to("/workspace/loop")
    inventory = tmp_path / "fleet.yaml"
    text = box.lab.inventory.read_text()
    inventory.write_text(text.replace("/workspace/checkpoints", "/workspace/loop"))
    (tmp_path / "brisk.yaml").write_text(
        "lossless: true\nladder:\n  - {signal: INT, to: trainers, wait: 5s}\n"
        "hold: {saving: 30m, stopping: 3s}\n"
    )
    no_forks(box)
    words = ["stop", box.name, "--graceful", "-p", str(tmp_path / "brisk.yaml")]
    ran = box.run(*words, inventory=inventory, deadline=120)
    assert (ran.code, ran.signals) == (1, []), ran.people
    assert "it may be saving, which could not be seen" in ran.target["reason"]
    assert "/workspace/loop could not be followed from the host" in flat(ran.people)
    assert lives(job)
    assert box.signals_seen(job) == 0


# ------------------------------------------------------------------------------- out of memory

# saves two shards with a gap, allocates nothing between them, and leaves at once on INT
TWO_SHARDS = """\
import os, signal, time
place = "/workspace/checkpoints/step_1"
os.makedirs(place, exist_ok=True)
def leave(number, frame):
    os._exit(0)
signal.signal(signal.SIGINT, leave)
def shard(number):
    name = b"/workspace/checkpoints/step_1/model-0000%d-of-00002.pt" % number
    there = os.open(name, os.O_WRONLY | os.O_CREAT)
    os.write(there, open("/root/whole.pt", "rb").read())
    os.close(there)
shard(1)
time.sleep(float(os.environ["GAP"]))
shard(2)
while True:
    time.sleep(1000)
"""


def test_out_of_memory_a_signal_waits_between_two_shards(box: Bed) -> None:
    """Entering hangs until it is given up. All the while the trainer sleeps between two shards."""
    root = box.lab.rootfs(box.vmid) / "root"
    (root / "train.py").write_text(TWO_SHARDS)
    with zipfile.ZipFile(root / "whole.pt", "w") as archive:
        archive.writestr("archive/data.pkl", "x" * 1000)
    job = box.start(
        "cd /root && GAP=45 exec setsid -f python3 train.py </dev/null", how="raw", trainers=0
    )
    until(lambda: list(box.checkpoints.rglob("*.pt")), 60)
    with out_of_memory(box):
        running = box.popen("stop", box.name, "--graceful")
        held = _holding(running)
        assert (held["why"], lives(job)) == ("saving", True), held
        assert len(list(box.checkpoints.rglob("*.pt"))) == 1
        assert lives(job)
        _end_the_filler(box)
        more_memory(box)
        rest, people = running.process.communicate(timeout=120)
        report = json.loads(rest.splitlines()[-1])["targets"][0]
        assert sorted(p.name[:11] for p in box.checkpoints.rglob("*.pt")) == [
            "model-00001",
            "model-00002",
        ]
        assert [each["signal"] for each in report["signals"]] == ["INT"], people
        assert running.process.returncode == 0, people
        assert any("seen from the host" in text for text in report["findings"]), people
        assert not lives(job)


def _end_the_filler(box: Bed) -> None:
    for pid in box.lab.host_pids(box.vmid):
        with suppress(OSError):  # somebody ends just now
            if b"/root/fill.py" in words_of(pid):
                os.kill(pid, signal.SIGKILL)


def _holding(running: Running) -> dict[str, Any]:
    """The first hold that is told."""
    assert running.process.stdout is not None
    # by the byte: what is read ahead would be missing from the rest
    line = b""
    while True:
        byte = os.read(running.process.stdout.fileno(), 1)
        assert byte, "it ended without a hold"
        line += byte
        if byte == b"\n":
            event = json.loads(line)
            if event["event"] == "holding":
                assert isinstance(event, dict)
                return event
            assert event["event"] not in ("signal_sent", "report"), event
            line = b""
