"""Rehearsal from Python: a playbook against simulated jobs, no connection and no clock."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from fleetstop.actions.rehearse import chosen, told
from fleetstop.core.climbing.consent import Consent, Terms
from fleetstop.core.playbook import Playbook
from fleetstop.core.rehearsing.scenarios import SCENARIOS, Rehearsed, rehearse
from fleetstop.core.report import Outcome
from fleetstop.events import AnyEvent


class Rehearsal(Struct, frozen=True):
    """One job's: what the simulation knows, what a stop would have told, and its outcome."""

    rehearsed: Rehearsed
    events: tuple[AnyEvent, ...]
    outcome: Outcome


def rehearsals(
    playbook: Playbook,
    against: Sequence[str],
    consent: Consent = "absent",
    terms: Terms | None = None,
) -> list[Rehearsal]:
    """`against`: names, also joined by commas; none or `all` means every one there is.

    Raises BadUsage for an unknown one.
    """
    made = []
    for name in chosen(against, tuple(SCENARIOS)):
        one = rehearse(playbook, SCENARIOS[name], consent=consent, terms=terms)
        heard, outcome = told(one)
        made.append(Rehearsal(rehearsed=one, events=tuple(heard), outcome=outcome))
    return made
