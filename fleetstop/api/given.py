"""What a Python program hands in for words, a timeout or a signal, checked. Knows no command.

A text is a list of letters to Python: `files="train.py"` means one file, never seven.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict

from fleetstop.core.durations import FOREVER, parse_duration
from fleetstop.core.inventory import Match
from fleetstop.core.playbook import parse_signal
from fleetstop.errors import BadUsage


class Selects(TypedDict, total=False):
    """What narrows, or says more of, the words for the targets. `tags`: only what bears one of
    them; `failed_in`: only what did not end well in this earlier run, by its id."""

    match: Match | None
    tags: Sequence[str]
    failed_in: str | None
    limit: Sequence[str]
    exclude: Sequence[str]
    all_jobs: bool


def words(what: str, given: Any, *, example: str, alone: bool = True) -> tuple[str, ...]:
    """Texts or paths; one by itself counts as a list of one, unless it is not to stand `alone`.

    Raises BadUsage, which shows no value, for anything else.
    """
    if isinstance(given, str | os.PathLike):
        if not alone:
            raise BadUsage(f"{what} is one text, and nobody here parts it", hint=example)
        return (_word(what, given, example),)
    if isinstance(given, bytes | Mapping) or not isinstance(given, Iterable):
        raise BadUsage(f"{what} is of the type {type(given).__name__}, and no list", hint=example)
    return tuple(_word(what, each, example) for each in given)


def _word(what: str, given: Any, example: str) -> str:
    told = os.fspath(given) if isinstance(given, os.PathLike) else given
    if not isinstance(told, str):
        raise BadUsage(f"{what} holds something of the type {type(given).__name__}", hint=example)
    return told


def seconds(timeout: float | str | None) -> float | None:
    """In seconds; None for no limit."""
    limit = parse_duration(timeout) if isinstance(timeout, str) else timeout
    if limit is not None and not limit > 0:
        raise BadUsage(f"a timeout of {timeout} leaves no time", hint="leave it out, or give 30m")
    return None if limit in (None, FOREVER) else limit


def stop_signal(name: str | None) -> str | None:
    if name is None:
        return None
    signal = parse_signal(name)
    if signal == "KILL":
        raise BadUsage(
            "--signal KILL: nothing can be saved on KILL, so it is no stop signal",
            hint="if that is what you want: --playbook now --force, or --ladder 'KILL:tree/30s'",
        )
    return signal
