"""What this machine lends to a run: its clock, who sits at it, and where faults are kept."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import os
import tempfile
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

import platformdirs

from fleetstop.core.redact import scrub

_FAULT_S = 2.0


class SystemClock:
    """The real clock; see ports.Clock."""

    def now(self) -> float:
        return time.monotonic()

    def wall(self) -> str:
        return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def operator() -> str:
    """Who runs it, as the lock names them."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def log_fault(run: str, text: str) -> str | None:
    """Keeps a traceback in the user's log directory (0600); its path, None where none can be,
    or not soon: a disk that hangs must not stop who watches a job."""
    kept: list[str] = []
    writing = threading.Thread(target=_keep, args=(run, text, kept), daemon=True)
    with contextlib.suppress(RuntimeError):  # this machine has no thread left to give
        writing.start()
        writing.join(_FAULT_S)
    return kept[0] if kept else None


def _keep(run: str, text: str, kept: list[str]) -> None:
    with contextlib.suppress(OSError):
        place = Path(platformdirs.user_log_dir("fleetstop"))
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.NamedTemporaryFile(
            "w", prefix=f"fault-{run}-", suffix=".log", dir=place, delete=False
        ) as file:
            file.write(scrub(text))
        kept.append(file.name)
