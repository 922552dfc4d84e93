"""A playbook against a simulated job, in virtual time: the same ladder, the same judge.

Knows no clock and no network: the world moves when the ladder waits.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from fleetstop.core.above.supervisors import Above
from fleetstop.core.climbing.consent import Consent, Question, Terms
from fleetstop.core.climbing.requests import requests
from fleetstop.core.climbing.rungs import Send, Skip, WatchOn
from fleetstop.core.inventory import Match
from fleetstop.core.judging.progress import Progress
from fleetstop.core.kin.family import Family, find
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
from fleetstop.core.playbook import Playbook
from fleetstop.core.process import ProcessId, ProcessTree
from fleetstop.core.rehearsing.habits import DEAF, POLITE, SHELL, WORKER, Actor, Habit
from fleetstop.core.rehearsing.person import Person
from fleetstop.core.saves.risk import AtRisk
from fleetstop.core.verdict import Judged, Look, follow, judge

CHECKPOINTS = "/ck"
MATCH = Match(script="train.py")
LOOK_S = 0.03
LONGEST_S = 25_000.0


class World:
    """A container with one job in it, and a few processes that are none of its business."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.actors: list[Actor] = []
        self.complete: list[float] = []  # when checkpoints were whole
        self.regular: list[float] = []  # and when they will be, while it trains
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
                self._childless(each, kids)
        return before != [each.id for each in self.actors if each.died is None]

    def _childless(self, shell: Actor, kids: list[Actor]) -> None:
        """A script goes on to its end; a loop starts the job again."""
        pause = shell.habit.restarts_s
        if pause is None or shell.died is not None:
            shell.parent_ended = shell.parent_ended or self.now
        elif self.now >= max(kid.died or 0.0 for kid in kids) + pause:
            pid = 1 + max(each.id.pid for each in self.actors)
            self.add(Actor(pid, shell.id.pid, kids[0].argv, kids[0].habit, born=self.now))

    def above(self) -> tuple[Above, ...]:
        """The loops, as a look at their text would tell of them."""
        loops = (each for each in self.actors if each.habit.restarts_s is not None)
        return tuple(
            Above(each.id, each.id.pid, "loop", each.argv, "starts it again", "always")
            for each in loops
        )

    def back(self, family: Family) -> tuple[int, ...]:
        """PIDs of trainers that are none of those: the job came back."""
        found = find(self.tree(), MATCH, None)
        kin = (each for one in found.families for each in one.trainers)
        return tuple(each.pid for each in kin if each.id not in family.ids)

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

    def trained_until(self) -> float:
        trainers = [each for each in self.actors if each.argv[0] != "bash" and not each.forked]
        return max((each.trained_until(self.now) for each in trainers), default=self.now)

    def risk(self) -> AtRisk | None:
        """By the checkpoints that are whole now; a periodic save is one when it ends."""
        if not self.risk_seen:
            return None
        until = self.trained_until()
        whole = (*self.complete, *(at for at in self.regular if at <= until))
        done = [(at, f"step_{n}") for n, at in enumerate(whole)]
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
        found = find(self.tree(), MATCH, None)
        assert len(found.families) == 1, found
        return found.families[0]


def job(
    *ranks: Habit, workers: int = 0, worker: Habit = WORKER, wrapper: Habit | None = SHELL
) -> World:
    """`run.sh` above rank 0; the other ranks below it (Lightning), its data workers too."""
    world = World()
    if wrapper is not None:
        # `nohup run.sh &`: the trainer has it from there
        deaf = bool(ranks) and all(set(DEAF.ignores) <= set(each.ignores) for each in ranks)
        wrapper = msgspec.structs.replace(wrapper, ignores=DEAF.ignores) if deaf else wrapper
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


def climb(
    world: World,
    playbook: Playbook,
    *,
    consent: Consent = "absent",
    stop_signal: str = "INT",
    past: dict[ProcessId, Heard] | None = None,
    family: Family | None = None,
    checkpoints: str | None = CHECKPOINTS,
    most_s: float = LONGEST_S,
    terms: Terms | None = None,
    answers: Sequence[tuple[float, bool]] = (),
    tmux: bool = False,
) -> Climbed:
    """To the ladder's end, or until `most_s` of virtual time: then as after a Ctrl-C.

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
        above=world.above(),
    )
    play = _Play(world, ladder, checkpoints, Person(answers))
    began = world.now
    while (end := play.turn()) is None:
        if world.now - began > most_s:
            end = End("trainers_alive", f"it was still waiting after {most_s:.0f} s")
            break
        world.advance(LOOK_S)
    return play.climbed(end, began)


class _Play:
    """One climb in the making."""

    def __init__(
        self, world: World, ladder: Ladder, checkpoints: str | None, person: Person
    ) -> None:
        self.world, self.ladder, self.person = world, ladder, person
        self.checkpoints = checkpoints
        self.signals = requests(ladder.playbook, ladder.stop_signal)
        self.steps: list[tuple[float, Step]] = []
        self.looks: list[tuple[float, Judged]] = []
        self.before: Look | None = None
        self.progress: Progress | None = None

    def turn(self) -> End | None:
        """One look, and all that the ladder wants done about it."""
        world = self.world
        look = world.look(trains_on=self.ladder.touched and world.shrugged)
        self.progress = follow(self.progress, look, self.ladder.family)
        judged = judge(
            self.before,
            look,
            self.ladder.family,
            stop_signals=self.signals,
            checkpoints=self.checkpoints,
            heard=self.ladder.marks,
            progress=self.progress,
        )
        self.looks.append((world.now, judged))
        if (said := self.person.says(world.now)) is not None:
            self.ladder = answered(self.ladder, said)
        self.ladder, todo = observe(self.ladder, look.tree, judged, world.now, look.risk)
        self.before = look
        for step in todo:
            self.steps.append((world.now, step))
            if isinstance(step, End):
                return step
            self._do(step, look)
        return None

    def _do(self, step: Step, look: Look) -> None:
        now = self.world.now
        if isinstance(step, Ask):
            self.person.hear(now)
        elif isinstance(step, Withdraw):
            self.person.forget()
        elif isinstance(step, Send):
            self.world.send(step)
            self.ladder = was_sent(self.ladder, step, look.tree, now)
        elif isinstance(step, Wait):
            self.world.advance(step.seconds)

    def climbed(self, end: End, began: float) -> Climbed:
        asked = [(at, step.question) for at, step in self.steps if isinstance(step, Ask)]
        first = [
            each for n, each in enumerate(asked) if n == 0 or asked[n - 1][1].key != each[1].key
        ]
        gone = [(at, step) for at, step in self.steps if isinstance(step, Withdraw)]
        return Climbed(end, self.steps, self.looks, self.ladder, began, self.world.now, first, gone)
