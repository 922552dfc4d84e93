"""Where a job stands on the ladder. Knows neither clock nor network: looks in, steps out.

`begin` once, then `observe` for every look; what it returns is to be done in order. After a
`Send` was carried out call `was_sent`, after a refused one just look again; when the open
question is answered call `answered`.
"""

from __future__ import annotations

from fleetstop.core.above.supervisors import Above
from fleetstop.core.climbing.awaiting import await_checkpoint, first_rung
from fleetstop.core.climbing.calm import CALM_S, calm, held_back, hold_over, vouched
from fleetstop.core.climbing.consent import Consent, Terms, unsure
from fleetstop.core.climbing.holds import Why, facts_for, reason
from fleetstop.core.climbing.position import (
    Facts,
    Ladder,
    answered,
    heard_meanwhile,
    left_out,
    moved,
    next_rung,
    standing_of,
    was_sent,
    watching_on,
)
from fleetstop.core.climbing.rungs import KILLED, Skip, WatchOn, decide
from fleetstop.core.climbing.steps import Arrived, Ask, End, Enter, Held, Step, Wait, Withdraw
from fleetstop.core.climbing.sweep import WORKERS_S, headless
from fleetstop.core.kin.birth import grow
from fleetstop.core.kin.family import Family, standing
from fleetstop.core.ledger import Heard
from fleetstop.core.playbook import FOREVER, Playbook
from fleetstop.core.process import ProcessId, ProcessTree
from fleetstop.core.saves.risk import AtRisk
from fleetstop.core.verdict import EXITING_S, Judged

__all__ = [
    "CALM_S",
    "WORKERS_S",
    "Arrived",
    "Ask",
    "End",
    "Enter",
    "Held",
    "Ladder",
    "Step",
    "Wait",
    "Withdraw",
    "answered",
    "begin",
    "heard_meanwhile",
    "left_out",
    "observe",
    "standing_of",
    "was_sent",
    "watching_on",
]


UNSURE_S = 5.0
"""So long a limited consent waits for a look that tells what would be lost."""


def begin(
    playbook: Playbook,
    family: Family,
    *,
    stop_signal: str,
    consent: Consent,
    past: dict[ProcessId, Heard] | None = None,
    terms: Terms | None = None,
    tmux: bool = False,
    checkpoints: bool = True,
    above: tuple[Above, ...] = (),
) -> Ladder:
    """`tmux`: the job is found through a tmux session; `checkpoints`: it declares where they
    lie; `above`: who stands above its trainers. Whoever wants to end it after a checkpoint gets
    a rung that waits for one, first."""
    terms = terms or Terms()
    return Ladder(
        playbook=first_rung(playbook, terms),
        family=family,
        stop_signal=stop_signal,
        consent=consent,
        past=past or {},
        terms=terms,
        tmux=tmux,
        checkpoints=checkpoints,
        above=above,
    )


def observe(
    ladder: Ladder, tree: ProcessTree, judged: Judged, now: float, risk: AtRisk | None = None
) -> tuple[Ladder, tuple[Step, ...]]:
    """One look in, steps out. The last step is always a Send, a Wait or an End."""
    was = ladder.asking
    ladder, steps = _observe(ladder, Facts(tree, judged, risk), now)
    question = next((step.question for step in steps if isinstance(step, Ask)), None)
    if was is not None and (question is None or question.key != was.key):
        steps = (Withdraw(was, _why_withdrawn(ladder, steps)), *steps)
    return moved(ladder, asking=question), steps


def _why_withdrawn(ladder: Ladder, steps: tuple[Step, ...]) -> str:
    if any(isinstance(step, Held) and step.why == "saving" for step in steps):
        return "a checkpoint is being written"
    gone = any(isinstance(step, End) and step.how == "gone" for step in steps)
    if gone or ladder.headless_since is not None:
        return "the job has ended"
    return "the job is no longer as it was when this was asked"


def _observe(ladder: Ladder, seen: Facts, now: float) -> tuple[Ladder, tuple[Step, ...]]:
    tree = seen.tree
    trains = any(k.role == "trainer" for k in standing(ladder.family, tree))
    until = tree.uptime if trains or ladder.trained_until is None else ladder.trained_until
    since = ladder.unsure_since if ladder.unsure_since is not None else now
    ladder = moved(
        ladder,
        family=grow(ladder.family, tree, until),
        trained_until=until,
        unsure_since=since if unsure(seen.risk) else None,
    )
    alive = standing(ladder.family, tree)
    if not alive:
        return ladder, (End("gone", ""),)
    if not any(kin.role == "trainer" for kin in alive):
        return headless(ladder, seen, now)
    if ladder.sent_at is None:
        return _before(ladder, seen, now)
    return _after(ladder, seen, now)


