"""Who is there where no trainer is seen of what was started, in words. Knows no clock, no shell."""

from __future__ import annotations

from collections.abc import Iterable

from fleetstop.core.kin.lineage import above_kind, at_work
from fleetstop.core.process import Process, ProcessId, ProcessTree
from fleetstop.core.redact import brief


def became(tree: ProcessTree, was: Iterable[ProcessId]) -> tuple[str, bool] | None:
    """`was`: what was seen to train, and executes something else by now. Whether that is a
    launcher, which may start a trainer yet, stands beside the sentence."""
    here = [each for pid in was if (each := tree.get(pid)) is not None and each.argv]
    if not here:
        return None
    told = " and ".join(f"{each.pid} was a trainer, and is {_named(each)} by now" for each in here)
    launches = any(above_kind(each, None) is not None for each in here)
    return f"{told}, which is none of this job by its `match:`", launches


def works(tree: ProcessTree, root: Process | None) -> str | None:
    """`3502 python3 real.py`: what works below it, shells and launchers aside."""
    if root is None or not root.alive:
        return None
    return ", ".join(f"{e.pid} {_named(e)}" for e in at_work(tree, [root]) if e.alive) or None


def _named(process: Process) -> str:
    return brief(process.argv or (process.comm,))
