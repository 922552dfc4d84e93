"""Stories: a job's habits and a playbook, and what is sent to whom, in virtual time."""

from __future__ import annotations

import msgspec
import pytest

from fleetstop.core.climbing.consent import Consent
from fleetstop.core.ladder import End, Enter, Held, Wait
from fleetstop.core.ledger import Heard
from fleetstop.core.playbook import Hold
from tests.core.habits import (
    DEAF,
    DEAF_SAVES_ON_TERM,
    FOREVER,
    GRACEFUL,
    IGNORES_ALL,
    LEAVES_UNSAVED,
    NOW,
    POLITE,
    SHELL,
    SHRUGS,
    SLOW,
    STANDARD,
    SUSPENDED,
    WORKER,
    Climbed,
    Habit,
    World,
    climb,
    job,
    short,
)

FORCED: Consent = "given"


def change(habit: Habit, **changes: object) -> Habit:
    return msgspec.structs.replace(habit, **changes)


def trainers(world: World) -> list[bool]:
    """Which ranks saved."""
    return [each.saved for each in world.actors if each.argv[0] == "python" and not each.forked]


def holds(run: Climbed) -> list[str]:
    return [step.why for _, step in run.steps if isinstance(step, Held)]


# The table


def test_polite_hears_one_int_and_saves() -> None:
    world = job(POLITE, workers=2)
    run = climb(world, GRACEFUL)
    assert run.end.how == "gone"
    assert run.signals == ["INT"]
    assert [kin.id.pid for kin in run.sends[0].recipients] == [101]
    assert not run.sends[0].lossy
    assert trainers(world) == [True]
    assert run.took < 1.0 + 2.0


def test_where_somebodys_kill_waits_a_moment_shows_whether_it_ends_of_that() -> None:
    """Nothing more is sent, and the verdict is not the first look's: busy, training on."""
    world = job(change(IGNORES_ALL, survives_kill=True, idle=True))
    first = climb(world, NOW, consent=FORCED)
    assert first.signals == ["KILL"]
    again = climb(world, NOW, consent=FORCED)
    assert (again.end.how, again.signals) == ("trainers_alive", [])
    assert again.looks[-1][1].verdict == "uninterruptible"
    assert 1.0 <= again.took < 2.0
    world = job(change(IGNORES_ALL, survives_kill=True, idle=True))
    climb(world, NOW, consent=FORCED)
    world.actors[1].parent_ended = world.now  # so it ends in half a second
    ended = climb(world, NOW, consent=FORCED)
    assert (ended.end.how, ended.signals) == ("gone", [])


def test_the_first_signal_comes_after_two_looks_and_soon() -> None:
    run = climb(job(POLITE), GRACEFUL)
    assert 0.2 <= run.when(0) < 0.4
    assert isinstance(run.steps[0][1], Enter)
    assert isinstance(run.steps[1][1], Wait)


def test_deaf_without_a_term_handler_is_left_alone() -> None:
    world = job(DEAF)
    graceful = climb(world, GRACEFUL)
    assert (graceful.end.how, graceful.signals) == ("trainers_alive", [])
    assert graceful.took < 3.0
    assert [(s.signal, s.landing, s.consent) for s in graceful.skips] == [
        ("INT", "ignored", False),
        ("TERM", "fatal", False),
    ]
    assert "non-interactive shell" in graceful.skips[0].reason
    asked = climb(world, STANDARD)
    assert (asked.end.how, asked.signals) == ("refused", [])
    assert [s.consent for s in asked.skips] == [False, True, True]


def test_deaf_ends_by_term_when_forced() -> None:
    run = climb(job(DEAF), STANDARD, consent=FORCED)
    assert (run.end.how, run.signals) == ("gone", ["TERM"])
    assert run.sends[0].landing == "fatal"
    assert run.sends[0].lossy


def test_force_changes_nothing_in_a_lossless_playbook() -> None:
    run = climb(job(DEAF), GRACEFUL, consent=FORCED)
    assert (run.end.how, run.signals) == ("trainers_alive", [])


def test_who_leaves_unsaved_is_gone_all_the_same() -> None:
    world = job(LEAVES_UNSAVED)
    run = climb(world, GRACEFUL)
    assert (run.end.how, run.signals) == ("gone", ["INT"])
    assert trainers(world) == [False]


