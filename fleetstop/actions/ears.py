"""Look whether the job that runs is deaf because of what starts it, and will start the new one."""

from __future__ import annotations

import posixpath

from fleetstop.actions import origins, reading
from fleetstop.actions.telling import Scope
from fleetstop.core import redact
from fleetstop.core.kin.family import Family
from fleetstop.core.kin.lineage import shell_runs
from fleetstop.core.launching.ears import Behind, backgrounds, behind
from fleetstop.core.process import Process, ProcessTree
from fleetstop.errors import CouldNotLook, RemoteFailed


async def put_behind(
    scope: Scope, running: tuple[ProcessTree, Family] | None, argv: tuple[str, ...]
) -> Behind | None:
    """`argv`: how its outermost process was started. None too where its script has no & by now."""
    job = scope.target.job
    found = behind(*running, job.stop_signal if job is not None else None) if running else None
    if running is None or found is None:
        return None
    shell, trainer = found
    path, text = await _text(scope, running[0], shell)
    if text is not None and not backgrounds(text):
        return None
    name = posixpath.basename(path) if path is not None else " ".join((shell.argv or ())[:2])
    return Behind(shell.pid, trainer.pid, argv, redact.text(name, 80), path)


async def _text(scope: Scope, tree: ProcessTree, shell: Process) -> tuple[str | None, str | None]:
    """The file that it executes, and the text of that; what is not known is None."""
    kind, word = shell_runs(shell.argv or ()) or ("text", "")
    if kind == "text":
        return None, word
    try:
        path = await origins.script_of(scope, shell, await origins.origin_of(scope, tree, shell))
        if path is None:
            return None, None
        told = await reading.heads(await scope.place.files(), (path,))
    except (CouldNotLook, RemoteFailed):
        return None, None
    return path, told.get(path)
