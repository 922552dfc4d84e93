"""What every event is made of; the events themselves are its neighbours."""

from __future__ import annotations

from msgspec import Struct


class Event(Struct, frozen=True, kw_only=True, tag_field="event"):
    """`at`: ISO 8601 UTC, by the client's clock; `target` null: it concerns the whole run."""

    at: str
    target: str | None
