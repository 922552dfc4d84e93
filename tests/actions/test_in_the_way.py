"""What is looked at before anything is started, against a simulated host."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from fleetstop import events as e
from fleetstop.actions.in_the_way import in_the_way
from fleetstop.actions.locate import locate
from fleetstop.core.kin.family import Family
from fleetstop.errors import Refused
from tests.actions.stage import Stage, job, target
from tests.fakes.fake_activator import BASE, LaunchHost
from tests.fakes.fake_host import Proc, a_job


class DatedClock:
    """Wall time as people read it; the other clock's time goes on."""

    def __init__(self, host: LaunchHost) -> None:
        self._clock = host.clock

    def now(self) -> float:
        return self._clock.now()

    def wall(self) -> str:
        return "2026-01-01T03:01:00Z"

    async def sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)


def empty() -> LaunchHost:
    host = LaunchHost()
    host.add(Proc(1000, 1, ("init",)))
    return host


def asked(
    host: LaunchHost, *, restart: bool = False, **facts: Any
) -> tuple[tuple[str, ...], Stage]:
    stage = Stage(host, aim=target(job=job(**facts)))
    stage.scope = stage.scope.__class__(
        stage.run, stage.scope.target, stage.world, DatedClock(host), stage.scope.teller,
        stage.scope.log_fault,
    )  # fmt: skip

    async def look() -> tuple[str, ...]:
        scene = await locate(stage.scope)
        ours: Family | None = scene.found.families[0] if restart else None
        return await in_the_way(stage.scope, scene, BASE, ours)

    return asyncio.run(look()), stage


def a_run_before(host: LaunchHost, **end: Any) -> None:
    host.write(
        f"{BASE}/state.json",
        json.dumps({"schema": 1, "run": "run0", "step": "healthy",
                    "trainer": {"pid": 44, "start": 3, "mark": "m0"}}).encode(),
    )  # fmt: skip
    told = {"schema": 1, "mark": "m0", "ended_at": "2026-01-01T00:01:00+00:00", **end}
    host.write(f"{BASE}/status/m0.json", json.dumps(told).encode())


def test_where_nothing_is_nothing_is_said() -> None:
    assert asked(empty())[0] == ()


def test_in_a_stopped_container_nothing_is_started() -> None:
    host = LaunchHost()
    stage = Stage(host)
    stage.world.status = "stopped"

    async def look() -> None:
        await in_the_way(stage.scope, await locate(stage.scope), BASE)

    with pytest.raises(Refused) as caught:
        asyncio.run(look())
    assert (caught.value.message, caught.value.hint) == (
        "container 200 is stopped", "on the host: pct start 200",
    )  # fmt: skip


def test_the_last_unexplained_death_is_named() -> None:
    host = empty()
    a_run_before(host, signal="KILL")
    said, stage = asked(host)
    assert said == ("the last run ended by KILL at 2026-01-01 00:01:00 UTC, 3 h ago",)
    assert [each.text for each in stage.of(e.Finding)] == list(said)
    a_run_before(host, exit=0)
    assert asked(host)[0] == ()


def test_beside_a_running_one_nothing_is_started_and_the_ways_on_are_named() -> None:
    host = empty()
    a_job(host)
    with pytest.raises(Refused) as caught:
        asked(host)
    assert caught.value.message.startswith("it runs already: 10 python train.py, up ")
    assert caught.value.hint == ("fleetstop restart ct200:train; or fleetstop stop ct200:train")
    assert asked(host, restart=True)[0] == ()


def test_a_holder_of_its_own_gpus_is_named_also_where_nothing_of_the_job_runs() -> None:
    host = empty()
    host.gpus = [{1090: 4000}, {}]
    host.add(Proc(1090, 1000, ("python", "other.py")))
    with pytest.raises(Refused) as caught:
        asked(host, gpus=(0, 1))
    assert "GPU 0, 4000 MiB by 90 python other.py" in caught.value.message
    assert asked(host, gpus=(1,))[0] == ()


def test_another_run_s_activator_is_named_with_who_started_it() -> None:
    host = empty()
    other = host.add(Proc(1444, 1000, ("python3", "-I", f"{BASE}/activate.py")))
    state = {"schema": 1, "run": "run0", "step": "waiting",
             "activator": {"pid": other.inner, "start": other.start}}  # fmt: skip
    host.write(f"{BASE}/state.json", json.dumps(state).encode())
    asyncio.run(Stage(host, run="run0").lock().claim())
    with pytest.raises(Refused) as caught:
        asked(host)
    assert caught.value.message == (
        "run run0 of ann@laptop-run0 is bringing the job up (waiting, by process 444)"
    )
    host.end(other)
    assert asked(host)[0] == ()
