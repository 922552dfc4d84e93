"""Which members have ended, each told once; decides nothing."""

from __future__ import annotations

from fleetstop import events
from fleetstop.actions.telling import Teller
from fleetstop.core.kin.family import Family, Kin, standing
from fleetstop.core.process import ProcessId, ProcessTree
from fleetstop.core.redact import command

_ORDER = {"trainer": 0, "worker": 1}


class Exits:
    """Of one climb."""

    def __init__(self, teller: Teller) -> None:
        self._teller = teller
        self._gone: set[ProcessId] = set()

    def seen(self, family: Family, tree: ProcessTree) -> None:
        """By a look: trainers first, what stands above them last."""
        alive = {kin.id for kin in standing(family, tree)}
        ended = [kin for kin in in_order(family) if kin.id not in alive]
        self.told([(kin, tree.get(kin.id) is not None) for kin in ended])

    def told(self, ended: list[tuple[Kin, bool]]) -> None:
        """With each, whether it is there still as a zombie."""
        for kin, zombie in ended:
            if kin.id in self._gone:
                continue
            self._gone.add(kin.id)
            self._teller.tell(
                events.MemberExited,
                pid=kin.pid,
                role=kin.role,
                cmd=command(kin.argv),
                zombie=zombie,
            )


def in_order(family: Family) -> list[Kin]:
    return sorted(family.members, key=lambda kin: _ORDER.get(kin.role, 2))
