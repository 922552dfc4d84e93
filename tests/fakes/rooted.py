"""A process whose root is another directory: what a container is to its host, without one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fleetstop.lab.processes import ProcessId, identify


@contextmanager
def rooted_at(place: Path) -> Iterator[ProcessId]:
    """A process that has this directory for its root."""
    text = "import os, sys, time; os.chroot(sys.argv[1]); print('in', flush=True); time.sleep(600)"
    words = [sys.executable, "-S", "-c", text, str(place)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True) as job:
        try:
            assert job.stdout is not None
            assert job.stdout.readline() == b"in\n"
            found = identify(job.pid)
            assert found is not None
            yield found
        finally:
            job.kill()
