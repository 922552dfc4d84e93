"""What frameworks write, by a real trainer in a real container: saved is proven, cut is told."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
import time
import zipfile
from pathlib import Path

import pytest

from .bed import Bed, Ran, lives, until, words_of

pytestmark = pytest.mark.bed

# the format, what the report calls it, and whether its bytes tell that it is whole
SAVED = [
    ("zip", "step_", True),
    ("legacy", "step_", False),
    ("safetensors", "step_", True),
    ("sharded", "step_", True),
    ("dcp", "step_", True),
    ("hf", "checkpoint-", True),
    ("deepspeed", "global_step", True),
    ("json", "model_", True),
    ("raw", "latest.h5", False),
]


def one_int_and_saved(box: Bed, ran: Ran, name: str, *, known: bool) -> None:
    assert ran.code == 0, ran.people
    assert [name for name, _ in ran.signals] == ["INT"]
    told = ran.target["checkpoint"]
    assert (told["complete"], told["written_after_signal"]) == (True, True), ran.people
    assert told["known_format"] is known
    assert Path(told["path"]).name.startswith(name), told
    assert ran.target["findings"] == []


@pytest.mark.parametrize(("kind", "name", "known"), SAVED, ids=[each[0] for each in SAVED])
def test_one_int_and_the_save_is_proven(box: Bed, kind: str, name: str, known: bool) -> None:
    job = box.start("--format", kind, "--save-seconds", "1.5")
    ran = box.run("stop", box.name, "--graceful")
    one_int_and_saved(box, ran, name, known=known)
    assert not lives(job)
    assert box.signals_seen(job) == 1


def test_an_asynchronous_saver_is_waited_for(box: Bed) -> None:
    """The trainer is gone at once; `latest` names the directory before it is there."""
    box.start("--format", "async", "--save-seconds", "6")
    ran = box.run("stop", box.name, "--graceful")
    one_int_and_saved(box, ran, "step_", known=True)
    (metadata,) = box.checkpoints.rglob(".metadata")
    assert metadata.stat().st_size > 0
    assert ran.seconds > 5.0


def test_a_pointer_to_an_unfinished_directory_is_no_save(box: Bed) -> None:
    """The saver dies with its work half done (an early KILL by somebody else, a full disk)."""
    job = box.start("--format", "async", "--save-seconds", "60")
    running = box.popen("stop", box.name, "--graceful")
    until(lambda: list(box.checkpoints.rglob("*.distcp")))
    until(lambda: not lives(job))
    for pid in box.lab.host_pids(box.vmid):
        words = b" ".join(words_of(pid))
        if b"train.py" in words and b"async" in words and b"run.sh" not in words:
            os.kill(pid, signal.SIGKILL)
    ran = box.finish(running)
    assert ran.code == 6, ran.people
    assert "not_saved" in ran.target["reason"]
    assert (box.checkpoints / "latest").read_text().startswith("step_")
    assert not list(box.checkpoints.rglob(".metadata"))


@pytest.mark.parametrize("kind", ["sharded", "hf", "deepspeed", "dcp"])
def test_a_signal_waits_between_two_files_of_a_periodic_save(box: Bed, kind: str) -> None:
    """Nothing is open for 0.8 s between two files: one INT then would cost the set."""
    job = box.start(
        *("--format", kind, "--save-every", "8", "--file-gap", "0.8", "--save-seconds", "0.4")
    )
    until(lambda: len([p for p in box.checkpoints.rglob("*") if p.is_file()]) == 1)
    first = next(each for each in box.checkpoints.iterdir() if each.is_dir())
    time.sleep(0.3)  # in the gap
    ran = box.run("stop", box.name, "--graceful", "--ladder", "INT/30")
    assert ran.code == 0, ran.people
    assert [name for name, _ in ran.signals] == ["INT"]
    log = box.log(job)
    # the periodic save came to its end, and the signal only then
    assert log.index("saved " + kind) < log.index("KeyboardInterrupt"), log
    names = {each.name for each in first.iterdir()}
    last = {
        "sharded": "model.safetensors.index.json",
        "hf": "trainer_state.json",
        "deepspeed": "zero_pp_rank_0_mp_rank_00_optim_states.pt",
        "dcp": ".metadata",
    }
    assert last[kind] in names
    assert "checkpoint-is-incomplete.txt" not in names


@pytest.mark.parametrize(("kind", "known"), [("raw", False), ("zip", True), ("json", True)])
def test_a_save_cut_in_the_middle_is_not_called_whole(box: Bed, kind: str, known: bool) -> None:
    """With consent and no hold at all: KILL lands in the middle of the save that INT began."""
    playbook = box.checkpoints.parent / "now.yaml"
    playbook.write_text(
        "ladder:\n  - {signal: INT, to: trainers, wait: 1s}\n"
        "  - {signal: KILL, to: tree, wait: 5s}\nhold: none\n"
    )
    job = box.start("--format", kind, "--save-seconds", "20", "--size-mb", "4")
    ran = box.run("stop", box.name, "--force", "-p", str(playbook))
    assert [name for name, _ in ran.signals] == ["INT", "KILL"], ran.people
    assert not lives(job)
    told = ran.target["checkpoint"]
    assert told is None or told["complete"] is not True
    said = " ".join(ran.target["findings"])
    if not known:
        assert told["complete"] is None
        assert "latest.h5 was being written when KILL went out" in said
    if kind == "json":  # it was written under its final name
        assert re.search(r"model_\d+\.json is new too, and not whole", said), said
    assert "NOT saved" in ran.people
    assert ran.seconds < 30.0  # nobody waits for what nobody will finish


def test_the_usual_interval_and_what_would_be_lost_are_told(box: Bed) -> None:
    box.start("--format", "sharded", "--ignore", "INT,TERM")
    now = time.time()
    source = Path(__file__).parents[2] / "fleetstop/lab/files"
    sys.path.insert(0, str(source))
    try:
        from checkpoint_formats import files_of  # type: ignore[import-not-found]
    finally:
        sys.path.remove(str(source))
    for number in range(5):
        for name, data in files_of("sharded", 100 + number, 30_000):
            path = box.checkpoints / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            when = now - 600 * (5 - number) + 60
            os.utime(path, (when, when))
    ran = box.run("stop", box.name, "--graceful")
    assert ran.code == 1, ran.people
    assert "checkpoint  step_104, complete, 9 min old, one every ~10 min" in ran.people
    assert "--after-checkpoint" in ran.people
    due = re.search(r"one every ~10 min here; next in ~(\d+) s", " ".join(ran.people.split()))
    assert due is not None, ran.people
    assert 20 <= int(due[1]) <= 60
    # the trainer is some seconds old, whatever the dates of the files: it cannot lose more
    said = " ".join(ran.people.split())
    assert re.search(r"loses about \d+ s, all since its start \(step_104 is older\)", said), said
    status = box.run("status", box.name)
    located = next(each for each in status.events if each["event"] == "located")
    seen = located["checkpoint"]
    assert (seen["usual_s"], seen["known_format"], seen["complete"]) == (600.0, True, True)


def test_thirty_thousand_files_below_the_directory(box: Bed) -> None:
    place = box.checkpoints / "samples"
    job = box.start("--save-seconds", "0.5")
    place.mkdir(parents=True)
    for number in range(30_000):
        (place / f"{number:06d}.png").touch()
    try:
        ran = box.run("stop", box.name, "--graceful")
        assert ran.code == 0, ran.people
        assert not lives(job)
        assert ran.target["checkpoint"]["written_after_signal"] is True
        assert len(box.saved()) == 1
    finally:
        shutil.rmtree(place)


def test_a_name_that_is_no_utf_8(box: Bed) -> None:
    box.start("--no-save")
    name = b"step_\xff\xfe.npz"
    where = bytes(box.checkpoints) + b"/" + name
    Path(box.checkpoints).mkdir(parents=True, exist_ok=True)
    with open(where, "wb") as file, zipfile.ZipFile(file, "w") as archive:
        archive.writestr("w", b"x" * 100)
    ran = box.run("status", box.name)
    located = next(each for each in ran.events if each["event"] == "located")
    assert located["checkpoint"]["complete"] is True
    assert located["checkpoint"]["name"] == "step_\\xff\\xfe.npz"


def test_a_file_left_open_beside_a_chatty_writer_is_no_endless_save(box: Bed) -> None:
    """It held the signal for as long as the log grew."""
    box.checkpoints.mkdir(parents=True, exist_ok=True)
    job = box.start(*("--stray-file", "/workspace/checkpoints/left.bin", "--step-seconds", "0.05"))
    playbook = box.checkpoints.parent / "short.yaml"
    playbook.write_text(
        "ladder:\n  - {signal: INT, to: trainers, wait: 20s}\nhold: {saving: 3s, stopping: 5s}\n"
    )
    ran = box.run("stop", box.name, "--force", "-p", str(playbook))
    assert not lives(job), ran.people
    assert [name for name, _ in ran.signals] == ["INT"], ran.people


IN_PLACE = """\
import os, sqlite3, sys, time

