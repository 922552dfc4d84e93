"""How each kept release did when it ran, as far as anybody saw it. Knows no clock and no file."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from fleetstop.core import redact
from fleetstop.core.launching.activation import State
from fleetstop.core.releases.manifest import BEFORE, Release
from fleetstop.core.spelling import plain

NAME = "tried.json"
_FAILED = ("unhealthy", "rolling_back", "rolled_back", "failed")


class Tried(Struct, frozen=True):
    """tried.json, beside the manifest. Each says when, ISO 8601; None: was never seen. `healthy`
    once is for good. `ran`: it was what ran when another took its place. `failed`: it came up and
    was not well, of which `reason` tells. All of them tell of starts by its manifest, since by that
    it is gone back to."""

    healthy: str | None = None
    ran: str | None = None
    failed: str | None = None
    reason: str | None = None


NEVER = Tried()


def parse_tried(text: str | None) -> Tried:
    """What says nothing that can be read is no reason to trust a release."""
    if not text:
        return NEVER
    try:
        return msgspec.json.decode(text.encode("utf-8", "surrogateescape"), type=Tried)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return NEVER


def with_state(tried: Mapping[str, Tried], state: State | None) -> dict[str, Tried]:
    """With what the last activation tells: its activator may have had no time to note it."""
    found = dict(tried)
    if state is None:
        return found
    name, at = state.release, state.ended_at or state.at or "it is not known when"
    # one without files may have been started otherwise than by its release's manifest
    if state.step == "healthy" and name is not None:
        known = found.get(name, NEVER)
        found[name] = msgspec.structs.replace(known, healthy=known.healthy or at)
    elif state.step in _FAILED and name is not None and state.files != "old":
        known = found.get(name, NEVER)
        found[name] = msgspec.structs.replace(known, failed=at, reason=state.reason)
    return found


def worth_going_back_to(release: Release, tried: Mapping[str, Tried]) -> bool:
    """It was seen healthy, or it was what ran, and nothing bad was ever seen of it."""
    its = tried.get(release.id, NEVER)
    return its.healthy is not None or (
        its.failed is None and (its.ran is not None or release.who == BEFORE)
    )


def how_it_did(release: Release, tried: Mapping[str, Tried]) -> str:
    """`healthy`, or `never healthy: it ended with exit code 1`."""
    its = tried.get(release.id, NEVER)
    if its.healthy is not None:
        return "was healthy"
    if its.failed is not None:
        return f"never healthy{f': {redact.text(its.reason, 240)}' if its.reason else ''}"
    if its.ran is not None:
        return "ran" if release.who == BEFORE else "ran, never seen healthy"
    return "lay there" if release.who == BEFORE else "never seen healthy"


def row(release: Release, tried: Mapping[str, Tried], now: str | None = None) -> str:
    """One line to choose by; `now`: what it is at this moment, in words."""
    day, _, clock = release.when.partition("T")
    by = plain(release.who)
    parts = [f"{plain(day)} {plain(clock[:5])} UTC", by if release.who == BEFORE else f"by {by}"]
    if release.git is not None:
        dirty = " with changes" if release.git.dirty else ""
        parts.append(f"commit {redact.safe(release.git.commit)[:12]}{dirty}")
    if release.from_release is not None:
        parts.append(f"the files of {plain(release.from_release)}")
    parts += [how_it_did(release, tried), *([now] if now else [])]
    return f"{plain(release.id)}  {', '.join(parts)}"
