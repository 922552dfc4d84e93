"""What became of one target and of all, and the exit code that follows; the JSON contract.

Field names and words are read by scripts: they may be extended, never renamed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

Result = Literal[
    "stopped",
    "not_running",
    "running",
    "still_running",
    "unreachable",
    "refused",
    "unclean",
    "planned",
    "fault",
    "redeployed",
    "deploy_failed",
    "rolled_back",
    "unhealthy",
]
Role = Literal["trainer", "worker", "wrapper", "launcher", "supervisor", "other"]
GpuState = Literal["held", "unlisted", "idle", "fault", "unknown"]


class Member(Struct, frozen=True):
    """One process of the family. `pid` is the container's own number, `start` in clock ticks."""

    pid: int
    host_pid: int
    start: int
    role: Role
    verdict: str | None
    cmd: str


class AboveRecord(Struct, frozen=True):
    """What stands above the trainers, nearest last, and what it will do when they end.

    `kind`: wrapper, loop, launcher, ranks, systemd, supervisord, cron, tmux, screen, docker,
    login, jupyter, ray, other. `again`: after which end it starts the job again (always,
    failure, success, rounds, unknown, never). `pid` null: no process of its own.
    """

    pid: int | None
    kind: str
    cmd: str
    will: str
    again: str = "never"


class SignalRecord(Struct, frozen=True):
    """A signal that was sent; `pids` are the container's numbers, `at` ISO 8601 UTC.

    `signal` RUN, TOUCH or KEYS: another ask, with the landing `asked`."""

    signal: str
    to: str
    pids: tuple[int, ...]
    landing: str
    at: str


class SkippedRecord(Struct, frozen=True):
    signal: str
    reason: str


class PlannedStep(Struct, frozen=True):
    """What a dry run would do: `would` is send, skip, send_if (still running by then), or wait
    (for a checkpoint). `signal` may be RUN, TOUCH, KEYS or AWAIT; `argument` is then what would
    be run, touched or typed."""

    signal: str
    to: str
    pids: tuple[int, ...]
    landing: str
    would: Literal["send", "send_if", "skip", "wait"]
    reason: str
    wait_s: float | None
    argument: str = ""


class CheckpointRecord(Struct, frozen=True):
    """The newest checkpoint known at the end; `age_s` by the remote clock. `known_format`: its
    bytes told whether it is complete; `usual_s` between the last few like it."""

    path: str
    age_s: float | None
    complete: bool | None
    written_after_signal: bool | None
    known_format: bool | None = None
    usual_s: float | None = None


class GpuHolder(Struct, frozen=True):
    """A process on a GPU, as `gpus` tells it. `listed` by nvidia-smi, with what it holds there;
    else it has /dev/nvidia* open and may hold what nobody is listed with.

    `pid` (the container's number) null: there is no such process, or it is hidden. `vmid` null:
    it is on the host itself. `job`: a target of the inventory. `orphan`: what forked it has ended.
    """

    host_pid: int | None
    held_mib: int | None
    listed: bool
    pid: int | None = None
    start: int | None = None
    vmid: int | None = None
    container: str | None = None
    job: str | None = None
    user: str | None = None
    age_s: float | None = None
    orphan: bool = False
    cmd: str | None = None


class GpuRecord(Struct, frozen=True):
    """`held_mib` by this job; `holders` are host PIDs; null is unknown, never free.

    `gpus` tells a whole host's: `held_mib` by all that are listed; what follows `holders` is null
    elsewhere. `unlisted_mib`: in use less listed. `state` idle: nobody is listed, and no more is in
    use than a driver keeps.
    """

    index: int
    uuid: str
    held_mib: int | None
    holders: tuple[int, ...] | None
    used_mib: int | None = None
    total_mib: int | None = None
    unlisted_mib: int | None = None
    fault: str | None = None
    state: GpuState | None = None
    held_by: tuple[GpuHolder, ...] | None = None


