"""Which matches were forked by a trainer that has ended: likeness tells nothing, descent does.

A data worker forked by a trainer has its very command line, session and open devices; its parent's
death is all that tells them apart, until then the worker is set aside as a fork of a match.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from fleetstop.core.kin.lineage import spawned
from fleetstop.core.kin.matching import records_the_end
from fleetstop.core.process import Process, ProcessTree

_REAPERS = ("systemd", "tini", "dumb-init", "catatonit", "init")
_PAIR = 2
_O_ACCMODE = 0o3


def orphans(
    tree: ProcessTree, hits: Mapping[int, Process], gpu_pids: frozenset[int] | None
) -> dict[int, Literal["orphan", "unclear"]]:
    """The matches that look like a trainer and were forked by one that is gone. `gpu_pids`: whom
    nvidia-smi listed, None where it could not be asked.

    A trainer that made itself a daemon was forked too and has lost its parent too: it leads its
    session, or is listed with a GPU, or has workers of its own, forked or spawned; it has no pipe
    to a parent (multiprocessing gives each child two), and there is one of it. `unclear`: none of
    that tells.
    """
    lost = {pid: each for pid, each in hits.items() if _lost_its_parent(tree, each)}
    found: dict[int, Literal["orphan", "unclear"]] = {}
    for pid, each in lost.items():
        if pid == each.sid or pid in (gpu_pids or ()) or _has_workers(tree, each):
            continue
        alike = [o for o in lost.values() if o.sid == each.sid and o.argv == each.argv]
        if not (len(alike) >= _PAIR or _piped(tree, each)):
            continue
        found[pid] = "unclear" if gpu_pids is None and each.gpus else "orphan"
    return found


def _lost_its_parent(tree: ProcessTree, process: Process) -> bool:
    if not process.forked or not process.alive:
        return False
    above = tree.processes.get(process.ppid)
    if above is None or records_the_end(above):
        return True
    return 1 in (above.pid, above.id.pid) or above.comm in _REAPERS


def _has_workers(tree: ProcessTree, process: Process) -> bool:
    kids = tree.children(process.id.pid)
    return any((kid.forked or spawned(kid)) and kid.alive for kid in kids)


def _piped(tree: ProcessTree, process: Process) -> bool:
    """It holds one end each of two pipes that a parent made. A pipe of which it has both ends is
    its own (a queue, a pipe to wake it up), and so is one to a child of its own."""
    ends = _pipes(process)
    below = {end[0] for each in tree.below(process.id.pid) for end in _pipes(each, least=0)}
    own = {target for target, writes in ends if (target, not writes) in ends}
    return len({target for target, _ in ends} - own - below) >= _PAIR


def _pipes(process: Process, least: int = 3) -> set[tuple[str, bool]]:
    """Pipes that it has open from this descriptor on, and whether to write."""
    files = process.detail.files if process.detail else None
    return {
        (f.target, bool((f.flags or 0) & _O_ACCMODE))
        for f in files or ()
        if f.fd >= least and f.target.startswith("pipe:")
    }
