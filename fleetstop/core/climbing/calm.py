"""What comes between a decision and its signal: holds, two calm looks, and a yes where needed."""

from __future__ import annotations

import msgspec

from fleetstop.core.climbing.consent import Question
from fleetstop.core.climbing.holds import Why, exhausted, facts_for, reason, tick
from fleetstop.core.climbing.position import Facts, Ladder, moved, standing_of
from fleetstop.core.climbing.rungs import Send, Skip, asked_for, decide
from fleetstop.core.climbing.steps import Ask, End, Held, Step, Wait
from fleetstop.core.kin.family import standing
from fleetstop.core.saves.risk import AtRisk

CALM_S = 0.2
"""Two looks at least this far apart come before every signal."""
ASKING_S = 0.5
"""While a question is open, looks go on at this distance."""
_MAY_CUT = "the hold ran out and something may still be saved: it may cut that."


def calm(ladder: Ladder, send: Send, seen: Facts, now: float) -> tuple[Ladder, tuple[Step, ...]]:
    """Hold the signal while anybody saves, or still obeys an earlier one; then two calm looks;
    then the question, where one is due."""
    if ladder.hold is None:
        return _agreed(ladder, send, seen, now)
    passed = False
    asked = {*ladder.marks, *ladder.past}
    alive = standing(ladder.family, seen.tree)
    obeys = any(kin.id in asked for kin in alive if kin.role == "trainer")
    ladder, why, over = held_back(ladder, seen, now, after_signal=obeys)
    if why is not None:
        if not over:
            held = Held(why, facts_for(why, seen.judged), over_wait=False)
            return moved(ladder, calm_since=None), (held, Wait(0.5))
        if not (vouched(ladder, send.rung) and why == "stopping"):
            if not may_go_over(ladder, send.rung):
                return ladder, (hold_over(why),)
            agree = send.agree
            if asked_for(ladder.consent, ladder.terms):
                agree = f"{agree} {_MAY_CUT}".strip()
            send = msgspec.structs.replace(send, lossy=True, agree=agree)
            passed = True
    if ladder.calm_since is None:
        return moved(ladder, calm_since=now), (Wait(CALM_S),)
    if now - ladder.calm_since < CALM_S:
        return ladder, (Wait(CALM_S - (now - ladder.calm_since)),)
    return _agreed(ladder, send, seen, now, over=passed)


def _agreed(
    ladder: Ladder, send: Send, seen: Facts, now: float, *, over: bool = False
) -> tuple[Ladder, tuple[Step, ...]]:
    """The signal itself, or the question that stands before it."""
    if not send.agree:
        return ladder, (send,)
    question = Question(
        rung=send.rung,
        signal=send.signal,
        to=send.to,
        pids=tuple(kin.pid for kin in send.recipients),
        landing=send.landing,
        why=send.agree,
        verdict=seen.judged.verdict,
        saves=seen.judged.saves,
        risk=_risk(ladder, seen),
        over=over,
        beyond=() if over else _beyond(ladder, send, seen),
    )
    if question.key in ladder.agreed:
        return ladder, (send,)
    # while it is open no clock runs
    still = msgspec.structs.replace(ladder.clock, at=now) if ladder.clock else None
    return moved(ladder, clock=still), (Ask(question), Wait(ASKING_S))


def _beyond(ladder: Ladder, send: Send, seen: Facts) -> tuple[str, ...]:
    """What would be asked for at once after a no: it is said in the same question."""
    here = standing_of(ladder, seen.tree, risk=seen.risk, verdict=seen.judged.verdict)
    found: list[str] = []
    for index in range(send.rung + 1, len(ladder.playbook.ladder)):
        rung = ladder.playbook.ladder[index]
        decision = decide(index, rung, here) if rung.does != "await" else None
        if isinstance(decision, Skip):
            continue
        if not isinstance(decision, Send) or not decision.agree:
            break  # something happens first
        found.append(decision.signal)
    return tuple(dict.fromkeys(found))


def _risk(ladder: Ladder, seen: Facts) -> AtRisk | None:
    """More than since its start the job cannot lose."""
    if seen.risk is None:
        return None
    found = [seen.tree.get(kin.id) for kin in ladder.family.trainers]
    ages = [seen.tree.age_s(each) for each in found if each is not None and each.alive]
    return msgspec.structs.replace(seen.risk, job_s=max(ages, default=None))


def may_go_over(ladder: Ladder, rung: int) -> bool:
    """Past a hold that ran out. A limited consent ends there: it was to lose little, and a save
    that is cut may be the very file it counts on."""
    if ladder.playbook.lossless or rung in ladder.declined:
        return False
    return ladder.consent == "given" or asked_for(ladder.consent, ladder.terms)


def vouched(ladder: Ladder, rung: int) -> bool:
    """The playbook says that this second ask is what the job is made for: a server that drains
    is busy until it gets it. A save it never cuts."""
    if rung >= len(ladder.playbook.ladder):
        return False
    here = ladder.playbook.ladder[rung]
    return here.again and here.lossless


def held_back(
    ladder: Ladder, seen: Facts, now: float, *, after_signal: bool
) -> tuple[Ladder, Why | None, bool]:
    """Why the next signal waits by this look, and whether that wait is used up.

    One clock from one signal to the next: a hold that ran out does not begin again.
    """
    hold, judged = ladder.hold, seen.judged
    why = reason(judged, after_signal=after_signal, clock=ladder.clock) if hold else None
    if hold is None or why is None:
        return ladder, None, False
    clock = tick(ladder.clock, judged, why, now)
    return moved(ladder, clock=clock), why, exhausted(clock, hold, why)


def hold_over(why: Why) -> End:
    doing = {
        "saving": "it is still saving",
        "stopping": "it is still shutting down",
        "unseen": "it may be saving, which could not be seen,",
    }[why]
    return End("hold_over", f"{doing} and the hold ran out; nothing more is sent")
