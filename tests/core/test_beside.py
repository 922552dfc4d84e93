"""What is in the way of a launch, and what is not."""

from __future__ import annotations

import json

import pytest

from fleetstop.core.gpu import Gpu, GpuView, Holder, Unseen
from fleetstop.core.inventory import Job, Match
from fleetstop.core.kin.family import Found, find
from fleetstop.core.launching.activator import ActivatorSpec, SwapFile
from fleetstop.core.launching.beside import beside
from fleetstop.core.launching.ended import Born
from fleetstop.core.launching.spec import LaunchSpec
from fleetstop.core.process import ProcessTree
from tests.core.trees import told

MATCH = Match(script="train.py")
JOB = Job(name="train", match=MATCH)
FREE = GpuView((Gpu(0, "GPU-0", 10, 80000), Gpu(1, "GPU-1", 10, 80000)), ())
RUNS = """
    100 bash run.sh
      130 python train.py
    140 vim train.py
"""
NOTHING = "140 vim train.py"


def held(pid: int | None, gpu: str = "GPU-0") -> GpuView:
    return GpuView(FREE.gpus, (Holder(gpu, pid, 4000),))


def seen(text: str) -> tuple[Found, ProcessTree]:
    tree = told(text).tree
    return find(tree, MATCH, JOB), tree


def test_nothing_in_the_way_is_nothing_said() -> None:
    found, tree = seen(NOTHING)
    assert beside(found, tree, FREE, (0, 1)) == beside(found, tree, FREE, None)
    assert beside(found, tree, FREE, (0,)).obstacles == ()


def test_one_that_runs_already_is_named_with_the_ways_on() -> None:
    [obstacle] = beside(*seen(RUNS), FREE, None).obstacles
    assert obstacle.reason.startswith("it runs already: 130 python train.py, up ")
    assert obstacle.verbs == ("restart", "stop")


def test_a_restart_s_own_family_is_no_obstacle_nor_are_its_gpus() -> None:
    found, tree = seen(RUNS)
    ours = found.families[0]
    assert beside(found, tree, held(130), (0,), ours).obstacles == ()
    [other] = beside(found, tree, held(140), (0,), ours).obstacles
    assert other.reason == "its own GPU is held by another: GPU 0, 4000 MiB by 140 vim train.py"


def test_what_would_start_it_again_is_in_the_way() -> None:
    [obstacle] = beside(*seen("100 torchrun train.py"), FREE, None).obstacles
    assert obstacle.reason == (
        "no trainer runs, but what would start one does: 100 torchrun train.py"
    )


@pytest.mark.parametrize(
    ("pid", "said"),
    [
        (140, "GPU 0, 4000 MiB by 140 vim train.py"),
        (999, "GPU 0, 4000 MiB by host PID 999, outside this place"),
        (None, "GPU 0, 4000 MiB by a process that hides"),
    ],
)
def test_whoever_holds_its_own_gpu_is_in_the_way(pid: int | None, said: str) -> None:
    found, tree = seen(NOTHING)
    [obstacle] = beside(found, tree, held(pid), (0,)).obstacles
    assert obstacle.reason == f"its own GPU is held by another: {said}"


def test_neighbours_on_other_gpus_do_not_matter() -> None:
    found, tree = seen(NOTHING)
    assert beside(found, tree, held(140, "GPU-1"), (0,)).obstacles == ()
    assert beside(found, tree, held(140), None).obstacles == ()


def test_who_has_shared_its_gpu_all_along_is_told_and_in_nobodys_way() -> None:
    """Only a launch would put two on one GPU; a restart changes nothing about that."""
    found, tree = seen(RUNS)
    ours = found.families[0]
    both = GpuView(FREE.gpus, (Holder("GPU-0", 130, 4000), Holder("GPU-0", 140, 1000)))
    assert beside(found, tree, both, (0,), ours).obstacles == ()
    [said] = beside(found, tree, both, (0,), ours).findings
    assert said == "it shares its GPU: GPU 0, 1000 MiB by 140 vim train.py"
    assert beside(found, tree, held(140), (0,), ours).obstacles


def test_what_could_not_be_seen_is_a_finding_and_never_free() -> None:
    found, tree = seen(NOTHING)
    blind = beside(found, tree, Unseen("nvidia-smi hangs"), (0, 1))
    assert blind.obstacles == ()
    assert blind.findings == ("whether GPU 0, 1 is free could not be seen: nvidia-smi hangs",)
    lost = GpuView((Gpu(0, "GPU-0", None, None, "is lost"),), ())
    assert beside(found, tree, lost, (0, 7)).findings == (
        "how much of GPU 0 is in use could not be seen",
        "the host has no GPU 7",
    )
    full = GpuView((Gpu(0, "GPU-0", 70000, 80000),), ())
    assert beside(found, tree, full, (0,)).findings == (
        "GPU 0: 70000 MiB are in use and belong to no listed process",
    )


def test_the_activator_is_told_everything_and_bytes_stay_bytes() -> None:
    launch = LaunchSpec(argv=("python3", "train.py"), cwd="/root", env={"A": "\udcff"}, log=None,
                        mark="m", status="/root/.fleetstop/train/status/m.json")  # fmt: skip
    spec = ActivatorSpec(
        run="7f3a", base="/root/.fleetstop/train", dest="/root", launch=launch,
        files=(SwapFile("/root/train.py", "/s/train.py", "ab", 3, 0o644, 0, 0),),
        gone=(Born(10, 99),), log_matches="tok/s",
    )  # fmt: skip
    told_ = json.loads(spec.text())
    assert told_["health"] == {"within_s": 10.0, "log_matches": "tok/s"}
    assert told_["gone"] == [{"pid": 10, "start": 99}]
    assert told_["files"][0]["path"] == "/root/train.py"
    assert told_["launch"]["env"] == {"A": "\udcff"}
    assert told_["launch_old"] is None
    assert (told_["schema"], told_["stale_s"], told_["keep"]) == (1, 30.0, 5)
