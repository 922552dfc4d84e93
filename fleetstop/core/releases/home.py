"""Where a job's code and our records of it lie, when nothing runs that would tell."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from itertools import pairwise

from fleetstop.core.inventory import Job
from fleetstop.core.releases.payload import OURS


def base_of(dest: str, job: Job) -> str:
    """Our own directory for this job, beside what is deployed."""
    return posixpath.join(dest, OURS, job.name or "job")


def dest_of(base: str) -> str:
    """The directory that this base of ours is for."""
    return posixpath.dirname(posixpath.dirname(base))


def bases_above(path: str, job: Job) -> tuple[str, ...]:
    """Where the records of what lies at this path may be, the nearest first: whoever sends a
    directory has them beside that, and not in it."""
    above, found = posixpath.dirname(posixpath.normpath(path)), []
    while above not in ("", "."):
        found.append(base_of(above, job))
        if above == posixpath.dirname(above):
            break
        above = posixpath.dirname(above)
    return tuple(found)


def base_in(argv: Sequence[str]) -> str | None:
    """The same, of the job whose activator was started with these words; None: they are none's. Its
    scripts may lie elsewhere; the spec that it reads lies in a stage there."""
    for script, spec in pairwise(argv):
        if script.endswith("/activate.py"):
            base, stage, _ = spec.partition("/stage-")
            return base if stage else posixpath.dirname(script)
    return None


def home(job: Job) -> str | None:
    """The directory of the job's code by its inventory: deploy.dest, that of the script that is
    matched or launched by its path, else the one it starts in. None: nothing is said."""
    launch = job.launch
    return code_of(job) or (launch.cwd if launch is not None else None)


def code_of(job: Job) -> str | None:
    """The same, but only where it is said: what a run.sh starts may lie anywhere."""
    if job.deploy is not None and job.deploy.dest is not None:
        return job.deploy.dest
    launch, script = job.launch, job.match.script
    cwd = launch.cwd if launch is not None else None
    if script is None:
        return None
    name = posixpath.basename(script)
    words = launch.run if launch is not None else ()
    for path in (script, *(posixpath.join(cwd or "", word) for word in words)):
        if path.startswith("/") and posixpath.basename(path) == name:
            return posixpath.normpath(posixpath.dirname(path))
    return None
