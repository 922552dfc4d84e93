"""Stories of consent: questions while the job lives on, limited losses, after a checkpoint."""

from __future__ import annotations

import msgspec
import pytest

from fleetstop.core.climbing.consent import Terms, newer, too_much
from fleetstop.core.ladder import Held
from fleetstop.core.playbook import Hold
from fleetstop.core.saves.risk import AtRisk
from tests.core.habits import (
    DEAF,
    FOREVER,
    GRACEFUL,
    IGNORES_ALL,
    NOW,
    POLITE,
    SHRUGS,
    STANDARD,
    WORKER,
    Habit,
    World,
    climb,
    job,
    short,
)


def change(habit: Habit, **changes: object) -> Habit:
    return msgspec.structs.replace(habit, **changes)


def saved_at(world: World, *ages: float) -> World:
    """The same world with complete checkpoints of these ages."""
    world.complete = [world.now - age for age in ages]
    return world


# Questions


def test_a_question_comes_at_the_rung_and_names_what_is_lost() -> None:
    run = climb(saved_at(job(DEAF), 1080.0), STANDARD, answers=[(5.0, True)])
    (at, question), *others = run.asked
    assert question.risk is None or question.risk.job_s is not None
    assert others == []
    assert (question.signal, question.pids, question.landing) == ("TERM", (101,), "fatal")
    assert question.verdict == "deaf"
    assert question.risk is not None
    assert question.risk.age_s == pytest.approx(1080.0, abs=2.0)
    assert "no handler" in question.why
    assert (run.end.how, run.signals) == ("gone", ["TERM"])
    # asked after two calm looks, and after the answer two more
    assert run.when(0) >= at - run.began + 5.0 + 0.2


def test_a_no_skips_the_rung_and_sends_nothing() -> None:
    run = climb(job(IGNORES_ALL), STANDARD, answers=[(1.0, False)])
    assert (run.end.how, run.signals) == ("trainers_alive", [])
    assert run.skips[-1].reason.endswith("The answer was no.")
    assert "the answer was no" in run.end.reason


def test_each_rung_asks_for_itself() -> None:
    world = job(change(DEAF, hears=("TERM",), obeys=False, idle=True))
    run = climb(world, short("TERM/2 KILL:tree/5"), answers=[(1.0, True)])
    assert (run.end.how, run.signals) == ("gone", ["TERM", "KILL"])
    assert [q.signal for _, q in run.asked] == ["KILL"]


def test_a_no_is_one_to_what_would_be_asked_for_in_the_same_breath() -> None:
    """Nobody who spares a run from TERM is asked the next moment whether KILL may have it."""
    run = climb(job(DEAF), STANDARD, answers=[(1.0, False), (1.0, True)])
    ((_, question),) = run.asked
    assert (question.signal, question.beyond) == ("TERM", ("KILL",))
    assert (run.end.how, run.signals) == ("trainers_alive", [])
    assert [each.signal for each in run.skips if "The answer was no." in each.reason] == [
        "TERM", "KILL",
    ]  # fmt: skip
    # a checkpoint that is awaited, or a signal that is heard, makes it another question
    waited = saved_at(job(DEAF), 1080.0)
    ladder = short("TERM/2 await:checkpoint/5 KILL:tree/5")
    run = climb(waited, ladder, answers=[(1.0, False), (1.0, True)])
    assert [(q.signal, q.beyond) for _, q in run.asked] == [("TERM", ()), ("KILL", ())]
    assert run.signals == ["KILL"]
    shrugs = job(change(POLITE, obeys=False, idle=True))
    ladder = short("KILL:tree/1 INT/2 KILL:tree/5")
    run = climb(shrugs, ladder, answers=[(1.0, False), (1.0, True)])
    assert [(q.signal, q.beyond) for _, q in run.asked] == [("KILL", ()), ("KILL", ())]
    assert run.signals == ["INT", "KILL"]


def test_nobody_is_asked_in_a_lossless_playbook_nor_when_it_was_agreed() -> None:
    assert climb(job(DEAF), GRACEFUL, terms=Terms(asks=True)).asked == []
    assert climb(job(DEAF), STANDARD, terms=Terms(asks=True), consent="given").asked == []
    assert climb(job(DEAF), STANDARD, terms=Terms(asks=True), consent="refused").asked == []


