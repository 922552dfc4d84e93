"""Which one job a stop of a GPU means; whatever is not certain is refused, with who is on it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fleetstop.core.gpu import Gpu, GpuView, Holder
from fleetstop.core.gpus.occupancy import Sight, occupancy
from fleetstop.core.gpus.sole import Held, sole
from fleetstop.core.gpus.whereabouts import Known
from fleetstop.core.inventory import Job, Match
from fleetstop.core.process import Detail, OpenFile, Process, ProcessId
from fleetstop.errors import Refused
from tests.core.test_gpus import TRAIN, A, B, proc, sight


def opened(process: Process) -> Process:
    node = OpenFile(fd=5, target="/dev/nvidia0", flags=2, pos=0)
    return msgspec.structs.replace(process, detail=Detail(files=(node,), cwd="/root"))


def trainer(pid: int, inner: int, **more: Any) -> Process:
    return opened(proc(pid, inner, **more))


def chosen(seen: Sight, *rows: Holder, index: int = 0, used: int | None = None) -> Held | None:
    memory = sum(each.mib or 0 for each in rows if each.uuid == A) if used is None else used
    other = sum(each.mib or 0 for each in rows if each.uuid == B)
    view = GpuView((Gpu(0, A, memory, 81559), Gpu(1, B, other, 81559)), rows)
    pids = frozenset(each.pid for each in rows if each.pid is not None)
    return sole(occupancy(view, seen), index, seen, pids, "pve1")


def refused(seen: Sight, *rows: Holder, **more: Any) -> Refused:
    with pytest.raises(Refused) as raised:
        chosen(seen, *rows, **more)
    return raised.value


def test_a_job_of_the_inventory_is_meant_by_its_name() -> None:
    seen = sight(trainer(9041, 41), trainer(8041, 41, vmid=300), openers={})
    held = chosen(seen, Holder(A, 9041, 500), Holder(B, 8041, 500))
    assert held == Held(200, "ct200:train", None, ProcessId(9041, 90410))


def test_one_without_a_name_is_meant_by_its_own_pid_in_its_own_container() -> None:
    seen = sight(trainer(9041, 41), trainer(8042, 42, vmid=300), openers={})
    held = chosen(seen, Holder(A, 9041, 500), Holder(B, 8042, 500), index=1)
    assert held == Held(300, None, 42, ProcessId(8042, 80420))


def test_an_idle_gpu_is_nobodys() -> None:
    assert chosen(sight(openers={}), Holder(B, 9041, 500)) is None


def test_a_neighbour_on_the_same_gpu_is_refused_with_both() -> None:
    for other in (trainer(8041, 41, vmid=300), trainer(8041, 71, argv=("python3", "eval.py"))):
        seen = sight(trainer(9041, 41), other, openers={})
        told = refused(seen, Holder(A, 9041, 500), Holder(A, 8041, 500))
        assert "several that are not one job" in told.message
        assert len(told.evidence) == 2
        # the first of them may not be chosen on the other's GPU either
        assert chosen(seen, Holder(A, 9041, 500), Holder(B, 8041, 1), index=0) is not None


def test_two_jobs_of_the_inventory_on_one_gpu_are_refused() -> None:
    places = {
        200: Known("ct200", (TRAIN, Job(name="eval", match=Match(script="eval.py")))),
        300: Known("ct300", (TRAIN,)),
    }
    for other in (
        trainer(8041, 41, vmid=300),
        trainer(8041, 71, argv=("python3", "eval.py")),
    ):
        seen = sight(trainer(9041, 41), other, openers={}, places=places)
        told = refused(seen, Holder(A, 9041, 500), Holder(A, 8041, 500))
        assert "several that are not one job" in told.message


def test_two_unnamed_trees_in_one_container_are_refused() -> None:
    first, other = (trainer(pid, pid - 8000, vmid=300) for pid in (8041, 8042))
    seen = sight(first, other, openers={})
    assert "several" in refused(seen, Holder(A, 8041, 5), Holder(A, 8042, 5)).message


def test_ranks_without_a_name_are_meant_by_what_runs_them_all() -> None:
    """One rank's PID would stop one of two: the launcher then ends the other, unsaved."""
    over = proc(8040, 40, vmid=300, argv=("/usr/bin/torchrun", "train.py"))
    ranks = [trainer(pid, pid - 8000, vmid=300, ppid=8040) for pid in (8041, 8042)]
    seen = sight(over, *ranks, openers={})
    held = chosen(seen, Holder(A, 8041, 5), Holder(B, 8042, 5))
    assert held == Held(300, None, 40, ProcessId(8041, 80410))


def test_a_job_of_several_trees_is_not_stopped_for_one_gpu() -> None:
    """The others are on other GPUs; `all: true` would end them with it."""
    every = msgspec.structs.replace(TRAIN, match=Match(script="train.py", all=True))
    seen = sight(
        trainer(9041, 41),
        trainer(9042, 42),
        openers={},
        places={200: Known("ct200", (every,))},
    )
    told = refused(seen, Holder(A, 9041, 5), Holder(B, 9042, 5))
    assert "2 unrelated trees are that job" in told.message


def test_a_job_that_only_the_container_can_tell_is_to_be_named() -> None:
    by_words = Job(name="serve", match=Match(pgrep="train"))
    seen = sight(trainer(9041, 41), openers={}, places={200: Known("ct200", (by_words,))})
    told = refused(seen, Holder(A, 9041, 5))
    assert "may be ct200:serve" in told.message


def test_a_process_of_two_jobs_is_refused() -> None:
    twice = Known("ct200", (TRAIN, Job(name="again", match=Match(script="/root/train.py"))))
    seen = sight(trainer(9041, 41), openers={}, places={200: twice})
    assert "matched by several jobs" in refused(seen, Holder(A, 9041, 5)).message


@pytest.mark.parametrize(
    ("rows", "used", "said"),
    [
        ((), 5000, "nobody is listed"),
        ((Holder(A, None, None),), 5000, "not seen as a process"),
        ((Holder(A, 4711, 5000),), 5000, "not seen as a process"),
        ((Holder("", 9041, 5),), 5000, "not seen as a process"),
    ],
)
def test_what_is_not_seen_is_refused(rows: tuple[Holder, ...], used: int, said: str) -> None:
    seen = sight(trainer(9041, 41), openers={9041: {0}})
    assert said in refused(seen, *rows, used=used).message


def test_a_gpu_that_is_not_there_or_at_fault_is_refused() -> None:
    seen = sight(openers={})
    assert refused(seen, index=7).message == "pve1 has no GPU 7; it has 0, 1"
    broken = GpuView((Gpu(0, A, None, None, "requires reset"),), (Holder(A, 9041, 5),))
    with pytest.raises(Refused, match="no stop frees it"):
        sole(occupancy(broken, seen), 0, seen, frozenset(), "pve1")
