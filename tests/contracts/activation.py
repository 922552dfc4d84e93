"""A job's directory with an old version that runs, and the activator that brings up the new one."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fleetstop
from fleetstop.actions.interpreter import scripts

SCRIPTS = Path(fleetstop.__file__).parent / "remote" / "scripts"
SHIPPED = [each.removesuffix(".py") for each in scripts()]
RUN = "20261130-0800-7f3a"
PATIENCE_S = 60.0
OLD = "echo old tok/s\nexec sleep 300\n"
NEW = "echo new tok/s\nexec sleep 300\n"
SECRET = "hunter2-is-a-secret"


def start_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def alive(pid: int, start: int) -> bool:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return int(fields[19]) == start and fields[0] not in "ZX"


def until(true: Callable[[], Any], what: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.01)


def tree(top: Path) -> dict[str, tuple[Any, ...]]:
    """What lies there: content, owner and mode by path."""
    seen: dict[str, tuple[Any, ...]] = {}
    for path in sorted(top.rglob("*")):
        of = path.lstat()
        what: Any = path.readlink() if path.is_symlink() else None
        if stat.S_ISREG(of.st_mode):
            what = path.read_bytes()
        seen[str(path.relative_to(top))] = (what, of.st_uid, of.st_gid, of.st_mode)
    return seen


class Activator:
    """One job at `dest`, one run of the script as it is shipped."""

    def __init__(self, place: Path, dest: Path | None = None, run: str = RUN) -> None:
        self.place, self.run = place, run
        self.tag = uuid.uuid4().hex[:8]  # marks are looked for on the whole machine
        self.dest = dest or place / "job"
        self.base = self.dest / ".fleetstop" / "train"
        self.base.mkdir(parents=True, exist_ok=True)
        for name in SHIPPED:
            shutil.copy(SCRIPTS / f"{name}.py", self.base)
        self.stage = self.base / f"stage-{run}"
        self.log = self.dest / "train.log"
        self.children: list[tuple[int, int]] = []
        self.before: list[str] = []
        self.python = sys.executable
        self.owner: int | None = None  # of all that lies there, if it is not us
        self.spec: dict[str, Any] = {
            "schema": 1, "run": run, "release": "r2", "before": "r1", "base": str(self.base),
            "dest": str(self.dest), "files": [], "gone": [], "launch": self.launch("new"),
            "launch_old": self.launch("old"), "log": str(self.log),
            "health": {"within_s": 0.5, "log_matches": None}, "roll_back": True,
            "patience_s": 0.5, "stale_s": 600, "keep": 5, "before_manifest": {"id": "r1"},
        }  # fmt: skip

    def launch(self, mark: str, **more: Any) -> dict[str, Any]:
        return {
            "argv": ["sh", "train.sh"], "cwd": str(self.dest),
            "env": {"PATH": os.environ["PATH"], "TOKEN": SECRET}, "log": str(self.log),
            "uid": os.getuid(), "gid": os.getgid(), "groups": os.getgroups(), "umask": 0o22,
            "nice": 0, "limits": {}, "mark": f"{mark}-{self.tag}",
            "status": str(self.base / "status" / f"{mark}.json"), **more,
        }  # fmt: skip

    def old(self, rel: str, text: str, mode: int = 0o644) -> Path:
        path = self.dest / rel
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        return path

    def new(self, rel: str, text: str, **more: Any) -> None:
        staged = self.stage / "files" / rel
        staged.parent.mkdir(parents=True, exist_ok=True)
        staged.write_text(text)
        self.spec["files"].append({
            "path": str(self.dest / rel), "staged": str(staged), "size": len(text),
            "sha256": hashlib.sha256(text.encode()).hexdigest(), "mode": 0o644,
            "uid": os.getuid(), "gid": os.getgid(), **more,
        })  # fmt: skip

    def runs(self, *words: str) -> subprocess.Popen[bytes]:
        """A process that has to be gone before anything is replaced."""
        child = subprocess.Popen(words or ["sleep", "300"], start_new_session=True)
        one = child.pid, start_of(child.pid)
        self.children.append(one)
        self.spec["gone"].append({"pid": one[0], "start": one[1]})
        return child

    def ask(self, **spec: Any) -> tuple[int, str]:
        self.spec |= spec
        self.stage.mkdir(exist_ok=True)
        (self.stage / "manifest.json").write_text('{"id": "r2"}')
        file = self.stage / "spec.json"
        file.write_text(json.dumps(self.spec))
        file.chmod(0o600)
        if self.owner is not None:
            for path in (self.place, *self.place.rglob("*")):
                os.chown(path, self.owner, self.owner)
        code, line = self.script(str(file))
        assert not file.exists()
        return code, line

    def script(self, *words: str) -> tuple[int, str]:
        done = subprocess.run(
            [*self.before, self.python, "-I", str(self.base / "activate.py"), *words],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.stderr == ""
        assert done.stdout.count("\n") == 1
        return done.returncode, done.stdout.removesuffix("\n")

    def begin(self, order: str | None = None, **spec: Any) -> None:
        """`order` lies there from the first moment: a client that is soon taken for gone need not
        be quick on a busy machine."""
        if order is not None:
            self.order(order)
        code, line = self.ask(**spec)
        assert (code, line.split()[0]) == (0, "waiting"), line
        pid, start = map(int, line.split()[1:])
        self.children.append((pid, start))
        assert self.state["activator"] == {"pid": pid, "start": start}
        assert order is not None or self.state["step"] == "waiting"

    def clean(self) -> tuple[int, str]:
        return self.script("--clean", str(self.base), self.run)

    def order(self, word: str, run: str | None = None) -> None:
        new = self.base / "order.new"
        new.write_text(f"{run or self.run} {word}\n")
        new.rename(self.base / "order")

    def beat(self) -> None:
        (self.base / "beat").touch()

    @property
    def state(self) -> dict[str, Any]:
        state = dict(json.loads((self.base / "state.json").read_text()))
        trainer = state["trainer"]
        if trainer and (trainer["pid"], trainer["start"]) not in self.children:
            self.children.append((trainer["pid"], trainer["start"]))
        return state

    @property
    def activator(self) -> tuple[int, int]:
        own = self.state["activator"]
        return own["pid"], own["start"]

    def reach(self, step: str) -> dict[str, Any]:
        until(lambda: self.state["step"] == step, f"{step}, it is {self.state}")
        return self.state

    def end(self, step: str) -> dict[str, Any]:
        until(lambda: self.state["ended_at"], f"ended, it is {self.state}")
        state = self.state
        assert state["step"] == step, state
        until(lambda: not alive(*self.activator), "the activator leaves")
        return state

    def runs_now(self, mark: str) -> int:
        """The PID of the trainer that was launched as `mark`, which lives."""
        trainer = self.state["trainer"]
        assert trainer["mark"] == f"{mark}-{self.tag}"
        assert alive(trainer["pid"], trainer["start"])
        return int(trainer["pid"])

    def litter(self) -> list[str]:
        """Whatever names this run, or is a temporary name of the state."""
        names = (str(path.relative_to(self.dest)) for path in self.dest.rglob("*"))
        return [name for name in names if self.run in name or name.endswith((".json.new", ".end"))]

    def secrets(self) -> list[str]:
        paths = (path for path in self.dest.rglob("*") if path.is_file())
        return [str(path) for path in paths if SECRET.encode() in path.read_bytes()]

    def close(self) -> None:
        """Ends what was started, by identity; the activator first, so that it starts nothing."""
        if (self.base / "state.json").exists():
            end(*self.activator)
        for one in self.children:
            end(*one)
        for path in self.base.glob("status/*.json"):
            started = json.loads(path.read_text())
            for one in filter(None, (started.get("trainer"), started.get("supervisor"))):
                end(one["pid"], one["start"])
        for one in self._left():
            end(*one)

    def _left(self) -> list[tuple[int, int]]:
        """Whoever was started here by what has ended: a `tee`, and who it waits for."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if (entry / "cwd").readlink().is_relative_to(self.place):
                    found.append((int(entry.name), start_of(int(entry.name))))
        return found


def end(pid: int, start: int) -> None:
    if alive(pid, start):
        os.kill(pid, signal.SIGKILL)
        until(lambda: not alive(pid, start), f"{pid} ends")
