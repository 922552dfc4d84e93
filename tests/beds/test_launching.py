"""A launch through the real activator and supervisor, in a real container, over real SSH."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

import fleetstop
from fleetstop import Fleet, events
from fleetstop.actions.asking import Desk
from fleetstop.actions.attempt import Wish
from fleetstop.actions.interpreter import scripts
from fleetstop.actions.launch_plan import Arm, LaunchPlan
from fleetstop.actions.launching import launch_through
from fleetstop.actions.lock import Lock
from fleetstop.actions.reconnect import ReconnectingPlace
from fleetstop.actions.stop import Interrupted, stopped
from fleetstop.actions.telling import Scope
from fleetstop.core.launching.activator import ActivatorSpec
from fleetstop.core.launching.ended import Born
from fleetstop.core.launching.health import Expected
from fleetstop.core.launching.spec import LaunchSpec
from fleetstop.core.playbook import Playbook, parse_ladder
from fleetstop.core.report import Outcome
from fleetstop.events import AnyEvent

from .bed import Bed, until
from .proxy import Proxy, Wrong

HERE = Path(fleetstop.__file__).parent / "remote" / "scripts"
pytestmark = [
    pytest.mark.bed,
    pytest.mark.skipif(not (HERE / "activate.py").exists(), reason="no activator is here yet"),
]
SHIPPED = [each.removesuffix(".py") for each in scripts()]
BASE = "/root/.fleetstop/train"
LOG = "/workspace/train.log"
ENV = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root",
       "A": "one two"}  # fmt: skip
PLAIN = ("python3", "-u", "train.py", "--save-seconds", "0.3")


class Bringing:
    """One launch in this container, by these argument vectors; what was told of it."""

    def __init__(self, box: Bed, new: tuple[str, ...], old: tuple[str, ...] | None = None) -> None:
        self.box = box
        self.told: list[AnyEvent] = []
        self.inventory = box.lab.inventory
        self.stop: Callable[[Scope, Lock, Arm], Awaitable[Outcome]] | None = None
        self.new, self.old = new, old
        self.more: dict[str, Any] = {}
        self.spec_more: dict[str, Any] = {}

    def _launch(self, argv: tuple[str, ...], mark: str) -> LaunchSpec:
        return LaunchSpec(argv=argv, cwd="/root", env=ENV, log=LOG, mark=mark,
                          status=f"{BASE}/status/{mark}.json")  # fmt: skip

    def plan(self, run: str) -> LaunchPlan:
        spec: dict[str, Any] = {
            "run": run, "base": BASE, "dest": "/root", "log": LOG,
            "launch": self._launch(self.new, f"{run}-new"),
            "launch_old": self._launch(self.old, f"{run}-old") if self.old else None,
            "roll_back": self.old is not None, "within_s": 4.0, **self.spec_more,
        }  # fmt: skip
        expected = {"argv": self.new, "env": {"A": "one two"}, "stop_signal": "INT",
                    "within_s": 4.0, **self.more}  # fmt: skip
        old = Expected(argv=self.old, stop_signal="INT", within_s=4.0) if self.old else None
        scripts = {f"{each}.py": (HERE / f"{each}.py").read_text() for each in SHIPPED}
        return LaunchPlan(spec=ActivatorSpec(**spec), python="/usr/bin/python3", scripts=scripts,
                          expected=Expected(**expected), expected_old=old)  # fmt: skip

    @property
    def target(self) -> str:
        return self.box.name

    async def go(self) -> Outcome:
        async with Fleet.load(self.inventory, emit=self.told.append) as fleet:
            targets = fleet.select((self.target,))

            async def action(scope: Scope) -> Outcome:
                place = ReconnectingPlace(scope.place, "lab1", scope.clock, scope.teller)
                scope = msgspec.structs.replace(scope, place=place)
                how = self.stop
                ending = None if how is None else partial(how, scope)
                plan = self.plan(scope.run.id)
                try:
                    outcome = await launch_through(scope, plan, hands_of(place), ending)
                except Interrupted as exc:
                    scope.teller.tell(events.TargetFinished, outcome=exc.outcome)
                    raise
                scope.teller.tell(events.TargetFinished, outcome=outcome)
                return outcome

            report = await fleet._run("launch", (self.target,), targets, action, False)
            return report.targets[0]

    def run(self) -> Outcome:
        outcome = asyncio.run(asyncio.wait_for(self.go(), 120.0))
        self.box.note(outcome.result, outcome.reason or "", f"{outcome.seconds}")
        return outcome

    @property
    def state(self) -> dict[str, Any]:
        path = self.box.lab.rootfs(self.box.vmid) / BASE.lstrip("/") / "state.json"
        return dict(json.loads(path.read_text()))

    def trainers(self) -> list[int]:
        """Host PIDs of python train.py in the container."""
        found = []
        for pid in self.box.lab.host_pids(self.box.vmid):
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if words[0].endswith(b"python3") and b"train.py" in words:
                found.append(pid)
        return found


def hands_of(place: Any) -> Any:
    return place.hands


def script(box: Bed, text: str) -> tuple[str, ...]:
    path = box.lab.rootfs(box.vmid) / "root" / "run.sh"
    path.write_text(text)
    path.chmod(0o755)
    return ("bash", "run.sh")


def test_a_good_launch_is_healthy_and_stops_by_one_int(box: Bed) -> None:
    bringing = Bringing(box, PLAIN)
    outcome = bringing.run()
    assert (outcome.result, bringing.state["step"]) == ("running", "healthy")
    assert bringing.state["confirmed_by"] == "client"
    ran = box.run("stop", box.name, "--graceful")
    assert (ran.code, ran.target["result"]) == (0, "stopped")
    assert [name for name, _ in ran.signals] == ["INT"]
    assert bringing.trainers() == []


def test_through_run_sh_with_its_arguments(box: Bed) -> None:
    argv = script(box, 'python3 -u train.py --save-seconds 0.3 "$@"\n')
    bringing = Bringing(box, (*argv, "--size-mb", "1"))
    bringing.more = {"arguments": ("--size-mb", "1"), "log_matches": "tok/s"}
    assert bringing.run().result == "running"


def test_run_sh_that_drops_them_is_rolled_back(box: Bed) -> None:
    argv = script(box, "env -u A python3 -u train.py --save-seconds 0.3\n")
    bringing = Bringing(box, (*argv, "--size-mb", "1"), PLAIN)
    bringing.more = {"arguments": ("--size-mb", "1")}
    outcome = bringing.run()
    assert outcome.result == "rolled_back"
    assert "did not reach it" in (outcome.reason or "")
    assert len(bringing.trainers()) == 1
    assert bringing.state["step"] == "rolled_back"


def test_run_sh_that_backgrounds_it_is_rolled_back(box: Bed) -> None:
    argv = script(box, "python3 -u train.py --save-seconds 0.3 &\nwait\n")
    bringing = Bringing(box, argv, PLAIN)
    outcome = bringing.run()
    assert outcome.result == "rolled_back"
    assert "ignores INT" in (outcome.reason or "")
    assert len(bringing.trainers()) == 1


def test_run_sh_that_leaves_it_in_the_background_is_rolled_back(box: Bed) -> None:
    argv = script(box, "python3 -u train.py --save-seconds 0.3 &\n")
    bringing = Bringing(box, argv, PLAIN)
    outcome = bringing.run()
    assert outcome.result == "rolled_back"
    assert "ignores INT" in (outcome.reason or "")
    assert len(bringing.trainers()) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [("import time; time.sleep(2); raise SystemExit(3)", "exit 3"),
     ("import os; os.kill(os.getpid(), 11)", "killed by SEGV"),
     ("raise ValueError('bad shape')", "exit 1")],
)  # fmt: skip
def test_one_that_dies_is_rolled_back(box: Bed, text: str, said: str) -> None:
    argv = script(box, f'echo begins\nexec python3 -c "{text}" train.py\n')
    bringing = Bringing(box, argv, PLAIN)
    outcome = bringing.run()
    assert outcome.result == "rolled_back"
    assert said in (outcome.reason or "")
    assert len(bringing.trainers()) == 1
    assert outcome.health is not None
    assert outcome.health[0].log


def test_a_newborn_that_saves_is_not_cut(box: Bed) -> None:
    new = ("python3", "-u", "train.py", "--save-seconds", "3", "--save-every", "2", "--in-place")
    bringing = Bringing(box, new, PLAIN)
    bringing.more = {"log_matches": "never says this"}
    outcome = bringing.run()
    assert box.whole(box.checkpoints / "latest.pt")
    assert outcome.result == "rolled_back"
    assert [each.signal for each in outcome.signals] == ["INT"]


def test_nothing_that_can_run_touches_nothing(box: Bed) -> None:
    bringing = Bringing(box, ("no-such-program", "train.py"))
    outcome = bringing.run()
    assert outcome.result == "deploy_failed"
    assert "no-such-program" in (outcome.reason or "")
    assert bringing.trainers() == []


def killed_when(bringing: Bringing, true: Callable[[], bool]) -> None:
    """The client in a process of its own, killed -9 as soon as this is true."""
    child = os.fork()
    if child == 0:
        try:
            asyncio.run(bringing.go())
        finally:
            os._exit(0)
    end = time.monotonic() + 60.0
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def test_a_client_that_is_killed_once_it_was_launched_leaves_it_running(box: Bed) -> None:
    bringing = Bringing(box, PLAIN)
    bringing.spec_more = {"stale_s": 5}

    def launched() -> bool:
        try:
            return bool(bringing.state["step"] == "launched")
        except (OSError, ValueError):
            return False

    killed_when(bringing, launched)
    until(lambda: bringing.state["step"] == "healthy", 60.0)
    assert bringing.state["confirmed_by"] == "activator"
    assert len(bringing.trainers()) == 1


async def graceful(scope: Scope, lock: Lock, arm: Arm) -> Outcome:
    book = Playbook(name="graceful", lossless=True, ladder=parse_ladder("stop_signal/1m"))
    lock.before = arm
    return await stopped(scope, Wish(playbook=book, consent="refused"), Desk(), lock)


def test_a_restart_stops_by_one_int_and_comes_back(box: Bed) -> None:
    first = Bringing(box, PLAIN)
    assert first.run().result == "running"
    was = first.state["trainer"]
    again = Bringing(box, PLAIN, PLAIN)
    again.spec_more = {"gone": (Born(was["pid"], was["start"]),)}
    again.stop = graceful
    outcome = again.run()
    assert outcome.result == "running"
    assert [each.signal for each in outcome.signals] == ["INT"]
    assert len(again.trainers()) == 1
    assert again.state["trainer"]["pid"] != was["pid"]
    assert box.saved()


def test_two_at_once_and_the_second_is_refused_naming_the_first(box: Bed) -> None:
    one, two = Bringing(box, PLAIN), Bringing(box, PLAIN)

    async def both() -> tuple[Outcome, Outcome]:
        first = asyncio.ensure_future(one.go())
        while not any(isinstance(each, events.Launched) for each in one.told):
            await asyncio.sleep(0.05)
        second = await two.go()
        return await first, second

    first, second = asyncio.run(both())
    assert (first.result, second.result) == ("running", "refused")
    started = one.told[0]
    assert isinstance(started, events.Started)
    assert started.run in (second.reason or "")
    assert len(one.trainers()) == 1


def test_a_job_that_declares_gpus_is_seen_to_use_them(box: Bed) -> None:
    bringing = Bringing(box, (*PLAIN, "--gpus", "0,1"))
    bringing.more = {"gpus": (0, 1)}
    outcome = bringing.run()
    assert outcome.result == "running"
    assert outcome.health is not None
    assert [(c.ok, c.said) for c in outcome.health[0].checks if c.check == "gpu"] == [
        (True, "uses GPU 0-1")
    ]


def test_ctrl_c_while_its_health_is_watched(box: Bed) -> None:
    bringing = Bringing(box, PLAIN)
    bringing.spec_more = {"stale_s": 5}

    async def cut() -> None:
        task = asyncio.ensure_future(bringing.go())
        while not any(isinstance(each, events.Launched) for each in bringing.told):
            await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cut())
    ends = [each for each in bringing.told if isinstance(each, events.TargetFinished)]
    assert len(ends) == 1
    assert "sees to its health by itself" in (ends[0].outcome.reason or "")
    until(lambda: bringing.state["step"] == "healthy", 60.0)
    assert len(bringing.trainers()) == 1


@pytest.mark.parametrize("wrong", ["cut", "reset", "stall"])
@pytest.mark.parametrize("point", [events.Armed, events.Launched])
def test_a_connection_that_goes_wrong_is_made_again(
    box: Bed, tmp_path: Path, wrong: Wrong, point: type[events.Event]
) -> None:
    """At the moment between the activator and the launch, and while its health is watched."""
    proxy = Proxy(box.lab, wrong)
    bringing = Bringing(box, PLAIN)
    bringing.inventory = proxy.inventory(tmp_path)
    proxy.when = lambda _: any(isinstance(each, point) for each in bringing.told)
    try:
        outcome = bringing.run()
    finally:
        proxy.close()
    assert proxy.fired.is_set()
    assert outcome.result == "running"
    assert any(isinstance(each, events.Reconnected) for each in bringing.told)
    assert len(bringing.trainers()) == 1
    assert bringing.state["step"] == "healthy"


def test_on_a_plain_host(box: Bed, tmp_path: Path) -> None:
    """No container: what is started is the host's, and is found there."""
    where = tmp_path / "code"
    where.mkdir()
    name = f"train_{box.vmid}.py"
    (where / name).write_text("import time\nprint('step 1', flush=True)\ntime.sleep(600)\n")
    lines = box.lab.inventory.read_text().split("containers:")[0].rstrip()
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(
        f"{lines}\n    jobs:\n      train:\n        match: {{script: {name}}}\n"
        f"        stop_signal: INT\n"
    )
    bringing = OnHost(box, ("python3", "-u", name))
    bringing.inventory, bringing.where = fleet, where
    outcome = bringing.run()
    assert outcome.result == "running"
    [trainer] = [each for each in outcome.family if each.role == "trainer"]
    assert trainer.pid == trainer.host_pid
    os.kill(trainer.pid, signal.SIGINT)
    until(lambda: not Path(f"/proc/{trainer.pid}").exists())


class OnHost(Bringing):
    """The same on the host itself, below a directory of the test's own."""

    where = Path("/nowhere")

    @property
    def target(self) -> str:
        return "lab1:train"

    def plan(self, run: str) -> LaunchPlan:
        told = super().plan(run)
        base = f"{self.where}/.fleetstop/train"
        assert told.spec.launch is not None
        launch = msgspec.structs.replace(
            told.spec.launch, cwd=str(self.where), log=f"{self.where}/train.log",
            status=f"{base}/status/{run}-new.json",
        )  # fmt: skip
        spec = msgspec.structs.replace(
            told.spec, base=base, dest=str(self.where), launch=launch, log=f"{self.where}/train.log"
        )
        return msgspec.structs.replace(told, spec=spec)
