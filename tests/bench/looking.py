"""What a status of many costs beside the floor: bare asyncssh, a connection and a command each."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TypeAlias

from fleetstop.lab import Lab
from tests.beds import crowd

HOSTS, EACH, ROUNDS = 20, 10, 3
Row: TypeAlias = tuple[str, float, str]

_FLOOR = """
import asyncio, asyncssh, json, sys

async def one(host):
    async with asyncssh.connect(
        host["ssh"].split("@")[1], host["port"], username="root", config=None,
        client_keys=[host["identity"]], known_hosts=host["known_hosts"], agent_path=None,
    ) as connection:
        await connection.run("true", check=True, stdin=asyncssh.DEVNULL)

async def every():
    hosts = json.load(open(sys.argv[1]))["hosts"].values()
    await asyncio.gather(*map(one, hosts))

asyncio.run(every())
"""


def rows(lab: Lab, where: Path) -> list[Row]:
    """Of the lab's first ten containers, one with a job, behind one sshd and behind twenty."""
    return [_row(lab, where, count) for count in (1, HOSTS)]


def _row(lab: Lab, where: Path, count: int) -> Row:
    place = where / f"crowd{count}"
    place.mkdir()
    with crowd.servers(lab, count, place) as servers:
        hosts = {f"pve{at}": (server, str(lab.pct)) for at, server in enumerate(servers)}
        path = crowd.inventory(lab, hosts, place, EACH)
        status = [sys.executable, "-m", "fleetstop", "status", "*", "-q", "-i", str(path)]
        ours = _median(status)
        floor = _median([sys.executable, "-c", _FLOOR, str(path)])
    told = f"{ours:.2f} s / {floor:.2f} s of bare asyncssh; 1.5 wanted"
    return f"status of {count}x{EACH} / floor", ours / floor, told


def _median(line: list[str]) -> float:
    taken = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        subprocess.run(line, check=True, stdout=-3, stdin=-3)
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken)
