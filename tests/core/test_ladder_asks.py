"""Stories of rungs that are no plain signal: run, touch, keys, await, again, when and unless."""

from __future__ import annotations

import msgspec
import pytest

from fleetstop.core.climbing.consent import Consent
from fleetstop.core.ladder import Arrived, Enter, Held
from fleetstop.core.ledger import Heard
from fleetstop.core.playbook import Does, Hold, Playbook, Rung
from tests.core.habits import (
    DEAF,
    DRAINS,
    FOREVER,
    POLITE,
    SHRUGS,
    Climbed,
    Habit,
    World,
    climb,
    job,
    rung,
)

FORCED: Consent = "given"
OBEYS = msgspec.structs.replace(DEAF, obeys_asks=("TOUCH", "RUN", "KEYS"))


def change(habit: Habit, **changes: object) -> Habit:
    return msgspec.structs.replace(habit, **changes)


def book(*rungs: Rung, lossless: bool = False, hold: Hold | None = Hold()) -> Playbook:  # noqa: B008
    return Playbook(name="asks", ladder=rungs, lossless=lossless, hold=hold)


def ask(does: Does, argument: str = "/x", wait_s: float = 30.0, **more: object) -> Rung:
    return msgspec.structs.replace(Rung("", "trainers", wait_s, does, argument), **more)


TOUCH = ask("touch", "/workspace/STOP")
RUN = ask("run", "/root/save.sh")
KEYS = ask("keys", "C-s")
AWAIT = ask("await", "checkpoint", 3600.0)
KILL = rung("KILL:tree/5")


def trainer_of(world: World) -> list[str]:
    return world.actors[1].heard


# Asks


def test_a_touch_is_an_ask_that_needs_no_consent() -> None:
    world = job(OBEYS)
    run = climb(world, book(TOUCH, lossless=True))
    assert (run.end.how, run.signals) == ("gone", ["TOUCH"])
    assert (run.sends[0].does, run.sends[0].argument) == ("touch", "/workspace/STOP")
    assert (run.sends[0].landing, run.sends[0].lossy) == ("asked", False)
    assert world.actors[1].saved


@pytest.mark.parametrize("each", [RUN, KEYS])
def test_run_and_keys_may_lose_work_unless_somebody_vouches(each: Rung) -> None:
    absent = climb(job(OBEYS), book(each), tmux=True)
    assert (absent.end.how, absent.signals) == ("refused", [])
    assert "vouches" in absent.skips[0].reason
    forced = climb(job(OBEYS), book(each), consent=FORCED, tmux=True)
    assert forced.end.how == "gone"
    assert forced.sends[0].lossy
    lossless = climb(job(OBEYS), book(each, lossless=True), consent=FORCED, tmux=True)
    assert lossless.signals == []
    vouched = climb(job(OBEYS), book(ask(each.does, lossless=True), lossless=True), tmux=True)
    assert (vouched.end.how, vouched.sends[0].lossy) == ("gone", False)


def test_keys_without_a_tmux_match_are_skipped_with_the_reason() -> None:
    run = climb(job(OBEYS), book(KEYS), consent=FORCED)
    assert (run.end.how, run.signals) == ("trainers_alive", [])
    assert "tmux" in run.skips[0].reason


@pytest.mark.parametrize("does", ["run", "touch", "keys"])
def test_no_ask_goes_out_into_a_running_save(does: Does) -> None:
    """The wrong choice loses the checkpoint: whoever leaves in the middle of it cuts it."""
    world = job(change(OBEYS, periodic=((990.0, 1020.0),)))
    run = climb(world, book(ask(does, lossless=True)), tmux=True)
    assert run.end.how == "gone"
    assert run.when(0) >= 20.0 + 0.2
    assert not world.actors[1].lost


def test_an_ask_into_the_save_would_lose_it() -> None:
    """The story's own proof: without the hold it is cut."""
    world = job(change(OBEYS, periodic=((990.0, 1020.0),)))
    climb(world, book(ask("run", lossless=True), hold=None))
    assert world.actors[1].lost


@pytest.mark.parametrize("does", ["run", "touch", "keys"])
def test_after_an_ask_a_signal_is_a_second_one(does: Does) -> None:
    """TERM while it saves because of the stop file would cut that save."""
    world = job(change(OBEYS, hears=("TERM",), file_s=50.0))
    run = climb(world, book(ask(does, wait_s=2.0, lossless=True), rung("TERM/2")), tmux=True)
    assert run.signals == [run.sends[0].signal]
    assert world.actors[1].saved
    shrugs = job(change(OBEYS, hears=("TERM",), obeys_asks=(), idle=True))
    run = climb(shrugs, book(ask(does, wait_s=2.0, lossless=True), rung("TERM/2")), tmux=True)
    assert len(run.signals) == 1
    assert "heard a signal already" in run.skips[0].reason


