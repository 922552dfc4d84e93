"""What a run leaves behind, and waiting without touching: on real sshd, containers and signals."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from .bed import Bed, Ran, Running, lives, until, with_job

pytestmark = pytest.mark.bed

SECRET = "hf_Zq9xW3vK7pLm2RtYAb"


def runs() -> Path:
    return Path(os.environ["XDG_STATE_HOME"]) / "fleetstop/runs"


def record_of(ran: Ran) -> dict[str, Any]:
    loaded = json.loads((runs() / f"{ran.events[0]['run']}.json").read_text())
    assert isinstance(loaded, dict)
    return loaded


def said(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "fleetstop", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def frozen_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """A state directory on a disk of its own; called, that disk hangs: every write to it waits."""
    image, place = tmp_path / "image", tmp_path / "state"
    place.mkdir()
    with image.open("wb") as stream:
        stream.truncate(48 << 20)
    subprocess.run(["mkfs.ext4", "-q", str(image)], capture_output=True, check=False)
    mounting = ["mount", "-o", "loop", str(image), str(place)]
    mounted = subprocess.run(mounting, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no loop device with ext4 here: {mounted.stderr}")
    monkeypatch.setenv("XDG_STATE_HOME", str(place))
    try:
        yield lambda: _frozen(place)
    finally:
        subprocess.run(["fsfreeze", "-u", str(place)], capture_output=True, check=False)
        until(lambda: subprocess.run(["umount", str(place)], check=False).returncode == 0)


def _frozen(place: Path) -> None:
    subprocess.run(["fsfreeze", "-f", str(place)], check=True)


# the record


def test_a_home_that_hangs_under_the_stop_hinders_neither_its_signals_nor_its_end(
    box: Bed, frozen_home: Callable[[], None], tmp_path: Path
) -> None:
    """As a network home whose server is away. Written in the loop, the first event after that
    would stop the watching: the job saves, and nobody proves it or says so."""
    job = box.start("--save-seconds", "3", "--size-mb", "1")
    running = box.popen("stop", box.name, "--graceful")
    until(lambda: "saving" in box.log(job), 40.0)
    frozen_home()
    began = time.monotonic()
    lines: list[str] = []
    out = running.process.stdout
    assert out is not None
    while not lines or json.loads(lines[-1])["event"] != "report":
        lines.append(out.readline())
        assert lines[-1], "it ended without a report"
    assert time.monotonic() - began < 30
    report = json.loads(lines[-1])
    assert (report["exit_code"], report["targets"][0]["result"]) == (0, "stopped")
    assert (box.signals_seen(job), len(box.saved())) == (1, 1)
    time.sleep(6.0)  # for longer than it waits for its record
    subprocess.run(["fsfreeze", "-u", str(tmp_path / "state")], check=True)
    _, err = running.process.communicate(timeout=30)
    assert running.process.returncode == 0
    assert "this run left no whole record" in err
    assert "does not answer" in err


def test_a_polite_stop_leaves_its_record_for_its_owner_only(box: Bed) -> None:
    job = box.start("--save-seconds", "0.5")
    ran = box.run("stop", box.name, "--graceful")
    assert ran.code == 0, ran.people
    record = record_of(ran)
    path = runs() / f"{record['run']}.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert not list(runs().glob(f"*{record['run']}.partial"))
    assert (record["schema"], record["command"]) == (1, "stop")
    # word for word what --events printed, and nothing else
    assert [*record["events"], record["report"]] == ran.events
    assert [each["moment"] for each in record["snapshots"]] == ["found", "before INT", "end"]
    (first,) = (p for p in record["snapshots"][0]["processes"] if p["role"] == "trainer")
    assert first["pid"] == job.pid
    assert int(first["caught"], 16) & 2
    assert first["state"] in "SRD"
    assert record["black_boxes"] == []
    row = next(each for each in said("history").splitlines() if record["run"] in each)
    assert "stop" in row
    assert f"{box.name}:train" in row
    assert row.split()[-2:] == ["stopped", "0"]
    story = said("history", "show", record["run"][:6])
    assert f"{box.name}:train stopped in" in story
    assert "INT to" in story


def test_no_secret_is_kept(box: Bed) -> None:
    """In arguments, in the log's end, and in a file's name."""
    script = (
        "import time\n"
        f"kept = open('/workspace/run-token={SECRET}.bin', 'w')\n"
        f"while True:\n    print('login with {SECRET}', flush=True)\n    time.sleep(0.2)\n"
    )
    (box.lab.rootfs(box.vmid) / "root/train.py").write_text(script)
    box.start(
        f"setsid -f env HF_TOKEN={SECRET} python3 /root/train.py --token {SECRET}"
        " >/workspace/train.log 2>&1 </dev/null",
        how="raw",
        trainers=0,
    )
    ran = box.run("stop", box.name, "--force", "--ladder", "KILL:tree/10")
    record = record_of(ran)
    assert record["black_boxes"][0]["log"], ran.people
    assert "***" in json.dumps(record["black_boxes"])
    path = runs() / f"{record['run']}.json"
    for text in (path.read_text(), ran.stdout, ran.people, said("history", "show", record["run"])):
        assert SECRET not in text


def test_a_forced_stop_keeps_a_black_box_and_is_not_slowed(box: Bed) -> None:
    job = box.start(how="deaf")
    ran = box.run("stop", box.name, "--force", "--ladder", "KILL:tree/10")
    assert ran.code == 0, ran.people
    (found,) = record_of(ran)["black_boxes"]
    assert found["before"] == "KILL"
    trainer = next(p for p in found["processes"] if p["process"]["role"] == "trainer")
    assert trainer["process"]["pid"] == job.pid
    assert int(trainer["process"]["ignored"], 16) & 2
    assert trainer["wchan"]
    assert any(each["path"].startswith("/") for each in trainer["files"])
    assert any("step" in line for line in found["log"])
    assert any("GPU-" in line for line in found["nvidia_smi"])
    assert found["seconds"] <= 3.0
    assert "black_box" not in ran.names()
    assert "snapshot" not in ran.names()
    story = said("history", "show", ran.events[0]["run"])
    assert "black box of" in story
    assert "ignored HUP, INT, QUIT (" in story


def test_a_graceful_stop_keeps_no_black_box(box: Bed) -> None:
    job = box.start(how="deaf")
    ran = box.run("stop", box.name, "--graceful")
    assert ran.code == 1
    assert record_of(ran)["black_boxes"] == []
    assert lives(job)


def test_a_client_that_was_killed_leaves_what_it_knew(box: Bed) -> None:
    box.start("--save-seconds", "8")
    running = box.popen("stop", box.name, "--graceful")
    assert running.process.stdout is not None
    run = ""
    for line in running.process.stdout:
        event = json.loads(line)
        run = run or event["run"]
        if event["event"] == "signal_sent":
            break
    row = next(each for each in said("history").splitlines() if run in each)
    assert "under way" in row
    running.process.send_signal(signal.SIGKILL)
    running.process.communicate()
    row = next(each for each in said("history").splitlines() if run in each)
    assert row.split()[-2:] == ["interrupted", "-"]
    partial = runs() / f"{run}.partial"
    assert stat.S_IMODE(partial.stat().st_mode) == 0o600
    story = said("history", "show", run)
    assert "INT to" in story
    assert "the client went away without a report" in story


def test_an_interrupted_run_and_a_status_are_recorded_too(box: Bed) -> None:
    box.start("--save-seconds", "5")
    running = box.popen("stop", box.name, "--graceful")
    assert running.process.stdout is not None
    first = [running.process.stdout.readline()]
    while '"signal_sent"' not in first[-1]:
        first.append(running.process.stdout.readline())
    running.process.send_signal(signal.SIGINT)
    running.process.communicate(timeout=30)
    run = json.loads(first[0])["run"]
    row = next(each for each in said("history").splitlines() if run in each)
    assert row.split()[-2:] == ["interrupted", "130"]
    ran = box.run("status", box.name)
    assert record_of(ran)["command"] == "status"
    assert "STATE" in said("history", "show", ran.events[0]["run"])
    box.run("stop", box.name, "--graceful")


def test_a_record_that_cannot_be_written_never_hurts_the_stop(
    box: Bed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    box.start("--save-seconds", "0.3")
    ran = box.run("stop", box.name, "--graceful")
    assert ran.code == 0, ran.people
    assert "this run left no whole record" in ran.people


# waiting


def begun(waiting: Running) -> list[str]:
    """The events up to the one that says that it waits; the rest is still to be read."""
    assert waiting.process.stdout is not None
    told: list[str] = []
    while not told or told[-1] != "waiting":
        line = waiting.process.stdout.readline()
        assert line, told
        told.append(json.loads(line)["event"])
    return told


def test_waiting_until_it_is_gone_sends_nothing(box: Bed) -> None:
    job = box.start("--save-seconds", "0.5")
    waiting = box.popen("wait", box.name, "--timeout", "60")
    assert begun(waiting)[0] == "started"
    time.sleep(1.0)
    assert lives(job)
    assert waiting.process.poll() is None
    assert box.lock_files() == []
    box.lab.exec(box.vmid, ["kill", "-INT", str(job.pid)])
    until(lambda: not lives(job))
    at = time.monotonic()
    ran = box.finish(waiting, alone=False)
    # what remains is a few looks, and Python's own end
    assert time.monotonic() - at < 5.0
    assert (ran.code, ran.target["result"]) == (0, "not_running"), ran.people
    assert ran.signals == []
    assert "REACHED" in ran.people
    assert box.signals_seen(job) == 1


def test_waiting_where_nothing_runs_is_done_at_once(box: Bed) -> None:
    ran = box.run("wait", box.name)
    assert (ran.code, ran.target["result"]) == (0, "not_running"), ran.people


def test_waiting_longer_than_its_limit(box: Bed) -> None:
    job = box.start()
    ran = box.run("wait", box.name, "--timeout", "2s")
    assert (ran.code, ran.target["result"]) == (1, "still_running"), ran.people
    assert "NOT REACHED" in ran.people
    assert 2.0 <= ran.seconds < 30
    assert lives(job)


def test_a_loop_that_starts_it_again_is_not_gone(box: Bed) -> None:
    job = box.start(
        "setsid -f bash -c 'while true; do python3 -u /root/train.py --save-seconds 0.1; sleep 1;"
        " done' >/workspace/train.log 2>&1 </dev/null",
        how="raw",
        trainers=1,
    )
    waiting = box.popen("wait", box.name, "--timeout", "8s")
    begun(waiting)
    box.lab.exec(box.vmid, ["kill", "-INT", str(job.pid)])
    ran = box.finish(waiting, alone=False)
    assert ran.code == 1, ran.people
    assert any("the job runs again as" in each for each in ran.target["findings"]), ran.people


def test_waiting_for_the_next_checkpoint(box: Bed) -> None:
    job = box.start("--save-every", "3")
    ran = box.run("wait", box.name, "--for", "checkpoint", "--timeout", "40s")
    assert (ran.code, ran.target["result"]) == (0, "running"), ran.people
    assert ran.target["checkpoint"]["complete"] is True
    assert box.whole(box.lab.rootfs(box.vmid) / ran.target["checkpoint"]["path"].lstrip("/")), (
        ran.target
    )
    assert lives(job)


def test_a_checkpoint_that_will_never_come(box: Bed) -> None:
    job = box.start("--no-save")
    waiting = box.popen("wait", box.name, "--for", "checkpoint", "--timeout", "60s")
    begun(waiting)
    box.lab.exec(box.vmid, ["kill", "-INT", str(job.pid)])
    ran = box.finish(waiting, alone=False)
    assert (ran.code, ran.target["result"]) == (6, "unclean"), ran.people
    assert ran.target["reason"].startswith("not_reached: it ended")


def test_waiting_for_its_gpus(box: Bed) -> None:
    job = box.start("--save-seconds", "0.3")
    late = box.run("wait", box.name, "--for", "gpu-free", "--timeout", "2s")
    assert late.code == 1, late.people
    assert "still held by" in late.target["reason"]
    waiting = box.popen("wait", box.name, "--for", "gpu-free", "--timeout", "60s")
    begun(waiting)
    box.lab.exec(box.vmid, ["kill", "-INT", str(job.pid)])
    ran = box.finish(waiting, alone=False)
    assert (ran.code, ran.target["result"]) == (0, "not_running"), ran.people
    assert ran.target["gpus"][0]["held_mib"] == 0


HEALTH = (
    "match: {script: train.py}\n        stop_signal: INT\n        log: /workspace/train.log\n"
    "        healthcheck: {log_matches: 'step \\d+ loss', within: 20s}"
)


def test_waiting_until_it_is_healthy(box: Bed, tmp_path: Path) -> None:
    inventory = with_job(box, tmp_path, HEALTH)
    waiting = box.popen("wait", box.name, "--for", "healthy", inventory=inventory)
    begun(waiting)
    assert waiting.process.poll() is None
    box.start()
    ran = box.finish(waiting, alone=False)
    assert (ran.code, ran.target["result"]) == (0, "running"), ran.people
    assert ran.target["reason"].startswith("the log says: ")


def test_one_that_never_says_so_is_not_healthy(box: Bed, tmp_path: Path) -> None:
    box.start()
    inventory = with_job(box, tmp_path, HEALTH.replace("step", "never said"))
    ran = box.run("wait", box.name, "--for", "healthy", "--timeout", "3s", inventory=inventory)
    assert ran.code == 1, ran.people
    assert "nothing in the log matches" in ran.target["reason"]


def test_ctrl_c_while_waiting(box: Bed) -> None:
    job = box.start()
    waiting = box.popen("wait", box.name)
    begun(waiting)
    waiting.process.send_signal(signal.SIGINT)
    ran = box.finish(waiting)
    assert ran.code == 130, ran.people
    assert f"still running: {job.pid}" in ran.people
    assert ran.target["interrupted"] is True
    assert lives(job)


def test_what_cannot_be_looked_at_is_no_end(box: Bed) -> None:
    box.start()
    box.lab.freeze(box.vmid)
    try:
        ran = box.run("wait", box.name, "--timeout", "5s")
    finally:
        box.lab.thaw(box.vmid)
    assert (ran.code, ran.target["verdict"]) == (4, "frozen"), ran.people


# stacks

STAND_IN = """#!/bin/sh
for last; do :; done
echo "Process $last: python"; echo "Python v3.11"; echo
echo "Thread $last (idle): \\"MainThread\\""; echo "    train (train.py:7)"
"""


def test_stacks_where_there_is_a_py_spy_on_the_host(box: Bed) -> None:
    """The real one where this machine has it, else a stand-in that prints alike."""
    job = box.start()
    tool = box.lab.root / "bin/py-spy"
    real = shutil.which("py-spy")
    if real is not None:
        shutil.copy(real, tool)
    else:
        tool.write_text(STAND_IN)
    tool.chmod(0o755)
    try:
        ran = box.run("status", box.name, "--stacks")
    finally:
        tool.unlink()
    assert ran.code == 0, ran.people
    (stack,) = ran.target["stacks"]
    assert stack["pid"] == job.pid
    assert "MainThread" in stack["text"][0], stack
    assert any("train.py:" in each for each in stack["text"]), stack
    assert "MainThread" in ran.people


def test_a_py_spy_that_hangs_is_ended_and_told(box: Bed) -> None:
    box.start()
    tool = box.lab.root / "bin/py-spy"
    tool.write_text("#!/bin/sh\nexec sleep 617\n")
    tool.chmod(0o755)
    try:
        ran = box.run("status", box.name, "--stacks")
    finally:
        tool.unlink()
    assert ran.code == 0, ran.people
    assert "did not answer" in ran.target["stacks"][0]["problem"]
    assert _asleep() == []


def test_without_py_spy_it_says_how_to_get_it(box: Bed) -> None:
    box.start()
    ran = box.run("status", box.name, "--stacks")
    assert ran.code == 0
    assert ran.target["stacks"] == []
    assert any("pip install py-spy" in each for each in ran.target["findings"])


def _asleep() -> list[str]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if entry.read_bytes() == b"sleep\x00617\x00":
                found.append(entry.parent.name)
        except OSError:
            continue
    return found
