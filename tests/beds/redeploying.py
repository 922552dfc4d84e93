"""What the beds of redeploying share: the job's stanza, its code there, who runs, what was left."""

from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

from fleetstop.actions import pushing
from fleetstop.lab import Started

from .bed import Bed, Ran, lives, running, with_job, words_of

JOB = """match: {script: train.py}
        stop_signal: INT
        log: /workspace/train.log
        checkpoints: /workspace/checkpoints
        healthcheck: {log_matches: "tok/s", within: 20s}"""
LAUNCH = """
        launch: {run: [python3, -u, /root/train.py], cwd: /root}"""


def tree(root: Path) -> dict[str, str]:
    """Every file below it by its hash."""
    return {
        str(each.relative_to(root)): hashlib.sha256(each.read_bytes()).hexdigest()
        for each in sorted(root.rglob("*"))
        if each.is_file() and not each.is_symlink()
    }


class Inside:
    """The container's own files, what is mounted there too, seen from the host."""

    def __init__(self, box: Bed) -> None:
        self.box = box
        init = box.lab.containers[box.vmid].init_pid()
        assert init is not None
        self._init = init
        self.root = Path(f"/proc/{init}/root")

    def at(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def run(self, *words: str) -> None:
        """In its mount namespace, with the host's rights."""
        subprocess.run(["nsenter", f"--mount=/proc/{self._init}/ns/mnt", *words], check=True)

    def tmpfs(self, path: str, options: str) -> None:
        self.run("mkdir", "-p", path)
        self.run("mount", "-t", "tmpfs", "-o", options, "none", path)


class Code:
    """The place where the job's code lies, and everything that could be littered."""

    def __init__(self, box: Bed, path: str = "/root") -> None:
        self.box = box
        self.inside = Inside(box)
        self.root = self.inside.at(path)
        self.before = tree(self.root)
        self._was = self._listed()

    def _listed(self) -> tuple[dict[str, tuple[int, int, int]], list[str]]:
        found = {}
        for top in (self.root, *map(self.inside.at, ("/root", "/tmp", "/var", "/run"))):
            for each in sorted(top.rglob("*")):
                if "/var/gpu/" in str(each):
                    continue
                seen = each.lstat()
                found[str(each)] = (seen.st_mode, seen.st_ino, seen.st_size)
        return found, host_litter(self.box)

    @property
    def train(self) -> str:
        return (self.root / "train.py").read_text()

    def untouched(self) -> bool:
        """In the container and on the host: the same files, the same inodes, nothing beside."""
        now = self._listed()
        assert now == self._was, set(now[0].items()) ^ set(self._was[0].items())
        return not list(self.root.rglob(".fleetstop"))


def host_litter(box: Bed) -> list[str]:
    """Files of ours on the host: what is pushed, what is temporary."""
    place = Path(pushing.PLACE)
    pushed = [str(each) for each in place.parent.glob(f"{place.name}-{box.vmid}.*")]
    temporary = [str(each) for each in Path("/tmp").glob("*") if "fleetstop" in each.name]
    return sorted(pushed + [each for each in temporary if str(box.vmid) in each])


def redeploy(box: Bed, *words: str, inventory: Path, deadline: float = 120.0, pct: int = 1) -> Ran:
    return ask(box, "redeploy", *words, inventory=inventory, deadline=deadline, pct=pct)


def ask(
    box: Bed,
    command: str,
    *words: str,
    inventory: Path,
    deadline: float = 120.0,
    pct: int = 1,
    target: str | None = None,
) -> Ran:
    """One connection, one pct exec; another one (`pct`) for a long stream or for `prove:`."""
    line = (command, target or box.name, *words)
    ran = box.run(*line, inventory=inventory, deadline=deadline, pct=pct)
    box.note(" ".join((command, *words))[:60], str(ran.code), f"{ran.pct_calls} pct",
             f"{ran.seconds:.1f} s", last(ran))  # fmt: skip
    return ran


def last(ran: Ran) -> str:
    lines = [each for each in ran.people.splitlines() if each.strip()]
    return lines[-1] if lines else ""


def refused_untouched(ran: Ran, job: Started, code: Code, *said: str) -> None:
    """Exit 7: the old run alive with its PID and start, no signal, not a file more."""
    assert ran.code == 7, ran.people
    assert ran.target["result"] == "deploy_failed"
    assert ran.signals == []
    told = " ".join(ran.people.split())
    for each in said:
        assert each in told, ran.people
    assert lives(job)
    assert code.untouched()
    assert code.box.signals_seen(job) == 0


def log(box: Bed, path: str = "/workspace/train.log") -> str:
    found = Inside(box).at(path)
    return found.read_text(errors="replace") if found.exists() else ""


def rotated(box: Bed) -> str:
    """What the run before said: its log was moved aside."""
    found = sorted(Inside(box).at("/workspace").glob("train.log.2*"))
    assert found
    return found[-1].read_text(errors="replace")


def trainers(box: Bed, word: str = "/root/train.py") -> list[int]:
    """Host PIDs, wrappers that name it left out."""
    shells = (b"bash", b"sh", b"/bin/bash", b"tee")
    whole = {pid: words_of(pid) for pid in running(box, word)}
    return [
        pid
        for pid, words in whole.items()
        if words and words[0] not in shells and b"supervise.py" not in b"\0".join(words)
    ]


def environ(pid: int) -> dict[str, str]:
    raw = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    return dict(each.partition("=")[::2] for each in raw.split("\0") if "=" in each)


def argv(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_bytes().decode().rstrip("\0").split("\0")


def stops_by_one_int(box: Bed, inventory: Path, target: str | None = None) -> Ran:
    """What the whole thing is for: the next stop is one INT, and it saves."""
    ran = box.run("stop", target or box.name, "--graceful", inventory=inventory, deadline=90)
    assert ran.code == 0, ran.people
    assert [signal for signal, _ in ran.signals] == ["INT"]
    assert ran.target["checkpoint"]["written_after_signal"] is True
    assert box.whole(box.lab.rootfs(box.vmid) / ran.target["checkpoint"]["path"].lstrip("/"))
    return ran


def stanza(box: Bed, where: Path, *more: str, job: str = JOB) -> Path:
    return with_job(box, where, job + "".join(more))


def kill(pid: int, number: int) -> None:
    os.kill(pid, number)
