"""When the last trainer is gone: the rest gets its time, then the tree rung if it is agreed to."""

from __future__ import annotations

from fleetstop.core.climbing.calm import calm, held_back
from fleetstop.core.climbing.holds import facts_for
from fleetstop.core.climbing.position import Facts, Ladder, moved, standing_of
from fleetstop.core.climbing.rungs import Send, Skip, decide
from fleetstop.core.climbing.steps import End, Enter, Held, Step, Wait
from fleetstop.core.kin.family import standing
from fleetstop.core.playbook import Rung
from fleetstop.core.process import ProcessTree

WORKERS_S = 15.0
"""DataLoader workers poll their parent every 5 s (torch _utils/worker.py MP_STATUS_CHECK)."""


def headless(ladder: Ladder, seen: Facts, now: float) -> tuple[Ladder, tuple[Step, ...]]:
    since = ladder.headless_since
    if since is None:
        since = now
        ladder = moved(ladder, headless_since=now, clock=None, calm_since=None, entered=False)
        ladder = moved(ladder, no_since=None)  # it was said of a job that trained
    ladder, why, over = held_back(ladder, seen, now, after_signal=False)
    if why is not None and not over:
        held = Held(why, facts_for(why, seen.judged), over_wait=False)
        # who has just saved needs time to leave, too
        return moved(ladder, calm_since=None, headless_since=now), (held, Wait(0.5))
    left = _grace(ladder, seen.tree) - (now - since)
    if left > 0:
        return ladder, (Wait(min(1.0, max(0.05, left))),)
    return _sweep(ladder, seen, now)


def _grace(ladder: Ladder, tree: ProcessTree) -> float:
    """A tree rung gets its own wait while somebody it reached still stands."""
    last = ladder.sent[-1] if ladder.sent else None
    alive = {kin.id for kin in standing(ladder.family, tree)}
    if last is not None and last.to == "tree" and any(k.id in alive for k in last.recipients):
        return last.wait_s
    return WORKERS_S


def _sweep(ladder: Ladder, seen: Facts, now: float) -> tuple[Ladder, tuple[Step, ...]]:
    steps: list[Step] = []
    for index in range(ladder.rung, len(ladder.playbook.ladder)):
        rung: Rung = ladder.playbook.ladder[index]
        if rung.to != "tree" or rung.does != "signal":
            continue
        here = standing_of(ladder, seen.tree, risk=seen.risk, verdict=seen.judged.verdict)
        decision = decide(index, rung, here)
        if isinstance(decision, Skip):
            ladder = moved(ladder, skipped=(*ladder.skipped, decision))
            steps.append(decision)
        elif isinstance(decision, Send) and _first_burst(ladder, decision):
            if not ladder.entered or ladder.rung != index:
                steps.append(Enter(index, decision.signal, decision.to, decision.wait_s))
            ladder, last = calm(moved(ladder, rung=index, entered=True), decision, seen, now)
            if isinstance(last[-1], End):
                # no trainer runs any more: what a hold keeps from them is what is left of the job
                last = (_leftover(ladder, seen.tree, last[-1].reason),)
            return ladder, (*steps, *last)
    return ladder, (*steps, _leftover(ladder, seen.tree))


def _first_burst(ladder: Ladder, send: Send) -> bool:
    """A tree rung is sent once, and once more to wrappers whose job has ended meanwhile."""
    reached = {kin.id for s in ladder.sent if s.rung == send.rung for kin in s.recipients}
    above = all(kin.role in ("wrapper", "launcher") for kin in send.recipients)
    return not reached or (above and not any(kin.id in reached for kin in send.recipients))


def _leftover(ladder: Ladder, tree: ProcessTree, why: str = "") -> End:
    left = standing(ladder.family, tree)
    names = ", ".join(f"{kin.role} {kin.pid}" for kin in left)
    verb = "run" if len(left) > 1 else "runs"
    more = f": {why}" if why else ""
    return End("leftover", f"the trainers ended, but {names} still {verb}{more}")
