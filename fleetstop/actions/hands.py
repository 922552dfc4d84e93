"""What changes something in the container for a launch; each is one frame. Decides nothing."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from fleetstop.actions import looks, reading
from fleetstop.actions.reconnect import LOST
from fleetstop.actions.telling import Scope
from fleetstop.core.commands import Answer, Command
from fleetstop.core.launching.activator import Order
from fleetstop.core.procfs import text
from fleetstop.errors import RemoteFailed
from fleetstop.ports import Shell

T = TypeVar("T")
HEAD = 40960  # so much of a file `source` tells
_TRIES = 3
_PUT_S = 10.0
_PUT_AT_LEAST = 20_000.0  # bytes a second, on a busy machine
_STARTS = """\
import json, os, sys
os.execv(sys.executable, [sys.executable, "-I", *json.load(sys.stdin)])
"""
"""Becomes what is to be started: interpreter, then its words. It reports on stdout by itself."""
_SAID = {
    20: "it cannot be written there (is the disk full, or read-only?)",
    21: "a link is in its way",
    40: "there is no such directory",
    41: "something else is there",
}


async def surely(scope: Scope, ask: Callable[[], Awaitable[T]]) -> T:
    """What may be asked again where its answer was lost. Raises where there is no way back."""
    for _ in range(_TRIES - 1):
        try:
            return await ask()
        except LOST:
            await looks.look(scope.place, scope.target.vmid)  # takes the connection up again
    return await ask()


def _good(answer: Answer, what: str) -> bytes:
    if answer.status != 0:
        why = _SAID.get(answer.status, f"status {answer.status}")
        raise RemoteFailed(f"{what}: {why}")
    return answer.data


async def stage(shell: Shell, base: str, run: str) -> None:
    """The directory of this run. One that files were sent into already is left as it is."""
    answer = await shell.run(Command("stage", (base, run), changes=True))
    if answer.status != 41:
        _good(answer, f"{base}/stage-{run} could not be made")


async def unstage(shell: Shell, base: str, run: str) -> None:
    answer = await shell.run(Command("unstage", (base, run), deadline_s=30.0, changes=True))
    _good(answer, f"{base}/stage-{run} could not be removed")


async def put(shell: Shell, path: str, content: str, mode: str) -> None:
    # a shell reads a line byte by byte (POSIX `read`), and of thousands of files much is told
    limit_s = _PUT_S + len(content) / _PUT_AT_LEAST
    words = (path, mode, content)
    answer = await shell.run(Command("put", words, deadline_s=limit_s, changes=True))
    _good(answer, f"{path} could not be written")


async def tools(shell: Shell, directory: str) -> None:
    """A directory for our scripts that nobody else may write to."""
    answer = await shell.run(Command("tools", (directory,), changes=True))
    _good(answer, f"{directory} could not be made for our scripts")


async def put_all(
    shell: Shell, scripts: Mapping[str, str], secret: tuple[str, str] | None = None
) -> None:
    """Those scripts that differ from what is there, by path; what is longer than is read is put
    anew. Then `secret`, a path and a text for its owner alone. In one frame."""
    there = await reading.heads(shell, tuple(scripts))
    new = [
        (path, "644", content)
        for path, content in scripts.items()
        if len(content.encode()) >= HEAD or there.get(path) != content
    ]
    new += [(secret[0], "600", secret[1])] if secret is not None else []
    if not new:
        return
    words = [word for each in new for word in each]
    answer = await shell.run(Command("put", tuple(words), deadline_s=30.0, changes=True))
    _good(answer, f"{text(answer.data) or new[-1][0]} could not be written")


async def order(shell: Shell, base: str, run: str, word: Order, rest: str = "") -> None:
    """`rest`: what may stand behind the word, see activate.py."""
    words = (base, run, word, rest) if rest else (base, run, word)
    answer = await shell.run(Command("order", words, changes=True))
    _good(answer, f"{word} could not be told to what waits in the container")


async def beat(shell: Shell, base: str) -> None:
    answer = await shell.run(Command("beat", (base,), changes=True))
    _good(answer, f"{base}/beat could not be touched")


async def start(shell: Shell, python: str, script: str, spec: str) -> str:
    """The line that the script says once it is on its own; `failed …` where it said none."""
    words = (python, _STARTS, json.dumps([script, spec]))
    answer = await shell.run(Command("py", words, deadline_s=120.0, changes=True))
    lines = [each for each in text(answer.data).split("\n") if each.strip()]
    if answer.status in (0, 1) and lines and lines[0].startswith(("waiting ", "failed ")):
        return lines[0]
    last = f": {lines[-1].strip()}" if lines else ""
    return f"failed {python} could not run {script} (status {answer.status}){last}"


async def clean(shell: Shell, python: str, script: str, base: str, run: str) -> str:
    """What a dead run left lying about, never a release; the line that the script says."""
    words = (python, _STARTS, json.dumps([script, "--clean", base, run]))
    answer = await shell.run(Command("py", words, deadline_s=120.0, changes=True))
    lines = [each for each in text(answer.data).split("\n") if each.strip()]
    return lines[0] if lines else f"status {answer.status}"
