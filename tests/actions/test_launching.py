"""From the activator to the outcome, against a simulated host: what is said, sent, and left."""

from __future__ import annotations

import asyncio
import io
import zipfile
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from fleetstop import events as e
from fleetstop.actions import hands
from fleetstop.actions.asking import Desk
from fleetstop.actions.attempt import Wish
from fleetstop.actions.interpreter import scripts
from fleetstop.actions.launch_account import Account
from fleetstop.actions.launch_plan import Arm, LaunchPlan, Stop
from fleetstop.actions.launching import launch_through
from fleetstop.actions.lock import Lock
from fleetstop.actions.reconnect import ReconnectingPlace
from fleetstop.actions.stop import Interrupted, stopped
from fleetstop.core.inventory import Healthcheck
from fleetstop.core.launching.activation import State
from fleetstop.core.launching.activator import ActivatorSpec, SwapFile
from fleetstop.core.launching.ended import Born
from fleetstop.core.launching.health import Expected
from fleetstop.core.launching.spec import LaunchSpec
from fleetstop.core.playbook import Playbook
from fleetstop.core.report import AboveRecord, GpuRecord, Outcome, SignalRecord, exit_code_of
from fleetstop.errors import ConnectionLost, RemoteFailed
from fleetstop.ports import Shell
from tests.actions.stage import GENTLE, NOW, Stage, job, target
from tests.fakes.fake_activator import BASE, Birth, LaunchHost
from tests.fakes.fake_host import Open, Proc, Trainer, a_job, whole

LOG = "/train.log"
SCRIPTS = {"activate.py": "# the activator", "supervise.py": "# the supervisor"}


def launch_spec(mark: str) -> LaunchSpec:
    return LaunchSpec(
        argv=("bash", "run.sh"), cwd="/root", env={"A": "1"}, log=LOG, mark=mark,
        status=f"{BASE}/status/{mark}.json",
    )  # fmt: skip


NEW, OLD = "20261130-140211-7f3a", "20261129-140211-7f3a"
EXPECTED = Expected(argv=("bash", "run.sh"), env={"A": "1"}, stop_signal="INT")


def plan(**facts: Any) -> LaunchPlan:
    """A redeploy: release NEW in the place of OLD. Facts of the spec, or of the plan."""
    spec: dict[str, Any] = {
        "run": "run1", "base": BASE, "dest": "/root", "launch": launch_spec("m-new"),
        "launch_old": launch_spec("m-old"), "release": NEW, "before": OLD, "log": LOG,
        "files": (SwapFile("/root/train.py", f"{BASE}/stage-run1/files/train.py", "ab", 3, 0o644,
                           0, 0),),
    }  # fmt: skip
    outer: dict[str, Any] = {
        "python": "/usr/bin/python3", "scripts": SCRIPTS, "expected": EXPECTED,
        "done": "redeployed",
    }  # fmt: skip
    for name, value in facts.items():
        (outer if name in LaunchPlan.__struct_fields__ else spec)[name] = value
    return LaunchPlan(spec=ActivatorSpec(**spec), **outer)


def born(
    *,
    dies_after: float | None = None,
    exit_: int = 0,
    trainer: Callable[[LaunchHost, int], Proc] | None = None,
    says: tuple[tuple[float, str], ...] = (),
) -> Birth:
    """`bash run.sh` with its trainer below it. `says`: seconds after the start, and a line."""

    def birth(host: LaunchHost, supervisor: int) -> Proc:
        shell = host.add(Proc(host.new_pid(), supervisor, ("bash", "run.sh")))
        shell.ends_with_children = True
        made = trainer or (lambda host, pid: Trainer(host, pid, shell.pid, saves=None))
        child = host.add(made(host, host.new_pid()))
        child.ppid = shell.pid
        for each in (shell, child):
            each.start = int(host.clock.now() * 100)
        for after, line in says:
            host.later(after, lambda line=line: add_line(host, line))  # type: ignore[misc]
        if dies_after is not None:
            host.exits[shell.pid] = exit_
            host.later(dies_after, lambda: host.dies(child, exit_=exit_))
        return shell

    return birth


def add_line(host: LaunchHost, line: str) -> None:
    old = host.files[LOG].data if LOG in host.files else b""
    host.write(LOG, old + line.encode() + b"\n")


class Bringing(Stage):
    """One launch through a connection that may be lost."""

    def __init__(self, host: LaunchHost, run: str = "run1", **facts: Any) -> None:
        known = job(**{"log": LOG, **facts})
        super().__init__(host, run, aim=target(job=known))
        assert isinstance(self.host, LaunchHost)
        self.there = host
        place = ReconnectingPlace(self.world, "pve1", host.clock, self.scope.teller)
        self.scope = msgspec.structs.replace(self.scope, place=place)

    async def launch(self, plan_: LaunchPlan | None = None, stop: Stop | None = None) -> Outcome:
        return await launch_through(self.scope, plan_ or plan(), self.world.inside, stop)


def a_host(*births: Birth) -> LaunchHost:
    host = LaunchHost()
    host.add(Proc(1000, 1, ("init",)))
    host.births = list(births)
    host.write(LOG, b"step 1 of the last run 14K tok/s\n")
    return host