def test_looks_go_on_while_the_question_is_open_and_it_is_withdrawn_when_the_job_ends() -> None:
    world = job(change(DEAF, linger_s=0.0))
    world.actors[1].parent_ended = world.at(60.0)
    run = climb(world, STANDARD, terms=Terms(asks=True))
    assert (run.end.how, run.signals) == ("gone", [])
    assert [step.reason for _, step in run.withdrawn] == ["the job has ended"]
    assert len([at for at, _ in run.looks if at > run.began + 1.0]) > 50


def test_it_is_withdrawn_when_a_save_begins_and_asked_again_after_it() -> None:
    world = job(change(DEAF, periodic=((1010.0, 1030.0),)))
    run = climb(world, STANDARD, answers=[(3600.0, True), (2.0, True)])
    assert [step.reason for _, step in run.withdrawn] == ["a checkpoint is being written"]
    assert len({at for at, _ in run.asked}) == len(run.asked)
    assert run.when(0) >= 30.0 + 2.0
    assert not world.actors[1].lost


@pytest.mark.parametrize("delay", [9.6, 9.9, 10.0, 10.3])
def test_a_yes_just_when_a_save_begins_does_not_cut_it(delay: float) -> None:
    """The wrong choice, sending on the yes, loses the checkpoint."""
    world = job(change(DEAF, periodic=((1010.0, 1030.0),)))
    run = climb(world, STANDARD, answers=[(delay, True), (1.0, True)])
    assert (run.end.how, run.signals) == ("gone", ["TERM"])
    assert run.when(0) < 10.0 or run.when(0) >= 30.0
    assert not world.actors[1].lost


def test_while_a_question_is_open_no_hold_runs_out() -> None:
    """Ten minutes at the question are no ten minutes of a save without growth."""
    hold = Hold(saving_s=300.0)
    world = job(change(DEAF, periodic=((999.0, 1002.0), (1620.0, 1640.0)), periodic_grows=False))
    run = climb(world, short("TERM/5", hold=hold), answers=[(3600.0, True), (1.0, True)])
    assert run.end.how == "gone"
    assert run.when(0) >= 640.0
    assert not world.actors[1].lost


def test_the_clock_of_a_hold_stands_still_at_a_question() -> None:
    """It obeys at last, in memory: that is a new hold, not one that ran out at the question."""
    quiet = change(POLITE, saves=False, leaving_s=FOREVER, idle=True)
    run = climb(job(quiet), short("INT/2 KILL:tree/5"), terms=Terms(asks=True), most_s=620.0)
    assert run.asked
    assert run.ladder.clock is not None
    assert run.ended - run.ladder.clock.at < 2.0
    assert run.ladder.clock.cpu_s < 10.0


def test_past_a_hold_that_ran_out_only_by_a_yes_of_its_own() -> None:
    stuck = change(POLITE, periodic=((0.0, FOREVER),), periodic_grows=False)
    run = climb(job(stuck), STANDARD, answers=[(2.0, True)])
    (_, question), *_ = run.asked
    assert question.over
    assert question.saves
    assert run.signals[0] == "INT"
    assert run.when(0) >= 1800.0
    declined = climb(job(stuck), STANDARD, answers=[(2.0, False)])
    assert (declined.end.how, declined.signals) == ("hold_over", [])


def test_without_a_hold_the_question_says_what_is_being_written() -> None:
    world = job(change(POLITE, periodic=((1005.0, 1100.0),)))
    run = climb(world, NOW, answers=[(20.0, True), (2.0, True)])
    assert [bool(q.saves) for _, q in run.asked] == [False, True]
    assert run.withdrawn
    assert run.signals == ["KILL"]


def test_stuck_workers_are_asked_about() -> None:
    world = job(POLITE, workers=1, worker=change(WORKER, linger_s=FOREVER))
    run = climb(world, STANDARD, answers=[(1.0, True)])
    assert (run.end.how, run.signals) == ("gone", ["INT", "KILL"])
    world = job(POLITE, workers=1, worker=change(WORKER, linger_s=FOREVER))
    run = climb(world, STANDARD, answers=[(1.0, False)])
    assert (run.end.how, run.signals) == ("leftover", ["INT"])


# --max-loss


def within(seconds: float) -> Terms:
    return Terms(max_loss_s=seconds)


