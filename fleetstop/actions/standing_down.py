"""Who stops a job wants it down: what an earlier run left waiting for its end is told to leave.

Else that would start the job by itself, half a minute after its end was told. Sends no signal.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from fleetstop.actions import hands, looks
from fleetstop.actions.awaiting import is_its, state_in
from fleetstop.actions.telling import Scope
from fleetstop.core.launching.activation import State, Step
from fleetstop.core.launching.activator import Order
from fleetstop.core.process import Process
from fleetstop.core.releases.home import base_in
from fleetstop.core.spelling import plain
from fleetstop.errors import Refused

_WAIT_S = 180.0
_LOOK_S = 0.5
# what it is told at which step; at the others nobody can hold it back, and it comes to one of these
_WORDS: dict[Step, Order] = {"waiting": "cancel", "launched": "leave"}


def foreseen(who: Process) -> str:
    """What a stop would do about it, a sentence for a dry run."""
    return f"the activator {who.pid} of an earlier run would be told to leave"


async def stood_down(scope: Scope, who: Process, tell: Callable[[str], object]) -> bool:
    """Whether anything was done, so that all has to be looked at anew. Our lock is held: its client
    is gone, or hears of that. Raises Refused where it does not leave."""
    base = _base(who)
    shell = await scope.place.hands()
    end, told, waited = scope.clock.now() + _WAIT_S, False, False
    while scope.clock.now() < end:
        state = await state_in(scope, base)
        if state is None and await _lives(scope, who):
            raise Refused(
                f"the activator {who.pid} of an earlier run is at work here, and cannot be told to"
                f" leave: {plain(base)} is not there any more",
                hint=f"put that directory back; or end it in there: kill -9 {who.pid}",
            )
        if state is None or state.left or not is_its(state, who):
            break
        word = _WORDS.get(state.step)
        if word is not None and state.order != word:
            if not told:
                tell(f"{_name(who, state)} {_SAID[state.step]}: it is told to leave")
                told = True
            ask = partial(hands.order, shell, base, state.run, word)
            await hands.surely(scope, ask)
        await scope.clock.sleep(_LOOK_S)
        waited = True
    else:
        raise Refused(
            f"the activator {who.pid} of an earlier run is at work here, and does not leave",
            hint=f"look again with: {scope.run.typed('status', scope.target.name)}",
        )
    if waited:
        await scope.clock.sleep(_LOOK_S)  # its last state is written a moment before it is gone
    return waited  # one that has left, or has not come to wait, starts nothing without its client


_SAID: dict[Step, str] = {
    "waiting": "waits for this job's end, to start it anew",
    "launched": "looks after this job, and would bring the version before back",
}


async def _lives(scope: Scope, who: Process) -> bool:
    here = (await looks.look(scope.place, scope.target.vmid)).get(who.id)
    return here is not None and here.alive


def _base(who: Process) -> str:
    base = base_in(who.argv or ())
    assert base is not None  # that is how it was found
    return base


def _name(who: Process, state: State) -> str:
    return f"the activator {who.pid} of run {plain(state.run)}"