def run(
    host: LaunchHost, plan_: LaunchPlan | None = None, **facts: Any
) -> tuple[Outcome, Bringing]:
    stage = Bringing(host, **facts)
    return asyncio.run(stage.launch(plan_)), stage


def is_whole(data: bytes) -> bool:
    """As torch.load would find it."""
    if not zipfile.is_zipfile(io.BytesIO(data)):
        return False
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return archive.testzip() is None


def trainers(host: LaunchHost) -> list[Proc]:
    return [each for each in host.procs.values() if each.argv[:2] == ("python", "train.py")]


def test_a_good_launch_is_confirmed_and_told() -> None:
    host = a_host(born(says=((1.0, "loading"), (3.0, "step 1 loss 9.1"))))
    outcome, stage = run(host)
    assert (outcome.result, exit_code_of(outcome)) == ("redeployed", 0)
    assert outcome.release is not None
    assert (outcome.release.id, outcome.release.before, outcome.release.running) == (
        NEW, OLD, NEW,
    )  # fmt: skip
    assert outcome.health is not None
    assert [(c.check, c.ok) for c in outcome.health[0].checks] == [
        ("alive", True), ("hears", True), ("arguments", True), ("environment", True),
    ]  # fmt: skip
    assert host.orders == ["go", "done"]
    assert (host.state["step"], host.state["confirmed_by"]) == ("healthy", "client")
    assert [k.role for k in outcome.family] == ["wrapper", "trainer"]
    # within is 10 s of its life, and little more
    [healthy] = stage.of(e.Healthy)
    assert 9.0 < healthy.seconds < 13.0
    assert [line for each in stage.of(e.LogSaid) for line in each.lines] == [
        "loading", "step 1 loss 9.1",
    ]  # fmt: skip
    assert host.sends() == []
    assert host.ledgers == {}


def test_what_is_put_there_is_put_once_and_secrets_are_for_their_owner() -> None:
    host = a_host(born())
    run(host)
    assert host.text_of(f"{BASE}/activate.py") == SCRIPTS["activate.py"]
    puts = [c.words[::3] for c in host.frames if c.verb == "put"]
    assert puts == [
        (f"{BASE}/activate.py", f"{BASE}/supervise.py", f"{BASE}/stage-run1/spec.json"),
    ]  # fmt: skip
    assert host.modes[f"{BASE}/stage-run1/spec.json"] == "600"
    host.frames.clear()
    host.births = [born()]
    for each in trainers(host):
        host.dies(each)
    run(host)
    puts = [c.words[::3] for c in host.frames if c.verb == "put"]
    assert puts == [(f"{BASE}/stage-run1/spec.json",)]


def test_a_pattern_counts_in_the_new_part_of_the_log_alone() -> None:
    """The last run's line is there already; only the new run's own makes it healthy."""
    expected = msgspec.structs.replace(EXPECTED, log_matches="tok/s", within_s=60.0)
    host = a_host(born(says=((4.0, "step 1 15K tok/s"),)))
    outcome, stage = run(host, plan(expected=expected))
    assert outcome.result == "redeployed"
    assert 'the log says: "step 1 15K tok/s"' in stage.of(e.Healthy)[0].by
    silent = a_host(born(), born())
    outcome, _ = run(silent, plan(expected=expected, expected_old=EXPECTED))
    assert outcome.result == "rolled_back"
    assert outcome.reason is not None
    assert "nothing new in the log matches 'tok/s'" in outcome.reason


@pytest.mark.parametrize("session", ["its own", "the old one"])
def test_a_trainer_that_was_seen_before_it_went_into_the_background_has_not_died(
    session: str,
) -> None:
    """It forks, its first process ends with 0: it was "healthy" or rolled back, as it was looked
    at. What a trainer that died leaves behind is in its session, and no life of it."""

    def daemon(host: LaunchHost, supervisor: int) -> Proc:
        shell = born()(host, supervisor)
        (first,) = trainers(host)

        def fork() -> None:
            made = Trainer(host, host.new_pid(), first.pid, saves=None)
            made.flags, made.start = 0x40, int(host.clock.now() * 100)
            host.environs[made.pid] = dict(host.environs[first.pid])
            made.sid = made.pid if session == "its own" else first.sid
            host.add(made)
            host.dies(first)

        host.later(2.0, fork)
        return shell

    outcome, _ = run(a_host(daemon, born()))
    assert outcome.result == ("redeployed" if session == "its own" else "rolled_back")


def test_what_the_old_one_held_is_not_told_of_the_new_one() -> None:
    """`--json` said that nobody holds its GPU, and named a supervisor that was gone."""
    host = a_host(born())
    old = a_job(host)
    stage = Bringing(host)
    gone = AboveRecord(pid=9, kind="supervisor", cmd="supervise.py", will="records its end")
    free = GpuRecord(index=1, uuid="GPU-1", held_mib=0, holders=())

    async def stop(lock: Lock, arm: Arm) -> Outcome:
        await arm()
        host.end(old)
        return msgspec.structs.replace(finished("stopped"), above=(gone,), gpus=(free,))

    outcome = asyncio.run(stage.launch(plan(gone=(Born(old.inner, old.start),)), stop))
    assert outcome.result == "redeployed"
    assert outcome.gpus is None  # not looked at, never free
    assert gone not in outcome.above


