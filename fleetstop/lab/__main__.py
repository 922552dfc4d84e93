"""`python -m fleetstop.lab`: a practice fleet by hand."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import get_args

from fleetstop.errors import FleetstopError
from fleetstop.lab import How, Lab, missing_parts


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m fleetstop.lab", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("check", help="say what is missing on this machine")
    up = verbs.add_parser("up", help="build and start a lab")
    up.add_argument("root", type=Path)
    up.add_argument("containers", nargs="*", help="IDs or names; default: one, with a free ID")
    up.add_argument("--gpus", type=int, default=2)
    up.add_argument("--pct-cost", type=float, default=0.0, metavar="SECONDS")
    for verb in ("down", "status"):
        verbs.add_parser(verb).add_argument("root", type=Path)
    start = verbs.add_parser("start", help="start a trainer; its options after --")
    start.add_argument("root", type=Path)
    start.add_argument("vmid", type=int)
    start.add_argument("--how", choices=get_args(How), default="polite")
    mine, theirs = sys.argv[1:], []
    if "--" in mine:
        split = mine.index("--")
        mine, theirs = mine[:split], mine[split + 1 :]
    return parser.parse_args(mine, argparse.Namespace(argv=theirs))


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


def _run(arguments: argparse.Namespace) -> int:
    match arguments.verb:
        case "check":
            _say("\n".join(missing_parts()) or "nothing is missing")
        case "up":
            lab = Lab.up(arguments.root, arguments.containers or 1, gpus=arguments.gpus)
            lab.set_pct_cost(arguments.pct_cost)
            _say(f"inventory: {lab.inventory}\nlogin: {' '.join(lab.ssh_command())}")
        case "down":
            if arguments.root.exists():
                Lab.load(arguments.root).down()
        case "status":
            for name, state in Lab.load(arguments.root).status().items():
                _say(f"{name}: {state}")
        case "start":
            job = Lab.load(arguments.root).start(arguments.vmid, arguments.argv, how=arguments.how)
            _say(f"trainer: PID {job.pid}, on the host {job.host_pid}; log {job.log}")
    return 0


def main() -> int:
    try:
        return _run(_arguments())
    except FleetstopError as error:
        sys.stderr.write(f"{error}\n{error.hint}".strip() + "\n")
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())
