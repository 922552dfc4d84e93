"""Whether what starts a job puts it into the background, and so deaf to INT. Asks nothing.

A shell without job control lets INT and QUIT be ignored by what it starts with & (POSIX sh 2.11).
"""

from __future__ import annotations

import re

from msgspec import Struct

from fleetstop.core.kin.family import Family
from fleetstop.core.kin.lineage import shell_runs
from fleetstop.core.process import Process, ProcessTree
from fleetstop.core.signals import has

# `&` by itself: none of &&, >&, &>, |&, 2>&1
_BEHIND = re.compile(r"(?<![&>|<\\])&(?![&>0-9])")
_COMMENT = re.compile(r"(?:^|\s)#.*")


class Behind(Struct, frozen=True):
    """A shell of the job hears INT, and what it started does not. `argv`: how the outermost was
    started; `script`: the file that the shell executes, absolute, None: it has its text in words.
    """

    pid: int
    trainer: int
    argv: tuple[str, ...]
    name: str
    script: str | None = None

    @property
    def finding(self) -> str:
        return (
            f"{self.pid} ({self.name}) hears INT, and {self.trainer}, which it has put into the "
            "background with &, ignores it: what it starts next will too, and be no healthy one, "
            f"unless its code sets a handler of its own; {self.cure}"
        )

    @property
    def cure(self) -> str:
        return f"in {self.name}: `exec python …`, or no &"


def behind(
    tree: ProcessTree, family: Family, stop_signal: str | None
) -> tuple[Process, Process] | None:
    """The shell, and the trainer that cannot hear what it is to be stopped by."""
    for kin in family.trainers:
        trainer = tree.get(kin.id)
        if trainer is None or not _deaf(trainer, stop_signal):
            continue
        if (above := _shell_above(tree, family, trainer)) is not None:
            return above, trainer
    return None


def started_by(tree: ProcessTree, family: Family, deaf: Process) -> str:
    """Of one that was started with &, who did it, if that is one of the job's own."""
    above = _shell_above(tree, family, deaf) if _ignores(deaf) else None
    return f", by {tree.called(above.id.pid)}, {BY_ITSELF}" if above is not None else ""


BY_ITSELF = "which hears INT itself"
"""A restart does not help there."""


def _shell_above(tree: ProcessTree, family: Family, deaf: Process) -> Process | None:
    child, ids = deaf, family.ids
    for above in tree.above(deaf.id.pid):
        if above.id not in ids:
            break
        hears = above.masks is not None and not has(above.masks.ignored, "INT")
        if _ignores(child) and hears and shell_runs(above.argv or ()):
            return above
        child = above
    return None


def _deaf(trainer: Process, stop_signal: str | None) -> bool:
    wanted = (stop_signal,) if stop_signal is not None else ("INT", "TERM")
    heard = any(trainer.landing(each) in ("heard", None) for each in wanted)
    return "INT" in wanted and not heard and _ignores(trainer)


def _ignores(process: Process) -> bool:
    masks = process.masks
    return masks is not None and has(masks.ignored, "INT") and has(masks.ignored, "QUIT")


def backgrounds(text: str) -> bool:
    """Whether a shell's text puts anything into the background, by the look of it. It may have been
    corrected since it was started."""
    lines = (_COMMENT.sub("", line) for line in text.splitlines())
    return any(_BEHIND.search(line) for line in lines)
