"""What a launch, a restart and a redeploy look like from the staging to their end."""

from __future__ import annotations

import posixpath

from fleetstop import events as e
from fleetstop.core import redact
from fleetstop.core.report import Outcome
from fleetstop.view import naming, words
from fleetstop.view.layout import Line, Tone

LINE_SHOWN = 160
_VERBS = {"launch": "launched", "restart": "restarted", "rollback": "rolled back as asked"}


def told(event: e.Event, shown: set[str]) -> list[tuple[str, str]]:
    """Marks (`! ` or none) and texts, a line each; empty for what is no event of a launch.

    `shown`: lines of its log that stand on the screen already; grows.
    """
    match event:
        case e.Staged():
            return [("", _staged(event))]
        case e.Proved():
            by = ", ".join(redact.text(each, 80) for each in event.by)
            return [("", f"proved in {words.elapsed(event.seconds)}: {by}")]
        case e.Activated():
            return [("", text)] if (text := _activated(event)) else []
        case e.Launched():
            return [("", _launched(event))]
        case e.LogSaid():
            return [("", each) for each in _log(event, shown)]
        case e.Healthy():
            who = "the version before is healthy" if event.old else "healthy"
            by = ", ".join(redact.text(each, LINE_SHOWN) for each in event.by)
            return [("", f"{who} after {words.elapsed(event.seconds)}: {by}")]
        case e.Unhealthy():
            return _unhealthy(event, shown)
        case e.RollingBack():
            return [("", f"bringing back {_version(event.release)}")]
        case e.RolledBack():
            return [_rolled_back(event)]
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
            which = "the version before" if event.old else "it"
            return f"looking whether {which} is healthy: {event.pid}", event.within_s
        case e.RollingBack():
            return "bringing the version before back", None
    return None


def detail(event: e.Event) -> str | None:
    """What only `--verbose` tells."""
    if not isinstance(event, e.Armed):
        return None
    back = ", and brings the version before back" if event.roll_back else ""
    return f"{event.pid} waits in the container to start it; it goes on without us{back}"


def _staged(event: e.Staged) -> str:
    same = f" ({event.same} unchanged, not sent)" if event.same else ""
    size, took = words.size(event.size), words.elapsed(event.seconds)
    return f"staged {words.count(event.files, 'file')}, {size}{same} in {took}"


def _activated(event: e.Activated) -> str:
    said = [f"release {redact.safe(event.release)} is in place"] if event.release else []
    if event.log_rotated is not None:
        name = redact.text(posixpath.basename(event.log_rotated), 80)
        said.append(f"the old log is {name} now")
    return "; ".join(said)


def _launched(event: e.Launched) -> str:
    what = "the version before is started again" if event.old else "started"
    up_to = words.wait(event.within_s)
    cmd = redact.text(event.cmd, naming.CMD_SHOWN)
    return f"{what} as {event.pid}: {cmd}; looking whether it is healthy (within {up_to})"


def _log(event: e.LogSaid, shown: set[str]) -> list[str]:
    shown.update(event.lines)
    lines = [f'log: "{redact.text(each, LINE_SHOWN)}"' for each in event.lines]
    more = words.count(event.left_out, "line") if event.left_out else ""
    return [f"log: {more} more, not shown", *lines] if more else lines


def _unhealthy(event: e.Unhealthy, shown: set[str]) -> list[tuple[str, str]]:
    who = "the version before is NOT HEALTHY either" if event.old else "NOT HEALTHY"
    why = "; ".join(redact.text(each) for each in event.why)
    last = [
        ("", f'its log: "{redact.text(each, LINE_SHOWN)}"')
        for each in event.log
        if each not in shown
    ]
    return [("! ", f"{who}: {why}"), *last]


def _version(release: str | None) -> str:
    return f"release {redact.safe(release)}" if release else "the version before"


def _rolled_back(event: e.RolledBack) -> tuple[str, str]:
    if event.pid is None:
        why = redact.text(event.problem or "why is not known")
        return "! ", f"{_version(event.release)} did NOT come back: {why}"
    return "", f"{_version(event.release)} is back in place"


def sentence(outcome: Outcome, command: str | None) -> tuple[str, Tone] | None:
    """The last line of one that was started, or was to be; None: the result is none of these."""
    took = "" if outcome.seconds is None else f" in {words.elapsed(outcome.seconds)}"
    why = redact.text(outcome.reason or "").rstrip(".")
    because = f": {why}" if why else ""
    if outcome.interrupted:
        because = f": {why.removeprefix('interrupted; ')}"
        return (f"INTERRUPTED{because}.", "bad") if outcome.release is not None else None
    match outcome.result:
        case "running" if outcome.health is not None:
            verb = _VERBS.get(command or "", "launched")
            return f"{verb}{took}, healthy as {_pids(outcome)}{_release(outcome)}.", "good"
        case "redeployed" if outcome.health is None:
            return f"redeployed already{because}.", "good"
        case "redeployed":
            return f"redeployed{took}, healthy as {_pids(outcome)}{_release(outcome)}.", "good"
        case "rolled_back":
            return f"ROLLED BACK{took}{because}.", "bad"
        case "unhealthy":
            return f"NOT HEALTHY{took}{because}.", "bad"
        case "deploy_failed":
            return f"NOT DEPLOYED{because}; the running job was not touched.", "bad"
    return None


def _pids(outcome: Outcome) -> str:
    return words.pids([each.pid for each in naming.trainers(outcome.family)])


def _release(outcome: Outcome) -> str:
    runs = outcome.release.running if outcome.release is not None else None
    return f"; release {redact.safe(runs)} runs" if runs else ""


def below(outcome: Outcome) -> list[Line]:
    """Where nothing of what was started is healthy: what to look at next."""
    if outcome.result not in ("rolled_back", "unhealthy") or outcome.hint:
        return []
    return [Line("  next         ", "read the end of its log; fleetstop explain 8")]
