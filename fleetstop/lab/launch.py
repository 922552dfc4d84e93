"""How a practice job comes to life: politely, deaf as in the incident, behind tee, or raw."""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, assert_never

from fleetstop.errors import LabUnavailable
from fleetstop.lab.container import Container, spawn
from fleetstop.lab.processes import ProcessId, command_line, inner_pid

How = Literal["polite", "deaf", "tee", "raw"]
LOG = "/workspace/train.log"

# own session, default dispositions: `setsid -f` without `&` leaves INT alone
_DETACHED = 'exec setsid -f "$@" >"$0" 2>&1 </dev/null'

# name -> what its command line must read, and the shell text that brings it about;
# the false vim is `cat` waiting on a FIFO called train.py
DECOYS: dict[str, tuple[list[str], str]] = {
    "vim": (["vim", "train.py"], "cd /var/decoys && exec -a vim ./vim train.py"),
    "tail_log": (["tail", "-f", LOG], f"exec tail -f {LOG}"),
    "tail_script": (["tail", "-f", "train.py"], "cd /root && exec tail -f train.py"),
    "monitor": (
        ["python3", "monitor.py", "--watch", "train.py"],
        "cd /root && exec python3 monitor.py --watch train.py",
    ),
    "shell": (
        ["bash", "-c", "sleep 1000; : train.py"],
        "exec bash -c 'sleep 1000; : train.py'",
    ),
    "other": (["python3", "other.py"], "cd /root && exec python3 other.py"),
}


@dataclass(frozen=True)
class Started:
    """A job that runs: host PIDs with start times, the container's own PID, its log on the host."""

    vmid: int
    process: ProcessId
    pid: int
    trainers: tuple[ProcessId, ...]
    launched: tuple[ProcessId, ...]
    log: Path

    @property
    def host_pid(self) -> int:
        return self.process.pid


def start(
    container: Container,
    argv: Sequence[str] | str,
    *,
    how: How = "polite",
    log: str = LOG,
    trainers: int | None = None,
    seconds: float = 15.0,
) -> Started:
    """Start a job and wait until `trainers` of it listen (by default as many as `--ranks` says).

    With `trainers=0` nothing is waited for but the first new process: for jobs that are no trainer.
    """
    before, claimed = container.processes(), set(claims(container))
    expected = _ranks(argv) if trainers is None else trainers
    _attach(container, _command(argv, how, log))
    host_log = container.rootfs / log.lstrip("/")
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        launched = sorted(container.processes() - before, key=lambda p: (p.start, p.pid))
        new = set(claims(container)) - claimed
        ready = [process for process in launched if _claim_of(process) in new]
        if launched and len(ready) >= expected and (expected or _stays(container, launched)):
            first = ready[0] if ready else launched[0]
            inner = inner_pid(first.pid) or 0
            known = tuple(ready), tuple(launched)
            return Started(container.vmid, first, inner, *known, log=host_log)
        time.sleep(0.02)
    said = host_log.read_text(errors="replace")[-500:] if host_log.exists() else "no log"
    raise LabUnavailable(f"{expected} trainers did not come up in {container.vmid}: {said}")


def start_decoys(container: Container, names: Sequence[str]) -> dict[str, ProcessId]:
    """Processes that only name the trainer's script, and one that does not even that."""
    prepare = (
        "mkdir -p /var/decoys && cp -n /usr/bin/cat /var/decoys/vim && cd /var/decoys"
        f" && {{ [ -p train.py ] || mkfifo train.py; }} && touch {LOG}"
    )
    _attach(container, ["bash", "-c", prepare])
    found = {}
    for name in names:
        wanted, text = DECOYS[name]
        before = container.processes()
        _attach(container, ["bash", "-c", _DETACHED, "/dev/null", "bash", "-c", text])
        found[name] = _wait_for_command(container, before, wanted)
    return found


def claims(container: Container) -> list[str]:
    """`PID-START` of every trainer that got as far as its loop."""
    names = [entry.name for entry in (container.rootfs / "var/gpu").iterdir()]
    return [name for name in names if not name.endswith(".tmp")]


def _stays(container: Container, launched: list[ProcessId]) -> bool:
    """A launching shell is gone a moment later; what it launched has been exec'd by then."""
    time.sleep(0.1)
    return set(launched) <= container.processes()


def _claim_of(process: ProcessId) -> str:
    return f"{inner_pid(process.pid)}-{process.start}"


def _command(argv: Sequence[str] | str, how: How, log: str) -> list[str]:
    text = argv if isinstance(argv, str) else shlex.join(argv)
    words = shlex.split(argv) if isinstance(argv, str) and how != "raw" else list(argv)
    match how:
        case "polite":
            return ["bash", "-c", _DETACHED, log, "/root/run.sh", *words]
        case "deaf":
            return ["bash", "-lc", f"nohup /root/run.sh {text} >{log} 2>&1 &"]
        case "tee":
            pipe = f"python3 -u /root/train.py {text} 2>&1 | tee {log}"
            return ["bash", "-c", _DETACHED, "/dev/null", "bash", "-c", pipe]
        case "raw":
            return ["bash", "-c", text if isinstance(argv, str) else " ".join(argv)]
    assert_never(how)


def _attach(container: Container, argv: list[str]) -> None:
    process = spawn(container.attach(argv), output=subprocess.DEVNULL)
    try:
        code = process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise LabUnavailable(f"does not return: {argv}", hint="send it to the background") from None
    if code != 0:
        raise LabUnavailable(f"ended with {code} in container {container.vmid}: {argv}")


def _wait_for_command(
    container: Container, before: set[ProcessId], wanted: list[str], seconds: float = 5.0
) -> ProcessId:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for process in container.processes() - before:
            if command_line(process.pid) == wanted:
                return process
        time.sleep(0.01)
    raise LabUnavailable(f"decoy did not come up: {wanted}")


def _ranks(argv: Sequence[str] | str) -> int:
    words = shlex.split(argv) if isinstance(argv, str) else list(argv)
    with suppress(ValueError, IndexError):
        return int(words[words.index("--ranks") + 1])
    return 1
