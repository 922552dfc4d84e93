"""`make bench`: how long things take, as ratios in one run, on the practice fleet.

The same polite trainer (0.5 s of saving) is stopped by fleetstop and by the shell procedure it
replaces: one ssh that signals and polls through `pct exec`, one that looks at the GPUs; and it is
redeployed by fleetstop and by hand (`deploying`).
"""

from __future__ import annotations

import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from fleetstop.lab import Lab, missing_parts
from tests.bench import deploying, looking
from tests.bench.watching import measured
from tests.fakes.local_channel import SHELLS, is_installed

ROUNDS = 5
PCT_COST_S = 0.4
SAVE_S = 0.5


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def median(work: Callable[[], float], rounds: int = ROUNDS) -> float:
    return statistics.median(work() for _ in range(rounds))


def python(*words: str) -> Callable[[], float]:
    def once() -> float:
        return timed(lambda: subprocess.run([sys.executable, *words], check=True, stdout=-3))

    return once


def by_fleetstop(lab: Lab, vmids: list[int]) -> float:
    vmid = vmids.pop()
    lab.start(vmid, ["--save-seconds", str(SAVE_S)])
    line = [sys.executable, "-m", "fleetstop", "stop", f"ct{vmid}", "--graceful", "--quiet"]
    line += ["-i", str(lab.inventory)]
    return timed(lambda: subprocess.run(line, check=True, stdout=-3))


def by_shell(lab: Lab, vmids: list[int]) -> float:
    vmid = vmids.pop()
    job = lab.start(vmid, ["--save-seconds", str(SAVE_S)])
    inside = (
        f"kill -INT {job.pid}; for i in {{1..90}}; do kill -0 {job.pid} || break; sleep 2; done"
    )
    stop = lab.ssh_command(f"{lab.pct} exec {vmid} -- bash -lc '{inside}'")
    look = lab.ssh_command("nvidia-smi --query-compute-apps=pid,used_memory --format=csv")

    def both() -> None:
        subprocess.run(stop, check=False, capture_output=True)
        subprocess.run(look, check=True, capture_output=True)

    return timed(both)


def noticed(lab: Lab, vmids: list[int]) -> float:
    """Seconds from a trainer's end to the event that tells it."""
    vmid = vmids.pop()
    job = lab.start(vmid, ["--shrug"])
    line = [sys.executable, "-m", "fleetstop", "stop", f"ct{vmid}", "--graceful", "--events"]
    line += ["--ladder", "INT/60", "-i", str(lab.inventory)]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=-3, text=True) as child:
        while "received SIGINT" not in job.log.read_text():
            time.sleep(0.02)
        time.sleep(1.5 + random.random())  # anywhere between two looks
        os.kill(job.host_pid, signal.SIGKILL)
        ended = time.time()
        out, _ = child.communicate()
    told = next(json.loads(line) for line in out.splitlines() if '"member_exited"' in line)
    return datetime.fromisoformat(told["at"]).timestamp() - ended


def main() -> int:
    if missing := missing_parts():
        print("no practice fleet here: " + "; ".join(missing))
        return 4
    with (
        tempfile.TemporaryDirectory(prefix="fsl-") as root,
        Lab.up(Path(root) / "lab", 3 * ROUNDS + deploying.VMIDS, first_vmid=30_000) as lab,
    ):
        lab.set_pct_cost(PCT_COST_S)
        vmids = list(lab.vmids)
        ours = median(lambda: by_fleetstop(lab, vmids))
        shell = median(lambda: by_shell(lab, vmids))
        exits = median(lambda: noticed(lab, vmids))
        deploys = deploying.rows(lab, vmids, Path(root))
        looks = looking.rows(lab, Path(root))
        ssh = median(lambda: timed(lambda: subprocess.run(lab.ssh_command("true"), check=True)))
    usage = median(python("-m", "fleetstop", "--help"))
    click = median(python("-c", "import click"))
    watches = [(kind, measured(kind, 10)) for kind in SHELLS if is_installed(kind)]
    rows = [
        ("stop, beyond the save", ours - SAVE_S, f"{ours - SAVE_S:.2f} s; about 2 s wanted"),
        ("stop / shell procedure", ours / shell, f"{ours:.2f} s / {shell:.2f} s; below 1 wanted"),
        ("stop / one ssh", ours / ssh, f"{ours:.2f} s / {ssh:.2f} s"),
        *deploys,
        *looks,
        ("end noticed", exits, f"{exits * 1000:.0f} ms after it; 150 and a round trip wanted"),
        *(
            (f"watch of 10, {kind}", share, f"{share:.1%} of a core at 10 Hz; below 3 wanted")
            for kind, share in watches
        ),
        ("--help / import click", usage / click, f"{usage:.2f} s / {click:.2f} s; 1.6 wanted"),
    ]
    print(f"medians of {ROUNDS}, pct costs {PCT_COST_S} s, the trainer saves for {SAVE_S} s")
    for name, ratio, detail in rows:
        print(f"{name:<29}{ratio:6.2f}   {detail}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
