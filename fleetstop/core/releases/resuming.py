"""What the next run of the same command does about an activation that it finds.

Decides by what the activator wrote and by what was seen; knows neither clock nor container. A
mixture of two releases is never taken for one, and what could not be seen is never guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec
from msgspec import Struct

from fleetstop.core import redact
from fleetstop.core.launching.activation import ENDS, Broken, State, Step
from fleetstop.core.launching.activator import STALE_S
from fleetstop.core.releases.manifest import Release
from fleetstop.core.releases.payload import some
from fleetstop.core.spelling import plain

Act = Literal["anew", "succeed", "take_over", "wait", "already_done", "confirm", "refuse"]


class Seen(Struct, frozen=True):
    """What one look showed; None: could not look.

    `activator`: the one of the state lives, by PID and start. `family`: a trainer of the job
    lives; `ours`: it is the one that the state names. `old_code`: files on disk are newer than it.
    `beat_s`: so long ago the client of that run was heard; infinity: never. `same`: what is asked
    now is what that run was asked; `told`: somebody was told how that one did, or it is long ago.
    """

    activator: bool | None
    family: bool | None
    ours: bool | None = None
    old_code: bool | None = None
    beat_s: float | None = None
    same: bool = False
    told: bool = False


class Decision(Struct, frozen=True):
    """What is done next, and why.

    `anew`: the whole pipeline; `succeed`: so too, and the activator of `run`, armed, waits on
    until ours takes its place; `take_over`: order the waiting activator of `run` to cancel, wait
    until its state says so, look again; `wait`: until the state moves, look again; `confirm`: what
    was launched runs, only its health is left to see; `refuse`: nothing, `sentence` says why.
    `clean`: the run whose temporary files and stage are removed first. `before`: the kept release
    that is the way back; None: what lies on disk is kept as one, or, where `torn`, there is none.
    `torn`: on disk lies a mixture of two releases.
    """

    act: Act
    sentence: str
    run: str | None = None
    clean: str | None = None
    before: str | None = None
    torn: bool = False
    findings: tuple[str, ...] = ()


def next_step(
    state: State | Broken | None,
    seen: Seen,
    *,
    wanted: Mapping[str, str],
    on_disk: Mapping[str, str],
    releases: Mapping[str, Release],
) -> Decision:
    """What a run that finds this does.

    `wanted`: SHA-256 by path below the destination of what it would send, empty for a launch or
    restart; `on_disk`: the same of what lies there, for these files and those of every release;
    `releases`: the manifests of the kept releases, by id. `state` None: there is no state.json.
    """
    if isinstance(state, Broken):
        return Decision("refuse", f"{state.sentence}; look at it, and remove it if it is of no use")
    if state is None:
        return Decision("anew", "nothing was deployed here before")
    if not state.ended:
        if seen.activator is None:
            return Decision("refuse", f"could not see whether {_activator(state)} lives", state.run)
        if seen.activator:
            return _beside_a_living_one(_There(state, seen, wanted, on_disk, releases))
    if seen.family is None:
        return Decision("refuse", "could not see whether the job runs", state.run)
    there = _There(state, seen, wanted, on_disk, releases)
    if state.step in ENDS:
        return _after_an_end(there)
    return _after_a_death(there)


class _There:
    """The case in hand: what the rules below ask of it."""

    def __init__(
        self,
        state: State,
        seen: Seen,
        wanted: Mapping[str, str],
        on_disk: Mapping[str, str],
        releases: Mapping[str, Release],
    ) -> None:
        self.state, self.seen, self.releases = state, seen, releases
        self.on_disk = on_disk
        self.runs = bool(seen.family)
        # the very content lies there, and the process that runs was started with it
        lies_there = bool(wanted) and all(on_disk.get(rel) == sha for rel, sha in wanted.items())
        started = self.runs and seen.ours is True and seen.old_code is False
        self.is_what_runs = lies_there and started
        # an interrupted restart, say: its client has seen no end of it
        self.is_done = started and seen.same and not seen.told and state.confirmed_by != "client"

    def whole(self, release: str | None) -> bool:
        """Is every file of this release on disk as it was?"""
        kept = self.releases.get(release or "")
        return kept is not None and all(
            self.on_disk.get(rel) == sha for rel, sha in kept.hashes.items()
        )

    def anew(self, why: str, *releases: str | None) -> Decision:
        """From the start, with the first of `releases` that lies on disk as the way back."""
        if self.state.torn:
            return self.back_to(why, self.state.before)
        kept = [each for each in releases if each in self.releases]
        before = next((each for each in kept if self.whole(each)), None)
        findings = self._differs(kept[0]) if kept and kept[0] and before is None else ()
        return self._decision(why, before, findings)

    def back_to(self, why: str, release: str | None) -> Decision:
        """From the start, with this release as the way back, although another one lies on disk, or
        half of it. What was changed there since is kept."""
        ours = self.state.release
        if not self.state.torn and (
            ours is None or (ours in self.releases and not self.whole(ours))
        ):
            return self.anew(why, *_newest(self.state))
        kept = release if release in self.releases else None
        findings: tuple[str, ...] = ()
        if kept is None and (release or self.state.torn):
            gone = f"release {release} is not kept" if release else "no release before it is known"
            findings = (f"there is no way back: {gone}" if self.state.torn else gone,)
        if self.state.torn and self.runs:
            findings = (*findings, "what runs may have been started from a mixture of two releases")
        return self._decision(why, kept, findings)

    def _decision(self, why: str, before: str | None, findings: tuple[str, ...]) -> Decision:
        state = self.state
        left = None if state.step in ENDS else state.run
        return Decision("anew", why, state.run, left, before, state.torn, findings)

    def _differs(self, release: str) -> tuple[str, ...]:
        """What is seen of it. Who did that is not: a person, a sync, or the job itself."""
        hashes = self.releases[release].hashes
        gone = sorted(rel for rel in hashes if rel not in self.on_disk)
        other = sorted(rel for rel, sha in hashes.items() if self.on_disk.get(rel, sha) != sha)
        told = [f"{some(other)} on disk is not what release {release} holds"] if other else []
        if gone:
            told.append(f"{some(gone)} of release {release} is not there any more, or not readable")
        return tuple(told)


def _beside_a_living_one(there: _There) -> Decision:
    state, seen = there.state, there.seen
    run, who = state.run, _activator(state)
    if state.step != "waiting":
        return Decision("wait", f"{who} is at it: {_SAID[state.step]}", run)
    if seen.beat_s is None:
        return Decision("refuse", f"could not see whether the client of run {run} lives", run)
    if seen.beat_s < STALE_S and not state.alone:
        heard = f"its client was heard {seen.beat_s:.0f} s ago"
        return Decision("wait", f"run {run} is at it, and {heard}", run)
    if state.order == "go":
        return Decision("wait", f"{who} was told to go on, and does so by itself", run)
    if seen.family is None:
        return Decision("refuse", "could not see whether the job runs", run)
    if state.order == "armed" and not seen.family:
        return Decision("wait", f"the job has ended, and {who} goes on by itself", run)
    waits = f"{who} waits for a client that is gone"
    if state.order != "armed" or state.torn:
        return Decision("take_over", waits, run)
    # the job may have heard a signal: while nobody waited for its end, nobody would start it again
    why = f"{waits}: it waits on for the job's end until this run's own takes its place"
    anew = there.anew(why, state.running, state.before)
    return msgspec.structs.replace(anew, act="succeed", clean=None)


def _after_an_end(there: _There) -> Decision:
    state = there.state
    match state.step:
        case "healthy" | "unconfirmed" if there.is_done and not there.is_what_runs:
            return _done_already(state)
        case "healthy" | "unconfirmed" if there.is_what_runs:
            if state.step == "healthy":
                why = f"{_release(state)} is this very content, runs, and was found healthy"
                return Decision("already_done", why + _when(state), state.run)
            why = f"{_release(state)} is this very content, and runs"
            return Decision("confirm", why, state.run)
        case "healthy":
            return there.anew("the run before it ended well", *_newest(state))
        case "unconfirmed" if there.runs:
            why = f"{_release(state)} runs, and nobody saw whether it is well"
            return there.anew(why, *_newest(state))
        case "unconfirmed":
            why = f"{_release(state)} has ended, and nobody saw whether it was well"
            return there.back_to(why, state.before)
        case "unhealthy":
            return there.back_to(f"{_release(state)} was not well{_because(state)}", state.before)
        case "rolled_back" if there.is_what_runs:
            why = f"the release before {_release(state)} is back, and is this very content"
            return Decision("confirm", why, state.run)
        case "rolled_back":
            back = "is back" if there.runs or state.trainer is None else "came back, and has ended"
            why = f"{_release(state)} was not well{_because(state)}; the one before {back}"
            return there.anew(why, state.running, state.before)
        case "cancelled":
            why = f"run {plain(state.run)} left everything as it was{_because(state)}"
            return there.anew(why, state.running, state.before)
        case "failed":
            why = f"run {plain(state.run)} failed{_because(state)}"
            return there.anew(why, state.running, state.before)
        case _:
            raise AssertionError(state.step)


def _after_a_death(there: _There) -> Decision:
    """The activator is gone in the middle: killed, or the container was stopped under it; or it
    ended there by a fault of its own."""
    state = there.state
    died = f"{_activator(state)} {'ended' if state.ended else 'died'}"
    match state.step:
        case "waiting":
            why = f"{died} before anything was swapped"
            return there.anew(why, state.running, state.before)
        case "swapping" | "rolling_back" if state.torn:
            why = f"{died} in the middle of a swap: on disk lies a mixture of {_two(state)}"
            return there.back_to(why, state.before)
        case "swapping" | "swapped" | "rolling_back":
            why = f"{died} before it started anything{_because(state)}"
        case "launching" | "launched" if there.is_done and not there.is_what_runs:
            return _done_already(state, state.run)
        case "launching" | "launched" if there.is_what_runs:
            why = f"{died} while it watched {_release(state)}, which runs"
            return Decision("confirm", why, state.run, state.run)
        case "launching" | "launched" if there.runs:
            why = f"{died} while it watched {_release(state)}, which may be what runs"
            return there.anew(why, *_newest(state))
        case "launching" | "launched":
            why = f"{died} while it started {_release(state)}, which does not run"
        case _:
            raise AssertionError(state.step)
    # what was swapped in has never been seen to run; without files, what lies there is the old
    if state.release is not None:
        return there.back_to(why, state.before)
    return there.anew(why, *_newest(state))


def _done_already(state: State, clean: str | None = None) -> Decision:
    why = f"run {plain(state.run)} was asked the same, and what it started runs"
    return Decision("confirm", why, state.run, clean)


def _newest(state: State) -> tuple[str | None, ...]:
    """What runs after it, the likeliest first: a restart brings no release of its own."""
    return state.release, state.running, state.before


def _activator(state: State) -> str:
    pid = f" {state.activator.pid}" if state.activator else ""
    return f"the activator{pid} of run {plain(state.run)}"


def _when(state: State) -> str:
    """` at 2026-11-30 14:02 UTC`, as the container's clock had it."""
    head, _, rest = (state.ended_at or state.at or "").partition("T")
    return f" at {plain(head)} {plain(rest[:5])} UTC" if rest else ""


def _release(state: State) -> str:
    return f"release {plain(state.release)}" if state.release else f"what run {state.run} started"


def _two(state: State) -> str:
    return f"{plain(state.before or 'what was there before')} and {plain(state.release or '')}"


def _because(state: State) -> str:
    return f": {redact.text(state.reason, 300)}" if state.reason else ""


_SAID: dict[Step, str] = {
    "waiting": "it waits for the job's end",
    "swapping": "it puts the new files in place",
    "swapped": "the new files are in place",
    "launching": "it starts the job",
    "launched": "it watches what it started",
    "healthy": "it is done",
    "unconfirmed": "it is done",
    "unhealthy": "it is done",
    "rolling_back": "it puts the old files back",
    "rolled_back": "it is done",
    "cancelled": "it is done",
    "failed": "it is done",
}
