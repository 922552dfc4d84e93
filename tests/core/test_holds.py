"""The clocks of a hold: what moves them, what stops them, when they have run out."""

from __future__ import annotations

import msgspec

from fleetstop.core.climbing.holds import QUIET_S, HoldClock, Why, exhausted, reason, tick
from fleetstop.core.playbook import Hold
from fleetstop.core.verdict import Judged, Verdict

HOLD = Hold(saving_s=1800.0, stopping_s=60.0, moving_s=900.0)


def judged(
    *,
    saving: bool | None = False,
    growing: bool = False,
    cpu: bool = False,
    memory: bool = False,
    written: bool = False,
    trains_on: bool = False,
    verdict: Verdict = "busy",
) -> Judged:
    name = "a.pt open for writing by 7, 5 bytes"
    return Judged(
        verdict=verdict,
        evidence=(),
        members={},
        saving=saving,
        saves=((name + ", growing") if growing else name,) if saving else (),
        written=5 if saving or written else 0,
        moves_cpu=cpu,
        moves_memory=memory,
        moves_bytes=written,
        trains_on=trains_on,
    )


def run(why: Why, look: Judged, seconds: int, clock: HoldClock | None = None) -> HoldClock:
    """`seconds` of the same look, once a second."""
    start = clock.at if clock else 0.0
    clock = tick(clock, look, why, start)
    for second in range(seconds):
        clock = tick(clock, look, why, start + second + 1.0)
    return clock


def test_why_a_signal_waits() -> None:
    for after in (True, False):
        assert reason(judged(saving=True), after_signal=after, clock=None) == "saving"
        assert reason(judged(saving=None), after_signal=after, clock=None) == "unseen"
    busy = judged(cpu=True, memory=True, written=True)
    assert reason(busy, after_signal=False, clock=None) is None
    assert reason(busy, after_signal=True, clock=None) == "stopping"
    on = judged(cpu=True, trains_on=True)
    assert reason(on, after_signal=True, clock=None) is None
    both = judged(saving=True, trains_on=True)
    assert reason(both, after_signal=True, clock=None) == "saving"


def test_quiet_for_a_while_is_not_yet_the_end() -> None:
    quiet = judged()
    assert reason(quiet, after_signal=True, clock=None) == "stopping"
    clock = run("stopping", quiet, int(QUIET_S) - 1)
    assert reason(quiet, after_signal=True, clock=clock) == "stopping"
    clock = run("stopping", quiet, 1, clock)
    assert reason(quiet, after_signal=True, clock=clock) is None
    assert reason(judged(cpu=True), after_signal=True, clock=clock) == "stopping"
    ignoring = judged(verdict="stopping")  # it now ignores what it heard
    assert reason(ignoring, after_signal=True, clock=clock) == "stopping"


def test_a_save_is_timed_while_it_does_not_grow() -> None:
    clock = run("saving", judged(saving=True), 1799)
    assert not exhausted(clock, HOLD, "saving")
    grown = tick(clock, judged(saving=True, growing=True), "saving", 1799.5)
    assert grown.idle_s == 0.0
    assert not exhausted(run("saving", judged(saving=True, growing=True), 9999), HOLD, "saving")
    assert exhausted(run("saving", judged(saving=True), 1800), HOLD, "saving")


def test_a_chatty_log_is_no_growth_of_a_file_that_stands_still() -> None:
    """A file left open under checkpoints: beside a writer of logs held without limit."""
    chatty = judged(saving=True, written=True)
    assert exhausted(run("saving", chatty, 1800), HOLD, "saving")
    growing = judged(saving=True, growing=True, written=True)
    assert run("saving", growing, 5000).idle_s == 0.0


def test_a_save_seen_in_the_listing_alone_grows_too() -> None:
    """Its writer is no member, so none of the family's bytes moved."""
    look = judged(saving=True, growing=True)
    seen = msgspec.structs.replace(look, written=0, saves=("step_5.pt growing",))
    assert run("saving", seen, 5000).idle_s == 0.0


def test_cpu_alone_has_its_minute() -> None:
    clock = run("stopping", judged(cpu=True), 59)
    assert not exhausted(clock, HOLD, "stopping")
    assert exhausted(run("stopping", judged(cpu=True), 60), HOLD, "stopping")


def test_memory_or_bytes_stop_that_minute_for_fifteen() -> None:
    for look in (judged(cpu=True, memory=True), judged(cpu=True, written=True)):
        clock = run("stopping", look, 899)
        assert clock.cpu_s == 0.0
        assert not exhausted(clock, HOLD, "stopping")
        assert exhausted(run("stopping", look, 900), HOLD, "stopping")
    mixed = run("stopping", judged(memory=True), 500)
    mixed = run("stopping", judged(cpu=True), 59, mixed)
    assert not exhausted(mixed, HOLD, "stopping")
    assert exhausted(run("stopping", judged(cpu=True), 1, mixed), HOLD, "stopping")


def test_unseen_has_the_time_of_stopping() -> None:
    clock = run("unseen", judged(saving=None), 59)
    assert not exhausted(clock, HOLD, "unseen")
    assert exhausted(run("unseen", judged(saving=None), 60), HOLD, "unseen")


def test_the_clocks_do_not_mix() -> None:
    stopping = run("stopping", judged(cpu=True), 59)
    saving = run("saving", judged(saving=True), 100, stopping)
    assert (saving.cpu_s, saving.idle_s) == (59.0, 100.0)
    assert not exhausted(saving, HOLD, "saving")


def test_a_clock_that_goes_back_takes_nothing_away() -> None:
    clock = run("saving", judged(saving=True), 10)
    assert tick(clock, judged(saving=True), "saving", 3.0).idle_s == 10.0


def test_a_hold_of_for_ever_never_runs_out() -> None:
    endless = Hold(saving_s=float("inf"))
    assert not exhausted(run("saving", judged(saving=True), 99_999), endless, "saving")
