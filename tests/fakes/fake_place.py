"""A scripted Place, and a clock that only moves when somebody sleeps or a test says so."""

from __future__ import annotations

from collections.abc import Sequence

from fleetstop.core.commands import Carried
from fleetstop.core.process import ProcessId
from fleetstop.errors import (
    ContainerFrozen,
    FleetstopError,
    FrameTimedOut,
    PrivilegeMissing,
    RemoteFailed,
)
from fleetstop.ports import Chunks, Progress, Shell
from tests.fakes.fake_shell import FakeShell


class FakePlace:
    """Two scripted shells; what may go wrong when entering is set as an attribute."""

    def __init__(self, *, hz: int = 100, own_pid: int = 900, inside_pid: int = 90) -> None:
        self.host = FakeShell()
        self.within = FakeShell()
        self.hz = hz
        self.own_pid = own_pid
        self.ours_inside: frozenset[ProcessId] = frozenset()
        self.pct_calls = 0
        self.ssh_connections = 1
        self.closed = False
        self.frozen = False
        self.without_root: str | None = None
        self.status: str | FleetstopError = "running"
        self.entering: FleetstopError | None = None
        # with root: where it cannot be entered its files are read from the host
        self.beside: Shell | None = None
        self.files_from_host: str | None = None
        self.hanging: frozenset[int] = frozenset()
        self.hangs_on: frozenset[int] = frozenset()
        self._inside_pid = inside_pid
        self.ways_back: list[FleetstopError | None] = []
        self.no_way_back: FleetstopError | None = None
        self.taken_up = 0
        self.carries: list[Carried | FleetstopError] = []
        self.carried: list[tuple[tuple[str, ...], bytes]] = []

    async def again(self) -> bool:
        self.taken_up += 1
        error = self.ways_back.pop(0) if self.ways_back else self.no_way_back
        if error is not None:
            raise error
        return True

    async def unstick(self) -> frozenset[int] | None:
        self.hanging |= self.hangs_on
        return self.hangs_on

    async def inside(self) -> Shell:
        if self.frozen:
            raise self.frozen_error()
        if self.entering is not None:
            raise self.entering
        if not self.ours_inside:
            self.pct_calls += 1
            self.ours_inside = frozenset({ProcessId(self._inside_pid, 1)})
        return self.within

    async def hands(self) -> Shell:
        return await self.inside()

    async def carry(
        self,
        words: Sequence[str],
        chunks: Chunks,
        deadline_s: float,
        progress: Progress | None = None,
        *,
        outside: bool = False,
    ) -> Carried:
        """The next of `carries`, when all that came is in `carried`."""
        came = bytearray()
        if isinstance(chunks, bytes):
            came += chunks
        else:
            async for chunk in chunks:
                came += chunk
                if progress is not None:
                    progress(len(came))
        self.pct_calls += not outside
        self.carried.append((tuple(words), bytes(came)))
        reply = self.carries.pop(0) if self.carries else Carried(status=0, out=b"", err=b"")
        if isinstance(reply, FleetstopError):
            raise reply
        return reply

    async def files(self) -> Shell:
        try:
            return await self.inside()
        except (RemoteFailed, FrameTimedOut, PrivilegeMissing) as exc:
            if self.beside is None:
                raise
            self.files_from_host = exc.message
            return self.beside

    async def is_frozen(self) -> bool:
        return self.frozen

    def frozen_error(self) -> ContainerFrozen:
        return ContainerFrozen("the container is frozen; entering it would hang")

    async def pct_status(self) -> str:
        self.pct_calls += 1
        if isinstance(self.status, FleetstopError):
            raise self.status
        return self.status

    async def close(self) -> None:
        self.closed = True


class FakeClock:
    """`slept` are all the sleeps so far, in order."""

    def __init__(self, now: float = 1000.0) -> None:
        self.slept: list[float] = []
        self._now = now

    def now(self) -> float:
        return self._now

    def wall(self) -> str:
        return f"2026-01-01T00:00:00Z+{self._now - 1000:g}"

    def advance(self, seconds: float) -> None:
        self._now += seconds

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self._now += seconds
