"""What a launch is started with: what the stop saved is known only after it."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

import msgspec
import pytest

from fleetstop import events as e
from fleetstop.actions.attempt import Wish
from fleetstop.actions.confirming import confirm
from fleetstop.actions.equipping import Equipment
from fleetstop.actions.errand import Errand, wished
from fleetstop.actions.grounding import saves
from fleetstop.actions.launch_plan import LaunchPlan
from fleetstop.actions.launching import launch_through
from fleetstop.actions.locate import Scene, locate
from fleetstop.actions.lots import Lot
from fleetstop.core.inventory import Healthcheck, Launch
from fleetstop.core.launching.activation import State, state_of
from fleetstop.core.launching.origin import Origin
from fleetstop.core.launching.recipe import Extra, Known
from fleetstop.core.process import ProcessId
from fleetstop.core.releases.ground import Ground
from fleetstop.core.releases.manifest import Release
from fleetstop.core.releases.payload import File
from fleetstop.core.report import Outcome, exit_code_of
from tests.actions.stage import GENTLE, JOB, job
from tests.actions.test_launching import Bringing, a_host, born, plan
from tests.fakes.fake_activator import BASE, LaunchHost
from tests.fakes.fake_host import whole

RESUMING = Launch(run=("bash", "run.sh"), cwd="/root", resume=("--resume", "{checkpoint}"))
STEPS = ("/ck/step_1.pt", "/ck/step_2.pt")
ERRAND = Errand(command="restart", stop=Wish(playbook=GENTLE, consent="absent"))


KEPT = Release(
    id="20261130-140211-7f3a", files=(File("train.py", "a" * 64, 1, 0o644),), dest="/root", when="",
    who="me@box", argv=("bash", "run.sh"), cwd="/root", env={},
)  # fmt: skip


def lot_of(stage: Bringing, scene: Scene) -> Lot:
    lot = Lot(stage.scope, scene, None, "/usr/bin/python3", "/root")
    lot.ground = Ground(
        state=None, activator=None, beat_s=None, releases={}, on_disk={}, changed={}, last=None,
        now=0.0, tools=BASE,
    )  # fmt: skip
    return lot


async def equipped(stage: Bringing, errand: Errand = ERRAND) -> tuple[Lot, Equipment]:
    lot = lot_of(stage, await locate(stage.scope))
    there = await saves(stage.scope, lot.job.checkpoints, at_rest=True)
    return lot, Equipment(lot, errand, Known(checkpoint=there.newest), there)


@pytest.mark.parametrize("first", [True, False])
def test_it_goes_on_from_what_the_stop_saved(first: bool) -> None:
    """Also where that is the first one there is: it was decided before, and the steps of the
    whole run were lost."""

    async def story() -> None:
        host = a_host()
        if not first:
            host.write("/ck/step_1.pt", whole(), age_s=500.0)
        stage = Bringing(host, launch=RESUMING)
        lot, needs = await equipped(stage)
        told = await needs.plan()
        known = None if first else "/ck/step_1.pt"
        resume = told.spec.resume
        assert resume is not None
        assert (resume.known, resume.directory, resume.words) == (
            known, "/ck", ("--resume", "{checkpoint}"),
        )  # fmt: skip
        host.write("/ck/step_2.pt", whole())
        late = await needs.late(told)
        assert json.loads(host.text_of(f"{BASE}/late-run1.json")) == {
            "launch": ["bash", "run.sh", "--resume", "/ck/step_2.pt"],
            "checkpoint": "/ck/step_2.pt",
        }
        assert late.expected.arguments == ("--resume", "/ck/step_2.pt")
        assert "it goes on from /ck/step_2.pt" in lot.findings

    asyncio.run(story())


def test_what_is_cut_is_nothing_to_go_on_from() -> None:
    async def story() -> None:
        host = a_host()
        stage = Bringing(host, launch=RESUMING)
        _, needs = await equipped(stage)
        told = await needs.plan()
        host.write("/ck/step_2.pt", whole()[:200])
        assert await needs.late(told) is told
        assert f"{BASE}/late-run1.json" not in host.files

    asyncio.run(story())


def test_a_release_is_healthy_only_by_the_words_of_its_own_manifest() -> None:
    """One whose own words are wrong was started with others, was well, and was gone back to."""

    async def story(argv: tuple[str, ...], extra: Extra) -> tuple[str | None, bool]:
        stage = Bringing(a_host(), launch=Launch(run=("bash", "run.sh"), cwd="/root"))
        lot = lot_of(stage, await locate(stage.scope))
        release = msgspec.structs.replace(KEPT, argv=argv)
        lot.ground = msgspec.structs.replace(
            lot.ground, releases={KEPT.id: release}, on_disk={"train.py": "a" * 64}
        )
        errand = msgspec.structs.replace(ERRAND, extra=extra)
        spec = (await Equipment(lot, errand, Known()).plan()).spec
        return spec.stays, spec.as_kept

    assert asyncio.run(story(("bash", "run.sh"), Extra())) == (KEPT.id, True)
    wrong = ("bash", "run.sh", "--resume", "/ck/gone")
    assert asyncio.run(story(wrong, Extra())) == (KEPT.id, False)
    for extra in (Extra(words=("--save-every", "3")), Extra(env={"FOO": "1"})):
        assert asyncio.run(story(("bash", "run.sh"), extra)) == (KEPT.id, False)


def test_an_old_checkpoint_among_its_own_words_is_told_before_and_after_the_stop() -> None:
    """It was started from that without a word: what the stop had saved was lost."""

    async def story(launch: Launch) -> tuple[list[str], list[str]]:
        host = a_host()
        host.write("/ck/step_1.pt", whole(), age_s=500.0)
        host.write("/ck/step_2.pt", whole(), age_s=400.0)
        stage = Bringing(host, launch=launch)
        lot, needs = await equipped(stage)
        needs.show()
        before = list(lot.findings)
        told = await needs.plan()
        host.write("/ck/step_3.pt", whole())
        resume, spec = told.spec.resume, told.spec.launch
        assert resume is not None
        assert spec is not None
        own = resume.named
        assert own == () if launch.resume else own in ((STEPS[0],), (STEPS[1],))
        assert launch.resume or resume.launch == (spec.argv, ())
        late = await needs.late(told)
        assert late is told or launch.resume
        return before, lot.findings[len(before) :]

    run = ("bash", "run.sh", "--resume", "/ck/step_1.pt")
    said = "it is started with --resume /ck/step_1.pt, though /ck/step_{}.pt is newer; " + (
        "`launch: {{resume: [--resume, '{{checkpoint}}']}}` in the inventory goes on from that"
    )
    before, after = asyncio.run(story(Launch(run=run, cwd="/root")))
    assert (before, after) == ([said.format(2)], [said.format(3)])
    newest = (*run[:3], "/ck/step_2.pt")
    before, after = asyncio.run(story(Launch(run=newest, cwd="/root")))
    assert (before, after) == ([], [said.format(3).replace("step_1", "step_2")])
    before, after = asyncio.run(story(RESUMING))
    assert (before, after) == ([], ["it goes on from /ck/step_3.pt"])
    env = {"RESUME_FROM": "/ck/step_1.pt"}
    before, after = asyncio.run(story(Launch(run=run[:2], cwd="/root", env=env)))
    said = "its variable RESUME_FROM names /ck/step_1.pt, though /ck/step_{}.pt is newer; " + (
        "--env RESUME_FROM=/ck/step_{}.pt starts it from that"
    )
    assert (before, after) == ([said.format(2, 2)], [said.format(3, 3)])


async def went_back(host: LaunchHost, told: LaunchPlan) -> State:
    """The new one ended with exit 3, and whoever watched left just when the old one was back."""
    stage = Bringing(host)
    task = asyncio.ensure_future(launch_through(stage.scope, told, stage.world.inside))
    while not stage.of(e.RolledBack):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    state = state_of(host.text_of(f"{BASE}/state.json"))
    assert state is not None
    assert (state.step, state.exit) == ("rolled_back", 3)
    return state


def confirmed(
    host: LaunchHost,
    state: State,
    origin: Origin | None = None,
    kept: Release | None = None,
    **facts: Any,
) -> tuple[Outcome, Bringing]:
    stage = Bringing(host, "run2", **facts)

    async def story() -> Outcome:
        lot, needs = await equipped(stage)
        if origin is not None:  # it runs, and may be more than what the inventory says
            lot.now = cast(Any, object())
            needs = Equipment(lot, ERRAND, Known(origin=origin))
        if kept is not None:
            lot.ground = msgspec.structs.replace(lot.ground, releases={kept.id: kept})
        lock = stage.lock()
        await lock.claim()
        return await confirm(lot, needs, state, lock)

    return asyncio.run(story()), stage


def test_the_old_version_that_is_back_is_not_called_dead_by_the_new_ones_end() -> None:
    host = a_host(born(dies_after=2.0, exit_=3), born())
    state = asyncio.run(went_back(host, plan()))
    outcome, stage = confirmed(host, state, launch=Launch(run=("bash", "run.sh"), cwd="/root"))
    assert (outcome.result, exit_code_of(outcome)) == ("running", 0), outcome.reason
    assert stage.of(e.Unhealthy) == []
    assert outcome.release is not None
    assert outcome.release.running == state.running


def test_the_old_version_that_is_back_is_not_asked_for_words_it_never_knew() -> None:
    """The inventory's words to resume were for the new one: what came back would be unwell."""
    host = a_host(born(dies_after=2.0, exit_=3), born())
    host.write("/ck/step_1.pt", whole(), age_s=500.0)
    state = asyncio.run(went_back(host, plan()))
    origin = Origin(ProcessId(1, 1), argv=("bash", "run.sh"), cwd="/root", env={}, uid=0, gid=0)
    state = msgspec.structs.replace(state, checkpoint="/ck/step_1.pt")
    outcome, _ = confirmed(host, state, origin, launch=RESUMING)
    assert outcome.result == "running", outcome.reason


