"""Which commit the files that are sent come from, as the git of this machine tells it."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Collection, Sequence
from pathlib import Path

from fleetstop.core.releases.manifest import Git

_PATIENCE_S = 5.0
# Reading only: no lock is taken, nothing is asked, no program of the repository's choice is run.
_GIT = ("git", "-c", "core.fsmonitor=false", "-c", "core.quotepath=false")
_QUIET = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}


def git_facts(files: Collection[str], within_s: float = _PATIENCE_S) -> Git | None:
    """The commit checked out where these files lie, and whether any of them differs from it.

    `files`: absolute paths here. None: no git, no repository, no commit, or no answer in time.
    Blocks, `within_s` seconds at the most. Files outside the first one's repository count as
    different: no commit of it has them.
    """
    if not files:
        return None
    until = time.monotonic() + within_s
    top = _lines(("rev-parse", "--show-toplevel", "HEAD"), os.path.dirname(min(files)), until)
    if top is None or len(top) != 2:
        return None
    root, commit = top
    real = {os.path.realpath(each) for each in files}
    if any(not Path(each).is_relative_to(root) for each in real):
        return Git(commit, dirty=True)
    places = sorted({os.path.dirname(each) for each in real})
    # the directories that hold them, not thousands of names: an argument list has its limit
    asked = ("status", "--porcelain=v1", "-z", "--untracked-files=all", "--ignored=matching", "--")
    told = _answer((*asked, *_outermost(places)), root, until)
    if told is None:
        return Git(commit, dirty=None)
    return Git(commit, dirty=_touches(told, root, real))


def _touches(told: bytes, root: str, files: Collection[str]) -> bool:
    """git-status(1), -z: `XY PATH NUL`, after a renamed or copied one `OLD NUL`; a directory that
    is ignored as a whole ends with /."""
    entries = iter(told.split(b"\0"))
    for entry in entries:
        if len(entry) < 4:
            continue
        if entry[:1] in b"RC" or entry[1:2] in b"RC":
            next(entries, None)
        path = os.path.join(root, os.fsdecode(entry[3:]))
        if path in files or (path.endswith("/") and any(each.startswith(path) for each in files)):
            return True
    return False


def _outermost(places: Sequence[str]) -> list[str]:
    """In order, so what lies above comes first."""
    kept: list[str] = []
    for each in places:
        if not any(each == above or each.startswith(f"{above}/") for above in kept):
            kept.append(each)
    return kept


def _lines(words: Sequence[str], directory: str, until: float) -> list[str] | None:
    told = _answer(words, directory, until)
    return None if told is None else os.fsdecode(told).splitlines()


def _answer(words: Sequence[str], directory: str, until: float) -> bytes | None:
    left = until - time.monotonic()
    if left <= 0:
        return None
    try:
        done = subprocess.run(
            (*_GIT, *words),
            cwd=directory,
            env={**os.environ, **_QUIET},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=left,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
