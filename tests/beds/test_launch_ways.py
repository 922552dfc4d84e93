"""The three ways in which a launched trainer is carried: what its end is on record as, what
fleetstop sees above it, and that neither tmux nor systemd can cost it its save.

Started over the practice host's ssh and `pct exec`, by a shell that ignores INT, QUIT and HUP.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

import fleetstop
from fleetstop.core.inventory import Job, Launch, Launcher, Match
from fleetstop.core.launching.launchers import prefix, words
from fleetstop.core.launching.spec import LaunchSpec
from fleetstop.lab.systemd import SYSTEMD

from .bed import Bed, Ran, until, with_job

pytestmark = [pytest.mark.bed, pytest.mark.timeout(600)]

Kind = Literal["setsid", "tmux", "systemd"]
SCRIPTS = Path(fleetstop.__file__).parent / "remote" / "scripts"
BASE = "/root/.fleetstop/train"
LOG = "/workspace/train.log"
DEAF = "trap '' INT QUIT HUP; exec \"$@\""
TRAIN = ("python3", "-u", "/root/train.py", "--checkpoints", "/workspace/checkpoints")
RAISES = "import time\nprint('up', flush=True)\ntime.sleep(600)\n"
ABOVE = {
    "setsid": ["supervisor"],
    "tmux": ["tmux", "supervisor"],
    "systemd": ["systemd", "supervisor"],
}
KINDS = [
    "setsid",
    "tmux",
    pytest.param(
        "systemd",
        marks=pytest.mark.skipif(not SYSTEMD.exists(), reason="systemd is not installed"),
    ),
]


@dataclass
class Launched:
    """One container in which jobs are launched in one way, one after the other."""

    box: Bed
    kind: Kind
    runs: int = 0
    job: Job = field(init=False)
    pid: int = 0
    start: int = 0

    def __post_init__(self) -> None:
        launch = Launch(TRAIN, launcher=Launcher(self.kind))
        self.job = Job("train", Match(script="train.py"), stop_signal="INT", launch=launch)
        if self.kind == "systemd":
            self.box.lab.reboot_with_systemd(self.box.vmid, {})
        self.there(f"{BASE}/status").mkdir(parents=True)
        for name in ("supervise.py", "stay.py"):
            self.there(f"{BASE}/{name}").write_text((SCRIPTS / name).read_text())

    def there(self, path: str) -> Path:
        return self.box.lab.rootfs(self.box.vmid) / path.lstrip("/")

    def launch(self, *argv: str) -> None:
        self.runs += 1
        spec = self.spec(argv)
        file = f"{BASE}/launch $HOME {self.runs};"
        stop = f"fleetstop stop {self.box.name}:train"
        self.there(file).write_text(json.dumps(words(self.job, spec, stop)))
        self.ask(*prefix(self.job), "/usr/bin/python3", "-I", f"{BASE}/supervise.py", file)

    def spec(self, argv: tuple[str, ...]) -> LaunchSpec:
        return LaunchSpec(
            argv=argv,
            cwd="/root",
            env={"PATH": "/usr/bin:/bin", "HOME": "/root"},
            log=LOG,
            mark=f"run-{self.runs}",
            status=f"{BASE}/status/run-{self.runs}.json",
        )

    def ask(self, *words: str) -> None:
        line = ["bash", "-c", DEAF, "-", *words]
        said = self.box.lab.ssh_command(
            shlex.join(["pct", "exec", str(self.box.vmid), "--", *line])
        )
        done = subprocess.run(said, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done
        word, pid, start = done.stdout.split()
        assert word == "started", done
        self.pid, self.start = int(pid), int(start)
        assert self.state["trainer"] == {"pid": self.pid, "start": self.start}

    def train(self, *more: str) -> None:
        self.launch(*TRAIN, *more)
        until(lambda: self.log().count("step"), 60)

    def inside(self, *argv: str) -> str:
        return self.box.lab.exec(self.box.vmid, list(argv), 60).stdout

    def log(self) -> str:
        log = self.there(LOG)
        return log.read_text() if log.exists() else ""

    @property
    def state(self) -> dict[str, Any]:
        text = self.there(f"{BASE}/status/run-{self.runs}.json").read_text()
        return dict(json.loads(text))

    def ended(self) -> tuple[int | None, str | None]:
        until(lambda: self.state["ended_at"], 60)
        return self.state["exit"], self.state["signal"]

    def alive(self) -> bool:
        """As the container counts: that very process, and not its remains."""
        said = self.inside("cat", f"/proc/{self.pid}/stat").rpartition(")")[2].split()
        return len(said) > 19 and int(said[19]) == self.start and said[0] not in "ZX"

    def seen(self, *argv: str, inventory: Path | None = None) -> Ran:
        return self.box.run(*argv, self.box.name, inventory=inventory)


ENDS: list[tuple[str, list[str], list[str], tuple[int | None, str | None]]] = [
    ("exit 0", ["sh", "-c", "exit 0"], [], (0, None)),
    ("exit 3", ["sh", "-c", "exit 3"], [], (3, None)),
    ("exit 130", ["sh", "-c", "exit 130"], [], (130, None)),
    ("SIGKILL", ["python3", "-c", RAISES], ["kill", "-KILL", "{}"], (None, "KILL")),
    ("SIGINT", ["python3", "-c", RAISES], ["kill", "-INT", "{}"], (None, "INT")),
    ("TERM to its group", ["python3", "-c", RAISES], ["kill", "-TERM", "--", "-{}"],
     (None, "TERM")),
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_the_exact_end_is_on_record(box: Bed, kind: Kind) -> None:
    here = Launched(box, kind)
    for name, argv, send, wanted in ENDS:
        here.there(LOG).unlink(missing_ok=True)
        here.launch(*argv)
        if send:
            until(lambda: "up" in here.log(), 60)
            here.inside(*(word.format(here.pid) for word in send))
        assert here.ended() == wanted, name
        box.note(f"{kind}: {name}", f"exit {here.state['exit']}, signal {here.state['signal']}")
    if kind == "tmux":
        assert here.inside("tmux", "list-sessions", "-F", "#{session_name}") == "fleetstop-train\n"
        until(
            lambda: (
                "was ended by TERM" in here.inside("tmux", "capture-pane", "-pt=fleetstop-train:")
            ),
            60,
        )
    if kind == "systemd":
        until(lambda: unit(here) == "inactive", 60)


def unit(here: Launched) -> str:
    return here.inside("systemctl", "is-active", "fleetstop-train.service").strip()


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_seen_stopped_by_one_signal_and_stays_down(box: Bed, kind: Kind) -> None:
    here = Launched(box, kind)
    here.train("--save-seconds", "1")
    shown = here.seen("status")
    assert [each["kind"] for each in shown.target["above"]] == ABOVE[kind], shown.people
    assert {each["again"] for each in shown.target["above"]} == {"never"}
    roles = {each["pid"]: each["role"] for each in shown.target["family"]}
    assert roles == {here.pid: "trainer"}
    assert shown.target["verdict"] == "busy"  # not deaf, though its launcher's shell was
    ran = here.seen("stop", "--graceful")
    assert (ran.code, ran.signals) == (0, [("INT", [here.pid])]), ran.people
    assert ran.target["checkpoint"]["written_after_signal"] is True
    assert here.log().count("KeyboardInterrupt") == 1
    assert here.ended() == (0, None)
    time.sleep(3)
    assert not here.inside("pgrep", "-f", "train.py")
    assert here.seen("status").target["result"] == "not_running"


@pytest.mark.parametrize("kind", ["tmux"])
def test_in_a_session_it_is_found_and_outlives_it(box: Bed, kind: Kind) -> None:
    here = Launched(box, kind)
    here.train("--save-seconds", "1")
    until(lambda: "step" in here.inside("tmux", "capture-pane", "-pt=fleetstop-train:"), 60)
    inventory = with_job(box, box.lab.root, "match: {tmux: fleetstop-train}")
    shown = here.seen("status", inventory=inventory)
    assert [each["pid"] for each in shown.target["family"]] == [here.pid], shown.people
    here.inside("tmux", "send-keys", "-t=fleetstop-train:", "C-c")
    until(lambda: "Ctrl-C does not reach the trainer"
          in here.inside("tmux", "capture-pane", "-pJt=fleetstop-train:"), 60)  # fmt: skip
    here.inside("tmux", "kill-server")
    time.sleep(1)
    assert here.alive()
    ran = here.seen("stop", "--graceful")
    assert (ran.code, ran.signals) == (0, [("INT", [here.pid])]), ran.people
    assert here.log().count("KeyboardInterrupt") == 1
    assert here.ended() == (0, None)


@pytest.mark.skipif(not SYSTEMD.exists(), reason="systemd is not installed")
def test_what_systemctl_stop_does_is_told_and_comes_true(box: Bed) -> None:
    """The trainer alone gets its signal, and as long as it needs."""
    here = Launched(box, "systemd")
    here.train("--save-seconds", "4")
    (over, _) = here.seen("status").target["above"]
    assert over["will"] == (
        "leaves it ended; `systemctl stop` would send INT to its main process,"
        " which hands it on to the trainer once"
    )
    here.inside("systemctl", "stop", "--no-block", "fleetstop-train")
    until(lambda: "KeyboardInterrupt" in here.log(), 60)
    here.inside("systemctl", "kill", "-s", "INT", "--kill-who=main", "fleetstop-train")
    assert (unit(here), here.alive()) == ("deactivating", True)
    assert here.ended() == (0, None)
    until(lambda: unit(here) == "inactive", 60)
    assert here.log().count("KeyboardInterrupt") == 1
    assert box.saved(), here.log()
    assert all(box.whole(box.checkpoints / each) for each in box.saved())


@pytest.mark.skipif(not SYSTEMD.exists(), reason="systemd is not installed")
def test_the_units_main_process_is_not_the_trainers_life(box: Bed) -> None:
    """With KillMode=mixed systemd sent KILL to the trainer here, unsaved."""
    here = Launched(box, "systemd")
    here.train("--save-seconds", "1")
    here.inside("systemctl", "kill", "-s", "KILL", "--kill-who=main", "fleetstop-train")
    until(lambda: unit(here) != "active", 60)
    time.sleep(2)
    assert here.alive()
    ran = here.seen("stop", "--graceful")
    assert (ran.code, ran.signals) == (0, [("INT", [here.pid])]), ran.people
    assert here.ended() == (0, None)
