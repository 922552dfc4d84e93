"""How one target ended: its last line, and below it what was found and what could help."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import assert_never

from fleetstop.core import redact
from fleetstop.core.report import Outcome, Result
from fleetstop.events import Located
from fleetstop.view import launching, naming, words
from fleetstop.view.layout import Line, Tone, note
from fleetstop.view.ways_on import Known, ways_on
from fleetstop.view.ways_on import below as after_bringing

# for scripts a reason of exit 6 begins with one of these; for people the sentence is enough
_WORD = re.compile(
    r"(?:^|(?<=; ))"
    r"(?:not_saved|save_unseen|unproven|gpus_held|gpus_unseen|respawned|between_lives"
    r"|not_reached): "
)
_GONE = re.compile(r"\d+ is gone")
_AFTER = re.compile(r"agreed with --after-checkpoint; lost about (.+) \(since (.+)\)$")
_WAITED: frozenset[Result] = frozenset({"not_running", "running", "still_running", "unclean"})
_TRAINING_LOG_S = 120.0


def last_line(outcome: Outcome, known: Known) -> Line:
    """The one line that is left under `--quiet`."""
    waited = known.waits and outcome.result in _WAITED and not outcome.interrupted
    begun = launching.sentence(outcome, known.command)
    text, tone = begun or (_waited(outcome) if waited else _sentence(outcome, known))
    text += launching.left_undone(outcome, known.command)
    text = text[:-1] if text.endswith("?.") else text
    return Line("", f"{redact.text(outcome.target)} {text}", tone)


_TONES: dict[Result, Tone] = {
    "stopped": "good",
    "not_running": "good",
    "planned": "good",
    "running": "plain",
}


_ASKED_BY = {"RUN": "its command", "TOUCH": "its stop file", "KEYS": "its keys"}
"""What a rung of another kind ended it by, in the words of a playbook."""


def _sentence(outcome: Outcome, known: Known) -> tuple[str, Tone]:
    if outcome.interrupted:
        return _interrupted(outcome), "bad"
    if outcome.result == "planned" and outcome.reason:
        return f"planned{_because(outcome)}{_foreseen(outcome)}; nothing was sent.", "warn"
    match outcome.result:
        case "stopped":
            text = _stopped(outcome, known)
            # done as agreed, and yet nothing to be glad of
            return text, "warn" if "NOT saved" in text else "good"
        case "not_running":
            text = f"not running{_because(outcome)}."
        case "running" | "redeployed" | "rolled_back" | "unhealthy" | "deploy_failed":
            text = f"{outcome.result}{_because(outcome)}."
        case "planned":
            text = "planned; nothing was sent."
        case "still_running":
            text = _still_running(outcome, known)
        case "refused":
            text = f"REFUSED{_because(outcome)}; nothing was sent."
        case "unreachable":
            text = f"COULD NOT LOOK{_because(outcome)}{_sent(outcome)}."
        case "unclean":
            text = f"ended{_took(outcome)}, but NOT CLEAN{_because(outcome)}."
        case "fault":
            text = f"FAULT in fleetstop{_because(outcome)}{_sent(outcome)}."
        case _:
            assert_never(outcome.result)
    return text, _TONES.get(outcome.result, "bad")


def _waited(outcome: Outcome) -> tuple[str, Tone]:
    """What `wait` came to; it has touched nothing either way."""
    took = "" if outcome.seconds is None else f" after {words.elapsed(outcome.seconds)}"
    if outcome.result in ("running", "not_running"):
        return f"REACHED{took}{_because(outcome)}.", "good"
    state = "it runs on, untouched" if outcome.result == "still_running" else "nothing was sent"
    return f"NOT REACHED{took}{_because(outcome)}; {state}.", "bad"


def _foreseen(outcome: Outcome) -> str:
    watched = any(each.would == "skip" and each.landing == "heard" for each in outcome.plan)
    return ", what an earlier run sent is watched on" if watched else ", so it would go on running"


def _because(outcome: Outcome) -> str:
    reason = outcome.reason or ""
    if outcome.result == "unclean":
        reason = _WORD.sub("", reason)
    reason = redact.text(reason).rstrip(".")
    return f": {reason}" if reason else ""


def _took(outcome: Outcome) -> str:
    return "" if outcome.seconds is None else f" in {words.elapsed(outcome.seconds)}"


def _stopped(outcome: Outcome, known: Known) -> str:
    parts = f"stopped{_took(outcome)}"
    kept = outcome.checkpoint
    # one that may be cut is no save
    new = kept is not None and bool(kept.written_after_signal and kept.complete)
    if _cut_short(outcome):
        last = redact.safe(outcome.signals[-1].signal) if outcome.signals else ""
        by = f" by {_ASKED_BY.get(last, last)}" if last else ""
        right_after = _right_after(outcome)
        kept_by = "without a save of its own" if new else right_after or "NOT saved"
        parts += f"{by}, {kept_by}"
    elif kept is not None and new:
        parts += f", saved {naming.checkpoint_name(kept.path)}"
    if known.patient and len(outcome.signals) == 1:
        parts += "; one signal sent"
    return parts + "."


def _right_after(outcome: Outcome) -> str | None:
    """`2 s after step_41320.pt`: what --after-checkpoint is for."""
    found = map(_AFTER.search, outcome.findings)
    return next((f"{each[1]} after {redact.text(each[2], 80)}" for each in found if each), None)


def _cut_short(outcome: Outcome) -> bool:
    """It ended by a signal that lets nobody save."""
    fatal = bool(outcome.signals) and outcome.signals[-1].landing == "fatal"
    return fatal or any(each.startswith("ended by ") for each in outcome.findings)


def _signals(outcome: Outcome) -> str:
    """`INT to 26982, TERM to 26982`."""
    return ", ".join(f"{redact.safe(s.signal)} to {words.pids(s.pids)}" for s in outcome.signals)


def _sent(outcome: Outcome) -> str:
    return f"; sent before: {_signals(outcome)}" if outcome.signals else ""


def _still_running(outcome: Outcome, known: Known) -> str:
    took = "" if outcome.seconds is None else words.elapsed(outcome.seconds)
    if outcome.signals:
        after = f" after {took}" if took else ""
        return f"STILL RUNNING{after}{_because(outcome)}; sent: {_signals(outcome)}."
    looked = f"looked for {took}; " if took else ""
    if known.heard:
        return f"STILL RUNNING: {known.heard} ({looked}nothing was sent){_waits(outcome)}."
    if outcome.verdict == "uninterruptible":
        return f"STILL RUNNING: KILL waits on it and cannot act ({looked}nothing was sent)."
    going = ", training on" if _training(outcome, known.located) else ""
    # the skipped rungs stand right above, each with its reason
    why = "" if outcome.skipped else _because(outcome)
    return f"STILL RUNNING{why}, untouched{going} ({looked}nothing was sent)."


def _waits(outcome: Outcome) -> str:
    """Who goes on when the watching ends, whatever else its reason tells."""
    _, who, what = (outcome.reason or "").partition("what waits in the container ")
    return f"; {who}{redact.text(what)}" if who else ""


def _training(outcome: Outcome, found: Located | None) -> bool:
    """It works, as far as was seen: by its verdict, or a deaf one by the age of its log."""
    if outcome.verdict == "busy":
        return not any(each.startswith("no sign of progress") for each in outcome.evidence)
    log = found.log if found else None
    fresh = log is not None and log.age_s is not None and log.age_s <= _TRAINING_LOG_S
    return fresh and outcome.verdict in (None, "deaf")


def _interrupted(outcome: Outcome) -> str:
    alive = [each for each in outcome.family if each.verdict not in ("gone", "zombie")]
    left = words.pids([each.pid for each in naming.trainers(alive)])
    state = f"; still running: {left}" if left else ""
    sent = f"sent: {_signals(outcome)}" if outcome.signals else "nothing was sent"
    return f"INTERRUPTED ({sent}{state}). It was left its chance to finish."


def below(outcome: Outcome, known: Known, shown: frozenset[str] = frozenset()) -> list[Line]:
    """Findings not `shown` yet, what stands in the way, and what could help."""
    lines = [
        Line("  ! ", redact.text(each), "warn") for each in outcome.findings if each not in shown
    ]
    if outcome.result in ("refused", "unclean", "unreachable", "deploy_failed"):
        lines += [Line("    ", redact.text(each)) for each in unsaid(outcome)]
    if outcome.result == "still_running" and outcome.verdict != "deaf":
        lines += [Line("    ", each) for each in naming.account(outcome.evidence)]
    if outcome.verdict == "uninterruptible" and not outcome.hint:
        lines.append(note("next", "free what it waits for: fleetstop explain uninterruptible"))
    if outcome.result == "unclean" and not outcome.hint:
        lines += _after_unclean(outcome, known)
    lines += after_bringing(outcome, known)
    if outcome.hint:
        lines.append(note("next", redact.text(outcome.hint)))
    elif outcome.interrupted and (outcome.signals or known.heard) and not known.brings:
        lines.append(note("next", "run the same command again: it watches on and repeats nothing"))
    return lines + ways_on(outcome, known)


def _after_unclean(outcome: Outcome, known: Known) -> list[Line]:
    if outcome.verdict == "respawned":
        return [note("next", "stop what starts it again first: fleetstop explain respawned")]
    log = known.located.log if known.located else None
    if log is not None and (outcome.reason or "").startswith("not_saved: "):
        return [note("next", f"its log may tell why: {redact.text(log.path)}")]
    return []


def unsaid(outcome: Outcome) -> list[str]:
    """The evidence that its reason has not told, nor the exits above it."""
    told = outcome.reason or ""
    return [each for each in outcome.evidence if each not in told and not _GONE.fullmatch(each)]


def cost(outcome: Outcome) -> list[Line]:
    """For `--verbose`: the evidence, and what the work took on the remote side."""
    lines = [note("seen", redact.text(each), "dim") for each in outcome.evidence]
    if outcome.result in ("refused", "unclean", "unreachable"):
        lines = []
    if outcome.cost is not None:
        ssh = words.count(outcome.cost.ssh_connections, "SSH connection")
        pct = words.count(outcome.cost.pct_calls, "pct call")
        lines.append(note("cost", f"{ssh}, {pct}", "dim"))
    return lines


def tally(outcomes: Sequence[Outcome]) -> Line:
    """`3 stopped, 1 still running`."""
    counts: dict[str, int] = {}
    for each in outcomes:
        name = "interrupted" if each.interrupted else each.result.replace("_", " ")
        counts[name] = counts.get(name, 0) + 1
    return Line("", ", ".join(f"{number} {name}" for name, number in counts.items()), "head")
