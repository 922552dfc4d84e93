"""The job as found: the lines a stop begins with, and a dry run's plan below them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fleetstop.core import redact
from fleetstop.core.report import AboveRecord, PlannedStep
from fleetstop.events import Located
from fleetstop.view import naming, question, words
from fleetstop.view.layout import Line, fact

_MILD = "(sends only what the trainer handles)"
# a plan's way to say that an earlier run has sent this signal
_WATCHED = re.compile(r"run (?P<run>\S+) sent it (?P<ago>[\d.]+) s ago; watched on")
_THEN = "then, if still running:"


def header(found: Located, *, first: bool = True) -> list[Line]:
    """`first` False: one more tree of a target whose title was already shown."""
    lines = [Line("", _title(found), "head")] if first else []
    if found.family:
        lines.append(fact("job", _job(found)))
        # named before the signal: who reacts to a rank's end, and who starts the job again
        lines += [fact("above", naming.over(each)) for each in found.above if _reacts(each)]
        lines.append(fact("now", _now(found)))
        lines.append(fact("checkpoint", _checkpoint(found)))
        lines.append(fact("gpus", _gpus(found)))
    return lines


def _reacts(each: AboveRecord) -> bool:
    return each.kind in ("launcher", "ranks") or each.again != "never"


def _title(found: Located) -> str:
    words_ = [f"{redact.text(found.target or '?')} on {redact.text(found.host)}"]
    if found.playbook is not None:
        words_.append(f", playbook {redact.text(found.playbook)}")
    if found.graceful and not found.lossless:
        words_.append(" without its lossy rungs")
    if found.graceful or found.lossless:
        words_.append(f" {_MILD}")
    if found.dry_run:
        words_.append("; dry run, nothing is sent")
    return "".join(words_)


def _job(found: Located) -> str:
    who = naming.trainers(found.family) or list(found.family)
    parts = [naming.group(who)]
    if found.up_s is not None:
        parts.append(f"up {words.uptime(found.up_s)}")
    over = naming.above(found.family)
    if over and over != who:
        parts.append("under " + " > ".join(naming.full(each) for each in over))
    return ", ".join(parts)


def _now(found: Located) -> str:
    parts = [redact.safe(found.verdict)]
    if found.verdict != "busy" and found.evidence:
        parts[0] += f" ({', '.join(redact.text(each) for each in found.evidence)})"
    if found.log is not None:
        age = found.log.age_s
        when = "" if age is None else f" {words.age(age)} ago"
        parts.append(f"log{when}: {naming.quoted_line(found.log)}")
    return "; ".join(parts)


def _checkpoint(found: Located) -> str:
    seen = found.checkpoint
    if seen is not None:
        return naming.saves(found, seen)
    if found.checkpoints_unseen is not None:
        return f"could not be seen: {redact.text(found.checkpoints_unseen)}"
    if found.checkpoints_declared:
        return "none seen yet"
    return "no directory known (job key checkpoints:), so nobody can tell whether it saves"


def _gpus(found: Located) -> str:
    if found.gpus is None:
        return "unknown: nvidia-smi gave no answer"
    numbers = naming.gpu_indexes(found)
    if numbers == "none":
        return "none held by this job"
    memory = naming.gpu_memory(found)
    size = "an unknown amount" if memory is None else words.memory(memory)
    return f"{numbers}, {size} held by this job"


def plan(steps: Sequence[PlannedStep], *, graceful: bool = False) -> list[Line]:
    """What would be sent, in order; the first line carries the label.

    `graceful`: the title has said that lossy rungs are left out.
    """
    lines, sending = [], 0
    told = [each for each in steps if not (graceful and _lossy(each))]
    for index, step in enumerate(told):
        lines.append(fact("" if index else "plan", _step(step, later=sending > 0)))
        sending += step.would != "skip"
    return lines or [fact("plan", "no rung applies")]


def _lossy(step: PlannedStep) -> bool:
    return step.signal == "KILL" and step.would == "skip"


def _skipped(step: PlannedStep) -> str:
    signal, seen = redact.safe(step.signal), _WATCHED.fullmatch(step.reason)
    if step.landing == "heard" and seen is not None:
        ago, run = words.age(float(seen["ago"])), redact.safe(seen["run"])
        return f"{signal} not repeated: sent {ago} ago by run {run}; watched on"
    return f"{signal} skipped: {redact.text(step.reason)}"


def _only(reason: str) -> str:
    """What a reason adds to "if still running", which the opening words have said."""
    more = reason.removeprefix("if it still runs by then")
    if more == reason:
        return f"; {redact.text(reason)}" if reason else ""
    return f"; only if it {redact.text(more.removeprefix(' and '))}" if more else ""


def _asked(step: PlannedStep, *, later: bool) -> str:
    when = _THEN if later or step.would == "send_if" else "would go on by"
    what = question.would(step.signal, step.argument, step.pids)
    return f"{when} {what}, wait {words.patience(step.wait_s)}{_only(step.reason)}"


def _step(step: PlannedStep, *, later: bool) -> str:
    if step.would == "skip":
        return _skipped(step)
    if step.would == "wait":
        when = "then, " if later else ""
        return f"{when}wait {words.patience(step.wait_s)} for the next complete checkpoint"
    if step.landing == "asked":
        return _asked(step, later=later)
    conditional = later or step.would == "send_if"
    when = _THEN if conditional else "would send"
    what = naming.delivery(step.signal, step.to, step.pids, step.landing)
    why = _only(step.reason) if conditional else f"; {redact.text(step.reason)}"
    why = why if step.reason else ""
    return f"{when} {what}, wait {words.patience(step.wait_s)}{why}"
