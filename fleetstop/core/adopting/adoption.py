"""A stanza on its way into an inventory, for whoever shows it. Knows no file but by its name."""

from __future__ import annotations

from msgspec import Struct

from fleetstop.core.adopting.gather import Gathered
from fleetstop.core.adopting.placing import Placing
from fleetstop.core.adopting.stanza import Tree, block
from fleetstop.core.kin.family import Family


class Adoption(Struct, frozen=True):
    """`file`: as messages name it; `new_file`: it is not there yet."""

    target: str
    host: str
    vmid: int | None
    placing: Placing
    gathered: Gathered
    family: Family
    file: str
    new_file: bool = False

    @property
    def name(self) -> str:
        return self.placing.name

    def lines(self) -> list[str]:
        """What is new in the inventory, as a file written in blocks would have it."""
        where = self.placing
        tree: dict[str, Tree] = {where.job: self.gathered.stanza.tree()}
        if where.place not in where.new:
            return block(where.job, tree[where.job])
        found = []
        if where.kind == "containers" and where.host in where.new:
            found = block("hosts", {where.host: where.new[where.host]})
        return found + block(where.kind, {where.place: {**where.new[where.place], "jobs": tree}})
