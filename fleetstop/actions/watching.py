"""Looks at what was started until its health is known; tells its log, decides nothing by itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec import Struct, structs

from fleetstop import events
from fleetstop.actions import looks, reading
from fleetstop.actions.activating import Activation
from fleetstop.actions.locate import identify
from fleetstop.actions.patterns import Tried, last_match
from fleetstop.actions.telling import Scope
from fleetstop.core import redact
from fleetstop.core.above.supervisors import Notes
from fleetstop.core.gpu import GpuView, Unseen
from fleetstop.core.kin.family import Family, Found
from fleetstop.core.kin.matching import records_the_end
from fleetstop.core.launching.activation import Started
from fleetstop.core.launching.arrived import parse_environ
from fleetstop.core.launching.ended import Born, Record
from fleetstop.core.launching.health import Expected, Health, Seen, health
from fleetstop.core.launching.newborn import (
    descendants,
    family_of,
    here,
    trainers_of,
    went_aside,
)
from fleetstop.core.process import Process, ProcessId, ProcessTree
from fleetstop.errors import RemoteFailed

_POLL_S = 0.5
_TICK_S = 0.02  # ages are counted in ticks of 10 ms
_MOST_TEARS = 25
_LAST_WORDS_S = 1.0
_GPUS_EVERY_S = 2.0
_ENVIRON_LIMIT = 16384
_SHOWN_AT_ONCE, _SHOWN_IN_ALL, _KEPT = 4, 40, 400
LAST_LINES = 8
# the activator has taken it to have ended, and goes back or has gone
Stamp = Callable[[], Awaitable[None]]
_GIVEN_UP = ("rolling_back", "rolled_back", "unhealthy", "failed")


class Grown(Struct, frozen=True):
    """What became of it. `family` None: nothing of it lives. `last`: its last log lines. `stands`:
    a trainer that lives on though what was started has ended; None: that lives."""

    health: Health
    family: Family | None
    tree: ProcessTree
    trainers: tuple[int, ...]
    record: Record | None
    last: tuple[str, ...]
    seconds: float
    given_up: bool = False
    stands: Born | None = None


class Watch:
    """One start. `log_from`: how long the log was when it was started; `old`: it is the version
    before that is back."""

    def __init__(
        self, scope: Scope, activation: Activation, expected: Expected, trainer: Started,
        log: str | None, log_from: int, *, old: bool = False,
    ) -> None:  # fmt: skip
        self._scope, self._activation, self._expected = scope, activation, expected
        self._trainer, self._log_path, self._upto = trainer, log, log_from
        self._log_from, self._old = log_from, old
        self._born = Born(trainer.pid, trainer.start)
        # that the activator has gone back is what this one comes from
        self._ends = () if old else _GIVEN_UP
        self._root: ProcessId | None = None
        self._ids: frozenset[ProcessId] = frozenset()
        self._trained: dict[ProcessId, int] = {}
        self._ran: dict[ProcessId, Process] = {}
        self._environs: dict[int, dict[str, str] | None] = {}
        self._lines: list[str] = []
        self._tried = Tried()
        self._unread = False
        self._shown = 0
        self._gpus: tuple[float, GpuView | Unseen] | None = None
        self._found = Found(families=())
        self._tree = ProcessTree(processes={}, uptime=0.0)
        self._record: Record | None = None
        self._tears = 0
        self._bad_since: float | None = None
        self._late = False

    async def until_known(self, stamp: Stamp) -> Grown:
        """Until it is healthy, unhealthy or past its time. `stamp`: this run's own sign of life."""
        since = self._scope.clock.now()
        while True:
            await stamp()
            state, self._record = await self._activation.read(self._trainer.mark)
            given_up = state is not None and state.step in self._ends
            seen = await self._look()
            found = health(self._expected, seen)
            if found.state == "unhealthy" and not given_up and await self._torn(found):
                continue
            if found.state == "unhealthy" and await self._last_words(found):
                continue
            if found.state != "waiting" or given_up:
                if (found.state == "unhealthy" or given_up) and await self._only_its_own():
                    seen = structs.replace(seen, log=tuple(self._lines))
                    found = health(self._expected, seen)
                seconds = round(self._scope.clock.now() - since, 3)
                return self._grown(found, seen, seconds, given_up)
            if found.late is not None and not self._late:
                self._late = True
                self._scope.teller.finding(found.late)
            await self._pause(found.due_s - seen.age_s)

    def _grown(self, found: Health, seen: Seen, seconds: float, given_up: bool) -> Grown:
        family = None
        if self._ids:
            root = self._root or min(self._ids)
            mark = self._trainer.mark
            family = family_of(self._tree, self._ids, self._found, root, mark, self._trained)
        pids = tuple(p.pid for e in seen.trainers if (p := self._tree.get(e)) is not None)
        last = tuple(each for each in self._lines if each.strip())[-LAST_LINES:]
        shown = tuple(redact.text(each, 300) for each in last)
        started = here(self._tree, self._born)
        lives = started is not None and started.alive
        left = [] if lives else [p for e in seen.trainers if (p := self._tree.get(e)) is not None]
        stands = Born(left[0].pid, left[0].id.start) if left else None
        return Grown(
            found, family, self._tree, pids, self._record, shown, seconds, given_up, stands
        )

    async def _look(self) -> Seen:
        place, target = self._scope.place, self._scope.target
        assert target.job is not None
        tree = await looks.look(place, target.vmid)
        tree, found = await identify(self._scope, tree, target.job, await self._view(), Notes())
        root = here(tree, self._born)
        supervisor = here(tree, self._record.supervisor if self._record else None)
        if root is not None:
            self._root = root.id
            above = tree.processes.get(root.ppid)
            if supervisor is None and above is not None and records_the_end(above):
                supervisor = above
        self._ids = descendants(tree, root, supervisor, self._ids)
        tree = await looks.add_detail(place, tree, {each.pid for each in self._ids})
        self._tree, self._found = tree, found
        trainers = trainers_of(found, self._ids)
        self._trained |= {e: p.pid for e in trainers if (p := tree.get(e)) is not None}
        await self._read_environs(trainers)
        await self._read_log()
        start = self._root or ProcessId(0, self._trainer.start)
        return Seen(
            age_s=max(0.0, tree.uptime - self._trainer.start / tree.hz),
            tree=tree,
            root=start,
            trainers=trainers,
            lost=self._lost(trainers),
            was=self._was(trainers),
            members=frozenset(each.pid for each in self._ids),
            environs=self._environs,
            log=None if self._unread else tuple(self._lines),
            says=self._tried.line,
            slow=self._tried.slow,
            gpus=self._gpus[1] if self._gpus else None,
            record=self._record,
            unclear=found.unclear,
        )

    def _was(self, trainers: tuple[ProcessId, ...]) -> tuple[ProcessId, ...]:
        """Who trained, and has executed something else since."""
        here = {e: p for e in self._ids if (p := self._tree.get(e)) is not None and p.argv}
        self._ran |= {each: here[each] for each in trainers if each in here}
        others = {each: here[each].argv for each in here if each not in trainers}
        return tuple(e for e in others if e in self._ran and self._ran[e].argv != others[e])

    def _lost(self, trainers: tuple[ProcessId, ...]) -> tuple[int, ...]:
        gone = tuple(pid for each, pid in self._trained.items() if each not in self._ids)
        return () if went_aside(self._tree, self._ran.values(), trainers) else gone

    async def _torn(self, found: Health) -> bool:
        """A look may be torn: what is no longer seen is asked for once more, by identity."""
        if all(each.ok is not False for each in found.checks if each.check == "alive"):
            return False
        unseen = [e for e in (self._root, *self._trained) if e and self._tree.get(e) is None]
        if not unseen or await looks.all_gone(self._scope.place, unseen):
            return False
        self._tears += 1
        if self._tears > _MOST_TEARS:
            raise RemoteFailed("what was started lives, but is no longer seen in its place")
        await self._scope.clock.sleep(0.2)
        return True

    async def _last_words(self, found: Health) -> bool:
        """Its supervisor notes its end a moment after it; a wrapper ends after its trainer."""
        recorded = self._record is not None and self._record.ended_at is not None
        if recorded or all(e.ok is not False for e in found.checks if e.check == "alive"):
            return False
        now = self._scope.clock.now()
        self._bad_since = now if self._bad_since is None else self._bad_since
        if now - self._bad_since >= _LAST_WORDS_S:
            return False
        await self._scope.clock.sleep(0.1)
        return True

    async def _view(self) -> GpuView | Unseen:
        """nvidia-smi costs the host something: now and then, and only where it matters."""
        if not self._expected.gpus:
            return Unseen("it was not asked")
        now = self._scope.clock.now()
        if self._gpus is None or now - self._gpus[0] >= _GPUS_EVERY_S:
            self._gpus = (now, await looks.gpus(self._scope.place))
        return self._gpus[1]

    async def _read_environs(self, trainers: tuple[ProcessId, ...]) -> None:
        """Once for each: exec has fixed it."""
        if not self._expected.env:
            return
        shell = await self._scope.place.inside()
        for each in trainers:
            process = self._tree.get(each)
            if process is None or self._environs.get(each.pid) is not None:
                continue
            raw = await reading.head_of(shell, f"/proc/{process.pid}/environ")
            self._environs[each.pid] = parse_environ(raw, _ENVIRON_LIMIT) if raw else None

    async def _read_log(self) -> None:
        """Its new lines, told as they come: a few at once, and not for ever."""
        if self._log_path is None:
            return
        part = await reading.log_since(self._scope.place, self._log_path, self._upto)
        self._unread = part is None
        if part is None or not (part.lines or part.missed):
            return
        self._upto = part.upto
        await self._keep(part.lines)
        self._tell(self._log_path, part.lines)

    async def _only_its_own(self) -> bool:
        """The version before may have come up meanwhile, and writes the same log. Whether any lines
        were that one's."""
        state = await self._activation.look() if not self._old else None
        if self._log_path is None or state is None or state.log_end is None:
            return False
        if self._upto <= state.log_end:
            return False
        place, path = self._scope.place, self._log_path
        part = await reading.log_since(place, path, self._log_from, state.log_end)
        self._lines = list(part.lines if part is not None else ())[-_KEPT:]
        return True

    async def _keep(self, lines: tuple[str, ...]) -> None:
        pattern = self._expected.log_matches
        if pattern is not None and self._tried.line is None and not self._tried.slow:
            self._tried = await last_match(pattern, lines)
        self._lines = [*self._lines, *lines][-_KEPT:]

    def _tell(self, path: str, lines: tuple[str, ...]) -> None:
        worth = [each for each in lines if each.strip()]
        room = min(_SHOWN_AT_ONCE, _SHOWN_IN_ALL - self._shown)
        if not worth or room <= 0:
            return
        told = worth[-room:]
        self._shown += len(told)
        shown = tuple(redact.text(each, 300) for each in told)
        left = len(worth) - len(told)
        self._scope.teller.tell(events.LogSaid, path=path, lines=shown, left_out=left)

    async def _pause(self, due_s: float) -> None:
        """No longer than until something of it ends, or counts (in `due_s` seconds)."""
        seconds = min(_POLL_S, due_s + _TICK_S) if due_s > 0 else _POLL_S
        alive = [e for e in (self._root, *self._trained) if e and self._tree.get(e) is not None]
        if alive:
            await looks.watch(self._scope.place, alive[:20], seconds)
        else:
            await self._scope.clock.sleep(seconds)