def test_deaf_that_saves_on_term_gets_one_term() -> None:
    world = job(DEAF_SAVES_ON_TERM)
    run = climb(world, GRACEFUL)
    assert (run.end.how, run.signals) == ("gone", ["TERM"])
    assert not run.sends[0].lossy
    assert trainers(world) == [True]


def test_ignores_all_needs_force_and_then_kill() -> None:
    refused = climb(job(IGNORES_ALL), STANDARD)
    assert (refused.end.how, refused.signals) == ("refused", [])
    run = climb(job(IGNORES_ALL), STANDARD, consent=FORCED)
    assert (run.end.how, run.signals) == ("gone", ["KILL"])
    assert run.took < 2.0


def test_once_something_was_sent_it_is_no_refusal() -> None:
    run = climb(job(SHRUGS), STANDARD)
    assert (run.end.how, run.signals) == ("trainers_alive", ["INT"])
    assert run.skips[-1].consent


def test_graceful_is_the_answer_no() -> None:
    run = climb(job(IGNORES_ALL), STANDARD, consent="refused")
    assert (run.end.how, run.signals) == ("trainers_alive", [])
    assert not any(skip.consent for skip in run.skips)


def test_a_long_save_half_in_memory_outlasts_an_impatient_ladder() -> None:
    world = job(SLOW)
    run = climb(world, short("INT/2 TERM/2 KILL:tree/5"), consent=FORCED)
    assert (run.end.how, run.signals) == ("gone", ["INT"])
    assert trainers(world) == [True]
    assert {"stopping", "saving"} <= set(holds(run))
    assert run.took < 23.0


def test_the_same_job_without_the_hold_loses_its_checkpoint() -> None:
    """The bed's own proof: it is the hold that saves it."""
    world = job(SLOW)
    run = climb(world, short("INT/2 TERM/2 KILL:tree/5", hold=None), consent=FORCED)
    assert run.signals[:2] == ["INT", "TERM"]
    assert trainers(world) == [False]


def test_deaf_in_a_periodic_save_is_waited_for_before_term() -> None:
    world = job(change(DEAF, periodic=((990.0, 1008.0),)))
    run = climb(world, STANDARD, consent=FORCED)
    assert (run.end.how, run.signals) == ("gone", ["TERM"])
    assert run.when(0) >= 8.0 + 0.2
    assert not world.actors[1].lost


def test_suspended_gets_cont_with_the_signal_and_saves() -> None:
    world = job(SUSPENDED)
    run = climb(world, GRACEFUL)
    assert (run.end.how, run.signals) == ("gone", ["INT"])
    assert run.sends[0].resume
    assert trainers(world) == [True]


def test_ranks_hear_one_burst_and_workers_are_spared() -> None:
    world = job(POLITE, POLITE, POLITE, workers=2)
    run = climb(world, GRACEFUL)
    assert (run.end.how, run.signals) == ("gone", ["INT"])
    assert {kin.id.pid for kin in run.sends[0].recipients} == {101, 102, 103}
    assert trainers(world) == [True] * 3
    assert not any(each.heard for each in world.actors if each.forked)


def test_nobody_left_is_gone_at_once() -> None:
    world = job(POLITE)
    family = world.family()
    world.actors.clear()
    run = climb(world, STANDARD, consent=FORCED, family=family)
    assert (run.end.how, run.steps[:-1]) == ("gone", [])


# Before the first signal


@pytest.mark.parametrize("declared", ["/ck", None])
def test_a_periodic_save_is_never_cut_by_the_first_signal(declared: str | None) -> None:
    world = job(change(POLITE, periodic=((995.0, 1012.0),)))
    run = climb(world, GRACEFUL, checkpoints=declared)
    assert (run.end.how, run.signals) == ("gone", ["INT"])
    assert run.when(0) >= 12.0 + 0.2
    assert trainers(world) == [True]
    assert holds(run)[0] == "saving"


def test_a_save_that_begins_between_the_two_looks_is_seen() -> None:
    world = job(change(POLITE, periodic=((1000.1, 1003.0),)))
    run = climb(world, GRACEFUL)
    assert trainers(world) == [True]
    assert run.when(0) >= 3.2