def test_max_loss_agrees_while_the_checkpoint_is_young_enough() -> None:
    run = climb(saved_at(job(DEAF), 300.0), STANDARD, terms=within(600.0))
    assert (run.end.how, run.signals) == ("gone", ["TERM"])
    assert run.sends[0].lossy
    old = climb(saved_at(job(DEAF), 1080.0), STANDARD, terms=within(600.0))
    assert (old.end.how, old.signals) == ("refused", [])
    assert "step_0 is 18 min old, and no more than 10 min may be lost" in old.skips[-1].reason


def test_max_loss_is_judged_at_the_moment_of_sending() -> None:
    """Young enough at the start, too old after the gentle rung's wait: KILL would lose more."""
    world = saved_at(job(change(SHRUGS, idle=True)), 30.0)
    run = climb(world, short("INT/2m KILL:tree/5"), terms=within(60.0))
    assert (run.end.how, run.signals) == ("trainers_alive", ["INT"])
    assert "may be lost" in run.skips[-1].reason
    young = saved_at(job(change(SHRUGS, idle=True)), 30.0)
    assert climb(young, short("INT/2m KILL:tree/5"), terms=within(600.0)).signals[-1] == "KILL"


@pytest.mark.parametrize(
    ("risk", "why"),
    [
        (None, "could not be looked at"),
        (AtRisk(), "lose everything"),
        (AtRisk("a.pt", 1.0, ours=True), "format of a.pt is not known"),
        (AtRisk("a.pt", 1.0, known_format=True), "not known to be this job's own"),
        (AtRisk("a.pt", 1.0, known_format=True, ours=False), "not known to be this job's own"),
        (AtRisk("a.pt", None, known_format=True, ours=True), "age of a.pt is not known"),
        (AtRisk("a.pt", 60.0, known_format=True, ours=True), "60 s old"),
        (AtRisk("a.pt", 59.0, known_format=True, ours=True), None),
    ],
)
def test_only_a_known_complete_checkpoint_of_ours_counts(
    risk: AtRisk | None, why: str | None
) -> None:
    said = too_much(risk, 60.0)
    assert said is None if why is None else why in (said or "")


def test_what_the_first_look_could_not_tell_is_waited_for() -> None:
    """Whose checkpoint it is takes a look of its own."""
    world = saved_at(job(DEAF), 300.0)
    world.ours_from = world.at(1.0)
    run = climb(world, STANDARD, terms=within(600.0))
    assert (run.end.how, run.signals) == ("gone", ["TERM"])
    assert 1.0 <= run.when(0) < 3.0
    never = saved_at(job(DEAF), 300.0)
    never.ours_from = FOREVER
    run = climb(never, STANDARD, terms=within(600.0))
    assert (run.end.how, run.signals) == ("refused", [])
    assert 5.0 <= run.took < 7.0


def test_max_loss_is_no_consent_to_cut_a_save() -> None:
    """The checkpoint it counts on may be the very file that is rewritten."""
    stuck = change(DEAF, periodic=((1000.0, FOREVER),), periodic_grows=False)
    run = climb(saved_at(job(stuck), 5.0), STANDARD, terms=within(7200.0))
    assert (run.end.how, run.signals) == ("hold_over", [])
    kill = climb(saved_at(job(stuck), 5.0), NOW, terms=within(7200.0))
    assert (kill.end.how, kill.signals) == ("hold_over", [])


def test_whoever_saves_on_after_the_trainer_is_a_leftover_and_no_running_job() -> None:
    """Its hold ran out, and a limited consent cuts no save: but the trainer has ended."""
    saver = change(WORKER, periodic=((1001.0, 9000.0),), periodic_grows=False, linger_s=9000.0)
    hold = Hold(saving_s=60.0)
    world = saved_at(job(POLITE, workers=1, worker=saver), 10.0)
    run = climb(world, short("INT/30 KILL:tree/5", hold=hold), terms=within(9000.0))
    assert run.signals == ["INT"]
    assert (run.end.how, "worker 200" in run.end.reason) == ("leftover", True)
    assert "still saving" in run.end.reason


def test_max_loss_changes_nothing_in_a_lossless_playbook() -> None:
    run = climb(saved_at(job(DEAF), 1.0), GRACEFUL, terms=within(600.0))
    assert (run.end.how, run.signals) == ("trainers_alive", [])


# --after-checkpoint


