"""Takes the place of an activator that waits, armed, for a client that is gone.

Loaded by activate.py, beside which it lies and which tells of the orders. The job may have heard a
signal by then: at no moment may nobody wait for its end, so that all is prepared before.
"""

import contextlib
import os
import time
from typing import TYPE_CHECKING, Any, Dict, List

if TYPE_CHECKING:
    from fleetstop.remote.scripts import living, swap, wary
else:
    import living  # activate.py has loaded them from beside itself
    import swap
    import wary

Json = Dict[str, Any]
LEAVES_S = 10.0  # so long it may take to hear that it is relieved
LOOK_S = 0.02
ROOM = 4096
UNTOUCHED = "waiting", "cancelled"
UNSEEN = contextlib.suppress(OSError, wary.Refused)


class Relief:
    """`other`: the last state that was told here, empty where none was; `former`: the run whose
    place is taken, or None."""

    def __init__(self, base: "wary.Top", spec: Json) -> None:
        self.base, self.run, self.former = base, spec["run"], spec.get("succeeds")
        self.other = base.said(b"state.json")

    def check(self) -> None:
        """Nobody is at it but, perhaps, the one that is relieved, and that only waits."""
        if self.other.get("run") in (None, self.run):
            return
        run, step = self.other.get("run"), self.other.get("step")
        its = run == self.former and step in UNTOUCHED
        if self.lives() and not its:
            raise wary.Refused(f"run {run} is at it: {step}")
        if self.former is not None and not its:
            raise wary.Refused(f"run {run} was at it meanwhile: {step}")

    def lives(self) -> bool:
        other = self.other
        return bool(other) and not other["ended_at"] and living.alive(other["activator"])

    def inherit(self, made: List[str]) -> None:
        """The directories that it has made are taken back with ours, should it come to that."""
        if self.former is not None:
            theirs = swap.Litter.of_dead(self.base, self.former).told["made"]
            made[:] = sorted({*made, *theirs})

    def take(self) -> bool:
        """Whether there was a place to take; then that is left, and nothing may fail from here on.
        Raises Refused where it was not to be had: then all is as it was."""
        if self.former is None:
            return False
        if self.other.get("run") == self.former and living.alive(self.other["activator"]):
            self._ask(wary.bytes_of(self.former))
        self.other = self.base.said(b"state.json") or self.other
        self.check()  # it may have gone on by itself, and be done
        with UNSEEN:  # where it was killed, nobody has tidied up
            swap.Litter.of_dead(self.base, self.former).remove()
        return True

    def _ask(self, former: bytes) -> None:
        with open(self.base.at(b"order"), "rb") as file:
            before = file.read(ROOM)
        self._say(former + b" yield\n")
        end = time.monotonic() + LEAVES_S
        while living.alive(self.other["activator"]):
            now = self.base.said(b"state.json") or self.other
            if now["step"] not in UNTOUCHED or time.monotonic() >= end:
                self._say(before)  # left lying there it would still send it off later
                raise wary.Refused(f"run {self.former} is at it: {now['step']}")
            time.sleep(LOOK_S)

    def _say(self, line: bytes) -> None:
        new = self.base.at(b"order.relief")
        wary.fill(new, line)
        os.rename(new, self.base.at(b"order"))
