"""Where a job stands on the ladder. Knows neither clock nor network: looks in, steps out.

`begin` once, then `observe` for every look; what it returns is to be done in order. After a
`Send` was carried out call `was_sent`, after a refused one just look again.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from fleetstop.core.family import Family, grow, standing
from fleetstop.core.holds import HoldClock, Why, exhausted, reason, tick
from fleetstop.core.ledger import Heard
from fleetstop.core.playbook import FOREVER, Playbook, Rung
from fleetstop.core.process import ProcessId, ProcessTree
from fleetstop.core.rungs import Consent, Send, Skip, Standing, WatchOn, decide
from fleetstop.core.verdict import Judged, Mark

CALM_S = 0.2
"""Two looks at least this far apart come before every signal."""
WORKERS_S = 15.0
"""DataLoader workers poll their parent every 5 s (torch _utils/worker.py MP_STATUS_CHECK)."""

Ending: TypeAlias = Literal["gone", "trainers_alive", "refused", "hold_over", "leftover"]


class Enter(Struct, frozen=True):
    rung: int
    signal: str
    to: str
    wait_s: float


class Wait(Struct, frozen=True):
    """Look again after `seconds` at the latest, at once when a member ends."""

    seconds: float


class Held(Struct, frozen=True):
    why: Why
    evidence: tuple[str, ...]
    over_wait: bool


class End(Struct, frozen=True):
    """The climb is over. `refused`: nothing was sent and only consent was missing;
    `hold_over`: the hold ran out and a lossless ladder does not go past it."""

    how: Ending
    reason: str


Step: TypeAlias = Enter | Send | Skip | WatchOn | Held | Wait | End


class Ladder(Struct, frozen=True):
    playbook: Playbook
    family: Family
    stop_signal: str
    consent: Consent
    past: dict[ProcessId, Heard] = {}
    rung: int = 0
    entered: bool = False
    calm_since: float | None = None
    sent_at: float | None = None
    clock: HoldClock | None = None
    marks: dict[ProcessId, Mark] = {}
    sent: tuple[Send, ...] = ()
    watched: tuple[WatchOn, ...] = ()
    skipped: tuple[Skip, ...] = ()
    headless_since: float | None = None

    @property
    def touched(self) -> bool:
        """A signal was sent, by this run or by the one it watches on for."""
        return bool(self.sent or self.watched)


def begin(
    playbook: Playbook,
    family: Family,
    *,
    stop_signal: str,
    consent: Consent,
    past: dict[ProcessId, Heard] | None = None,
) -> Ladder:
    return Ladder(
        playbook=playbook,
        family=family,
        stop_signal=stop_signal,
        consent=consent,
        past=past or {},
    )


def observe(
    ladder: Ladder, tree: ProcessTree, judged: Judged, now: float
) -> tuple[Ladder, tuple[Step, ...]]:
    """One look in, steps out. The last step is always a Send, a Wait or an End."""
    ladder = _with(ladder, family=grow(ladder.family, tree))
    alive = standing(ladder.family, tree)
    if not alive:
        return ladder, (End("gone", ""),)
    if not any(kin.role == "trainer" for kin in alive):
        return _headless(ladder, tree, judged, now)
    if ladder.sent_at is None:
        return _before(ladder, tree, judged, now)
    return _after(ladder, tree, judged, now)


def was_sent(ladder: Ladder, send: Send, tree: ProcessTree, now: float) -> Ladder:
    """The signal is out: its rung's wait begins, and who heard it is remembered."""
    marks = dict(ladder.marks)
    if send.landing == "heard":
        marks |= _marks(tree, {kin.id for kin in send.recipients})
    return _with(
        ladder,
        sent=(*ladder.sent, send),
        marks=marks,
        sent_at=now,
        clock=None,
        calm_since=None,
        rung=send.rung,
        headless_since=now if ladder.headless_since is not None else None,
    )


