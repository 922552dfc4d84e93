"""Listens to one run and writes what it hears; what fails here never reaches the run."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from datetime import datetime
from pathlib import Path

from fleetstop import __version__
from fleetstop.core.jsonline import line
from fleetstop.core.report import Report
from fleetstop.events import AnyEvent, Holding, Staging
from fleetstop.history import record, shelf

HOLD_EVERY_S = 5.0


def _seconds(before: str, after: str) -> float:
    """Between two stamps of the clock's `wall`; a stamp of another kind is no repetition."""
    try:
        return (datetime.fromisoformat(after) - datetime.fromisoformat(before)).total_seconds()
    except ValueError:
        return HOLD_EVERY_S


class Recorder:
    """Every event is on the disk as soon as it is told, in RUN.partial; the report makes RUN.json
    of it. `problem`: why nothing more is written; None while all is well.

    The growing file is locked (flock(2)) while this client lives: that tells it from one that was
    left behind, without any PID.
    """

    def __init__(self, directory: Path, run: str) -> None:
        self.problem: str | None = None
        self._directory, self._run = directory, run
        self._lines: list[str] = []
        self._file: int | None = None
        self._held: dict[str | None, Holding] = {}
        self._sent: dict[str | None, Staging] = {}

    def __call__(self, event: AnyEvent) -> None:
        if self.problem is not None or self._repeats(event):
            return
        try:
            self._write(line(event))
            if isinstance(event, Report):
                self._finish()
        except OSError as exc:
            self.problem = f"{exc.strerror or exc}: {exc.filename or self._directory}"
            self.close()

    def _repeats(self, event: AnyEvent) -> bool:
        """A save of half an hour is told ten times a second, and a large file on its way four
        times; every five seconds is enough."""
        if isinstance(event, Staging):
            return self._on_its_way(event)
        if not isinstance(event, Holding):
            return False
        before = self._held.get(event.target)
        same = before is not None and (before.why, before.over_wait) == (event.why, event.over_wait)
        if before is not None and same and _seconds(before.at, event.at) < HOLD_EVERY_S:
            return True
        self._held[event.target] = event
        return False

    def _on_its_way(self, event: Staging) -> bool:
        before = self._sent.get(event.target)
        under_way = 0 < event.sent < event.size
        if before is not None and under_way and _seconds(before.at, event.at) < HOLD_EVERY_S:
            return True
        self._sent[event.target] = event
        return False

    def close(self) -> None:
        """Lets go of the growing file; without a report it stays, as what is known."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.close(self._file)
            self._file = None

    def _write(self, text: str) -> None:
        if self._file is None:
            self._file = self._open()
        self._lines.append(text)
        os.write(self._file, text.encode() + b"\n")

    def _open(self) -> int:
        self._directory.mkdir(parents=True, exist_ok=True)
        self._directory.chmod(0o700)
        path = self._directory / f"{self._run}{shelf.GROWING}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        opened = os.open(path, flags, 0o600)
        with contextlib.suppress(OSError):  # some network homes know no locks
            fcntl.flock(opened, fcntl.LOCK_EX)
        self._lines.append(record.head(self._run, __version__))
        os.write(opened, self._lines[0].encode() + b"\n")
        return opened

    def _finish(self) -> None:
        """In one step: whoever looks finds the growing file or the whole one, never half of it."""
        made, name = tempfile.mkstemp(prefix=f".{self._run}.", dir=self._directory)
        try:
            with os.fdopen(made, "wb") as file:
                file.write(record.whole(self._lines))
                file.flush()
                os.fsync(file.fileno())
            Path(name).rename(self._directory / f"{self._run}{shelf.WHOLE}")
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise
        self.close()
        (self._directory / f"{self._run}{shelf.GROWING}").unlink(missing_ok=True)
        shelf.tidy(self._directory)
