"""The lock and ledger directory's text into who holds it and what each trainer has heard.

One file per run, written only by it. Lines: `header TEXT|CLIENT`, `stamp UPTIME`, `since UPTIME`,
`break UPTIME RUN` (that run's claims up to then hold no more), `send N SIGNAL LANDING UPTIME
PID:START...`, `unsent N` (for certain it did not go out: refused where it was to be sent, or an ask
that nobody was asked), `done UPTIME`. Times are the host's /proc/uptime.
"""

from __future__ import annotations

import math
import posixpath
import re

from msgspec import Struct
from msgspec.structs import replace

from fleetstop.core.process import ProcessId

STALE_S = 30.0
TICK_S = 0.01
"""The steps of /proc/uptime (proc_uptime(5): hundredths), and of most file systems' times."""
_OCTAL = re.compile(rb"\\0([0-7]{3})")
_LINE = re.compile(r"(/run/lock/fleetstop\.[0-9a-z]+/[^:/\n]+):(.*)")


class Sent(Struct, frozen=True):
    """One signal of one run, as noted before it was sent."""

    run: str
    n: int
    signal: str
    landing: str
    uptime: float
    ids: tuple[ProcessId, ...]


class RunFile(Struct, frozen=True):
    """`since` None: its claim is not made up yet. `done`: it gave the lock back. `breaks`: whose
    lock it broke, and when. `client`: a word for its process, empty where it told none."""

    run: str
    header: str
    since: float | None
    stamp: float
    done: bool
    sends: tuple[Sent, ...]
    breaks: tuple[tuple[str, float], ...] = ()
    client: str = ""


class Ledger(Struct, frozen=True):
    """`wall`: a time of day, in seconds since the epoch, and an uptime just after it; `uptime` is
    one just before it. None where the place has no `date` that tells."""

    uptime: float
    runs: tuple[RunFile, ...]
    wall: tuple[float, float] | None = None


class Heard(Struct, frozen=True):
    """An earlier signal, or other ask, a trainer has heard; `ago_s` at the time of reading.

    `times`: how many it has heard in all; the latest one is told. `between`: seconds since the
    epoch between which it went out, None where the ledger's reader had no time of day.
    """

    run: str
    signal: str
    ago_s: float
    times: int = 1
    between: tuple[float, float] | None = None


def parse_ledger(data: bytes) -> Ledger | None:
    """The answer of `ledger`; None where even the clock line is missing."""
    head, _, body = data.decode("utf-8", "backslashreplace").partition("\n")
    uptime = _seconds(head.removeprefix("uptime:")) if head.startswith("uptime:") else None
    if uptime is None:
        return None
    files: dict[str, list[str]] = {}
    first, _, rest = body.partition("\n")
    wall = _wall(first.removeprefix("wall:"), uptime) if first.startswith("wall:") else None
    for line in (rest if first.startswith("wall:") else body).split("\n"):
        found = _LINE.match(line)
        if found is not None:
            files.setdefault(posixpath.basename(found[1]), []).append(found[2])
    runs = tuple(_run(name, lines) for name, lines in files.items())
    return Ledger(uptime=uptime, runs=runs, wall=wall)


def _wall(text: str, uptime: float) -> tuple[float, float] | None:
    now, after = (_seconds(each) for each in text.partition(" ")[::2])
    return None if now is None or after is None or after < uptime else (now, after)


def _run(name: str, lines: list[str]) -> RunFile:
    header, client, since, stamp, done = "", "", None, 0.0, False
    sends: list[Sent] = []
    breaks: list[tuple[str, float]] = []
    for line in lines:
        word, _, rest = line.partition(" ")
        if word == "header":
            # each claim begins with it: until its `since` this run is making up its claim
            (header, _, client), since, done = _decoded(rest).partition("|"), None, False
        elif word == "send":
            sends += _sent(name, rest.split())
        elif word == "unsent":
            sends = [each for each in sends if str(each.n) != rest]
        elif word == "break":
            when, _, whose = rest.partition(" ")
            breaks += [(whose, at)] if (at := _seconds(when)) is not None else []
        elif (at := _seconds(rest)) is not None:
            stamp = max(stamp, at)
            since = at if word == "since" and since is None else since
            done = done or word == "done"
    return RunFile(
        run=name,
        header=header,
        since=since,
        stamp=stamp,
        done=done,
        sends=tuple(sends),
        breaks=tuple(breaks),
        client=client,
    )


def _decoded(word: str) -> str:
    """A framed word as it was: \\0ooo is one byte of UTF-8."""
    raw = _OCTAL.sub(lambda each: bytes([int(each[1], 8) & 255]), word.encode())
    return raw.decode("utf-8", "backslashreplace")


