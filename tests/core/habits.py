"""The simulated job of the rehearsal, with the playbooks that most stories are told with."""

from __future__ import annotations

from typing import Any

from fleetstop.core.durations import FOREVER
from fleetstop.core.playbook import Hold, Playbook, Rung, parse_ladder
from fleetstop.core.rehearsing.habits import (
    DEAF,
    DEAF_SAVES_ON_TERM,
    DRAINS,
    IGNORES_ALL,
    LEAVES_UNSAVED,
    POLITE,
    SHELL,
    SHRUGS,
    SUSPENDED,
    WORKER,
    WRITE_ONLY,
    Actor,
    Habit,
)
from fleetstop.core.rehearsing.rehearsal import CHECKPOINTS, LONGEST_S, Climbed, World, job
from fleetstop.core.rehearsing.rehearsal import climb as climb_until

__all__ = [
    "CHECKPOINTS",
    "DEAF",
    "DEAF_SAVES_ON_TERM",
    "DRAINS",
    "FOREVER",
    "GRACEFUL",
    "IGNORES_ALL",
    "LEAVES_UNSAVED",
    "NOW",
    "POLITE",
    "SHELL",
    "SHRUGS",
    "SLOW",
    "STANDARD",
    "SUSPENDED",
    "WORKER",
    "WRITE_ONLY",
    "Actor",
    "Climbed",
    "Habit",
    "World",
    "climb",
    "job",
    "rung",
    "short",
]

SLOW = Habit(memory_s=10.0, file_s=10.0)
GRACEFUL = Playbook(
    name="graceful", lossless=True, ladder=parse_ladder("stop_signal/3m TERM/2m"), hold=Hold()
)
STANDARD = Playbook(name="standard", ladder=parse_ladder("stop_signal/3m TERM/2m KILL:tree/30s"))
NOW = Playbook(name="now", ladder=parse_ladder("KILL:tree/30s"), hold=None)


def short(text: str, *, lossless: bool = False, hold: Hold | None = Hold()) -> Playbook:  # noqa: B008
    return Playbook(name="--ladder", ladder=parse_ladder(text), lossless=lossless, hold=hold)


def climb(world: World, playbook: Playbook, **more: Any) -> Climbed:
    """To the ladder's end, which has to come."""
    climbed = climb_until(world, playbook, **more)
    assert "most_s" in more or climbed.took < LONGEST_S, "it never ends"
    return climbed


def rung(text: str) -> Rung:
    return parse_ladder(text)[0]
