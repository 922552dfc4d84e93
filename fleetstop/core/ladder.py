"""Where a job stands on the ladder. Knows neither clock nor network: looks in, steps out.

`begin` once, then `observe` for every look; what it returns is to be done in order. After a
`Send` was carried out call `was_sent`, after a refused one just look again.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from fleetstop.core.birth import grow
from fleetstop.core.family import Family, standing
from fleetstop.core.holds import HoldClock, Why, exhausted, facts_for, reason, tick
from fleetstop.core.ledger import Heard
from fleetstop.core.playbook import FOREVER, Playbook, Rung
from fleetstop.core.process import Process, ProcessId, ProcessTree
from fleetstop.core.rungs import Consent, Send, Skip, Standing, WatchOn, decide
from fleetstop.core.signals import NUMBERS
from fleetstop.core.steps import End, Enter, Held, Step, Wait
from fleetstop.core.verdict import Judged, Mark

__all__ = [
    "CALM_S",
    "WORKERS_S",
    "End",
    "Enter",
    "Held",
    "Ladder",
    "Step",
    "Wait",
    "begin",
    "observe",
    "standing_of",
    "was_sent",
    "watching_on",
]

CALM_S = 0.2
"""Two looks at least this far apart come before every signal."""
WORKERS_S = 15.0
"""DataLoader workers poll their parent every 5 s (torch _utils/worker.py MP_STATUS_CHECK)."""


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
    trained_until: float | None = None

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
    trains = any(k.role == "trainer" for k in standing(ladder.family, tree))
    until = tree.uptime if trains or ladder.trained_until is None else ladder.trained_until
    ladder = _with(ladder, family=grow(ladder.family, tree, until), trained_until=until)
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
    # `send.landing` is the worst of them: in a fatal burst one may live on that heard it
    reached = (*send.recipients, *send.passed_on)
    heard = {kin.id for kin in reached if _may_hear(tree.get(kin.id), send.signal)}
    return _with(
        ladder,
        sent=(*ladder.sent, send),
        marks={**ladder.marks, **_marks(tree, heard)},
        sent_at=now,
        clock=None,
        calm_since=None,
        rung=send.rung,
        headless_since=now if ladder.headless_since is not None else None,
    )


def _may_hear(process: Process | None, signal: str) -> bool:
    """Now, or once it lets go of a mask; a blocked signal waits."""
    return process is not None and process.landing(signal) in ("heard", "blocked", None)


def _marks(tree: ProcessTree, ids: set[ProcessId]) -> dict[ProcessId, Mark]:
    marks = {}
    for each in ids:
        process = tree.get(each)
        if process is not None:
            ignored = process.masks.ignored if process.masks else 0
            marks[each] = Mark(ignored=ignored, ticks=process.ticks)
    return marks


def heard_meanwhile(ladder: Ladder, late: Mapping[ProcessId, Heard]) -> Ladder:
    """Another run has signalled since this ladder began: it counts like any earlier one."""
    return _with(ladder, past={**ladder.past, **late}, calm_since=None)


def earlier_marks(tree: ProcessTree, past: Mapping[ProcessId, Heard]) -> dict[ProcessId, Mark]:
    """Marks of those who heard an earlier run: what they heard, they did not ignore then."""
    return {
        each: Mark(
            ignored=mark.ignored & ~(1 << (NUMBERS[past[each].signal] - 1)), ticks=mark.ticks
        )
        for each, mark in _marks(tree, set(past)).items()
    }


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
        ladder, last = _calm(ladder, decision, tree, judged, now)
        return ladder, (*steps, *last)
    return ladder, (*steps, _exhausted(ladder))


def watching_on(ladder: Ladder, decision: WatchOn, tree: ProcessTree, now: float) -> Ladder:
    heard = {kin.id: decision.heard for kin in decision.recipients}
    marks = earlier_marks(tree, heard)
    return _with(
        ladder,
        watched=(*ladder.watched, decision),
        marks={**ladder.marks, **marks},
        sent_at=now,
        clock=None,
    )


def _calm(
    ladder: Ladder, send: Send, tree: ProcessTree, judged: Judged, now: float
) -> tuple[Ladder, tuple[Step, ...]]:
    """Hold the signal while anybody saves, or still obeys an earlier one; then two calm looks."""
    if ladder.playbook.hold is None:
        return ladder, (send,)
    asked = {*ladder.marks, *ladder.past}
    obeys = any(kin.id in asked for kin in standing(ladder.family, tree) if kin.role == "trainer")
    ladder, why, over = _hold(ladder, judged, now, after_signal=obeys)
    if why is not None:
        if not over:
            held = Held(why, facts_for(why, judged), over_wait=False)
            return _with(ladder, calm_since=None), (held, Wait(0.5))
        if ladder.playbook.lossless or ladder.consent != "given":
            return ladder, (_hold_over(ladder, why),)
        send = msgspec.structs.replace(send, lossy=True)
    if ladder.calm_since is None:
        return _with(ladder, calm_since=now), (Wait(CALM_S),)
    if now - ladder.calm_since < CALM_S:
        return ladder, (Wait(CALM_S - (now - ladder.calm_since)),)
    return ladder, (send,)


def _hold(
    ladder: Ladder, judged: Judged, now: float, *, after_signal: bool
) -> tuple[Ladder, Why | None, bool]:
    """Why the next signal waits by this look, and whether that wait is used up.

    One clock from one signal to the next: a hold that ran out does not begin again.
    """
    hold = ladder.playbook.hold
    why = reason(judged, after_signal=after_signal, clock=ladder.clock) if hold else None
    if hold is None or why is None:
        return ladder, None, False
    clock = tick(ladder.clock, judged, why, now)
    return _with(ladder, clock=clock), why, exhausted(clock, hold, why)


def _after(
    ladder: Ladder, tree: ProcessTree, judged: Judged, now: float
) -> tuple[Ladder, tuple[Step, ...]]:
    """The rung's own wait, then the hold, then the next rung."""
    rung = ladder.playbook.ladder[ladder.rung]
    waited = now - (ladder.sent_at or 0.0)
    if rung.wait_s == FOREVER or waited < rung.wait_s:
        left = rung.wait_s - waited
        return ladder, (*_held(judged, ladder, over_wait=False), Wait(min(1.0, max(0.05, left))))
    ladder, why, over = _hold(ladder, judged, now, after_signal=True)
    if why is not None and not over:
        return ladder, (*_held(judged, ladder, over_wait=True, why=why), Wait(1.0))
    if why is not None and ladder.playbook.lossless:
        return ladder, (_hold_over(ladder, why),)
    return _before(_next_rung(ladder), tree, judged, now)


