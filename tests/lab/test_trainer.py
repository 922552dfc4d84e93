"""How practice trainers hear, save and lose: the wrong choice must lose the checkpoint."""

from __future__ import annotations

import os
import signal
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from fleetstop.lab import Lab, Started
from fleetstop.lab.processes import ProcessId, command_line, descendants, is_alive, wait_gone

pytestmark = pytest.mark.bed

INT, TERM = signal.SIGINT, signal.SIGTERM
Until = Callable[[Callable[[], object]], None]


def mask(process: ProcessId, name: str) -> set[int]:
    """The signals below 20 in a mask of /proc/PID/status."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    bits = int(status.split(f"{name}:")[1].split()[0], 16)
    return {number for number in range(1, 20) if bits >> (number - 1) & 1}


def namespace_ids(process: ProcessId, name: str) -> int:
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.split(f"{name}:")[1].splitlines()[0].split()[-1])


def checkpoints(lab: Lab, vmid: int) -> list[str]:
    place = lab.rootfs(vmid) / "workspace/checkpoints"
    return sorted(str(path.relative_to(place)) for path in place.rglob("*") if path.is_file())


def is_whole(lab: Lab, vmid: int, name: str) -> bool:
    path = lab.rootfs(vmid) / "workspace/checkpoints" / name
    return zipfile.is_zipfile(path) and zipfile.ZipFile(path).testzip() is None


def signal_all(job: Started, number: signal.Signals) -> None:
    for process in job.trainers:
        os.kill(process.pid, number)


def test_a_polite_job_hears_int_and_has_a_group_of_its_own(lab: Lab, vmid: int) -> None:
    job = lab.start(vmid)
    assert mask(job.process, "SigIgn") & {1, 2, 3, 15} == set()
    assert 2 in mask(job.process, "SigCgt")
    assert namespace_ids(job.process, "NSpgid") == namespace_ids(job.process, "NSsid") != 0
    assert [command_line(p.pid)[:2] for p in job.launched] == [
        ["/bin/bash", "/root/run.sh"],
        ["python3", "-u"],
    ]
    assert f"/lxc/{vmid}/" in Path(f"/proc/{job.host_pid}/cgroup").read_text()
    assert job.pid == namespace_ids(job.process, "NSpid")


def test_the_incidents_job_is_deaf_to_int(lab: Lab, vmid: int) -> None:
    """`bash -lc 'nohup run.sh &'` through lxc-attach: ignored signals outlive exec."""
    job = lab.start(vmid, how="deaf")
    assert mask(job.process, "SigIgn") & {1, 2, 3} == {1, 2, 3}
    assert 2 not in mask(job.process, "SigCgt")
    assert namespace_ids(job.process, "NSpgid") == namespace_ids(job.process, "NSsid") == 0
    os.kill(job.host_pid, INT)
    os.kill(job.host_pid, INT)
    assert wait_gone([job.process], 0.7) == [job.process]
    assert checkpoints(lab, vmid) == []


def test_one_int_saves(lab: Lab, vmid: int, until: Until) -> None:
    job = lab.start(vmid, ["--save-seconds", "0.3"])
    until(lambda: "step 41201 loss 1.84 14.0K tok/s\n" in job.log.read_text())
    os.kill(job.host_pid, INT)
    until(lambda: "run.sh: trainer ended with 0" in job.log.read_text())
    (name,) = checkpoints(lab, vmid)
    assert name.startswith("step_412")
    assert name.endswith(".pt")
    assert is_whole(lab, vmid, name)


@pytest.mark.parametrize(("second", "left_behind"), [(INT, True), (TERM, True)])
def test_a_second_signal_during_the_save_loses_it(
    lab: Lab, vmid: int, until: Until, second: signal.Signals, left_behind: bool
) -> None:
    job = lab.start(vmid, ["--save-seconds", "2"])
    os.kill(job.host_pid, INT)
    until(lambda: checkpoints(lab, vmid))
    os.kill(job.host_pid, second)
    assert wait_gone([job.process], 10) == []
    (name,) = checkpoints(lab, vmid)
    assert name.endswith(".tmp") is left_behind
    assert not is_whole(lab, vmid, name)


def test_term_kills_a_plain_trainer_unsaved(lab: Lab, vmid: int) -> None:
    job = lab.start(vmid)
    os.kill(job.host_pid, TERM)
    assert wait_gone([job.process], 10) == []
    assert checkpoints(lab, vmid) == []


def test_in_place_a_cut_save_takes_the_old_checkpoint_along(
    lab: Lab, vmid: int, until: Until
) -> None:
    job = lab.start(vmid, ["--in-place", "--save-every", "0.3", "--save-seconds", "1"])
    until(lambda: "saved /workspace/checkpoints/latest.pt" in job.log.read_text())
    assert is_whole(lab, vmid, "latest.pt")
    until(lambda: not is_whole(lab, vmid, "latest.pt"))  # the next periodic save has begun
    os.kill(job.host_pid, TERM)
    assert wait_gone([job.process], 10) == []
    assert not is_whole(lab, vmid, "latest.pt")


def test_the_first_part_of_a_save_may_have_no_file(lab: Lab, vmid: int, until: Until) -> None:
    job = lab.start(vmid, ["--save-seconds", "1.2", "--save-memory-fraction", "0.9"])
    before = Path(f"/proc/{job.host_pid}/statm").read_text().split()[1]
    os.kill(job.host_pid, INT)
    pages = Path(f"/proc/{job.host_pid}/statm")
    until(lambda: int(pages.read_text().split()[1]) > int(before) + 500)
    assert checkpoints(lab, vmid) == []
    until(lambda: not is_alive(job.process))
    assert is_whole(lab, vmid, *checkpoints(lab, vmid))


def test_a_trainer_that_saves_on_term(lab: Lab, vmid: int) -> None:
    job = lab.start(vmid, ["--on", "TERM", "--save-seconds", "0.2"])
    assert {2, 15} <= mask(job.process, "SigCgt")
    os.kill(job.host_pid, TERM)
    assert wait_gone([job.process], 10) == []
    assert is_whole(lab, vmid, *checkpoints(lab, vmid))


def test_the_same_trainer_does_not_save_on_int(lab: Lab, vmid: int) -> None:
    job = lab.start(vmid, ["--on", "TERM"])
    os.kill(job.host_pid, INT)
    assert wait_gone([job.process], 10) == []
    assert checkpoints(lab, vmid) == []


def test_ignoring_shrugging_and_not_saving(lab: Lab, vmid: int, until: Until) -> None:
    deaf = lab.start(vmid, ["--ignore", "INT,TERM"], log="/workspace/1.log")
    assert {2, 15} <= mask(deaf.process, "SigIgn")
    shrugging = lab.start(vmid, ["--shrug"], log="/workspace/2.log")
    leaving = lab.start(vmid, ["--no-save"], log="/workspace/3.log")
    for job in (deaf, shrugging, leaving):
        os.kill(job.host_pid, INT)
    assert wait_gone([leaving.process], 10) == []
    until(lambda: "received SIGINT, training on" in shrugging.log.read_text())
    assert is_alive(deaf.process)
    assert is_alive(shrugging.process)
    assert checkpoints(lab, vmid) == []


def test_a_c_call_hears_only_when_it_returns(lab: Lab, vmid: int, until: Until) -> None:
    job = lab.start(vmid, ["--c-call", "1.5", "--save-seconds", "0.1"])
    time.sleep(0.5)
    os.kill(job.host_pid, INT)
    # heard, not obeyed
    until(lambda: mask(job.process, "ShdPnd") | mask(job.process, "SigPnd") == set())
    assert "KeyboardInterrupt" not in job.log.read_text()
    until(lambda: "saved" in job.log.read_text())


def test_a_group_int_behind_tee_loses_the_checkpoint(lab: Lab, vmid: int) -> None:
    job = lab.start(vmid, ["--save-seconds", "0.5"], how="tee")
    os.killpg(os.getpgid(job.host_pid), INT)
    assert wait_gone(job.launched, 10) == []
    assert not [name for name in checkpoints(lab, vmid) if not name.endswith(".tmp")]


def test_int_to_the_trainer_behind_tee_saves(lab: Lab, vmid: int) -> None:
    job = lab.start(vmid, ["--save-seconds", "0.5"], how="tee")
    os.kill(job.host_pid, INT)
    assert wait_gone(job.launched, 10) == []
    assert is_whole(lab, vmid, *checkpoints(lab, vmid))


def test_workers_look_alike_and_follow_their_parent(lab: Lab, vmid: int) -> None:
    job = lab.start(vmid, ["--workers", "2"])
    workers = descendants(job.host_pid)
    assert [command_line(worker.pid) for worker in workers] == [command_line(job.host_pid)] * 2
    os.kill(job.host_pid, signal.SIGKILL)
    assert wait_gone([job.process], 10) == []
    assert wait_gone(workers, 10) == []


def test_workers_end_with_a_polite_stop(lab: Lab, vmid: int) -> None:
    job = lab.start(vmid, ["--workers", "2", "--save-seconds", "0.2"])
    family = [*job.launched, *descendants(job.host_pid)]
    os.kill(job.host_pid, INT)
    assert wait_gone(family, 10) == []
    assert is_whole(lab, vmid, *checkpoints(lab, vmid))


def test_stuck_workers_outlive_a_killed_parent(lab: Lab, vmid: int) -> None:
    job = lab.start(vmid, ["--workers", "2", "--worker-habit", "stuck"])
    workers = descendants(job.host_pid)
    os.kill(job.host_pid, signal.SIGKILL)
    assert set(wait_gone(workers, 1.5)) == workers


def test_ranks_signalled_in_one_burst_all_save(lab: Lab, vmid: int) -> None:
    job = lab.start(vmid, ["--ranks", "2", "--save-seconds", "0.3"])
    assert len(job.trainers) == 2
    signal_all(job, INT)
    assert wait_gone(job.launched, 10) == []
    first, second = checkpoints(lab, vmid)
    assert first.split("/")[0] == second.split("/")[0]
    assert is_whole(lab, vmid, first)
    assert is_whole(lab, vmid, second)
    assert "run.sh: trainer ended with 0" in job.log.read_text()


def test_a_rank_signalled_alone_loses_everything(lab: Lab, vmid: int) -> None:
    job = lab.start(vmid, ["--ranks", "2", "--barrier-seconds", "1.5"])
    os.kill(job.trainers[1].pid, INT)
    assert wait_gone([job.trainers[1]], 10) == []
    assert "barrier timed out" in job.log.read_text()
    assert checkpoints(lab, vmid) == []


def test_ranks_signalled_half_a_second_apart_hang(lab: Lab, vmid: int) -> None:
    """The other one is in an all_reduce by then, in C code that never returns."""
    job = lab.start(vmid, ["--ranks", "2", "--barrier-seconds", "30"])
    os.kill(job.trainers[1].pid, INT)
    time.sleep(0.8)
    os.kill(job.host_pid, INT)
    assert len(wait_gone(job.trainers, 1.5)) == 2
    assert checkpoints(lab, vmid) == []


def test_a_training_job_is_light(lab: Lab, vmid: int) -> None:
    """There are few cores, and many jobs: a trainer takes a few percent of one."""
    job = lab.start(vmid)
    before, steps = _ticks(job), job.log.read_text().count("step ")
    time.sleep(2)
    assert _ticks(job) - before <= 20
    assert job.log.read_text().count("step ") - steps >= 4


def _ticks(job: Started) -> int:
    fields = Path(f"/proc/{job.host_pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_raw_text_and_decoys(lab: Lab, vmid: int, until: Until) -> None:
    sleeper = lab.start(vmid, "sleep 60 >/dev/null 2>&1 &", how="raw", trainers=0)
    until(lambda: command_line(sleeper.host_pid) == ["sleep", "60"])
    decoys = lab.decoys(vmid)
    assert command_line(decoys["vim"].pid) == ["vim", "train.py"]
    assert Path(f"/proc/{decoys['vim'].pid}/comm").read_text() == "vim\n"
    assert all(is_alive(process) for process in decoys.values())
    found = lab.exec(vmid, ["pgrep", "-f", "train.py"]).stdout.split()
    assert len(found) == 4  # of which none is a trainer
