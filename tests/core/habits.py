"""A practice job in virtual time: it shows process tables and lives with the signals it gets.

A second signal into a save, or any signal into a periodic one, costs the checkpoint: here as in
real life. `climb` drives the real ladder with the real judge until it ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from fleetstop.core.consent import Question, Terms
from fleetstop.core.family import Family, find
from fleetstop.core.inventory import Match
from fleetstop.core.ladder import (
    Ask,
    End,
    Ladder,
    Step,
    Wait,
    Withdraw,
    answered,
    begin,
    observe,
    was_sent,
)
from fleetstop.core.ledger import Heard
from fleetstop.core.playbook import Hold, Playbook, Rung, parse_ladder
from fleetstop.core.process import Detail, OpenFile, Process, ProcessId, ProcessTree
from fleetstop.core.risk import AtRisk
from fleetstop.core.rungs import Consent, Send, Skip, WatchOn, requests
from fleetstop.core.signals import NUMBERS, Masks
from fleetstop.core.verdict import Judged, Look, judge

CHECKPOINTS = "/ck"
LOOK_S = 0.03
LONGEST_S = 25_000.0
FOREVER = float("inf")
WRITE_ONLY = 0o100001
Phase: TypeAlias = Literal["training", "memory", "file", "leaving", "gone"]

GRACEFUL = Playbook(
    name="graceful", lossless=True, ladder=parse_ladder("stop_signal/3m TERM/2m"), hold=Hold()
)
STANDARD = Playbook(name="standard", ladder=parse_ladder("stop_signal/3m TERM/2m KILL:tree/30s"))
NOW = Playbook(name="now", ladder=parse_ladder("KILL:tree/30s"), hold=None)


def short(text: str, *, lossless: bool = False, hold: Hold | None = Hold()) -> Playbook:  # noqa: B008
    return Playbook(name="--ladder", ladder=parse_ladder(text), lossless=lossless, hold=hold)


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
    obeys_asks: tuple[str, ...] = ()  # TOUCH, RUN, KEYS: it saves and leaves
    drains: bool = False  # a server: the first signal drains, the second ends it


POLITE = Habit()
DRAINS = Habit(drains=True, saves=False)
DEAF = Habit(hears=(), ignores=("INT", "QUIT"))
DEAF_SAVES_ON_TERM = Habit(hears=("TERM",), ignores=("INT", "QUIT"))
IGNORES_ALL = Habit(hears=(), ignores=("INT", "TERM"))
SLOW = Habit(memory_s=10.0, file_s=10.0)
LEAVES_UNSAVED = Habit(saves=False)
SUSPENDED = Habit(state="T")
SHRUGS = Habit(obeys=False)
WORKER = Habit(hears=(), ignores=("INT",), saves=False, idle=True)
SHELL = Habit(hears=(), saves=False, idle=True)


class Actor:
    """One process of the job, with its life so far."""

    def __init__(
        self, pid: int, ppid: int, argv: tuple[str, ...], habit: Habit, *, forked: bool = False
    ) -> None:
        self.id = ProcessId(pid, pid * 10)
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
            case "fatal" if not self.habit.survives_kill:
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
        return Masks(pending=0, blocked=None, ignored=ignored, caught=caught & ~ignored)

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


class World:
    """A container with one job in it, and a few processes that are none of its business."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.actors: list[Actor] = []
        self.complete: list[float] = []  # when checkpoints were whole
        self.risk_seen, self.known_format = True, True
        self.ours_from = 0.0  # since when it is known whose they are
        self.strangers = [
            Actor(90, 1, ("sshd",), SHELL),
            Actor(91, 1, ("vim", "train.py"), SHELL),
        ]

    def add(self, actor: Actor) -> Actor:
        self.actors.append(actor)
        return actor

    def at(self, seconds: float) -> float:
        """So long after the first look."""
        return 1000.0 + seconds

    def advance(self, seconds: float) -> None:
        """Time passes; a watch returns at once when a process ends."""
        until = self.now + seconds
        while self.now < until - 1e-9:
            self.now = min(until, self.now + 0.05)
            if self._settle():
                return

    def _settle(self) -> bool:
        before = [each.id for each in self.actors if each.died is None]
        for each in self.actors:
            each.live(self.now)
        pids = {each.id.pid: each for each in self.actors}
        for each in self.actors:
            above = pids.get(each.ppid)
            if each.forked and above is not None and each.parent_ended is None:
                each.parent_ended = above.died
            kids = [kid for kid in self.actors if kid.ppid == each.id.pid]
            if each.argv[0] == "bash" and kids and all(kid.died is not None for kid in kids):
                each.parent_ended = each.parent_ended or self.now
        return before != [each.id for each in self.actors if each.died is None]

    def send(self, send: Send) -> None:
        for kin in send.recipients:
            for each in (*self.actors, *self.strangers):
                if each.id == kin.id and send.does != "signal":
                    each.ask(send.signal, self.now)
                elif each.id == kin.id:
                    each.receive(send.signal, self.now)
                    if send.resume:
                        each.receive("CONT", self.now)
        self._settle()

    def tree(self) -> ProcessTree:
        alive = [each for each in self.actors if each.died is None]
        everybody = [each.process(self.now) for each in (*alive, *self.strangers)]
        return ProcessTree({each.id.pid: each for each in everybody}, uptime=self.now)

    def look(self, *, trains_on: bool = False) -> Look:
        return Look(at=self.now, tree=self.tree(), trains_on=trains_on, risk=self.risk())

    def risk(self) -> AtRisk | None:
        """By the checkpoints that are whole now; a periodic save is one when it ends."""
        if not self.risk_seen:
            return None
        done = [(at, f"step_{n}") for n, at in enumerate(self.complete)]
        for each in self.actors:
            if not each.lost:
                done += [
                    (end, f"own_{n}")
                    for n, (_, end) in enumerate(each.habit.periodic)
                    if end <= self.now and (each.died is None or end <= each.died)
                ]
        made = max(((at, name) for at, name in done if at <= self.now), default=None)
        if made is None:
            return AtRisk()
        age = self.now - made[0]
        return AtRisk(
            name=made[1],
            age_s=age,
            known_format=self.known_format,
            ours=self.now >= self.ours_from or None,
            size=1,
        )

    @property
    def shrugged(self) -> bool:
        """New steps in the log after a signal."""
        return any(each.heard and not each.habit.obeys for each in self.actors)

    def family(self) -> Family:
        found = find(self.tree(), Match(script="train.py"), None)
        assert len(found.families) == 1, found
        return found.families[0]


