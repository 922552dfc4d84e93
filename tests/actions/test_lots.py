"""Where the code lies, and what has to be said of that once nothing runs that tells it."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from fleetstop import events as e
from fleetstop.actions import lots
from fleetstop.actions.equipping import Equipment
from fleetstop.actions.errand import Errand
from fleetstop.actions.grounding import Loads
from fleetstop.actions.locate import locate
from fleetstop.actions.lots import Lot, lot_of
from fleetstop.core.inventory import Deploy, Job, Launch
from fleetstop.core.launching.activation import State
from fleetstop.core.launching.origin import Origin
from fleetstop.core.launching.recipe import Known
from fleetstop.core.process import ProcessId
from fleetstop.core.releases.destination import Loaded
from fleetstop.core.releases.ground import Ground
from fleetstop.errors import DeployFailed, Refused
from tests.actions.stage import JOB, Stage, job, target
from tests.actions.test_going_on import ERRAND
from tests.fakes.fake_activator import BASE
from tests.fakes.fake_host import FakeHost, Proc, a_job

EMPTY = Ground(
    state=None, activator=None, beat_s=None, releases={}, on_disk={}, changed={}, last=None,
    now=0.0, tools=BASE,
)  # fmt: skip
IN_ROOT = (Loaded(main="/root/train.py", root="/root"),)


def found(
    monkeypatch: pytest.MonkeyPatch,
    aim: Job,
    runs: tuple[Loaded, ...] = IN_ROOT,
    asked: Errand = ERRAND,
    home: str | None = None,
    at_work: str | None = None,
    ground_: Ground = EMPTY,
    told: list[str] | None = None,
) -> tuple[Lot, Stage]:
    """Of a job that runs from there."""

    async def loads(*_: Any) -> Loads:
        return Loads(runs, {"/link": "/root"}, home)

    async def ground(*_: Any) -> Ground:
        return ground_

    monkeypatch.setattr(lots, "what_it_loads", loads)
    monkeypatch.setattr(lots, "ground", ground)
    host = FakeHost()
    a_job(host)
    if at_work is not None:
        base = f"{at_work.rstrip('/')}/.fleetstop/train"
        argv = ("python3", "-I", f"{base}/activate.py", f"{base}/stage-7f3a/spec.json")
        host.add(Proc(4000, 1000, argv))
    stage = Stage(host, aim=target(job=aim))

    async def story() -> Lot:
        scene = await locate(stage.scope)
        return await lot_of(stage.scope, asked, scene, None, "/usr/bin/python3")

    try:
        return asyncio.run(story()), stage
    finally:
        if told is not None:
            told += [each.text for each in stage.of(e.Finding)]


@pytest.mark.parametrize(
    ("aim", "placed"),
    [
        (JOB, False),
        (job(deploy=Deploy(dest="/root")), True),
        (job(launch=Launch(run=("bash", "run.sh"), cwd="/root")), True),
        (job(launch=Launch(run=("bash", "run.sh"), cwd="/srv")), False),
        (job(launch=Launch(run=("bash", "run.sh"), cwd="/link")), True),
    ],
)
def test_a_way_back_that_would_be_refused_as_typed_says_what_has_to_be_said_first(
    monkeypatch: pytest.MonkeyPatch, aim: Job, placed: bool
) -> None:
    """`rollback` was printed, and as typed then it was refused: where the code lies only the
    process had told, and that had ended."""
    lot, stage = found(monkeypatch, aim)
    assert lot.placed is placed
    assert lot.back(runs=True) == "fleetstop rollback ct200:train"
    more = "" if placed else ", once the inventory says where its code lies: deploy: {dest: /root}"
    assert lot.back(runs=False) == f"fleetstop rollback ct200:train{more}"
    Equipment(lot, ERRAND, Known(origin=RAN)).show()
    (shown,) = stage.of(e.LaunchShown)
    assert shown.dest == (None if placed else "/root")
    said = aim.launch is not None
    assert shown.ran == (() if said else ("bash", "/root/run.sh", "--gpus", "0"))
    assert shown.ran_in == (None if said else "/root")


RAN = Origin(
    id=ProcessId(10, 1), argv=("bash", "/root/run.sh", "--gpus", "0"), cwd="/root", exe="/bin/bash"
)


def test_its_records_are_where_the_last_activation_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory was sent beside that of the code: `restart` knows nothing of it."""
    lot, _ = found(monkeypatch, JOB, home="/srv")
    assert (lot.dest, lot.base) == ("/srv", "/srv/.fleetstop/train")
    lot, _ = found(monkeypatch, JOB, home="/srv", at_work="/")
    assert lot.dest == "/"
    named = job(deploy=Deploy(dest="/root"))
    lot, _ = found(monkeypatch, named, home="/srv", at_work="/root")
    assert lot.dest == "/root"
    with pytest.raises(Refused, match=r"run is at work in /srv/[.]fleetstop/train"):
        found(monkeypatch, named, at_work="/srv")


def test_where_it_is_not_known_at_all_a_path_is_only_an_example(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(Refused) as caught:
        found(monkeypatch, JOB, ())
    assert caught.value.hint == (
        "say where in the inventory; if that is /root: deploy: {dest: /root}"
    )


@pytest.mark.parametrize("step", ["waiting", "healthy"])
def test_a_rollback_with_nothing_to_go_back_to_names_what_will_come_all_the_same(
    monkeypatch: pytest.MonkeyPatch, step: Any
) -> None:
    state = State("7f3a", step, release="20261130-140211-7f3a", order="armed")
    ground = msgspec.structs.replace(EMPTY, state=state, activator=step == "waiting")
    asked = msgspec.structs.replace(ERRAND, command="rollback")
    told: list[str] = []
    with pytest.raises(DeployFailed, match="there is nothing to go back to"):
        found(monkeypatch, JOB, asked=asked, ground_=ground, told=told)
    said = (
        "the activator of run 7f3a waits for the job's end, and starts release 20261130-140211-7f3a"
        " then: `stop` has it leave"
    )
    assert told == ([said] if step == "waiting" else [])


def test_a_rollback_to_nothing_is_no_prefix_of_every_release(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`--to ''`, of a variable that is not set."""
    with pytest.raises(Refused) as caught:
        found(
            monkeypatch, JOB, asked=msgspec.structs.replace(ERRAND, command="rollback", release="")
        )
    assert caught.value.message == f"--to names no release: any kept in {BASE} would fit"
