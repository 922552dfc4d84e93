"""A dry run by the ladder's own decisions; it sends nothing and changes nothing."""

from __future__ import annotations

import msgspec

from fleetstop.core.climbing.consent import Consent, Terms
from fleetstop.core.ladder import begin
from fleetstop.core.ledger import Heard
from fleetstop.core.plan import plan
from fleetstop.core.playbook import Playbook, Rung
from fleetstop.core.report import PlannedStep
from fleetstop.core.saves.risk import AtRisk
from tests.core.habits import (
    DEAF,
    DEAF_SAVES_ON_TERM,
    GRACEFUL,
    IGNORES_ALL,
    POLITE,
    STANDARD,
    SUSPENDED,
    WORKER,
    World,
    job,
    short,
)


def planned(
    world: World, playbook: Playbook, consent: Consent = "absent", earlier: Heard | None = None
) -> tuple[PlannedStep, ...]:
    family = world.family()
    heard = {family.trainers[0].id: earlier} if earlier else {}
    ladder = begin(playbook, family, stop_signal="INT", consent=consent, past=heard)
    return plan(ladder, world.tree())


def told(steps: tuple[PlannedStep, ...]) -> list[tuple[str, str]]:
    return [(step.signal, step.would) for step in steps]


def test_polite() -> None:
    steps = planned(job(POLITE, workers=1), GRACEFUL)
    assert told(steps) == [("INT", "send"), ("TERM", "skip")]
    assert (steps[0].pids, steps[0].landing, steps[0].wait_s) == ((101,), "heard", 180.0)


def test_deaf() -> None:
    assert told(planned(job(DEAF), GRACEFUL)) == [("INT", "skip"), ("TERM", "skip")]
    assert told(planned(job(DEAF_SAVES_ON_TERM), GRACEFUL)) == [("INT", "skip"), ("TERM", "send")]


def test_consent_tells_what_would_follow() -> None:
    assert told(planned(job(IGNORES_ALL), STANDARD))[-1] == ("KILL", "skip")
    assert told(planned(job(IGNORES_ALL), STANDARD, "given"))[-1] == ("KILL", "send")
    both = planned(job(POLITE), STANDARD, "given")
    assert told(both) == [("INT", "send"), ("TERM", "send_if"), ("KILL", "send_if")]


def test_a_second_signal_is_no_part_of_a_lossless_plan() -> None:
    both = job(msgspec.structs.replace(POLITE, hears=("INT", "TERM")))
    assert told(planned(both, GRACEFUL, "given")) == [("INT", "send"), ("TERM", "skip")]


def test_an_earlier_run_is_watched_on() -> None:
    steps = planned(job(POLITE), GRACEFUL, earlier=Heard("7f3a", "INT", 240.4))
    assert told(steps) == [("INT", "skip"), ("TERM", "skip")]
    assert "run 7f3a sent it 240 s ago" in steps[0].reason


def test_suspended_and_for_ever() -> None:
    steps = planned(job(SUSPENDED), short("INT/forever"))
    assert told(steps) == [("INT", "send")]
    assert steps[0].wait_s is None


def asks(*rungs: Rung) -> Playbook:
    return Playbook(name="asks", ladder=rungs)


def test_asks_and_waits_are_planned_like_signals() -> None:
    touch = Rung("", "trainers", 60.0, "touch", "/STOP", when=("deaf",))
    wait = Rung("", "trainers", 7200.0, "await", "checkpoint")
    run = Rung("", "trainers", 5.0, "run", "save.sh", unless=("busy",), lossless=True)
    keys = Rung("", "trainers", 5.0, "keys", "C-s", lossless=True)
    world = job(DEAF)
    ladder = begin(
        asks(wait, touch, run, keys), world.family(), stop_signal="INT", consent="absent"
    )
    steps = plan(ladder, world.tree(), verdict="deaf")
    assert told(steps) == [
        ("AWAIT", "wait"), ("TOUCH", "send_if"), ("RUN", "skip"), ("KEYS", "skip"),
    ]  # fmt: skip
    assert (steps[1].argument, steps[1].landing, steps[1].pids) == ("/STOP", "asked", (101,))
    assert steps[1].reason == "if it still runs by then and is deaf"
    assert "heard a signal already" in steps[2].reason
    assert "tmux" in steps[3].reason
    first = begin(asks(run, touch), world.family(), stop_signal="INT", consent="absent")
    assert told(plan(first, world.tree(), verdict="busy")) == [("RUN", "skip"), ("TOUCH", "skip")]


def test_after_a_checkpoint_what_may_lose_work_would_follow() -> None:
    world = job(IGNORES_ALL)
    terms = Terms(after_checkpoint=True, at_most_s=7200.0)
    ladder = begin(STANDARD, world.family(), stop_signal="INT", consent="absent", terms=terms)
    steps = plan(ladder, world.tree(), verdict="deaf")
    assert told(steps)[0] == ("AWAIT", "wait")
    assert told(steps)[-1] == ("KILL", "send_if")
    blind = begin(
        STANDARD,
        world.family(),
        stop_signal="INT",
        consent="absent",
        terms=terms,
        checkpoints=False,
    )
    assert told(plan(blind, world.tree()))[0] == ("AWAIT", "skip")
    assert told(plan(blind, world.tree()))[-1] == ("KILL", "skip")


def test_a_limited_loss_is_planned_by_the_checkpoint_of_now() -> None:
    world = job(DEAF)
    terms = Terms(max_loss_s=600.0)
    ladder = begin(STANDARD, world.family(), stop_signal="INT", consent="absent", terms=terms)
    young = AtRisk("a.pt", 60.0, known_format=True, ours=True)
    old = AtRisk("a.pt", 6000.0, known_format=True, ours=True)
    assert told(plan(ladder, world.tree(), risk=young))[1] == ("TERM", "send")
    assert told(plan(ladder, world.tree(), risk=old))[1] == ("TERM", "skip")


def test_a_worker_born_since_is_planned_for() -> None:
    """As `observe` would: a child of a trainer belongs to the family."""
    world = job(IGNORES_ALL)
    family = world.family()
    job_with = job(IGNORES_ALL, workers=1, worker=WORKER)
    ladder = begin(STANDARD, family, stop_signal="INT", consent="given")
    assert plan(ladder, job_with.tree())[-1].pids == (100, 101, 200)
    assert ladder.family == family
