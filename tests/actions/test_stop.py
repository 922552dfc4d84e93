from __future__ import annotations

import asyncio

import msgspec
import pytest

from fleetstop import events
from fleetstop.actions.asking import Desk
from fleetstop.actions.attempt import Wish
from fleetstop.actions.stop import stop
from fleetstop.core.climbing.consent import Consent
from fleetstop.core.commands import Answer, Command
from fleetstop.core.inventory import Launch, Match
from fleetstop.core.process import ProcessId
from fleetstop.core.report import Outcome, exit_code_of
from fleetstop.errors import ContainerMissing, HostUnreachable
from fleetstop.remote.dry_run import DryShell
from tests.actions.stage import GENTLE, HARD, NOW, Stage, a_send, job, playbook, target, tree_of
from tests.fakes.fake_host import FakeHost, Hook, Open, Proc, Trainer, a_job
from tests.fakes.fake_place import FakePlace

EMPTY = Answer(0, b"1.0\n/ck\n\0d\x001\x000\x001.0\0/ck/\0")


def bug(_: Command) -> None:
    raise KeyError("a mistake of ours")


def finished(stage: Stage) -> Outcome:
    (told,) = stage.of(events.TargetFinished)
    return told.outcome


def test_the_outcome_is_told_once_with_its_time_and_cost() -> None:
    host = FakeHost()
    a_job(host)
    stage = Stage(host)
    outcome = asyncio.run(stage.stop())
    assert finished(stage) == outcome
    assert stage.told[-1] is stage.of(events.TargetFinished)[0]
    assert outcome.seconds is not None
    assert 2.0 < outcome.seconds < 4.0
    assert outcome.cost is not None
    assert (outcome.cost.ssh_connections, outcome.cost.pct_calls) == (1, 1)
    assert (outcome.target, outcome.host, outcome.vmid, outcome.job) == (
        "ct200:train",
        "pve1",
        200,
        "train",
    )


def test_a_bug_after_a_signal_is_a_fault_with_the_signal_in_it() -> None:
    host = FakeHost()
    trainer = a_job(host)
    stage = Stage(host)
    stage.world.host.after("send", lambda _: stage.world.host.before("look", bug))
    outcome = asyncio.run(stage.stop())
    assert (outcome.result, exit_code_of(outcome)) == ("fault", 70)
    assert outcome.reason == "a fault in fleetstop: KeyError: 'a mistake of ours'"
    assert outcome.hint == "the traceback is in /log/fault"
    assert [each.signal for each in outcome.signals] == ["INT"]
    assert outcome.family != ()
    assert trainer.heard == ["INT"]
    (fault,) = stage.of(events.Fault)
    assert fault.traceback_path == "/log/fault"
    assert "KeyError" in stage.faults[0]
    assert finished(stage) == outcome
    assert host.ledgers["200"]["run1"][-1].startswith("done ")  # the lock is given back


def test_a_bug_before_anything_leaves_no_lock() -> None:
    host = FakeHost()
    a_job(host)
    stage = Stage(host)
    stage.world.host.after("ledger", bug)
    outcome = asyncio.run(stage.stop())
    assert (outcome.result, outcome.signals) == ("fault", ())
    assert host.ledgers == {}


def test_a_bug_while_the_answer_is_read_leaves_a_doubt() -> None:
    host = FakeHost()
    trainer = a_job(host)
    stage = Stage(host)
    stage.world.host.after("send", bug)
    outcome = asyncio.run(stage.stop())
    assert trainer.heard == ["INT"]
    assert outcome.result == "fault"
    assert outcome.signals or outcome.findings


def test_a_release_that_fails_changes_no_outcome() -> None:
    host = FakeHost()
    a_job(host)
    stage = Stage(host)

    def away(_: Command) -> None:
        raise HostUnreachable("gone")

    stage.world.host.before("done", away)
    assert asyncio.run(stage.stop()).result == "stopped"


