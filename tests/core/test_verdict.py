"""What looks mean: one verdict with its evidence, for each member and for the job."""

from __future__ import annotations

import re

import msgspec
import pytest

from fleetstop.core.process import OpenFile
from fleetstop.core.verdict import ORDER, Judged, Look, Mark, Verdict, judge
from tests.core.habits import (
    CHECKPOINTS,
    DEAF,
    IGNORES_ALL,
    POLITE,
    SHRUGS,
    SUSPENDED,
    WORKER,
    WRITE_ONLY,
    Actor,
    Habit,
    World,
    job,
)

STOP = ("INT", "TERM")


def change(habit: Habit, **changes: object) -> Habit:
    return msgspec.structs.replace(habit, **changes)


def judged(
    world: World,
    *,
    after: float = 0.5,
    checkpoints: str | None = CHECKPOINTS,
    heard: bool = False,
    **seen: object,
) -> Judged:
    """Two looks, `after` seconds apart."""
    family, before = world.family(), world.look()
    marks = {a.id: Mark(ignored=a.masks().ignored, ticks=0) for a in world.actors if heard}
    world.advance(after)
    now = msgspec.structs.replace(world.look(), **seen)
    return judge(before, now, family, stop_signals=STOP, checkpoints=checkpoints, heard=marks)


class Scribe(Actor):
    """A trainer with these files open, growing so many bytes a second."""

    def __init__(self, *files: OpenFile, grows: int = 0) -> None:
        super().__init__(101, 1, ("python", "train.py"), POLITE)
        self.open, self.grows = files, grows

    def _files(self, now: float) -> list[OpenFile]:
        more = int((now - 1000.0) * self.grows)
        return [msgspec.structs.replace(f, pos=(f.pos or 0) + more) for f in self.open]


def scribe(
    target: str, *, fd: int = 7, flags: int | None = WRITE_ONLY, pos: int = 10, grows: int = 0
) -> World:
    world = World()
    world.add(Scribe(OpenFile(fd, target, flags, pos), grows=grows))
    return world


def test_the_order_is_the_contract() -> None:
    said = "unknown uninterruptible frozen deaf suspended respawned saving stopping stalled"
    assert list(ORDER) == [*said.split(), "busy", "zombie", "gone"]


def test_busy() -> None:
    found = judged(job(POLITE))
    assert (found.verdict, found.saving) == ("busy", False)
    assert found.evidence[0].startswith("CPU ")


def test_deaf_says_which_mask_and_why() -> None:
    found = judged(job(DEAF))
    assert found.verdict == "deaf"
    assert "101 ignores INT (SigIgn); it was started with & from a non-interactive shell" in (
        found.evidence
    )
    assert "INT and TERM" in judged(job(IGNORES_ALL)).evidence[0]
    blocked = change(POLITE, hears=(), blocks=STOP)
    assert judged(job(blocked)).evidence == ("101 blocks INT and TERM in every thread (SigBlk)",)


def test_deaf_only_where_no_stop_signal_works_and_for_trainers_only() -> None:
    assert judged(job(change(DEAF, hears=("TERM",)))).verdict == "busy"
    assert judged(job(POLITE, workers=1, worker=change(WORKER, ignores=STOP))).verdict == "busy"


def test_frozen_suspended_unknown_gone() -> None:
    assert judged(job(POLITE), frozen=True).verdict == "frozen"
    stopped = judged(job(SUSPENDED))
    assert stopped.verdict == "suspended"
    assert "state T" in stopped.evidence[0]
    traced = judged(job(change(POLITE, state="t", tracer=77)))
    assert "host PID 77" in traced.evidence[0]
    assert judged(job(change(POLITE, masks_seen=False))).verdict == "unknown"
    world = job(POLITE)
    family = world.family()
    world.actors.clear()
    found = judge(None, world.look(), family, stop_signals=STOP, checkpoints=None)
    assert (found.verdict, set(found.members.values())) == ("gone", {"gone"})


@pytest.mark.parametrize(("threads", "verdict"), [(1, "zombie"), (2, "busy")])
def test_a_zombie_has_one_thread(threads: int, verdict: Verdict) -> None:
    world = job(POLITE, wrapper=None)
    family, look = world.family(), world.look()
    dead = msgspec.structs.replace(look.tree.processes[101], state="Z", threads=threads)
    tree = msgspec.structs.replace(look.tree, processes={101: dead})
    now = Look(at=look.at, tree=tree)
    found = judge(None, now, family, stop_signals=STOP, checkpoints=None)
    assert found.verdict == verdict


def test_the_worst_of_the_trainers_is_the_jobs() -> None:
    found = judged(job(POLITE, DEAF, workers=1))
    assert found.verdict == "deaf"
    assert sorted(found.members.values()) == ["busy", "busy", "busy", "deaf"]


def test_once_no_trainer_is_left_the_others_are_judged() -> None:
    world = job(POLITE, workers=1, worker=change(WORKER, linger_s=99.0))
    family = world.family()
    world.actors[1].died = world.now
    found = judge(None, world.look(), family, stop_signals=STOP, checkpoints=None)
    assert found.verdict == "busy"


