"""The one line at the bottom of a terminal: what is being waited for, and for how long already."""

from __future__ import annotations

from msgspec import Struct

from fleetstop import events as e
from fleetstop.core import redact
from fleetstop.core.report import Report
from fleetstop.view import launching, words


class _Post(Struct):
    """Where one target stands; `since` is monotonic seconds."""

    text: str
    since: float
    limit_s: float | None = None
    said: str | None = None


_VERIFYING = {
    "checkpoint": "checking the checkpoint",
    "gpus": "waiting for the GPUs to be released",
    "above": "looking whether it comes back",
}
AIMS = {
    "gone": "until it is gone",
    "checkpoint": "for a new checkpoint",
    "gpu-free": "until its GPUs are free",
    "healthy": "until it is healthy",
}


class Waiting:
    """Follows the events; `line` is drawn several times a second, so it only formats."""

    def __init__(self) -> None:
        self._posts: dict[str, _Post] = {}
        self._done = 0

    def observe(self, event: e.AnyEvent, now: float) -> None:
        if isinstance(event, Report):
            self._posts.clear()
        elif isinstance(event, e.TargetFinished):
            self._done += 1
            self._posts.pop(event.target or "", None)
        elif isinstance(event, e.LogSaid):
            post = self._posts.get(event.target or "")
            if post is not None:
                post.said = launching.said_last(event) or post.said
        elif isinstance(event, e.Started):
            self._posts = {name: _Post("looking", now) for name in event.targets}
        elif (post := _post(event, now)) is not None and event.target is not None:
            self._keep(event.target, post)

    def _keep(self, target: str, post: _Post) -> None:
        before = self._posts.get(target)
        if before is not None and _kind(before.text) == _kind(post.text):
            post.since = before.since
        self._posts[target] = post

    def line(self, now: float) -> str:
        """Harmless text, empty where nothing is waited for."""
        posts = list(self._posts.items())  # one step: rich draws from a thread of its own
        if not posts:
            return ""
        total = self._done + len(posts)
        target, post = min(posts, key=lambda each: each[1].since)
        count = f"{self._done} of {total} done; " if total > 1 else ""
        name = f"{redact.text(target)}: " if total > 1 else ""
        said = f'; log: "{post.said}"' if post.said else ""
        return f"{count}{name}{post.text}, {_how_long(post, now)}{said}"


def _how_long(post: _Post, now: float) -> str:
    passed = words.elapsed(float(int(now - post.since)))
    limit = post.limit_s
    known = limit is not None and words.wait(limit) != "forever" and now - post.since <= limit
    return f"{passed} of {words.wait(limit)}" if known else passed


def _kind(text: str) -> str:
    return text.partition(":")[0]


def _post(event: e.Event, now: float) -> _Post | None:
    match event:
        case e.Connected() | e.Located():
            return _Post("looking", now)
        case e.SignalSent() | e.WatchedOn():
            what = f"{redact.safe(event.signal)} sent, waiting for {words.pids(event.pids)}"
            return _Post(what, now, event.wait_s)
        case e.RungEntered(signal="AWAIT"):
            return _Post("waiting for the next complete checkpoint", now, event.wait_s)
        case e.CheckpointAwaited() | e.Answered():
            return _Post("looking", now)
        case e.Holding():
            facts = ", ".join(redact.text(each, 60) for each in event.evidence)
            return _Post(f"{event.why}: {facts}" if facts else event.why, now)
        case e.Verifying():
            return _Post(_VERIFYING[event.what], now)
        case e.Waiting():
            return _Post(f"waiting {AIMS[event.what]}", now, event.limit_s)
        case e.Interrupted():
            return _Post("letting go", now)
    begun = launching.awaited(event)
    return _Post(begun[0], now, begun[1]) if begun is not None else None
