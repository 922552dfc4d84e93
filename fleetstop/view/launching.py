"""What a launch, a restart and a redeploy look like from the staging to their end."""

from __future__ import annotations

import posixpath
import re
from collections import Counter

from fleetstop import events as e
from fleetstop.core import redact
from fleetstop.core.report import Outcome
from fleetstop.view import naming, words
from fleetstop.view.layout import Line, Tone, note

LINE_SHOWN = 160
_LINES = 12
"""Log lines of one start that stay on the screen; what says the same with other numbers is one."""
_ALIKE = 3
"""So many of those with `--verbose`."""
_VERBS = {"launch": "launched", "restart": "restarted", "rollback": "rolled back as asked"}
BRINGING = ("launch", "restart", "redeploy", "rollback")
_GOES_ON = ("rolled_back", "unhealthy", "deploy_failed", "unclean")
_UNTOUCHED = ("; nothing of the job was touched", "; nothing was stopped")
"""What the last line says itself."""
_NUMBER = re.compile(r"\d+")


class Spoken:
    """What the log of one start has said on the screen."""

    def __init__(self) -> None:
        self._kinds: Counter[str] = Counter()
        self.lines: set[str] = set()
        self.hidden = 0

    def anew(self) -> None:
        self._kinds, self.lines, self.hidden = Counter(), set(), 0

    def takes(self, line: str, alike: int = 1) -> bool:
        """A line like one before is no news; the line at the bottom shows the last one."""
        kind = _NUMBER.sub("#", line)
        if self._kinds[kind] >= alike or self._kinds.total() >= _LINES:
            self.hidden += 1
            return False
        self._kinds[kind] += 1
        return True


def told(event: e.Event, spoken: Spoken, *, verbose: bool = False) -> list[tuple[str, str]]:
    """Marks (`! ` or none) and texts, a line each; empty for what is no event of a launch.

    `spoken` grows. `verbose`: a few more lines of the log, and how many there were besides.
    """
    match event:
        case e.Staged():
            return [("", _staged(event))]
        case e.Proved():
            by = ", ".join(redact.text(each, 80) for each in event.by)
            return [("", f"proved{_took(event.seconds)}: {by}")]
        case e.Activated():
            return [("", text)] if (text := _activated(event)) else []
        case e.Launched():
            spoken.anew()
            return [("", _launched(event))]
        case e.LogSaid():
            return [("", each) for each in _log(event, spoken, _ALIKE if verbose else 1)]
        case e.Healthy():
            who = "what ran before is healthy" if event.old else "healthy"
            by = ", ".join(redact.text(each, LINE_SHOWN) for each in event.by)
            well = ("", f"{who} after {words.elapsed(event.seconds)}: {by}")
            return [*(_hidden(spoken) if verbose else []), well]
        case e.Unhealthy():
            return [*(_hidden(spoken) if verbose else []), *_unhealthy(event, spoken)]
        case e.RollingBack():
            return [("", f"bringing back {_version(event.release)}")]
        case e.RolledBack(pid=None):
            why = redact.text(event.problem or "why is not known")
            return [("! ", f"{_version(event.release)} did NOT come back: {why}")]
    return []


def awaited(event: e.Event) -> tuple[str, float | None] | None:
    """What is waited for from this event on, and the limit in seconds where there is one."""
    match event:
        case e.Staging():
            rate = f", {words.size(event.rate)}/s" if event.rate else ""
            return f"sending: {words.size(event.sent)} of {words.size(event.size)}{rate}", None
        case e.Staged():
            return "proving what was staged", None
        case e.Armed() | e.Activated():
            return "starting", None
        case e.Launched():
            which = "what ran before" if event.old else f"{event.pid}"
            return f"looking whether {which} is healthy", event.within_s
        case e.RollingBack():
            return "bringing back what ran before", None
    return None


def said_last(event: e.LogSaid) -> str | None:
    """For the line at the bottom: the newest line of the log."""
    return redact.text(event.lines[-1].strip(), LINE_SHOWN) if event.lines else None


def detail(event: e.Event) -> str | None:
    """What only `--verbose` tells."""
    if not isinstance(event, e.Armed):
        return None
    back = ", and brings back what runs now" if event.roll_back else ""
    return f"{event.pid} waits in the container to start it; it goes on without us{back}"


def _took(seconds: float) -> str:
    """Said where somebody has waited for it."""
    return f" in {words.elapsed(seconds)}" if seconds >= 1 else ""


def _staged(event: e.Staged) -> str:
    if event.same == event.files:
        count = words.count(event.files, "file")
        return f"staged {count}{_took(event.seconds)}; nothing had to be sent"
    same = f"; {event.same} unchanged, not sent" if event.same else ""
    count, size = words.count(event.files, "file"), words.size(event.size)
    large = event.size >= _RATE_FROM and event.seconds > 0
    rate = f" ({words.size(event.size / event.seconds)}/s)" if large else ""
    return f"staged {count}, {size}{_took(event.seconds)}{rate}{same}"


_RATE_FROM = 10 << 20


def _activated(event: e.Activated) -> str:
    said = [f"release {redact.safe(event.release)} is in place"] if event.release else []
    if event.log_rotated is not None:
        name = redact.text(posixpath.basename(event.log_rotated), 80)
        said.append(f"the old log is {name} now")
    return "; ".join(said)


