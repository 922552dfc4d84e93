"""What an earlier run has left, and what is not done twice without anybody's word."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
import pytest

from fleetstop.actions import bringing, hands
from fleetstop.actions.deciding import Settled, settled
from fleetstop.actions.errand import Command, Errand, wished
from fleetstop.actions.grounding import Running
from fleetstop.actions.locate import locate
from fleetstop.actions.lots import Lot, _source
from fleetstop.actions.present import outcome_of
from fleetstop.core.climbing.consent import Consent
from fleetstop.core.inventory import Job
from fleetstop.core.launching.activation import Started, State
from fleetstop.core.launching.recipe import Extra
from fleetstop.core.releases.ground import Ground
from fleetstop.core.releases.manifest import Release
from fleetstop.core.releases.payload import File
from fleetstop.core.report import Outcome
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
    asked: Errand,
    state: State,
    sends: str | None,
    lies: str,
    *,
    runs: bool = True,
    words: Mapping[str, tuple[str, ...]] | None = None,
    **ground: Any,
) -> tuple[Settled, Lot, Trainer]:
    """What runs is `bash run.sh`; `words`: those of a kept release. The trainer that runs
    is the one that the state names, unless that names another."""
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
        kept = {OLD: release(OLD, GOOD), NEW: release(NEW, BAD)}
        for name, argv in (words or {}).items():
            kept[name] = msgspec.structs.replace(kept[name], argv=argv)
        facts: dict[str, Any] = {
            "now": AT_S + 60.0, "activator": False, "beat_s": None, "releases": kept, **ground,
        }  # fmt: skip
        lot.ground = Ground(
            state=state, changed={}, last=None, tools=BASE,
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


OTHER = "c" * 64


@pytest.mark.parametrize(
    ("step", "running"), [("rolled_back", OLD), ("unhealthy", None), ("cancelled", None)]
)
def test_what_is_kept_already_is_not_kept_once_more_as_what_lay_there(
    step: Any, running: str | None
) -> None:
    """A restart replaces no file: after it, whatever became of it, the same release lies there."""
    asked = errand("redeploy")
    state = State(run="7f3a", step=step, running=running, files="old", ended_at=AT, wish="other")
    _, lot, _ = decide(asked, state, OTHER, GOOD, words={OLD: ("bash", "run.sh")})
    assert lot.before == OLD
    assert lot.before_lies
    # nothing runs: how it ran last the release itself tells best
    _, lot, _ = decide(asked, state, OTHER, GOOD, runs=False)
    assert lot.before == OLD


@pytest.mark.parametrize("words", [("bash", "run.sh", "--gpus", "1"), ("./other.sh",)])
def test_what_ran_with_other_words_is_kept_with_them(words: tuple[str, ...]) -> None:
    """The same bytes, and somebody has started them otherwise since: that is the way back."""
    asked = errand("redeploy")
    state = State(run="7f3a", step="unhealthy", files="old", ended_at=AT, trainer=Started(1, 2))
    _, lot, _ = decide(asked, state, OTHER, GOOD, words={OLD: words})
    assert lot.before not in (None, OLD)


@pytest.mark.parametrize(
    "words",
    [
        ("run.sh",), ("./run.sh",),  # by its #!: the kernel puts a bash before it
        ("bash", "run.sh", "--resume", "/ck/step_1.pt"),
    ],
)  # fmt: skip
def test_what_runs_by_its_first_line_or_from_another_checkpoint_is_kept_already(
    words: tuple[str, ...],
) -> None:
    """Each redeploy kept the same files once more, and the older releases had to go for that."""
    asked = errand("redeploy")
    state = State(run="7f3a", step="unhealthy", files="old", ended_at=AT, trainer=Started(1, 2))
    resume = ("--resume", "{checkpoint}")
    known = msgspec.structs.replace(release(OLD, GOOD), argv=words, resume=resume)
    _, lot, _ = decide(asked, state, OTHER, GOOD, releases={OLD: known})
    assert lot.before == OLD


def test_what_is_sent_and_what_it_replaces_are_told_apart_by_their_last_letters() -> None:
    asked = errand("redeploy")
    state = State(run="7f3a", step="unhealthy", files="old", ended_at=AT)
    _, lot, _ = decide(asked, state, OTHER, GOOD)
    run = msgspec.structs.replace(lot.scope.run, id="7f3a91c2")
    lot.scope = msgspec.structs.replace(lot.scope, run=run)
    lot.name(None)
    assert (lot.release, lot.before) == ("20261130-140300-7f3a", "20261130-140259-91c2")


def test_one_of_several_with_the_same_files_lies_there() -> None:
    """The one that the state names, else the newest."""
    asked = errand("rollback", release="none-such")
    state = State(run="7f3a", step="healthy", files="new", ended_at=AT, running=OLD)
    third = "20261201-140211-7f3a"
    kept = {OLD: release(OLD, GOOD), NEW: release(NEW, BAD), third: release(third, GOOD)}
    for running, lies in ((OLD, OLD), (None, third)):
        one = msgspec.structs.replace(state, running=running)
        _, lot, _ = decide(asked, one, OTHER, GOOD, runs=False, releases=kept)
        with pytest.raises(Refused) as caught:
            _source(lot, "none-such")
        (row,) = [each for each in caught.value.evidence if "lies there now" in each]
        assert row.startswith(lies)


@pytest.mark.parametrize("ours", [True, False])
def test_only_what_the_last_run_started_is_known_to_know_its_words_to_resume(ours: bool) -> None:
    """What somebody started by hand since may be another program."""
    words = ("--resume", "{checkpoint}")
    other = None if ours else Started(1, 1)
    state = State("7f3a", "healthy", running=OLD, trainer=other, ended_at=AT, resumes=words)
    _, lot, _ = decide(errand("restart"), state, None, GOOD)
    assert lot.resumes == (words if ours else ())


def waits(order: str | None) -> State:
    return State(run="7f3a", step="waiting", order=order, alone=True, running=OLD, before=OLD)


WAITS: dict[str, Any] = {"activator": True, "beat_s": 300.0}


@pytest.mark.parametrize("order", ["armed", None])
def test_one_that_is_armed_is_not_sent_off_before_another_waits(
    monkeypatch: pytest.MonkeyPatch, order: str | None
) -> None:
    """Cut short until then, this run would leave nobody who starts the job once it has ended by the
    signal that it has heard, and its GPUs would idle."""
    given: list[str] = []

    async def ordered(_: object, base: str, run: str, word: str, *__: object) -> None:
        given.append(word)

    async def read(self: Lot) -> None:
        assert self.state is not None
        ended = msgspec.structs.replace(self.state, step="cancelled")
        self.ground = msgspec.structs.replace(self.ground, state=ended)

    monkeypatch.setattr(hands, "order", ordered)
    monkeypatch.setattr(Lot, "read", read)
    found, lot, _ = decide(errand("redeploy"), waits(order), BAD, GOOD, **WAITS)
    if order is None:
        assert (given, found.again, lot.succeeds) == (["cancel"], True, None)
        return
    assert (given, found, lot.succeeds, lot.before) == ([], Settled(), "7f3a", OLD)
    assert lot.findings == [
        "the activator of run 7f3a waits for a client that is gone: it waits on for the job's end"
        " until this run's own takes its place"
    ]


def test_what_may_have_heard_a_signal_does_not_run_on_for_being_what_is_wanted() -> None:
    """The version that runs is sent again while another was about to take its place."""
    found, lot, _ = decide(errand("redeploy"), waits("armed"), GOOD, GOOD, **WAITS)
    assert (found.done, lot.succeeds) == (None, "7f3a")
    found, _, _ = decide(errand("redeploy"), waits("armed"), GOOD, GOOD, activator=False)
    assert found.done is not None


def test_a_dry_run_leaves_it_to_wait() -> None:
    for order in ("armed", None):
        with pytest.raises(Refused, match="a dry run does not touch that"):
            decide(errand("redeploy", diff=True), waits(order), BAD, GOOD, **WAITS)


@pytest.mark.parametrize("step", ["waiting", "launched"])
def test_what_has_gone_on_by_itself_is_looked_at_anew(
    monkeypatch: pytest.MonkeyPatch, step: Any
) -> None:
    """Nothing could take its place: it had heard of the job's end. Else that is a failure."""
    host = FakeHost()
    a_job(host)
    looked: list[Lot] = []

    async def nothing(*_: object) -> Any:
        return None

    async def lots(scope: Any, _: object, scene: Any, now: Any, python: str) -> Lot:
        lot = Lot(scope, scene, now, python, "/root")
        await lot.read()
        looked.append(lot)
        return lot

    async def found(lot: Lot, _: Errand) -> Settled:
        if len(looked) > 1:
            raise DeployFailed("the second time")
        lot.succeeds = "7f3a"
        return Settled()

    async def read(self: Lot) -> None:
        state = msgspec.structs.replace(waits("armed"), step=step)
        self.ground = Ground(
            state=state, changed={}, last=None, tools=BASE, on_disk={}, now=AT_S, activator=True,
            beat_s=None, releases={},
        )  # fmt: skip

    class Needs:
        plan, show, late = nothing, staticmethod(lambda: None), None

    async def launch(scope: Any, *_: object) -> Outcome:
        return outcome_of(scope.target, "deploy_failed", reason="run 7f3a is at it")

    async def needs(*_: object) -> Needs:
        return Needs()

    for name, each in {
        "running": nothing, "carried_freely": nothing, "lot_of": lots, "settled": found,
        "equipment": needs, "launch_through": launch,
    }.items():  # fmt: skip
        monkeypatch.setattr(bringing, name, each)
    monkeypatch.setattr(bringing, "python_of", lambda *_: "python3")
    monkeypatch.setattr(Lot, "read", read)
    outcome = asyncio.run(bringing.bring(Stage(host).scope, errand("restart")))
    assert outcome.result == "deploy_failed"
    waited = step == "waiting"
    assert outcome.reason == ("run 7f3a is at it" if waited else "the second time")
    assert len(looked) == (1 if waited else 2)
