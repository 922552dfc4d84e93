"""How a job is started, where the inventory does not say it: what ran, and no invention."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fleetstop.actions import lastly
from fleetstop.actions.asking import Desk
from fleetstop.actions.bringing import Bringing, bring
from fleetstop.actions.errand import Command
from fleetstop.actions.grounding import Loads, Running
from fleetstop.actions.locate import locate
from fleetstop.actions.lock import Lock
from fleetstop.actions.origins import Began
from fleetstop.core.inventory import Deploy
from fleetstop.core.launching.activation import State
from fleetstop.core.launching.origin import Origin
from fleetstop.core.process import ProcessId
from fleetstop.core.releases.ground import Ground
from fleetstop.core.releases.manifest import Release
from fleetstop.core.releases.tried import Tried
from fleetstop.errors import DeployFailed, Refused
from tests.actions.stage import JOB, Stage, job, target
from tests.actions.test_deciding import errand
from tests.fakes.fake_activator import BASE
from tests.fakes.fake_host import FakeHost, a_job

A, B, C = "20261128-140211-7f3a", "20261129-140211-7f3a", "20261130-140211-7f3a"
BAD, GOOD = Tried(failed="2026", reason="exit 1"), Tried(healthy="2026")
ADOPT = "; while a job runs, fleetstop adopt ct200 --pid N --as NAME writes that"
EXAMPLE = "say it in the inventory, for instance: launch: {run: [/root/run.sh], cwd: /root}"


def kept(name: str) -> Release:
    return Release(
        id=name, files=(), dest="/root", when="", who="",
        argv=("bash", "/root/run.sh", "--gpus", name[7]), cwd="/root",
    )  # fmt: skip


def hint(
    monkeypatch: pytest.MonkeyPatch, command: Command, *, placed: bool = True, running: str = "",
    **tried: Tried,
) -> str | None:  # fmt: skip
    """Of a job that does not run. `tried`: the kept releases by the day in their names."""
    names = {each[7]: each for each in (A, B, C)}
    known = {names[day[1]]: each for day, each in tried.items()}

    async def loads(*_: Any) -> Loads:
        return Loads((), {})

    async def ground(*words: Any) -> Ground:
        assert words[2:4] == (BASE, "/root")
        if not tried:
            raise DeployFailed("there is no python3 there")
        return Ground(
            state=State("7f3a", "healthy", running=running or None), activator=False, beat_s=None,
            releases={name: kept(name) for name in known}, on_disk={}, changed={}, last=None,
            now=0.0, tools=BASE, tried=known,
        )  # fmt: skip

    monkeypatch.setattr(lastly, "what_it_loads", loads)
    monkeypatch.setattr(lastly, "ground", ground)
    aim = job(deploy=Deploy(dest="/root")) if placed else JOB
    host = FakeHost()
    host.end(a_job(host))
    outcome = asyncio.run(bring(Stage(host, aim=target(job=aim)).scope, errand(command)))
    assert outcome.result == "refused", outcome
    assert outcome.reason == "it does not run, and nothing says how it is started"
    return outcome.hint


@pytest.mark.parametrize("command", ["launch", "restart", "redeploy"])
def test_it_is_told_with_all_its_words_as_it_was_started_last(
    monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    assert hint(monkeypatch, command, d8=GOOD, d9=GOOD, running=A) == (
        f"say it in the inventory, as release {A} was started: launch: "
        '{run: [bash, /root/run.sh, --gpus, "8"], cwd: /root}' + ADOPT
    )


def test_what_failed_is_no_example_of_how_it_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    told = hint(monkeypatch, "launch", d8=GOOD, d9=Tried(), d0=BAD, running=C)
    assert told is not None
    assert f"as release {A} was started" in told
    told = hint(monkeypatch, "launch", d8=BAD)
    assert told == EXAMPLE + ADOPT


def test_what_is_not_known_is_called_an_example(monkeypatch: pytest.MonkeyPatch) -> None:
    """No records, or nothing tells where they lie."""
    assert hint(monkeypatch, "launch") == EXAMPLE + ADOPT
    assert hint(monkeypatch, "launch", placed=False, d8=GOOD) == EXAMPLE + ADOPT


@pytest.mark.parametrize("known", [True, False])
def test_one_in_another_keeping_is_told_as_it_runs(
    monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    async def began(*_: Any) -> Any:
        if not known:
            raise Refused("its trainers were started apart from each other")
        ran = Origin(ProcessId(10, 1), argv=("bash", "run.sh", "--lr", "3"))
        return Began(ran, ran, "/srv", None)

    host = FakeHost()
    a_job(host)
    stage = Stage(host)

    async def story() -> None:
        scene = await locate(stage.scope)
        (family,) = scene.found.families
        process = scene.tree.get(family.trainers[0].id)
        assert process is not None
        lock = Lock(stage.world.host, stage.run, 200, host.clock)
        work = Bringing(stage.scope, errand("restart"), Desk(), lock)
        await work._its_keeper(scene, Running(family, process, None, "train.service (systemd)"))

    monkeypatch.setattr(lastly, "began", began)
    with pytest.raises(Refused) as caught:
        asyncio.run(story())
    line = 'as it runs: launch: {run: [bash, run.sh, --lr, "3"], cwd: /srv}'
    assert caught.value.hint == (
        "restart it there; or say in the inventory how we are to, "
        + (line if known else "for instance: launch: {run: [/root/run.sh], cwd: /root}")
    )
