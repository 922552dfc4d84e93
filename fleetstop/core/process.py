"""Processes as one look saw them, by identity; knows no /proc format and no job."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from msgspec import Struct

from fleetstop.core.signals import Landing, Masks, landing

# include/linux/sched.h: on its way out; forked and never exec'd since
PF_EXITING = 0x4
PF_FORKNOEXEC = 0x40
PF_KTHREAD = 0x00200000
_GPU_DEVICE = re.compile(r"/dev/nvidia[0-9]+$")
_O_APPEND = 0o2000
_O_ACCMODE = 0o3


class ProcessId(Struct, frozen=True, order=True):
    """A process's identity on the host: its PID there and its start in clock ticks since boot.

    Only the pair ever reaches anything that signals: a PID alone may be somebody else by then.
    """

    pid: int
    start: int


class OpenFile(Struct, frozen=True):
    """`flags` as open(2) took them; `pos` in bytes. None: could not be read."""

    fd: int
    target: str
    flags: int | None
    pos: int | None

    @property
    def writable_file(self) -> bool:
        """A path opened for writing, not for appending, not stdin, stdout or stderr."""
        return self._written_to and not self._appends

    @property
    def appended_file(self) -> bool:
        """The same, but opened for appending: a log, or a checkpoint written in pieces."""
        return self._written_to and self._appends

    @property
    def _appends(self) -> bool:
        return bool((self.flags or 0) & _O_APPEND)

    @property
    def _written_to(self) -> bool:
        return (
            self.fd > 2
            and self.target.startswith("/")
            and not self.target.startswith(("/proc/", "/sys/", "/memfd:"))
            # memory that is a directory: people save there
            and (not self.target.startswith("/dev/") or self.target.startswith("/dev/shm/"))  # noqa: S108
            and self.flags is not None
            and self.flags & _O_ACCMODE != 0
        )

    @property
    def gpu(self) -> bool:
        return _GPU_DEVICE.match(self.target.removesuffix(" (deleted)")) is not None


class Detail(Struct, frozen=True):
    """What a second, closer look adds. None: could not be seen.

    `blocked` is the AND over all living threads, `pending` the OR of what waits for one of them
    alone, `states` their state letters. `written` and `read`: bytes passed through write(2) and
    read(2) so far. Of the main thread (of all living ones
    where it has ended): `switches` voluntary context switches so far, `wchan` the
    kernel function it waits in (None: it runs, or could not be seen), `syscall` the number of the
    call it is in (`running`: none that could be told). From the environment it was exec'd with:
    `rank` is its RANK and LOCAL_RANK, `ranks_here` its LOCAL_WORLD_SIZE, `started_in` its PWD.
    `mark` is its FLEETSTOP_MARK (set by our launch), `shutdown_s` TORCH_ELASTIC_SHUTDOWN_TIMEOUT.
    """

    blocked: int | None = None
    files: tuple[OpenFile, ...] | None = None
    cwd: str | None = None
    rank: str | None = None
    started_in: str | None = None
    ranks_here: int | None = None
    written: int | None = None
    read: int | None = None
    wchan: str | None = None
    syscall: str | None = None
    switches: int | None = None
    pending: int = 0
    states: str = ""
    mark: str | None = None
    shutdown_s: str | None = None


class Process(Struct, frozen=True):
    """One process. `inner` are its PIDs in nested namespaces, outermost (the container's) first.
    `ticks`: its CPU time so far, of which `system` in the kernel.

    `nested`: those namespaces lie below the place itself, like a docker container's on a plain
    host; the place's own people, its pgrep and its pid files know it by the host's number.
    """

    id: ProcessId
    ppid: int
    pgid: int
    sid: int
    state: str
    comm: str
    flags: int
    threads: int
    ticks: int
    system: int = 0
    rss_kib: int = 0
    uid: int = 0
    tracer: int = 0
    inner: tuple[int, ...] = ()
    nested: bool = False
    inner_pgid: int | None = None
    masks: Masks | None = None
    cgroups: tuple[str, ...] = ()
    argv: tuple[str, ...] | None = None
    detail: Detail | None = None

    @property
    def pid(self) -> int:
        """The number people know it by: the container's, or the host's on a plain host."""
        return self.inner[0] if self.inner and not self.nested else self.id.pid

    @property
    def zombie(self) -> bool:
        """Dead and not reaped. A dead leader with living threads is alive."""
        return self.state in "ZX" and self.threads <= 1

    @property
    def alive(self) -> bool:
        return not self.zombie

    @property
    def headless(self) -> bool:
        """Its first thread has ended, others live on: state Z, and alive."""
        return self.state == "Z" and self.threads > 1

    @property
    def pending(self) -> int:
        """Signals sent to it that it has not taken."""
        return (self.masks.pending if self.masks else 0) | (
            self.detail.pending if self.detail else 0
        )

    @property
    def suspended(self) -> bool:
        return self.state in "Tt"

    @property
    def forked(self) -> bool:
        return bool(self.flags & PF_FORKNOEXEC)

    @property
    def exiting(self) -> bool:
        """It has begun to end: nothing is delivered to it any more."""
        return bool(self.flags & PF_EXITING)

    @property
    def kernel_thread(self) -> bool:
        # not by its parent: where the host's /proc is a namespace of its own, 2 is anybody
        return bool(self.flags & PF_KTHREAD)

    @property
    def gpus(self) -> tuple[str, ...]:
        """The GPU device nodes it has open, as it names them; empty where none or unseen."""
        files = self.detail.files if self.detail else None
        return tuple(sorted({f.target for f in files or () if f.gpu}))

    def landing(self, signal: str) -> Landing | None:
        """How `signal` would land now; None where its masks could not be read."""
        if signal == "KILL":
            return "fatal"  # no mask can change that
        if self.masks is None:
            return None
        blocked = self.detail.blocked if self.detail else None
        seen = Masks(
            pending=self.masks.pending,
            blocked=blocked,
            ignored=self.masks.ignored,
            caught=self.masks.caught,
        )
        return landing(seen, signal, namespace_init=bool(self.inner) and self.inner[-1] == 1)


class ProcessTree(Struct, frozen=True):
    """One look at a place: processes by host PID, at `uptime` seconds since the host's boot."""

    processes: dict[int, Process]
    uptime: float
    hz: int = 100

    def get(self, identity: ProcessId) -> Process | None:
        found = self.processes.get(identity.pid)
        return found if found is not None and found.id == identity else None

    def children(self, pid: int) -> list[Process]:
        return [each for each in self.processes.values() if each.ppid == pid]

    def below(self, pid: int) -> Iterator[Process]:
        """All descendants, parents before children; safe against cycles in a torn look."""
        kids: dict[int, list[Process]] = {}
        for each in self.processes.values():
            kids.setdefault(each.ppid, []).append(each)
        seen, queue = {pid}, [pid]
        while queue:
            for child in kids.get(queue.pop(0), []):
                if child.id.pid not in seen:
                    seen.add(child.id.pid)
                    queue.append(child.id.pid)
                    yield child

    def above(self, pid: int) -> Iterator[Process]:
        """Ancestors within the look, nearest first."""
        seen = {pid}
        here = self.processes.get(pid)
        while here is not None and here.ppid not in seen:
            seen.add(here.ppid)
            here = self.processes.get(here.ppid)
            if here is not None:
                yield here

    def without(self, pids: Iterable[int]) -> ProcessTree:
        gone = set(pids)
        kept = {pid: each for pid, each in self.processes.items() if pid not in gone}
        return ProcessTree(processes=kept, uptime=self.uptime, hz=self.hz)

    def called(self, pid: int) -> str:
        """The process with this host PID as people know it: its number and its command."""
        found = self.processes.get(pid)
        if found is None:
            # TracerPid is 0 for a tracer in a namespace that the reader cannot see (proc(5))
            return f"host PID {pid}, outside this place" if pid else "a process that is not seen"
        return f"{found.pid} {found.comm}"

    def age_s(self, process: Process) -> float:
        return max(0.0, self.uptime - process.id.start / self.hz)