def _marks(tree: ProcessTree, ids: set[ProcessId]) -> dict[ProcessId, Mark]:
    marks = {}
    for each in ids:
        process = tree.get(each)
        if process is not None:
            ignored = process.masks.ignored if process.masks else 0
            marks[each] = Mark(ignored=ignored, ticks=process.ticks)
    return marks


def _with(ladder: Ladder, **changes: object) -> Ladder:
    return msgspec.structs.replace(ladder, **changes)


def standing_of(ladder: Ladder, tree: ProcessTree) -> Standing:
    return Standing(
        family=ladder.family,
        tree=tree,
        stop_signal=ladder.stop_signal,
        lossless=ladder.playbook.lossless,
        consent=ladder.consent,
        past=ladder.past,
        heard=frozenset(ladder.marks),
    )


def _before(
    ladder: Ladder, tree: ProcessTree, judged: Judged, now: float
) -> tuple[Ladder, tuple[Step, ...]]:
    """Choose the next rung that may be climbed; wait for calm; send."""
    steps: list[Step] = []
    while ladder.rung < len(ladder.playbook.ladder):
        rung = ladder.playbook.ladder[ladder.rung]
        decision = decide(ladder.rung, rung, standing_of(ladder, tree))
        if isinstance(decision, Skip):
            steps.append(decision)
            ladder = _next_rung(_with(ladder, skipped=(*ladder.skipped, decision)))
            continue
        if not ladder.entered:
            ladder = _with(ladder, entered=True)
            steps.append(Enter(ladder.rung, decision.signal, decision.to, decision.wait_s))
        if isinstance(decision, WatchOn):
            ladder = watching_on(ladder, decision, tree, now)
            return ladder, (*steps, decision, Wait(1.0))
        ladder, last = _calm(ladder, decision, judged, now)
        return ladder, (*steps, *last)
    return ladder, (*steps, _exhausted(ladder))


def watching_on(ladder: Ladder, decision: WatchOn, tree: ProcessTree, now: float) -> Ladder:
    heard = {kin.id for kin in decision.recipients}
    marks = {each: Mark(ignored=0, ticks=m.ticks) for each, m in _marks(tree, heard).items()}
    return _with(
        ladder,
        watched=(*ladder.watched, decision),
        marks={**ladder.marks, **marks},
        sent_at=now,
        clock=None,
    )


def _calm(
    ladder: Ladder, send: Send, judged: Judged, now: float
) -> tuple[Ladder, tuple[Step, ...]]:
    """Hold the signal while anybody saves; send it after two calm looks."""
    hold = ladder.playbook.hold
    if hold is None:
        return ladder, (send,)
    why = reason(judged, after_signal=False, clock=ladder.clock)
    if why is not None:
        clock = tick(ladder.clock, judged, why, now)
        ladder = _with(ladder, clock=clock, calm_since=None)
        if not exhausted(clock, hold, why):
            held = Held(why, judged.saves or judged.evidence, over_wait=False)
            return ladder, (held, Wait(0.5))
        if ladder.playbook.lossless or ladder.consent != "given":
            return ladder, (_hold_over(ladder, why),)
        return ladder, (send,)
    if ladder.calm_since is None:
        return _with(ladder, calm_since=now), (Wait(CALM_S),)
    if now - ladder.calm_since < CALM_S:
        return ladder, (Wait(CALM_S - (now - ladder.calm_since)),)
    return ladder, (send,)


