"""A job that something starts again whatever it returns: told before anything is sent."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from fleetstop.actions.grounding import Running
from fleetstop.actions.kept_up import kept_up
from fleetstop.actions.locate import locate
from fleetstop.actions.lots import Lot
from fleetstop.core.playbook import Playbook
from fleetstop.errors import Refused
from tests.actions.stage import GENTLE, HARD, JOB, NOW, Stage, playbook, target
from tests.actions.test_going_on import ERRAND
from tests.fakes.fake_host import FakeHost, Trainer, a_job

ALWAYS = "while true; do python train.py; sleep 1; done"
SAID = (
    "5 bash -c 'while true; do python train.py; sleep 1; done' starts it again whatever it returns "
    "(while true)"
)


def told(text: str, how: Playbook = GENTLE, *, deaf: bool = False, **facts: Any) -> list[str]:
    """The findings, of a job below `bash -c TEXT`."""
    host = FakeHost()
    trainer: Trainer = a_job(host)
    if deaf:
        trainer.hears = set()
    host.procs[1005].argv = ("bash", "-c", text)
    aim = msgspec.structs.replace(JOB, checkpoints=facts.pop("checkpoints", JOB.checkpoints))
    stage = Stage(host, aim=target(job=aim))
    stop = msgspec.structs.replace(ERRAND.stop, playbook=how)
    errand = msgspec.structs.replace(ERRAND, stop=stop, **facts)

    async def story() -> list[str]:
        scene = await locate(stage.scope)
        (family,) = scene.found.families
        process = scene.tree.get(family.trainers[0].id)
        assert process is not None
        lot = Lot(stage.scope, scene, Running(family, process, None, None), "python3", "/root")
        kept_up(lot, errand)
        assert host.sends() == []
        return lot.findings

    return asyncio.run(story())


@pytest.mark.parametrize("how", [GENTLE, HARD])
def test_what_would_run_again_with_the_old_code_is_not_stopped_for_nothing(how: Playbook) -> None:
    """It was signalled, waited for, and ran again; a dry run had nothing to say."""
    with pytest.raises(Refused) as caught:
        told(ALWAYS, how)
    assert caught.value.message == (
        f"{SAID}: the same code would run again before anything of it could be replaced or started "
        "otherwise"
    )
    assert caught.value.hint == (
        "the same with --playbook now --after-checkpoint ends both, behind the next checkpoint; "
        "take the loop out of what starts it, or the next one cannot be replaced either"
    )
    with pytest.raises(Refused) as caught:
        told(ALWAYS, how, checkpoints=None)
    assert "--after-checkpoint" not in caught.value.hint
    with pytest.raises(Refused):
        told(ALWAYS, playbook("await:checkpoint/1h INT/3m"))


def test_where_the_loop_itself_is_ended_or_it_is_not_certain_it_is_only_told() -> None:
    said = "where it does so after this stop, nothing is replaced, and what ran runs again"
    assert told(ALWAYS, NOW) == []
    assert told(ALWAYS, HARD, deaf=True) == [f"{SAID}: {said}"]
    (finding,) = told("until python train.py; do sleep 2; done")
    assert finding.endswith(f"starts it again until it exits 0 (until python train.py): {said}")
    assert told("python train.py; echo done") == []
    assert told(ALWAYS, diff=True) == []
