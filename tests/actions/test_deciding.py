"""What an earlier run has left, and what is not done twice without anybody's word."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

import msgspec
import pytest

from fleetstop.actions import bringing, hands
from fleetstop.actions.deciding import Settled, settled
from fleetstop.actions.errand import Command, Errand, wished
from fleetstop.actions.grounding import Running
from fleetstop.actions.locate import locate
from fleetstop.actions.lots import Lot
from fleetstop.core.climbing.consent import Consent
from fleetstop.core.inventory import Job
from fleetstop.core.launching.activation import Started, State
from fleetstop.core.launching.recipe import Extra
from fleetstop.core.releases.ground import Ground
from fleetstop.core.releases.manifest import Release
from fleetstop.core.releases.payload import File
from fleetstop.errors import DeployFailed, Refused
from tests.actions.stage import JOB, Stage
from tests.actions.test_going_on import ERRAND
from tests.fakes.fake_activator import BASE
from tests.fakes.fake_host import FakeHost, Trainer, a_job

OLD, NEW = "20261129-140211-7f3a", "20261130-140211-7f3a"
GOOD, BAD = "a" * 64, "b" * 64
AT = "2026-11-30T14:03:00+00:00"
AT_S = datetime.fromisoformat(AT).timestamp()


def release(name: str, sha: str) -> Release:
    return Release(id=name, files=(file(sha),), dest="/root", when="", who="")


def file(sha: str) -> File:
    return File("train.py", sha, 1, 0o644)


def errand(command: Command, consent: Consent = "absent", **facts: Any) -> Errand:
    stop = msgspec.structs.replace(ERRAND.stop, consent=consent)
    return msgspec.structs.replace(ERRAND, command=command, stop=stop, **facts)


def decide(
    asked: Errand, state: State, sends: str | None, lies: str, *, runs: bool = True, **ground: Any
) -> tuple[Settled, Lot, Trainer]:
    """The trainer that runs is the one that the state names, unless that names another."""
    host = FakeHost()
    host.clock.wall = lambda: AT  # type: ignore[method-assign]
    trainer = a_job(host)
    stage = Stage(host)
    if state.trainer is None:
        started = Started(trainer.inner, trainer.start)
        state = msgspec.structs.replace(state, trainer=started)

    async def story() -> tuple[Settled, Lot]:
        scene = await locate(stage.scope)
        (family,) = scene.found.families
        process = scene.tree.get(family.trainers[0].id)
        assert process is not None
        now = Running(family, process, None, None) if runs else None
        lot = Lot(stage.scope, scene, now, "/usr/bin/python3", "/root")
        lot.files = (file(sends),) if sends is not None else ()
        facts: dict[str, Any] = {"now": AT_S + 60.0, "activator": False, "beat_s": None, **ground}
        lot.ground = Ground(
            state=state, changed={}, last=None, tools=BASE,
            releases={OLD: release(OLD, GOOD), NEW: release(NEW, BAD)},
            on_disk={"train.py": lies}, **facts,
        )  # fmt: skip
        return await settled(lot, asked), lot

    found, lot = asyncio.run(story())
    return found, lot, trainer


def rolled_back(asked: Errand, job: Job = JOB) -> State:
    return State(
        run="7f3a", step="rolled_back", release=NEW, before=OLD, running=OLD, files="old",
        reason="bash run.sh ended with exit code 3", ended_at=AT,
        wish=wished(asked, job, {"train.py": BAD}),
    )  # fmt: skip


SAID = f"these bytes failed on 2026-11-30 14:03 UTC as release {NEW}: bash run.sh ended with exit"


def test_a_job_that_runs_is_not_stopped_for_bytes_that_failed_unless_that_is_meant() -> None:
    """The same script in a loop would stop and lose minutes each time."""
    asked = errand("redeploy")
    with pytest.raises(DeployFailed) as caught:
        decide(asked, rolled_back(asked), BAD, GOOD)
    assert caught.value.message == f"{SAID} code 3; nothing was stopped"
    assert "--force sends it all the same, and is consent to lose work" in caught.value.hint
    assert caught.value.exit_code == 7
    forced = errand("redeploy", "given")
    found, lot, _ = decide(forced, rolled_back(forced), BAD, GOOD)
    assert found == Settled()
    assert any(each.startswith(SAID) for each in lot.findings)


@pytest.mark.parametrize("why", ["nothing runs", "asked otherwise", "other bytes", "it runs"])
def test_it_is_only_said_where_nothing_is_lost_or_it_is_another_try(why: str) -> None:
    asked = errand("redeploy")
    state = rolled_back(asked)
    facts: dict[str, Any] = {"sends": BAD, "lies": GOOD}
    if why == "nothing runs":
        facts["runs"] = False
    elif why == "asked otherwise":
        asked = errand("redeploy", extra=Extra(words=("--lr", "3")))
    elif why == "other bytes":
        facts["sends"] = "c" * 64
    else:  # --no-rollback has left it
        state = msgspec.structs.replace(state, step="unhealthy", running=NEW, files="new")
        facts["lies"] = BAD
    found, lot, _ = decide(asked, state, **facts)
    assert found == Settled()
    assert any(each.startswith(SAID) for each in lot.findings) == (why != "other bytes")


def done(asked: Errand, **facts: Any) -> State:
    known: dict[str, Any] = {
        "run": "7f3a", "step": "healthy", "confirmed_by": "activator", "ended_at": AT,
        "wish": wished(asked, JOB, {}), "files": "old",
    }  # fmt: skip
    return State(**{**known, **facts})


@pytest.mark.parametrize("command", ["restart", "rollback"])
def test_what_an_interrupted_run_has_done_is_not_done_again(command: Command) -> None:
    """A second `rollback` would have gone forth again, to what was fled from."""
    asked = errand(command)
    sends = BAD if command == "rollback" else None
    found, lot, _ = decide(asked, done(asked), sends, GOOD)
    assert found.confirm == lot.state
    assert lot.findings == [
        "run 7f3a was asked the same, and what it started runs; nothing is sent, its health is"
        " looked at"
    ]
    told, _, _ = decide(asked, done(asked), sends, GOOD, order=("7f3a", "done"))
    assert told.confirm is None
    long_ago, _, _ = decide(asked, done(asked), sends, GOOD, now=AT_S + 4000.0)
    assert long_ago.confirm is None
    other, _, _ = decide(errand(command, extra=Extra(words=("x",))), done(asked), sends, GOOD)
    assert other.confirm is None
    another, _, _ = decide(asked, done(asked, trainer=Started(77, 5)), sends, GOOD)
    assert another.confirm is None


def test_a_dry_run_tells_it_and_confirms_nothing() -> None:
    asked = errand("restart")
    dry = msgspec.structs.replace(asked, stop=msgspec.structs.replace(asked.stop, dry_run=True))
    found, _, _ = decide(dry, done(asked), None, GOOD)
    assert found.confirm is None
    assert (found.done or "").endswith("only its health would be looked at")


def test_a_dry_run_beside_one_at_work_says_what_does_come_to_an_end() -> None:
    asked = errand("restart")
    dry = msgspec.structs.replace(asked, stop=msgspec.structs.replace(asked.stop, dry_run=True))
    at_work = State(run="7f3a", step="launched", running=NEW)
    with pytest.raises(Refused) as caught:
        decide(dry, at_work, None, GOOD, activator=True)
    assert caught.value.message.endswith("a dry run does not touch that")
    assert caught.value.hint == (
        "fleetstop status ct200:train tells how it comes out; the command without -n waits for "
        "that by itself"
    )


def test_arguments_that_were_typed_are_not_taken_for_given() -> None:
    """What runs holds the very bytes, and was started without them."""
    asked = errand("redeploy", extra=Extra(words=("--lr", "3")))
    state = rolled_back(errand("redeploy"))
    assert decide(asked, state, GOOD, GOOD)[0].confirm is None
    assert decide(errand("redeploy"), state, GOOD, GOOD)[0].confirm is not None


@pytest.mark.parametrize("order", ["armed", None])
def test_one_that_would_have_started_the_job_is_not_sent_off_without_a_word(
    monkeypatch: pytest.MonkeyPatch, order: Any
) -> None:
    """Cut short before this run waits there itself, the job ends by the signal that it has heard,
    and its GPUs idle."""
    given: list[str] = []

    async def ordered(_: object, base: str, run: str, word: str, *__: object) -> None:
        given.append(word)

    async def read(self: Lot) -> None:
        assert self.state is not None
        ended = msgspec.structs.replace(self.state, step="cancelled")
        self.ground = msgspec.structs.replace(self.ground, state=ended)

    monkeypatch.setattr(hands, "order", ordered)
    monkeypatch.setattr(Lot, "read", read)
    waits = State(run="7f3a", step="waiting", order=order, alone=True, running=OLD)
    found, _, _ = decide(errand("restart"), waits, None, GOOD, activator=True, beat_s=300.0)
    assert (given, found.again, found.dismissed) == (["cancel"], True, order == "armed")


@pytest.mark.parametrize("dismissed", [True, False])
def test_what_was_sent_off_is_told_where_this_run_ends_before_it_waits_itself(
    monkeypatch: pytest.MonkeyPatch, dismissed: bool
) -> None:
    host = FakeHost()
    a_job(host)
    ways = iter([Settled(again=True, dismissed=dismissed)])

    async def nothing(*_: object) -> Any:
        return None

    async def lots(scope: Any, _: object, scene: Any, now: Any, python: str) -> Lot:
        return Lot(scope, scene, now, python, "/root")

    async def found(*_: object) -> Settled:
        if (way := next(ways, None)) is not None:
            return way
        raise DeployFailed("the disk is full")

    for name, each in {
        "running": nothing, "carried_freely": nothing, "lot_of": lots, "settled": found,
    }.items():  # fmt: skip
        monkeypatch.setattr(bringing, name, each)
    monkeypatch.setattr(bringing, "python_of", lambda *_: "python3")
    outcome = asyncio.run(bringing.bring(Stage(host).scope, errand("restart")))
    assert (outcome.result, outcome.reason) == ("deploy_failed", "the disk is full")
    told = [each for each in outcome.findings if "nobody starts the job once what runs" in each]
    assert len(told) == dismissed
