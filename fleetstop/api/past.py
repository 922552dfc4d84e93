"""The runs of the past, and the record that a run leaves while it goes on."""

from __future__ import annotations

import asyncio
import time
import traceback
from pathlib import Path

import platformdirs

from fleetstop.api.machine import log_fault
from fleetstop.core.report import Report, exit_code_of
from fleetstop.errors import BadUsage
from fleetstop.events import AnyEvent, Emit, Untold
from fleetstop.history import shelf
from fleetstop.history.record import Record, State
from fleetstop.history.recorder import Recorder
from fleetstop.history.shelf import Entry
from fleetstop.history.writer import Writer

__all__ = ["Record", "Records", "failed_in", "past_run", "past_runs", "records_directory"]


def records_directory() -> Path:
    """`~/.local/state/fleetstop/runs`, or below $XDG_STATE_HOME."""
    return Path(platformdirs.user_state_dir("fleetstop")) / "runs"


def past_runs(limit: int = 20, target: str | None = None) -> tuple[Entry, ...]:
    """The newest first. `target`: of this one only, `ct200` means all jobs of it."""
    return shelf.runs(records_directory(), limit=limit, target=target)


def past_run(prefix: str) -> tuple[Record, State]:
    """The one run whose id begins so; raises BadUsage where none or several do."""
    return shelf.find(records_directory(), prefix)


def failed_in(prefix: str) -> tuple[str, ...]:
    """The targets of that run that did not end well, those that it never came to among them.
    Raises BadUsage where there are none."""
    record, _ = past_run(prefix)
    done = {each.outcome.target: each.outcome for each in record.finished}
    asked = record.started.targets if record.started is not None else tuple(done)
    failed = tuple(e for e in asked if e not in done or exit_code_of(done[e]) != 0)
    if not failed:
        every = f"all {len(asked)} targets" if len(asked) > 1 else "its target"
        raise BadUsage(f"nothing failed in run {record.run}: {every} ended well")
    return failed


PATIENCE_S = 0.05
ENDS_S = 5.0


class Records:
    """The recorders of one fleet, one for each run. `problem`: the last reason why one failed.

    They write beside the event loop: a state directory on a network disk that hangs must stop
    neither the watching nor the clock between two signals.
    """

    def __init__(self, directory: Path | None) -> None:
        self._problem: str | None = None
        self._directory = directory
        self._open: list[Recorder] = []
        self._writer = Writer()
        self._given_up = False

    @property
    def problem(self) -> str | None:
        return next((each.problem for each in self._open if each.problem), self._problem)

    def telling(self, run: str, emit: Emit) -> Emit:
        """Everything goes to the history first, so that a killed client leaves it; what is for it
        alone ends there. The report is told first: writing the whole file may take its time."""
        recorder = Recorder(self._directory, run) if self._directory is not None else None
        if recorder is not None:
            self._open.append(recorder)

        def tell(event: AnyEvent) -> None:
            last = isinstance(event, Report)
            if last:
                emit(event)
            if recorder is not None and recorder.problem is None:
                self._record(recorder, event)
            if not last and not isinstance(event, Untold):
                emit(event)

        return tell

    def _record(self, recorder: Recorder, event: AnyEvent) -> None:
        """A record that cannot be written never hurts the run."""

        def write() -> None:
            try:
                recorder(event)
            except Exception:
                recorder.problem = f"a fault: {log_fault('history', traceback.format_exc())}"

        if not self._writer.do(write, PATIENCE_S):
            recorder.problem = self._hangs()

    def _hangs(self) -> str:
        return f"{self._directory} does not answer"

    async def settle(self) -> None:
        """Until all that was told is on the disk, or the disk has been waited for long enough: that
        is once, whoever asks."""
        over = time.monotonic() + (0.0 if self._given_up else ENDS_S)
        while not self._writer.idle:
            if time.monotonic() > over:
                self._problem, self._given_up = self.problem or self._hangs(), True
                return
            await asyncio.sleep(0.01)

    async def close(self) -> None:
        for each in self._open:
            self._writer.do(each.close, 0.0)
        await self.settle()
        self._problem = self.problem
        self._open.clear()