def test_its_last_line_is_not_one_of_the_version_that_came_back() -> None:
    """That begins within a few milliseconds, and writes the same log."""
    said = ((1.0, "loading"), (1.9, "no such dataset: /data/v3"))
    host = a_host(born(dies_after=2.0, exit_=3, says=said), born(says=((0.0, "old: begins"),)))
    outcome, _ = run(host)
    assert outcome.result == "rolled_back"
    assert "old: begins" in host.text_of(LOG)
    assert 'exit 3; last line: "no such dataset: /data/v3"' in str(outcome.reason)
    assert outcome.health is not None
    assert outcome.health[0].log == ("loading", "no such dataset: /data/v3")


def test_one_that_puts_itself_into_the_background_is_healthy_to_everybody() -> None:
    """run.sh has ended with 0, its trainer is well: "healthy", and then for ever one that nobody
    had seen, of which the same command said that there is nothing to do."""

    def daemon(host: LaunchHost, supervisor: int) -> Proc:
        shell = born()(host, supervisor)
        shell.ends_with_children = False
        host.later(2.0, lambda: host.dies(shell))
        return shell

    host = a_host(daemon)
    outcome, stage = run(host)
    assert outcome.result == "redeployed"
    (left,) = trainers(host)
    assert (host.state["step"], host.state["confirmed_by"]) == ("healthy", "client")
    named = {"pid": left.inner, "start": left.start, "mark": "m-new"}
    assert host.state["trainer"] == named
    told = [each.text for each in stage.of(e.Finding)]
    assert [each for each in told if "did not note" in each] == []
    assert any("how that ends will not be recorded" in each for each in told)


@pytest.mark.parametrize("seen", [True, False])
def test_a_version_that_executes_another_program_is_not_waited_for_in_silence(seen: bool) -> None:
    """`os.execv(…, "real.py")`: told was "up to 4 s", then came 60 s of silence."""

    def other(host: LaunchHost, pid: int) -> Proc:
        made = Trainer(host, pid, 0, saves=None)

        def execute() -> None:
            made.argv = ("python", "real.py")

        host.later(2.0 if seen else 0.0, execute)
        return made

    host = a_host(born(trainer=other), born())
    quick = msgspec.structs.replace(EXPECTED, within_s=4.0)
    outcome, stage = run(host, plan(expected=quick, expected_old=EXPECTED))
    assert outcome.result == "rolled_back"
    [bad] = stage.of(e.Unhealthy)
    launched, _ = stage.of(e.Launched)
    waited = float(bad.at.rpartition("+")[2]) - float(launched.at.rpartition("+")[2] or 0.0)
    told = [each.text for each in stage.of(e.Finding)]
    nobody = "no trainer is seen below what was started ("
    if seen:
        assert "was a trainer, and is python real.py by now" in bad.why[0]
        assert waited < 6.0
        # what is no trainer any more is asked to end itself, and not the shell above it
        assert [len(each.pids) for each in stage.of(e.SignalSent)] == [1]
        assert not any(each.argv == ("python", "real.py") for each in host.procs.values())
    else:
        assert bad.why[0].startswith(nobody)
        assert any(each.startswith(nobody) and "waited for until 60 s" in each for each in told)


def test_a_log_that_the_job_opens_itself_is_read_where_it_is() -> None:
    """run.sh redirects its trainer: its own output goes nowhere, and what came back's too."""
    expected = msgspec.structs.replace(EXPECTED, log_matches="tok/s", within_s=60.0)
    new, old = (msgspec.structs.replace(launch_spec(f"m-{n}"), log=None) for n in ("new", "old"))
    facts: dict[str, Any] = {
        "launch": new, "launch_old": old, "log": None, "expected": expected,
        "reads": {"launch": LOG, "launch_old": "/other.log"},
    }  # fmt: skip
    outcome, stage = run(a_host(born(says=((4.0, "step 1 15K tok/s"),))), plan(**facts))
    assert outcome.result == "redeployed"
    assert [each.path for each in stage.of(e.LogSaid)] == [LOG]
    host = a_host(born(says=((4.0, "loading"),)), born())
    host.write("/other.log", b"step 9 of the last run 14K tok/s\n")
    outcome, _ = run(host, plan(**facts, expected_old=expected))
    assert outcome.reason is not None
    assert "its log does not match 'tok/s' either" in outcome.reason


def test_of_what_was_found_in_between_the_last_word_is_told() -> None:
    """It lived on when it was found, and has ended since: the report speaks of now."""
    host = LaunchHost()
    stage = Stage(host)
    account = Account(stage.scope, plan(), stage.scope.place.hands)
    lives, ended = "it lives on: 77", "it ended after it: 77"
    state = State(run="run1", step="launched", findings=(lives, "the log was not rotated"))
    account.finding("a finding of the stop")
    account.activation.state = state
    account.note(state)
    assert lives in account.outcome("redeployed").findings
    account.activation.state = msgspec.structs.replace(
        state, step="rolled_back", findings=(ended, "the log was not rotated")
    )
    assert account.outcome("rolled_back").findings == (
        "a finding of the stop", "the log was not rotated", ended,
    )  # fmt: skip


