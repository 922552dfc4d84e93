"""Where a job stands on its ladder: all that is remembered from look to look, and small moves."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from fleetstop.core.above.comeback import untold
from fleetstop.core.above.supervisors import Above
from fleetstop.core.climbing.consent import Consent, Question, Terms
from fleetstop.core.climbing.holds import HoldClock
from fleetstop.core.climbing.rungs import Send, Skip, Standing, WatchOn
from fleetstop.core.judging.marks import Mark, earlier_marks, marks_of
from fleetstop.core.kin.family import Family
from fleetstop.core.ledger import Heard
from fleetstop.core.playbook import Hold, Playbook
from fleetstop.core.process import Process, ProcessId, ProcessTree
from fleetstop.core.saves.risk import AtRisk
from fleetstop.core.verdict import Judged


class Ladder(Struct, frozen=True):
    """`entered_at`: when the rung it stands on was entered. `base`: the checkpoint that an await
    rung wants a newer one than. `asking`: the question that is open; `agreed` what a yes was
    said to, `declined` the rungs that got a no; `no_since`: the rung of one that still stands,
    since nothing has happened to the job after it. `unsure_since`: no look since has told what
    would be lost. `dying_since`: since then somebody's KILL has waited for all that are left.
    `above`: who stands above the trainers; `vain`: rungs whose command failed."""

    playbook: Playbook
    family: Family
    stop_signal: str
    consent: Consent
    past: dict[ProcessId, Heard] = {}
    terms: Terms = Terms()
    tmux: bool = False
    checkpoints: bool = True
    rung: int = 0
    entered: bool = False
    entered_at: float | None = None
    base: AtRisk | None = None
    arrived: bool = False
    unsure_since: float | None = None
    dying_since: float | None = None
    calm_since: float | None = None
    sent_at: float | None = None
    clock: HoldClock | None = None
    marks: dict[ProcessId, Mark] = {}
    sent: tuple[Send, ...] = ()
    watched: tuple[WatchOn, ...] = ()
    skipped: tuple[Skip, ...] = ()
    headless_since: float | None = None
    trained_until: float | None = None
    asking: Question | None = None
    agreed: frozenset[tuple[object, ...]] = frozenset()
    declined: frozenset[int] = frozenset()
    no_since: int | None = None
    above: tuple[Above, ...] = ()
    vain: frozenset[int] = frozenset()

    @property
    def touched(self) -> bool:
        """A signal was sent, by this run or by the one it watches on for."""
        return bool(self.sent or self.watched)

    @property
    def refused(self) -> frozenset[int]:
        """Rungs that may lose work and got a no, or would be asked for in the same breath."""
        if self.no_since is None:
            return self.declined
        return self.declined.union(range(self.no_since, len(self.playbook.ladder)))

    @property
    def agreed_by(self) -> str:
        """How what may lose work was agreed to, for people."""
        if self.consent == "given":
            return "with --force"
        if self.terms.after_checkpoint:
            return "with --after-checkpoint"
        return "with --max-loss" if self.terms.limited else "when asked"

    @property
    def hold(self) -> Hold | None:
        """Whoever agreed to a limited loss has not agreed to cutting a save."""
        if self.playbook.hold is None and self.terms.limited and self.consent == "absent":
            return Hold()
        return self.playbook.hold


class Facts(Struct, frozen=True):
    """One look, as the ladder is shown it."""

    tree: ProcessTree
    judged: Judged
    risk: AtRisk | None = None


def moved(ladder: Ladder, **changes: object) -> Ladder:
    return msgspec.structs.replace(ladder, **changes)


def next_rung(ladder: Ladder) -> Ladder:
    return moved(
        ladder,
        rung=ladder.rung + 1,
        entered=False,
        entered_at=None,
        base=None,
        sent_at=None,
        calm_since=None,
    )


def standing_of(
    ladder: Ladder, tree: ProcessTree, *, risk: AtRisk | None = None, verdict: str | None = None
) -> Standing:
    done = (each for each in ladder.sent if each.does == "run" and each.rung not in ladder.vain)
    commands = [each.argument for each in done]
    return Standing(
        family=ladder.family,
        tree=tree,
        stop_signal=ladder.stop_signal,
        lossless=ladder.playbook.lossless,
        consent=ladder.consent,
        past=ladder.past,
        heard=frozenset(ladder.marks),
        terms=ladder.terms,
        risk=risk,
        verdict=verdict,
        asked=len(ladder.sent) + len(ladder.watched),
        declined=ladder.refused,
        tmux=ladder.tmux,
        arrived=ladder.arrived,
        above=untold(ladder.above, commands),
    )


def was_sent(ladder: Ladder, send: Send, tree: ProcessTree, now: float) -> Ladder:
    """The signal is out: its rung's wait begins, and who heard it is remembered."""
    # `send.landing` is the worst of them: in a fatal burst one may live on that heard it
    reached = (*send.recipients, *send.passed_on)
    heard = {kin.id for kin in reached if _may_hear(tree.get(kin.id), send)}
    return moved(
        ladder,
        sent=(*ladder.sent, send),
        marks={**ladder.marks, **marks_of(tree, dict.fromkeys(heard, (send.signal, 0.0)))},
        sent_at=now,
        clock=None,
        calm_since=None,
        no_since=None,
        rung=send.rung,
        headless_since=now if ladder.headless_since is not None else None,
    )


def _may_hear(process: Process | None, send: Send) -> bool:
    """Now, or once it lets go of a mask; a blocked signal waits. An ask reaches any of them."""
    if process is None or send.landing == "asked":
        return process is not None
    return process.landing(send.signal) in ("heard", "blocked", None)


def watching_on(ladder: Ladder, decision: WatchOn, tree: ProcessTree, now: float) -> Ladder:
    heard = {kin.id: decision.heard for kin in decision.recipients}
    marks = earlier_marks(tree, heard)
    return moved(
        ladder,
        watched=(*ladder.watched, decision),
        no_since=None,
        marks={**ladder.marks, **marks},
        sent_at=now,
        clock=None,
    )


def heard_meanwhile(ladder: Ladder, late: Mapping[ProcessId, Heard]) -> Ladder:
    """Another run has signalled since this ladder began: it counts like any earlier one."""
    # a yes was said before that signal: it is asked anew what may be lost now
    return moved(ladder, past={**ladder.past, **late}, calm_since=None, agreed=frozenset())


def left_out(ladder: Ladder, send: Send, reason: str) -> tuple[Ladder, Skip]:
    """It cannot be asked this way, as was found just before: nothing went out."""
    pids = tuple(kin.pid for kin in send.recipients)
    skip = Skip(send.rung, send.signal, send.to, pids, send.landing, reason)
    return next_rung(moved(ladder, skipped=(*ladder.skipped, skip))), skip


def answered(ladder: Ladder, yes: bool) -> Ladder:
    """The open question got its answer. A yes sends nothing yet: two fresh looks come first."""
    question = ladder.asking
    if question is None:
        return ladder
    ladder = moved(ladder, asking=None, calm_since=None)
    if yes:
        return moved(ladder, agreed=ladder.agreed | {question.key})
    no_since = question.rung if ladder.no_since is None else ladder.no_since
    return moved(ladder, declined=ladder.declined | {question.rung}, no_since=no_since)