def test_a_bug_in_the_release_is_no_exception_either() -> None:
    host = FakeHost()
    a_job(host)
    stage = Stage(host)
    stage.world.host.before("done", bug)
    outcome = asyncio.run(stage.stop())
    assert outcome.result in ("stopped", "fault")


def test_a_stopped_container_runs_nothing() -> None:
    host = FakeHost()
    stage = Stage(host)
    stage.world.status = "stopped"
    outcome = asyncio.run(stage.stop())
    assert (outcome.result, outcome.reason) == ("not_running", "container 200 is stopped")
    assert stage.world.host.changes() == []


def test_a_running_container_without_processes_is_no_stopped_one() -> None:
    host = FakeHost()
    outcome = asyncio.run(Stage(host).stop())
    assert outcome.result == "unreachable"
    assert "none of its processes can be seen" in (outcome.reason or "")


def test_a_missing_container_is_told_with_its_hint() -> None:
    stage = Stage(FakeHost())
    stage.world.status = ContainerMissing("no container 200 on pve1", hint="pct list")
    outcome = asyncio.run(stage.stop())
    assert (outcome.result, outcome.reason, outcome.hint) == (
        "unreachable",
        "no container 200 on pve1",
        "pct list",
    )


def test_nothing_that_matches_is_not_running() -> None:
    host = FakeHost()
    host.add(Proc(1000, 1, ("init",)))
    stage = Stage(host)
    outcome = asyncio.run(stage.stop())
    assert (outcome.result, outcome.reason) == (
        "not_running",
        "nothing matches, and no launcher names it",
    )
    assert stage.world.host.changes() == []


def test_a_stranger_on_a_gpu_is_mentioned() -> None:
    host = FakeHost()
    host.add(Proc(1000, 1, ("init",)))
    stranger = host.add(Proc(1070, 1000, ("python", "renamed.py")))
    stranger.files[9] = Open("/dev/nvidia0", flags=2)
    aim = target(job=job(match=Match(gpu=True), name="g"))
    assert asyncio.run(Stage(host, aim=aim).stop(dry_run=True)).result == "planned"
    outcome = asyncio.run(Stage(host).stop())
    assert outcome.result in ("not_running", "refused")
    assert stranger.heard == []


def test_between_two_lives_is_unclean_and_nothing_is_sent() -> None:
    host = FakeHost()
    host.add(Proc(1000, 1, ("init",)))
    host.add(Proc(1060, 1000, ("torchrun", "train.py")))
    stage = Stage(host)
    outcome = asyncio.run(stage.stop())
    assert (outcome.result, exit_code_of(outcome)) == ("unclean", 6)
    assert outcome.reason == (
        "between_lives: no trainer runs, but what would start one does: 60 torchrun train.py"
    )
    assert outcome.hint == "look again with: fleetstop status ct200:train"
    assert (host.kills, stage.world.host.changes()) == ([], [])


def test_what_the_inventory_launches_counts_as_between_lives_too() -> None:
    host = FakeHost()
    host.add(Proc(1000, 1, ("init",)))
    host.add(Proc(1005, 1000, ("bash", "/root/run.sh")))
    aim = target(job=job(launch=Launch(run=("/root/run.sh",))))
    outcome = asyncio.run(Stage(host, aim=aim).stop())
    assert (outcome.result, (outcome.reason or "")[:13]) == ("unclean", "between_lives")


def test_two_trees_are_refused_with_both() -> None:
    host = FakeHost()
    a_job(host)
    host.add(Trainer(host, 1020, 1000))
    stage = Stage(host)
    outcome = asyncio.run(stage.stop())
    assert (outcome.result, outcome.reason) == ("refused", "2 unrelated trees match")
    assert {line.split(" (")[0] for line in outcome.evidence} == {
        "5 bash run.sh > 10 python train.py",
        "20 python train.py",
    }
    assert (host.kills, host.ledgers, stage.world.host.changes()) == ([], {}, [])