def _held(
    judged: Judged, ladder: Ladder, *, over_wait: bool, why: Why | None = None
) -> tuple[Step, ...]:
    """What is worth telling while waiting: that it saves, or moves towards its end."""
    found = why or reason(judged, after_signal=True, clock=ladder.clock)
    if found is None or (found == "stopping" and not over_wait and judged.verdict != "stopping"):
        return ()
    return (Held(found, facts_for(found, judged), over_wait),)


def _next_rung(ladder: Ladder) -> Ladder:
    return _with(ladder, rung=ladder.rung + 1, entered=False, sent_at=None, calm_since=None)


def _exhausted(ladder: Ladder) -> End:
    if not ladder.touched and any(each.consent for each in ladder.skipped):
        return End("refused", "what is left may lose work and nobody has agreed to it")
    if ladder.touched:
        return End("trainers_alive", "it still runs after every rung that could be climbed")
    return End("trainers_alive", "nothing on this ladder can reach it")


def _hold_over(ladder: Ladder, why: Why) -> End:
    doing = {
        "saving": "it is still saving",
        "stopping": "it is still shutting down",
        "unseen": "it may be saving, which could not be seen,",
    }[why]
    return End("hold_over", f"{doing} and the hold ran out; nothing more is sent")


def _headless(
    ladder: Ladder, tree: ProcessTree, judged: Judged, now: float
) -> tuple[Ladder, tuple[Step, ...]]:
    """The last trainer is gone: the rest gets time, then the playbook's tree rung if agreed."""
    since = ladder.headless_since
    if since is None:
        since = now
        ladder = _with(ladder, headless_since=now, clock=None, calm_since=None, entered=False)
    ladder, why, over = _hold(ladder, judged, now, after_signal=False)
    if why is not None and not over:
        held = Held(why, facts_for(why, judged), over_wait=False)
        # who has just saved needs time to leave, too
        return _with(ladder, calm_since=None, headless_since=now), (held, Wait(0.5))
    left = _grace(ladder, tree) - (now - since)
    if left > 0:
        return ladder, (Wait(min(1.0, max(0.05, left))),)
    return _sweep(ladder, tree, judged, now)


def _grace(ladder: Ladder, tree: ProcessTree) -> float:
    """A tree rung gets its own wait while somebody it reached still stands."""
    last = ladder.sent[-1] if ladder.sent else None
    alive = {kin.id for kin in standing(ladder.family, tree)}
    if last is not None and last.to == "tree" and any(k.id in alive for k in last.recipients):
        return last.wait_s
    return WORKERS_S


def _sweep(
    ladder: Ladder, tree: ProcessTree, judged: Judged, now: float
) -> tuple[Ladder, tuple[Step, ...]]:
    steps: list[Step] = []
    for index in range(ladder.rung, len(ladder.playbook.ladder)):
        rung: Rung = ladder.playbook.ladder[index]
        if rung.to != "tree":
            continue
        decision = decide(index, rung, standing_of(ladder, tree))
        if isinstance(decision, Skip):
            ladder = _with(ladder, skipped=(*ladder.skipped, decision))
            steps.append(decision)
        elif isinstance(decision, Send) and _first_burst(ladder, decision):
            if not ladder.entered or ladder.rung != index:
                steps.append(Enter(index, decision.signal, decision.to, decision.wait_s))
            ladder, last = _calm(
                _with(ladder, rung=index, entered=True), decision, tree, judged, now
            )
            return ladder, (*steps, *last)
    return ladder, (*steps, _leftover(ladder, tree))


def _first_burst(ladder: Ladder, send: Send) -> bool:
    """A tree rung is sent once, and once more to wrappers whose job has ended meanwhile."""
    reached = {kin.id for s in ladder.sent if s.rung == send.rung for kin in s.recipients}
    above = all(kin.role in ("wrapper", "launcher") for kin in send.recipients)
    return not reached or (above and not any(kin.id in reached for kin in send.recipients))


def _leftover(ladder: Ladder, tree: ProcessTree) -> End:
    names = ", ".join(f"{k.role} {k.pid}" for k in standing(ladder.family, tree))
    return End("leftover", f"the trainers ended, but {names} still runs")
