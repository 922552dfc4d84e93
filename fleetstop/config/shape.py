"""Readers of values that can say, as JSON Schema, what they take. Knows no key of ours.

One truth for both: a table of keys reads a file, and `fleetstop schema` prints the same table.
A schema takes whatever its reader takes, and refuses what can be refused without knowing the
rest of the file. Plain scalars may have been read as numbers or booleans by then.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeAlias

from msgspec import Struct

from fleetstop.config.spot import Spot
from fleetstop.core.durations import DURATION_PATTERN, FINITE_PATTERN, FOREVER
from fleetstop.core.inventory import NAME_PATTERN
from fleetstop.core.signals import NUMBERS

Shape: TypeAlias = dict[str, Any]
Readers: TypeAlias = Mapping[str, Callable[[Spot], Any]]

_CONTROL = r"\u0000-\u001f\u007f-\u009f"
_SCALARS = ["string", "number", "boolean"]
_DIGITS = 999_999_999_999
# Where the key people write is not the field's name: the field says its unit.
_FIELD = {"max_loss": "max_loss_s", "within": "within_s"}


class Reader(Struct, frozen=True):
    """Reads one value, and tells its shape."""

    read: Callable[[Spot], Any]
    shape: Shape

    def __call__(self, spot: Spot) -> Any:
        return self.read(spot)

    def saying(self, text: str) -> Reader:
        """The same, with the words that an editor shows beside the key."""
        return Reader(self.read, {"description": text, **self.shape})


Table: TypeAlias = Mapping[str, Reader]


def read_values(spots: Mapping[str, Spot], table: Readers) -> dict[str, Any]:
    """Each key by its reader, under the name of its field."""
    return {_FIELD.get(key, key): table[key](spot) for key, spot in spots.items()}


def finite(spot: Spot) -> float:
    seconds = spot.duration()
    if seconds == FOREVER:
        raise spot.wrong("must end: 'forever' is not allowed here")
    return seconds


def one_of(*words: str) -> Reader:
    return Reader(lambda spot: spot.choice(*words), {"enum": list(words)})


def integer(least: int, most: int) -> Reader:
    shape = {"type": "integer", "minimum": least, "maximum": most}
    return Reader(lambda spot: spot.integer(least, most), shape)


WORD_SHAPE: Shape = {"type": _SCALARS}
TEXT_SHAPE: Shape = {
    "type": _SCALARS,
    "pattern": rf"^[^{_CONTROL}]*[^\s{_CONTROL}][^{_CONTROL}]*$",
}
PATH_SHAPE: Shape = {"type": "string", "pattern": rf"^/[^{_CONTROL}]*$"}
DURATION_SHAPE: Shape = {
    "type": ["string", "number"],
    "pattern": DURATION_PATTERN,
    "minimum": 0,
    "maximum": _DIGITS,
}
FINITE_SHAPE: Shape = DURATION_SHAPE | {"pattern": FINITE_PATTERN}


def signal_shape(*words: str, leave_out: Collection[str] = ()) -> Shape:
    """A signal's name or number in any spelling that core takes, or one of `words`."""
    known = {name: number for name, number in NUMBERS.items() if name not in leave_out}
    names = ["".join(f"[{c}{c.lower()}]" if c.isalpha() else c for c in name) for name in known]
    numbers = [f"0*{number}" for number in known.values()]
    spelled = rf"\s*(?:[Ss][Ii][Gg])?(?:{'|'.join([*names, *numbers])})\s*"
    texts = {"type": "string", "pattern": rf"^(?:{'|'.join([*words, spelled])})$"}
    return {"anyOf": [texts, {"enum": list(known.values())}]}


def keys(table: Table, *, needed: Collection[str] = ()) -> Shape:
    """A mapping whose keys we define; nothing written is an empty one."""
    return {
        "type": "object" if needed else ["object", "null"],
        "properties": {key: reader.shape for key, reader in table.items()},
        "required": list(needed),
        "additionalProperties": False,
    }


def named(value: Shape) -> Shape:
    """A mapping with names of the user's own."""
    return {
        "type": ["object", "null"],
        "propertyNames": {"pattern": rf"^(?:{NAME_PATTERN})$"},
        "additionalProperties": value,
    }


def listed(value: Shape, *, least: int = 0) -> Shape:
    if not least:
        return {"type": ["array", "null"], "items": value}
    return {"type": "array", "items": value, "minItems": least}


WORD = Reader(Spot.word, WORD_SHAPE)
TEXT = Reader(Spot.text, TEXT_SHAPE)
PATH = Reader(Spot.absolute, PATH_SHAPE)
BOOLEAN = Reader(Spot.boolean, {"type": "boolean"})
DURATION = Reader(Spot.duration, DURATION_SHAPE)
FINITE = Reader(finite, FINITE_SHAPE)