def test_what_was_launched_is_asked_for_the_checkpoint_it_was_given() -> None:
    """It has saved since: the newest is not what its words name."""
    host = a_host(born())
    host.write("/ck/step_2.pt", whole())
    made = born()

    def birth(host: LaunchHost, above: int) -> Any:
        shell = made(host, above)
        for each in (shell, *host.all_below(shell)):
            each.argv = (*each.argv, "--resume", "/ck/step_1.pt")
        return shell

    host.births = [birth]
    host.write("/ck/step_1.pt", whole(), age_s=500.0)
    stage = Bringing(host)
    asyncio.run(launch_through(stage.scope, plan(), stage.world.inside))
    state = state_of(host.text_of(f"{BASE}/state.json"))
    assert state is not None
    state = msgspec.structs.replace(state, checkpoint="/ck/step_1.pt")
    outcome, _ = confirmed(host, state, launch=RESUMING)
    assert outcome.result == "running", outcome.reason
    assert host.text_of(f"{BASE}/order") == "run1 done\n"


@pytest.mark.parametrize("own", [True, False])
def test_one_found_healthy_later_is_noted_so_only_by_its_own_words(own: bool) -> None:
    host = a_host(born())
    stage = Bringing(host)
    asyncio.run(launch_through(stage.scope, plan(), stage.world.inside))
    state = state_of(host.text_of(f"{BASE}/state.json"))
    assert state is not None
    state = msgspec.structs.replace(state, release=None, running=KEPT.id)  # a restart's
    kept = KEPT if own else msgspec.structs.replace(KEPT, argv=("bash", "run.sh", "--wrong"))
    launch = Launch(run=("bash", "run.sh"), cwd="/root")
    outcome, _ = confirmed(host, state, kept=kept, launch=launch)
    assert outcome.result == "running", outcome.reason
    assert (f"{BASE}/releases/{KEPT.id}/tried.json" in host.files) is own