def test_one_that_dies_is_rolled_back_and_its_exact_end_is_told() -> None:
    said = ((1.0, "Traceback (most recent call last):"), (1.1, "ValueError: bad shape"))
    host = a_host(born(dies_after=2.0, exit_=3, says=said), born())
    outcome, stage = run(host)
    assert (outcome.result, exit_code_of(outcome)) == ("rolled_back", 8)
    assert outcome.reason is not None
    assert "exit 3" in outcome.reason
    pid = trainers(host)[0].inner
    assert outcome.reason.endswith(f"release {OLD} runs again as {pid}")
    assert outcome.release is not None
    assert outcome.release.running == OLD
    assert outcome.health is not None
    assert [(each.state, each.release) for each in outcome.health] == [
        ("unhealthy", NEW), ("healthy", OLD),
    ]  # fmt: skip
    assert outcome.health[0].exit == 3
    assert outcome.health[0].log[-1] == "ValueError: bad shape"
    assert stage.of(e.Unhealthy)[0].log[-1] == "ValueError: bad shape"
    # it had ended by itself: nobody was sent anything
    assert host.sends() == []


def test_one_that_dies_before_anybody_looks_is_told_by_what_it_left() -> None:
    said = ((0.0, "ModuleNotFoundError: No module named 'flash'"),)
    host = a_host(born(says=said), born())
    host.instant = 1
    outcome, stage = run(host)
    assert [each.old for each in stage.of(e.Launched)] == [True]
    assert outcome.result == "rolled_back"
    assert outcome.health is not None
    first, second = outcome.health
    assert (first.state, first.release, first.exit) == ("unhealthy", NEW, 1)
    assert first.log == ("ModuleNotFoundError: No module named 'flash'",)
    assert (second.state, second.release) == ("healthy", OLD)
    assert stage.of(e.Unhealthy)[0].log == first.log


def deaf(host: LaunchHost, pid: int) -> Proc:
    made = Trainer(host, pid, hears=(), ignores=("INT",), saves=None)
    made.python = True  # type: ignore[attr-defined]
    return made


def test_a_deaf_one_is_ended_and_the_version_before_comes_back() -> None:
    host = a_host(born(trainer=deaf), born())
    outcome, stage = run(host)
    assert outcome.result == "rolled_back"
    assert outcome.reason is not None
    assert "ignores INT" in outcome.reason
    # INT could not be heard, so it was not sent
    assert [each.signal for each in outcome.signals] == ["TERM"]
    assert len(trainers(host)) == 1
    assert trainers(host)[0].hears == {"INT"}
    assert [type(x) for x in stage.told if isinstance(x, e.RollingBack | e.RolledBack)] == [
        e.RollingBack, e.RolledBack,
    ]  # fmt: skip


@pytest.mark.parametrize("gone", ["killed", "left"])
def test_a_newborn_is_not_ended_where_nobody_could_bring_the_old_one_back(gone: str) -> None:
    """The activator was killed, or has judged in our stead while the connection was lost: a deaf
    trainer that trains is better than none."""
    host = a_host(born(trainer=deaf), born())
    stage = Bringing(host)
    if gone == "killed":
        host.killed_at = "launched"

    def away(_: Any) -> None:
        host.activators[0].spec["stale_s"] = 0.0
        host.activators[0].spec["health"]["within_s"] = 0.0

    if gone == "left":
        stage.world.host.after("gpus", away)
        stage.world.host.after("argv", away)
    outcome = asyncio.run(stage.launch())
    assert (outcome.result, host.sends()) == ("unhealthy", [])
    assert len(trainers(host)) == 1
    assert outcome.reason is not None
    assert "ignores INT" in outcome.reason
    assert f"runs on: nobody is left there who would bring release {OLD} back" in outcome.reason
    assert stage.of(e.RollingBack) == []


@pytest.mark.parametrize("restart", [False, True])
def test_no_signal_goes_into_a_save_of_the_newborn(restart: bool) -> None:
    """It is given up because its log never matches, just while it writes its first checkpoint
    over the last one. Ended at once, that would be torn; it is waited for."""
    saver: list[Proc] = []

    def saving(host: LaunchHost, pid: int) -> Proc:
        made = Trainer(host, pid, hears=("INT",), takes_s=1.0)
        saver.append(made)

        def begin() -> None:
            host.write("/ck/last.pt", b"half")
            made.files[7] = Open("/ck/last.pt", since=host.clock.now(), rate=1e6)
            host.later(20.0, finish)

        def finish() -> None:
            if host.procs.get(made.pid) is made:
                host.write("/ck/last.pt", whole())
                made.files.pop(7, None)

        def hear(signal: str) -> None:
            """KeyboardInterrupt in the middle of a write: the file is torn for good."""
            if 7 in made.files:
                host.end(made)
            else:
                made.hear(signal)

        made.on_signal = hear
        host.later(5.0, begin)
        return made

    host = a_host(born(trainer=saving), born())
    host.write("/ck/last.pt", whole(), age_s=500.0)
    expected = msgspec.structs.replace(EXPECTED, log_matches="tok/s")
    made = (restart_plan if restart else plan)(expected=expected, expected_old=EXPECTED)
    outcome, stage = run(host, made)
    assert outcome.result == "rolled_back"
    assert is_whole(host.files["/ck/last.pt"].data)
    assert any(each.why == "saving" for each in stage.of(e.Holding))
    assert [each.signal for each in outcome.signals] == ["INT"]
    assert saver[0].heard == ["INT"]