def test_one_shard_after_another_is_one_save() -> None:
    """A signal into the short pause between them would find the next one open."""
    spans = tuple((1000.1 + n, 1000.95 + n) for n in range(20))
    world = job(change(POLITE, periodic=spans))
    run = climb(world, GRACEFUL)
    assert trainers(world) == [True]
    assert run.when(0) >= 20.0


def test_a_save_by_a_worker_holds_the_signal_too() -> None:
    world = job(POLITE, workers=1, worker=change(WORKER, periodic=((990.0, 1005.0),)))
    run = climb(world, GRACEFUL)
    assert run.when(0) >= 5.2
    assert run.end.how == "gone"


def test_files_that_cannot_be_seen_may_be_a_save() -> None:
    hidden = change(POLITE, files_seen=False, idle=True)
    world = job(hidden)
    lossless = climb(world, GRACEFUL)
    assert (lossless.end.how, lossless.signals) == ("hold_over", [])
    assert 60.0 <= lossless.took < 62.0
    absent = climb(job(hidden), STANDARD)
    assert (absent.end.how, absent.signals) == ("hold_over", [])
    forced = climb(job(hidden), STANDARD, consent=FORCED)
    assert forced.signals[0] == "INT"
    assert forced.sends[0].lossy  # nobody knows what it cuts
    assert 60.0 <= forced.when(0) < 62.0


def test_a_save_stuck_before_the_first_signal() -> None:
    stuck = change(POLITE, periodic=((0.0, FOREVER),), periodic_grows=False)
    lossless = climb(job(stuck), GRACEFUL)
    assert (lossless.end.how, lossless.signals) == ("hold_over", [])
    assert 1800.0 <= lossless.took < 1802.0
    agreed = climb(job(stuck), GRACEFUL, consent=FORCED)
    assert (agreed.end.how, agreed.signals) == ("hold_over", [])
    absent = climb(job(stuck), STANDARD)
    assert (absent.end.how, absent.signals) == ("hold_over", [])
    forced = climb(job(stuck), STANDARD, consent=FORCED)
    assert 1800.0 <= forced.when(0) < 1802.0
    assert forced.sends[0].lossy


def test_no_hold_and_consent_sends_at_once() -> None:
    run = climb(job(change(POLITE, periodic=((0.0, FOREVER),))), NOW, consent=FORCED)
    assert (run.end.how, run.signals) == ("gone", ["KILL"])
    assert run.when(0) == 0.0


def test_no_hold_still_asks() -> None:
    run = climb(job(POLITE), NOW)
    assert (run.end.how, run.signals) == ("refused", [])


# After the signal: holds and what ends them


def test_a_save_without_growth_ends_a_lossless_ladder() -> None:
    world = job(change(POLITE, file_s=20.0, writes_for_s=10.0, idle=True))
    run = climb(world, GRACEFUL)
    assert (run.end.how, run.signals) == ("hold_over", ["INT"])
    assert 180.0 + 1800.0 <= run.took < 180.0 + 1803.0
    assert not world.actors[1].lost


def test_a_save_without_growth_is_held_once_not_twice_when_forced() -> None:
    """The hold that ran out after INT does not begin again before the next signal."""
    world = job(change(POLITE, file_s=20.0, writes_for_s=10.0, idle=True))
    run = climb(world, short("INT/2 KILL:tree/5"), consent=FORCED)
    assert run.signals == ["INT", "KILL"]
    # it still writes until 10 s after the signal: only then the half hour begins
    assert 1800.0 + 9.0 <= run.when(1) < 1800.0 + 15.0


def test_a_growing_save_may_take_for_ever() -> None:
    world = job(change(POLITE, file_s=5000.0))
    run = climb(world, short("INT/2 KILL:tree/5"), consent=FORCED)
    assert (run.end.how, run.signals) == ("gone", ["INT"])
    assert trainers(world) == [True]


def test_stopping_by_cpu_alone_ends_after_its_minute() -> None:
    busy = change(POLITE, memory_s=0.0, file_s=0.0, leaving_s=FOREVER)
    lossless = climb(job(busy), GRACEFUL)
    assert (lossless.end.how, lossless.signals) == ("hold_over", ["INT"])
    assert 180.0 + 60.0 <= lossless.took < 180.0 + 63.0
    forced = climb(job(busy), short("INT/2 KILL:tree/5"), consent=FORCED)
    assert forced.signals == ["INT", "KILL"]
    assert 62.0 <= forced.when(1) < 65.0


