"""Whether these very bytes were launched here before, and were not well. Decides nothing.

Only the last activation is remembered: it is what the activator's state tells.
"""

from __future__ import annotations

from collections.abc import Mapping

from fleetstop.core import redact
from fleetstop.core.launching.activation import State
from fleetstop.core.releases.manifest import Release
from fleetstop.core.spelling import plain


def failed_before(
    state: State | None, releases: Mapping[str, Release], wanted: Mapping[str, str]
) -> str | None:
    """A sentence. `wanted`: SHA-256 by path of what is sent; `releases`: the kept ones."""
    if state is None or state.release is None or state.step not in ("rolled_back", "unhealthy"):
        return None
    kept = releases.get(state.release)
    if kept is None or not wanted or kept.hashes != dict(wanted):
        return None
    day, _, time = (state.ended_at or state.at or "").partition("T")
    when = f" on {plain(day)} {plain(time[:5])} UTC" if time else ""
    why = f": {redact.text(state.reason, 300)}" if state.reason else ""
    return f"these bytes failed{when} as release {plain(state.release)}{why}"
