"""Which process is meant: a PID with its start time, from proc(5). Signals only by that."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PPID, _START = 1, 19  # positions behind the name's closing bracket, proc(5) fields 4 and 22


@dataclass(frozen=True, order=True)
class ProcessId:
    """A process for good: PIDs come back, a PID with its start time (ticks since boot) does not."""

    pid: int
    start: int


def stat_fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat behind the name, state first; empty: no process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def identify(pid: int) -> ProcessId | None:
    fields = stat_fields(pid)
    return ProcessId(pid, int(fields[_START])) if fields else None


def is_alive(process: ProcessId) -> bool:
    """True until it is gone or a zombie; a zombie leader with living threads is alive."""
    fields = stat_fields(process.pid)
    if not fields or int(fields[_START]) != process.start:
        return False
    return fields[0] not in "ZX" or int(fields[17]) > 1


def inner_pid(pid: int) -> int | None:
    """The PID in its innermost namespace, the last number of NSpid."""
    with suppress(OSError):
        match = re.search(r"^NSpid:\s+(.*)$", Path(f"/proc/{pid}/status").read_text(), re.M)
        if match:
            return int(match[1].split()[-1])
    return None


def command_line(pid: int) -> list[str]:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")[:-1]
    return []


def descendants(pid: int) -> set[ProcessId]:
    """Everything below a process now, without itself."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        fields = stat_fields(int(entry)) if entry.isdigit() else []
        if fields:
            children.setdefault(int(fields[_PPID]), []).append(int(entry))
    found: list[int] = list(children.get(pid, []))
    for child in found:
        found.extend(children.get(child, []))
    return {known for child in found if (known := identify(child))}


def wait_gone(processes: Iterable[ProcessId], seconds: float) -> list[ProcessId]:
    """Wait until all are gone; returns those that are not when the time is up."""
    deadline = time.monotonic() + seconds
    while left := [process for process in processes if is_alive(process)]:
        if time.monotonic() > deadline:
            return left
        time.sleep(0.01)
    return []


def send(process: ProcessId, number: signal.Signals) -> None:
    """Signal this process and no other that may have got its PID since."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    try:
        if is_alive(process):
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, number)
    finally:
        os.close(descriptor)


def end(processes: Iterable[ProcessId], patience: float = 1.0) -> list[ProcessId]:
    """TERM, then KILL for those that stay; returns those that are still there."""
    targets = list(processes)
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in targets:
            send(process, number)
        targets = wait_gone(targets, patience)
    return targets
