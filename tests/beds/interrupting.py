"""A redeploy that is interrupted where a test wants it, in a container of its own; many at once."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from fleetstop.lab import Lab, Started
from fleetstop.lab.processes import inner_pid

from . import versions
from .bed import Bed, Ran, Running, alive, lives, until
from .proxy import Proxy, Wrong

JOB = """match: {script: train.py}
        stop_signal: INT
        log: /workspace/train.log
        checkpoints: /workspace/checkpoints
        healthcheck: {log_matches: "tok/s", within: 8s}"""
# by which it is started again also where nobody can look any more at how it was
LAUNCH = "\n        launch: {run: [python3, -u, train.py], cwd: /root}"
OURS = {"status", "releases", "state.json", "order", "beat", "__pycache__"}
STALE_S = 30.0


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


class Case:
    """One container and its job; `command` is typed at one laptop, and again at another."""

    def __init__(self, lab: Lab, vmid: int, where: Path) -> None:
        self.box, self.where = Bed(lab, vmid), where
        self.root = lab.rootfs(vmid) / "root"
        self.base = self.root / ".fleetstop/train"
        self.old_code = (self.root / "train.py").read_text()
        self.text = versions.GOOD
        self.words: list[str] = []
        self.more = ""
        self.named: list[str] = []  # what is sent, where it is not train.py and what is beside it
        self.job: Started
        self.client: Running | None = None
        self._laptops = 0
        self._extra: dict[str, int] = {}

    # -- what is typed --------------------------------------------------------------------------

    def start(self, *words: str) -> None:
        self.job = self.box.start(*words)

    def inventory(self) -> Path:
        """The one of the last laptop."""
        return self.where / f"laptop{self._laptops}" / "fleet.yaml"

    def beside(self, **sizes: int) -> None:
        """More files, by name and size, that are sent beside train.py."""
        self._extra |= sizes

    def _command(self, *words: str) -> list[str]:
        sources = versions.sources(self.where / "src", self.text)
        for name, size in self._extra.items():
            path = sources / f"{name}.bin"
            if not path.exists():
                path.write_bytes(name.encode() + bytes(size))
        names = ["train.py", *(f"{name}.bin" for name in self._extra)]
        files = self.named or [str(sources / name) for name in names]
        return [*files, *words, *self.words]

    def _inventory(self, proxy: Proxy | None, laptop: Path) -> Path:
        source = proxy.inventory(laptop) if proxy is not None else self.box.lab.inventory
        text = source.read_text()
        box, job = self.box, JOB + self.more
        body = f"containers:\n  {box.name}:\n    host: lab1\n    vmid: {box.vmid}\n    jobs:\n"
        path = laptop / "fleet.yaml"
        path.write_text(f"{text[: text.index('containers:')]}{body}      train:\n        {job}\n")
        return path

    def by_hand(self, command: str) -> Ran:
        """Another command, by somebody whose connection nobody touches."""
        inventory = self._inventory(None, self.where)
        child = self.box.popen(command, self.box.name, inventory=inventory)
        return self.box.finish(child, 240.0, alone=False)

    def popen(self, *words: str, proxy: Proxy | None = None) -> Running:
        """Typed at a laptop that knows nothing of any other, by somebody else."""
        self._laptops += 1
        laptop = self.where / f"laptop{self._laptops}"
        laptop.mkdir()
        line = [sys.executable, "-m", "fleetstop", "redeploy", self.box.name, "--events"]
        line += ["-i", str(self._inventory(proxy, laptop)), *self._command(*words)]
        names = {"LOGNAME": f"person{self._laptops}", "XDG_STATE_HOME": str(laptop / "state")}
        out, err = (laptop / "events").open("w"), (laptop / "people").open("w")
        process = subprocess.Popen(
            line, stdin=subprocess.DEVNULL, stdout=out, stderr=err, text=True,
            env={**os.environ, **names, "COLUMNS": "100"},
        )  # fmt: skip
        self.client = Running(process, (0, 0), time.monotonic(), 1)
        return self.client

    def finish(self, deadline: float = 240.0) -> Ran:
        assert self.client is not None
        laptop = self.where / f"laptop{self._laptops}"
        try:
            code = self.client.process.wait(deadline)
        except subprocess.TimeoutExpired:
            self.client.process.kill()
            raise AssertionError((laptop / "people").read_text()) from None
        told = [json.loads(line) for line in (laptop / "events").read_text().splitlines()]
        people = (laptop / "people").read_text()
        seconds = time.monotonic() - self.client.at
        return Ran(code, told, people, seconds, 0, 0)

    def told(self) -> list[str]:
        """The names of the events that the last client has told by now."""
        text = (self.where / f"laptop{self._laptops}" / "events").read_text()
        lines = text[: text.rfind("\n") + 1].splitlines()
        return [json.loads(line)["event"] for line in lines]

    # -- where it is interrupted ----------------------------------------------------------------

    def interrupted(self, when: Callable[[], Any], how: signal.Signals = signal.SIGKILL) -> Ran:
        """The client gets this signal as soon as `when` is true, before it hears another word of
        its host; what it told and how it ended."""

        def end() -> None:
            assert self.client is not None
            self.client.process.send_signal(how)

        proxy = Proxy(self.box.lab, end)
        ran = self._through(proxy, when)
        if how == signal.SIGKILL:
            assert ran.code == -how, ran.people
        return ran

    def cut(self, when: Callable[[], Any], wrong: Wrong = "cut", *, last: bool = False) -> Ran:
        """Its connection goes wrong then; `last`: for good."""
        return self._through(Proxy(self.box.lab, wrong, last=last), when)

    def meanwhile(self, when: Callable[[], Any], what: Callable[[], Any]) -> Ran:
        """Something else happens then, and the client goes on."""
        return self._through(Proxy(self.box.lab, what), when)

    def half_swapped(self, what: Callable[[], Any]) -> Ran:
        """Something else happens as soon as some of the files are replaced, and not yet all."""
        client = self.popen()
        self.step("waiting")
        activator = self.activator()
        first = self.root / "part10.bin"  # names are sorted: few come before it
        old = first.stat().st_ino
        until(lambda: self.state["order"] in ("armed", "go"))
        os.kill(activator, signal.SIGSTOP)  # it would be done before anybody has seen it begin
        until(lambda: self.order == "go")
        # it goes on in steps of a few milliseconds
        while client.process.poll() is None and first.stat().st_ino == old:
            os.kill(activator, signal.SIGCONT)
            time.sleep(0.003)
            os.kill(activator, signal.SIGSTOP)
        what()
        ran = self.finish()
        old_ones = {each.stat().st_size == len("old") for each in self.root.glob("part*.bin")}
        assert old_ones == {True, False}, f"it was over before: {ran.people}"
        assert self.state["files"] == "mixed"
        return ran

    def all_new(self, names: list[str]) -> None:
        assert all((self.root / f"{e}.bin").read_bytes().startswith(e.encode()) for e in names)

    def _through(self, proxy: Proxy, when: Callable[[], Any]) -> Ran:
        def now(_: int) -> bool:
            with suppress(OSError, ValueError, LookupError):
                return bool(when())
            return False

        proxy.when = now
        try:
            self.popen(proxy=proxy)
            ran = self.finish()
        finally:
            proxy.close()
        assert proxy.fired.is_set(), ran.people
        return ran

    def again(self, *words: str, deadline: float = 240.0) -> Ran:
        """The same command from another laptop; without --break-lock once the lock is free."""
        if "--break-lock" not in words:
            until(lambda: not self.lock_is_fresh(), 60.0)
        self.popen(*words)
        ran = self.finish(deadline)
        self.box.note(self.name, str(ran.code), ran.target["result"], ran.target["reason"] or "")
        return ran

    def again_at_once(self) -> Ran:
        """While the lock is still that of the run that was ended."""
        self.popen()
        return self.finish()

    name = ""

    def lock_is_fresh(self) -> bool:
        """Whether a run has stamped its lock within the last 30 s, and a little."""
        place = Path(f"/run/lock/fleetstop.{self.box.vmid}")
        stamps = [each.stat().st_mtime for each in place.iterdir()] if place.is_dir() else []
        return bool(stamps) and time.time() - max(stamps) < STALE_S + 1.0

    # -- what is there --------------------------------------------------------------------------

    @property
    def state(self) -> dict[str, Any]:
        return dict(json.loads((self.base / "state.json").read_text()))

    @property
    def order(self) -> str:
        """The last word that was written for the activator."""
        path = self.base / "order"
        return path.read_text().split()[1] if path.exists() else ""

    def step(self, *steps: str, seconds: float = 90.0) -> dict[str, Any]:
        """Its state, once it is one of these."""

        def there() -> bool:
            with suppress(OSError, ValueError):
                return self.state["step"] in steps
            return False

        until(there, seconds)
        return self.state

    def logs(self) -> str:
        """The log and what was rotated, the oldest first."""
        where = self.root.parent / "workspace"
        every = sorted(where.glob("train.log*"), key=lambda each: -len(each.name))
        return "".join(each.read_text(errors="replace") for each in every)

    def heard(self) -> int:
        """How many signals the trainers of this container say that they heard."""
        return self.logs().count("KeyboardInterrupt")

    def new_log(self) -> str:
        return (self.root.parent / "workspace/train.log").read_text(errors="replace")

    def trainers(self) -> list[int]:
        """Host PIDs of Pythons that run train.py."""
        found = []
        for pid in self.box.lab.host_pids(self.box.vmid):
            with suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                python = words[0].rpartition(b"/")[2].startswith(b"python")
                if (
                    python
                    and fields[0] not in "ZX"
                    and any(word.rpartition(b"/")[2] == b"train.py" for word in words[1:4])
                ):
                    found.append(pid)
        return found

    def activators(self) -> list[int]:
        """Host PIDs of activators of this container."""
        found = []
        for pid in self.box.lab.host_pids(self.box.vmid):
            with suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                if any(word.endswith(b"/activate.py") for word in words):
                    found.append(pid)
        return found

    def activator(self) -> int:
        own = self.state["activator"]["pid"]
        (pid,) = [each for each in self.activators() if inner_pid(each) == own]
        return pid

    def litter(self) -> list[str]:
        """What no finished run leaves: temporary names, stages, specs."""
        left = [str(e.relative_to(self.root)) for e in self.root.rglob("*.fleetstop-*")]
        if self.base.is_dir():
            names = {each.name for each in self.base.iterdir() if each.suffix != ".py"}
            left += sorted(names - OURS)
        return left

    def old_untouched(self) -> None:
        assert lives(self.job)
        assert self.heard() == 0
        assert (self.root / "train.py").read_text() == self.old_code

    def releases(self) -> dict[str, dict[str, Any]]:
        """By id; each is whole by its own manifest."""
        found = {}
        for each in sorted((self.base / "releases").iterdir()):
            manifest = json.loads((each / "manifest.json").read_text())
            for file in manifest["files"]:
                assert digest(each / "files" / file["rel"]) == file["sha256"], (each, file)
            found[each.name] = manifest
        return found

    def is_right(self, code: str | None = None, *, heard: int = 1, releases: int = 2) -> None:
        """One trainer runs, of this code, whole; nothing lies about; the way back is kept."""
        expected = self.text if code is None else code
        assert (self.root / "train.py").read_text() == expected
        assert len(self.trainers()) == 1, self.trainers()
        assert self.heard() == heard, self.logs()[-3000:]
        until(lambda: not self.activators(), 10.0)
        assert self.litter() == []
        kept = self.releases()
        assert len(kept) == releases, sorted(kept)
        texts = {digest_of(each) for each in (self.old_code, self.text)}
        mains = {f["sha256"] for e in kept.values() for f in e["files"] if f["rel"] == "train.py"}
        assert mains == texts
        assert self.box.saved()

    def by_itself_in(self) -> float:
        """Seconds from the old run's end until the new one was started."""
        until(lambda: not lives(self.job), 90.0)
        ended = time.monotonic()
        until(self.trainers, 60.0)
        return time.monotonic() - ended

    def kill(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        until(lambda: not Path(f"/proc/{pid}").exists() or not alive(pid, 0), 10.0)


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
