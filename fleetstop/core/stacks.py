"""What `py-spy dump` prints, as the lines worth showing; runs nothing."""

from __future__ import annotations

import re

from msgspec import Struct

from fleetstop.core.redact import text

MOST_LINES = 12
_THREAD = re.compile(r"Thread .*")
_MAIN = re.compile(r"Thread .*\"MainThread\"")


class Dump(Struct, frozen=True):
    """`lines`: the main thread, its innermost call first; empty where there is none. `problem`
    is py-spy's own last line where it could not."""

    lines: tuple[str, ...]
    problem: str | None = None


def parse_dump(data: bytes, status: int) -> Dump:
    """The main thread's part of a dump, or the first thread's where none is named so."""
    said = [each.rstrip() for each in data.decode("utf-8", "backslashreplace").splitlines()]
    threads = [at for at, each in enumerate(said) if _THREAD.match(each)]
    main = next((at for at in threads if _MAIN.match(said[at])), threads[0] if threads else None)
    if main is None:
        words = [each for each in said if each.strip()]
        return Dump((), text(words[-1], 200) if words else f"py-spy ended with {status}")
    end = next((at for at in threads if at > main), len(said))
    frames = [each for each in said[main:end] if each.strip()]
    shown = [text(each, 160) for each in frames[:MOST_LINES]]
    left = len(frames) - len(shown)
    return Dump((*shown, *([f"    … {left} more"] if left else ())))
