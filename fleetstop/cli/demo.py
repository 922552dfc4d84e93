"""`fleetstop demo`: the main job on three trainers of a practice fleet, then clean-up."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from fleetstop.cli.practice import interruptible, need_parts
from fleetstop.cli.running import complain
from fleetstop.core.redact import text
from fleetstop.errors import FleetstopError
from fleetstop.lab import Lab
from fleetstop.view.stream import Outlet

# what is shown, arguments of the trainer, how it was started, the commands, their exit codes
_ACTS = (
    (
        "polite: it saves when it gets INT",
        ["--save-seconds", "2"],
        "polite",
        (("status {}", 0), ("stop {} --graceful", 0)),
    ),
    (
        "deaf: started with `pct exec … 'nohup run.sh &'`, so INT is ignored for good",
        ["--save-every", "3"],
        "deaf",
        (("status {}", 0), ("stop {} --graceful", 1), ("stop {} --force", 0)),
    ),
    (
        "slow to save: 12 s, half of it in memory, on a ladder with 2 s of patience",
        ["--save-seconds", "12", "--save-memory-fraction", "0.5"],
        "polite",
        (("stop {} --force --ladder 'INT/2 TERM/2 KILL:tree/5'", 0),),
    ),
)


def play(pct_cost: float) -> int:
    """0 when every act ended as it should; the lab's own error otherwise, else 1."""
    out = Outlet(sys.stdout)
    try:
        need_parts()
        with (
            interruptible(),
            tempfile.TemporaryDirectory(prefix="fsl-") as root,
            Lab.up(Path(root) / "lab", len(_ACTS), gpus=len(_ACTS)) as lab,
        ):
            lab.set_pct_cost(pct_cost)
            out.write(
                f"practice fleet: sshd on loopback, {len(_ACTS)} LXC containers, "
                f"pct costs {pct_cost:g} s\n"
            )
            wrong = [
                act
                for act, vmid in zip(_ACTS, lab.vmids, strict=True)
                if not _act(out, lab, act, vmid)
            ]
    except FleetstopError as exc:
        return complain(exc)
    out.write("\npractice fleet is down; nothing of it is left\n")
    for act in wrong:
        out.write(f"NOT AS IT SHOULD BE: {act[0]}\n")
    return 1 if wrong else 0


def _act(
    out: Outlet, lab: Lab, act: tuple[str, list[str], str, tuple[tuple[str, int], ...]], vmid: int
) -> bool:
    title, arguments, how, commands = act
    lab.start(vmid, arguments, how=how)  # type: ignore[arg-type]
    out.write(f"\n== {title}\n")
    return all(_say(out, lab, line.format(f"ct{vmid}"), wanted) for line, wanted in commands)


def _say(out: Outlet, lab: Lab, line: str, wanted: int) -> bool:
    """Runs the real command line, as it would be typed."""
    out.write(f"\n$ fleetstop {line}\n")
    command = f'exec "$0" -m fleetstop {line} -i "$1"'
    done = subprocess.run(
        ["/bin/sh", "-c", command, sys.executable, str(lab.inventory)], check=False
    )
    out.write(text(f"[exit {done.returncode}]") + "\n")
    return done.returncode == wanted
