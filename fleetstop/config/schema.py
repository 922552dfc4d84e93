"""The files' grammar as JSON Schema, out of the tables that read them. Knows no key itself.

For editors and other programs (`# yaml-language-server: $schema=…`). What needs more than one
value at once - names that must exist, lines that are there twice, rules between rungs - only the
reader can say; the schema never refuses what the reader takes.
"""

from __future__ import annotations

from fleetstop.config.inventory import FILE
from fleetstop.config.playbook import playbook_shape
from fleetstop.config.shape import Shape, keys

SCHEMAS = ("playbook", "inventory")
_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_TITLES = {
    "playbook": "fleetstop: a playbook",
    "inventory": "fleetstop: one file of an inventory",
}


def schema(kind: str) -> Shape:
    """`kind` is one of SCHEMAS."""
    shape = playbook_shape() if kind == "playbook" else keys(FILE) | {"type": "object"}
    return {"$schema": _DRAFT, "title": _TITLES[kind], **shape}
