"""What goes to the history only: looks in full, and all that was to be had before a hard end."""

from __future__ import annotations

from msgspec import Struct

from fleetstop.events.event import Event


class Untold(Event, frozen=True):
    """A fact in full length, for the history only: no screen shows it, `--events` has it not."""


class SeenProcess(Struct, frozen=True):
    """One member of the family at one look. Masks are hexadecimal as /proc prints them, null
    unseen; `blocked` is the AND over all threads. `state` null: it was gone by then."""

    pid: int
    host_pid: int
    start: int
    role: str
    cmd: str
    verdict: str | None
    state: str | None = None
    ppid: int | None = None
    threads: int | None = None
    rss_kib: int | None = None
    tracer: int | None = None
    pending: str | None = None
    blocked: str | None = None
    ignored: str | None = None
    caught: str | None = None


class Snapshot(Untold, frozen=True, tag="snapshot"):
    """A turning point. `moment`: found, before INT, end."""

    moment: str
    verdict: str | None
    evidence: tuple[str, ...]
    processes: tuple[SeenProcess, ...]


class Opened(Struct, frozen=True):
    """A file a process has open; `flags` octal as open(2) took them, `pos` in bytes."""

    fd: int
    path: str
    flags: str | None
    pos: int | None


class Boxed(Struct, frozen=True):
    """What is kept of one process before it may die. `wchan`: where it sleeps in the kernel,
    null unseen; `files` null unseen."""

    process: SeenProcess
    wchan: str | None
    files: tuple[Opened, ...] | None
    stack: tuple[str, ...] = ()


class BlackBox(Untold, frozen=True, tag="black_box"):
    """All that could be had of the job before the first signal that may lose work.

    `log` and `nvidia_smi`: lines, null where they could not be had; `missing`: why not.
    """

    before: str
    processes: tuple[Boxed, ...]
    log: tuple[str, ...] | None
    nvidia_smi: tuple[str, ...] | None
    seconds: float
    missing: tuple[str, ...] = ()