def test_growing_memory_stops_that_clock_for_fifteen_minutes_at_most() -> None:
    slow = change(POLITE, memory_s=800.0, file_s=5.0)
    world = job(slow)
    run = climb(world, short("INT/2 KILL:tree/5"), consent=FORCED)
    assert (run.end.how, run.signals) == ("gone", ["INT"])
    assert trainers(world) == [True]
    endless = job(change(POLITE, memory_s=FOREVER))
    run = climb(endless, short("INT/2 KILL:tree/5"), consent=FORCED)
    assert run.signals == ["INT", "KILL"]
    assert 900.0 <= run.when(1) - run.when(0) < 900.0 + 6.0
    run = climb(job(change(POLITE, memory_s=FOREVER)), GRACEFUL)
    assert (run.end.how, run.signals) == ("hold_over", ["INT"])


def test_new_steps_in_the_log_end_the_hold() -> None:
    lossless = climb(job(SHRUGS), GRACEFUL)
    assert (lossless.end.how, lossless.signals) == ("trainers_alive", ["INT"])
    assert lossless.took < 180.0 + 3.0
    forced = climb(job(SHRUGS), short("INT/2 KILL:tree/5"), consent=FORCED)
    assert forced.signals == ["INT", "KILL"]
    assert forced.when(1) - forced.when(0) < 3.0
    assert forced.looks[-1][1].verdict != "stopping"


def test_stalled_after_the_signal_is_quiet_and_ends() -> None:
    stalled = change(SHRUGS, idle=True, obeys=True, saves=False, leaving_s=FOREVER)
    run = climb(job(stalled), short("INT/2 KILL:tree/5"), consent=FORCED)
    assert run.signals == ["INT", "KILL"]
    assert 2.0 + 5.0 <= run.when(1) - run.when(0) < 10.0


def test_waits_for_ever_when_told_to() -> None:
    run = climb(
        job(change(SHRUGS, idle=True)),
        short("INT/forever KILL:tree/5"),
        consent=FORCED,
        most_s=20_000.0,
    )
    assert run.end.reason.startswith("it was still waiting")
    assert run.signals == ["INT"]


# Landings


def test_one_hears_and_one_does_not_then_none_gets_it() -> None:
    fatal = change(POLITE, hears=())
    run = climb(job(POLITE, fatal), GRACEFUL)
    assert (run.end.how, run.signals) == ("trainers_alive", [])
    assert run.skips[0].landing == "fatal"
    assert run.skips[0].pids == (101, 102)
    asked = climb(job(POLITE, fatal), short("INT/3m"))
    assert (asked.end.how, asked.signals) == ("refused", [])


def test_forced_into_a_mixed_burst_the_one_that_heard_is_spared_the_second() -> None:
    """It counts as fatal, but rank 0 heard it and saves: nothing may follow that loses it."""
    world = job(SLOW, change(POLITE, hears=()))
    run = climb(world, short("INT/2 INT/2 KILL:tree/5"), consent=FORCED)
    assert run.signals == ["INT"]
    assert run.sends[0].landing == "fatal"
    assert trainers(world)[0]
    assert {kin.id.pid for kin in run.sends[0].recipients} == {101, 102}
    assert [mark.pid for mark in run.ladder.marks] == [101]


def test_after_a_mixed_burst_a_lossless_run_sends_nothing() -> None:
    world = job(SLOW, change(POLITE, hears=()))
    family = world.family()
    first = climb(world, short("INT/2"), consent=FORCED, most_s=1.0)
    past = {each: heard for each, heard in first.heard(family).items() if each.pid == 101}
    second = climb(world, GRACEFUL, past=past)
    assert (second.end.how, second.signals) == ("gone", [])
    assert trainers(world)[0]


def test_traced_is_skipped_but_can_be_killed() -> None:
    traced = change(POLITE, state="t", tracer=77)
    run = climb(job(traced), STANDARD)
    assert (run.end.how, run.signals) == ("refused", [])
    assert "tracer" in run.skips[0].reason
    assert climb(job(traced), STANDARD, consent=FORCED).signals == ["KILL"]


