"""A configuration value with its file, line and path, and how values are read from it.

Every complaint is a BadConfig that says `file:line: path: problem`. Knows no key of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeVar

from msgspec import Struct

from fleetstop.config.nodes import Node, below, misplaced, read_document
from fleetstop.core.durations import parse_duration
from fleetstop.core.inventory import is_name
from fleetstop.core.spelling import did_you_mean, shown
from fleetstop.errors import BadConfig, BadUsage

_BOOLEANS = {
    "true": True,
    "True": True,
    "TRUE": True,
    "false": False,
    "False": False,
    "FALSE": False,
}

Value = TypeVar("Value")


class Spot(Struct, frozen=True):
    """A value and where it stands: `path` is dotted from the top, `line` counts from 1."""

    file: str
    path: str
    line: int
    node: Node

    def wrong(self, problem: str, *, line: int | None = None) -> BadConfig:
        """The error to raise: `file:line: path: problem`."""
        return misplaced(self.file, line or self.line, self.path, problem)

    def _child(self, key: str | int, node: Node) -> Spot:
        return Spot(self.file, below(self.path, key), node.line, node)

    def entries(self) -> dict[str, Spot]:
        """A mapping with names of the user's own; nothing written counts as an empty one."""
        if self.node.is_null:
            return {}
        if not isinstance(self.node.value, dict):
            raise self.wrong(f"must be a mapping, not {self._kind()}")
        return {key: self._child(key, node) for key, node in self.node.value.items()}

    def fields(self, known: Collection[str], *, needed: Collection[str] = ()) -> dict[str, Spot]:
        """A mapping whose keys we define."""
        entries = self.entries()
        for key, spot in entries.items():
            if key not in known:
                near = did_you_mean(key, known)
                raise self.wrong(f"unknown key {shown(key)}{near}", line=spot.line)
        for key in needed:
            if key not in entries:
                raise self.wrong(f"key {shown(key)} is missing")
        return entries

    def named(self) -> dict[str, Spot]:
        """A mapping of hosts, containers, jobs or groups by name."""
        entries = self.entries()
        for name, spot in entries.items():
            if not is_name(name):
                allowed = "letters, digits and _ . - only, a letter or digit first"
                raise self.wrong(f"name {shown(name)} is not allowed: {allowed}", line=spot.line)
        return entries

    def items(self) -> list[Spot]:
        if self.node.is_null:
            return []
        if not isinstance(self.node.value, list):
            raise self.wrong(f"must be a list, not {self._kind()}")
        return [self._child(index, node) for index, node in enumerate(self.node.value)]

    def word(self) -> str:
        """Text that may be empty and may hold line breaks: an argument, a variable's value."""
        if not isinstance(self.node.value, str) or self.node.is_null:
            raise self.wrong(f"must be text, not {self._kind()}")
        for each in self.node.value:
            if each == "\0" or "\ud800" <= each <= "\udfff":
                raise self.wrong(f"holds {shown(each)}, which no program can be given")
        return self.node.value

    def text(self) -> str:
        """Text in one line, not empty."""
        text = self.word()
        if not text.strip():
            raise self.wrong("must not be empty")
        for each in text:
            if each < " " or "\x7f" <= each <= "\x9f":
                raise self.wrong(f"holds the control character {shown(each)}")
        return text

    def absolute(self) -> str:
        """A path on the other machine."""
        text = self.text()
        if not text.startswith("/"):
            raise self.wrong(f"must be an absolute path, not {shown(text)}")
        return text

    def choice(self, *words: str) -> str:
        text = self.text()
        if text not in words:
            near = did_you_mean(text, words)
            raise self.wrong(f"must be {' or '.join(words)}, not {shown(text)}{near}")
        return text

    def integer(self, least: int, most: int) -> int:
        text = self.node.value if isinstance(self.node.value, str) else ""
        digits = text.removeprefix("-")
        # 0200 is 200 to one reader and 128 to another, so it is neither.
        usual = digits.isascii() and digits.isdigit() and (digits == "0" or digits[0] != "0")
        if not usual or len(digits) > 18 or not least <= int(text) <= most:
            raise self.wrong(f"must be a number from {least} to {most}, not {self._kind()}")
        if not self.node.plain:
            raise self.wrong(f"must be a number; write {text} without quotes")
        return int(text)

    def boolean(self) -> bool:
        value = self.node.value
        if not self.node.plain or not isinstance(value, str) or value not in _BOOLEANS:
            raise self.wrong(f"must be true or false, not {self._kind()}")
        return _BOOLEANS[value]

    def duration(self) -> float:
        """Seconds."""
        return self.parsed(parse_duration)

    def parsed(self, parse: Callable[[str], Value]) -> Value:
        """Text that core understands; its complaint becomes ours, with the place before it."""
        try:
            return parse(self.text())
        except BadUsage as error:
            raise misplaced(self.file, self.line, self.path, error.message, error.hint) from error

    def _kind(self) -> str:
        match self.node.value:
            case dict():
                return "a mapping"
            case list():
                return "a list"
            case text:
                return "nothing" if self.node.is_null else shown(text)


def read_yaml(text: str, file: str) -> Spot:
    """The top of a file. Raises BadConfig for whatever is wrong with it as YAML."""
    root = read_document(text, file)
    return Spot(file, "", root.line, root)