FOLDER = "/workspace/checkpoints/"


def appended():
    with open(FOLDER + "history", "ab", 0) as stream:
        for _ in range(40):
            stream.write(b"x" * 200_000)
            time.sleep(0.06)


def database():
    made = sqlite3.connect(FOLDER + "checkpoint.db", isolation_level=None)
    made.execute("create table if not exists state (at, value)")
    made.execute("begin")
    for at in range(40):
        made.execute("insert into state values (?, ?)", (at, b"x" * 200_000))
        time.sleep(0.06)
    made.execute("commit")
    made.close()


os.makedirs(FOLDER, exist_ok=True)
try:
    while True:
        print("begins", flush=True)
        globals()[sys.argv[1]]()
        print("whole", flush=True)
        time.sleep(4)
except KeyboardInterrupt:
    print("KeyboardInterrupt", flush=True)
"""


@pytest.mark.parametrize("how", ["appended", "database"])
def test_a_signal_waits_for_what_is_added_to_one_file(box: Bed, how: str) -> None:
    """The one was cut and called saved, of the other nothing was seen."""
    (box.lab.rootfs(box.vmid) / "root/train.py").write_text(IN_PLACE)
    line = f"python3 -u /root/train.py {how} >/workspace/train.log 2>&1 </dev/null"
    job = box.start(f"exec setsid -f {line}", how="raw", trainers=0)
    until(lambda: box.log(job).count("begins") == 2)
    ran = box.run("stop", box.name, "--graceful", "--ladder", "INT/20")
    assert ran.code == 0, ran.people
    assert ran.signals[0][0] == "INT"
    said = box.log(job).split()
    assert said.count("whole") == said.count("begins")
    assert said[-1] == "KeyboardInterrupt"