def test_all_of_them_are_taken_where_the_inventory_says_so() -> None:
    host = FakeHost()
    one = a_job(host)
    two = host.add(Trainer(host, 1020, 1000, saves="/ck/two.pt"))
    aim = target(job=job(match=Match(script="train.py", all=True)))
    outcome = asyncio.run(Stage(host, aim=aim).stop())
    assert (outcome.result, one.heard, two.heard) == ("stopped", ["INT"], ["INT"])
    assert len(outcome.signals) == 1


def test_where_it_cannot_be_told_who_trains_it_is_refused() -> None:
    host = FakeHost()
    trainer = a_job(host)
    host.add(Trainer(host, 1020, trainer.pid))
    stage = Stage(host)
    outcome = asyncio.run(stage.stop())
    assert outcome.result == "refused"
    assert "which of them trains cannot be seen" in (outcome.reason or "")
    assert outcome.hint == "say which in the inventory: trainers: leaves (or: all)"
    assert (host.kills, stage.world.host.changes()) == ([], [])


def test_the_containers_first_process_is_never_signalled() -> None:
    host = FakeHost()
    host.add(Trainer(host, 1000, 1))
    host.add(Proc(1090, 1000, ("vim",)))
    outcome = asyncio.run(Stage(host).stop(NOW, "given"))
    assert outcome.result == "refused"
    assert "first process" in (outcome.reason or "") or "PID 1" in (outcome.reason or "")
    assert host.kills == []


def test_one_that_hears_both_signals_is_refused_until_somebody_says() -> None:
    host = FakeHost()
    a_job(host, Trainer(host, hears=("INT", "TERM")))
    aim = target(job=job(stop_signal=None))
    stage = Stage(host, aim=aim)
    outcome = asyncio.run(stage.stop())
    assert outcome.result == "refused"
    assert "10 hears both INT and TERM" in (outcome.reason or "")
    assert (outcome.hint or "").startswith("most likely TERM (TERM's handler is its own")
    assert "`stop_signal: TERM` in the inventory" in (outcome.hint or "")
    assert (host.kills, host.ledgers) == ([], {})
    wish = Wish(playbook=GENTLE, consent="absent", signal="TERM")
    again = Stage(host, "run2", aim)
    outcome = asyncio.run(stop(again.scope, wish))
    assert (outcome.result, [each.signal for each in outcome.signals]) == ("stopped", ["TERM"])


def test_what_is_no_python_may_have_a_handler_of_its_own_for_either() -> None:
    host = FakeHost()
    trainer = a_job(host, Trainer(host, hears=("INT", "TERM")))
    trainer.argv = ("/opt/bin/trainer", "train.py")
    match = Match(pid=trainer.inner)
    outcome = asyncio.run(Stage(host, aim=target(job=job(stop_signal=None, match=match))).stop())
    assert (outcome.result, host.kills) == ("refused", [])
    assert (outcome.hint or "").startswith("say it, INT or TERM: `stop_signal: INT`")


def test_a_lossy_rung_without_consent_is_skipped_and_told() -> None:
    host = FakeHost()
    a_job(host, Trainer(host, ignores=("INT",), hears=()))
    stage = Stage(host)
    outcome = asyncio.run(stage.stop(HARD))
    assert (outcome.result, exit_code_of(outcome)) == ("refused", 5)
    assert outcome.reason == "what is left may lose work and nobody has agreed to it"
    assert [each.signal for each in outcome.skipped] == ["INT", "TERM", "KILL"]
    assert "Needs --force" in outcome.skipped[1].reason
    assert (host.kills, host.ledgers) == ([], {})


def test_a_second_person_is_refused_while_the_first_works() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host)
        stages = [Stage(host, "run1"), Stage(host, "run2")]
        outcomes = await asyncio.gather(*(each.stop() for each in stages))
        assert sorted(each.result for each in outcomes) == ["refused", "stopped"]
        (no,) = (each for each in outcomes if each.result == "refused")
        assert "is working on it since" in (no.reason or "")
        assert (no.verdict, no.signals) == ("busy", ())
        assert trainer.heard == ["INT"]
        assert host.ledgers == {}

    asyncio.run(story())


