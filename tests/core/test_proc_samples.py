"""Recorded lines about processes that seem dead, stuck or absent: what they mean to our code."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from fleetstop.core.gpu import Gpu, GpuView, Holder
from fleetstop.core.gpus.occupancy import findings, occupancy
from fleetstop.core.inventory import Match
from fleetstop.core.kin.matching import matches
from fleetstop.core.process import Process, ProcessTree
from fleetstop.core.procfs import parse_look
from fleetstop.core.verdict import Look, judge
from tests.core.habits import POLITE, job
from tests.core.test_gpus import A, B, proc, sight

SAMPLES = Path(__file__).parents[1] / "samples" / "proc"
CLEAN = "".join(
    f"/proc/{{pid}}/status:{name}:\t{value}\n"
    for name, value in (
        *(("Uid", "0\t0\t0\t0"), ("NSpid", "{pid}"), ("TracerPid", "0")),
        *((name, "0" * 16) for name in ("SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt")),
    )
)


def lines(name: str) -> list[str]:
    return (SAMPLES / name).read_text().splitlines()


def seen(pid: int, stat: str, threads: int = 1) -> Process:
    """The process of a `stat` line as it was recorded, cut after its first fields."""
    head, _, rest = stat.rpartition(")")
    fields = rest.split()[:7]
    fields += ["0"] * (17 - len(fields)) + [str(threads), "0", "75000"]
    text = f"uptime:900.00\n/proc/{pid}/stat:{head}) {' '.join(fields)}\n" + CLEAN.format(pid=pid)
    tree = parse_look(text.encode(), 100)
    assert tree is not None
    return tree.processes[pid]


def test_a_dead_leader_with_a_living_thread_is_alive() -> None:
    told = lines("zombie_leader_with_live_thread.txt")
    threads = next(int(each.split()[1]) for each in told if each.startswith("Threads:"))
    stat = next(each for each in told if each.startswith("8941 ("))
    one = seen(8941, stat, threads)
    assert (one.state, one.zombie, one.alive, one.headless) == ("Z", False, True, True)
    # its command line is empty, so no pattern finds it: what it holds is asked of its threads
    assert not matches(Match(script="train.py"), one)


def test_a_plain_zombie_is_no_living_process() -> None:
    stat = lines("zombie_plain.txt")[0]
    one = seen(9009, stat)
    assert (one.state, one.zombie, one.alive, one.gpus) == ("Z", True, False, ())
    assert not matches(Match(pid=9009), one)


def test_one_look_at_d_is_not_uninterruptible() -> None:
    first, second = lines("d_state_killable_vfork.txt")
    pid, state = re.fullmatch(r"(\d+) \(vf2\) (\w)", first).groups()  # type: ignore[union-attr]
    wchan = re.match(r"wchan=(\w+)", second)
    assert (pid, state, wchan and wchan[1]) == ("10801", "D", "kernel_clone")
    world = job(POLITE)
    family, look = world.family(), world.look()
    stuck = {
        number: msgspec.structs.replace(each, state=state)
        for number, each in look.tree.processes.items()
    }
    tree = ProcessTree(processes=stuck, uptime=look.tree.uptime)
    found = judge(
        None, Look(at=look.at, tree=tree), family, stop_signals=("INT", "TERM"), checkpoints=None
    )
    assert found.verdict != "uninterruptible"


def test_a_name_longer_than_comm_is_asked_with_f() -> None:
    """Without -f procps would warn on stderr and end with 1, which reads as `nobody`."""
    told = lines("pgrep_15_chars.txt")
    assert told[-1] == "1"
    assert "Try `pgrep -f'" in "\n".join(told)
    boot = Path(__file__).parents[2] / "fleetstop" / "remote" / "scripts" / "boot.sh"
    asked = re.findall(r"^pgrep_\(\) .*$", boot.read_text(), re.MULTILINE)
    assert len(asked) == 1
    assert " pgrep -f -- " in asked[0]


@pytest.mark.parametrize(("listed", "state"), [(True, "held"), (False, "unlisted")])
def test_an_open_device_is_no_memory_on_that_gpu(listed: bool, state: str) -> None:
    """It has eight GPUs open and works on one."""
    told = [re.match(r"/dev/nvidia(\d): +\w+ +(\d+)", each) for each in lines("fuser_nvidia.txt")]
    open_in = {(int(each[2]), int(each[1])) for each in told if each is not None}
    ((pid,), minors) = {each for each, _ in open_in}, {each for _, each in open_in}
    assert minors == {0, 1, 7}
    around = sight(proc(pid, 41), openers={pid: minors})
    rows = (Holder(A, pid, 9000),) if listed else ()
    first, other = occupancy(GpuView((Gpu(0, A, 9000, 81559), Gpu(1, B, 0, 81559)), rows), around)
    assert (first.state, other.state, other.held_by) == (state, "idle", ())
    assert [each.host_pid for each in first.held_by or ()] == [pid]


def test_memory_whose_listed_owner_is_gone_is_not_free() -> None:
    (told,) = lines("gpustat_null_process.txt")
    used, total = map(int, re.findall(r"(\d+) / (\d+) MB", told)[0])
    around = sight(openers={})
    gpu = occupancy(GpuView((Gpu(6, A, used, total),), (Holder(A, 4711, used),)), around)[0]
    assert (gpu.state, gpu.held_mib) == ("held", 10151)
    (finding,) = findings((gpu,), around, None)
    assert "host PID 4711, which is not there" in finding
    assert "nobody is seen to have /dev/nvidia* open" in finding
    bare = occupancy(GpuView((Gpu(6, A, used, total),), ()), around)[0]
    assert (bare.state, bare.unlisted_mib) == ("unlisted", 10151)
