"""What is kept of a job before the first signal that may lose its work; never in its way."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable
from typing import TypeVar

from fleetstop import events
from fleetstop.actions import looks, reading
from fleetstop.actions.snapshots import seen
from fleetstop.actions.stacks import stacks
from fleetstop.actions.telling import Scope
from fleetstop.core.climbing.rungs import Send
from fleetstop.core.commands import Command
from fleetstop.core.kin.family import Family
from fleetstop.core.process import Process, ProcessTree
from fleetstop.core.redact import text
from fleetstop.core.report import Stack
from fleetstop.core.verdict import Judged
from fleetstop.errors import FleetstopError
from fleetstop.events import Boxed, Opened

# A forced stop waits no longer than this for what it leaves behind.
BOUND_S = 3.0
_SMI_MS = 1500
_STACKS_S = 1.0
# what is told of a family of hundreds must not take longer than it may
_MOST_PROCESSES = 64
_MOST_FILES = 600
_LOG_LINES = 40

T = TypeVar("T")


class BlackBoxes:
    """One climb's: taken once, before its first lossy signal."""

    def __init__(self, scope: Scope, *, smi: bool) -> None:
        """`smi`: whether nvidia-smi may be asked."""
        self._scope, self._may_smi = scope, smi
        self._taken = False
        self._until = 0.0
        self._missing: list[str] = []

    async def wanted(
        self, send: Send, family: Family, tree: ProcessTree, judged: Judged | None
    ) -> bool:
        """Whether one was taken now: then the look that decided on this signal is old, and the
        next one decides anew. Whatever fails here is noted in it and hinders nothing."""
        if not send.lossy or self._taken:
            return False
        self._taken = True
        try:
            await self._take(send.signal, family, tree, judged)
        except Exception:
            # a bug in a witness must not keep the signal from going out
            self._scope.log_fault(traceback.format_exc())
        return True

    async def _take(
        self, signal: str, family: Family, tree: ProcessTree, judged: Judged | None
    ) -> None:
        started = self._scope.clock.now()
        self._until = asyncio.get_running_loop().time() + BOUND_S
        pids = [kin.id.pid for kin in family.members if tree.get(kin.id) is not None]
        # two shells: the host's and the container's; each answers in its own time
        (places, smi, dumps), log = await looks.together(
            self._outside(pids, family), self._or_why("the log's end", self._log)
        )
        boxed: list[Boxed] = []
        room = _MOST_FILES
        order = {"trainer": 0, "worker": 2}
        everybody = sorted(seen(family, tree, judged), key=lambda s: order.get(s.role, 1))
        if len(everybody) > _MOST_PROCESSES:
            self._missing.append(f"{len(everybody) - _MOST_PROCESSES} more processes")
        for each in everybody[:_MOST_PROCESSES]:
            process = tree.processes.get(each.host_pid)
            dump = next((s.text for s in dumps or () if s.pid == each.pid), ())
            place = (places or {}).get(each.host_pid)
            files = _files(process, room)
            room -= len(files or ())
            boxed.append(Boxed(each, place, files, dump))
        self._scope.teller.tell(
            events.BlackBox,
            before=signal,
            processes=tuple(boxed),
            log=log,
            nvidia_smi=smi,
            seconds=round(self._scope.clock.now() - started, 3),
            missing=tuple(self._missing),
        )

    async def _outside(
        self, pids: list[int], family: Family
    ) -> tuple[dict[int, str] | None, tuple[str, ...] | None, tuple[Stack, ...] | None]:
        return (
            await self._or_why("where they sleep", lambda: looks.wchan(self._scope.place, pids)),
            await self._or_why("nvidia-smi", self._smi),
            await self._or_why("stacks", lambda: self._stacks(family)),
        )

    async def _or_why(self, what: str, work: Callable[[], Awaitable[T]]) -> T | None:
        """None where it could not be had within the bound; why is noted. Begun here: a stop that
        is cut short before leaves nothing half done."""
        try:
            async with asyncio.timeout_at(self._until):
                return await work()
        except TimeoutError:
            self._missing.append(f"{what}: not had within {BOUND_S:g} s")
        except FleetstopError as exc:
            self._missing.append(f"{what}: {text(exc.message)}")
        return None

    async def _smi(self) -> tuple[str, ...] | None:
        """As it was printed; the far end gives it up by itself before our bound."""
        if not self._may_smi:
            return None
        answer = await self._scope.place.host.run(
            Command("gpus", (str(_SMI_MS),), deadline_s=BOUND_S * 4)
        )
        if answer.status != 0:
            self._missing.append(f"nvidia-smi: status {answer.status}")
            return None
        marks = ("gpus 0", "apps 0")  # the verb's own: each part was answered
        return tuple(x for x in _lines(answer.data.replace(b"\0", b"")) if x not in marks)

    async def _stacks(self, family: Family) -> tuple[Stack, ...]:
        # only what costs nothing to ask for: the host's own py-spy
        return await stacks(self._scope, family, within_s=_STACKS_S, inside=False)

    async def _log(self) -> tuple[str, ...] | None:
        job = self._scope.target.job
        if job is None or job.log is None:
            return None
        tail = await reading.log(await self._scope.place.files(), job.log)
        if tail is None:
            self._missing.append("the log's end: it could not be read")
            return None
        return tuple(text(each, 400) for each in tail.lines[-_LOG_LINES:])


def _lines(data: bytes) -> tuple[str, ...]:
    said = data.decode("utf-8", "backslashreplace").splitlines()
    return tuple(text(each, 400) for each in said if each.strip())


def _files(process: Process | None, room: int) -> tuple[Opened, ...] | None:
    """Whoever writes it down takes secrets out of the names, as of everything."""
    files = process.detail.files if process is not None and process.detail else None
    if files is None:
        return None
    return tuple(
        Opened(
            fd=each.fd,
            path=each.target[:400],
            flags=None if each.flags is None else f"{each.flags:o}",
            pos=each.pos,
        )
        for each in files[:room]
    )
