"""What a start would fail by, known before anything is stopped. Stops and starts nothing."""

from __future__ import annotations

from fleetstop.core import redact
from fleetstop.core.launching.output import alike
from fleetstop.core.launching.recipe import Known, Recipe
from fleetstop.core.launching.resumed import without
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


def deaf_again(made: Recipe, place: Known, sent: set[str]) -> str | None:
    """A sentence, where the same script starts the new one and puts it into the background, as it
    did with the one that runs. `sent`: paths that will be others by then."""
    found = place.behind
    if found is None or found.script in sent:
        return None
    same = alike(made.around[0], without(found.argv, made.resume))
    return found.finding if same else None
