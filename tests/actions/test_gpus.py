from __future__ import annotations

import asyncio

import pytest

from fleetstop import events
from fleetstop.actions.gpus import gpus, held_by_one, still_there
from fleetstop.core.commands import Answer
from fleetstop.core.inventory import Container, Inventory
from fleetstop.core.report import exit_code_of
from fleetstop.errors import Refused, RemoteFailed
from tests.actions.stage import HOST, JOB, Stage, target
from tests.fakes.fake_host import FakeHost, Open, a_job

FLEET = Inventory(
    hosts={"pve1": HOST}, containers={"ct200": Container("ct200", "pve1", 200, jobs=(JOB,))}
)
HERE = target(name="pve1", vmid=None, job=None)


def stage_of(host: FakeHost) -> Stage:
    return Stage(host, aim=HERE)


def test_a_job_is_told_on_its_gpu_and_nothing_is_changed() -> None:
    host = FakeHost()
    trainer = a_job(host)
    host.gpus = [{trainer.pid: 700}, {}]
    stage = stage_of(host)
    outcome = asyncio.run(gpus(stage.scope, FLEET))
    assert (outcome.result, exit_code_of(outcome)) == ("running", 0)
    assert outcome.gpus is not None
    first, second = outcome.gpus
    (holder,) = first.held_by or ()
    assert (holder.job, holder.pid, holder.host_pid) == ("ct200:train", trainer.inner, trainer.pid)
    assert (first.state, second.state) == ("held", "idle")
    assert (stage.world.host.changes(), stage.world.within.commands) == ([], [])
    assert stage.of(events.TargetFinished)[0].outcome == outcome


def test_who_has_a_device_open_is_told_where_nvidia_smi_hangs_or_lists_nobody() -> None:
    host = FakeHost()
    trainer = a_job(host)
    trainer.files[9] = Open("/dev/nvidia0")
    host.gpus, host.unlisted_mib = [{}], 5000
    outcome = asyncio.run(gpus(stage_of(host).scope, FLEET))
    (said,) = outcome.findings
    assert f"open in {trainer.inner} " in said
    stage = stage_of(host)
    stage.world.host.before("gpus", lambda _: Answer(31, b""))
    outcome = asyncio.run(gpus(stage.scope, FLEET))
    assert (outcome.result, outcome.verdict, exit_code_of(outcome)) == ("unreachable", "unknown", 4)
    assert outcome.gpus is None
    (said,) = outcome.findings
    assert said.startswith(f"/dev/nvidia* is open in {trainer.inner} ")


def test_without_root_it_says_that_open_devices_could_not_be_seen() -> None:
    host = FakeHost()
    a_job(host)
    host.gpus, host.unlisted_mib = [{}], 5000
    stage = stage_of(host)
    stage.world.without_root = "no root on pve1"
    outcome = asyncio.run(gpus(stage.scope, FLEET))
    (said,) = outcome.findings
    assert said.endswith("who has /dev/nvidia* open could not be seen: no root on pve1")
    assert "nobody" not in said
    assert stage.world.host.sent("openers") == []


def test_the_one_on_a_gpu_is_refused_once_it_has_ended() -> None:
    """Its number may be another's by then, who would hear the signal."""
    host = FakeHost()
    trainer = a_job(host)
    host.gpus = [{trainer.pid: 700}]
    stage = stage_of(host)
    held = asyncio.run(held_by_one(stage.scope, FLEET, 0))
    assert held is not None
    assert (held.target, held.vmid) == ("ct200:train", 200)
    asyncio.run(still_there(stage.scope, held))
    host.end(trainer)
    with pytest.raises(Refused, match="has just ended"):
        asyncio.run(still_there(stage.scope, held))


def test_what_is_not_known_is_no_idle_gpu() -> None:
    host = FakeHost()
    stage = stage_of(host)
    stage.world.host.before("gpus", lambda _: Answer(30, b""))
    with pytest.raises(RemoteFailed, match="is not known: there is no nvidia-smi"):
        asyncio.run(held_by_one(stage.scope, FLEET, 0))