def _launched(event: e.Launched) -> str:
    again = "is back in place, started" if event.release else "is started again"
    back = f"{_version(event.release)} {again}"
    what = back if event.old else "started"
    return f"{what} as {event.pid}; looking whether it is healthy, {words.patience(event.within_s)}"


def _hidden(spoken: Spoken) -> list[tuple[str, str]]:
    more = f"log: {words.count(spoken.hidden, 'line')} more, not shown"
    return [("", more)] if spoken.hidden else []


def _log(event: e.LogSaid, spoken: Spoken, alike: int) -> list[str]:
    said = []
    spoken.hidden += event.left_out
    for each in event.lines:
        if each.strip() and spoken.takes(each, alike):
            spoken.lines.add(each)
            said.append(f'log: "{redact.text(each, LINE_SHOWN)}"')
    return said


def _unhealthy(event: e.Unhealthy, spoken: Spoken) -> list[tuple[str, str]]:
    who = "what ran before is NOT HEALTHY either" if event.old else "NOT HEALTHY"
    # its log stands here as it is: the line that the reason ends with is told once
    whys = [each.partition(_LAST_LINE)[0] if event.log else each for each in event.why]
    why = "; ".join(redact.text(each) for each in whys)
    # what stands above stands there in its order; only what came after it is news
    known = [at for at, each in enumerate(event.log) if each in spoken.lines]
    rest = event.log[known[-1] + 1 :] if known else event.log
    last = [("", f'its log: "{redact.text(each, LINE_SHOWN)}"') for each in rest if each.strip()]
    return [("! ", f"{who}: {why}"), *last]


_LAST_LINE = '; last line: "'


def _version(release: str | None) -> str:
    return f"release {redact.safe(release)}" if release else "what ran before"


def sentence(outcome: Outcome, command: str | None) -> tuple[str, Tone] | None:
    """The last line of one that was started, or was to be; None: the result is none of these."""
    if command not in BRINGING:
        return None
    took = "" if outcome.seconds is None else f" in {words.elapsed(outcome.seconds)}"
    why = redact.text(outcome.reason or "").rstrip(".")
    for each in _UNTOUCHED:
        why = why.removesuffix(each)
    because = f": {why}" if why else ""
    if outcome.interrupted:
        because = f": {why.removeprefix('interrupted; ')}"
        return (f"INTERRUPTED{because}.", "bad") if outcome.release is not None else None
    match outcome.result:
        case "redeployed" | "planned" if why and not outcome.plan and outcome.health is None:
            return f"nothing to do{because}.", "good"
        case "planned" if not why:
            return "planned; nothing was sent, stopped or started.", "good"
        case "running" | "redeployed":
            verb = "redeployed" if command == "redeploy" else _VERBS.get(command or "", "launched")
            return f"{verb}{took}{_saved(outcome)}; {_runs(outcome)}.", "good"
        case "rolled_back":
            return f"ROLLED BACK{took}{because}.", "bad"
        case "unhealthy":
            return f"NOT HEALTHY{took}{because}.", "bad"
        case "deploy_failed":
            return f"NOT DEPLOYED{because}; nothing was stopped, and no file replaced.", "bad"
    return None


def left_undone(outcome: Outcome, command: str | None) -> str:
    """What did not happen because the stop before it did not end well; empty: all did."""
    if command not in BRINGING or outcome.interrupted:
        return ""
    if outcome.result == "still_running":
        return " No file was replaced." if command in ("redeploy", "rollback") else ""
    if outcome.verdict == "respawned":
        return " Nothing was replaced or started by us."
    return " NOTHING was started." if outcome.result == "unclean" else ""


def _saved(outcome: Outcome) -> str:
    kept = outcome.checkpoint
    if kept is None or not kept.written_after_signal or not kept.complete:
        return ""
    return f", saved {naming.checkpoint_name(kept.path)}"


def _runs(outcome: Outcome) -> str:
    """`275 is healthy and runs release 20261130-082413-75ba`."""
    pids = [each.pid for each in naming.trainers(outcome.family)]
    are, run = ("are", "run") if len(pids) > 1 else ("is", "runs")
    release = outcome.release.running if outcome.release is not None else None
    which = f" and {run} release {redact.safe(release)}" if release else ""
    return f"{words.pids(pids) or 'it'} {are} healthy{which}"


_BEHIND = "puts it into the background with &"


def below(outcome: Outcome, again: str | None, back: str, log: str | None) -> list[Line]:
    """What to look at and to type next. `again`: the same once more; `back`: to the version
    before."""
    command = again or "the same command"
    if outcome.interrupted or outcome.result not in _GOES_ON:
        return []
    if outcome.result == "unclean":
        return [note("start it", f"once that is in order: {command}")]
    if outcome.hint:
        return []
    if outcome.result == "deploy_failed":
        return [note("next", f"correct it, then: {command}")]
    lines = [note("log", redact.text(log))] if log is not None else []
    if _BEHIND in (outcome.reason or ""):
        cure = "in the script that starts it: `exec python …`, or no &"  # no file sent is at fault
        return [*lines, note("next", f"{cure}; then: {command}")]
    kept = outcome.release is not None and outcome.release.before is not None
    if outcome.result == "unhealthy" and kept:
        return [*lines, note("next", f"the version before again: {back}")]
    return [*lines, note("next", f"correct it, then: {command}")]
