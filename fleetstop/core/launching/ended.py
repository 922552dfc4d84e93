"""How a trainer that we launched ended: what its supervisor recorded, as facts and sentences."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from datetime import datetime

import msgspec
from msgspec import Struct

from fleetstop.core import redact
from fleetstop.core.durations import spoken
from fleetstop.core.kin.matching import SHELLS, base


class Born(Struct, frozen=True):
    """A process as its own place counts it: PID there, and start in clock ticks."""

    pid: int
    start: int


class Record(Struct, frozen=True):
    """The state file of remote/scripts/supervise.py; times ISO 8601 UTC by the container's clock.

    `ended_at` None: it runs, or nobody was left to record its end.
    """

    mark: str
    supervisor: Born | None = None
    trainer: Born | None = None
    started_at: str | None = None
    ended_at: str | None = None
    exit: int | None = None
    signal: str | None = None
    failed: str | None = None


def parse_record(text: str | bytes | None) -> Record | None:
    """None for what is no such file (yet): it is replaced by rename, so it is never half of one."""
    if not text:
        return None
    try:
        return msgspec.json.decode(text, type=Record)
    except msgspec.MsgspecError:
        return None


def way(record: Record) -> str:
    """`exit 3`, `killed by SEGV`; what stands behind `it ended:`."""
    if record.failed is not None:
        return redact.text(record.failed)
    if record.signal is not None:
        return f"killed by {record.signal}"
    return f"exit {record.exit}" if record.exit is not None else "how is not known"


_LINE = 120


def wraps(argv: Sequence[str]) -> bool:
    """It is a shell's script: its 0 is what it ended with, whatever became of its trainer."""
    name = base(argv[0]) if argv else ""
    return name in SHELLS or name.endswith(".sh")


def way_of(argv: Sequence[str], record: Record, log: Sequence[str] = ()) -> str:
    """`way` of what was started with these words, none of them where it is the trainer itself;
    `log`: its new lines, of which the last is the best evidence, most of all where a wrapper hides
    how its trainer ended."""
    if record.failed is not None:
        return way(record)
    whose = ""
    if record.exit is not None and wraps(argv):
        whose = " (the wrapper's)" if record.exit else ", its trainer's own end is not known"
    last = next((each.strip() for each in reversed(log) if each.strip()), "")
    said = f'; last line: "{redact.text(last, _LINE)}"' if last else ""
    return f"{way(record)}{whose}{said}"


def started_as(argv: Sequence[str]) -> str:
    """What was started, without what it was told: `bash run.sh`. What it ended with is its own: a
    trainer below it may have ended otherwise."""
    words = [*argv[:1], *(word for word in argv[1:2] if not word.startswith("-"))]
    return redact.command([posixpath.basename(word) for word in words], 60) or "what was started"


# what a stop leaves behind where the trainer saved: nothing to explain
_EXPLAINED_EXITS = (0, 130, 143)
_EXPLAINED_SIGNALS = ("INT", "TERM")


def last_death(record: Record | None, now: str | None) -> str | None:
    """The last run's end where it asks for an explanation: a sentence. `now`: ISO 8601 UTC."""
    if record is None or record.ended_at is None:
        return None
    if record.signal is None and (record.exit is None or record.exit in _EXPLAINED_EXITS):
        return None
    if record.signal in _EXPLAINED_SIGNALS:
        return None
    how = f"by {record.signal}" if record.signal is not None else f"with exit {record.exit}"
    ago = _since(record.ended_at, now)
    told = f", {spoken(ago)} ago" if ago is not None else ""
    return f"the last run ended {how} at {_clock(record.ended_at)}{told}"


def lived_s(record: Record) -> float | None:
    """From its start to its end, by the same clock."""
    if record.started_at is None or record.ended_at is None:
        return None
    return _since(record.started_at, record.ended_at)


def _since(then: str, now: str | None) -> float | None:
    try:
        passed = (datetime.fromisoformat(now or "") - datetime.fromisoformat(then)).total_seconds()
    except (ValueError, TypeError):
        return None
    # the two clocks may differ; an end that lies ahead tells only that they do
    return passed if passed >= 0 else None


def _clock(at: str) -> str:
    """To the second, as it stands: the container's UTC."""
    head, _, rest = at.partition("T")
    return f"{head} {rest[:8]} UTC" if rest else at