def test_a_dry_run_plans_and_sends_no_frame_that_changes_anything() -> None:
    host = FakeHost()
    a_job(host)
    stage = Stage(host)
    stage.world.host.before("claim", bug)
    outcome = asyncio.run(stage.stop(HARD, dry_run=True))
    assert (outcome.result, exit_code_of(outcome)) == ("planned", 0)
    assert [(each.signal, each.would) for each in outcome.plan] == [
        ("INT", "send"),
        ("TERM", "skip"),
        ("KILL", "skip"),
    ]
    assert (stage.world.host.changes(), stage.world.within.changes()) == ([], [])
    assert (host.ledgers, host.kills) == ({}, [])
    (planned,) = stage.of(events.Planned)
    assert planned.steps == outcome.plan
    assert "ledger" in stage.world.host.verbs()


def test_a_dry_run_works_through_the_shell_that_refuses_every_change() -> None:
    host = FakeHost()
    a_job(host)
    place = host.place()
    shell = place.host
    dry = FakePlace(own_pid=90_000)
    dry.host = DryShell(shell)  # type: ignore[assignment]
    dry.within = place.within
    outcome = asyncio.run(Stage(host, place=dry).stop(dry_run=True))
    assert outcome.result == "planned"
    assert shell.changes() == []
    # and the wet run is stopped by it before anything
    outcome = asyncio.run(Stage(host, place=dry).stop())
    assert (outcome.result, shell.changes(), host.kills) == ("refused", [], [])


def test_a_dry_run_beside_somebodys_real_one_is_refused_and_hurts_nothing() -> None:
    async def story() -> None:
        host = FakeHost()
        a_job(host)
        await Stage(host, "run2").lock().claim()
        before = dict(host.ledgers["200"])
        outcome = await Stage(host).stop(dry_run=True)
        assert (outcome.result, "run run2" in (outcome.reason or "")) == ("refused", True)
        assert host.ledgers["200"] == before

    asyncio.run(story())


def test_a_dry_run_tells_what_an_earlier_run_has_sent() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host, Trainer(host, takes_s=500.0))
        trainer.obeys = False
        await Stage(host, "run1").stop(playbook("INT/2s", lossless=True))
        assert trainer.heard == ["INT"]
        outcome = await Stage(host, "run2").stop(dry_run=True)
        assert outcome.plan[0].would == "skip"
        assert "run run1 sent it" in outcome.plan[0].reason

    asyncio.run(story())


def test_an_interruption_before_the_job_was_found_sends_nothing() -> None:
    async def story() -> None:
        host = FakeHost()
        a_job(host)
        stage = Stage(host)
        stage.world.host.before("detail", lambda _: _cancel(work))
        work = asyncio.ensure_future(stage.stop())
        with pytest.raises(asyncio.CancelledError):
            await work
        outcome = finished(stage)
        assert (outcome.result, outcome.interrupted, exit_code_of(outcome)) == (
            "refused",
            True,
            130,
        )
        assert (host.kills, host.ledgers) == ([], {})

    asyncio.run(story())


def test_an_interruption_while_it_is_proved_tells_what_was_sent() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host)
        host.gpus = [{trainer.pid: 100}]
        stage = Stage(host)

        def second(_: Command) -> None:
            stage.world.host.before("gpus", lambda _: _cancel(work))

        stage.world.host.after("gpus", second)
        work = asyncio.ensure_future(stage.stop())
        with pytest.raises(asyncio.CancelledError):
            await work
        outcome = finished(stage)
        assert outcome.interrupted
        assert [each.signal for each in outcome.signals] == ["INT"]
        assert host.ledgers == {}

    asyncio.run(story())


def _cancel(work: asyncio.Future[Outcome]) -> None:
    work.cancel()


def test_a_job_on_the_host_itself_never_reaches_into_containers() -> None:
    host = FakeHost()
    inside = a_job(host)
    outside = host.add(Trainer(host, 2010, 1, vmid=None))
    outcome = asyncio.run(Stage(host, aim=target(vmid=None)).stop())
    assert (outcome.result, outside.heard, inside.heard) == ("stopped", ["INT"], [])


