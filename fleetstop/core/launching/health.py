"""Whether what was started is healthy: looks into a verdict, as data. Knows no clock, no shell.

Known bad is said at once; what may still come is waited for; unseen is neither good nor bad.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

from fleetstop.core import redact
from fleetstop.core.durations import spoken
from fleetstop.core.gpu import GpuView, Unseen, indexes_of
from fleetstop.core.inventory import Healthcheck, Job
from fleetstop.core.launching.arrived import Arrived, arguments, environment
from fleetstop.core.launching.ended import Record, started_as, way, way_of
from fleetstop.core.launching.instead import became, works
from fleetstop.core.process import Process, ProcessId, ProcessTree
from fleetstop.core.report import HealthCheck
from fleetstop.core.signals import Landing, Masks, has

State: TypeAlias = Literal["waiting", "healthy", "unhealthy", "unknown"]

DEAF_S = 5.0
"""So long a Python that is up may leave a signal ignored before that is for good: a program may
still install a handler of its own, once its imports are done."""
SETTLES_S = 5.0
"""So long it has to live whatever its log says: what fails in its first batch has logged too."""
TRAINS_S = 60.0
"""So long at least what was started may take to start a trainer: torchrun imports torch first."""
GPU_S = 60.0
"""So long at least a GPU may lie unused: importing and loading come before the first allocation."""
# SIGPIPE and SIGXFSZ, which CPython ignores once it is up (Python/pylifecycle.c)
_PYTHON_IS_UP = 1 << 12 | 1 << 24
# unseen, these leave open what was asked; the others are told as findings
_DECIDES = ("alive", "hears", "log")


class Expected(Struct, frozen=True):
    """What it has to show. `argv`: what was started; `arguments`: words that have to reach the
    trainer side by side; `env` the same by name; `stop_signal` None: INT or TERM will do.
    `within_s`: so long it may take, and without `log_matches` so long it has to live."""

    argv: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    env: dict[str, str] = {}
    stop_signal: str | None = None
    log_matches: str | None = None
    within_s: float = 10.0
    gpus: tuple[int, ...] | None = None


def expected_of(
    job: Job,
    argv: tuple[str, ...],
    arguments: tuple[str, ...] = (),
    env: Mapping[str, str] | None = None,
) -> Expected:
    """What the inventory says of this job, and what is added on the command line: `arguments`
    (extra ones, those to resume) and `env`, which wins over the job's own."""
    check = job.healthcheck or Healthcheck()
    own = job.launch.env if job.launch is not None else {}
    return Expected(
        argv=argv,
        arguments=arguments,
        env={**own, **(env or {})},
        stop_signal=job.stop_signal,
        log_matches=check.log_matches,
        within_s=check.within_s,
        gpus=job.gpus,
    )


class Seen(Struct, frozen=True):
    """One look at it. `age_s`: since it was started. `root`: the process that was started, which
    may be a wrapper; `trainers`: found below it, itself too; `lost`: trainers of earlier looks
    that are gone, as people know them; `was`: those that execute something else by now. `members`:
    host PIDs of all of it that lives. `environs`: by host PID, None unread. `log`: its new lines,
    None: could not be read; `says`: one of them that matches; `slow`: to try them took too long.
    `gpus` None: not asked. `record`: what the supervisor wrote. `unclear`: why its
    trainers cannot be told apart."""

    age_s: float
    tree: ProcessTree
    root: ProcessId
    trainers: tuple[ProcessId, ...] = ()
    lost: tuple[int, ...] = ()
    was: tuple[ProcessId, ...] = ()
    members: frozenset[int] = frozenset()
    environs: dict[int, dict[str, str] | None] = {}
    log: tuple[str, ...] | None = ()
    says: str | None = None
    slow: bool = False
    gpus: GpuView | Unseen | None = None
    record: Record | None = None
    unclear: str | None = None


class Health(Struct, frozen=True):
    """`why`: the sentences that make it what it is, of an unhealthy one the bad ones; `findings`:
    what is worth telling though it decides nothing. `due_s`: the age at which the next of what is
    waited for counts; 0 where nothing is. `late`: `within_s` is over, and why it is waited on."""

    state: State
    checks: tuple[HealthCheck, ...]
    why: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    due_s: float = 0.0
    late: str | None = None


class _Answer(Struct, frozen=True):
    """`due_s`: the age at which it counts; until then it may still become good."""

    check: str
    ok: bool | None
    said: str
    due_s: float = 0.0


def health(expected: Expected, seen: Seen) -> Health:
    answers = [_alive(expected, seen)]
    trainers = [each for pid in seen.trainers if (each := seen.tree.get(pid)) is not None]
    if trainers:
        answers += [_hears(expected, seen, trainers), _arguments(expected, seen, trainers)]
        answers += [_environment(expected, seen, trainers)] if expected.env else []
    if expected.log_matches is not None:
        answers.append(_log(expected, expected.log_matches, seen))
    if expected.gpus:
        answers.append(_gpu(expected, expected.gpus, seen))
    checks = tuple(HealthCheck(each.check, each.ok, each.said) for each in answers)
    due = [e.due_s for e in answers if e.ok is not True and e.due_s > seen.age_s]
    return Health(
        *_weighed(answers, checks, seen.age_s),
        findings=_findings(answers, seen),
        due_s=min(due, default=0.0),
        late=_late(expected, answers, seen),
    )


