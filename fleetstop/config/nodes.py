"""YAML 1.2 text -> nodes that know their line. Knows no key of ours.

Scalars stay the text that was written, `plain` telling whether it stood without quotes; the
reader of a key decides what it is. So `on` is a word, and nothing turns into a date or a number
behind anyone's back.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)
from ruamel.yaml.reader import ReaderError

from fleetstop.core.inventory import is_name
from fleetstop.core.spelling import plain, shown
from fleetstop.errors import BadConfig

_DEEPEST = 32
# Nodes after aliases are followed: ten lines of `&a [*b, *b, ...]` would stand for billions.
_MOST_NODES = 500_000
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
# Below a key with this ending nothing is quoted: it may be the secret in the wrong place.
_HUSHED = "_secret"
# what the parser says -> what is wrong, for who does not know how a parser thinks
_SAID = (
    ("stream end", "the file ends in the middle of something: a bracket is not closed"),
    ("end of stream", "the file ends in the middle of something: a quote is not closed"),
    ("expected ','", "a comma or a closing bracket is missing, before this or here"),
    ("<block", "the indentation does not fit the lines above"),
    ("<document start>", "the indentation does not fit the lines above"),
    ("could not find expected ':'", "a line without its colon; a line is `key: value`"),
    ("mapping values are not allowed", "a colon where none can be; quote the text, or indent less"),
    ("cannot start any token", "a word cannot begin with this sign; quote it"),
)
_NO_TAGS = "tags (words that start with !) have no meaning here"


class Node(Struct, frozen=True):
    """One YAML value; `size` counts it and everything below, aliases followed."""

    line: int
    value: str | list[Node] | dict[str, Node]
    plain: bool = False
    size: int = 1

    @property
    def is_null(self) -> bool:
        return self.plain and isinstance(self.value, str) and self.value in _NULLS


def read_document(text: str, file: str) -> Node:
    """The one mapping in `text`. Raises BadConfig for whatever is wrong with it as YAML."""
    return _Builder(file, _events(text, file)).document()


def below(path: str, key: str | int) -> str:
    """The dotted path of what stands under `path`: `ladder[0].wait`."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    if not is_name(key):
        return f"{path}[{shown(key)}]"
    return f"{path}.{key}" if path else key


def misplaced(file: str, line: int, path: str, problem: str, hint: str = "") -> BadConfig:
    """The error to raise: `file:line: path: problem`."""
    where = f"{plain(file)}:{line}: " + (f"{path}: " if path else "")
    return BadConfig(where + problem, hint=hint)


def _events(text: str, file: str) -> Iterator[Any]:
    # The parser is not ours: whatever it dies of, it is the file that it could not read.
    try:
        yield from YAML(typ="safe", pure=True).parse(text)
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        problem = f"character {_code(error.character)} is not allowed"
        raise misplaced(file, line, "", problem) from error
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise misplaced(file, mark.line + 1 if mark else 1, "", _syntax(error.problem)) from error
    except (YAMLError, ArithmeticError, LookupError, ValueError) as error:
        raise misplaced(file, 1, "", f"not readable as YAML ({type(error).__name__})") from error


def _code(character: object) -> str:
    return shown(chr(character) if isinstance(character, int) else str(character))


def _syntax(problem: str | None) -> str:
    """The parser's complaint; quoted pieces of the file are left out, one may be a secret."""
    problem = problem or "not YAML"
    if "\\t" in problem or "\t" in problem:
        return "a tab cannot indent; use spaces"
    if "tag" in problem:
        return _NO_TAGS
    known = (ours for theirs, ours in _SAID if theirs in problem)
    return next(known, "not readable as YAML" if "<" in problem else plain(problem))


class _Builder:
    """Events of one file -> nodes: no tags, no duplicate keys, bounded in depth and size."""

    def __init__(self, file: str, events: Iterator[Any]) -> None:
        self._file = file
        self._events = events
        self._anchors: dict[str, Node] = {}

    def document(self) -> Node:
        root: Node | None = None
        for event in self._events:
            if isinstance(event, DocumentStartEvent):
                if root is not None:
                    raise self._wrong(event, "", "a second document starts here; one is allowed")
                root = self._node(next(self._events), "", 0)
        if root is None or root.is_null:
            raise misplaced(self._file, 1, "", "the file is empty")
        if not isinstance(root.value, dict):
            problem = "must be a mapping, with lines like `key: value`"
            raise misplaced(self._file, root.line, "", problem)
        return root

    def _node(self, event: Any, path: str, depth: int) -> Node:
        if isinstance(event, AliasEvent):
            return self._alias(event, path)
        if event.tag is not None:
            raise self._wrong(event, path, _NO_TAGS)
        if depth > _DEEPEST:
            raise self._wrong(event, "", f"nested deeper than {_DEEPEST} levels")
        node = self._value(event, path, depth)
        if node.size > _MOST_NODES:
            raise self._wrong(event, path, f"stands for more than {_MOST_NODES} values")
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        return node

    def _value(self, event: Any, path: str, depth: int) -> Node:
        line = event.start_mark.line + 1
        if isinstance(event, MappingStartEvent):
            return self._mapping(line, path, depth)
        if isinstance(event, SequenceStartEvent):
            return self._sequence(line, path, depth)
        return Node(line, event.value, plain=not event.style)

    def _alias(self, event: Any, path: str) -> Node:
        node = self._anchors.get(event.anchor)
        if node is None:
            raise self._wrong(event, path, "an alias (*name) without its anchor (&name) before it")
        return Node(event.start_mark.line + 1, node.value, node.plain, node.size)

    def _sequence(self, line: int, path: str, depth: int) -> Node:
        items: list[Node] = []
        while not isinstance(event := next(self._events), SequenceEndEvent):
            items.append(self._node(event, below(path, len(items)), depth + 1))
        return Node(line, items, size=1 + sum(each.size for each in items))

    def _mapping(self, line: int, path: str, depth: int) -> Node:
        entries: dict[str, Node] = {}
        while not isinstance(event := next(self._events), MappingEndEvent):
            key = self._key(event, path)
            at = event.start_mark.line + 1
            if key in entries:
                which = "key" if path.endswith(_HUSHED) else f"key {shown(key)}"
                problem = f"duplicate {which}, first in line {entries[key].line}"
                raise self._wrong(event, path, problem)
            inside = path if path.endswith(_HUSHED) else below(path, key)
            node = self._node(next(self._events), inside, depth + 1)
            # A scalar's own line; of what spans many lines, the line that names it.
            stays = isinstance(node.value, str) and not node.is_null
            entries[key] = node if stays else Node(at, node.value, node.plain, node.size)
        return Node(line, entries, size=1 + sum(each.size for each in entries.values()))

    def _key(self, event: Any, path: str) -> str:
        if not isinstance(event, ScalarEvent) or event.tag is not None:
            raise self._wrong(event, path, "a key must be a plain word")
        return str(event.value)

    def _wrong(self, event: Any, path: str, problem: str) -> BadConfig:
        return misplaced(self._file, event.start_mark.line + 1, path, problem)