def test_a_tracer_in_another_namespace_is_still_a_tracer() -> None:
    run = climb(job(change(POLITE, state="t", tracer=0)), GRACEFUL)
    assert (run.end.how, run.signals) == ("trainers_alive", [])


def test_masks_that_cannot_be_read_are_no_request() -> None:
    unseen = change(POLITE, masks_seen=False)
    run = climb(job(unseen), GRACEFUL, consent=FORCED)
    assert (run.end.how, run.signals) == ("trainers_alive", [])
    assert run.skips[0].landing is None
    assert climb(job(unseen), STANDARD, consent=FORCED).signals == ["KILL"]


def test_blocked_in_every_thread_is_skipped() -> None:
    run = climb(job(change(POLITE, blocks=("INT",))), GRACEFUL)
    assert run.signals == []
    assert [skip.landing for skip in run.skips] == ["blocked", "fatal"]
    assert "SigBlk" in run.skips[0].reason


# A later run


def test_the_same_command_again_watches_on_and_sends_nothing() -> None:
    world = job(SLOW)
    past = climb(world, GRACEFUL, most_s=2.0).heard(world.family())
    run = climb(world, GRACEFUL, past=past)
    assert (run.end.how, run.signals) == ("gone", [])
    assert [(step.signal, step.heard.run) for step in run.watched] == [("INT", "first")]
    assert trainers(world) == [True]
    assert world.actors[1].heard == ["INT"]


def test_watching_on_term_is_skipped_for_ever_when_lossless() -> None:
    world = job(change(SLOW, hears=("INT", "TERM"), leaving_s=FOREVER, idle=True))
    past = climb(world, GRACEFUL, most_s=2.0).heard(world.family())
    run = climb(world, GRACEFUL, past=past, consent=FORCED)
    assert run.signals == []
    assert run.end.how == "trainers_alive"
    assert "heard a signal already" in run.skips[-1].reason
    assert run.took >= 180.0


def test_watching_on_kill_comes_only_after_wait_and_hold() -> None:
    world = job(change(SLOW, memory_s=200.0, file_s=20.0))
    past = climb(world, STANDARD, consent=FORCED, most_s=2.0).heard(world.family())
    run = climb(world, STANDARD, past=past, consent=FORCED)
    assert (run.end.how, run.signals) == ("gone", [])
    assert trainers(world) == [True]
    stuck = job(change(POLITE, saves=False, leaving_s=FOREVER))
    past = climb(stuck, STANDARD, consent=FORCED, most_s=2.0).heard(stuck.family())
    run = climb(stuck, short("INT/10 KILL:tree/30"), past=past, consent=FORCED)
    assert run.signals == ["KILL"]
    assert run.when(0) >= 10.0 + 60.0


@pytest.mark.parametrize("text", ["KILL:tree/5", "TERM/5 KILL:tree/5", "TERM:tree/5"])
def test_forced_with_another_ladder_the_memory_phase_is_still_held(text: str) -> None:
    """An earlier run's INT is obeyed in memory: no file tells it, yet any signal cuts it."""
    world = job(change(SLOW, hears=("INT", "TERM")))
    past = climb(world, GRACEFUL, most_s=2.0).heard(world.family())
    run = climb(world, short(text), past=past, consent=FORCED)
    assert (run.end.how, run.signals) == ("gone", [])
    assert trainers(world) == [True]


def test_another_stop_signal_is_no_way_round_the_first() -> None:
    world = job(change(SLOW, hears=("INT", "TERM")))
    past = climb(world, GRACEFUL, most_s=2.0).heard(world.family())
    run = climb(world, GRACEFUL, past=past, stop_signal="TERM")
    assert (run.end.how, run.signals) == ("gone", [])
    assert [step.signal for step in run.watched] == ["INT"]
    assert trainers(world) == [True]


def test_one_that_shuts_its_ears_while_it_saves_is_not_deaf_to_a_later_run() -> None:
    world = job(change(SLOW, shuts_ears=True, hears=("INT", "TERM")))
    past = climb(world, GRACEFUL, most_s=2.0).heard(world.family())
    run = climb(world, STANDARD, past=past, consent=FORCED)
    assert (run.end.how, run.signals) == ("gone", [])
    assert run.watched
    assert trainers(world) == [True]
    assert any("now ignores" in " ".join(judged.evidence) for _, judged in run.looks)