def restart_plan(**facts: Any) -> LaunchPlan:
    """No files: the release that lies there is started again, with other words."""
    known = {"release": None, "before": None, "files": (), "stays": OLD, "done": "running"}
    return plan(**{**known, **facts})


def test_a_restart_with_wrong_words_goes_back_to_how_it_ran() -> None:
    """The new run dies at once: nothing would run, and nobody would know the words it ran with."""
    said = ((0.5, "train.py: error: unrecognized arguments: --lrr 1e-4"),)
    host = a_host(born(dies_after=1.0, exit_=2, says=said), born())
    outcome, stage = run(host, restart_plan())
    assert (outcome.result, exit_code_of(outcome)) == ("rolled_back", 8)
    pid = trainers(host)[0].inner
    assert (outcome.reason or "").endswith(f"what ran before runs again as {pid}")
    assert outcome.release is not None
    assert (outcome.release.id, outcome.release.running) == (None, OLD)
    assert stage.of(e.Unhealthy)[0].log == (said[0][1],)
    assert host.environs[trainers(host)[0].pid]["FLEETSTOP_MARK"] == "m-old"
    assert host.sends() == []


def test_a_restart_tells_which_release_runs() -> None:
    outcome, _ = run(a_host(born()), restart_plan())
    assert outcome.result == "running"
    assert outcome.release is not None
    assert (outcome.release.id, outcome.release.running) == (None, OLD)


def test_a_restart_that_is_to_be_left_is_left() -> None:
    host = a_host(born(trainer=deaf))
    outcome, stage = run(host, restart_plan(roll_back=False))
    assert (outcome.result, host.sends()) == ("unhealthy", [])
    assert (outcome.reason or "").endswith("what was started runs on, as --no-rollback has it")
    assert stage.of(e.RollingBack) == []
    dead = a_host(born(dies_after=1.0, exit_=2))
    outcome, _ = run(dead, restart_plan(roll_back=False))
    assert (outcome.reason or "").endswith("exit 2; NOTHING runs, as --no-rollback has it")


def test_what_is_started_as_it_ran_has_no_other_way_back_and_says_why() -> None:
    """A pattern that nothing ever matches, say: it runs on, and people asked why."""
    told = plan(files=(), release=None, before=None, launch_old=None, gone=(Born(99, 1),))
    outcome, _ = run(a_host(born(trainer=deaf)), told)
    assert outcome.result == "unhealthy"
    assert (outcome.reason or "").endswith(
        "what was started runs on: it is what ran before, started the same way, so there is no "
        "other to bring back"
    )


def test_without_a_way_back_it_is_left_and_told() -> None:
    host = a_host(born(trainer=deaf))
    outcome, stage = run(host, plan(roll_back=False))
    assert (outcome.result, exit_code_of(outcome)) == ("unhealthy", 8)
    assert outcome.reason is not None
    assert outcome.reason.endswith(f"release {NEW} runs on, as --no-rollback has it")
    assert host.sends() == []
    # who works there has heard it too, and does not call it healthy by its log later
    assert host.orders == ["go", "keep"]
    assert host.state["step"] == "unhealthy"
    assert len(trainers(host)) == 1
    dead = a_host(born(dies_after=1.0, exit_=1))
    outcome, _ = run(dead, plan(launch_old=None, before=None))
    assert outcome.result == "unhealthy"
    assert outcome.reason is not None
    assert outcome.reason.endswith("NOTHING runs")
    assert stage.of(e.RollingBack) == []


def test_where_the_version_before_does_not_come_back_either_nothing_is_claimed() -> None:
    host = a_host(born(dies_after=1.0, exit_=1))
    outcome, stage = run(host)
    assert outcome.result == "unhealthy"
    assert outcome.reason is not None
    assert f"release {OLD} did not come back: cannot run python3" in outcome.reason
    assert stage.of(e.RolledBack)[0].pid is None
    both = a_host(born(dies_after=1.0, exit_=1), born(dies_after=1.5, exit_=7))
    outcome, _ = run(both)
    assert outcome.result == "unhealthy"
    assert outcome.reason is not None
    assert f"release {OLD} is back and ended too" in outcome.reason
    assert "exit 7" in outcome.reason


def test_where_neither_version_comes_up_nothing_is_called_untouched() -> None:
    host = a_host(born(says=((0.0, "ImportError: flash"),)))
    host.instant = 1
    outcome, _ = run(host)
    assert (outcome.result, exit_code_of(outcome)) == ("unhealthy", 8)
    assert outcome.reason == "cannot run python3: No such file; NOTHING runs"
    assert outcome.health is not None
    assert outcome.health[0].log == ("ImportError: flash",)
    assert trainers(host) == []


def test_what_was_sent_is_told_though_the_going_back_is_cut_short() -> None:
    """Ctrl-C while the newborn saves on its INT: it is left its chance, and the INT is named."""

    def slow(host: LaunchHost, pid: int) -> Proc:
        return Trainer(host, pid, hears=("INT",), takes_s=20.0)

    host = a_host(born(trainer=slow), born())
    stage = Bringing(host)
    expected = msgspec.structs.replace(EXPECTED, log_matches="tok/s")

    async def cut() -> None:
        task = asyncio.ensure_future(stage.launch(plan(expected=expected, expected_old=EXPECTED)))
        while not stage.of(e.SignalSent):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(Interrupted) as caught:
            await task
        ends.append(caught.value.outcome)

    ends: list[Outcome] = []
    asyncio.run(cut())
    assert [each.signal for each in ends[0].signals] == ["INT"]
    assert len(stage.of(e.Interrupted)[0].sent) == 1
    assert len(host.sends()) == 1
    for _ in range(600):
        host.clock.advance(0.1)
        host.settle()
    # it saved and left by itself, and what works in the container brought the old one back
    assert is_whole(host.files["/ck/last.pt"].data)
    assert host.state["step"] == "rolled_back"
    assert len(trainers(host)) == 1


