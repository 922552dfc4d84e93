"""A redeploy beside the same by hand: scp, pct push, pct exec, by somebody who makes no mistake.

By hand nothing is proved beforehand, nothing kept to go back to, and nobody looks whether the new
version lives longer than a moment.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import TypeAlias

import fleetstop
from fleetstop.core.launching.health import SETTLES_S
from fleetstop.lab import Lab
from tests.beds import versions

Row: TypeAlias = tuple[str, float, str]
ROUNDS = 3
SAVE_S = 0.5
MANY = 300
JOB = """match: {script: train.py}
        stop_signal: INT
        log: /workspace/train.log
        checkpoints: /workspace/checkpoints
        healthcheck: {log_matches: "tok/s", within: 20s}"""
START = "setsid -f /root/run.sh --save-seconds 0.5 </dev/null >>/workspace/train.log 2>&1"


def sources(where: Path) -> Path:
    """A train.py, and 300 real files of Python in configs/."""
    src = versions.sources(where)
    package = sorted(Path(fleetstop.__file__).parent.rglob("*.py"))
    for number, each in enumerate(islice(cycle(package), MANY)):
        place = src / "configs" / f"d{number % 10}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"m{number}.py").write_bytes(each.read_bytes() + b"# %d\n" % number)
    return src


def inventory(lab: Lab, vmid: int) -> Path:
    text = lab.inventory.read_text()
    path = lab.root / f"deploy-{vmid}.yaml"
    body = f"containers:\n  ct{vmid}:\n    host: lab1\n    vmid: {vmid}\n    jobs:\n"
    path.write_text(f"{text[: text.index('containers:')]}{body}      train:\n        {JOB}\n")
    return path


def by_fleetstop(lab: Lab, vmid: int, src: Path, files: list[str]) -> float:
    lab.start(vmid, ["--save-seconds", str(SAVE_S)])
    line = [sys.executable, "-m", "fleetstop", "redeploy", f"ct{vmid}"]
    line += [*(str(src / each) for each in files), "--json", "-i", str(inventory(lab, vmid))]
    began = time.perf_counter()
    done = subprocess.run(line, check=True, capture_output=True, text=True)
    seconds = time.perf_counter() - began
    assert json.loads(done.stdout)["targets"][0]["result"] == "redeployed"
    return seconds


def by_hand(lab: Lab, vmid: int, src: Path, files: list[str]) -> float:
    job = lab.start(vmid, ["--save-seconds", str(SAVE_S)])
    ssh = lab.ssh_command()
    scp = ["scp", "-q", *("-P" if word == "-p" else word for word in ssh[1:-1])]
    pct, at = f"{lab.pct} exec {vmid} --", f"{lab.root}/hand-{vmid}"

    def on_host(*words: str) -> None:
        subprocess.run([*ssh, *words], check=True, capture_output=True)

    def push(what: Path, to: str) -> None:
        subprocess.run([*scp, str(what), f"{ssh[-1]}:{at}"], check=True, capture_output=True)
        on_host(f"{lab.pct} push {vmid} {at} {to}")

    gone = f"kill -INT {job.pid}; while kill -0 {job.pid} 2>/dev/null; do sleep 1; done"
    began = time.perf_counter()
    if len(files) == 1:
        push(src / files[0], "/root/train.py")
    else:
        packed = src.parent / f"hand-{vmid}.tgz"
        subprocess.run(["tar", "-czf", packed, "-C", src, *files], check=True)
        push(packed, "/root/new.tgz")
        on_host(f"{pct} tar -xzf /root/new.tgz -C /root")
    on_host(f"{pct} sh -c '{gone}'")
    on_host(f"{pct} sh -c '{START}'")
    on_host(f"{pct} pgrep -f /root/train.py")
    return time.perf_counter() - began


def rows(lab: Lab, vmids: list[int], where: Path) -> list[Row]:
    src, told = sources(where / "src"), []
    for name, files in (("1 file", ["train.py"]), (f"{MANY} files", ["train.py", "configs"])):
        ours = median(by_fleetstop(lab, vmids.pop(), src, files) for _ in range(ROUNDS))
        hand = median(by_hand(lab, vmids.pop(), src, files) for _ in range(ROUNDS))
        beyond, beside = ours - SAVE_S - SETTLES_S, hand - SAVE_S
        told += [
            (f"redeploy {name} / by hand", ours / hand,
             f"{ours:.2f} s / {hand:.2f} s, {SETTLES_S:g} s of ours to see that it lives"),
            (" beyond save and health", beyond / beside,
             f"{beyond:.2f} s / {beside:.2f} s; about 2.5 s wanted"),
        ]  # fmt: skip
    return told


VMIDS = 4 * ROUNDS
