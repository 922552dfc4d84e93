"""A rehearsal for people: each job's story in its own time, how it ended, what it would lose."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC

from fleetstop.core.rehearsing.scenarios import Lost, Rehearsed
from fleetstop.core.report import Outcome
from fleetstop.events import AnyEvent
from fleetstop.view import ending, words
from fleetstop.view.layout import Line, fold, note, painted
from fleetstop.view.story import Story
from fleetstop.view.ways_on import Known

_LOST: dict[Lost, str] = {
    "nothing": "nothing: it ended in its own way",
    "still_running": "nothing: it runs on",
    "since_checkpoint": "about {} of work, all since its last checkpoint",
    "checkpoint_cut": "the checkpoint it was writing, and about {} of work",
}


def story(playbook: str, one: Rehearsed, told: Sequence[AnyEvent], outcome: Outcome) -> list[Line]:
    """One job: a headline, the same lines as a real stop with the clock at zero, the loss."""
    view = Story(zone=UTC)
    lines = [
        Line("", f"{playbook} against {one.scenario.name}: a job that {one.scenario.about}", "head")
    ]
    for event in told:
        lines += [_in(each) for each in view.lines(event)]
    # not the story's own ending: what it suggests would be typed against a real job
    lines += [*map(_in, view.flush()), _in(ending.last_line(outcome, Known()))]
    bad = one.lost in ("since_checkpoint", "checkpoint_cut")
    loss = _LOST[one.lost].format(words.age(one.lost_s or 0.0))
    return [*lines, note("would lose", loss, "warn" if bad else "plain")]


def _in(line: Line) -> Line:
    return line._replace(lead="  " + line.lead)


def shown(lines: Sequence[Line], *, width: int, color: bool) -> str:
    """Wrapped and coloured text, ready for a stream."""
    return "".join(painted(part, color) + "\n" for each in lines for part in fold(each, width))
