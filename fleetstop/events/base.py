"""What every event has; `at` is ISO 8601 UTC, `target` null where it concerns the whole run."""

from __future__ import annotations

from msgspec import Struct


class Event(Struct, frozen=True, kw_only=True, tag_field="event"):
    at: str
    target: str | None