@pytest.mark.parametrize("does", ["run", "touch", "keys"])
def test_a_later_run_asks_no_second_time(does: Does) -> None:
    world = job(change(OBEYS, file_s=20.0))
    each = book(ask(does, lossless=True), lossless=True)
    past = climb(world, each, most_s=2.0, tmux=True).heard(world.family())
    assert {heard.signal for heard in past.values()} == {does.upper()}
    run = climb(world, each, past=past, tmux=True)
    assert (run.end.how, run.signals) == ("gone", [])
    assert [step.signal for step in run.watched] == [does.upper()]
    assert world.actors[1].saved


def test_a_signal_of_a_later_run_is_no_way_round_an_ask() -> None:
    world = job(change(OBEYS, hears=("INT",), ignores=(), file_s=30.0))
    past = climb(world, book(TOUCH), most_s=2.0).heard(world.family())
    run = climb(world, book(rung("INT/3m")), past=past)
    assert (run.end.how, run.signals) == ("gone", [])
    assert world.actors[1].saved


def test_ranks_are_asked_together_or_not_at_all() -> None:
    world = job(OBEYS, OBEYS)
    run = climb(world, book(TOUCH))
    assert [kin.id.pid for kin in run.sends[0].recipients] == [101, 102]


# Again


def drain(budget: float = 20.0, **second: object) -> Playbook:
    again = msgspec.structs.replace(rung("INT/30"), **{"again": True, "lossless": True, **second})
    return book(rung(f"INT/{budget}"), again, lossless=True, hold=Hold(stopping_s=3.0))


def test_a_server_gets_its_second_int_after_the_drain_budget() -> None:
    world = job(DRAINS)
    run = climb(world, drain())
    assert (run.end.how, run.signals) == ("gone", ["INT", "INT"])
    assert 20.0 + 3.0 <= run.when(1) - run.when(0) < 30.0
    assert not run.sends[1].lossy


def test_again_alone_is_a_second_signal_and_lossy() -> None:
    run = climb(job(DRAINS), drain(lossless=False))
    assert run.signals == ["INT"]
    hard = msgspec.structs.replace(drain(lossless=False), lossless=False)
    assert climb(job(DRAINS), hard).signals == ["INT"]
    quiet = change(DRAINS, idle=True)  # no hold is what stops it
    assert climb(job(quiet), drain(lossless=False)).signals == ["INT"]
    asked = climb(job(quiet), hard)
    assert asked.signals == ["INT"]
    assert asked.skips[-1].consent
    forced = climb(job(DRAINS), hard, consent=FORCED)
    assert forced.signals == ["INT", "INT"]
    assert forced.sends[1].lossy


def test_a_second_int_never_cuts_a_save_even_where_somebody_vouches() -> None:
    """A trainer under the server's playbook: it saves for longer than the budget."""
    world = job(change(POLITE, file_s=100.0))
    run = climb(world, drain(5.0))
    assert (run.end.how, run.signals) == ("gone", ["INT"])
    assert world.actors[1].saved


@pytest.mark.parametrize("late", [0.05 * n for n in range(12)])
def test_a_save_that_begins_with_the_second_int_is_not_cut(late: float) -> None:
    """The budget is over, and in the two looks before the second INT a save begins."""
    quiet = change(DRAINS, idle=True)
    due = climb(job(quiet), drain(5.0)).when(1)
    world = job(quiet)
    start = world.at(due - 0.4 + late)
    world = job(change(quiet, periodic=((start, start + 20.0),)))
    run = climb(world, drain(5.0))
    assert run.signals == ["INT", "INT"]
    assert not world.actors[1].lost


def test_a_later_run_repeats_the_second_int_no_more_than_the_first() -> None:
    world = job(change(DRAINS, leaving_s=20.0))
    family = world.family()
    first = climb(world, drain(5.0), most_s=15.0)
    assert first.signals == ["INT", "INT"]
    past = {each: Heard("first", "INT", 1.0, times=2) for each in first.heard(family)}
    second = climb(world, drain(5.0), past=past)
    assert (second.end.how, second.signals) == ("gone", [])
    assert len(second.watched) == 2
    assert world.actors[1].heard == ["INT", "INT"]
    assert not world.actors[1].lost


