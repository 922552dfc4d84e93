"""Where a job's code and our records of it lie, when nothing runs that would tell."""

from __future__ import annotations

import posixpath

from fleetstop.core.inventory import Job
from fleetstop.core.releases.payload import OURS


def base_of(dest: str, job: Job) -> str:
    """Our own directory for this job, beside what is deployed."""
    return posixpath.join(dest, OURS, job.name or "job")


def home(job: Job) -> str | None:
    """The directory of the job's code by its inventory: deploy.dest, that of the script that is
    matched or launched by its path, else the one it starts in. None: nothing is said."""
    if job.deploy is not None and job.deploy.dest is not None:
        return job.deploy.dest
    launch, script = job.launch, job.match.script
    cwd = launch.cwd if launch is not None else None
    if script is not None:
        name = posixpath.basename(script)
        named = [word for word in (launch.run if launch is not None else ()) if "/" in word]
        for word in (script, *named):
            path = (
                word if word.startswith("/") or word is script else posixpath.join(cwd or "", word)
            )
            if path.startswith("/") and posixpath.basename(path) == name:
                return posixpath.normpath(posixpath.dirname(path))
    return cwd
