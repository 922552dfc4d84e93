"""Frozen facts in the past tense; whoever listens can never hurt the work.

Every event has `at` (ISO 8601 UTC, by the client's clock) and `target` (null where it
concerns the whole run). The tag field `event` carries the name; names and keys are a contract.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

from msgspec import Struct

from fleetstop.core.report import AboveRecord, GpuRecord, Member, Outcome, PlannedStep, Report
from fleetstop.core.saves.risk import AtRisk
from fleetstop.core.signals import Landing
from fleetstop.events.deploying import Destined as Destined
from fleetstop.events.deploying import Differs as Differs
from fleetstop.events.deploying import DiffLine as DiffLine
from fleetstop.events.deploying import FileRow as FileRow
from fleetstop.events.deploying import LaunchShown as LaunchShown
from fleetstop.events.event import Event as Event
from fleetstop.events.kept import BlackBox as BlackBox
from fleetstop.events.kept import Boxed as Boxed
from fleetstop.events.kept import Opened as Opened
from fleetstop.events.kept import SeenProcess as SeenProcess
from fleetstop.events.kept import Snapshot as Snapshot
from fleetstop.events.kept import Untold as Untold
from fleetstop.events.launching import Activated as Activated
from fleetstop.events.launching import Armed as Armed
from fleetstop.events.launching import Healthy as Healthy
from fleetstop.events.launching import Launched as Launched
from fleetstop.events.launching import LogSaid as LogSaid
from fleetstop.events.launching import RolledBack as RolledBack
from fleetstop.events.launching import RollingBack as RollingBack
from fleetstop.events.launching import Unhealthy as Unhealthy
from fleetstop.events.staging import Proved as Proved
from fleetstop.events.staging import Staged as Staged
from fleetstop.events.staging import Staging as Staging


class Started(Event, frozen=True, tag="started"):
    """First event of a run; `command` is the verb, `asked` the targets as they were typed.

    `inventory`: the path that was named on the command line, so that a suggested command can
    name it too; null where it was found by itself. `more`: what stands behind verb and target so
    that the same is done again, consent aside; null: not all of it can be told (a secret is in
    --env, or among the words after --).
    """

    run: str
    command: str
    targets: tuple[str, ...]
    schema: int = 1
    asked: tuple[str, ...] = ()
    inventory: str | None = None
    more: tuple[str, ...] | None = ()


class Connected(Event, frozen=True, tag="connected"):
    host: str
    seconds: float


class Reconnected(Event, frozen=True, tag="reconnected"):
    """The connection was lost and is another one now; `seconds` from noticing to then."""

    host: str
    seconds: float


class LogSeen(Struct, frozen=True):
    """The last line of the job's log, verbatim; `age_s` by the remote clock, null unknown."""

    path: str
    age_s: float | None
    line: str


class CheckpointSeen(Struct, frozen=True):
    """The newest checkpoint at the first look; `complete` null: not known.

    `known_format`: its bytes told that. `usual_s`: between the last few of its kind. Where it is
    not complete, `whole` and `whole_age_s` are the newest one that is, null where there is none.
    """

    path: str
    name: str
    age_s: float | None
    complete: bool | None
    size: int | None
    known_format: bool | None = None
    usual_s: float | None = None
    whole: str | None = None
    whole_age_s: float | None = None


class CodeSeen(Struct, frozen=True):
    """What is known of the job's code; every sentence is whole.

    `main`: the file it runs, by its real name. `newer`: the file changed `newer_s` after it began
    that matters most, `said` tells how; `old`: it runs other code than lies there, null: it may,
    or nobody looked (`unseen` says why). `release`: the kept one that runs, `certain` where it was
    launched as that one, else by what lies on disk; `runs` tells either. `deploy`: what an
    activation is about, or what it has left.
    """

    main: str | None = None
    newer: str | None = None
    newer_s: float | None = None
    old: bool | None = None
    said: str | None = None
    release: str | None = None
    certain: bool | None = None
    runs: str | None = None
    deploy: str | None = None
    unseen: str | None = None


class Located(Event, frozen=True, tag="located"):
    """The job as found: what the header of a stop, and a row of status, show.

    `stops_on`: the signals every trainer hears. `held_mib`/`total_mib`: of this job's GPUs.
    `landings`: how each stop signal would land, the worst over all trainers. `code`: status asks.
    `own_playbook`: the job's, which counts where none is typed; null where that is not known.
    `typed`: it was named by its PID, script and so on, and not by the inventory's name.
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
    landings: dict[str, Landing] = {}  # noqa: RUF012 a Struct gives each its own
    above: tuple[AboveRecord, ...] = ()
    checkpoints_unseen: str | None = None
    code: CodeSeen | None = None
    own_playbook: str | None = None
    typed: bool = False


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
    """`pids`: the container's numbers. `continued`: CONT followed, they were suspended.

    `signal` RUN, TOUCH or KEYS: another ask, with the landing `asked`; `argument` is what was
    run, touched or typed."""

    signal: str
    to: str
    pids: tuple[int, ...]
    host_pids: tuple[int, ...]
    landing: str
    wait_s: float | None
    continued: bool = False
    argument: str = ""


class CommandEnded(Event, frozen=True, tag="command_ended"):
    """What a `run` rung's command came to: `how` is its exit status, `late` (ended when the
    rung's wait was over), `lost` (killed by another) or `unseen`; `line` its last words."""

    how: str
    line: str


class Asked(Event, frozen=True, tag="asked"):
    """A question is open. `about` consent: may this be sent; stop_signal: which of `choices`
    makes the job save. `risk`: the newest complete checkpoint, null where unknown. `saves`:
    what is being written at this moment. `beyond`: what a no leaves out with it."""

    about: Literal["consent", "stop_signal"]
    signal: str
    to: str
    pids: tuple[int, ...]
    landing: str
    reason: str
    verdict: str | None
    saves: tuple[str, ...]
    risk: AtRisk | None
    choices: tuple[str, ...] = ()
    beyond: tuple[str, ...] = ()


class Answered(Event, frozen=True, tag="answered"):
    """`answer`: yes, no or withdrawn; to the question for the stop signal its name, or no.
    `reason`: why it was withdrawn."""

    answer: str
    signal: str
    reason: str | None = None


class CheckpointAwaited(Event, frozen=True, tag="checkpoint_awaited"):
    """The newer checkpoint an await rung waited for; `name` null: it did not come in time."""

    name: str | None
    age_s: float | None
    waited_s: float


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


class Waiting(Event, frozen=True, tag="waiting"):
    """`fleetstop wait` has looked and waits; nothing is sent. `limit_s` null: for ever."""

    what: Literal["gone", "checkpoint", "gpu-free", "healthy"]
    limit_s: float | None


AnyEvent: TypeAlias = Event | Report
Emit: TypeAlias = Callable[[AnyEvent], None]
