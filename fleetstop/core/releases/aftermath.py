"""What an activation that is found means for who only looks: a sentence. Decides nothing.

What the next deploy does about it, resuming.py decides.
"""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from fleetstop.core import redact
from fleetstop.core.durations import spoken
from fleetstop.core.launching.activation import State
from fleetstop.core.launching.activator import STALE_S
from fleetstop.core.spelling import plain


class Around(Struct, frozen=True):
    """What was seen beside the state. `activator`: the one it names lives. `began`: when what runs
    of the job began, seconds since the epoch, None where nothing runs; `ours`: it is what that
    activator started. `beat_s`: so long ago its client was heard, None: never. `lives`: the very
    process that it started; None: not seen. `startable`: the inventory says how the job is
    started, so that it can be where nothing of it runs."""

    activator: bool
    now: float
    began: float | None = None
    ours: bool = False
    beat_s: float | None = None
    lives: bool | None = None
    startable: bool = True


def comes_up(state: State, around: Around) -> bool:
    """Somebody is about to start the job, or to put the old one back, whoever asks it to or not."""
    if state.ended or not around.activator:
        return False
    return (
        state.step != "waiting"
        or state.order == "go"
        or (state.order == "armed" and around.began is None)
    )


def aftermath(state: State, around: Around) -> str | None:
    """None: there is nothing to be told; it ended as it was meant to, or what runs came later."""
    if around.activator and not state.ended:
        return f"{_who(state)} is at it: {_doing(state, around)}"
    if state.torn:
        run, why = plain(state.run), _because(state)
        return f"run {run} left a mixture of two releases on disk{why}; {_again(around)}"
    if _later(state, around):
        return None
    when, release, again = _when(state), _release(state), _again(around)
    ended = state.trainer is not None and around.began is None and around.lives is False
    match state.step:
        case "healthy" | "cancelled":
            return None
        case "unconfirmed":
            return f"{release} was launched{when}, and nobody saw whether it is well; {again}"
        case "unhealthy":
            left = f"it was left as it was{', and has ended by now' if ended else ''}"
            return f"{release} was not well{when}{_because(state)}; {left}"
        case "rolled_back":
            return f"{release} was not well{when}{_because(state)}; {_back(state, around, ended)}"
        case "failed":
            return f"run {plain(state.run)} failed{when}{_because(state)}"
        case "launching" | "launched":
            return f"{_who(state)} ended{when} before it knew whether {release} is well; {again}"
        case "waiting":
            return f"{_who(state)} ended{when} before it changed anything; {again}"
        case _:
            return f"{_who(state)} ended{when} before it had started {release}; {again}"


def _again(around: Around) -> str:
    goes_on = "the same command goes on from there"
    if around.began is not None or around.startable:
        return goes_on
    return f"{goes_on} once `launch: run` in the inventory says how it is started: nothing runs"


def _back(state: State, around: Around, ended: bool) -> str:
    if ended:
        return "what ran before was brought back, and has ended by now"
    started = state.trainer is not None or around.ours
    return "what ran before is back" if started else "what ran before is back on disk"


def _doing(state: State, around: Around) -> str:
    match state.step:
        case "waiting":
            heard = around.beat_s
            if state.order == "go":
                return "it was told to go on"
            if state.alone:
                return "it waits for the end of what runs, and its client has left"
            if heard is None or heard >= STALE_S:
                gone = "was never heard" if heard is None else f"was last heard {spoken(heard)} ago"
                return f"it waits for the end of what runs, and its client {gone}"
            return "it waits for the end of what runs"
        case "swapping":
            return "it puts the new files in place"
        case "swapped" | "launching":
            return "it starts the job"
        case "rolling_back":
            return f"it puts the old version back{_because(state)}"
        case "unhealthy":
            return f"what it started is not well, and its client decides{_because(state)}"
        case _:
            return "it watches what it started"


def _later(state: State, around: Around) -> bool:
    """What runs is not what it started, and began when it was done: its story is an old one."""
    if around.began is None or around.ours:
        return False
    done = seconds(state.ended_at or state.at)
    return done is not None and around.began > done


def seconds(at: str | None) -> float | None:
    try:
        return datetime.fromisoformat(at or "").timestamp()
    except ValueError:
        return None


def _when(state: State) -> str:
    """` at 2026-11-30 14:02 UTC`, as the container's clock had it."""
    head, _, rest = (state.ended_at or state.at or "").partition("T")
    return f" at {plain(head)} {plain(rest[:5])} UTC" if rest else ""


def _who(state: State) -> str:
    pid = f" {state.activator.pid}" if state.activator else ""
    return f"the activator{pid} of run {plain(state.run)}"


def _release(state: State) -> str:
    return (
        f"release {plain(state.release)}"
        if state.release
        else f"what run {plain(state.run)} started"
    )


def _because(state: State) -> str:
    return f": {redact.text(state.reason, 300)}" if state.reason else ""
