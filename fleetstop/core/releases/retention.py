"""Which releases are kept, and what a run that died left lying about. Removes nothing."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable

from fleetstop.core.launching.activation import is_release_id

KEEP = 5
_TEMPORARY = re.compile(r"\.(?P<name>.+)\.fleetstop-(?P<run>[A-Za-z0-9]+)")


def to_remove(
    names: Iterable[str], *, needed: Iterable[str | None] = (), keep: int = KEEP
) -> tuple[str, ...]:
    """The oldest beyond `keep`, but never one that is `needed`: that runs, or is the way back.

    `names` are the entries of BASE/releases; what is no release's id is nobody's to remove.
    """
    newest_first = sorted({each for each in names if is_release_id(each)}, reverse=True)
    stay = {*newest_first[: max(keep, 0)], *needed}
    return tuple(sorted(each for each in newest_first if each not in stay))


def temporary(path: str, run: str) -> str:
    """Where this run puts a file before it is renamed onto `path`."""
    directory, name = posixpath.split(path)
    return posixpath.join(directory, f".{name}.fleetstop-{run}")


def run_of(name: str) -> str | None:
    """The run that left this temporary file; None: it is none of ours."""
    found = _TEMPORARY.fullmatch(posixpath.basename(name))
    return found["run"] if found else None


def litter(names: Iterable[str], run: str) -> tuple[str, ...]:
    """Those of `names` (entries of a destination's directory) that this run left there."""
    return tuple(each for each in names if run_of(each) == run)
