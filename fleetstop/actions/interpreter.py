"""Questions to the job's own Python, and what cannot be put there told as one error.

Knows the questions of survey.py; not what the answers are for.
"""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any, TypeVar

from fleetstop.actions.telling import Scope
from fleetstop.core import redact
from fleetstop.core.commands import Command
from fleetstop.core.launching.interpreter import USUAL
from fleetstop.core.releases.survey import answer
from fleetstop.core.spelling import plain
from fleetstop.errors import DeployFailed

QUIET_S = 60.0
_READ_RATE = 10e6
"""Bytes a second at which a slow disk is still waited for."""
_ENDS = 20
_NEEDS = "install python3 there (3.6 or later); `status` and `stop` need none"
_NEEDS_THAT = (
    "what brings a job up again runs on it: Python 3.6 or later; `launch` and `restart` without"
    " files make do with any python3 there"
)
T = TypeVar("T")


@cache
def script(name: str) -> str:
    """What is run at the far end; part of the package's data."""
    text = resources.files("fleetstop") / "remote" / "scripts" / name
    return text.read_text(encoding="utf-8")


ACTIVATOR = (
    *"activate course client living record relief swap trainer rehearse aside saves".split(),
    *"matches wary supervise".split(),
)


def scripts(*more: str) -> dict[str, str]:
    """Those that start the job anew, and others by name."""
    return {f"{name}.py": script(f"{name}.py") for name in (*ACTIVATOR, *more)}


async def ask(
    scope: Scope,
    interpreter: str,
    question: dict[str, Any],
    kind: type[T],
    size: int,
    of: str = "survey.py",
) -> T:
    """`size`: bytes of all files it has to read. What only looks is asked in a dry run too, and
    again over another connection. `of`: the script whose question it is."""
    words = (interpreter, script(of), json.dumps(question))
    deadline_s, changes = QUIET_S + size / _READ_RATE, question["ask"] == "fill"
    command = Command("py", words, deadline_s=deadline_s, changes=changes)
    done = await (await scope.place.hands()).run(command)
    found = answer(done.data, kind) if done.status == 0 else None
    if found is not None:
        return found
    name, said = plain(interpreter), last(done.data) or "nothing"
    if done.status == 127 and interpreter == USUAL:
        # of a job that is no Python: a program, say, in a container that has nothing else
        raise failed(f"there is no {name}, and what brings a job up again runs on it", hint=_NEEDS)
    if done.status == 127:
        raise failed(f"the job's interpreter, {name}, is not there", hint=_NEEDS_THAT)
    if done.status == 126:
        raise failed(f"the job's interpreter, {name}, could not be run: {said}", hint=_NEEDS_THAT)
    told = f"{name} did not answer (`{question['ask']}`, status {done.status}): {said}"
    raise failed(told, hint=_NEEDS_THAT if done.status else "")


def failed(why: str, *, hint: str = "", evidence: tuple[str, ...] = ()) -> DeployFailed:
    told = f"{why}; nothing of the job was touched"
    return DeployFailed(told, hint=hint, evidence=evidence)


def lines(said: bytes) -> tuple[str, ...]:
    """The last of them, harmless and without secrets."""
    text = said.decode("utf-8", "backslashreplace")
    return tuple(redact.text(line) for line in text.splitlines() if line.strip())[-_ENDS:]


def last(said: bytes) -> str:
    found = lines(said)
    return found[-1] if found else ""