def _may_be_seen_yet(ladder: Ladder, now: float) -> bool:
    """A limited consent is not given up for what the first look could not tell."""
    since = ladder.unsure_since
    return ladder.terms.limited and since is not None and now - since < UNSURE_S


def _may_end_yet(ladder: Ladder, judged: Judged, now: float) -> bool:
    """Somebody's KILL waits for it: a moment shows whether it ends of that, or cannot."""
    since = ladder.dying_since
    stuck = "uninterruptible" in judged.members.values()
    return not stuck and (since is None or now - since < EXITING_S)


def _before(ladder: Ladder, seen: Facts, now: float) -> tuple[Ladder, tuple[Step, ...]]:
    """Choose the next rung that may be climbed; wait for calm; send."""
    steps: list[Step] = []
    while ladder.rung < len(ladder.playbook.ladder):
        rung = ladder.playbook.ladder[ladder.rung]
        if rung.does == "await":
            ladder, waiting = await_checkpoint(ladder, rung, seen, now)
            steps += waiting
            if isinstance(waiting[-1], Wait | End):
                return ladder, tuple(steps)
            ladder = next_rung(ladder)
            continue
        here = standing_of(ladder, seen.tree, risk=seen.risk, verdict=seen.judged.verdict)
        decision = decide(ladder.rung, rung, here)
        if isinstance(decision, Skip):
            if decision.consent and _may_be_seen_yet(ladder, now):
                return ladder, (*steps, Wait(CALM_S))
            if decision.reason == KILLED and _may_end_yet(ladder, seen.judged, now):
                since = now if ladder.dying_since is None else ladder.dying_since
                return moved(ladder, dying_since=since), (*steps, Wait(CALM_S))
            steps.append(decision)
            ladder = next_rung(moved(ladder, skipped=(*ladder.skipped, decision)))
            continue
        if not ladder.entered:
            ladder = moved(ladder, entered=True, entered_at=now)
            steps.append(Enter(ladder.rung, decision.signal, decision.to, decision.wait_s))
        if isinstance(decision, WatchOn):
            ladder = watching_on(ladder, decision, seen.tree, now)
            return ladder, (*steps, decision, Wait(1.0))
        ladder, last = calm(ladder, decision, seen, now)
        return ladder, (*steps, *last)
    return ladder, (*steps, _exhausted(ladder))


def _after(ladder: Ladder, seen: Facts, now: float) -> tuple[Ladder, tuple[Step, ...]]:
    """The rung's own wait, then the hold, then the next rung."""
    rung, judged = ladder.playbook.ladder[ladder.rung], seen.judged
    waited = now - (ladder.sent_at or 0.0)
    if rung.wait_s == FOREVER or waited < rung.wait_s:
        left = rung.wait_s - waited
        return ladder, (*_held(judged, ladder, over_wait=False), Wait(min(1.0, max(0.05, left))))
    ladder, why, over = held_back(ladder, seen, now, after_signal=True)
    if why is not None and not over:
        return ladder, (*_held(judged, ladder, over_wait=True, why=why), Wait(1.0))
    drained = why == "stopping" and vouched(ladder, ladder.rung + 1)
    if why is not None and ladder.playbook.lossless and not drained:
        return ladder, (hold_over(why),)
    return _before(next_rung(ladder), seen, now)


def _held(
    judged: Judged, ladder: Ladder, *, over_wait: bool, why: Why | None = None
) -> tuple[Step, ...]:
    """What is worth telling while waiting: that it saves, or moves towards its end."""
    found = why or reason(judged, after_signal=True, clock=ladder.clock)
    if found is None or (found == "stopping" and not over_wait and judged.verdict != "stopping"):
        return ()
    return (Held(found, facts_for(found, judged), over_wait),)


def _exhausted(ladder: Ladder) -> End:
    if not ladder.touched and any(each.consent for each in ladder.skipped):
        return End("refused", "what is left may lose work and nobody has agreed to it")
    if ladder.touched:
        return End("trainers_alive", "it still runs after every rung that could be climbed")
    if ladder.declined:
        return End("trainers_alive", "what is left may lose work, and the answer was no")
    return End("trainers_alive", "nothing on this ladder can reach it")
