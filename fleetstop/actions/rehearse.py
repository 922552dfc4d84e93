"""A playbook against simulated jobs: the same events as a stop, in virtual time. Sends nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from fleetstop import events
from fleetstop.actions.narrate import narrate, pids_of
from fleetstop.actions.telling import Teller
from fleetstop.core.climbing.rungs import Send, Skip, WatchOn
from fleetstop.core.climbing.steps import Arrived, Enter, Held
from fleetstop.core.redact import command
from fleetstop.core.rehearsing.rehearsal import CHECKPOINTS
from fleetstop.core.rehearsing.scenarios import Exit, Rehearsed
from fleetstop.core.report import CheckpointRecord, Outcome, SignalRecord, SkippedRecord
from fleetstop.core.spelling import did_you_mean, shown
from fleetstop.errors import BadUsage
from fleetstop.events import AnyEvent

_NUMBER = re.compile(r"[\d.,]+( ?[KMGT]i?B)?")
_BEGIN = datetime(1970, 1, 1, tzinfo=UTC)


def chosen(words: Sequence[str], known: Sequence[str]) -> tuple[str, ...]:
    """Names from `deaf,slow-save` or `all`; raises BadUsage with the nearest known one."""
    names = [name.strip() for word in words for name in word.split(",") if name.strip()]
    for each in names:
        if each != "all" and each not in known:
            raise BadUsage(
                f"--against: no such job {shown(each)}{did_you_mean(each, known)}",
                hint=f"jobs to rehearse against: {', '.join(known)}, or all",
            )
    return tuple(known) if "all" in names or not names else tuple(dict.fromkeys(names))


class _Virtual:
    """A clock that stands where the story is; see ports.Clock."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return self.seconds

    def wall(self) -> str:
        return _at(self.seconds)

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds


def told(one: Rehearsed) -> tuple[list[AnyEvent], Outcome]:
    """The story as events at 1970-01-01 plus the virtual seconds, and what would become of it."""
    heard: list[AnyEvent] = []
    clock = _Virtual()
    teller = Teller(one.scenario.name, heard.append, clock)
    held: object = None
    steps = [(at - one.climbed.began, step) for at, step in one.climbed.steps]
    for at, what in sorted(
        (*steps, *((e.seconds, e) for e in one.exits)), key=lambda each: each[0]
    ):
        clock.seconds = at
        match what:
            case Exit():
                facts = {"pid": what.pid, "role": what.role, "cmd": command(what.argv)}
                teller.tell(events.MemberExited, **facts, zombie=False)
            case Held():
                # in half an hour of virtual hold only the numbers move: said once is enough
                was, held = held, (what.why, _NUMBER.sub("#", str(what.evidence)), what.over_wait)
                if was != held:
                    narrate(teller, what)
            case Enter() | Skip() | WatchOn() | Arrived() | Send():
                narrate(teller, what)
            case _:
                pass  # a wait, an end, a question that nobody is there to answer
    return heard, outcome_of(one)


def outcome_of(one: Rehearsed) -> Outcome:
    """As the report of a real stop would have it; pids are the simulated ones."""
    climbed, back = one.climbed, one.back
    return Outcome(
        target=one.scenario.name,
        host=None,
        vmid=None,
        job=one.scenario.name,
        result=one.result,
        verdict=climbed.looks[-1][1].verdict,
        reason=_reason(one),
        evidence=climbed.looks[-1][1].evidence,
        signals=tuple(
            SignalRecord(
                signal=step.signal,
                to=step.to,
                pids=pids_of(step.recipients),
                landing=step.landing,
                at=_at(at - climbed.began),
            )
            for at, step in climbed.steps
            if isinstance(step, Send)
        ),
        skipped=tuple(SkippedRecord(each.signal, each.reason) for each in climbed.skips),
        checkpoint=_saved() if one.saved else None,
        findings=(f"respawned: {back[0]} trains now",) if back and one.result != "unclean" else (),
        seconds=round(one.seconds, 3),
    )


def _saved() -> CheckpointRecord:
    path = f"{CHECKPOINTS}/last.pt"
    return CheckpointRecord(path=path, age_s=0.0, complete=True, written_after_signal=True)


def _reason(one: Rehearsed) -> str | None:
    end = one.climbed.end
    told = [end.reason] if end.reason else []
    if one.back:
        told.append(f"respawned: {one.back[0]} trains again under the loop above it")
    if end.how == "gone" and one.result == "unclean" and one.lost != "nothing":
        told.append("not_saved: no checkpoint was written after the signal")
    return "; ".join(told) or None


def _at(seconds: float) -> str:
    moment = _BEGIN + timedelta(seconds=max(seconds, 0.0))
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