def _weighed(
    answers: list[_Answer], checks: tuple[HealthCheck, ...], age_s: float
) -> tuple[State, tuple[HealthCheck, ...], tuple[str, ...]]:
    bad = tuple(each.said for each in answers if each.ok is False and age_s >= each.due_s)
    if bad:
        return "unhealthy", checks, bad
    open_ = tuple(each.said for each in answers if each.ok is not True and age_s < each.due_s)
    if open_:
        return "waiting", checks, open_
    unseen = tuple(each.said for each in answers if each.ok is None and each.check in _DECIDES)
    if unseen:
        return "unknown", checks, unseen
    return "healthy", checks, tuple(each.said for each in answers if each.ok)


def _late(expected: Expected, answers: list[_Answer], seen: Seen) -> str | None:
    """Who was told how long it may take must not sit before a silence afterwards."""
    slow = [e for e in answers if e.ok is False and expected.within_s <= seen.age_s < e.due_s]
    if not slow:
        return None
    until = spoken(max(each.due_s for each in slow))
    return f"{'; '.join(e.said for e in slow)}: waited for until {until} after its start"


def _findings(answers: list[_Answer], seen: Seen) -> tuple[str, ...]:
    told = [e.said for e in answers if e.ok is None and e.check not in _DECIDES]
    root = seen.tree.get(seen.root)
    left = seen.trainers and (root is None or not root.alive)
    if left:
        how = f" ({way(seen.record)})" if seen.record and seen.record.ended_at else ""
        pids = _pids(seen, seen.trainers)
        told.append(f"what was started has ended{how} and left {pids} behind: how that ends "
                    "will not be recorded")  # fmt: skip
    return tuple(told)


def _alive(expected: Expected, seen: Seen) -> _Answer:
    root = seen.tree.get(seen.root)
    lives = root is not None and root.alive
    if seen.lost:
        pids, after = ", ".join(map(str, seen.lost)), spoken(seen.age_s)
        return _Answer("alive", False, f"{pids} ended within {after}{_end(expected, seen)}")
    if not lives and not seen.trainers:
        ended = (
            f"{started_as(expected.argv)} ended within {spoken(seen.age_s)}{_end(expected, seen)}"
        )
        return _Answer("alive", False, ended)
    if not seen.trainers:
        return _nobody(expected, seen)
    said = f"alive as {_pids(seen, seen.trainers)}"
    lives_s = expected.within_s
    if expected.log_matches is not None:
        lives_s = min(SETTLES_S, lives_s)
    # a launcher may have been up for a while before its trainers are
    born = [seen.tree.age_s(p) for each in seen.trainers if (p := seen.tree.get(each)) is not None]
    age_s = min([seen.age_s, *born])
    if age_s < lives_s:
        return _Answer("alive", None, said, seen.age_s - age_s + lives_s)
    return _Answer("alive", True, said)


def _nobody(expected: Expected, seen: Seen) -> _Answer:
    """A launcher, or a script, may start a trainer yet."""
    other = became(seen.tree, seen.was) if seen.unclear is None else None
    if other is not None and not other[1]:
        return _Answer("alive", False, other[0], expected.within_s)
    there = works(seen.tree, seen.tree.get(seen.root))
    nobody = f"no trainer is seen below what was started{f' ({there})' if there else ''}"
    return _Answer("alive", False, seen.unclear or nobody, max(expected.within_s, TRAINS_S))


def _end(expected: Expected, seen: Seen) -> str:
    """On record is the end of what was started; how a trainer below it ended is not."""
    record = seen.record
    if record is None or record.ended_at is None:
        return ""
    if seen.lost and (record.trainer is None or record.trainer.pid in seen.lost):
        return f": {way_of((), record, seen.log or ())}"
    argv = () if seen.lost and record.exit else expected.argv  # said to be what started it
    how = way_of(argv, record, seen.log or ())
    return f"; what started it then ended: {how}" if seen.lost else f": {how}"


def _pids(seen: Seen, ids: Iterable[ProcessId]) -> str:
    return ", ".join(str(p.pid) for each in ids if (p := seen.tree.get(each)) is not None)


