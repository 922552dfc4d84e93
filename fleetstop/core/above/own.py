"""What our own launch has put above a trainer, told apart from somebody else's. Asks nothing."""

from __future__ import annotations

from fleetstop.core.kin.matching import stands_for_it
from fleetstop.core.process import Process, ProcessTree

_WILL = "our own launch put the job there; keeps its log in sight when it ends, and starts nothing"


def own_pane(tree: ProcessTree, process: Process) -> tuple[tuple[str, ...], str] | None:
    """What to say of a tmux server with a pane of ours, its command line and what it will do: the
    server bears the words of whoever began it first, which say nothing of this job."""
    ours = any(
        stands_for_it(each) for each in tree.processes.values() if each.ppid == process.id.pid
    )
    return (("tmux",), _WILL) if ours else None