def test_a_process_table_that_cannot_be_read_is_unreachable() -> None:
    stage = Stage(FakeHost())
    stage.world.host.on("look", Answer(9, b""))
    outcome = asyncio.run(stage.stop())
    assert (outcome.result, outcome.verdict) == ("unreachable", "unknown")
    assert outcome.reason == "the process table could not be read (status 9)"


def test_an_interruption_during_the_claim_leaves_the_lock_free() -> None:
    async def story() -> None:
        host = FakeHost()
        a_job(host)
        stage = Stage(host)

        async def interrupted() -> None:
            work.cancel()
            await asyncio.sleep(0)

        stage.world.host.after("claim", lambda _: interrupted())
        work = asyncio.ensure_future(stage.stop())
        with pytest.raises(asyncio.CancelledError):
            await work
        assert host.kills == []
        outcome = await Stage(host, "run2").stop()
        assert (outcome.result, outcome.reason) == ("stopped", None)

    asyncio.run(story())


def test_one_that_is_dead_and_not_reaped_has_ended() -> None:
    host = FakeHost()
    trainer = a_job(host, Trainer(host, saves=None), wrapper=False)

    def dies(signal: str) -> None:
        host.write("/ck/last.pt", trainer.data)
        trainer.state = "Z"

    trainer.on_signal = dies
    stage = Stage(host)
    outcome = asyncio.run(stage.stop())
    assert outcome.result == "stopped"
    assert [(each.pid, each.verdict) for each in outcome.family] == [(10, "zombie")]
    assert [each.zombie for each in stage.of(events.MemberExited)] == [True]


def test_what_survives_even_kill_is_still_running() -> None:
    host = FakeHost()
    trainer = a_job(host, Trainer(host, hears=(), ignores=("INT", "TERM")))
    trainer.survives_kill = True
    outcome = asyncio.run(Stage(host).stop(HARD, "given"))
    assert (outcome.result, exit_code_of(outcome)) == ("still_running", 1)
    assert [each.signal for each in outcome.signals] == ["KILL"]


def test_a_lock_that_is_lost_after_the_signal_is_told_with_the_signal() -> None:
    host = FakeHost()
    trainer = a_job(host, Trainer(host, takes_s=30.0))
    stage = Stage(host)
    stage.world.host.after("send", lambda _: host.ledgers.clear())
    outcome = asyncio.run(stage.stop())
    assert (outcome.result, [each.signal for each in outcome.signals]) == ("unreachable", ["INT"])
    assert outcome.reason == "the lock could not be renewed; nothing more is sent"
    assert trainer.heard == ["INT"]


def test_a_file_for_the_directory_of_checkpoints_is_told_at_once() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host)
        stage = Stage(host)
        bad: list[Hook] = [lambda _: Answer(41, b"1.0\nfile\n")]
        stage.world.within.before("list", *bad * 4)
        outcome = await stage.stop(consent="given")
        assert (outcome.result, trainer.heard, host.kills) == ("unreachable", [], [])
        assert (outcome.reason or "").startswith(
            "whether it saves cannot be seen: checkpoints: /ck is a file there, and no directory"
        )
        assert outcome.hint == "name the directory in the inventory: checkpoints: /"
        assert stage.of(events.Holding) == []
        assert (outcome.seconds or 0.0) < 5.0

    asyncio.run(story())


@pytest.mark.parametrize("consent", ["absent", "refused", "given"])
@pytest.mark.parametrize("closed", [True, False])
def test_a_trainer_that_can_save_nothing_hears_nothing_without_consent(
    closed: bool, consent: Consent
) -> None:
    """Its directory is the host's root's, nobody's in the container: INT would cost the work."""

    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host)
        host.files.clear()
        stage = Stage(host)
        empty: list[Hook] = [lambda _: EMPTY]
        stage.world.within.before("list", *empty)
        asked: list[Hook] = [lambda _: Answer(44 if closed else 0, b"")]
        stage.world.within.before("touchable", *asked)
        outcome = await stage.stop(consent=consent)
        if not closed or consent == "given":
            assert trainer.heard[:1] == ["INT"]
            said = any("can write nothing there" in each for each in outcome.findings)
            assert said == closed
            return
        assert (outcome.result, trainer.heard, host.kills) == ("refused", [], [])
        assert outcome.reason == (
            "what it saves now would be lost: checkpoints: /ck: 10 can write nothing there: it is"
            " closed to the container's root"
        )

    asyncio.run(story())