def test_a_later_run_goes_on_where_the_first_one_was() -> None:
    world = job(DRAINS)
    past = climb(world, drain(5.0), most_s=2.0).heard(world.family())
    run = climb(world, drain(5.0), past=past)
    assert (run.end.how, run.signals, len(run.watched)) == ("gone", ["INT"], 1)
    assert world.actors[1].heard == ["INT", "INT"]


# When and unless


def test_when_and_unless_go_by_the_verdict_of_the_look() -> None:
    deaf = msgspec.structs.replace(TOUCH, when=("deaf",))
    world = job(OBEYS)
    assert climb(world, book(rung("INT/5"), deaf)).signals == ["TOUCH"]
    busy = climb(job(POLITE), book(deaf))
    assert (busy.end.how, busy.signals) == ("trainers_alive", [])
    assert busy.skips[0].reason == "only for a job that is deaf, and it is busy"
    unless = msgspec.structs.replace(rung("INT/5"), unless=("busy", "stalled"))
    skipped = climb(job(POLITE), book(unless))
    assert skipped.skips[0].reason == "not for a job that is busy or stalled, and it is busy"


def test_an_await_for_another_verdict_is_skipped_too() -> None:
    run = climb(job(POLITE), book(msgspec.structs.replace(AWAIT, when=("deaf",)), rung("INT/5")))
    assert run.signals == ["INT"]
    assert run.skips[0].signal == "AWAIT"


# Await


def awaited(run: Climbed) -> list[str | None]:
    return [step.name for _, step in run.steps if isinstance(step, Arrived)]


def test_the_rung_after_an_await_follows_its_checkpoint_at_once() -> None:
    world = job(change(DEAF, periodic=((1300.0, 1310.0),)))
    world.complete = [400.0]
    run = climb(world, book(AWAIT, KILL), consent=FORCED)
    assert (run.end.how, run.signals) == ("gone", ["KILL"])
    assert awaited(run) == ["own_0"]
    assert 310.0 <= run.when(0) < 310.0 + 2.5
    assert not world.actors[1].lost


def test_an_await_that_comes_to_nothing_is_over_after_its_wait() -> None:
    run = climb(job(DEAF), book(ask("await", "checkpoint", 20.0), KILL), consent=FORCED)
    assert run.signals == ["KILL"]
    assert 20.0 <= run.when(0) < 23.0
    assert awaited(run) == [None]


def test_an_await_that_cannot_see_is_skipped_with_its_reason() -> None:
    world = job(POLITE)
    world.risk_seen = False
    run = climb(world, book(AWAIT, rung("INT/5")))
    assert run.signals == ["INT"]
    assert 10.0 <= run.when(0) < 13.0
    assert "could not be looked at" in run.skips[0].reason
    undeclared = climb(job(POLITE), book(AWAIT, rung("INT/5")), checkpoints=None)
    assert undeclared.when(0) < 1.0
    assert "checkpoints:" in undeclared.skips[0].reason


def test_a_checkpoint_that_is_deleted_brings_no_newer_one() -> None:
    """Rotation: the newest goes away, the one before it comes to the fore and is older."""
    world = job(POLITE)
    world.complete = [900.0, 990.0]
    ladder = book(ask("await", "checkpoint", 30.0), rung("INT/5"))
    family = world.family()
    run = climb(world, ladder, most_s=5.0, family=family)
    world.complete.pop()
    run = climb(world, ladder, family=family)
    assert awaited(run) == [None]


def test_an_await_ends_with_the_job() -> None:
    world = job(change(DEAF, linger_s=0.0))
    world.actors[1].parent_ended = world.at(20.0)
    run = climb(world, book(AWAIT, KILL), consent=FORCED)
    assert (run.end.how, run.signals) == ("gone", [])


def test_an_await_is_entered_once_and_held_by_nothing() -> None:
    world = job(change(DEAF, periodic=((1005.0, 1010.0),)))
    run = climb(world, book(AWAIT, KILL), consent=FORCED)
    entered = [step.signal for _, step in run.steps if isinstance(step, Enter)]
    assert entered == ["AWAIT", "KILL"]
    assert not [step for at, step in run.steps if isinstance(step, Held) and at < 1010.0]


def test_a_wait_for_ever_is_one() -> None:
    run = climb(job(SHRUGS), book(ask("await", "checkpoint", FOREVER)), most_s=9000.0)
    assert run.end.reason.startswith("it was still waiting")
