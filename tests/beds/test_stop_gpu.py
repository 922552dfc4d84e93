"""`stop HOST --gpu N`: the one job on that GPU is stopped, and nobody beside it loses anything."""

from __future__ import annotations

import os
import random
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetstop.lab import Lab, Started

from .bed import Bed, Ran, alive, lives, until

pytestmark = [pytest.mark.bed, pytest.mark.timeout(300)]
Pair = tuple[Bed, Bed]


@pytest.fixture
def pair(bed: None) -> Iterator[Pair]:
    """Two containers of one host; all that runs in them is ended with them."""
    root = Path(tempfile.mkdtemp(prefix="fsg-", dir="/tmp"))
    first = random.randrange(20_000, 900_000_000, 100)
    with Lab.up(root, 2, gpus=4, first_vmid=first) as made:
        made.set_gpus(release_delay_s=0.3)
        yield Bed(made, made.vmids[0]), Bed(made, made.vmids[1])
    for vmid in made.vmids:
        shutil.rmtree(f"/run/lock/fleetstop.{vmid}", ignore_errors=True)
    shutil.rmtree(root, ignore_errors=True)


def stop(box: Bed, gpu: int, *more: str) -> Ran:
    return box.run("stop", "lab1", "--gpu", str(gpu), *more)


def untouched(box: Bed, *jobs: Started) -> None:
    for job in jobs:
        assert lives(job)
        assert box.signals_seen(job) == 0


def test_the_job_on_the_gpu_is_stopped_and_the_neighbours_on_others_train_on(pair: Pair) -> None:
    ours, theirs = pair
    job = ours.start("--gpus", "3")
    other = theirs.start("--gpus", "1")
    ran = stop(ours, 3, "--graceful")
    assert (ran.code, ran.target["result"]) == (0, "stopped"), ran.people
    assert ran.target["target"] == f"{ours.name}:train"
    assert ran.signals == [("INT", [job.pid])]
    assert ours.saved()
    assert not lives(job)
    untouched(theirs, other)
    assert theirs.lock_files() == []


def test_killing_the_one_on_a_gpu_costs_the_neighbour_no_checkpoint(pair: Pair) -> None:
    """The wrong choice would kill the neighbour, and what it has not saved would be lost."""
    ours, theirs = pair
    job, other = ours.start("--gpus", "3"), theirs.start("--gpus", "1")
    ran = stop(ours, 3, "--playbook", "now", "--force")
    assert ran.target["target"] == f"{ours.name}:train", ran.people
    assert not lives(job)
    untouched(theirs, other)
    # by the other number it is the other's turn, and its work is still there to be saved
    ran = stop(theirs, 1, "--graceful")
    assert (ran.code, ran.target["target"]) == (0, f"{theirs.name}:train"), ran.people
    assert theirs.saved()


def test_two_containers_on_one_gpu_are_refused_with_both_and_nothing_is_sent(pair: Pair) -> None:
    ours, theirs = pair
    job, other = ours.start("--gpus", "2"), theirs.start("--gpus", "2,3")
    ran = stop(ours, 2, "--playbook", "now", "--force")
    assert (ran.code, ran.target["result"]) == (5, "refused"), ran.people
    assert "several that are not one job" in ran.target["reason"]
    assert sorted(each.rpartition("(host ")[2].rstrip(")") for each in ran.target["evidence"]) == (
        sorted([str(job.process.pid), str(other.process.pid)])
    )
    untouched(ours, job)
    untouched(theirs, other)
    # on GPU 3 there is one alone; and both still have what they can save
    ran = stop(ours, 3, "--graceful")
    assert (ran.code, ran.target["target"]) == (0, f"{theirs.name}:train"), ran.people
    untouched(ours, job)
    assert stop(ours, 2, "--graceful").code == 0
    assert ours.saved()
    assert theirs.saved()


def test_what_has_no_name_in_the_inventory_is_stopped_by_its_pid(
    pair: Pair, tmp_path: Path
) -> None:
    ours, theirs = pair
    text = ours.lab.inventory.read_text()
    bare = tmp_path / "fleet.yaml"
    bare.write_text(text[: text.index("containers:")])
    job, other = ours.start("--gpus", "0"), theirs.start("--gpus", "1")
    ran = ours.run(*("stop", "lab1", "--gpu", "0", "--graceful", "--signal", "INT"), inventory=bare)
    assert (ran.code, ran.target["result"]) == (0, "stopped"), ran.people
    assert ran.target["vmid"] == ours.vmid
    assert ran.signals == [("INT", [job.pid])]
    assert ours.saved()
    untouched(theirs, other)


def test_idle_is_done_and_unlisted_memory_is_refused(pair: Pair) -> None:
    ours, theirs = pair
    other = theirs.start("--gpus", "1")
    ran = stop(ours, 0)
    assert (ran.code, ran.target["result"], ran.target["reason"]) == (
        *(0, "not_running"),
        "nobody is on GPU 0",
    )
    job = ours.start("--gpus", "2", "--workers", "1", "--worker-habit", "stuck")
    os.kill(job.process.pid, signal.SIGKILL)
    until(lambda: not alive(job.process.pid, job.process.start))
    ran = stop(ours, 2, "--force")
    assert (ran.code, ran.target["result"]) == (5, "refused"), ran.people
    assert any("an orphan" in each for each in ran.target["evidence"])
    ours.lab.set_gpus(fail="driver_mismatch")
    ran = stop(ours, 1, "--force")
    assert (ran.code, ran.target["result"]) == (4, "unreachable"), ran.people
    untouched(theirs, other)


def test_a_protected_neighbourhood_stays_protected(pair: Pair, tmp_path: Path) -> None:
    ours, _ = pair
    job = ours.start("--gpus", "0")
    text = ours.lab.inventory.read_text()
    guarded = tmp_path / "fleet.yaml"
    guarded.write_text(
        text.replace(f"vmid: {ours.vmid}", f"vmid: {ours.vmid}\n    protected: true")
    )
    assert "protected: true" in guarded.read_text()
    ran = ours.run("stop", "lab1", "--gpu", "0", "--force", inventory=guarded)
    assert (ran.code, ran.target["result"]) == (5, "refused"), ran.people
    untouched(ours, job)


@pytest.mark.parametrize("words", [("ct", "--gpu", "0"), ("lab1", "--gpu", "0", "--pid", "7")])
def test_what_cannot_be_meant_is_a_usage_error(pair: Pair, words: tuple[str, ...]) -> None:
    ours, _ = pair
    first = ours.name if words[0] == "ct" else words[0]
    assert ours.run("stop", first, *words[1:]).code == 2
