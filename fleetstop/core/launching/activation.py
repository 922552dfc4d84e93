"""How far an activation came, by the state that the activator writes. Knows no container."""

from __future__ import annotations

import re
from typing import Literal

import msgspec
from msgspec import Struct

from fleetstop.core import redact
from fleetstop.core.launching.ended import Born
from fleetstop.core.spelling import plain

SCHEMA = 1
RELEASE_PATTERN = r"[0-9]{8}-[0-9]{6}-[0-9a-f]{4}"
_RELEASE = re.compile(RELEASE_PATTERN)
_RUN = re.compile(r"[A-Za-z0-9]{1,64}")

Step = Literal[
    "waiting",
    "swapping",
    "swapped",
    "launching",
    "launched",
    "healthy",
    "unconfirmed",
    "unhealthy",
    "rolling_back",
    "rolled_back",
    "cancelled",
    "failed",
]
# Where an activation is meant to end. A fault can end it in any step, as `ended_at` tells.
ENDS: frozenset[Step] = frozenset(
    {"healthy", "unconfirmed", "unhealthy", "rolled_back", "cancelled", "failed"}
)


class Broken(Struct, frozen=True):
    """A file of ours that says nothing that can be relied on; `sentence` tells which and why."""

    sentence: str


class Started(Struct, frozen=True):
    """What the activator started, as the container counts; `mark` names its supervisor's file.
    `log_from`: how long its log was by then; None: an earlier activator did not tell."""

    pid: int
    start: int
    mark: str | None = None
    log_from: int | None = None


class State(Struct, frozen=True):
    """state.json, as remote/scripts/activate.py tells of it.

    `release` None: nothing was to be swapped (a launch, a restart). `running`: the release that
    runs now. `exit` and `signal`: how the new version ended, also once the old one is back.
    `order`: the last word it heard; `alone`: its client said that it leaves. `files`: what lies at
    the destination. `checkpoint`: what its launch was told to go on from; `resumes`: the words to
    resume that what runs was launched with, as the inventory had them. `gone`: for whose end it
    waits. `log_end`: where the new version's part of the log ends and the old one's begins, bytes.
    `wish`: of what was asked, a word that the same command gives again. `ended_at` is set once the
    activator has no more to do; null where it works on, or was killed.
    """

    run: str
    step: Step
    release: str | None = None
    before: str | None = None
    activator: Born | None = None
    trainer: Started | None = None
    exit: int | None = None
    signal: str | None = None
    reason: str | None = None
    findings: tuple[str, ...] = ()
    at: str | None = None
    order: str | None = None
    running: str | None = None
    log_rotated: str | None = None
    log_end: int | None = None
    confirmed_by: str | None = None
    files: Literal["old", "mixed", "new"] | None = None
    checkpoint: str | None = None
    resumes: tuple[str, ...] | None = None
    alone: bool = False
    gone: tuple[Born, ...] = ()
    wish: str | None = None
    ended_at: str | None = None
    schema: int = SCHEMA

    @property
    def ended(self) -> bool:
        return self.ended_at is not None

    @property
    def left(self) -> bool:
        """Nobody works on any more; one that waits for an order may stand at `unhealthy` too."""
        return self.ended or self.step in ENDS

    @property
    def torn(self) -> bool:
        """On disk lies a mixture of two releases."""
        if self.release is None:
            return False
        if self.files is not None:
            return self.files == "mixed"
        return self.step in ("swapping", "rolling_back")


def is_release_id(text: str) -> bool:
    return _RELEASE.fullmatch(text) is not None


def parse_state(data: bytes, name: str) -> State | Broken:
    """`name` is the file's, for the sentence. Keys that a later activator added are passed over."""
    try:
        state = msgspec.json.decode(data, type=State)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return Broken(f"{plain(name)} is no activator's state: {redact.text(str(error), 200)}")
    if state.schema > SCHEMA:
        return Broken(f"{plain(name)} was written by a newer fleetstop (schema {state.schema})")
    # they become parts of paths
    names = (state.release, state.before, state.running)
    if not _RUN.fullmatch(state.run) or not all(is_release_id(each) for each in names if each):
        return Broken(f"{plain(name)} names a run or a release that cannot be")
    # its sentences quote what other programs said
    reason = redact.text(state.reason) if state.reason is not None else None
    findings = tuple(redact.text(each) for each in state.findings)
    return msgspec.structs.replace(state, reason=reason, findings=findings)


def state_of(text: str | None) -> State | None:
    """None where there is none, or it says nothing; it is replaced by rename, so whole."""
    if not text:
        return None
    found = parse_state(text.encode("utf-8", "surrogateescape"), "state.json")
    return found if isinstance(found, State) else None


def same_trainer(state: State, pid: int, start: int) -> bool:
    """Is this process (the container's number, clock ticks) the one that was started there?"""
    return state.trainer is not None and (state.trainer.pid, state.trainer.start) == (pid, start)
