"""Read in the script that starts a job what the next start by it is going to be like."""

from __future__ import annotations

import posixpath

import msgspec

from fleetstop.actions import origins, reading
from fleetstop.actions.telling import Scope
from fleetstop.core import redact
from fleetstop.core.kin.family import Family
from fleetstop.core.kin.lineage import shell_runs
from fleetstop.core.launching.ears import Behind, backgrounds, behind
from fleetstop.core.launching.outermost import outermost
from fleetstop.core.launching.output import Wrote
from fleetstop.core.launching.recipe import Known
from fleetstop.core.process import Process, ProcessTree
from fleetstop.errors import CouldNotLook, RemoteFailed


async def by_its_script(
    scope: Scope, place: Known, running: tuple[ProcessTree, Family] | None
) -> Known:
    """What is known of the job that runs, as far as its script has it so still."""
    if running is None:
        return place
    wrote = await _written_again(scope, place.wrote, *running)
    argv = place.origin.argv if place.origin is not None else ()
    return msgspec.structs.replace(
        place, wrote=wrote, behind=await _put_behind(scope, *running, argv)
    )


async def _written_again(
    scope: Scope, wrote: Wrote | None, tree: ProcessTree, family: Family
) -> Wrote | None:
    """Only a file that the script names is surely the next run's: not one by the date."""
    head, job = outermost(tree, family), scope.target.job
    if wrote is None or not wrote.own or head is None or (job is not None and job.log is not None):
        return wrote
    _, text = await _text(scope, tree, head)
    named = text is not None and posixpath.basename(wrote.path) in text
    return msgspec.structs.replace(wrote, own=named)


async def _put_behind(
    scope: Scope, tree: ProcessTree, family: Family, argv: tuple[str, ...]
) -> Behind | None:
    """`argv`: how its outermost process was started. None too where its script has no & by now."""
    job = scope.target.job
    found = behind(tree, family, job.stop_signal if job is not None else None)
    if found is None:
        return None
    shell, trainer = found
    path, text = await _text(scope, tree, shell)
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
