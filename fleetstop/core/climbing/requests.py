"""What a playbook asks of a job: the words of its rungs, its signals, and the one that saves."""

from __future__ import annotations

from fleetstop.core.above.units import units_of
from fleetstop.core.kin.family import Family
from fleetstop.core.playbook import Does, Playbook, Rung
from fleetstop.core.process import ProcessTree

# What a rung that is no signal is called in events, reports and the ledger.
ASKS: dict[Does, str] = {"run": "RUN", "touch": "TOUCH", "keys": "KEYS", "await": "AWAIT"}


def word_of(rung: Rung, stop_signal: str) -> str:
    """The rung's signal, or the word for what it does instead."""
    if rung.does != "signal":
        return ASKS[rung.does]
    return stop_signal if rung.signal == "stop_signal" else rung.signal


def requests(playbook: Playbook, stop_signal: str) -> tuple[str, ...]:
    """The signals this playbook asks with, KILL aside."""
    said = {word_of(r, stop_signal) for r in playbook.ladder if r.does == "signal"}
    return tuple(sorted(said - {"KILL"}))


def heard_by_all(family: Family, tree: ProcessTree) -> tuple[str, ...]:
    """Which of INT and TERM every trainer hears now."""
    trainers = [tree.get(kin.id) for kin in family.trainers]
    return tuple(
        signal
        for signal in ("INT", "TERM")
        if trainers
        and all(each is not None and each.landing(signal) == "heard" for each in trainers)
    )


def choose_stop_signal(family: Family, tree: ProcessTree) -> str | None:
    """The only one of INT and TERM that every trainer hears; INT where none is heard at all, or
    only leftovers of the job are there, which get none.

    None: both are heard, and which of them saves cannot be seen from outside.
    """
    heard = heard_by_all(family, tree)
    if len(heard) == 2:
        return None
    return heard[0] if heard else "INT"


def fillings(tree: ProcessTree, family: Family, target: str) -> dict[str, str | None]:
    """What a playbook's placeholders stand for; None where there is not exactly one."""
    lead = [tree.get(kin.id) for kin in family.trainers]
    units = {unit for each in lead if each is not None for unit in units_of(each.cgroups)}
    return {
        "unit": units.pop() if len(units) == 1 else None,
        "pid": str(family.trainers[0].pid) if len(family.trainers) == 1 else None,
        "target": target,
    }