def test_what_cannot_be_prepared_touches_nothing() -> None:
    host = a_host()
    host.refuses = "no space left on device: /root/.train.py.fleetstop-run1"
    outcome, _ = run(host)
    assert (outcome.result, exit_code_of(outcome)) == ("deploy_failed", 7)
    assert outcome.reason == host.refuses
    assert (host.orders, host.ledgers) == ([], {})
    assert not any("stage-run1" in path for path in host.files)


def test_where_the_interpreter_is_missing_the_secrets_do_not_stay() -> None:
    host = a_host()
    host.no_python = "sh: 1: /usr/bin/python3: not found"
    outcome, _ = run(host)
    assert (outcome.result, exit_code_of(outcome)) == ("deploy_failed", 7)
    assert (outcome.reason or "").endswith("(status 127): sh: 1: /usr/bin/python3: not found")
    assert not any("stage-run1" in path for path in host.files)
    full = a_host()
    full.unwritable = 20
    outcome, _ = run(full)
    assert outcome.result == "deploy_failed"
    assert "is the disk full, or read-only?" in (outcome.reason or "")
    assert not any("stage-run1" in path for path in full.files)
    assert (full.orders, full.ledgers) == ([], {})


def test_a_log_that_cannot_be_read_leaves_it_open() -> None:
    expected = msgspec.structs.replace(EXPECTED, log_matches="tok/s", within_s=20.0)
    host = a_host(born())
    host.unreadable = {LOG}
    outcome, _ = run(host, plan(expected=expected))
    assert (outcome.result, exit_code_of(outcome)) == ("unreachable", 4)
    assert outcome.reason is not None
    assert "whether it is healthy could not be seen: its log could not be read" in outcome.reason
    assert outcome.hint == "fleetstop status ct200:train"
    assert "done" not in host.orders
    assert len(trainers(host)) == 1


# beside a stop


def test_it_is_armed_before_the_stop_and_told_to_go_after_it() -> None:
    host = a_host(born())
    old = a_job(host)
    stage = Bringing(host)

    async def stop(lock: Lock, arm: Arm) -> Outcome:
        assert lock.claimed
        assert host.orders == []
        await arm()
        await arm()
        assert host.orders == ["armed"]
        for _ in range(120):  # a slow save: all the while the activator hears us
            await host.clock.sleep(1.0)
        host.end(old)
        await host.clock.sleep(1.0)
        return msgspec.structs.replace(finished("stopped"), findings=("it saved",))

    gone = (Born(old.inner, old.start), Born(5, 10050))
    outcome = asyncio.run(stage.launch(plan(gone=gone), stop))
    assert outcome.result == "redeployed"
    assert host.orders == ["armed", "go", "done"]
    pauses = [b - a for a, b in zip(host.beats, host.beats[1:], strict=False)]
    assert max(pauses) <= 5.0
    assert len(host.beats) > 30
    assert outcome.findings == ("it saved",)


def a_real_stop(stage: Bringing, how: Playbook) -> Stop:
    async def stop(lock: Lock, arm: Arm) -> Outcome:
        lock.before = arm
        return await stopped(stage.scope, Wish(playbook=how, consent="given"), Desk(), lock)

    return stop


@pytest.mark.parametrize("how", [GENTLE, NOW])
@pytest.mark.parametrize("why", ["refuses", "unwritable", "lost"])
def test_no_signal_goes_out_where_nothing_waits_to_start_it_again(how: Playbook, why: str) -> None:
    """The stop looks around while the activator begins. Sent then, a signal would end the job for
    good: killed without a save, or its GPUs idle with nobody to start it."""
    host = a_host(born())
    old = a_job(host)
    stage = Bringing(host)
    if why == "refuses":
        host.refuses = "the disk is full"
    elif why == "unwritable":
        host.unwritable = 20

    async def hands() -> Shell:
        await host.clock.sleep(20.0)
        if why == "lost":
            raise RemoteFailed("nobody knows whether anything waits")
        return await stage.world.inside()

    plan_ = plan(gone=(Born(old.inner, old.start),))
    outcome = asyncio.run(launch_through(stage.scope, plan_, hands, a_real_stop(stage, how)))
    assert host.sends() == []
    assert host.orders == []
    assert host.procs[old.pid] is old
    assert host.activators == []
    assert outcome.result == "deploy_failed"
    assert exit_code_of(outcome) == 7
    said = {"refuses": "the disk is full", "unwritable": "could not be written", "lost": "nobody"}
    assert said[why] in (outcome.reason or "")
    assert stage.of(e.SignalSent) == []


