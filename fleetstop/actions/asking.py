"""Questions to people: one at a time over all targets, open while the job is watched on."""

from __future__ import annotations

import asyncio
import contextlib

import msgspec

from fleetstop import events
from fleetstop.actions import looks, refusals
from fleetstop.actions.telling import Scope
from fleetstop.core.consent import Choice, Question, Terms
from fleetstop.core.family import Family
from fleetstop.core.inventory import Job
from fleetstop.core.playbook import Playbook
from fleetstop.core.process import ProcessTree
from fleetstop.core.requests import choose_stop_signal
from fleetstop.ports import Choose, Confirm

_BOTH = ("INT", "TERM")


class Desk:
    """Who can be asked; None: nobody. Its turn keeps two questions from being open at once."""

    def __init__(self, confirm: Confirm | None = None, choose: Choose | None = None) -> None:
        self.confirm = confirm
        self.choose = choose
        self.turn = asyncio.Lock()


class Asking:
    """The question of one climb. Whoever climbs goes on looking, and withdraws it when it has
    no object any more."""

    def __init__(self, desk: Desk, scope: Scope) -> None:
        self._desk = desk
        self._scope = scope
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
            if question is None or confirm is None:
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
            )
            return await confirm(question) is True

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
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([task])

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
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([task])
    if said is None:
        raise refusals.both_heard(family)
    return said


async def _chosen(choose: Choose, desk: Desk, scope: Scope, family: Family) -> str | None:
    pids = tuple(kin.pid for kin in family.trainers)
    async with desk.turn:
        scope.teller.tell(
            events.Asked,
            about="stop_signal",
            signal="",
            to="trainers",
            pids=pids,
            landing="heard",
            reason=f"both {' and '.join(_BOTH)} are heard; nobody has said which makes it save",
            verdict=None,
            saves=(),
            risk=None,
            choices=_BOTH,
        )
        answer = await choose(Choice(pids=pids, signals=_BOTH, target=scope.target.name))
    said = answer if answer in _BOTH else None
    scope.teller.tell(events.Answered, answer=said or "no", signal=said or "")
    return said
