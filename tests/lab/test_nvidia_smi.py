"""The stand-in tells the truth about who holds a GPU, in the forms real releases have."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator

import pytest

from fleetstop.lab import Lab
from fleetstop.lab.processes import descendants, wait_gone

pytestmark = pytest.mark.bed

APPS = "--query-compute-apps=gpu_uuid,pid,used_memory"
GPUS = "--query-gpu=index,uuid,memory.used,memory.total"
BARE = "--format=csv,noheader,nounits"
Ask = Callable[..., tuple[int, str]]
Until = Callable[[Callable[[], object]], None]


@pytest.fixture
def ask(lab: Lab) -> Iterator[Ask]:
    def run(*argv: str) -> tuple[int, str]:
        done = subprocess.run([lab.nvidia_smi, *argv], capture_output=True, text=True, check=False)
        assert done.stderr == ""  # its errors, too, are on stdout
        return done.returncode, done.stdout

    yield run
    lab.set_gpus(fail=None, hang=False, release_delay_s=0, rows=[], faults={}, inforom=False)


@pytest.fixture
def uuids(ask: Ask) -> list[str]:
    return [line.split(", ")[1] for line in ask(GPUS, BARE)[1].splitlines()]


def used(ask: Ask) -> list[int]:
    return [int(line.split(", ")[2]) for line in ask(GPUS, BARE)[1].splitlines()]


def test_nobody_there(ask: Ask, uuids: list[str]) -> None:
    assert ask(APPS, BARE) == (0, "")
    assert ask(APPS, "--format=csv") == (0, "gpu_uuid, pid, used_gpu_memory [MiB]\n")
    rows = "".join(f"{index}, {uuid}, 0, 81559\n" for index, uuid in enumerate(uuids))
    assert ask(GPUS, BARE) == (0, rows)


def test_one_row_for_each_gpu_and_process_with_host_pids(
    lab: Lab, vmid: int, ask: Ask, uuids: list[str]
) -> None:
    both = lab.start(vmid, ["--gpus", "0,1", "--gpu-mib", "2000"], log="/workspace/1.log")
    one = lab.start(vmid, ["--gpus", "1", "--gpu-mib", "300"], log="/workspace/2.log")
    rows = [
        f"{uuids[0]}, {both.host_pid}, 2000",
        *sorted(f"{uuids[1]}, {job.host_pid}, {mib}" for job, mib in ((both, 2000), (one, 300))),
    ]
    assert ask(APPS, BARE)[1].splitlines() == rows
    assert used(ask) == [2000, 2300]
    columns = "--query-compute-apps=pid,name,used_gpu_memory"
    _code, text = ask(columns, "--format=csv")
    assert text.splitlines()[:2] == [
        "pid, process_name, used_gpu_memory [MiB]",
        f"{both.host_pid}, python3, 2000 MiB",
    ]


def test_any_holder_counts_trainer_or_not(lab: Lab, vmid: int, ask: Ask) -> None:
    text = "exec setsid -f sleep 60 3<>/dev/nvidia1 >/dev/null 2>&1"
    job = lab.start(vmid, text, how="raw", trainers=0)
    assert [line.split(", ")[1:] for line in ask(APPS, BARE)[1].splitlines()] == [
        [str(job.host_pid), "1024"]
    ]


def test_ranks_hold_one_each(lab: Lab, vmid: int, ask: Ask, uuids: list[str]) -> None:
    job = lab.start(vmid, ["--ranks", "2"])
    assert ask(APPS, BARE)[1].splitlines() == [
        f"{uuids[rank]}, {process.pid}, 1024" for rank, process in enumerate(job.trainers)
    ]


def test_forked_workers_are_not_listed_but_keep_a_dead_parents_memory(
    lab: Lab, vmid: int, ask: Ask
) -> None:
    """The driver notes who opened the device; the memory goes with the last file descriptor."""
    job = lab.start(vmid, ["--workers", "2", "--worker-habit", "stuck", "--gpu-mib", "5000"])
    workers = descendants(job.host_pid)
    assert [line.split(", ")[1] for line in ask(APPS, BARE)[1].splitlines()] == [str(job.host_pid)]
    os.kill(job.host_pid, signal.SIGKILL)
    wait_gone([job.process], 10)
    assert ask(APPS, BARE) == (0, "")
    assert used(ask) == [5000, 0]
    for worker in workers:
        os.kill(worker.pid, signal.SIGKILL)
    wait_gone(workers, 10)
    assert used(ask) == [0, 0]


def test_a_late_release(lab: Lab, vmid: int, ask: Ask, until: Until) -> None:
    lab.set_gpus(release_delay_s=1.5)
    job = lab.start(vmid)
    os.kill(job.host_pid, signal.SIGKILL)
    wait_gone([job.process], 10)
    assert (used(ask), ask(APPS, BARE)[1]) == ([1024, 0], "")
    until(lambda: used(ask) == [0, 0])


def test_holders_elsewhere(lab: Lab, ask: Ask, uuids: list[str]) -> None:
    lab.set_gpus(rows=[{"gpu": 1, "pid": 1, "mib": 700}, {"gpu": 1, "pid": 4194303, "mib": 20}])
    _code, text = ask("--query-compute-apps=pid,process_name,used_memory", BARE)
    assert text.splitlines()[1] == "4194303, [Not Found], 20"
    assert used(ask) == [0, 720]


@pytest.mark.parametrize(
    ("fail", "code", "text"),
    [
        ("driver_mismatch", 18, "Failed to initialize NVML: Driver/library version mismatch\n"),
        ("no_driver", 9, "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA"),
        ("no_devices", 6, "No devices were found\n"),
        ("gpu_lost", 15, "Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost"),
    ],
)
def test_failures_speak_on_stdout(lab: Lab, ask: Ask, fail: str, code: int, text: str) -> None:
    lab.set_gpus(fail=fail)
    returned, said = ask(APPS, BARE)
    assert returned == code
    assert said.startswith(text)


def test_an_unknown_field_fails_the_whole_query(ask: Ask) -> None:
    assert ask("--query-gpu=index,frobs", BARE) == (
        2,
        'Field "frobs" is not a valid field to query.\n',
    )


def test_it_can_hang(lab: Lab) -> None:
    lab.set_gpus(hang=True)
    asking = subprocess.Popen([lab.nvidia_smi, APPS, BARE], stdout=subprocess.DEVNULL)
    with pytest.raises(subprocess.TimeoutExpired):
        asking.wait(timeout=0.4)
    asking.kill()
    asking.wait()
    lab.set_gpus(hang=False)


def test_an_unknown_knob_is_an_error(lab: Lab) -> None:
    with pytest.raises(TypeError, match="hangs"):
        lab.set_gpus(hangs=True)


def test_a_fault_stands_in_its_cells_beside_a_plain_zero(lab: Lab, ask: Ask) -> None:
    lab.set_gpus(faults={"0": "GPU requires reset", "1": "N/A"})
    code, text = ask("--query-gpu=index,temperature.gpu,memory.used", BARE)
    assert code == 0
    assert text.splitlines()[:2] == ["0, [GPU requires reset], 0", "1, 41, [N/A]"]


def test_odd_cells_of_a_holder(lab: Lab, ask: Ask, uuids: list[str]) -> None:
    hidden = "[Insufficient Permissions]"
    lab.set_gpus(
        rows=[{"gpu": 0, "pid": hidden, "mib": hidden}, {"gpu": 0, "pid": 77, "mib": "[N/A]"}]
    )
    assert ask(APPS, BARE)[1].splitlines() == [
        f"{uuids[0]}, 77, [N/A]",
        f"{uuids[0]}, {hidden}, {hidden}",
    ]


def test_a_corrupted_inforom_answers_and_fails(lab: Lab, ask: Ask) -> None:
    lab.set_gpus(inforom=True)
    code, text = ask(GPUS, BARE)
    assert code == 14
    assert text.splitlines()[0].startswith("0, GPU-")
    assert text.splitlines()[-1].startswith("WARNING: infoROM")