async def after_an_earlier_signal(host: FakeHost, heard: Trainer) -> Stage:
    """A second run, of a job whose checkpoints can be written nowhere, and of which this one has
    heard the first run's signal."""
    before = Stage(host, "run1").lock()
    await before.claim()
    assert (await before.send(a_send(heard), tree_of(host), {})).out
    await before.release(frozenset({ProcessId(heard.pid, heard.start)}))
    stage = Stage(host, "run2")
    stage.world.within.before("list", lambda _: EMPTY)
    stage.world.within.before("touchable", lambda _: Answer(44, b""))
    return stage


def test_who_has_heard_one_is_watched_on_though_it_can_save_nothing() -> None:
    async def story() -> None:
        host = FakeHost()
        trainer = a_job(host, Trainer(host, takes_s=10.0, saves=None))
        host.files.clear()
        stage = await after_an_earlier_signal(host, trainer)
        outcome = await stage.stop(consent="refused")
        assert outcome.result != "refused"
        assert stage.of(events.WatchedOn)
        assert trainer.heard == ["INT"]

    asyncio.run(story())


def test_that_one_of_two_has_heard_one_lets_no_signal_out_to_the_other() -> None:
    """The one leaves while somebody is being asked; INT to the other would then cost its work."""

    async def nobody_answers(_: object) -> bool:
        await asyncio.Event().wait()
        return False

    async def story() -> None:
        host = FakeHost()
        first = a_job(host, Trainer(host, takes_s=20.0, saves=None))
        second = host.add(Trainer(host, 1011))
        host.files.clear()
        stage = await after_an_earlier_signal(host, first)
        outcome = await stage.stop(HARD, desk=Desk(nobody_answers))
        assert (second.heard, host.procs.get(second.pid)) == ([], second)
        assert outcome.result == "refused"
        assert "what it saves now would be lost" in (outcome.reason or "")

    asyncio.run(story())


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize("status", [20, 21, 23])
def test_a_lock_that_could_not_be_had_is_no_plan(status: int, dry_run: bool) -> None:
    """What the real run refuses the dry one must not promise."""
    host = FakeHost()
    trainer = a_job(host)
    host.lock_status = status
    stage = Stage(host)
    outcome = asyncio.run(stage.stop(dry_run=dry_run))
    assert (outcome.result, exit_code_of(outcome)) == ("unreachable", 4)
    assert "the lock directory /run/lock/fleetstop.200" in (outcome.reason or "")
    assert trainer.heard == []
    assert not dry_run or stage.world.host.changes() == []


def test_a_command_to_type_next_names_the_inventory_that_was_named() -> None:
    """Pasted without it, it would look at another fleet, or find no such name."""
    host = FakeHost()
    for number in (1040, 1050):
        host.add(Trainer(host, number, 1))
    host.add(Proc(1000, 1, ("init",)))
    stage = Stage(host)
    run = msgspec.structs.replace(stage.run, inventory="/etc/my fleet.yaml")
    stage.scope = msgspec.structs.replace(stage.scope, run=run)
    outcome = asyncio.run(stage.stop())
    assert (outcome.result, outcome.hint) == (
        "refused",
        "name one: fleetstop stop ct200:train --pid 40 -i '/etc/my fleet.yaml'; "
        "or set `all: true` in its match",
    )
    assert run.typed("status", "ct200") == "fleetstop status ct200 -i '/etc/my fleet.yaml'"
    assert stage.run.typed("status", "ct200") == "fleetstop status ct200"
