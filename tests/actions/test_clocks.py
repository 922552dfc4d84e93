"""Storage with a clock of its own, files whose times were set: a time to come proves nothing."""

from __future__ import annotations

import asyncio

import pytest

from fleetstop.core.climbing.consent import Terms
from fleetstop.core.playbook import Hold
from fleetstop.core.report import Outcome
from tests.actions.stage import HARD, Stage, playbook
from tests.fakes.fake_host import FakeHost, Trainer, a_job, whole

DAY = 86400.0


def deaf(host: FakeHost) -> Trainer:
    return a_job(host, Trainer(host, hears=(), ignores=("INT", "TERM")))


def test_a_checkpoint_from_tomorrow_is_not_young() -> None:
    """`--max-loss 10m` at a file that says tomorrow: how much is lost nobody knows."""
    host = FakeHost()
    trainer = deaf(host)
    host.write("/ck/step.pt", whole(), age_s=-DAY)
    stage = Stage(host)
    outcome: Outcome = asyncio.run(stage.stop(HARD, terms=Terms(max_loss_s=600.0)))
    assert trainer.pid in host.procs
    assert host.sends() == []
    (said,) = [each.reason for each in outcome.skipped if each.signal == "KILL"]
    assert "The age of step.pt is not known" in said
    assert outcome.checkpoint is not None
    assert outcome.checkpoint.age_s is None


@pytest.mark.parametrize("ahead_s", [-300.0, 2.0])
def test_clocks_that_nearly_agree_still_give_an_age(ahead_s: float) -> None:
    host = FakeHost()
    trainer = deaf(host)
    host.write("/ck/step.pt", whole(), age_s=-ahead_s)
    asyncio.run(Stage(host).stop(HARD, terms=Terms(max_loss_s=600.0)))
    assert trainer.pid not in host.procs


def test_between_two_parts_on_storage_whose_clock_is_ahead_it_saves() -> None:
    """Nothing is open between two parts, and KILL there would leave half a set."""

    async def story() -> None:
        host = FakeHost()
        trainer = deaf(host)
        host.write("/ck/m-00001-of-00002.safetensors", b"part", age_s=-90.0)
        alive = []

        def second() -> None:
            alive.append(trainer.pid in host.procs)
            host.write("/ck/m-00002-of-00002.safetensors", b"part", age_s=-90.0)

        host.later(20.0, second)
        await Stage(host).stop(playbook("KILL:tree/5s", hold=Hold()), "given")
        assert alive == [True]

    asyncio.run(story())


def test_a_leftover_from_tomorrow_holds_for_a_minute_and_no_longer() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = deaf(host)
        host.write("/ck/crashed.pt.tmp", b"half", age_s=-DAY)
        began = host.clock.now()
        await Stage(host).stop(playbook("KILL:tree/5s", hold=Hold()), "given")
        assert trainer.pid not in host.procs
        assert 60.0 <= host.clock.now() - began < 120.0

    asyncio.run(story())


@pytest.mark.parametrize("behind_s", [0.0, 90.0])
def test_between_two_parts_on_storage_whose_clock_is_behind_it_saves(behind_s: float) -> None:
    """The first part came while we looked; that it claims to be old makes it no leftover."""

    async def story() -> None:
        host = FakeHost()
        trainer = deaf(host)
        alive = []

        def first() -> None:
            host.write("/ck/m-00001-of-00002.safetensors", b"part", age_s=behind_s)

        def second() -> None:
            alive.append(trainer.pid in host.procs)
            host.write("/ck/m-00002-of-00002.safetensors", b"part", age_s=behind_s)

        host.later(0.15, first)
        host.later(20.0, second)
        await Stage(host).stop(playbook("KILL:tree/5s", hold=Hold()), "given")
        assert alive == [True]
        assert trainer.pid not in host.procs

    asyncio.run(story())


@pytest.mark.parametrize("behind_s", [0.0, 90.0])
def test_what_came_just_before_a_kill_may_be_cut_whatever_its_time_says(behind_s: float) -> None:
    """Of an unknown format nobody can tell whether it is whole; by its time it is old."""

    async def story() -> None:
        host = FakeHost()
        deaf(host)
        host.write("/ck/step.h5", b"x" * 50, age_s=400.0)
        host.later(0.15, lambda: host.write("/ck/step.h5", b"y" * 90, age_s=behind_s))
        stage = Stage(host)
        outcome = await stage.stop(playbook("KILL:tree/5s", hold=Hold()), "given")
        assert outcome.result == "stopped"
        assert outcome.checkpoint is not None
        assert (outcome.checkpoint.path, outcome.checkpoint.complete) != ("/ck/step.h5", True)
        assert "step.h5 was being written when KILL went out" in " ".join(outcome.findings)

    asyncio.run(story())
