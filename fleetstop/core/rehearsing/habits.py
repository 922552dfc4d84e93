"""What a simulated process does with signals, in virtual time: the actors of a rehearsal.

A second signal into a save, or any signal into a periodic one, costs the checkpoint: here as in
real life (measured: the file is cut, and where it is rewritten in place the old one is gone too).
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

from fleetstop.core.durations import FOREVER
from fleetstop.core.process import Detail, OpenFile, Process, ProcessId
from fleetstop.core.signals import NUMBERS, Masks

WRITE_ONLY = 0o100001
Phase: TypeAlias = Literal["training", "memory", "file", "leaving", "gone"]


class Habit(Struct, frozen=True):
    """What a process does with signals. Seconds; `periodic` are spans of its own saves."""

    hears: tuple[str, ...] = ("INT",)
    ignores: tuple[str, ...] = ()
    blocks: tuple[str, ...] = ()
    obeys: bool = True  # False: hears, logs it, trains on
    saves: bool = True
    memory_s: float = 0.0
    file_s: float = 1.0
    leaving_s: float = 0.1
    writes_for_s: float = FOREVER  # the disk hangs after so much of the file phase
    shuts_ears: bool = False  # Lightning: ignores INT and TERM while it shuts down
    periodic: tuple[tuple[float, float], ...] = ()
    periodic_grows: bool = True
    idle: bool = False  # no CPU, no step: stalled
    grows_memory: bool = False
    state: str = "S"
    tracer: int = 0
    masks_seen: bool = True
    files_seen: bool = True
    linger_s: float = 0.5  # how long it outlives its parent; wrapper: its last child
    survives_kill: bool = False  # in D
    restarts_s: float | None = None  # wrapper: a loop that starts the job again after so long
    obeys_asks: tuple[str, ...] = ()  # TOUCH, RUN, KEYS: it saves and leaves
    drains: bool = False  # a server: the first signal drains, the second ends it


POLITE = Habit()
DRAINS = Habit(drains=True, saves=False)
DEAF = Habit(hears=(), ignores=("INT", "QUIT"))
DEAF_SAVES_ON_TERM = Habit(hears=("TERM",), ignores=("INT", "QUIT"))
IGNORES_ALL = Habit(hears=(), ignores=("INT", "TERM"))
LEAVES_UNSAVED = Habit(saves=False)
SUSPENDED = Habit(state="T")
SHRUGS = Habit(obeys=False)
WORKER = Habit(hears=(), ignores=("INT",), saves=False, idle=True)
SHELL = Habit(hears=(), saves=False, idle=True)
LOOP = Habit(hears=(), saves=False, idle=True, restarts_s=1.0)


class Actor:
    """One process of the job, with its life so far."""

    def __init__(
        self,
        pid: int,
        ppid: int,
        argv: tuple[str, ...],
        habit: Habit,
        *,
        forked: bool = False,
        born: float | None = None,
    ) -> None:
        """`born`: seconds since the host's boot; unsaid, long before the first look."""
        self.id = ProcessId(pid, pid * 10 if born is None else int(born * 100))
        self.ppid, self.argv, self.habit, self.forked = ppid, argv, habit, forked
        self.rank = False
        self.pgid = 100
        self.state = habit.state
        self.asked: float | None = None
        self.died: float | None = None
        self.parent_ended: float | None = None
        self.heard: list[str] = []
        self.queued: list[str] = []
        self.saved = self.lost = False
        self.draining = False
        self.killed = False  # and KILL waits

    def phase(self, now: float) -> Phase:
        if self.died is not None:
            return "gone"
        if self.asked is None or not self.habit.obeys:
            return "training"
        spent, habit = now - self.asked, self.habit
        if habit.saves and spent < habit.memory_s:
            return "memory"
        if habit.saves and (spent - habit.memory_s < habit.file_s or self.hangs):
            return "file"
        whole = habit.memory_s + habit.file_s if habit.saves else 0.0
        return "leaving" if spent < whole + habit.leaving_s else "gone"

    def trained_until(self, now: float) -> float:
        """Until then it wrote checkpoints as usual: nobody does who has ended, obeys a signal,
        or is stuck."""
        stuck = 0.0 if self.habit.idle else None
        asked = self.asked if self.habit.obeys else None
        return min((at for at in (stuck, asked, self.died) if at is not None), default=now)

    @property
    def hangs(self) -> bool:
        return self.habit.writes_for_s < self.habit.file_s

    def in_periodic(self, now: float) -> bool:
        return self.asked is None and any(a <= now < b for a, b in self.habit.periodic)

    def live(self, now: float) -> None:
        """Let what is due at `now` happen."""
        if self.died is None and self.phase(now) == "gone":
            self.died = now
            self.saved = self.habit.saves and not self.lost
        if (
            self.died is None
            and self.parent_ended is not None
            and now >= self.parent_ended + self.habit.linger_s
        ):
            self.died = now

    def receive(self, signal: str, now: float) -> None:
        if self.died is not None:
            return
        if signal == "CONT":
            self.state = "S" if self.state == "T" else self.state
            waiting, self.queued = self.queued, []
            for each in waiting:
                self.receive(each, now)
            return
        if self.state == "T" and signal != "KILL":
            self.queued.append(signal)
            return
        match self._landing(signal):
            case "heard":
                self._hear(signal, now)
            case "fatal" if self.habit.survives_kill:
                self.killed, self.state = True, "D"
            case "fatal":
                self.lost = self.lost or self.saving(now)
                self.died = now

    def ask(self, word: str, now: float) -> None:
        """Something else than a signal: a stop file, a command, keys."""
        self.heard.append(word)
        if self.died is None and word in self.habit.obeys_asks:
            self._leave(now)

    def saving(self, now: float) -> bool:
        return self.phase(now) in ("memory", "file") or self.in_periodic(now)

    def _hear(self, signal: str, now: float) -> None:
        self.heard.append(signal)
        if not self.habit.obeys:
            return
        if self.habit.drains and not self.draining:
            self.draining = True
            return
        self._leave(now)

    def _leave(self, now: float) -> None:
        # measured (facts on signals, 8): the file is cut and the old checkpoint gone with it
        if self.asked is not None or self.in_periodic(now):
            self.lost = True
            self.died = now
        else:
            self.asked = now

    def _landing(self, signal: str) -> str | None:
        return self.process(0.0, see_all=True).landing(signal)

    def masks(self) -> Masks:
        ignores: tuple[str, ...] = self.habit.ignores
        if self.asked is not None and self.habit.shuts_ears:
            ignores = (*ignores, "INT", "TERM")
        ignored = sum(1 << (NUMBERS[each] - 1) for each in set(ignores))
        caught = sum(1 << (NUMBERS[each] - 1) for each in self.habit.hears)
        pending = 1 << (NUMBERS["KILL"] - 1) if self.killed else 0
        return Masks(pending=pending, blocked=None, ignored=ignored, caught=caught & ~ignored)

    def process(self, now: float, *, see_all: bool = False) -> Process:
        habit = self.habit
        blocked = sum(1 << (NUMBERS[each] - 1) for each in habit.blocks)
        return Process(
            id=self.id,
            ppid=self.ppid,
            pgid=self.pgid,
            sid=100,
            state="Z" if self.died is not None else self.state,
            comm=self.argv[0],
            flags=0x40 if self.forked else 0,
            threads=1,
            ticks=0 if habit.idle else int(now * 50),
            rss_kib=100_000 + self._memory(now),
            tracer=habit.tracer,
            masks=self.masks() if habit.masks_seen or see_all else None,
            argv=self.argv,
            detail=Detail(
                blocked=blocked,
                files=tuple(self._files(now)) if habit.files_seen else None,
                rank=f"RANK={self.id.pid}" if self.rank else None,
                written=self._written(now),
            ),
        )

    def _memory(self, now: float) -> int:
        if self.habit.grows_memory:
            return int(now * 20_000)
        if self.asked is None or not self.habit.saves:
            return 0
        return int(min(now - self.asked, self.habit.memory_s) * 20_000)

    def _written(self, now: float) -> int:
        if self.phase(now) != "file" or self.asked is None:
            return 0
        spent = now - self.asked - self.habit.memory_s
        return int(min(spent, self.habit.writes_for_s) * 10_000_000)

    def _files(self, now: float) -> list[OpenFile]:
        files = [OpenFile(1, "/train.log", WRITE_ONLY, 1)]
        if self.rank:
            files.append(OpenFile(5, f"/dev/nvidia{self.id.pid % 8}", 2, 0))
        if self.phase(now) == "file":
            files.append(OpenFile(7, "/ck/last.pt.tmp", WRITE_ONLY, self._written(now)))
        for start, end in self.habit.periodic:
            if self.asked is None and start <= now < end:
                size = int((now - start) * 10_000_000) if self.habit.periodic_grows else 5
                files.append(OpenFile(8, "/ck/latest.pt", WRITE_ONLY, size))
        return files
