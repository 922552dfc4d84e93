"""Whether what is to be replaced would be started again before it is; tells, and stops nothing.

The old code runs again then, and what it did since its last save is done twice.
"""

from __future__ import annotations

from fleetstop.actions.errand import Errand
from fleetstop.actions.lots import Lot
from fleetstop.core.above.comeback import called, comes_first, surely
from fleetstop.core.above.supervisors import Above, standing_above
from fleetstop.core.climbing.requests import choose_stop_signal, word_of
from fleetstop.core.kin.family import Family
from fleetstop.core.process import ProcessTree
from fleetstop.errors import Refused

_BOTH = "the same with --playbook now --after-checkpoint ends both, behind the next checkpoint"
_WITHOUT = "take the loop out of what starts it, or the next one cannot be replaced either"


def kept_up(lot: Lot, errand: Errand) -> None:
    """Raises Refused where it is certain that nothing could be replaced; else it is a finding."""
    if lot.now is None or errand.diff:
        return
    family, tree = lot.now.family, lot.scene.tree
    above = standing_above(tree, family, lot.scene.notes)
    if (who := surely(above)) is not None and _ends_first(lot, errand, family, tree):
        raise Refused(
            f"{called(who)} {who.will}: the same code would run again before anything of it could"
            " be replaced or started otherwise",
            hint=_next(who, lot, family),
        )
    first = next((rung for rung in errand.stop.playbook.ladder if rung.does != "await"), None)
    falls = family.ids if first is not None and (first.signal, first.to) == ("KILL", "tree") else ()
    for each in above:
        if each.restarts and not each.stopping and each.id not in falls:
            lot.finding(
                f"{called(each)} {each.will}: where it does so after this stop, nothing is"
                " replaced, and what ran runs again"
            )


def _ends_first(lot: Lot, errand: Errand, family: Family, tree: ProcessTree) -> bool:
    """The trainers end by what they hear, before anything is done about who stands above them."""
    said = errand.stop.signal or lot.job.stop_signal or choose_stop_signal(family, tree) or "INT"
    trainers = [each for kin in family.trainers if (each := tree.get(kin.id)) is not None]
    for rung in errand.stop.playbook.ladder:
        if rung.does == "await":
            continue
        if rung.does != "signal" or rung.to != "trainers":
            return False
        if all(each.landing(word_of(rung, said)) == "heard" for each in trainers):
            return True
    return False


def _next(who: Above, lot: Lot, family: Family) -> str:
    if who.id not in family.ids:
        return comes_first(who)
    ends = _BOTH if lot.job.checkpoints is not None else comes_first(who)
    return f"{ends}; {_WITHOUT}"