class Stack(Struct, frozen=True):
    """Where a trainer's main thread was, innermost call first; `problem`: why that is not seen."""

    pid: int
    text: tuple[str, ...]
    problem: str | None = None


class ReleaseRecord(Struct, frozen=True):
    """Which files run. `id`: what was to run; `before`: what ran until then; `running`: what runs
    now, as the activator in the container wrote it. Null: none is known, or nothing runs."""

    id: str | None
    before: str | None
    running: str | None


class HealthCheck(Struct, frozen=True):
    """One question put to what was started, and its answer.

    `check`: alive, hears (its stop signal), arguments, environment, log (the pattern), gpu.
    `ok` null: it could not be seen. `said`: a sentence.
    """

    check: str
    ok: bool | None
    said: str


class HealthRecord(Struct, frozen=True):
    """How the trainer that was started did. `state` unknown: the watching ended before it was
    known, or it could not be seen. `release`: whose trainer. `exit`, `signal`: its exact end,
    where it was recorded; `log`: the last lines of its log when it was given up, redacted."""

    state: Literal["healthy", "unhealthy", "unknown"]
    release: str | None
    checks: tuple[HealthCheck, ...]
    exit: int | None = None
    signal: str | None = None
    log: tuple[str, ...] = ()


class Cost(Struct, frozen=True):
    """What the operation took on the remote side, for the speed budget."""

    ssh_connections: int
    pct_calls: int


class Outcome(Struct, frozen=True):
    """One target's end. Every key is always present in JSON; null means unknown.

    A launch or restart whose trainer is healthy is `running`, which is what status calls it too;
    a redeploy is `redeployed`. `release` and `health` are null where nothing was started;
    `health` may hold two: what was started, and then the old version, back again.
    """

    target: str
    host: str | None
    vmid: int | None
    job: str | None
    result: Result
    verdict: str | None = None
    reason: str | None = None
    evidence: tuple[str, ...] = ()
    family: tuple[Member, ...] = ()
    above: tuple[AboveRecord, ...] = ()
    signals: tuple[SignalRecord, ...] = ()
    skipped: tuple[SkippedRecord, ...] = ()
    plan: tuple[PlannedStep, ...] = ()
    checkpoint: CheckpointRecord | None = None
    gpus: tuple[GpuRecord, ...] | None = None
    findings: tuple[str, ...] = ()
    causes: tuple[str, ...] = ()
    stacks: tuple[Stack, ...] = ()
    cost: Cost | None = None
    interrupted: bool = False
    hint: str | None = None
    seconds: float | None = None
    release: ReleaseRecord | None = None
    health: tuple[HealthRecord, ...] | None = None


class Report(Struct, frozen=True, tag_field="event", tag="report"):
    """The last word of a run; `--json` prints it as one line."""

    schema: int
    run: str
    exit_code: int
    targets: tuple[Outcome, ...]


_CODES: dict[str, int] = {
    "stopped": 0,
    "not_running": 0,
    "running": 0,
    "planned": 0,
    "still_running": 1,
    "unreachable": 4,
    "refused": 5,
    "unclean": 6,
    "redeployed": 0,
    "deploy_failed": 7,
    "rolled_back": 8,
    "unhealthy": 8,
    "fault": 70,
}
# Several targets: the first of these that occurred wins.
_WORST = (130, 70, 4, 1, 8, 6, 7, 5)


def exit_code_of(outcome: Outcome) -> int:
    """The exit code this outcome alone would give."""
    return 130 if outcome.interrupted else _CODES[outcome.result]


def exit_code(outcomes: Sequence[Outcome]) -> int:
    """One code for the run."""
    seen = {exit_code_of(each) for each in outcomes}
    return next((code for code in _WORST if code in seen), 0)


def report(run: str, outcomes: Sequence[Outcome]) -> Report:
    return Report(schema=1, run=run, exit_code=exit_code(outcomes), targets=tuple(outcomes))
