from __future__ import annotations

import asyncio

from fleetstop.actions.stacks import NOWHERE
from fleetstop.actions.status import status
from fleetstop.core.commands import Answer
from fleetstop.core.report import Outcome, Stack
from fleetstop.errors import ContainerFrozen
from tests.actions.stage import Stage, job, target
from tests.fakes.fake_host import FakeHost, a_job

SAID = Answer(0, b'Thread 10 (idle): "MainThread"\n    train (train.py:7)\n')
LINES = ('Thread 10 (idle): "MainThread"', "    train (train.py:7)")


def looked(stage: Stage) -> Outcome:
    return asyncio.run(status(stage.scope, with_stacks=True))


def a_stage() -> Stage:
    host = FakeHost()
    a_job(host)
    return Stage(host)


def test_the_host_s_own_is_asked_first_by_the_host_s_pid() -> None:
    stage = a_stage()
    stage.world.host.on("stacks", SAID)
    outcome = looked(stage)
    assert outcome.stacks == (Stack(10, LINES),)
    (asked,) = stage.world.host.sent("stacks")
    assert asked[0] == "1010"
    assert stage.world.within.sent("stacks") == []


def test_else_the_container_s_by_its_own_pid() -> None:
    stage = a_stage()
    stage.world.within.on("stacks", SAID)
    assert looked(stage).stacks == (Stack(10, LINES),)
    (asked,) = stage.world.within.sent("stacks")
    assert asked[0] == "10"


def test_where_there_is_none_one_line_says_how_to_get_it() -> None:
    outcome = looked(a_stage())
    assert outcome.stacks == ()
    assert outcome.findings[-1] == NOWHERE


def test_what_hangs_or_cannot_be_entered_is_told_and_the_status_stands() -> None:
    stage = a_stage()
    stage.world.host.on("stacks", Answer(31, b""))
    outcome = looked(stage)
    assert outcome.result == "running"
    assert outcome.stacks[0].problem == "py-spy did not answer within 10 s"

    host = FakeHost()
    a_job(host)
    stage = Stage(host, aim=target(job=job(checkpoints=None)))
    stage.world.entering = ContainerFrozen("it froze just now")
    outcome = looked(stage)
    assert outcome.result == "running"
    assert outcome.stacks == (Stack(10, (), "it froze just now"),)


def test_nobody_asks_unless_it_is_wished() -> None:
    stage = a_stage()
    outcome = asyncio.run(status(stage.scope))
    assert outcome.stacks == ()
    assert stage.world.host.sent("stacks") == []
    assert NOWHERE not in outcome.findings
