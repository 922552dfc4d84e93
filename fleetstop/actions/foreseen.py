"""What a start would fail by, known before anything is stopped. Stops and starts nothing."""

from __future__ import annotations

from fleetstop.core import redact
from fleetstop.core.launching.recipe import Known, Recipe
from fleetstop.errors import Refused


def must_be_read(made: Recipe, place: Known) -> None:
    """Raises Refused where nobody would see whether its log tells of health."""
    if made.reads is not None:
        return
    seen = redact.text(place.wrote.path) if place.wrote is not None else None
    raise Refused(
        "its health is to be read in its log, and its output goes nowhere",
        hint=f"say where it shall log, in the inventory: log: {seen or '/workspace/train.log'}",
    )