@pytest.mark.parametrize("how", [GENTLE, NOW])
def test_a_signal_waits_for_what_begins_slowly(how: Playbook) -> None:
    host = a_host(born())
    old = a_job(host)
    stage = Bringing(host)

    begins = iter([5000])  # only it takes its time: an order could go out at once

    async def hands() -> Shell:
        for _ in range(next(begins, 0)):
            await asyncio.sleep(0)
        return await stage.world.inside()

    plan_ = plan(gone=(Born(old.inner, old.start),))
    outcome = asyncio.run(launch_through(stage.scope, plan_, hands, a_real_stop(stage, how)))
    assert outcome.result == "redeployed"
    verbs = [each.verb for each in host.frames]
    assert verbs.index("py") < verbs.index("order") < verbs.index("send")
    assert host.orders == ["armed", "go", "done"]
    told = [type(each) for each in stage.told]
    assert told.index(e.Armed) < told.index(e.SignalSent)


def test_one_that_is_cut_short_while_it_begins_has_sent_nothing_and_leaves_nobody_waiting() -> None:
    host = a_host(born())
    old = a_job(host)
    stage = Bringing(host)

    async def hands() -> Shell:
        await host.clock.sleep(20.0)
        return await stage.world.inside()

    async def cut() -> Outcome:
        plan_ = plan(gone=(Born(old.inner, old.start),))
        whole = launch_through(stage.scope, plan_, hands, a_real_stop(stage, NOW))
        task = asyncio.create_task(whole)
        while not stage.of(e.RungEntered):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(Interrupted) as caught:
            await task
        return caught.value.outcome

    told = asyncio.run(cut())
    assert told.interrupted
    assert "nothing was started" in (told.reason or "")
    for _ in range(600):
        host.clock.advance(0.1)
        host.settle()
    assert host.sends() == []
    assert host.procs[old.pid] is old
    assert [each.told["step"] for each in host.activators] in ([], ["cancelled"])
    assert trainers(host) == [old]


def finished(result: Any) -> Outcome:
    return Outcome(target="ct200:train", host="pve1", vmid=200, job="train", result=result)


def test_where_nothing_runs_any_more_nothing_is_armed() -> None:
    host = a_host(born())
    stage = Bringing(host)

    async def stop(lock: Lock, arm: Arm) -> Outcome:
        return finished("not_running")

    assert asyncio.run(stage.launch(plan(), stop)).result == "redeployed"
    assert host.orders == ["go", "done"]


def test_a_stop_that_is_interrupted_tells_what_it_sent_and_who_goes_on() -> None:
    host = a_host(born())
    old = a_job(host)
    stage = Bringing(host)
    sent = SignalRecord("INT", "trainers", (old.inner,), "heard", "2026-01-01T00:00:00Z")

    async def stop(lock: Lock, arm: Arm) -> Outcome:
        await arm()
        raise Interrupted(msgspec.structs.replace(finished("still_running"), signals=(sent,)))

    async def cut() -> Outcome:
        with pytest.raises(Interrupted) as caught:
            await stage.launch(plan(gone=(Born(old.inner, old.start),)), stop)
        return caught.value.outcome

    told = asyncio.run(cut())
    assert (told.result, told.signals, told.interrupted) == ("still_running", (sent,), True)
    assert "starts the job by itself if what runs ends" in (told.reason or "")
    assert stage.of(e.Interrupted) == []  # the stop has told that itself
    # it heard INT, saves and leaves: nobody is there, and its GPUs do not idle
    host.later(40.0, lambda: host.end(old))
    for _ in range(1200):
        host.clock.advance(0.1)
        host.settle()
    assert (host.state["step"], len(trainers(host))) == ("healthy", 1)


def test_what_was_not_stopped_is_not_replaced() -> None:
    host = a_host()
    old = a_job(host)
    stage = Bringing(host)

    async def stop(lock: Lock, arm: Arm) -> Outcome:
        await arm()
        return finished("still_running")

    outcome = asyncio.run(stage.launch(plan(gone=(Born(old.inner, old.start),)), stop))
    assert (outcome.result, exit_code_of(outcome)) == ("still_running", 1)
    assert host.orders == ["armed", "cancel"]
    assert host.state["step"] == "cancelled"
    assert not any("stage-run1" in path for path in host.files)
    assert host.procs[old.pid] is old


def test_what_says_stopped_and_lives_is_not_replaced_either() -> None:
    """The activator looks itself: by identity, before it replaces anything."""
    host = a_host(born())
    old = a_job(host)
    stage = Bringing(host)

    async def stop(lock: Lock, arm: Arm) -> Outcome:
        return finished("stopped")

    outcome = asyncio.run(stage.launch(plan(gone=(Born(old.inner, old.start),)), stop))
    assert outcome.result == "deploy_failed"
    assert outcome.reason == "what was to be gone lives"
    assert len(trainers(host)) == 1


def test_another_run_that_is_at_work_is_named_and_nothing_begins() -> None:
    host = a_host(born())
    other = Bringing(host, run="run0")
    asyncio.run(other.lock().claim())
    outcome, _ = run(host)
    assert (outcome.result, exit_code_of(outcome)) == ("refused", 5)
    assert outcome.reason is not None
    assert "run run0" in outcome.reason
    assert host.activators == []


# connections