# Saving


@pytest.mark.parametrize("declared", ["/ck", "/ck/", None])
def test_a_growing_file_is_a_save_declared_or_not(declared: str | None) -> None:
    found = judged(scribe("/ck/a.pt", grows=1000), checkpoints=declared)
    assert (found.verdict, found.saving) == ("saving", True)
    assert re.fullmatch(r"a.pt open for writing by 101, \d+ bytes, growing", found.saves[0])


def test_a_file_that_stands_still_is_a_save_only_where_checkpoints_are() -> None:
    assert judged(scribe("/ck/a.pt")).saving
    assert not judged(scribe("/ck/a.pt"), checkpoints=None).saving
    assert not judged(scribe("/ckpt/a.pt")).saving  # no prefix of a name


@pytest.mark.parametrize(
    "world",
    [
        scribe("/ck/a.pt", fd=2, grows=1000),
        scribe("/ck/metrics", flags=WRITE_ONLY | 0o2000, grows=1000),
        scribe("/ck/a.pt", flags=0, grows=1000),
        scribe("/ck/a.pt", flags=None, grows=1000),
        scribe("/ck/train.log", grows=1000),
        scribe("/ck/events.out.tfevents.17.host", grows=1000),
        scribe("/dev/shm/x", grows=1000),
        scribe("pipe:[77]", grows=1000),
    ],
)
def test_what_is_no_checkpoint(world: World) -> None:
    assert judged(world).saving is False


def test_a_checkpoint_that_is_appended_to_is_a_save() -> None:
    """Torn by a signal it is lost like any other; a log's name says that it is none."""
    appended = scribe("/ck/a.pt", flags=WRITE_ONLY | 0o2000, grows=1000)
    assert judged(appended).saving


def test_shared_memory_is_a_save_only_where_checkpoints_are() -> None:
    assert judged(scribe("/dev/shm/ck/a.pt"), checkpoints="/dev/shm/ck").saving


def test_a_file_opened_and_written_between_two_looks_is_growing() -> None:
    world = job(change(POLITE, periodic=((1000.2, 1009.0),)))
    found = judged(world, checkpoints=None)
    assert found.saving
    assert found.saves[0].endswith("growing")


def test_a_file_by_a_worker_or_seen_only_in_the_listing_is_a_save() -> None:
    worker = change(WORKER, periodic=((0.0, 9999.0),))
    found = judged(job(POLITE, workers=1, worker=worker))
    assert found.verdict == "saving"
    assert "by 200" in found.saves[0]
    listed = judged(job(POLITE), changed=("step_5/model.pt",))
    assert (listed.verdict, listed.saves) == ("saving", ("model.pt growing",))
    once = judged(scribe("/ck/a name.pt", grows=1000), changed=("a name.pt",))
    assert len(once.saves) == 1


def test_what_could_not_be_seen_may_be_a_save() -> None:
    assert judged(job(POLITE), files_unseen="no directory").saving is None
    assert judged(job(change(POLITE, files_seen=False))).saving is None
    both = judged(job(change(POLITE, files_seen=False)), changed=("a.pt",))
    assert both.saving is True


# After a signal


def test_stopping_by_what_moves() -> None:
    found = judged(job(POLITE), heard=True)
    assert found.verdict == "stopping"
    assert (found.moves_cpu, found.moves_memory, found.moves_bytes) == (True, False, False)
    grows = judged(job(change(POLITE, grows_memory=True)), heard=True)
    assert grows.moves_memory
    assert "memory growing" in " ".join(grows.evidence)


def test_saving_after_the_signal_is_saving() -> None:
    world = job(POLITE)
    world.actors[1].receive("INT", world.now)
    found = judged(world, heard=True)
    assert (found.verdict, found.saving, found.moves_bytes) == ("saving", True, True)


def test_nothing_moves_after_the_signal() -> None:
    assert judged(job(change(POLITE, idle=True)), heard=True).verdict == "busy"


def test_new_steps_end_stopping() -> None:
    found = judged(job(SHRUGS), heard=True, trains_on=True)
    assert found.verdict == "busy"
    assert "trains on" in found.evidence[0]


def test_ears_shut_after_the_signal_are_stopping_not_deaf() -> None:
    world = job(change(POLITE, shuts_ears=True, idle=True, memory_s=9.0))
    family = world.family()
    marks = {world.actors[1].id: Mark(ignored=world.actors[1].masks().ignored, ticks=0)}
    world.actors[1].receive("INT", world.now)
    look = world.look()
    found = judge(look, look, family, stop_signals=STOP, checkpoints=None, heard=marks)
    assert found.verdict == "stopping"
    assert "now ignores" in found.evidence[0]


def test_without_a_look_before_nothing_has_moved() -> None:
    world = job(POLITE)
    found = judge(None, world.look(), world.family(), stop_signals=STOP, checkpoints=None)
    assert (found.verdict, found.evidence, found.moves_cpu) == ("busy", (), False)
