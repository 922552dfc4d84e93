"""What the actions need from the world, as protocols; who provides it they don't know."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Protocol, TypeAlias

from fleetstop.core.climbing.consent import Choice, Question
from fleetstop.core.commands import Answer, Carried, Command
from fleetstop.core.process import ProcessId
from fleetstop.errors import FleetstopError

Confirm: TypeAlias = Callable[[Question], Awaitable[bool]]
"""Asks somebody whether this may be sent. It is cancelled when the question is withdrawn."""
Choose: TypeAlias = Callable[[Choice], Awaitable[str | None]]
"""Asks somebody which of these signals makes the job save; None: neither, or not known."""

Chunks: TypeAlias = AsyncIterator[bytes] | bytes
Progress: TypeAlias = Callable[[int], None]
"""Told how many bytes the far end has taken so far."""


class Clock(Protocol):
    """`now` is monotonic seconds; `wall` is ISO 8601 UTC for people and records."""

    def now(self) -> float: ...

    def wall(self) -> str: ...

    async def sleep(self, seconds: float) -> None: ...


class Shell(Protocol):
    """A persistent remote shell: runs one `Command` at a time, in order.

    Raises ConnectionLost when the connection went away, FrameTimedOut when the command's
    deadline passed (the shell is given up then and every later `run` raises), RemoteFailed
    when the remote side said that it could not.
    """

    async def run(self, command: Command) -> Answer: ...


class Place(Protocol):
    """Where a target lives: the host's shell, and the container's when needed.

    Without root on the host, what needs rights (open files, kill) goes through the container's
    shell; whoever uses `host` does not notice.

    `inside()` opens the container's shell on first use (one `pct exec`) and raises
    ContainerFrozen instead of hanging; without a container it is the host's second shell.
    """

    @property
    def host(self) -> Shell: ...

    @property
    def hz(self) -> int: ...

    @property
    def own_pid(self) -> int:
        """Our own shell on the host."""
        ...

    @property
    def ours_inside(self) -> frozenset[ProcessId]:
        """Our own shells in the container, as it counts, so that none is taken for the job: by
        identity, since a container that was started anew gives the same numbers to others."""
        ...

    @property
    def pct_calls(self) -> int: ...

    @property
    def ssh_connections(self) -> int: ...

    @property
    def without_root(self) -> str | None:
        """Why there is no root on the host, a sentence; None where there is."""
        ...

    async def inside(self) -> Shell: ...

    async def files(self) -> Shell:
        """Reads the target's files (`list`, `log`, `ends`, `pidfile`), and is asked nothing else:
        the container's shell, or, with root, the host's below the container's root where nothing
        can be started in there. Raises as `inside()` does where it is neither."""
        ...

    @property
    def files_from_host(self) -> str | None:
        """Why the files are read from the host and not inside, a sentence; None where they are
        not."""
        ...

    async def hands(self) -> Shell:
        """The shell of `inside()`, and what is asked of it may change things: files are put, the
        job is started. In a dry run it refuses that. Raises as `inside()` does."""
        ...

    async def carry(
        self,
        words: Sequence[str],
        chunks: Chunks,
        deadline_s: float,
        progress: Progress | None = None,
        *,
        outside: bool = False,
    ) -> Carried:
        """One command with a stream for its stdin, on a channel of its own: in the container (one
        `pct exec`), or on the host (`outside`, or without a container) with its shells' rights.

        Binary-safe and of bounded memory: `chunks` is asked for more when the far end takes more.
        Where for `deadline_s` nothing moves, or this is cancelled, the command is ended by
        identity with all below it. It is never repeated: what was carried may be half there.

        Raises FrameTimedOut, ConnectionLost, RemoteFailed, as entering does, and whatever
        `chunks` raises; Refused in a dry run."""
        ...

    async def is_frozen(self) -> bool: ...

    def frozen_error(self) -> FleetstopError: ...

    @property
    def hanging(self) -> frozenset[int]:
        """Host PIDs whose files hung a look: they are skipped since, and to be named."""
        ...

    async def unstick(self) -> frozenset[int] | None:
        """After a host frame that was given up: a fresh host shell takes over (`host` goes on),
        and the PIDs whose files the old one hung on are told; empty where it was not that, None
        where it was the connection and asking again is worth it."""
        ...

    async def again(self) -> bool:
        """After a frame that was lost or given up: `host` and `inside()` work again, and the old
        shells are ended by identity. Whether it took another connection, one try at it.

        Raises HostUnreachable, ConnectionLost, FrameTimedOut where it did not come about."""
        ...

    async def pct_status(self) -> str:
        """`running` or `stopped`; raises ContainerMissing."""
        ...

    async def close(self) -> None: ...


class Cluster(Protocol):
    """A Proxmox API that is read, and nothing else."""

    @property
    def url(self) -> str: ...

    async def get(self, path: str) -> object:
        """What the API says of this path (`cluster/status`), as JSON's own types; never None.

        Raises HostUnreachable (CertificateRefused, LoginRefused), PrivilegeMissing for a right
        that the token lacks, NodeUnreachable for a path below a node that the API cannot reach,
        RemoteFailed for any other answer. No message holds the token.
        """
        ...
