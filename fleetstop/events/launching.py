"""Events of a launch, restart or redeploy, from the activator to its health."""

from __future__ import annotations

from fleetstop.events.event import Event


class Armed(Event, frozen=True, tag="armed"):
    """What will start the job waits in the container, and goes on without us; `pid` is its
    number there. `roll_back`: it brings the old version back by itself."""

    pid: int
    roll_back: bool


class Activated(Event, frozen=True, tag="activated"):
    """The files were swapped; `release` null: there were none. `log_rotated`: where the old log
    is now, null where it was left."""

    release: str | None
    log_rotated: str | None


class Launched(Event, frozen=True, tag="launched"):
    """`pid`: the container's number of what was started; `old`: the version before, again."""

    pid: int
    cmd: str
    release: str | None
    within_s: float
    old: bool = False


class LogSaid(Event, frozen=True, tag="log_said"):
    """New lines of the job's log, verbatim but for secrets; `left_out`: how many more."""

    path: str
    lines: tuple[str, ...]
    left_out: int = 0


class Healthy(Event, frozen=True, tag="healthy"):
    """`by`: what was seen of it, a sentence each; `pids`: its trainers."""

    pids: tuple[int, ...]
    by: tuple[str, ...]
    seconds: float
    old: bool = False


class Unhealthy(Event, frozen=True, tag="unhealthy"):
    """`why`: a sentence each. `log`: the last lines, redacted."""

    why: tuple[str, ...]
    log: tuple[str, ...] = ()
    old: bool = False


class RollingBack(Event, frozen=True, tag="rolling_back"):
    """What was started is to end, or has, and the version before comes back."""

    release: str | None


class RolledBack(Event, frozen=True, tag="rolled_back"):
    """The files of the version before are in place and it was started as `pid`; null: nothing
    was, `problem` says why."""

    release: str | None
    pid: int | None
    problem: str | None = None
