"""Processes that ended in one go, told in one line. Knows no clock."""

from __future__ import annotations

from collections.abc import Sequence

from fleetstop.events import MemberExited
from fleetstop.view import naming, words


def sentence(exits: Sequence[MemberExited]) -> str:
    """`26982 exited, run.sh 26978 followed`."""
    trainers = [each for each in exits if each.role == "trainer"]
    first, rest = (trainers, [each for each in exits if each.role != "trainer"])
    if not first:
        first, rest = list(exits[:1]), list(exits[1:])
    unreaped = " (not reaped yet)" if any(each.zombie for each in first) else ""
    parts = [f"{_names(first)} exited{unreaped}"]
    parts += [f"{who} followed" for who in _followers(rest)]
    return ", ".join(parts)


def _names(exits: Sequence[MemberExited]) -> str:
    if len(exits) == 1 and exits[0].role != "trainer":
        return _named(exits[0])
    return words.pids([each.pid for each in exits])


def _named(each: MemberExited) -> str:
    return f"{naming.short(each.cmd)} {each.pid}".strip()


def _followers(exits: Sequence[MemberExited]) -> list[str]:
    """Workers are counted when there are several; everybody else has a name."""
    workers = [each for each in exits if each.role == "worker"]
    named = [each for each in exits if each.role != "worker"]
    counted = [words.count(len(workers), "worker")] if len(workers) > 1 else []
    single = [f"worker {workers[0].pid}"] if len(workers) == 1 else []
    return [*counted, *single, *(_named(each) for each in named)]
