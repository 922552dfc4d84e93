"""What a watch loop costs the host: the remote shell's own CPU and that of what it forks."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from pathlib import Path

from fleetstop.core.commands import Command
from fleetstop.lab.processes import identify
from tests.fakes.local_channel import local_shell


def _cpu(pid: int) -> float:
    """Seconds, with the children it has waited for (proc(5): utime stime cutime cstime)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(each) for each in fields[11:15]) / os.sysconf("SC_CLK_TCK")


async def share_of_a_core(kind: str, count: int, *, seconds: float = 10.0) -> float:
    """Of one core, while `count` processes are looked at ten times a second."""
    jobs = [subprocess.Popen(["sleep", "300"], stdout=subprocess.DEVNULL) for _ in range(count)]
    try:
        found = [identify(each.pid) for each in jobs]
        words = [f"{each.pid}:{each.start}" for each in found if each is not None]
        async with local_shell(kind) as shell:
            before, since = _cpu(shell.pid), time.monotonic()
            # as a climb asks: a frame a second
            while time.monotonic() - since < seconds:
                await shell.framed.run(Command("watch", ("1000/100", *words)))
            return (_cpu(shell.pid) - before) / (time.monotonic() - since)
    finally:
        for each in jobs:
            each.kill()
            each.wait()


def measured(kind: str, count: int) -> float:
    return asyncio.run(share_of_a_core(kind, count))
