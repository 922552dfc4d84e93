"""A job's lines in an inventory, as text that reads back to the very same; knows no file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct

from fleetstop.core.inventory import Launch, Match

Tree: TypeAlias = "Mapping[str, Tree] | tuple[str | int, ...] | str | int"
# mappings that stand in one line, as the README writes them
_ONE_LINE = frozenset({"match", "deploy"})
_PLAIN = re.compile(r"[A-Za-z0-9_/.\-][A-Za-z0-9_/.@%+=\-]*")
# what some reader of YAML takes for a number, a truth or nothing
_NOT_TEXT = re.compile(
    r"[-+.]?[0-9][0-9_]*(?:\.[0-9_]*)?(?:[eE][-+]?[0-9]*)?|0[xobXOB]\w+|[0-9]+(?::[0-9.]+)+"
    r"|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}.*|[-.]+|[-+]?\.(?:inf|nan)|~|null|true|false|yes|no|on|off|y|n|",
    re.IGNORECASE,
)


class Stanza(Struct, frozen=True):
    """What is written of one job; None and empty: not written."""

    match: Match
    stop_signal: str | None = None
    log: str | None = None
    checkpoints: str | None = None
    gpus: tuple[int, ...] | None = None
    launch: Launch | None = None
    dest: str | None = None

    def tree(self) -> dict[str, Tree]:
        """Keys in the order of the README."""
        found: dict[str, Tree] = {"match": _match(self.match)}
        for key in ("stop_signal", "log", "checkpoints"):
            if (value := getattr(self, key)) is not None:
                found[key] = value
        if self.gpus is not None:
            found["gpus"] = self.gpus
        if self.launch is not None:
            found["launch"] = _launch(self.launch)
        if self.dest is not None:
            found["deploy"] = {"dest": self.dest}
        return found


def _match(match: Match) -> dict[str, Tree]:
    said = {key: getattr(match, key) for key in ("script", "module", "exe")}
    return {key: value for key, value in said.items() if value is not None}


def _launch(launch: Launch) -> dict[str, Tree]:
    found: dict[str, Tree] = {"run": launch.run}
    if launch.cwd is not None:
        found["cwd"] = launch.cwd
    if launch.env:
        found["env"] = dict(launch.env)
    if launch.user is not None:
        found["user"] = launch.user
    return found


def launch_line(words: Sequence[str], cwd: str | None) -> str:
    """What a job lacks, to be read on a screen and copied. `words`: a secret among them is `***`,
    which starts nothing as it stands."""
    found: dict[str, Tree] = {"run": tuple(words)}
    if cwd is not None:
        found["cwd"] = cwd
    masked = " (with what *** stands for)" if any("***" in each for each in words) else ""
    return f"launch: {flow(found)}{masked}"


def deploy_line(dest: str) -> str:
    return f"deploy: {flow({'dest': dest})}"


def block(name: str, tree: Tree, indent: int = 0) -> list[str]:
    """Lines of a block mapping's one entry, its key `indent` blanks in."""
    blank = " " * indent
    if isinstance(tree, Mapping) and name not in _ONE_LINE:
        lines = [f"{blank}{scalar(name, key=True)}:"]
        for key, value in tree.items():
            lines += block(key, value, indent + 2)
        return lines
    return [f"{blank}{scalar(name, key=True)}: {flow(tree)}"]


def flow(tree: Tree) -> str:
    """A value in one line, as it may stand within brackets too."""
    if isinstance(tree, int):
        return f"{tree}"
    if isinstance(tree, str):
        return scalar(tree)
    if isinstance(tree, tuple):
        return f"[{', '.join(map(flow, tree))}]"
    inner = (f"{scalar(key, key=True)}: {flow(value)}" for key, value in tree.items())
    return "{" + ", ".join(inner) + "}"


def scalar(text: str, *, key: bool = False) -> str:
    """Without quotes where every reader takes it for this text."""
    if _PLAIN.fullmatch(text) and (key or not _NOT_TEXT.fullmatch(text)):
        return text
    return '"' + "".join(_escaped(each) for each in text) + '"'


def _escaped(char: str) -> str:
    if char in '"\\':
        return "\\" + char
    if char.isprintable():
        return char
    code = ord(char)
    known = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
    if code < 0x100:
        return known.get(char, f"\\x{code:02x}")
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
