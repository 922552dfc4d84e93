"""Questions to people: one at a time over all targets, open while the job is watched on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from fleetstop import events
from fleetstop.actions import looks, refusals
from fleetstop.actions.telling import Scope
from fleetstop.core.climbing.consent import Choice, Question, Terms
from fleetstop.core.climbing.requests import choose_stop_signal
from fleetstop.core.inventory import Job
from fleetstop.core.kin.family import Family
from fleetstop.core.launching.interpreter import OWN
from fleetstop.core.playbook import Playbook
from fleetstop.core.process import ProcessTree
from fleetstop.ports import Choose, Confirm

_BOTH = ("INT", "TERM")
LET_GO_S = 1.0
NOT_LET_GO = (
    "a question was withdrawn, but whoever was asked does not let go of it; nobody else is asked "
    "while it is open"
)
T = TypeVar("T")


class Desk:
    """Who can be asked; None: nobody. Its turn keeps two questions from being open at once."""

    def __init__(self, confirm: Confirm | None = None, choose: Choose | None = None) -> None:
        self.confirm = confirm
        self.choose = choose
        self.turn = asyncio.Lock()
        self._kept: asyncio.Future[Any] | None = None

    @property
    def kept(self) -> bool:
        """A question stays open although it was withdrawn: a second one beside it would not be
        answered for itself."""
        return self._kept is not None and not self._kept.done()

    async def answer(self, asked: Awaitable[T], not_let_go: Callable[[str], object]) -> T:
        """What they say. Somebody's code may swallow its cancellation: the job is watched on, and
        the way out of a stop is not theirs to bar. What it answers later is nobody's answer."""
        work = asyncio.ensure_future(asked)
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError:
            work.cancel()
            work.add_done_callback(_unheard)
            await asyncio.wait([work], timeout=LET_GO_S)
            if not work.done():
                self._kept = work
                not_let_go(NOT_LET_GO)
            raise
        return work.result()


def _unheard(work: asyncio.Future[Any]) -> None:
    """So that asyncio does not complain that nobody wanted to know."""
    if not work.cancelled():
        work.exception()


class Asking:
    """The question of one climb. Whoever climbs goes on looking, and withdraws it when it has
    no object any more."""

    def __init__(self, desk: Desk, scope: Scope, doubts: list[str]) -> None:
        """`doubts`: where what is odd about the asking goes for the outcome."""
        self._desk = desk
        self._scope = scope
        self._doubts = doubts
        self._question: Question | None = None
        self._task: asyncio.Task[bool] | None = None
        self._told: Question | None = None

    def ask(self, question: Question) -> None:
        """Opens it, or brings the facts of an open one up to date until its turn comes."""
        self._question = msgspec.structs.replace(question, target=self._scope.target.name)
        if self._task is None:
            self._task = asyncio.ensure_future(self._asked())

    async def _asked(self) -> bool:
        async with self._desk.turn:
            question, confirm = self._question, self._desk.confirm
            if question is None or confirm is None or self._desk.kept:
                return False
            self._told = question
            self._scope.teller.tell(
                events.Asked,
                about="consent",
                signal=question.signal,
                to=question.to,
                pids=question.pids,
                landing=question.landing,
                reason=question.why,
                verdict=question.verdict,
                saves=question.saves,
                risk=question.risk,
                beyond=question.beyond,
            )
            return await self._desk.answer(confirm(question), self._doubt) is True

    def _doubt(self, text: str) -> None:
        self._doubts.append(self._scope.teller.finding(text))

    def answer(self) -> bool | None:
        """The answer, once; None while nobody has given it. What the asking raised is raised."""
        if self._task is None or not self._task.done():
            return None
        task, self._task = self._task, None
        yes = task.result()
        self._tell("yes" if yes else "no", None)
        return yes

    async def withdraw(self, reason: str) -> None:
        await self._drop()
        self._tell("withdrawn", reason)

    async def close(self) -> None:
        """Whatever ends the climb ends its question; nothing is told any more."""
        await self._drop()

    async def _drop(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])  # bounded, see Desk.answer

    def _tell(self, answer: str, reason: str | None) -> None:
        told, self._told = self._told, None
        if told is not None:
            self._scope.teller.tell(
                events.Answered, answer=answer, signal=told.signal, reason=reason
            )


def terms_of(terms: Terms, job: Job | None, desk: Desk, dry_run: bool) -> Terms:
    """`--after-checkpoint` alone means to lose no more than the job calls nothing; a dry run
    asks nobody."""
    if terms.after_checkpoint and terms.max_loss_s is None and job is not None:
        terms = msgspec.structs.replace(terms, max_loss_s=job.max_loss_s)
    return msgspec.structs.replace(terms, asks=desk.confirm is not None and not dry_run)


def unsaid(family: Family, tree: ProcessTree, playbook: Playbook) -> str | None:
    """The signal that makes it save, by what it hears; None: that takes somebody's word."""
    asked = any(rung.signal == "stop_signal" for rung in playbook.ladder)
    found = choose_stop_signal(family, tree)
    return found if found is not None or asked else "INT"


async def signal_said(desk: Desk, scope: Scope, family: Family, dry_run: bool) -> str | None:
    """Which signal makes the job save, by somebody's word. Raises Refused where nobody can be
    asked or nobody knows. Meanwhile the job is watched: None where one of it ended."""
    choose = desk.choose
    if choose is None or dry_run:
        raise refusals.both_heard(family)
    task = asyncio.ensure_future(_chosen(choose, desk, scope, family))
    ids = [kin.id for kin in family.trainers]
    try:
        while not task.done():
            if await looks.watch(scope.place, ids, 0.5) and not task.done():
                scope.teller.tell(
                    events.Answered, answer="withdrawn", signal="", reason="the job has ended"
                )
                return None
        said = task.result()
    finally:
        task.cancel()
        await asyncio.wait([task])
    if said is None:
        raise refusals.both_heard(family)
    return said


async def _chosen(choose: Choose, desk: Desk, scope: Scope, family: Family) -> str | None:
    pids = tuple(kin.pid for kin in family.trainers)
    own = f" ({OWN})" if refusals.python_only(family) else ""
    async with desk.turn:
        if desk.kept:
            return None
        scope.teller.tell(
            events.Asked,
            about="stop_signal",
            signal="",
            to="trainers",
            pids=pids,
            landing="heard",
            reason=f"both {' and '.join(_BOTH)} are heard; nobody has said which makes it save"
            + own,
            verdict=None,
            saves=(),
            risk=None,
            choices=_BOTH,
        )
        choice = Choice(pids=pids, signals=_BOTH, target=scope.target.name)
        answer = await desk.answer(choose(choice), scope.teller.finding)
    said = answer if answer in _BOTH else None
    scope.teller.tell(events.Answered, answer=said or "no", signal=said or "")
    return said
