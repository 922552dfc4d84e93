"""Does work that may hang, in order, beside the event loop; knows nothing of what it writes."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

Work: TypeAlias = Callable[[], None]

LINGERS_S = 1.0
MOST = 5_000
"""What is kept back for a disk that hangs: hours of a run that is watched, a few megabytes."""


class Writer:
    """One thread, begun when there is something to do. It is a daemon: a home directory on a
    network disk that hangs must not keep the program from ending."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._left: deque[Work] = deque()
        self._runs = False

    @property
    def idle(self) -> bool:
        return not self._left

    def _begun(self) -> bool:
        try:
            threading.Thread(target=self._work, name="fleetstop-history", daemon=True).start()
        except RuntimeError:  # this machine has no thread left to give
            return False
        self._runs = True
        return True

    def do(self, work: Work, patience_s: float) -> bool:
        """Hands it over; False where that cannot be, or too much is kept back already.

        It is waited for, so that it is done before what follows it, but never longer than
        `patience_s`, and not at all behind one that hangs. `work` raises nothing.
        """
        with self._changed:
            behind = bool(self._left)
            if len(self._left) >= MOST:
                return False
            self._left.append(work)
            self._changed.notify_all()
            if not self._runs and not self._begun():
                self._left.clear()
                return False
            if not behind:
                self._changed.wait_for(lambda: not self._left, patience_s)
            return True

    def _work(self) -> None:
        while True:
            with self._changed:
                if not self._changed.wait_for(lambda: bool(self._left), LINGERS_S):
                    self._runs = False
                    return
                work = self._left[0]
            try:
                work()
            finally:
                with self._changed:
                    self._left.popleft()
                    self._changed.notify_all()