def _sent(run: str, words: list[str]) -> list[Sent]:
    """A line cut by a full disk gives what it holds: half a line still means it may be sent."""
    if len(words) < 4 or (at := _seconds(words[3])) is None:
        return []
    ids = []
    for word in words[4:]:
        pid, _, start = word.partition(":")
        if pid.isdigit() and start.isdigit():
            ids.append(ProcessId(int(pid), int(start)))
    number = int(words[0]) if words[0].isdecimal() and len(words[0]) < 10 else 0
    return [Sent(run=run, n=number, signal=words[1], landing=words[2], uptime=at, ids=tuple(ids))]


def _seconds(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return found if math.isfinite(found) else None  # an endless stamp would lock for good


def undecided(ledger: Ledger, me: str) -> bool:
    """Somebody else is just making a claim: look again before believing to hold the lock."""
    return any(each.since is None and _live(ledger, each) for each in ledger.runs if each.run != me)


def holder(ledger: Ledger) -> RunFile | None:
    """The earliest claim among the live ones; a claim is live for 30 s after its last stamp."""
    live = [each for each in ledger.runs if each.since is not None and _live(ledger, each)]
    return min(live, key=lambda each: (each.since or 0.0, each.run), default=None)


def broken_by(ledger: Ledger, run: RunFile) -> RunFile | None:
    """Who broke this run's lock, by a line that is not older than its claim."""
    claimed = run.stamp if run.since is None else run.since
    for each in ledger.runs:
        if each.run != run.run and any(w == run.run and claimed <= at for w, at in each.breaks):
            return each
    return None


def _live(ledger: Ledger, run: RunFile) -> bool:
    return _signs_of_life(ledger, run) and broken_by(ledger, run) is None


def _signs_of_life(ledger: Ledger, run: RunFile) -> bool:
    # a stamp of the future is nobody's sign of life (a second for the clock's two readings)
    return not run.done and -1.0 < ledger.uptime - run.stamp < STALE_S


def keeps_broken(ledger: Ledger, run: RunFile) -> bool:
    """Whether somebody whose lock this run broke still works: forgotten, it would hold it again."""
    broken = {whose for whose, _ in run.breaks}
    return any(each.run in broken and _signs_of_life(ledger, each) for each in ledger.runs)


def heard_before(
    ledger: Ledger,
    ids: frozenset[ProcessId],
    own: frozenset[tuple[str, int]] = frozenset(),
) -> dict[ProcessId, Heard]:
    """What each of these has heard; the latest one counts. `own`: (run, n) of the lines that
    the asking ladder wrote itself. The same run may have signalled it for another job.

    A line stands before its signal is sent, so a line is taken for a signal. Its landing is the
    worst of all recipients: whoever lives on after a fatal one may be the one that heard it.
    """
    heard: dict[ProcessId, Heard] = {}
    times: dict[ProcessId, int] = {}
    for run in ledger.runs:
        for sent in run.sends:
            if sent.signal == "KILL" or (sent.run, sent.n) in own:
                continue
            for each in set(sent.ids) & ids:
                ago = max(0.0, ledger.uptime - sent.uptime)
                times[each] = times.get(each, 0) + 1
                if each not in heard or ago < heard[each].ago_s:
                    between = _between(ledger, sent.uptime)
                    heard[each] = Heard(sent.run, sent.signal, ago_s=ago, between=between)
    return {each: replace(by, times=times[each]) for each, by in heard.items()}


def _between(ledger: Ledger, uptime: float) -> tuple[float, float] | None:
    """The time of day of an uptime, as exactly as the ledger's two looks at the clocks allow."""
    if ledger.wall is None:
        return None
    now, after = ledger.wall
    return now - (after - uptime) - TICK_S, now - (ledger.uptime - uptime) + TICK_S


def spent(ledger: Ledger, alive: frozenset[ProcessId], me: str) -> tuple[str, ...]:
    """Runs that may be forgotten: not live, and nobody they signalled is alive any more."""
    return tuple(
        each.run
        for each in ledger.runs
        if each.run != me
        and not _signs_of_life(ledger, each)
        and not keeps_broken(ledger, each)
        and not any(set(sent.ids) & alive for sent in each.sends)
    )


def file_of(ledger: Ledger, run: str) -> RunFile | None:
    return next((each for each in ledger.runs if each.run == run), None)


def broke_at(ledger: Ledger, run: str) -> float:
    mine = file_of(ledger, run)
    return max((at for _, at in mine.breaks), default=0.0) if mine is not None else 0.0


def has_line(ledger: Ledger, run: str, number: int) -> bool:
    mine = file_of(ledger, run)
    return mine is not None and any(each.n == number for each in mine.sends)


def last_line(ledger: Ledger, run: str) -> int:
    return max((each.n for one in ledger.runs if one.run == run for each in one.sends), default=0)
