"""A playbook against a simulated job, in virtual time: the same ladder, the same judge.

Knows no clock and no network: the world moves when the ladder waits.
"""

from __future__ import annotations

from msgspec import Struct

from fleetstop.core.family import Family, find
from fleetstop.core.habits import POLITE, SHELL, WORKER, Actor, Habit
from fleetstop.core.inventory import Match
from fleetstop.core.ladder import End, Ladder, Step, Wait, begin, observe, was_sent
from fleetstop.core.ledger import Heard
from fleetstop.core.playbook import Playbook
from fleetstop.core.process import ProcessId, ProcessTree
from fleetstop.core.rungs import Consent, Send, Skip, WatchOn, requests
from fleetstop.core.verdict import Judged, Look, judge

CHECKPOINTS = "/ck"
MATCH = Match(script="train.py")
LOOK_S = 0.03
LONGEST_S = 25_000.0


class World:
    """A container with one job in it, and a few processes that are none of its business."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.actors: list[Actor] = []
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

    def back(self, family: Family) -> tuple[int, ...]:
        """PIDs of trainers that are none of those: the job came back."""
        found = find(self.tree(), MATCH, None)
        kin = (each for one in found.families for each in one.trainers)
        return tuple(each.pid for each in kin if each.id not in family.ids)

    def send(self, send: Send) -> None:
        for kin in send.recipients:
            for each in (*self.actors, *self.strangers):
                if each.id == kin.id:
                    each.receive(send.signal, self.now)
                    if send.resume:
                        each.receive("CONT", self.now)
        self._settle()

    def tree(self) -> ProcessTree:
        alive = [each for each in self.actors if each.died is None]
        everybody = [each.process(self.now) for each in (*alive, *self.strangers)]
        return ProcessTree({each.id.pid: each for each in everybody}, uptime=self.now)

    def look(self, *, trains_on: bool = False) -> Look:
        return Look(at=self.now, tree=self.tree(), trains_on=trains_on)

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
) -> Climbed:
    """To the ladder's end, or until `most_s` of virtual time: then as after a Ctrl-C."""
    ladder = begin(
        playbook, family or world.family(), stop_signal=stop_signal, consent=consent, past=past
    )
    steps: list[tuple[float, Step]] = []
    looks: list[tuple[float, Judged]] = []
    began, before = world.now, None
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
        ladder, todo = observe(ladder, look.tree, judged, world.now)
        for step in todo:
            steps.append((world.now, step))
            if isinstance(step, Send):
                world.send(step)
                ladder = was_sent(ladder, step, look.tree, world.now)
            elif isinstance(step, Wait):
                world.advance(step.seconds)
            elif isinstance(step, End):
                return Climbed(step, steps, looks, ladder, began, world.now)
        if world.now - began > most_s:
            end = End("trainers_alive", f"it was still waiting after {most_s:.0f} s")
            return Climbed(end, steps, looks, ladder, began, world.now)
        before = look
        world.advance(LOOK_S)
