"""A directory that has not yet all that the ones before it have: half a checkpoint is none."""

from __future__ import annotations

import asyncio

import pytest

from fleetstop.core.climbing.consent import Terms
from fleetstop.core.playbook import Hold
from tests.actions.stage import Stage, playbook
from tests.actions.test_wait import waited
from tests.fakes.fake_host import FakeHost, Trainer, a_job, whole


def saving_in_two_parts(gap_s: float) -> tuple[FakeHost, Trainer]:
    """Two checkpoints of two files each; of a third the model comes at 5 s, the optimizer later,
    and between the two nothing is open."""
    host = FakeHost()
    trainer = a_job(host, Trainer(host, hears=(), ignores=("INT", "TERM")))
    for step, age_s in ((30, 600.0), (60, 300.0)):
        for name in ("model", "optimizer"):
            host.write(f"/ck/step_{step}/{name}.pt", whole(), age_s=age_s)

    def part(name: str) -> None:
        if trainer.pid in host.procs:
            host.write(f"/ck/step_90/{name}.pt", whole())

    host.later(5.0, lambda: part("model"))
    host.later(5.0 + gap_s, lambda: part("optimizer"))
    return host, trainer


@pytest.mark.parametrize(
    "terms", [Terms(after_checkpoint=True, max_loss_s=60.0), Terms(after_checkpoint=True)]
)
def test_after_the_next_checkpoint_means_after_all_of_it(terms: Terms) -> None:
    host, trainer = saving_in_two_parts(20.0)
    asyncio.run(Stage(host).stop(playbook("KILL:tree/5s", hold=Hold()), terms=terms))
    assert trainer.pid not in host.procs
    assert "/ck/step_90/optimizer.pt" in host.files


def test_consent_to_kill_waits_for_the_second_part() -> None:
    host, trainer = saving_in_two_parts(20.0)
    book = playbook("await:checkpoint/8s KILL:tree/5s", hold=Hold())
    asyncio.run(Stage(host).stop(book, "given"))
    assert trainer.pid not in host.procs
    assert "/ck/step_90/optimizer.pt" in host.files


def test_a_part_that_never_comes_is_waited_for_a_minute_and_no_longer() -> None:
    host, trainer = saving_in_two_parts(100_000.0)
    began = host.clock.now()
    book = playbook("await:checkpoint/8s KILL:tree/5s", hold=Hold())
    asyncio.run(Stage(host).stop(book, "given"))
    assert trainer.pid not in host.procs
    assert 60.0 <= host.clock.now() - began <= 120.0


def test_a_wait_for_a_checkpoint_waits_for_both_parts() -> None:
    host, _ = saving_in_two_parts(20.0)
    outcome, took = waited(Stage(host), "checkpoint", 60.0)
    assert outcome.checkpoint is not None
    assert outcome.checkpoint.path == "/ck/step_90"
    assert took >= 25.0


def test_a_save_on_the_way_out_that_lacks_a_part_is_told_with_a_doubt() -> None:
    """The trainer wrote one rank's file and left; the format of that is whole."""
    host = FakeHost()
    trainer = a_job(host)
    for name in ("rank_0", "rank_1"):
        host.write(f"/ck/step_1/{name}.pt", whole(), age_s=300.0)

    def leaves(signal: str) -> None:
        host.write("/ck/step_26/rank_0.pt", whole())
        host.later(0.5, host.procs.clear)

    trainer.on_signal = leaves
    outcome = asyncio.run(Stage(host).stop())
    assert outcome.checkpoint is not None
    assert outcome.checkpoint.path == "/ck/step_26"
    assert "step_26 has no rank_1.pt, as step_1 has: it may not be whole" in outcome.findings
