"""What a question, its answer and a rung that is no signal look like. Knows no stream."""

from __future__ import annotations

from fleetstop import events as e
from fleetstop.core import redact
from fleetstop.core.saves.risk import AtRisk
from fleetstop.view import words

_ASKS = {"RUN": "running {}", "TOUCH": "touching {}", "KEYS": "typing {}"}
_DONE = {"RUN": "ran {}", "TOUCH": "touched {}", "KEYS": "typed {}"}


def facts(event: e.Asked) -> list[str]:
    """The question: what would be sent, why it is asked, what would be lost."""
    if event.about == "stop_signal":
        who = words.pids(event.pids)
        return [f"{who}: {redact.text(event.reason)}. The wrong one ends it unsaved."]
    where = "" if event.to == "trainers" else f"the {redact.safe(event.to)}: "
    what = f"{redact.safe(event.signal)} to {where}{words.pids(event.pids)}"
    told = [f"{what} may lose work: {redact.text(event.reason)}", f"lost would be {_lost(event)}"]
    if event.saves:
        told.append("being written now: " + ", ".join(redact.text(s, 160) for s in event.saves))
    if event.verdict is not None:
        told.append(f"the job is {redact.safe(event.verdict)}")
    if event.beyond:
        told.append(f"a no leaves out {' and '.join(map(redact.safe, event.beyond))} as well")
    return told


def _lost(event: e.Asked) -> str:
    risk = event.risk
    if risk is None:
        return "whatever was not saved; its checkpoints are not known"
    if risk.name is None:
        return "everything: there is no complete checkpoint"
    if risk.before_the_job:
        old = f"{redact.text(risk.name, 80)} is {words.age(risk.age_s or 0.0)} old"
        return f"about {words.age(risk.lost_s or 0.0)}, all since its start: {old}{_doubt(risk)}"
    age = "all" if risk.age_s is None else f"about {words.age(risk.age_s)}"
    return f"{age} since {redact.text(risk.name, 80)}{_doubt(risk)}"


def _doubt(risk: AtRisk) -> str:
    doubts = [] if risk.known_format else ["of an unknown format"]
    doubts += [] if risk.ours else ["perhaps not this job's own"]
    return f" ({', '.join(doubts)})" if doubts else ""


def prompt(event: e.Asked) -> str:
    """What stands in front of the cursor."""
    if event.about == "stop_signal":
        return f"which one makes it save? [{'/'.join(event.choices)}/neither] "
    return f"send {redact.safe(event.signal)}? [y/N] "


def told(event: e.Event) -> str | None:
    """The line of an answer, of an await rung, and of what a command came to."""
    match event:
        case e.Answered():
            return answer(event)
        case e.CheckpointAwaited():
            return awaited(event)
        case e.CommandEnded():
            return ended(event)
        case e.RungEntered(signal="AWAIT"):
            limit = words.patience(event.wait_s)
            return f"waiting {limit} for the next complete checkpoint; nothing is sent before it"
    return None


def answer(event: e.Answered) -> str:
    if event.answer == "withdrawn":
        return (
            f"the question is withdrawn: {redact.text(event.reason or 'it has no object any more')}"
        )
    if event.answer == "yes":
        return "agreed; looking once more before it is sent"
    return "not agreed" if event.answer == "no" else f"{redact.safe(event.answer)} it is"


def awaited(event: e.CheckpointAwaited) -> str:
    waited = words.elapsed(event.waited_s)
    if event.name is None:
        return f"no new complete checkpoint within {waited}"
    old = "" if event.age_s is None else f", {words.age(event.age_s)} old"
    return f"{redact.text(event.name, 80)} is new and complete{old}, after {waited}"


def ended(event: e.CommandEnded) -> str:
    said = (
        f', its last words: "{redact.text(event.line, 160)}"' if event.line else ", without a word"
    )
    how = {
        "late": "the command was ended: its rung's wait is over",
        "lost": "the command was killed by somebody else",
        "unseen": "how the command ended could not be seen",
        # POSIX sh 2.8.2
        "126": "the command failed: what it names cannot be run (status 126)",
        "127": "the command failed: what it names is not there (status 127)",
    }.get(event.how, f"the command ended with status {redact.safe(event.how)}")
    return how + said


def done(event: e.SignalSent) -> str:
    """`ran /root/save.sh for 26982`."""
    what = _DONE.get(event.signal, "{}").format(redact.text(event.argument, 80))
    return f"{what} for {words.pids(event.pids)}; waiting {words.patience(event.wait_s)}"


def would(signal: str, argument: str, pids: tuple[int, ...]) -> str:
    """For a plan: `running /root/save.sh for 26982`."""
    return f"{_ASKS.get(signal, '{}').format(redact.text(argument, 80))} for {words.pids(pids)}"