def test_a_lost_connection_is_made_again_and_nothing_is_done_twice() -> None:
    host = a_host(born())
    stage = Bringing(host)
    for verb in ("put", "order", "beat", "source"):
        stage.world.within.after(verb, lambda _: stage.world.cut())
    outcome = asyncio.run(stage.launch())
    assert outcome.result == "redeployed"
    assert len(host.activators) == 1
    assert stage.of(e.Reconnected)


def test_a_start_whose_answer_was_lost_is_known_by_its_state() -> None:
    host = a_host(born())
    stage = Bringing(host)
    stage.world.within.after("py", lambda _: stage.world.cut())
    outcome = asyncio.run(stage.launch())
    assert outcome.result == "redeployed"
    assert len(host.activators) == 1


def test_a_connection_that_does_not_come_back_says_who_goes_on() -> None:
    host = a_host(born())
    stage = Bringing(host)

    def away(_: Any) -> None:
        if host.state["step"] == "launched":
            stage.world.no_way_back = ConnectionLost("pve1: no route to host")
            stage.world.cut()

    stage.world.host.before("look", *[away] * 60)
    outcome = asyncio.run(stage.launch())
    assert (outcome.result, exit_code_of(outcome)) == ("unreachable", 4)
    assert outcome.reason is not None
    assert "it was started, and what works in the container sees to its health" in outcome.reason
    host.clock.advance(60.0)
    host.settle()
    for _ in range(400):
        host.clock.advance(0.1)
        host.settle()
    assert (host.state["step"], host.state["confirmed_by"]) == ("healthy", "activator")
    assert len(trainers(host)) == 1


@pytest.mark.parametrize("step", ["swapping", "launching", "launched", "rolling_back"])
def test_an_activator_that_is_killed_is_told_and_nothing_is_claimed(step: str) -> None:
    births = [born(dies_after=2.0, exit_=1), born()] if step == "rolling_back" else [born()]
    host = a_host(*births)
    host.killed_at = step
    outcome, _ = run(host)
    if step == "launched":
        # it lives and is well; that nobody noted it is said
        assert outcome.result == "redeployed"
        assert "did not note that it is healthy: launched" in outcome.findings[0]
        return
    assert outcome.result in ("unreachable", "unhealthy")
    assert exit_code_of(outcome) in (4, 8)
    assert step in (outcome.reason or "") or "did not come back" in (outcome.reason or "")


def test_a_timeout_ends_the_watching_and_not_the_job() -> None:
    host = a_host(born())
    stage = Bringing(host)

    async def timed() -> Outcome:
        scope = msgspec.structs.replace(stage.scope, limit_s=0.0, until=host.clock.now())
        return await launch_through(scope, plan(), stage.world.inside)

    outcome = asyncio.run(timed())
    assert outcome.result == "unreachable"
    assert "--timeout" in (outcome.reason or "")


# interruptions


def interrupted_at(count: int, births: list[Birth]) -> tuple[LaunchHost, Bringing, Outcome | None]:
    """Ctrl-C at the frame with this number; the outcome, where it came to that."""
    host = a_host(*births)
    stage = Bringing(host)

    async def go() -> Outcome | None:
        task = asyncio.ensure_future(stage.launch())
        while not task.done() and len(host.frames) < count:
            await asyncio.sleep(0)
        task.cancel()
        try:
            await task
        except Interrupted as exc:
            return exc.outcome
        return None

    return host, stage, asyncio.run(go())


@pytest.mark.parametrize("count", [*range(1, 40, 2), 50, 70, 90, 110])
@pytest.mark.parametrize("bad", [False, True], ids=["good", "bad"])
def test_an_interruption_anywhere_is_told_and_leaves_no_gap(count: int, bad: bool) -> None:
    births = [born(dies_after=2.0, exit_=1), born()] if bad else [born()]
    host, stage, told = interrupted_at(count, births)
    if told is None:
        assert stage.of(e.Interrupted) == []
        return
    assert len(stage.of(e.Interrupted)) == 1
    assert (told.interrupted, exit_code_of(told)) == (True, 130)
    assert told.release is not None
    assert "interrupted; " in (told.reason or "")
    assert host.sends() == []
    # nobody beats any more: the activator goes on or cleans up, and leaves
    for _ in range(1200):
        host.clock.advance(0.1)
        host.settle()
    if not host.activators:
        assert not trainers(host)
        return
    step, gone_to = host.state["step"], host.orders
    assert step in ("cancelled", "healthy", "rolled_back")
    assert (step == "cancelled") == ("go" not in gone_to)
    assert len(trainers(host)) == (0 if step == "cancelled" else 1)
    assert host.activators[0].proc.pid not in host.procs
    if step == "cancelled":
        reason = told.reason or ""
        assert "nothing was started" in reason or "if it has heard go, and else leaves" in reason


def test_the_healthcheck_of_the_inventory_is_none_of_its_business() -> None:
    """What is expected comes with the plan: the caller reads the inventory."""
    host = a_host(born())
    outcome, _ = run(host, healthcheck=Healthcheck(log_matches="never", within_s=1.0))
    assert outcome.result == "redeployed"


def test_each_script_is_read_whole_to_be_compared() -> None:
    """Longer than what is told of a file, it would be put anew by each run."""
    sizes = {name: len(text.encode()) for name, text in scripts("stay").items()}
    assert [name for name, size in sizes.items() if size >= hands.HEAD] == []
