"""The directory of all runs: which are there, one of them, and which go; writes no record."""

from __future__ import annotations

import fcntl
import os
import re
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from msgspec import Struct

from fleetstop.errors import BadUsage, CouldNotLook
from fleetstop.history import record
from fleetstop.history.record import Record, State

WHOLE, GROWING = ".json", ".partial"
KEEP = 500
_OURS = re.compile(r"([0-9a-f]{8})(\.json|\.partial)")
# runs that only look go first: a cron job's status must not push out the stop it was about
_LOOKS = re.compile(rb'"command":"(?:status|wait)"')


class Entry(Struct, frozen=True):
    """One run as a row of the list tells it. `exit_code` null: it never came to that.

    `results`: target to result; `state`: ended, interrupted (the client went away), running.
    """

    run: str
    at: str | None
    command: str | None
    targets: tuple[str, ...]
    state: State
    results: dict[str, str]
    exit_code: int | None


def runs(directory: Path, *, limit: int, target: str | None = None) -> tuple[Entry, ...]:
    """The newest first; those that cannot be read are left out (`show` says why)."""
    found: list[Entry] = []
    for path in _listed(directory):
        if len(found) >= limit:
            break
        one = _read(path)
        if one is None:
            continue
        entry = _entry(one, path)
        if target is None or any(_named(target, each) for each in entry.targets):
            found.append(entry)
    # found by when they were last written, told by when they began
    return tuple(sorted(found, key=lambda each: each.at or "", reverse=True))


def _named(word: str, target: str) -> bool:
    return word in (target, target.partition(":")[0])


def find(directory: Path, prefix: str) -> tuple[Record, State]:
    """The one run whose id begins so. Raises BadUsage, naming those that fit."""
    every = _listed(directory)
    if re.fullmatch(r"[0-9a-f]{1,8}", prefix) is None:
        every = []
    fits = {each.name.partition(".")[0]: each for each in every if each.name.startswith(prefix)}
    if not fits:
        raise BadUsage(
            f"there is no run {prefix!r} in {directory}",
            hint="fleetstop history lists the runs; the first letters of one are enough",
        )
    if len(fits) > 1:
        names = ", ".join(list(fits)[:5])
        raise BadUsage(f"{len(fits)} runs begin with {prefix!r}: {names}", hint="name one of them")
    (path,) = fits.values()
    one = _read(path)
    if one is None:
        raise BadUsage(f"{path} cannot be read as a record of a run")
    return one, _state(one, path)


def _listed(directory: Path) -> list[Path]:
    """Raises CouldNotLook: what cannot be read is not taken for empty."""
    try:
        return _newest_first(directory)
    except OSError as exc:
        raise CouldNotLook(f"{directory} cannot be read: {exc.strerror}") from exc


def _newest_first(directory: Path) -> list[Path]:
    """Finished before growing of the same run: a client may have died between the two steps."""
    stamped = []
    try:
        for each in os.scandir(directory):
            if _OURS.fullmatch(each.name) and each.is_file(follow_symlinks=False):
                stamped.append((each.stat().st_mtime, each.name))
    except FileNotFoundError:
        return []
    names = {name for _, name in stamped}
    kept = (n for _, n in sorted(stamped, reverse=True) if not _superseded(n, names))
    return [directory / name for name in kept]


def _superseded(name: str, names: set[str]) -> bool:
    return name.endswith(GROWING) and name.removesuffix(GROWING) + WHOLE in names


def _read(path: Path) -> Record | None:
    try:
        data = path.read_bytes()
        return record.read(data) if path.name.endswith(WHOLE) else record.read_growing(data)
    except (OSError, ValueError):
        return None


def _state(one: Record, path: Path) -> State:
    if one.report is not None:
        interrupted = one.report.exit_code == 130
        return "interrupted" if interrupted else "ended"
    return "running" if _held(path) else "interrupted"


def _held(path: Path) -> bool:
    """Whether the client that writes it still lives: it holds the lock until it ends."""
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:  # no locks there: nobody can be seen to hold it
            return False
    return False


def _entry(one: Record, path: Path) -> Entry:
    started = one.started
    return Entry(
        run=one.run,
        at=started.at if started else _modified(path),
        command=one.command,
        targets=started.targets if started else (),
        state=_state(one, path),
        results=one.results,
        exit_code=one.report.exit_code if one.report else None,
    )


def _modified(path: Path) -> str:
    when = datetime.fromtimestamp(path.stat().st_mtime, UTC)
    return when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def tidy(directory: Path, keep: int = KEEP) -> None:
    """The newest `keep` runs that acted stay, and as many that only looked. Only our own files
    are touched, and none that a client still writes."""
    every = _newest_first(directory)
    if len(every) <= keep:
        return
    kinds: dict[bool, list[Path]] = {True: [], False: []}
    for each in every:
        kinds[_only_looked(each)].append(each)
    for path in (*kinds[True][keep:], *kinds[False][keep:]):
        if path.name.endswith(WHOLE) or not _held(path):
            path.unlink(missing_ok=True)


def _only_looked(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return _LOOKS.search(file.read(1024)) is not None
    except OSError:
        return False


def raw(one: Record) -> object:
    """The record as its file has it, for scripts."""
    return msgspec.to_builtins(one)
