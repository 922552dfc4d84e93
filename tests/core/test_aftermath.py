"""What an activation that is found means for who only looks at the job."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from fleetstop.core.launching.activation import Started, State, Step
from fleetstop.core.launching.ended import Born
from fleetstop.core.releases.aftermath import Around, aftermath, comes_up

NEW, OLD = "20261130-140211-7f3a", "20261129-140211-0000"
ENDED = "2026-11-30T14:02:31Z"
ENDED_S = 1796047351.0
STATE = State(
    "7f3a91c2",
    "waiting",
    release=NEW,
    before=OLD,
    activator=Born(40, 99),
    trainer=Started(50, 120),
    at=ENDED,
)
LIVES = Around(activator=True, now=0.0, began=1.0)
GONE = Around(activator=False, now=0.0, began=ENDED_S - 60, ours=True, lives=True)


def at(step: Step, **facts: object) -> State:
    return replace(STATE, step=step, **facts)


@pytest.mark.parametrize(
    ("state", "around", "said"),
    [
        (at("waiting", order="armed"), replace(LIVES, beat_s=2.0),
         "it waits for the end of what runs"),
        (at("waiting"), replace(LIVES, beat_s=300.0),
         "it waits for the end of what runs, and its client was last heard 5 min ago"),
        (at("waiting"), LIVES, "it waits for the end of what runs, and its client was never heard"),
        (at("waiting", order="armed", alone=True), replace(LIVES, beat_s=2.0),
         "it waits for the end of what runs, and its client has left"),
        (at("waiting", order="go"), LIVES, "it was told to go on"),
        (at("swapping", files="mixed"), LIVES, "it puts the new files in place"),
        (at("launching"), LIVES, "it starts the job"),
        (at("launched"), LIVES, "it watches what it started"),
        (at("unhealthy"), LIVES, "what it started is not well, and its client decides"),
        (at("rolling_back", reason="exit 3"), LIVES, "it puts the old version back: exit 3"),
    ],
)  # fmt: skip
def test_one_at_work_is_told_whatever_the_step(state: State, around: Around, said: str) -> None:
    assert aftermath(state, around) == f"the activator 40 of run 7f3a91c2 is at it: {said}"


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (at("healthy", ended_at=ENDED), None),
        (at("cancelled", ended_at=ENDED, reason="its client was gone"), None),
        (at("unconfirmed", ended_at=ENDED),
         f"release {NEW} was launched at 2026-11-30 14:02 UTC, and nobody saw whether it is well; "
         "the same command goes on from there"),
        (at("unhealthy", ended_at=ENDED, reason="exit 3"),
         f"release {NEW} was not well at 2026-11-30 14:02 UTC: exit 3; it was left as it was"),
        (at("rolled_back", ended_at=ENDED, reason="exit 3"),
         f"release {NEW} was not well at 2026-11-30 14:02 UTC: exit 3; what ran before is back"),
        (at("rolled_back", ended_at=ENDED, trainer=None),
         f"release {NEW} was not well at 2026-11-30 14:02 UTC; what ran before is back on disk"),
        (at("failed", ended_at=ENDED, release=None, reason="disk full"),
         "run 7f3a91c2 failed at 2026-11-30 14:02 UTC: disk full"),
        (at("launched", release=None),
         "the activator 40 of run 7f3a91c2 ended at 2026-11-30 14:02 UTC before it knew whether "
         "what run 7f3a91c2 started is well; the same command goes on from there"),
        (at("waiting"), "the activator 40 of run 7f3a91c2 ended at 2026-11-30 14:02 UTC before it "
         "changed anything; the same command goes on from there"),
        (at("swapped"), "the activator 40 of run 7f3a91c2 ended at 2026-11-30 14:02 UTC before it "
         f"had started release {NEW}; the same command goes on from there"),
        (at("swapping", files="mixed"), "run 7f3a91c2 left a mixture of two releases on disk; the "
         "same command goes on from there"),
    ],
)  # fmt: skip
def test_one_that_has_ended_is_told_where_it_asks_for_something(
    state: State, said: str | None
) -> None:
    for around in (GONE, replace(GONE, began=None, ours=False)):
        if state.trainer is None and around.ours:
            continue
        assert aftermath(state, around) == said


@pytest.mark.parametrize("step", ["rolled_back", "unhealthy"])
def test_what_was_brought_back_or_left_and_has_ended_too_is_not_said_to_run(step: Step) -> None:
    nothing = replace(GONE, began=None, ours=False, lives=False)
    said = aftermath(at(step, ended_at=ENDED, reason="exit 3"), nothing) or ""
    how = {
        "rolled_back": "what ran before was brought back, and has ended by now",
        "unhealthy": "it was left as it was, and has ended by now",
    }
    assert said == f"release {NEW} was not well at 2026-11-30 14:02 UTC: exit 3; {how[step]}"
    # something of the job runs, or nobody looked: that says nothing of its end
    for around in (replace(nothing, lives=True), replace(nothing, lives=None), GONE):
        assert "has ended" not in (aftermath(at(step, ended_at=ENDED), around) or "")
    # nothing had been started
    assert "has ended" not in (aftermath(at(step, ended_at=ENDED, trainer=None), nothing) or "")


@pytest.mark.parametrize(
    ("step", "facts"),
    [("waiting", {}), ("swapped", {}), ("launched", {}), ("unconfirmed", {}),
     ("swapping", {"files": "mixed"})],
)  # fmt: skip
def test_where_nothing_runs_the_same_command_needs_to_know_how(
    step: Step, facts: dict[str, str]
) -> None:
    """It was promised to go on, and refused: nothing said how the job is started."""
    nothing = replace(GONE, began=None, ours=False)
    said = "; the same command goes on from there"
    lacks = " once `launch: run` in the inventory says how it is started: nothing runs"
    ends = {
        around.startable: (aftermath(at(step, **facts), around) or "").partition(said)[2]
        for around in (nothing, replace(nothing, startable=False))
    }
    assert ends == {True: "", False: lacks}
    runs = replace(GONE, startable=False)
    assert (aftermath(at(step, **facts), runs) or "").endswith(said)


def test_what_runs_since_then_makes_an_old_story_of_it() -> None:
    later = replace(GONE, began=ENDED_S + 60, ours=False)
    for step in ("unconfirmed", "unhealthy", "rolled_back", "failed", "launched"):
        assert aftermath(at(step), later) is None
        assert aftermath(at(step), replace(later, ours=True)) is not None
        assert aftermath(at(step), replace(later, began=ENDED_S - 1)) is not None
    # a mixture stays one, and a time that is none makes nothing old
    assert aftermath(at("swapping", files="mixed"), later) is not None
    assert aftermath(at("failed", at="yesterday"), later) is not None


def test_a_secret_in_its_reason_is_not_shown() -> None:
    told = aftermath(at("failed", reason="HF_TOKEN=hf_AbCdEf123456 \x1b[31m"), GONE)
    assert told is not None
    assert "hf_AbC" not in told
    assert "\x1b" not in told


def test_who_is_about_to_start_the_job() -> None:
    nothing = Around(activator=True, now=0.0)
    assert not comes_up(at("waiting"), nothing)
    assert comes_up(at("waiting", order="armed"), nothing)
    assert not comes_up(at("waiting", order="armed"), replace(nothing, began=1.0))
    assert comes_up(at("waiting", order="go"), replace(nothing, began=1.0))
    for step in ("swapping", "swapped", "launching", "launched", "rolling_back", "unhealthy"):
        assert comes_up(at(step), nothing)
        assert not comes_up(at(step), replace(nothing, activator=False))
        assert not comes_up(at(step, ended_at=ENDED), nothing)