def job(
    *ranks: Habit, workers: int = 0, worker: Habit = WORKER, wrapper: Habit | None = SHELL
) -> World:
    """`run.sh` above rank 0; the other ranks below it (Lightning), its data workers too."""
    world = World()
    if wrapper is not None:
        world.add(Actor(100, 1, ("bash", "run.sh"), wrapper))
    for number, habit in enumerate(ranks or (POLITE,)):
        above = 101 if number else (100 if wrapper is not None else 1)
        rank = world.add(Actor(101 + number, above, ("python", "train.py"), habit))
        rank.rank = len(ranks) > 1
    for number in range(workers):
        world.add(Actor(200 + number, 101, ("python", "train.py"), worker, forked=True))
    return world


class Climbed(Struct):
    """A climb that ended: every step with its time, every look as it was judged."""

    end: End
    steps: list[tuple[float, Step]]
    looks: list[tuple[float, Judged]]
    ladder: Ladder
    began: float
    ended: float
    asked: list[tuple[float, Question]] = []
    withdrawn: list[tuple[float, Withdraw]] = []

    @property
    def sends(self) -> list[Send]:
        return [step for _, step in self.steps if isinstance(step, Send)]

    @property
    def signals(self) -> list[str]:
        return [send.signal for send in self.sends]

    @property
    def skips(self) -> list[Skip]:
        return [step for _, step in self.steps if isinstance(step, Skip)]

    @property
    def watched(self) -> list[WatchOn]:
        return [step for _, step in self.steps if isinstance(step, WatchOn)]

    @property
    def took(self) -> float:
        return self.ended - self.began

    def when(self, number: int) -> float:
        """How long after the start the n-th signal went out."""
        return [at for at, step in self.steps if isinstance(step, Send)][number] - self.began

    def heard(self, family: Family, run: str = "first") -> dict[ProcessId, Heard]:
        """What a later run would find in the ledger."""
        return {
            kin.id: Heard(run, send.signal, 1.0)
            for send in self.sends
            for kin in send.recipients
            if send.signal != "KILL"
        }


