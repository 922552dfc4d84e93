"""What the client of an activation wants, and whether it is there. Does nothing about it.

Loaded by activate.py, beside which it lies and which tells of the orders.
"""

import contextlib
import os
import time
from typing import TYPE_CHECKING, Dict, List, Optional, Tuple

if TYPE_CHECKING:
    from fleetstop.remote.scripts import wary
else:
    import wary  # activate.py has loaded it from beside itself

LOOK_S = 0.1
ROOM = 4096
UNSEEN = contextlib.suppress(OSError, wary.Refused)


class Client:
    """Time passes by looks, at most 1 s with each: while a container is frozen its client cannot
    be heard. `why`: what it gave as its reason with the last order."""

    def __init__(self, base: "wary.Top", run: str, stale_s: float) -> None:
        self.base, self.run, self.stale_s = base, wary.bytes_of(run), stale_s
        self.word, self.why = None, ""  # type: Optional[str], str
        self.now, self._last = 0.0, time.monotonic()
        self._heard, self._beat = 0.0, self._mark()
        self._left = None  # type: Optional[float]

    def look(self, words: str, every: float = LOOK_S) -> bool:
        """Whether it said another one of `words`, or that it leaves."""
        time.sleep(every)
        last, self._last = self._last, time.monotonic()
        self.now += min(self._last - last, 1.0)
        beat, said = self._mark(), self._order()
        if beat != self._beat:
            self._beat, self._heard = beat, self.now
        if not said or said[0] not in words.split():
            return False
        left, new = said[1:2] == ["alone"], said[0] != self.word
        new_left = left and self._left is None
        self._left = (self.now if new_left else self._left) if left else None
        self.word, self.why = said[0], " ".join(said[1 + left :])
        if new:
            self._heard = self.now
        return new or new_left

    @property
    def judged(self) -> "Optional[Dict[str, int]]":
        """Whom it has found to be well, as it said with `done`: what was started may have ended,
        and left its trainer to itself."""
        words = self.why.split()
        if len(words) != 2 or not all(word.isdigit() for word in words):
            return None
        return {"pid": int(words[0]), "start": int(words[1])}

    def gone_s(self) -> float:
        """So long it is known that it has left; negative while it is there."""
        silent = self.now - self._heard - self.stale_s
        return silent if self._left is None else max(self.now - self._left, silent)

    def _order(self) -> List[str]:
        with UNSEEN, open(self.base.at(b"order"), "rb") as file:
            said = file.read(ROOM).split()
            if len(said) > 1 and said[0] == self.run:
                return [word.decode("utf-8", "backslashreplace") for word in said[1:]]
        return []

    def _mark(self) -> Optional[Tuple[int, int]]:
        with UNSEEN:
            seen = os.lstat(self.base.at(b"beat"))
            return seen.st_ino, seen.st_mtime_ns
        return None