def test_what_it_always_ignored_is_no_sign_of_stopping() -> None:
    """Started with & it ignored INT ever since; what it heard from the earlier run is TERM."""
    deaf = change(DEAF_SAVES_ON_TERM, idle=True, saves=False, leaving_s=FOREVER)
    world = job(deaf)
    past = climb(world, GRACEFUL, most_s=2.0).heard(world.family())
    run = climb(world, short("TERM/5", lossless=True), past=past)
    assert run.watched
    assert not any("now ignores" in " ".join(judged.evidence) for _, judged in run.looks)


def test_two_ranks_of_which_one_has_heard_are_left_alone() -> None:
    world = job(POLITE, POLITE)
    family = world.family()
    past = {family.trainers[0].id: Heard("first", "INT", 3.0)}
    run = climb(world, GRACEFUL, past=past)
    assert (run.end.how, run.signals, run.watched) == ("trainers_alive", [], [])


# Tree, group, wrapper


def test_tree_kill_takes_wrappers_first() -> None:
    run = climb(job(IGNORES_ALL, workers=2), STANDARD, consent=FORCED)
    assert [kin.role for kin in run.sends[0].recipients] == [
        "wrapper",
        "trainer",
        "worker",
        "worker",
    ]


def test_tree_term_takes_wrappers_only_when_the_rest_has_ended() -> None:
    world = job(change(DEAF, hears=()), workers=1, wrapper=change(SHELL, linger_s=FOREVER))
    run = climb(world, short("TERM:tree/20 KILL:tree/5"), consent=FORCED)
    assert run.signals == ["TERM", "TERM"]
    assert [[kin.role for kin in send.recipients] for send in run.sends] == [
        ["trainer", "worker"],
        ["wrapper"],
    ]
    assert run.end.how == "gone"


def test_a_group_rung_reaches_members_of_the_real_group_only_and_needs_consent() -> None:
    world = job(POLITE, workers=2)
    world.actors[3].pgid = 300  # one worker in a group of its own
    skipped = climb(world, short("INT:group/5"))
    assert (skipped.end.how, skipped.signals) == ("refused", [])
    assert skipped.skips[0].pids == (100, 101, 200)
    world = job(change(POLITE, file_s=0.5))
    run = climb(world, short("INT:group/5"), consent=FORCED)
    assert [kin.id.pid for kin in run.sends[0].recipients] == [100, 101]
    assert run.sends[0].lossy


def test_a_wrapper_rung_needs_consent() -> None:
    run = climb(job(POLITE), short("TERM:wrapper/5"))
    assert (run.end.how, run.signals) == ("refused", [])
    run = climb(job(POLITE), short("TERM:wrapper/5"), consent=FORCED)
    assert [kin.role for kin in run.sends[0].recipients] == ["wrapper"]


def test_in_a_tree_burst_the_trainer_that_heard_is_remembered() -> None:
    """Fatal to the worker, heard by the trainer: TERM afterwards would cut its save."""
    world = job(change(SLOW, hears=("INT", "TERM")), workers=1, worker=change(WORKER, ignores=()))
    run = climb(world, short("INT:tree/2 TERM/2"), consent=FORCED)
    assert run.sends[0].landing == "fatal"
    assert run.signals == ["INT"]
    assert trainers(world) == [True]


# When the last trainer is gone


def test_workers_that_poll_their_parent_are_waited_for() -> None:
    run = climb(job(POLITE, workers=2, worker=change(WORKER, linger_s=5.0)), GRACEFUL)
    assert (run.end.how, run.signals) == ("gone", ["INT"])


def test_stuck_workers_are_left_over_without_consent() -> None:
    run = climb(job(POLITE, workers=2, worker=change(WORKER, linger_s=FOREVER)), STANDARD)
    assert (run.end.how, run.signals) == ("leftover", ["INT"])
    assert 15.0 <= run.took < 19.0
    assert "worker 200" in run.end.reason
    assert run.skips[-1].consent


