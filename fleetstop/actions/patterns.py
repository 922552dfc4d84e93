"""A person's pattern tried on lines of a log, in a process that can be given up: it may take years.

Python's own matching cannot be interrupted, and holds up everything else in its process.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sys

from msgspec import Struct

IN_TIME_S = 10.0
_REPEATS = frozenset("*+?{|(\\")
_TRIES = """\
import json, re, sys
asked = json.load(sys.stdin)
found = [at for at, line in enumerate(asked["lines"]) if re.search(asked["pattern"], line)]
print(json.dumps(found[-1:]))
"""


class Tried(Struct, frozen=True):
    """The last line that matches. `slow`: it was given up, and nothing is known."""

    line: str | None = None
    slow: bool = False


async def last_match(pattern: str, lines: tuple[str, ...]) -> Tried:
    """Within `IN_TIME_S` and a little."""
    if not lines:
        return Tried()
    if not _REPEATS & set(pattern) or not sys.executable:  # nothing in it can be tried twice
        return Tried(next((each for each in reversed(lines) if re.search(pattern, each)), None))
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-I", "-S", "-c", _TRIES),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    question = json.dumps({"pattern": pattern, "lines": lines}).encode()
    try:
        async with asyncio.timeout(IN_TIME_S):
            said, _ = await child.communicate(question)
    except TimeoutError:
        return Tried(slow=True)
    finally:
        if child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            await child.wait()
    found = json.loads(said or b"null")
    if found is None:
        return Tried(slow=True)  # it was ended by somebody else, for want of memory, say
    return Tried(lines[found[0]] if found else None)
