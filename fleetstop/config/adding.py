"""Text of a YAML file with one more entry in it, all else as it was, byte for byte. Opens no file.

The text is not written anew from what was read: comments, quotes, anchors and blanks would not
survive that. The parser tells where things stand, and the entry is put there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.nodes import MappingNode, ScalarNode

from fleetstop.core.adopting.stanza import Tree, block, flow, scalar
from fleetstop.core.spelling import shown
from fleetstop.errors import Refused

BY_HAND = "write it there by hand"
_ALIAS = re.compile(r"\s*:?\s*\*[^\s,\[\]{}]+")


def added(text: str, path: tuple[str, ...], tree: Tree) -> str:
    """`tree` at `path`, whose last key is new; keys above it that are missing are made.

    The text, which may be empty, has been read before: it is YAML, and a mapping. Raises Refused
    where an entry there would be one in other places too.
    """
    newline = "\r\n" if "\r\n" in text else "\n"
    root = YAML(typ="safe", pure=True).compose(text)
    if root is None:
        return _below(text, len(text), block(path[0], _nested(path[1:], tree), 0), newline)
    for depth, name in enumerate(path):
        inner = next((pair for pair in root.value if pair[0].value == name), None)
        if inner is None:
            return _into(text, root, name, _nested(path[depth + 1 :], tree), newline)
        brackets = bool(root.flow_style)
        key, root = inner
        if root.start_mark.index < key.end_mark.index:
            raise Refused(f"{shown(name)} is an alias (*name) in the inventory", hint=BY_HAND)
        if isinstance(root, ScalarNode):
            rest = _nested(path[depth + 1 :], tree)
            return _instead(text, key, root, rest, newline, brackets=brackets)
    raise Refused(f"{shown(path[-1])} is there already", hint=BY_HAND)


def _nested(path: tuple[str, ...], tree: Tree) -> Tree:
    for key in reversed(path):
        tree = {key: tree}
    return tree


def _into(text: str, node: MappingNode, name: str, tree: Tree, newline: str) -> str:
    """As the last entry of a mapping."""
    if node.flow_style:
        entry = f"{scalar(name, key=True)}: {flow(tree)}"
        if node.value:
            at = _end(text, *node.value[-1])
            return f"{text[:at]}, {entry}{text[at:]}"
        at = text.index("{", node.start_mark.index) + 1
        return text[:at] + entry + text[at:]
    column = node.value[0][0].start_mark.column
    at = _line_end(text, _end(text, *node.value[-1]))
    # a comment that is indented further belongs to the entry before
    while (line := _line_at(text, at)).strip().startswith("#") and _indent(line) > column:
        at = _line_end(text, at)
    return _below(text, at, block(name, tree, column), newline)


def _instead(
    text: str, key: Any, node: ScalarNode, tree: Tree, newline: str, *, brackets: bool
) -> str:
    """In the place of nothing: `jobs:`, `jobs: null`."""
    start, end = node.start_mark.index, node.end_mark.index
    if start == end:  # its mark is where the next thing begins
        start = end = text.index(":", key.end_mark.index) + 1
    if brackets:
        blank = "" if text[:start].endswith(" ") else " "
        return text[:start] + blank + flow(tree) + text[end:]
    rest = text[:start].rstrip(" ") + text[end:]
    column = key.start_mark.column + 2
    entries = tree.items() if isinstance(tree, Mapping) else ()
    lines = [line for name, value in entries for line in block(name, value, column)]
    return _below(rest, _line_end(rest, key.end_mark.index), lines, newline)


def _end(text: str, key: Any, value: Any) -> int:
    """Where the last visible sign of an entry ends."""
    at = int(key.end_mark.index)
    if value.start_mark.index < at:
        alias = _ALIAS.match(text, at)
        return alias.end() if alias is not None else at
    if isinstance(value, ScalarNode) and value.start_mark.index == value.end_mark.index:
        return text.index(":", at) + 1
    if isinstance(value, ScalarNode) or value.flow_style or not value.value:
        return len(text[: value.end_mark.index].rstrip())
    last = value.value[-1]
    if isinstance(value, MappingNode):
        return _end(text, *last)
    return _end_of_item(text, last)


def _end_of_item(text: str, item: Any) -> int:
    """Of a block sequence's last item; its end is told with what follows, comments too."""
    if isinstance(item, MappingNode) and not item.flow_style and item.value:
        return _end(text, *item.value[-1])
    return len(text[: item.end_mark.index].rstrip())


def _line_end(text: str, at: int) -> int:
    """Where the next line begins."""
    found = text.find("\n", at)
    return len(text) if found < 0 else found + 1


def _line_at(text: str, at: int) -> str:
    return text[at : _line_end(text, at)]


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _below(text: str, at: int, lines: list[str], newline: str) -> str:
    before, after = text[:at], text[at:]
    if before and not before.endswith("\n"):
        before += newline
    return before + newline.join(lines) + newline + after