def after(at_most_s: float = FOREVER, max_loss_s: float | None = None) -> Terms:
    return Terms(after_checkpoint=True, at_most_s=at_most_s, max_loss_s=max_loss_s)


def test_a_deaf_job_ends_right_after_its_own_checkpoint() -> None:
    world = saved_at(job(change(DEAF, periodic=((1200.0, 1210.0),))), 1080.0)
    run = climb(world, STANDARD, terms=after())
    assert (run.end.how, run.signals) == ("gone", ["TERM"])
    assert 210.0 <= run.when(0) < 213.0
    assert not world.actors[1].lost


def test_nothing_is_sent_into_the_save_that_is_waited_for() -> None:
    """The next save begins right after it: the signal would cut that one."""
    periodic = ((1200.0, 1210.0), (1210.1, 1220.0), (1220.1, 1230.0))
    world = saved_at(job(change(DEAF, periodic=periodic)), 1080.0)
    run = climb(world, STANDARD, terms=after())
    assert run.signals == ["TERM"]
    assert run.when(0) >= 230.0
    assert not world.actors[1].lost


def test_none_in_time_sends_nothing_and_the_job_runs_on() -> None:
    run = climb(saved_at(job(DEAF), 1080.0), STANDARD, terms=after(7200.0))
    assert (run.end.how, run.signals) == ("trainers_alive", [])
    assert 7200.0 <= run.took < 7203.0
    assert "no new complete checkpoint came within 2 h" in run.end.reason


def test_one_that_cannot_be_counted_on_is_waited_past() -> None:
    world = saved_at(job(change(DEAF, periodic=((1020.0, 1025.0),))), 1080.0)
    world.known_format = False
    run = climb(world, STANDARD, terms=after(60.0))
    assert (run.end.how, run.signals) == ("trainers_alive", [])
    assert "format of own_0 is not known" in run.end.reason


def test_where_no_checkpoint_can_be_seen_it_refuses_at_once() -> None:
    run = climb(job(DEAF), STANDARD, terms=after(), checkpoints=None)
    assert (run.end.how, run.signals) == ("refused", [])
    assert run.took < 1.0
    assert "--after-checkpoint cannot be kept" in run.end.reason


def test_a_job_that_hears_gets_the_gentle_rung_first_even_then() -> None:
    world = saved_at(job(change(POLITE, periodic=((1200.0, 1210.0),))), 1080.0)
    run = climb(world, STANDARD, terms=after())
    assert (run.end.how, run.signals) == ("gone", ["INT"])
    assert run.when(0) >= 210.0
    assert world.actors[1].saved


def test_what_may_lose_work_follows_only_while_next_to_nothing_would_be_lost() -> None:
    shrugs = change(SHRUGS, idle=True, periodic=((1200.0, 1210.0),))
    late = climb(saved_at(job(shrugs), 1080.0), short("INT/3m KILL:tree/5"), terms=after())
    assert (late.end.how, late.signals) == ("trainers_alive", ["INT"])
    agreed = climb(
        saved_at(job(shrugs), 1080.0),
        short("INT/3m KILL:tree/5"),
        terms=after(max_loss_s=600.0),
    )
    assert agreed.signals == ["INT", "KILL"]


def test_after_checkpoint_never_waits_without_a_hold() -> None:
    periodic = ((1200.0, 1210.0), (1210.1, 1230.0))
    world = saved_at(job(change(DEAF, periodic=periodic)), 1080.0)
    run = climb(world, NOW, terms=after())
    assert run.signals == ["KILL"]
    assert run.when(0) >= 230.0
    assert not world.actors[1].lost
    assert any(isinstance(step, Held) for _, step in run.steps)


def test_newer_goes_by_the_remote_clock_alone() -> None:
    old = AtRisk("a.pt", 100.0)
    assert newer(old, AtRisk("b.pt", 1.0))
    assert newer(old, AtRisk("a.pt", 1.0))  # rewritten in place
    assert not newer(old, AtRisk("a.pt", 101.0))
    assert not newer(old, AtRisk("a.pt", 99.5))  # a clock's step
    assert not newer(old, AtRisk("older.pt", 400.0))  # the newest was deleted
    assert not newer(old, AtRisk())
    assert not newer(old, AtRisk("b.pt", None))
    assert newer(AtRisk(), old)