def _hears(expected: Expected, seen: Seen, trainers: list[Process]) -> _Answer:
    """Its first milliseconds every program is without a handler; Python installs its own then."""
    wanted = (expected.stop_signal,) if expected.stop_signal else ("INT", "TERM")
    deaf: list[str] = []
    unseen, final = False, True
    for each in trainers:
        how = {signal: each.landing(signal) for signal in wanted}
        if "heard" in how.values():
            continue
        if None in how.values():
            unseen = True
            continue
        told = " and ".join(_landed(signal, word or "") for signal, word in how.items())
        why = f" ({_why_deaf(seen, each, how)})" if "ignored" in how.values() else ""
        deaf.append(f"{each.pid} {told}{why}")
        final = final and _for_good(seen, each, [word for word in how.values() if word])
    if deaf:
        said = f"it cannot be stopped so that it saves: {'; '.join(deaf)}"
        return _Answer("hears", False, said, 0.0 if final else expected.within_s)
    if unseen:
        return _Answer("hears", None, "its signal masks could not be read", expected.within_s)
    heard = [s for s in wanted if all(each.landing(s) == "heard" for each in trainers)]
    return _Answer("hears", True, f"hears {' and '.join(heard) or 'a stop signal'}")


def _why_deaf(seen: Seen, process: Process, how: Mapping[str, Landing | None]) -> str:
    """As far as it can be told from outside: our supervisor lets what it executes hear all."""
    if process.id == seen.root:
        return "its own code does that"
    deaf = [signal for signal, word in how.items() if word == "ignored"]
    for above in seen.tree.above(process.id.pid):
        if above.id.pid not in seen.members:
            break  # our supervisor, whose own ears say nothing of what it executes
        if above.masks is not None and all(has(above.masks.ignored, each) for each in deaf):
            return f"what starts it does too: {seen.tree.called(above.id.pid)}"
    # POSIX sh 2.11: what goes into the background without job control ignores both
    ignored = process.masks.ignored if process.masks is not None else 0
    if has(ignored, "INT") and has(ignored, "QUIT"):
        return "most likely what starts it puts it into the background with &"
    return "its own code does that, or what starts it"


def _landed(signal: str, word: str) -> str:
    words = {"ignored": f"ignores {signal}", "blocked": f"blocks {signal} in every thread"}
    return words.get(word, f"has no handler for {signal}")


def _for_good(seen: Seen, process: Process, how: list[str]) -> bool:
    """Python leaves a signal ignored that it inherited so, and its code has had its time."""
    masks = process.masks or Masks(pending=0, blocked=None, ignored=0, caught=0)
    up = masks.ignored & _PYTHON_IS_UP == _PYTHON_IS_UP
    return up and "ignored" in how and seen.tree.age_s(process) >= DEAF_S


def _arguments(expected: Expected, seen: Seen, trainers: list[Process]) -> _Answer:
    found = [
        arguments(each.argv, expected.argv if each.id == seen.root else None, expected.arguments)
        for each in trainers
    ]
    return _worst("arguments", found, trainers)


def _environment(expected: Expected, seen: Seen, trainers: list[Process]) -> _Answer:
    found = [environment(seen.environs.get(each.id.pid), expected.env) for each in trainers]
    return _worst("environment", found, trainers)


def _worst(check: str, found: list[Arrived], trainers: list[Process]) -> _Answer:
    """One that lacks it decides, then one that could not be seen; exec has fixed both for good."""
    for ok in (False, None):
        for each, process in zip(found, trainers, strict=True):
            if each.ok is ok:
                return _Answer(check, ok, f"{process.pid}: {each.said}")
    return _Answer(check, True, found[0].said)


def _log(expected: Expected, pattern: str, seen: Seen) -> _Answer:
    if seen.says is not None:
        return _Answer("log", True, f'the log says: "{redact.text(seen.says.strip(), 100)}"')
    if seen.slow:
        said = f"log_matches {pattern!r} took too long on a line of its log, and was given up"
        return _Answer("log", None, said, expected.within_s)
    if seen.log is None:
        return _Answer("log", None, "its log could not be read", expected.within_s)
    said = f"nothing new in the log matches {pattern!r}"
    return _Answer("log", False, said, expected.within_s)


def _gpu(expected: Expected, wanted: tuple[int, ...], seen: Seen) -> _Answer:
    due = max(expected.within_s, GPU_S)
    here = [each for pid in seen.members if (each := seen.tree.processes.get(pid)) is not None]
    view = seen.gpus
    if isinstance(view, GpuView):
        on = indexes_of(view, seen.members)
        if on:
            strange = [each for each in on if each not in wanted]
            if strange:
                said = f"it uses GPU {_numbers(strange)}, which gpus: does not name"
                return _Answer("gpu", None, said)
            return _Answer("gpu", True, f"uses GPU {_numbers(on)}")
    opened = sorted({device for each in here for device in each.gpus})
    if opened:
        return _Answer("gpu", True, f"has {', '.join(opened)} open")
    why = view.reason if isinstance(view, Unseen) else None
    blind = any(each.detail is None or each.detail.files is None for each in here)
    if why is not None and blind:
        return _Answer("gpu", None, f"whether it uses its GPUs could not be seen: {why}", due)
    return _Answer("gpu", False, f"it uses none of GPU {_numbers(wanted)}", due)


def _numbers(indexes: Iterable[int]) -> str:
    """`0-7`, `0-3, 6`."""
    runs: list[list[int]] = []
    for number in sorted(set(indexes)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{each[0]}-{each[-1]}" if each[1:] else str(each[0]) for each in runs)
