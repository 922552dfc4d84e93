"""The state file of an activation, replaced by rename and written into room that was taken before.

Loaded by activate.py, beside which it lies and which tells of what stands in it.
"""

import contextlib
import datetime
import json
import os
from typing import TYPE_CHECKING, Any, Dict

if TYPE_CHECKING:
    from fleetstop.remote.scripts import wary
else:
    import wary  # activate.py has loaded it from beside itself

Json = Dict[str, Any]
ROOM = 4096
UNSEEN = contextlib.suppress(OSError, wary.Refused)


class Record:
    """`state`: what is told, which others change too."""

    def __init__(self, base: "wary.Top", state: Json) -> None:
        self.base, self.state = base, state

    def say(self, step: str, **more: Any) -> bool:
        """A state that cannot be told does not hold up what it tells of."""
        try:
            self.write(step, **more)
        except (OSError, wary.Refused):
            return False
        return True

    def write(self, step: str, **more: Any) -> None:
        self.state.update(step=step, at=now(), **more)
        new, path = self.base.at(b"state.json.new"), self.base.at(b"state.json")
        with wary.doing("write", path):
            wary.fill(new, json.dumps(self.state).encode("ascii") + b"\n")
            os.rename(new, path)
            with self.base.folder(b"") as here:
                os.fsync(here)
        with UNSEEN:
            wary.fill(new, b" " * ROOM)

    def no_room(self) -> None:
        with UNSEEN:
            os.unlink(self.base.at(b"state.json.new"))


def now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds")