@pytest.mark.parametrize(("says", "well"), [("step 1 15K tok/s", True), ("loading", False)])
def test_what_the_run_before_said_in_a_log_that_the_job_opens_itself_is_not_this_runs(
    says: str, well: bool
) -> None:
    """It was not rotated: whoever started it has noted how long it was."""
    host = a_host(born(says=((1.0, says),)))
    begins = len(host.files["/train.log"].data)
    stage = Bringing(host)
    asyncio.run(launch_through(stage.scope, plan(), stage.world.inside))
    state = state_of(host.text_of(f"{BASE}/state.json"))
    assert state is not None
    assert state.trainer is not None
    started = msgspec.structs.replace(state.trainer, log_from=begins)
    state = msgspec.structs.replace(state, trainer=started)
    check = Healthcheck(log_matches="tok/s", within_s=6.0)
    launch = Launch(run=("bash", "run.sh"), cwd="/root")
    outcome, _ = confirmed(host, state, launch=launch, healthcheck=check)
    assert outcome.result == ("running" if well else "unhealthy"), outcome.reason


def test_the_same_command_is_known_by_its_wish() -> None:
    assert wished(ERRAND, JOB, {}) == wished(ERRAND, JOB, {})
    other = [
        msgspec.structs.replace(ERRAND, command="rollback"),
        msgspec.structs.replace(ERRAND, extra=Extra(words=("--lr", "3"))),
        msgspec.structs.replace(ERRAND, extra=Extra(env={"SEED": "7"})),
        msgspec.structs.replace(ERRAND, command="redeploy"),
    ]
    assert len({wished(each, JOB, {"a": "1"}) for each in (ERRAND, *other)}) == 5
    other_check = job(healthcheck=Healthcheck(log_matches="tok/s"))
    assert wished(ERRAND, other_check, {}) != wished(ERRAND, JOB, {})
    redeploy = other[-1]
    assert wished(redeploy, JOB, {"a": "1"}) != wished(redeploy, JOB, {"a": "2"})
