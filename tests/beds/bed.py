"""The command line on a practice fleet, with the counts that the speed budget is held to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fleetstop.lab import Lab, Started


@dataclass
class Ran:
    """One finished command: its exit code, events, what people saw, and what it took."""

    code: int
    events: list[dict[str, Any]]
    people: str
    seconds: float
    connections: int
    pct_calls: int
    stdout: str = ""

    @property
    def report(self) -> dict[str, Any]:
        assert self.events[-1]["event"] == "report", self.people
        return self.events[-1]

    @property
    def target(self) -> dict[str, Any]:
        (only,) = self.report["targets"]
        assert isinstance(only, dict)
        return only

    @property
    def signals(self) -> list[tuple[str, list[int]]]:
        return [(each["signal"], each["pids"]) for each in self.target["signals"]]

    def names(self) -> list[str]:
        return [each["event"] for each in self.events]


@dataclass
class Bed:
    """One container of the lab, for one test."""

    lab: Lab
    vmid: int
    started: list[Started] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"ct{self.vmid}"

    @property
    def checkpoints(self) -> Path:
        return self.lab.rootfs(self.vmid) / "workspace/checkpoints"

    def start(self, *argv: str, how: Any = "polite", **more: Any) -> Started:
        words: Any = argv[0] if how == "raw" else list(argv)
        job = self.lab.start(self.vmid, words, how=how, **more)
        self.started.append(job)
        return job

    def run(
        self, *words: str, inventory: Path | None = None, deadline: float = 60.0, pct: int = 1
    ) -> Ran:
        child = self.popen(*words, inventory=inventory)
        return self.finish(child, deadline, pct=pct)

    def popen(self, *words: str, inventory: Path | None = None) -> Running:
        before = self.lab.connections(), len(self.lab.pct_calls())
        # what stands behind -- is the job's own
        at = words.index("--") if "--" in words else len(words)
        line = [sys.executable, "-m", "fleetstop", *words[:at]]
        line += ["--events", "-i", str(inventory or self.lab.inventory), *words[at:]]
        env = {**os.environ, "COLUMNS": "100"}
        process = subprocess.Popen(
            line,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=env,
        )
        return Running(process, before, time.monotonic(), 2 if "--all-jobs" in words else 1)

    def finish(
        self, running: Running, deadline: float = 60.0, *, alone: bool = True, pct: int = 1
    ) -> Ran:
        """`alone`: nothing else used the lab's host meanwhile, so the counts are its own. `pct`:
        so many calls a target may take."""
        try:
            out, err = running.process.communicate(timeout=deadline)
        except subprocess.TimeoutExpired:
            running.process.kill()
            out, err = running.process.communicate()
            raise AssertionError(f"not done after {deadline} s\n{out}\n{err}") from None
        connections, calls = running.before
        ran = Ran(
            code=running.process.returncode,
            events=[json.loads(line) for line in out.splitlines()],
            people=err,
            seconds=time.monotonic() - running.at,
            connections=self.lab.connections() - connections,
            pct_calls=len(self.lab.pct_calls()) - calls,
            stdout=out,
        )
        self._keep(ran)
        # the speed budget: one connection, and at most one pct, for every job there is
        assert not alone or ran.connections <= 1, ran.people
        assert not alone or ran.pct_calls <= pct * running.targets, ran.people
        return ran

    def note(self, *cells: str) -> None:
        """A row for SHOWN.md, where those are kept."""
        if path := os.environ.get("FLEETSTOP_SHOWN"):
            with Path(path).open("a") as file:
                file.write(f"| {' | '.join(cells)} |\n")

    def _keep(self, ran: Ran) -> None:
        """For SHOWN.md: with FLEETSTOP_SHOWN=FILE each command's last words are kept there."""
        if path := os.environ.get("FLEETSTOP_SHOWN"):
            test = os.environ.get("PYTEST_CURRENT_TEST", "").split("::")[-1].split(" ")[0]
            ends = [each for each in ran.people.splitlines() if each.startswith(("ct", "lab1"))]
            with Path(path).open("a") as file:
                file.write(f"{test}\t{ran.code}\t{ends[-1] if ends else ''}\n")

    def log(self, job: Started) -> str:
        return job.log.read_text(errors="replace")

    def signals_seen(self, job: Started) -> int:
        """How often the trainer itself says that a signal reached it."""
        said = self.log(job)
        return sum(
            said.count(word) for word in ("KeyboardInterrupt", "StopRequested", "received SIG")
        )

    def whole(self, path: Path) -> bool:
        """Whether a checkpoint can be read to its last byte, as torch.load would."""
        import zipfile

        if not path.exists() or not zipfile.is_zipfile(path):
            return False
        with zipfile.ZipFile(path) as archive:
            return archive.testzip() is None

    def saved(self) -> list[str]:
        return sorted(
            str(each.relative_to(self.checkpoints))
            for each in self.checkpoints.rglob("*.pt")
            if self.whole(each)
        )

    def litter(self) -> list[str]:
        """Our shells that still run on this lab's host or in its containers."""
        mine = f" {self.lab.state.port}\0".encode()
        left = []
        for entry in Path("/proc").iterdir():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                ours = b"SSH_CONNECTION=" in (env := (entry / "environ").read_bytes())
            except OSError:
                continue
            if ours and mine in env and (b"fleetstop" in words or b"lxc-attach" in words[0]):
                left.append(f"{entry.name} {words[:2]!r}")
        return left

    def lock_files(self) -> list[str]:
        place = Path(f"/run/lock/fleetstop.{self.vmid}")
        return sorted(each.name for each in place.iterdir()) if place.is_dir() else []


@dataclass
class Running:
    process: subprocess.Popen[str]
    before: tuple[int, int]
    at: float
    targets: int


def until(true: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "did not come about"
        time.sleep(0.02)


def with_jobs(box: Bed, where: Path, jobs: str, name: str = "fleet.yaml") -> Path:
    """The lab's inventory with these lines as the jobs of this container alone."""
    text = box.lab.inventory.read_text()
    path = where / name
    body = f"containers:\n  {box.name}:\n    host: lab1\n    vmid: {box.vmid}\n    jobs:\n"
    path.write_text(text[: text.index("containers:")] + body + jobs)
    return path


def with_job(box: Bed, where: Path, job: str) -> Path:
    """The same with another stanza for its one job, `train`."""
    return with_jobs(box, where, f"      train:\n        {job}\n")


def running(box: Bed, word: str) -> list[int]:
    """Host PIDs in the container whose command line holds the word."""
    whole = {pid: b"\0".join(words_of(pid)) for pid in box.lab.host_pids(box.vmid)}
    return [pid for pid, words in whole.items() if word.encode() in words]


def words_of(pid: int) -> list[bytes]:
    """Its command line; none once it is gone, which it may be at any time."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def parent_of(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


def alive(pid: int, start: int) -> bool:
    """Whether this very process still runs and is no zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return int(fields[19]) == start and fields[0] not in "ZX"


def lives(job: Started) -> bool:
    return alive(job.process.pid, job.process.start)