def _after(
    ladder: Ladder, tree: ProcessTree, judged: Judged, now: float
) -> tuple[Ladder, tuple[Step, ...]]:
    """The rung's own wait, then the hold, then the next rung."""
    rung = ladder.playbook.ladder[ladder.rung]
    waited = now - (ladder.sent_at or 0.0)
    if rung.wait_s == FOREVER or waited < rung.wait_s:
        left = rung.wait_s - waited
        return ladder, (*_held(judged, ladder, over_wait=False), Wait(min(1.0, max(0.05, left))))
    hold = ladder.playbook.hold
    why = reason(judged, after_signal=True, clock=ladder.clock) if hold is not None else None
    if hold is not None and why is not None:
        clock = tick(ladder.clock, judged, why, now)
        ladder = _with(ladder, clock=clock)
        if not exhausted(clock, hold, why):
            return ladder, (*_held(judged, ladder, over_wait=True, why=why), Wait(1.0))
        if ladder.playbook.lossless:
            return ladder, (_hold_over(ladder, why),)
    return _before(_next_rung(ladder), tree, judged, now)


def _held(
    judged: Judged, ladder: Ladder, *, over_wait: bool, why: Why | None = None
) -> tuple[Step, ...]:
    """What is worth telling while waiting: that it saves, or moves towards its end."""
    found = why or reason(judged, after_signal=True, clock=ladder.clock)
    if found is None or (found == "stopping" and not over_wait and judged.verdict != "stopping"):
        return ()
    return (Held(found, judged.saves or judged.evidence, over_wait),)


def _next_rung(ladder: Ladder) -> Ladder:
    return _with(
        ladder, rung=ladder.rung + 1, entered=False, sent_at=None, calm_since=None, clock=None
    )


def _exhausted(ladder: Ladder) -> End:
    if not ladder.touched and any(each.consent for each in ladder.skipped):
        return End("refused", "what is left may lose work and nobody has agreed to it")
    if ladder.touched:
        return End("trainers_alive", "it still runs after every rung that could be climbed")
    return End("trainers_alive", "nothing on this ladder can reach it")


def _hold_over(ladder: Ladder, why: Why) -> End:
    doing = {"saving": "still saving", "stopping": "still shutting down"}.get(why, "unseen")
    return End("hold_over", f"it is {doing} and the hold ran out; nothing more is sent")


def _headless(
    ladder: Ladder, tree: ProcessTree, judged: Judged, now: float
) -> tuple[Ladder, tuple[Step, ...]]:
    """The last trainer is gone: the rest gets time, then the playbook's tree rung if agreed."""
    since = ladder.headless_since
    if since is None:
        ladder, since = _with(ladder, headless_since=now, clock=None), now
    hold = ladder.playbook.hold
    why = reason(judged, after_signal=False, clock=ladder.clock) if hold is not None else None
    if hold is not None and why is not None:
        clock = tick(ladder.clock, judged, why, now)
        ladder = _with(ladder, clock=clock)
        if not exhausted(clock, hold, why):
            return ladder, (Held(why, judged.saves or judged.evidence, over_wait=False), Wait(0.5))
    last = ladder.sent[-1] if ladder.sent else None
    swept = last is not None and last.to == "tree"
    grace = last.wait_s if last is not None and swept else WORKERS_S
    if now - since < grace:
        return ladder, (Wait(min(1.0, max(0.05, grace - (now - since)))),)
    workers = any(kin.role == "worker" for kin in standing(ladder.family, tree))
    if workers and not swept:
        ladder, step = _sweep(ladder, tree)
        return ladder, (step,)
    return ladder, (_leftover(ladder, tree),)


def _sweep(ladder: Ladder, tree: ProcessTree) -> tuple[Ladder, Step]:
    for index in range(ladder.rung, len(ladder.playbook.ladder)):
        rung: Rung = ladder.playbook.ladder[index]
        if rung.to != "tree":
            continue
        decision = decide(index, rung, standing_of(ladder, tree))
        if isinstance(decision, Send):
            return ladder, decision
        if isinstance(decision, Skip):
            ladder = _with(ladder, skipped=(*ladder.skipped, decision))
    return ladder, _leftover(ladder, tree)


def _leftover(ladder: Ladder, tree: ProcessTree) -> End:
    names = ", ".join(f"{k.role} {k.pid}" for k in standing(ladder.family, tree))
    return End("leftover", f"the trainers ended, but {names} still runs")
