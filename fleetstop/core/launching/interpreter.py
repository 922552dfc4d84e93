"""Which Python is the job's own, by what runs or by what would be started; runs none."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence

USUAL = "python3"
_PYTHON = re.compile(r"python[0-9.]*|pypy[0-9.]*")


OWN = "TERM's handler is its own, while Python itself hears INT"
"""Of a Python program that hears both. docs.python.org/3/library/signal.html: by default INT is
translated into KeyboardInterrupt, and nothing of the interpreter's hears TERM."""


def is_python(word: str) -> bool:
    return _PYTHON.fullmatch(posixpath.basename(word)) is not None


def of_process(argv: Sequence[str], exe: str | None) -> str | None:
    """Absolute. The name it was called by where that is a path, since a virtual environment is one
    of names; else its program. None: it is no Python."""
    if exe is None or not is_python(exe):
        return None
    called = argv[0] if argv else ""
    return called if called.startswith("/") and is_python(called) else exe


def of_words(words: Sequence[str]) -> str | None:
    """Of a command that may be behind `env`, `nice` and the like; None: none is named."""
    return next((each for each in words if is_python(each)), None)
