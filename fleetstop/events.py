"""Frozen facts in the past tense; whoever listens can never hurt the work.

Every event has `at` (ISO 8601 UTC, by the client's clock) and `target` (null where it
concerns the whole run). The tag field `event` carries the name; names and keys are a contract.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

from msgspec import Struct

from fleetstop.core.report import AboveRecord, GpuRecord, Member, Outcome, PlannedStep, Report
from fleetstop.core.signals import Landing


class Event(Struct, frozen=True, kw_only=True, tag_field="event"):
    at: str
    target: str | None


class Started(Event, frozen=True, tag="started"):
    """First event of a run; `command` is the verb, `asked` the targets as they were typed.

    `inventory`: the path that was named on the command line, so that a suggested command can
    name it too; null where it was found by itself.
    """

    run: str
    command: str
    targets: tuple[str, ...]
    schema: int = 1
    asked: tuple[str, ...] = ()
    inventory: str | None = None


class Connected(Event, frozen=True, tag="connected"):
    host: str
    seconds: float


class LogSeen(Struct, frozen=True):
    """The last line of the job's log, verbatim; `age_s` by the remote clock, null unknown."""

    path: str
    age_s: float | None
    line: str


class CheckpointSeen(Struct, frozen=True):
    """The newest checkpoint at the first look; `complete` null: not known."""

    path: str
    name: str
    age_s: float | None
    complete: bool | None
    size: int | None


class Located(Event, frozen=True, tag="located"):
    """The job as found: what the header of a stop, and a row of status, show.

    `stops_on`: the signals every trainer hears. `held_mib`/`total_mib`: of this job's GPUs.
    `landings`: how each stop signal would land, the worst over all trainers.
    """

    host: str
    vmid: int | None
    job: str | None
    playbook: str | None
    lossless: bool
    graceful: bool
    dry_run: bool
    family: tuple[Member, ...]
    verdict: str
    evidence: tuple[str, ...]
    up_s: float | None
    threads: int | None
    stops_on: tuple[str, ...]
    log: LogSeen | None
    checkpoint: CheckpointSeen | None
    checkpoints_declared: bool
    gpus: tuple[GpuRecord, ...] | None
    gpu_total_mib: int | None
    landings: dict[str, Landing] = {}
    above: tuple[AboveRecord, ...] = ()


class Looked(Event, frozen=True, tag="looked"):
    """A later look whose verdict differs from the one before."""

    verdict: str
    evidence: tuple[str, ...]


class RungEntered(Event, frozen=True, tag="rung_entered"):
    rung: int
    signal: str
    to: str
    wait_s: float | None


class RungSkipped(Event, frozen=True, tag="rung_skipped"):
    """`landing` is null where the rung had no recipient; `reason` is a whole sentence."""

    rung: int
    signal: str
    landing: str | None
    pids: tuple[int, ...]
    reason: str


class SignalSent(Event, frozen=True, tag="signal_sent"):
    """`pids`: the container's numbers. `continued`: CONT followed, they were suspended."""

    signal: str
    to: str
    pids: tuple[int, ...]
    host_pids: tuple[int, ...]
    landing: str
    wait_s: float | None
    continued: bool = False


class WatchedOn(Event, frozen=True, tag="watched_on"):
    """An earlier run already sent the signal this rung would send; nothing is repeated."""

    signal: str
    pids: tuple[int, ...]
    by_run: str
    ago_s: float | None
    wait_s: float | None


class Holding(Event, frozen=True, tag="holding"):
    """The next signal waits. `over_wait`: the rung's own wait is over, only the hold keeps it."""

    why: Literal["saving", "stopping", "unseen"]
    evidence: tuple[str, ...]
    over_wait: bool


class MemberExited(Event, frozen=True, tag="member_exited"):
    pid: int
    role: str
    cmd: str
    zombie: bool


class Verifying(Event, frozen=True, tag="verifying"):
    """`what`: checkpoint, gpus or above (wrappers, launchers)."""

    what: Literal["checkpoint", "gpus", "above"]


class CheckpointVerified(Event, frozen=True, tag="checkpoint_verified"):
    name: str
    size: int
    complete: bool


class GpusReleased(Event, frozen=True, tag="gpus_released"):
    indexes: tuple[int, ...]
    seconds: float


class Finding(Event, frozen=True, tag="finding"):
    text: str


class Planned(Event, frozen=True, tag="planned"):
    """A dry run's answer; nothing was sent."""

    steps: tuple[PlannedStep, ...]


class TargetFinished(Event, frozen=True, tag="target_finished"):
    outcome: Outcome


class Interrupted(Event, frozen=True, tag="interrupted"):
    """Ctrl-C: `sent` lists what was sent before, like `INT to 26982`."""

    sent: tuple[str, ...]
    running: tuple[int, ...]


class Fault(Event, frozen=True, tag="fault"):
    """A bug in fleetstop: one target's outcome, the others go on."""

    error: str
    traceback_path: str | None


AnyEvent: TypeAlias = Event | Report
Emit: TypeAlias = Callable[[AnyEvent], None]