class Person:
    """Somebody at a terminal, who takes a while."""

    def __init__(self, answers: Sequence[tuple[float, bool]]) -> None:
        self.left = list(answers)
        self.due: float | None = None

    def hear(self, now: float) -> None:
        if self.due is None:
            self.due = now + self.left[0][0] if self.left else FOREVER

    def says(self, now: float) -> bool | None:
        if self.due is None or now < self.due:
            return None
        self.due = None
        return self.left.pop(0)[1]

    def forget(self) -> None:
        """Withdrawn before it was answered."""
        if self.due is not None and self.left:
            self.left.pop(0)
        self.due = None


def climb(
    world: World,
    playbook: Playbook,
    *,
    consent: Consent = "absent",
    stop_signal: str = "INT",
    past: dict[ProcessId, Heard] | None = None,
    family: Family | None = None,
    checkpoints: str | None = CHECKPOINTS,
    most_s: float = 1e9,
    terms: Terms | None = None,
    answers: Sequence[tuple[float, bool]] = (),
    tmux: bool = False,
) -> Climbed:
    """To the ladder's end, or until `most_s` (Ctrl-C, told as an End `trainers_alive`).

    `answers`: to each question so many seconds after it was asked; where none is left, nobody
    answers.
    """
    ladder = begin(
        playbook,
        family or world.family(),
        stop_signal=stop_signal,
        consent=consent,
        past=past,
        terms=terms or Terms(asks=bool(answers)),
        tmux=tmux,
        checkpoints=checkpoints is not None,
    )
    steps: list[tuple[float, Step]] = []
    looks: list[tuple[float, Judged]] = []
    person = Person(answers)
    began, before = world.now, None

    def climbed(end: End) -> Climbed:
        asked = [(at, step.question) for at, step in steps if isinstance(step, Ask)]
        first = [
            each for n, each in enumerate(asked) if n == 0 or asked[n - 1][1].key != each[1].key
        ]
        gone = [(at, step) for at, step in steps if isinstance(step, Withdraw)]
        return Climbed(end, steps, looks, ladder, began, world.now, first, gone)

    while True:
        trains_on = ladder.touched and world.shrugged
        look = world.look(trains_on=trains_on)
        judged = judge(
            before,
            look,
            ladder.family,
            stop_signals=requests(playbook, stop_signal),
            checkpoints=checkpoints,
            heard=ladder.marks,
        )
        looks.append((world.now, judged))
        if (said := person.says(world.now)) is not None:
            ladder = answered(ladder, said)
        ladder, todo = observe(ladder, look.tree, judged, world.now, look.risk)
        for step in todo:
            steps.append((world.now, step))
            if isinstance(step, Ask):
                person.hear(world.now)
            elif isinstance(step, Withdraw):
                person.forget()
            elif isinstance(step, Send):
                world.send(step)
                ladder = was_sent(ladder, step, look.tree, world.now)
            elif isinstance(step, Wait):
                world.advance(step.seconds)
            elif isinstance(step, End):
                return climbed(step)
        if world.now - began > most_s:
            return climbed(End("trainers_alive", "interrupted"))
        assert world.now - began < LONGEST_S, "it never ends"
        before = look
        world.advance(LOOK_S)


def rung(text: str) -> Rung:
    return parse_ladder(text)[0]
