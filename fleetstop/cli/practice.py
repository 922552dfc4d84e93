"""`fleetstop lab`: the practice fleet, for trying every command on real processes."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fleetstop.cli.options import USUAL_ROOT
from fleetstop.cli.running import complain
from fleetstop.core.redact import command
from fleetstop.errors import FleetstopError, LabUnavailable
from fleetstop.lab import Lab, missing_parts
from fleetstop.view.stream import Outlet


def up(root: str, containers: int, pct_cost: float) -> int:
    return _told(lambda out: _up(out, Path(root), containers, pct_cost))


def down(root: str) -> int:
    return _told(lambda out: _down(out, Path(root)))


def show(root: str) -> int:
    return _told(lambda out: _show(out, Path(root)))


def _told(work: object) -> int:
    out = Outlet(sys.stdout)
    try:
        work(out)  # type: ignore[operator]
    except FleetstopError as exc:
        return complain(exc)
    return 0


def need_parts() -> None:
    """Raises LabUnavailable naming everything that is missing."""
    missing = missing_parts()
    if missing:
        raise LabUnavailable(
            "the practice fleet cannot stand here: " + "; ".join(missing),
            hint="on Debian, as root: make demo installs what it needs",
        )


def _up(out: Outlet, root: Path, containers: int, pct_cost: float) -> None:
    need_parts()
    with interruptible():
        lab = Lab.up(root, containers, gpus=max(2, containers))
        try:
            lab.set_pct_cost(pct_cost)
            _each_its_own_gpu(lab.inventory)
            for index, vmid in enumerate(lab.vmids):
                lab.start(vmid, ["--gpus", str(index)], how="deaf" if index else "polite")
        except BaseException:
            lab.down()
            raise
    _show(out, root)


def _each_its_own_gpu(inventory: Path) -> None:
    """Two jobs on one GPU stand in each other's way when one is to be launched."""
    head, *jobs = inventory.read_text().split("gpus: [0]")
    told = (f"gpus: [{index}]{rest}" for index, rest in enumerate(jobs))
    inventory.write_text(head + "".join(told))


@contextmanager
def interruptible() -> Iterator[None]:
    """TERM, and HUP when the terminal closes, as Ctrl-C: what was begun is taken down again."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    names = [signal.SIGTERM, signal.SIGHUP]
    heard = [each for each in names if signal.getsignal(each) is signal.SIG_DFL]
    for each in heard:
        signal.signal(each, interrupt)
    try:
        yield
    finally:
        for each in heard:
            signal.signal(each, signal.SIG_DFL)


def _down(out: Outlet, root: Path) -> None:
    Lab.load(root).down()
    out.write("the practice fleet is down; nothing of it is left\n")


def _show(out: Outlet, root: Path) -> None:
    lab = Lab.load(root)
    for name, state in lab.status().items():
        out.write(f"{name:<12}{state}\n")
    out.write(f"use it:     export FLEETSTOP_INVENTORY={lab.inventory}\n")
    out.write("            fleetstop status 'ct*'\n")
    where = "" if str(root) == USUAL_ROOT else " " + command(["--root", str(root)])
    out.write(f"end it:     fleetstop lab down{where}\n")