def test_stuck_workers_end_by_the_tree_rung_when_forced() -> None:
    world = job(POLITE, workers=2, worker=change(WORKER, linger_s=FOREVER))
    run = climb(world, STANDARD, consent=FORCED)
    assert (run.end.how, run.signals) == ("gone", ["INT", "KILL"])
    assert run.when(1) - run.when(0) >= 15.0 + 1.0
    assert trainers(world) == [True]


def test_an_async_saver_among_the_workers_is_waited_for() -> None:
    """The trainer has left; its child still writes the checkpoint."""
    saver = change(WORKER, linger_s=60.0, periodic=((1001.0, 1050.0),))
    world = job(change(POLITE, file_s=0.5), workers=1, worker=saver)
    run = climb(world, STANDARD, consent=FORCED)
    assert not world.actors[2].lost
    assert run.signals[0] == "INT"
    assert len(run.signals) == 1 or run.when(1) >= 50.0


def test_a_saver_without_a_tree_rung_is_waited_for_until_it_has_left() -> None:
    saver = change(WORKER, linger_s=51.0, periodic=((1001.0, 1050.0),))
    run = climb(job(change(POLITE, file_s=0.5), workers=1, worker=saver), GRACEFUL)
    assert (run.end.how, run.signals) == ("gone", ["INT"])
    assert "saving" in holds(run)


def test_a_saver_that_closes_one_file_and_opens_the_next_is_not_cut() -> None:
    saver = change(WORKER, linger_s=60.0, periodic=((1000.5, 1020.0), (1020.1, 1040.0)))
    world = job(change(POLITE, file_s=0.2), workers=1, worker=saver)
    climb(world, STANDARD, consent=FORCED)
    assert not world.actors[2].lost


def test_a_wrapper_that_goes_on_is_left_over_or_ended_by_consent() -> None:
    stays = change(SHELL, linger_s=FOREVER)
    absent = climb(job(POLITE, wrapper=stays), STANDARD)
    assert (absent.end.how, absent.signals) == ("leftover", ["INT"])
    assert "wrapper 100" in absent.end.reason
    forced = climb(job(POLITE, wrapper=stays), STANDARD, consent=FORCED)
    assert (forced.end.how, forced.signals) == ("gone", ["INT", "KILL"])


def test_what_outlives_kill_is_told_as_alive() -> None:
    stuck = change(IGNORES_ALL, survives_kill=True, idle=True)
    run = climb(job(stuck), STANDARD, consent=FORCED)
    assert (run.end.how, run.signals) == ("trainers_alive", ["KILL"])
    worker = change(WORKER, survives_kill=True, idle=True, linger_s=FOREVER)
    run = climb(job(POLITE, workers=1, worker=worker), STANDARD, consent=FORCED)
    assert (run.end.how, run.signals) == ("leftover", ["INT", "KILL"])


def test_without_a_tree_rung_what_lingers_is_left_over() -> None:
    run = climb(job(POLITE, workers=1, worker=change(WORKER, linger_s=FOREVER)), GRACEFUL)
    assert isinstance(run.end, End)
    assert (run.end.how, run.signals) == ("leftover", ["INT"])


def test_a_second_tree_rung_follows_the_first() -> None:
    deaf_worker = change(WORKER, linger_s=FOREVER, hears=("TERM",), obeys=False)
    run = climb(
        job(POLITE, workers=1, worker=deaf_worker),
        short("INT/30 TERM:tree/5 KILL:tree/5"),
        consent=FORCED,
    )
    assert (run.end.how, run.signals) == ("gone", ["INT", "TERM", "KILL"])


def test_a_hold_of_nothing_still_takes_two_looks() -> None:
    none = Hold(saving_s=0.0, stopping_s=0.0, moving_s=0.0)
    run = climb(
        job(change(POLITE, periodic=((0.0, FOREVER),), periodic_grows=False)),
        short("KILL:tree/5", hold=none),
        consent=FORCED,
    )
    assert run.when(0) >= 0.2


def test_the_second_tree_rung_too_comes_after_two_looks() -> None:
    stays = change(WORKER, linger_s=FOREVER, hears=("TERM",), obeys=False)
    world = job(change(DEAF, hears=()), workers=1, worker=stays, wrapper=None)
    run = climb(world, short("TERM:tree/0 KILL:tree/5"), consent=FORCED)
    assert run.signals == ["TERM", "KILL"]
    assert run.when(1) - run.when(0) >= 0.2
