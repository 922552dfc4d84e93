"""The activator in the container, from start to end: orders out, states back, a sign of life.

What it does it decides by itself; whether the job is healthy is decided elsewhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from msgspec import Struct

from fleetstop.actions import hands, looks, reading
from fleetstop.actions.telling import Scope
from fleetstop.core import redact
from fleetstop.core.launching.activation import State, Step, state_of
from fleetstop.core.launching.activator import BEAT_S, ActivatorSpec, Order
from fleetstop.core.launching.ended import Born, Record, parse_record
from fleetstop.core.launching.newborn import here
from fleetstop.errors import CouldNotLook, RemoteFailed
from fleetstop.ports import Shell

_EVERY_S = 0.03
_LIVES_S = 0.5
_PATIENCE_S = 60.0

Hands = Callable[[], Awaitable[Shell]]
T = TypeVar("T")


class Waits(Struct, frozen=True):
    """`problem`: why it does not wait, a sentence; then all is as before."""

    pid: int | None
    problem: str | None = None


class Activation:
    """One run's activator. `hands`: the container's shell that may change things; `scripts`: by
    name, `activate.py` among them; `python`: the job's own interpreter."""

    def __init__(
        self,
        scope: Scope,
        spec: ActivatorSpec,
        python: str,
        scripts: Mapping[str, str],
        hands_: Hands,
        tools: str | None = None,
    ) -> None:
        self.spec = spec
        self.state: State | None = None
        self.ordered: Order | None = None
        self.heard: Order | None = None
        self.started = False
        self.stopping = False
        """What ran before is being stopped, or was not to be stopped."""
        self.dead = False  # it was seen to be gone without a last word
        self._scope, self._hands = scope, hands_
        self._python, self._scripts = python, scripts
        self._tools = tools or spec.base
        self._activator: Born | None = None
        self._why = ""

    async def begin(self) -> Waits:
        """Everything is prepared in the container, and the activator waits there; or nothing of it
        is left, and all is as it was."""
        try:
            waits = await self._begun()
        except RemoteFailed as exc:
            waits, self.started = Waits(None, exc.message), False
        if waits.problem is None:
            return waits
        try:
            await self.clean()
        except RemoteFailed as exc:
            return Waits(None, f"{waits.problem}; {exc.message}")
        return waits

    async def _begun(self) -> Waits:
        """Where the answer to the start was lost, the state file tells."""
        base, run = self.spec.base, self.spec.run
        shell = await self._hands()
        if not self.spec.files:  # else files were sent into it
            await hands.surely(self._scope, lambda: hands.stage(shell, base, run))
        scripts = {f"{self._tools}/{name}": text for name, text in self._scripts.items()}
        if self._tools != base:
            await hands.surely(self._scope, lambda: hands.tools(shell, self._tools))
        spec = f"{base}/stage-{run}/spec.json"
        secret = (spec, self.spec.text())
        await hands.surely(self._scope, lambda: hands.put_all(shell, scripts, secret))
        self.started = True
        if self.spec.succeeds is not None:
            self.ordered = "armed"  # as the one was whose place it takes
        try:
            line = await hands.start(shell, self._python, f"{self._tools}/activate.py", spec)
        except CouldNotLook:
            state = await self.look()
            if state is None or state.run != run or state.activator is None:
                raise
            line = f"waiting {state.activator.pid} {state.activator.start}"
        word, _, rest = line.partition(" ")
        numbers = rest.split()
        self.started = word == "waiting"
        if not self.started or len(numbers) != 2 or not all(n.isdigit() for n in numbers):
            return Waits(None, rest if word == "failed" else f"it answered {line!r}")
        self._activator = Born(int(numbers[0]), int(numbers[1]))
        return Waits(self._activator.pid)

    async def order(self, word: Order, why: str = "", *, alone: bool = False) -> None:
        """`why`: in words, which its state will tell as the reason; `alone`: we leave with it."""
        base, run = self.spec.base, self.spec.run
        self.ordered = word  # before its answer: it may have been heard
        self._why = " ".join(redact.text(why, 300).split())
        rest = " ".join(filter(None, ("alone" if alone else "", self._why)))
        shell = await self._hands()
        await hands.surely(self._scope, lambda: hands.order(shell, base, run, word, rest))
        self.heard = word

    async def leave_it(self) -> None:
        """Nobody waits for a client that leaves: what has sent nothing is cancelled, what has goes
        on by itself at once, and not only when our silence is believed."""
        if not self.started:
            return
        if self.ordered is None:
            if self.state is None:
                await self.order("cancel")
            return
        if self.ordered == "cancel" or self.dead or (self.state is not None and self.state.left):
            return
        await self.order(self.ordered, self._why, alone=True)

    async def look(self, mark: str | None = None) -> State | None:
        """Its state, None where there is none of this run."""
        return (await self.read(mark))[0]

    async def read(self, mark: str | None = None) -> tuple[State | None, Record | None]:
        """Its state, and what the supervisor of `mark` has recorded; one frame."""
        base = self.spec.base
        paths = [f"{base}/state.json"] + ([f"{base}/status/{mark}.json"] if mark else [])
        texts = await reading.heads(await self._scope.place.inside(), tuple(paths))
        state = state_of(texts.get(paths[0]))
        if state is not None and state.run == self.spec.run:
            self.state = state
        return self.state, parse_record(texts.get(paths[1])) if mark else None

    async def until(self, *steps: Step, within_s: float = _PATIENCE_S) -> State | None:
        """Its state, once it is at one of these steps, has left, or time is over."""
        now = self._scope.clock.now()
        end, asked = now + within_s, now
        while True:
            state = await self.look()
            if state is not None and (state.step in steps or state.left):
                return state
            now = self._scope.clock.now()
            if now - asked >= _LIVES_S or now >= end:
                asked = now
                if not await self.lives():
                    state = await self.look()  # it may have written its last word in between
                    self.dead = state is None or not (state.step in steps or state.left)
                    return state
                if now >= end:
                    return state
            await self._scope.clock.sleep(_EVERY_S)

    async def lives(self) -> bool:
        return self._activator is not None and await self._any_lives(self._activator)

    async def at_work(self) -> bool:
        """It lives, and has not left this launch to itself: it would still take an order."""
        state = await self.look()
        return state is not None and not state.left and await self.lives()

    async def killed(self) -> bool:
        """It was still waiting, and is gone without a last word."""
        if await self.lives():
            return False
        state = await self.look()
        return state is not None and state.step == "waiting" and state.ended_at is None

    async def old_lives(self) -> bool:
        """Whether one of those that were to be gone is there."""
        return await self._any_lives(*self.spec.gone)

    async def _any_lives(self, *born: Born) -> bool:
        tree = await looks.look(self._scope.place, self._scope.target.vmid)
        return any(found is not None and found.alive for found in (here(tree, e) for e in born))

    async def clean(self) -> None:
        """Its spec holds secrets. An activator that has begun, and failed, has done so itself."""
        base, run = self.spec.base, self.spec.run
        shell = await self._hands()
        await hands.surely(self._scope, lambda: hands.unstage(shell, base, run))

    @asynccontextmanager
    async def at_its_side(self, begin: Coroutine[Any, Any, T]) -> AsyncIterator[asyncio.Task[T]]:
        """`begin` is under way within it, and never longer. From its end on the activator is shown
        that its client lives, also while a stop is at work."""
        begun = asyncio.create_task(begin)
        beats = asyncio.create_task(self._beats(begun))
        try:
            yield begun
        finally:
            for each in (begun, beats):
                each.cancel()
            await asyncio.wait({begun, beats})
            if not begun.cancelled():
                begun.exception()  # it has been heard of by whoever waited for it
        if not beats.cancelled():
            beats.result()  # it ends by nothing but a fault

    async def _beats(self, begun: asyncio.Task[Any]) -> None:
        missed = 0
        await asyncio.wait({begun})
        while self.started:
            try:
                await hands.beat(await self._hands(), self.spec.base)
                missed = 0
            except CouldNotLook as exc:
                # whoever works meanwhile takes the connection up again; this only tries on
                missed += 1
                if missed == _TELL_AT:
                    self._scope.teller.finding(f"no sign of life reached it: {exc.message}")
            await self._scope.clock.sleep(BEAT_S)


_TELL_AT = 5


def unexpected(state: State | None, wanted: str) -> RemoteFailed:
    """The activator did not come to where it was to be."""
    at = state.step if state is not None else "no state at all"
    why = f": {state.reason}" if state is not None and state.reason else ""
    return RemoteFailed(
        f"what works in the container did not come to {wanted}: {at}{why}",
        hint="look: fleetstop status; then run the same command again",
    )
