"""What holds for any process table, masks, growth, playbook and consent, to the ladder's end."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from fleetstop.core.climbing.consent import Consent, Terms
from fleetstop.core.climbing.requests import requests
from fleetstop.core.climbing.rungs import Send
from fleetstop.core.kin.family import Family, Kin
from fleetstop.core.ladder import (
    CALM_S,
    WORKERS_S,
    End,
    Ladder,
    Step,
    Wait,
    answered,
    begin,
    observe,
    was_sent,
)
from fleetstop.core.ledger import Heard
from fleetstop.core.plan import plan
from fleetstop.core.playbook import Hold, Playbook, Rung, To
from fleetstop.core.process import Detail, OpenFile, Process, ProcessId, ProcessTree
from fleetstop.core.report import Role
from fleetstop.core.saves.risk import AtRisk
from fleetstop.core.signals import NUMBERS, Masks
from fleetstop.core.verdict import Judged, Look, judge

# One look costs so long at the most here; a step of the climb is never finer than that.
LATE_S = 0.3
SETTINGS = settings(max_examples=300, deadline=None, derandomize=True)
RIGHTS = ("INT", "TERM", "HUP", "USR1")
BITS = [1 << (NUMBERS[each] - 1) for each in RIGHTS]
ROLES: tuple[Role, ...] = ("trainer", "worker", "wrapper", "launcher")
RECIPIENTS: tuple[To, ...] = ("trainers", "group", "tree", "wrapper")

waits = st.sampled_from([0.0, 0.5, 2.0, 7.0])
rungs = st.builds(
    Rung,
    signal=st.sampled_from(["stop_signal", "INT", "TERM", "KILL", "USR1"]),
    to=st.sampled_from([*RECIPIENTS, "trainers", "trainers", "trainers"]),
    wait_s=waits,
)
gentle = st.builds(
    Rung,
    signal=st.sampled_from(["stop_signal", "INT", "TERM", "USR1"]),
    to=st.just("trainers"),
    wait_s=waits,
)
hold_limits = st.builds(
    Hold,
    saving_s=st.sampled_from([0.0, 3.0, 8.0]),
    stopping_s=st.sampled_from([0.0, 2.0, 6.0]),
    moving_s=st.sampled_from([0.0, 4.0, 9.0]),
)


@st.composite
def playbooks(draw: st.DrawFn) -> Playbook:
    lossless = draw(st.booleans())
    return Playbook(
        name="any",
        # a lossy rung in a lossless playbook is refused when it is read; here it is tried too
        ladder=tuple(
            draw(
                st.lists(
                    gentle if lossless and draw(st.booleans()) else rungs, min_size=1, max_size=4
                )
            )
        ),
        lossless=lossless,
        hold=draw(st.none() | hold_limits | hold_limits | hold_limits),
    )


class Wild:
    """A job that does what the dice say: masks, growth, files, states, deaths change at will.

    Growth ends after `grows_for`, so that no hold may last for ever.
    """

    def __init__(self, seed: int, grows_for: float, steady: bool) -> None:
        self.dice = random.Random(seed)
        self.now = self.began = 50.0
        self.grows_until = self.now + grows_for
        self.steady = steady
        self.mortal = self.dice.random() < 0.5
        self.saves = self.dice.choice([0.0, 0.1, 0.5, 1.0])
        self.blind = self.dice.choice([0.0, 0.0, 0.05])
        self.tame = self.dice.random() < 0.6  # hears everything: then signals really go out
        self.sizes: dict[ProcessId, int] = {}
        self.left_open: dict[ProcessId, bool] = {}
        self.fixed: dict[ProcessId, tuple[Masks | None, str]] = {}
        self.checkpointed: float | None = self.dice.choice([None, 0.0, self.now - 1.0])
        self.made, self.doubts = 0, self.dice.random() < 0.3
        self.everybody = self._everybody()

    def _everybody(self) -> list[tuple[ProcessId, int, int, Role | None, int]]:
        """Identity, container PID, parent, role (None: a stranger), group."""
        found: list[tuple[ProcessId, int, int, Role | None, int]] = []
        pids = self.dice.sample([1, *range(2, 60)], self.dice.randint(1, 7))
        for number, pid in enumerate(pids):
            role: Role | None = "trainer" if number == 0 else self.dice.choice([*ROLES, None])
            inner = self.dice.choice([pid + 1000] * 9 + [pid, 1])
            parent = self.dice.choice([1, 0, *pids])
            group = self.dice.choice([0, 1, 7, pid])
            found.append((ProcessId(pid, self.dice.randint(1, 5)), inner, parent, role, group))
        return found

    def family(self) -> Family:
        members = tuple(
            Kin(id=i, pid=inner, role=role, argv=("x",), ppid=parent, sid=5, up_s=1.0)
            for i, inner, parent, role, _ in self.everybody
            if role is not None
        )
        return Family(members=members, sessions=frozenset())

    def look(self) -> Look:
        if self.mortal and len(self.everybody) > 1 and self.dice.random() < 0.05:
            self.everybody.pop(self.dice.randrange(len(self.everybody)))
        processes = [self._process(*each) for each in self.everybody]
        if not self.steady and self.dice.random() < 0.02:
            processes.append(self._process(ProcessId(900, 9), 1900, processes[0].id.pid, None, 0))
        tree = ProcessTree({each.id.pid: each for each in processes}, uptime=self.now)
        on = not self.steady and self.dice.random() < 0.05
        return Look(at=self.now, tree=tree, trains_on=on, risk=self._risk())

    def _risk(self) -> AtRisk | None:
        """Checkpoints come when the dice say so, known or not; some looks fail."""
        if self.dice.random() < 0.03:
            self.checkpointed, self.made = self.now, self.made + 1
        if self.dice.random() < self.blind:
            return None
        if self.checkpointed is None:
            return AtRisk()
        doubt = self.doubts and self.made % 2 == 0
        age = self.now - self.checkpointed
        return AtRisk(f"c{self.made}", age, 1, known_format=not doubt, ours=True)

    def _process(
        self, identity: ProcessId, inner: int, parent: int, role: Role | None, group: int
    ) -> Process:
        masks, state = self._signals(identity)
        growing = self.now < self.grows_until and self.dice.random() < 0.5
        size = self.sizes[identity] = self.sizes.get(identity, 0) + (500_000 if growing else 0)
        files: list[OpenFile] = []
        if self._open(identity):
            files.append(OpenFile(9, "/ck/a.pt", 0o1, size))
        detail = Detail(
            blocked=0 if self.steady or self.tame else self.dice.choice([0, 0, 0, *BITS]),
            files=None if self.dice.random() < self.blind else tuple(files),
            written=size,
        )
        return Process(
            id=identity,
            ppid=parent,
            pgid=group,
            sid=5,
            state=state,
            comm="x",
            flags=0,
            threads=1,
            ticks=int(self.now * 10) * self.dice.randint(0, 1),
            rss_kib=size // 500,
            tracer=self.dice.choice([0, 3]) if state == "t" else 0,
            inner=(inner,) if inner != identity.pid else (),
            masks=masks,
            detail=detail if self.dice.random() > self.blind else None,
        )

    def _open(self, identity: ProcessId) -> bool:
        """Whether it has its checkpoint open. A file opened anew counts as growth, so not after."""
        wants = self.dice.random() < self.saves
        return wants if self.now < self.grows_until else self.left_open.setdefault(identity, wants)

    def _signals(self, identity: ProcessId) -> tuple[Masks | None, str]:
        if self.steady and identity in self.fixed:
            return self.fixed[identity]
        wild = 0.02 if self.tame else 0.3
        ignored = sum(bit for bit in BITS if self.dice.random() < wild)
        caught = sum(bit for bit in BITS if self.dice.random() > wild) & ~ignored
        masks = Masks(pending=0, blocked=None, ignored=ignored, caught=caught)
        state = self.dice.choice("SSSSSSSRDTtZ" if not self.tame else "SR")
        seen = masks if self.dice.random() > self.blind else None
        self.fixed[identity] = (seen, state)
        return self.fixed[identity]


worlds = st.builds(
    Wild,
    seed=st.integers(0, 2**32),
    grows_for=st.sampled_from([0.0, 5.0, 20.0]),
    steady=st.booleans(),
)


class Moment(Struct):
    """One look of a climb, and what was done about it."""

    at: float
    tree: ProcessTree
    judged: Judged
    before: Ladder
    after: Ladder
    steps: tuple[Step, ...]
    risk: AtRisk | None = None

    @property
    def sends(self) -> list[Send]:
        return [step for step in self.steps if isinstance(step, Send)]


def run(
    world: Wild,
    playbook: Playbook,
    consent: Consent,
    past: dict[ProcessId, Heard] | None = None,
    *,
    family: Family | None = None,
    refuses: bool = False,
    terms: Terms | None = None,
    tmux: bool = True,
) -> list[Moment]:
    """To the end; `refuses`: the remote side now and then says that somebody changed. The dice
    answer questions."""
    ladder = begin(
        playbook,
        family or world.family(),
        stop_signal="INT",
        consent=consent,
        past=past,
        terms=terms,
        tmux=tmux,
    )
    moments: list[Moment] = []
    look_before: Look | None = None
    for _ in range(20_000):
        look = world.look()
        judged = judge(
            look_before,
            look,
            ladder.family,
            stop_signals=requests(playbook, "INT"),
            checkpoints="/ck",
            heard=ladder.marks,
        )
        if ladder.asking is not None and world.dice.random() < 0.2:
            ladder = answered(ladder, world.dice.random() < 0.7)
        before = ladder
        ladder, steps = observe(ladder, look.tree, judged, world.now, look.risk)
        moments.append(Moment(world.now, look.tree, judged, before, ladder, steps, look.risk))
        assert isinstance(steps[-1], Send | Wait | End)
        assert not any(isinstance(step, Send | Wait | End) for step in steps[:-1])
        last = steps[-1]
        if isinstance(last, End):
            return moments
        if isinstance(last, Send):
            if not (refuses and world.dice.random() < 0.3):
                ladder = was_sent(ladder, last, look.tree, world.now)
        else:
            assert 0 < last.seconds <= 2.0
            world.now += last.seconds * world.dice.choice([0.3, 1.0, 1.0])
        world.now += world.dice.uniform(0.001, LATE_S)
        look_before = look
    raise AssertionError("it never ends")


consents: st.SearchStrategy[Consent] = st.sampled_from(["given", "refused", "absent", "given"])


@SETTINGS
@given(worlds, playbooks(), consents, st.booleans())
def test_only_living_family_and_never_pid_one(
    world: Wild, playbook: Playbook, consent: Consent, refuses: bool
) -> None:
    fixed = {kin.id for kin in world.family().members}
    for moment in run(world, playbook, consent, refuses=refuses):
        for send in moment.sends:
            assert send.recipients
            assert len({kin.id for kin in send.recipients}) == len(send.recipients)
            for kin in send.recipients:
                assert kin.id in {each.id for each in moment.after.family.members}
                assert kin.id in fixed or kin.role == "worker"
                seen = moment.tree.get(kin.id)
                assert seen is not None
                assert seen.alive
                assert kin.id.pid > 1
                assert kin.pid > 1


@SETTINGS
@given(worlds, playbooks(), consents)
def test_nothing_lossy_without_consent_or_in_a_lossless_playbook(
    world: Wild, playbook: Playbook, consent: Consent
) -> None:
    heard: set[ProcessId] = set()
    for moment in run(world, playbook, consent):
        for send in moment.sends:
            # judged here anew, not by what the step says of itself
            masks = {kin.id: moment.tree.processes[kin.id.pid] for kin in send.recipients}
            landings = [process.landing(send.signal) for process in masks.values()]
            assert None not in landings
            assert set(landings) & {"heard", "fatal"}
            assert "fatal" in landings or not {"ignored", "blocked"} & set(landings)
            lossy = (
                send.signal == "KILL"
                or "fatal" in landings
                or bool(heard & set(masks))
                or send.to != "trainers"
            )
            assert send.lossy or not lossy
            assert not lossy or (consent == "given" and not playbook.lossless)
            heard |= {i for i, p in masks.items() if p.landing(send.signal) == "heard"}


@SETTINGS
@given(st.integers(0, 2**32), st.booleans(), playbooks(), playbooks(), consents, consents)
def test_lossless_no_trainer_hears_two_signals_in_two_runs(
    seed: int, steady: bool, one: Playbook, two: Playbook, first: Consent, second: Consent
) -> None:
    """The first run may be anything; the second, lossless one never adds to what was heard."""
    world = Wild(seed, 5.0, steady)
    family = world.family()
    heard: list[ProcessId] = []
    past: dict[ProcessId, Heard] = {}
    lossless = Playbook(name="two", ladder=two.ladder, lossless=True, hold=two.hold)
    for moment in run(world, one, first, family=family):
        for send in moment.sends:
            for kin in send.recipients if send.signal != "KILL" else ():
                past[kin.id] = Heard("one", send.signal, 1.0)
                if moment.tree.processes[kin.id.pid].landing(send.signal) == "heard":
                    heard.append(kin.id)
    if one.lossless:
        assert len(heard) == len(set(heard))
    for moment in run(world, lossless, second, past, family=family):
        for send in moment.sends:
            for kin in send.recipients:
                assert kin.id not in past
                past[kin.id] = Heard("two", send.signal, 1.0)


@SETTINGS
@given(worlds, playbooks(), consents, st.booleans())
def test_it_ends_within_its_waits_its_holds_and_its_graces(
    world: Wild, playbook: Playbook, consent: Consent, again: bool
) -> None:
    grows_for = world.grows_until - world.now
    past = {kin.id: Heard("x", "INT", 5.0) for kin in world.family().trainers} if again else {}
    moments = run(world, playbook, consent, past)
    assert moments[-1].at - moments[0].at <= bound(playbook, grows_for)


def bound(playbook: Playbook, grows_for: float) -> float:
    """The longest a climb may take.

    Per rung its wait, once more for a tree rung's wrappers, and one hold: between two signals
    every clock runs once. Before each signal two looks, after the trainers 15 s. A hold looks
    every second, so each of its clocks is late by a look; so is every wait.
    """
    look = 1.0 + LATE_S
    hold = playbook.hold
    held = 0.0
    if hold is not None:
        # QUIET_S lies inside stopping_s; `moving` and `idle` start anew with growth only
        held = hold.saving_s + hold.stopping_s + hold.moving_s + 3 * look
        # a calm look in between is no hold: it lasts 0.2 s and the look after it counts it
        held *= 2
    bursts = len(playbook.ladder) + 1
    waits = sum(r.wait_s + look for r in playbook.ladder)
    tree = sum(r.wait_s + WORKERS_S + 2 * look for r in playbook.ladder if r.to == "tree")
    calm = bursts * 4 * (CALM_S + LATE_S)
    return (
        waits + tree + WORKERS_S + look + (bursts + len(playbook.ladder)) * held + calm + grows_for
    )


@SETTINGS
@given(worlds, playbooks(), consents, st.booleans())
def test_two_calm_looks_come_before_every_signal(
    world: Wild, playbook: Playbook, consent: Consent, again: bool
) -> None:
    past = {kin.id: Heard("x", "INT", 5.0) for kin in world.family().trainers} if again else {}
    moments = run(world, playbook, consent, past)
    last_sent = -1.0
    for number, moment in enumerate(moments):
        if not moment.sends or playbook.hold is None:
            continue
        since = [each for each in moments[: number + 1] if each.at > last_sent]
        assert moment.at - since[0].at >= CALM_S - 1e-9
        last_sent = moment.at
        near = [each for each in since if moment.at - each.at < CALM_S - 1e-9]
        if any(each.judged.saving is not False for each in near):
            assert consent == "given"
            assert not playbook.lossless
            assert used_up(since, playbook.hold)
            assert moment.sends[0].lossy


def used_up(looks: list[Moment], hold: Hold) -> bool:
    """Some clock of the hold has had its time since the last signal."""
    spent = looks[-1].at - looks[0].at
    return spent >= min(hold.saving_s, hold.stopping_s, hold.moving_s)


@SETTINGS
@given(worlds, playbooks(), consents)
def test_nothing_is_sent_into_a_save_while_it_grows(
    world: Wild, playbook: Playbook, consent: Consent
) -> None:
    for moment in run(world, playbook, consent):
        hold = playbook.hold
        if moment.sends and moment.judged.saving and hold is not None and hold.saving_s > 0:
            assert moment.after.clock is not None
            assert moment.after.clock.idle_s >= hold.saving_s


@SETTINGS
@given(worlds, playbooks(), consents, st.booleans())
def test_a_plan_tells_what_a_calm_look_would_send(
    world: Wild, playbook: Playbook, consent: Consent, again: bool
) -> None:
    world.steady, world.saves, world.blind, world.mortal = True, 0.0, 0.0, False
    world.grows_until = world.now
    family = world.family()
    past = {kin.id: Heard("x", "INT", 5.0) for kin in family.trainers} if again else {}
    ladder = begin(playbook, family, stop_signal="INT", consent=consent, past=past)
    look = world.look()
    if not any(
        kin.role == "trainer" and (p := look.tree.get(kin.id)) is not None and p.alive
        for kin in family.members
    ):
        return
    planned = plan(ladder, look.tree)
    assert ladder == begin(playbook, family, stop_signal="INT", consent=consent, past=past)
    assert len(planned) == len(playbook.ladder)
    first = next((step for step in planned if step.would == "send"), None)
    assert all(step.would in {"send_if", "skip"} or step is first for step in planned)
    sends = [send for moment in run(world, playbook, consent, past) for send in moment.sends]
    if first is None:
        # a tree rung may still be for whom the trainers leave behind
        assert not [send for send in sends if send.to != "tree"]
        return
    sent = sends[0]
    assert (first.signal, first.to, first.landing) == (sent.signal, sent.to, sent.landing)
    assert first.pids == tuple(kin.pid for kin in sent.recipients)
