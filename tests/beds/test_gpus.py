"""`gpus` on a practice host: whose memory is where, and what is said where nobody is listed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .bed import Bed, Ran, alive, lives, running, until

pytestmark = [pytest.mark.bed, pytest.mark.timeout(300)]


@pytest.fixture(autouse=True)
def _healthy(box: Bed) -> Any:
    """The next test has a healthy nvidia-smi again."""
    yield
    box.lab.set_gpus(fail=None, hang=False, rows=[], faults={}, inforom=False, release_delay_s=0.3)


def on(ran: Ran, index: int) -> dict[str, Any]:
    (found,) = [each for each in ran.target["gpus"] if each["index"] == index]
    assert isinstance(found, dict)
    return found


def here(box: Bed, gpu: dict[str, Any]) -> list[dict[str, Any]]:
    """Of its holders those of this practice fleet: the machine may carry another one."""
    return [each for each in gpu["held_by"] if each["vmid"] in box.lab.vmids]


def look(box: Bed, pct: int = 0) -> Ran:
    ran = box.run("gpus", "lab1", pct=pct)
    assert ran.connections == 1
    return ran


def test_each_holder_is_joined_to_container_job_pid_and_user(box: Bed) -> None:
    job = box.start("--gpus", "1,3", "--gpu-mib", "4096")
    ran = look(box)
    assert ran.code == 0, ran.people
    assert (ran.target["target"], ran.target["result"]) == ("lab1", "running")
    for index in (1, 3):
        gpu = on(ran, index)
        assert (gpu["state"], gpu["held_mib"], gpu["used_mib"]) == ("held", 4096, 4096)
        (holder,) = gpu["held_by"]
        assert holder["host_pid"] == job.process.pid == gpu["holders"][0]
        assert (holder["vmid"], holder["container"]) == (box.vmid, box.name)
        assert (holder["job"], holder["user"]) == (f"{box.name}:train", "root")
        assert holder["pid"] != holder["host_pid"]
        assert holder["age_s"] < 60
    assert [on(ran, n)["state"] for n in (0, 2)] == ["idle", "idle"]
    assert f"{box.name}:train" in ran.people
    assert "8/319 GiB in use, 2 idle" in ran.people


def test_two_containers_that_grow_on_one_gpu_have_rows_of_their_own(box: Bed) -> None:
    other = Bed(box.lab, next(each for each in box.lab.vmids if each != box.vmid))
    sizes: dict[int, tuple[str, int]] = {}
    started = []
    try:
        for bed, mib in ((box, 2048), (other, 8192), (box, 1024), (other, 512)):
            log = f"/workspace/{mib}.log"
            job = bed.start("--gpus", "0", "--gpu-mib", str(mib), log=log)
            started.append(job)
            sizes[job.process.pid] = (bed.name, mib)
            gpu = on(look(box), 0)
            told = {
                each["host_pid"]: (each["container"], each["held_mib"]) for each in gpu["held_by"]
            }
            assert told == sizes
            assert gpu["used_mib"] == gpu["held_mib"] == sum(mib for _, mib in sizes.values())
            assert gpu["unlisted_mib"] == 0
    finally:
        for each in started:
            if alive(each.process.pid, each.process.start):
                os.kill(each.process.pid, signal.SIGKILL)


def test_memory_of_an_orphan_in_another_session_is_told_with_the_orphan(box: Bed) -> None:
    job = box.start("--gpus", "2", "--gpu-mib", "4096", "--workers", "2", "--worker-habit", "stuck")
    kids = set(running(box, "trainer.py")) - {job.process.pid} or _below(job.process.pid)
    assert kids
    os.kill(job.process.pid, signal.SIGKILL)
    until(lambda: not alive(job.process.pid, job.process.start))
    ran = look(box)
    gpu = on(ran, 2)
    assert (gpu["state"], gpu["unlisted_mib"], gpu["holders"]) == ("unlisted", 4096, [])
    held_by = here(box, gpu)
    assert {each["host_pid"] for each in held_by} == kids
    assert all(each["orphan"] and not each["listed"] for each in held_by)
    (told,) = [each for each in ran.target["findings"] if each.startswith("GPU 2:")]
    assert f"in {box.name} (host" in told
    assert "an orphan" in told
    for pid in kids:
        os.kill(pid, signal.SIGKILL)


def _below(pid: int) -> set[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return {int(each) for each in text.split()}


def test_memory_that_nobody_is_seen_to_hold_is_never_called_idle(box: Bed) -> None:
    job = box.start("--gpus", "0", "--gpu-mib", "4096")
    box.lab.set_gpus(release_delay_s=600.0)
    look(box)
    os.kill(job.process.pid, signal.SIGKILL)
    until(lambda: not alive(job.process.pid, job.process.start))
    ran = look(box)
    gpu = on(ran, 0)
    assert (gpu["state"], gpu["used_mib"] > 4000, here(box, gpu)) == ("unlisted", True, [])
    (told,) = [each for each in ran.target["findings"] if each.startswith("GPU 0:")]
    assert f"{gpu['unlisted_mib']} MiB belong to no listed process" in told
    assert gpu["held_by"] or "nobody is seen to have /dev/nvidia* open" in told
    assert ran.target["result"] == "running"


def test_a_hanging_nvidia_smi_is_bounded_and_who_has_it_open_is_told(box: Bed) -> None:
    job = box.start("--gpus", "0")
    box.lab.set_gpus(hang=True)
    try:
        ran = box.run("gpus", "lab1", pct=0)
    finally:
        box.lab.set_gpus(hang=False)  # the second question, asked once the first one ends
        _end_stand_ins(box)
    assert (ran.code, ran.target["result"], ran.target["verdict"]) == (4, "unreachable", "unknown")
    assert ran.seconds < 40
    assert ran.target["gpus"] is None
    assert any(f"(host {job.process.pid})" in each for each in ran.target["findings"]), ran.people


def _end_stand_ins(box: Bed) -> None:
    """The nvidia-smi of this lab that sleeps for ever, by its own path."""
    path = str(box.lab.nvidia_smi).encode()
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if path in words:
            os.kill(int(entry.name), signal.SIGKILL)


FAILURES = """no_driver driver_mismatch no_library unknown_error no_supported no_devices
handle_unknown gpu_lost"""


@pytest.mark.parametrize("fail", FAILURES.split())
def test_a_failing_driver_is_not_idle(box: Bed, fail: str) -> None:
    box.lab.set_gpus(fail=fail)
    ran = box.run("gpus", "lab1", pct=0)
    assert (ran.code, ran.target["gpus"]) == (4, None)
    assert "not known" in ran.people


def test_faults_and_odd_cells_are_findings_and_never_idle(box: Bed) -> None:
    hidden = "[Insufficient Permissions]"
    box.lab.set_gpus(
        faults={"0": "GPU requires reset", "1": "GPU is lost", "2": "N/A"},
        rows=[{"gpu": 3, "pid": hidden, "mib": hidden}],
    )
    ran = look(box)
    assert (ran.code, ran.target["result"]) == (0, "running")
    states = [each["state"] for each in ran.target["gpus"]]
    assert states == ["fault", "fault", "unknown", "held"]
    assert [each["used_mib"] for each in ran.target["gpus"][:3]] == [None, None, None]
    said = "\n".join(ran.target["findings"])
    for words in (
        "GPU 0 requires reset",
        "GPU 1 is lost",
        "GPU 2 does not say",
        "GPU 3 is held by",
    ):
        assert words in said
    box.lab.set_gpus(faults={}, rows=[], inforom=True)
    ran = look(box)
    assert (ran.code, ran.target["result"]) == (0, "not_running")
    assert any("infoROM" in each for each in ran.target["findings"])


def test_a_container_stands_for_its_host_and_json_is_one_line(box: Bed) -> None:
    line = [sys.executable, "-m", "fleetstop", "gpus", box.name, "--json", "-i"]
    line.append(str(box.lab.inventory))

    def told() -> tuple[int, dict[str, Any]]:
        done = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
        (text,) = done.stdout.splitlines()
        (only,) = json.loads(text)["targets"]
        return done.returncode, only

    # memory of the tests before is given back a while after a look first misses its owner
    until(lambda: told()[1]["result"] == "not_running")
    code, only = told()
    assert (code, only["target"], only["reason"]) == (0, "lab1", "nobody is on a GPU")
    assert [each["state"] for each in only["gpus"]] == ["idle"] * 4


def test_a_first_look_without_an_inventory_says_what_to_type_for_each_tree(
    box: Bed, tmp_path: Path
) -> None:
    """What it says is typed: only the one that is named is stopped, and it saves."""
    text = box.lab.inventory.read_text()
    bare = tmp_path / "fleet.yaml"
    bare.write_text(text[: text.index("containers:")])
    jobs = [box.start("--gpus", str(n), log=f"/workspace/{n}.log") for n in (0, 1)]
    place = f"lab1/{box.vmid}"
    told = box.run("status", place, inventory=bare)
    assert told.code == 0, told.people
    flat = " ".join(told.people.split())
    for job in jobs:
        assert f"stop {place} --pid {job.pid} --graceful" in flat
        assert f"adopt {place} --pid {job.pid} --as train" in flat
    one, other = jobs
    words = ("stop", place, "--pid", str(one.pid), "--graceful", "--signal", "INT")
    ran = box.run(*words, inventory=bare)
    assert (ran.code, ran.signals) == (0, [("INT", [one.pid])]), ran.people
    assert box.saved()
    assert lives(other)
    assert box.signals_seen(other) == 0
