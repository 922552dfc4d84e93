"""Where what a job says goes, and where it is to be read: not the same where its own script opens
its log. Opens nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from fleetstop.core.kin.lineage import shell_runs
from fleetstop.core.launching.resumed import without


class Wrote(Struct, frozen=True):
    """The file that a job which was started as `argv` is seen to write, where that is not what it
    was started with. `own`: whoever is started so opens it again: `>> path`, `| tee path` in a
    script."""

    argv: tuple[str, ...]
    path: str
    own: bool


def opened(log: str | None, argv: Sequence[str], had: str | None, own: bool) -> str | None:
    """What is opened for it: the job's log, unless it opens that by itself (`own`, or its words say
    so). `had`: where the output of what was started goes that runs now."""
    if log is None:
        return had
    # a shell's text that says so: `… | tee -a LOG`, `… >LOG 2>&1`
    end = rf"[\s'\"]*{re.escape(log)}(?![\w./-])"
    opens = re.compile(rf"\btee\b[^|;&]*?\s{end}|>{end}")
    by_itself = own or any(opens.search(word) for word in argv)
    return (had if had != log else None) if by_itself else log


def read_in(
    log: str | None,
    argv: Sequence[str],
    opened_: str | None,
    wrote: Wrote | None,
    resume: Sequence[str] = (),
) -> str | None:
    """In which file its log is to be looked at: the inventory's; else what the same start was seen
    to write. `resume`: words that make no other start. None: nowhere."""
    if log is not None or wrote is None or not wrote.own:
        return log or opened_
    same = alike(without(argv, resume), without(wrote.argv, resume))
    return wrote.path if same else opened_


def reads(new: str | None, old: str | None) -> dict[str, str]:
    """The same, as an activator is told it."""
    return {name: each for name, each in (("launch", new), ("launch_old", old)) if each is not None}


def alike(one: Sequence[str], other: Sequence[str]) -> bool:
    """The same command, or the same script: as it is called, and as its `#!` has it executed."""
    return tuple(one) == tuple(other) or (script(one) is not None and script(one) == script(other))


def script(argv: Sequence[str]) -> str | None:
    """The shell script that these words start, as they name it; None: they start none by a name."""
    ran = shell_runs(argv)
    if ran is not None:
        return ran[1] if ran[0] == "script" else None
    return argv[0] if argv and argv[0].endswith(".sh") else None
