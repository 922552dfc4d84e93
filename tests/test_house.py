"""The house of the design: arrows point down only, core is pure, and everything is small."""

from __future__ import annotations

import ast
import graphlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "fleetstop"

# Floors from the ground up. Rooms on one floor never import each other.
FLOORS = (
    {"errors"},
    {"core"},
    {"events", "ports"},
    {"config", "remote", "actions", "history", "view", "lab"},
    {"api"},
    {"cli"},
    {"__main__"},
)
FLOOR = {room: level for level, rooms in enumerate(FLOORS) for room in rooms}

# Rooms that may look at less than all that lies below. "" is fleetstop/__init__.py, the roof.
ONLY = {
    "": {"api", "errors", "core", "events"},
    "cli": {"api", "errors", "core", "view", "events", "lab"},
    "__main__": {"cli"},
}

# Who may import what is foreign.
OWNERS = {
    "asyncssh": {"remote", "lab"},
    "proxmoxer": {"remote", "lab"},
    "tenacity": {"remote", "lab"},
    "rich": {"view"},
    "click": {"cli"},
    "ruamel": {"config"},
    "pathspec": {"config"},  # what is sent is read there: the patterns of .gitignore
}

# All that core may import. Not `signal`: its numbers are this machine's, not the target's.
CORE_MAY_IMPORT = {
    *("fleetstop", "msgspec", "__future__", "abc", "types", "typing", "collections", "dataclasses"),
    *("enum", "contextlib", "copy", "functools", "itertools", "operator", "bisect", "heapq"),
    *("graphlib", "math", "numbers", "fractions", "statistics", "datetime", "re", "string"),
    *("difflib", "fnmatch", "shlex", "textwrap", "unicodedata", "ipaddress", "pathlib"),
    *("posixpath", "json", "struct", "base64", "binascii", "hashlib"),
}
BUILTINS_THAT_ACT = {"open", "input", "print", "eval", "exec", "compile", "__import__"}
NAMES_THAT_ACT = {"Path", "PosixPath", "now", "utcnow", "today"}  # file system, clock

LINES_PER_FILE = 350
LINES_PER_FUNCTION = 60

Sources = Mapping[str, str]  # module, a package as `fleetstop.core.__init__` -> its text
Rule = Callable[[Sources], Iterable[str]]


def room_of(module: str) -> str:
    """`fleetstop.core.ladder` -> `core`, `fleetstop` -> the roof."""
    return module.removesuffix(".__init__").partition(".")[2].partition(".")[0]


def imports(module: str, tree: ast.AST) -> Iterator[tuple[int, str, str]]:
    """Line, origin and name of every import, inside functions and under TYPE_CHECKING too."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name, "") for alias in names)
            case ast.ImportFrom(module=base, names=names, level=level):
                above = module.split(".")[:-level] if level else []
                origin = ".".join(above + ([base] if base else []))
                yield from ((node.lineno, origin, alias.name) for alias in names)
            case ast.Call(
                func=ast.Name(id="import_module" | "__import__")
                | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield node.lineno, name, ""


def reached(origin: str, name: str, sources: Sources) -> str:
    """The module behind `from origin import name`; a room counts before it is written."""
    inner = f"{origin}.{name}"
    is_module = inner in sources or f"{inner}.__init__" in sources
    return inner if is_module or (origin == "fleetstop" and name in FLOOR) else origin


def trespass(here: str, top: str) -> str | None:
    owners = OWNERS.get(top, {here})
    return None if here in owners else f"only {' and '.join(sorted(owners))} may import {top}"


def wrong_way(here: str, there: str, name: str) -> str | None:
    if there == here or (there == "" and (not name or name.startswith("__"))):
        return None
    if there == "":
        return f"{name} comes from the roof: name the room where it lives"
    if there not in FLOOR:
        return f"the room {there} is on no floor"
    if there not in ONLY.get(here, {there}):
        return f"{here or 'the roof'} may not import {there}"
    if here and FLOOR[there] >= FLOOR[here]:
        return f"{here} may not import {there}: arrows point down, never along a floor"
    return None


def wrong_arrows(sources: Sources) -> Iterator[str]:
    for module, text in sources.items():
        here = room_of(module)
        if here and here not in FLOOR:
            yield f"{module}: the room {here} is on no floor"
            continue
        for line, origin, name in imports(module, ast.parse(text)):
            top = origin.partition(".")[0]
            there = room_of(reached(origin, name, sources))
            problem = wrong_way(here, there, name) if top == "fleetstop" else trespass(here, top)
            if problem:
                yield f"{module}:{line}: {problem}"


def heavy_roof(sources: Sources) -> Iterator[str]:
    """Whoever imports a room runs fleetstop/__init__.py first: it loads no room by itself."""
    module = "fleetstop.__init__"
    for statement in ast.parse(sources.get(module, "")).body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            for line, origin, name in imports(module, statement):
                if origin.partition(".")[0] == "fleetstop":
                    yield f"{module}:{line}: loads {reached(origin, name, sources)} at once"


def cycles(sources: Sources) -> Iterator[str]:
    yield from circle(sources, lambda module: module)


def tangled_rooms(sources: Sources) -> Iterator[str]:
    """Core's own rooms (`fleetstop.core.saves`) stand in order too, each taken as one module."""
    yield from circle(sources, lambda module: ".".join(module.split(".")[:3]))


def circle(sources: Sources, part: Callable[[str], str]) -> Iterator[str]:
    module_of = {module.removesuffix(".__init__"): module for module in sources}
    graph: dict[str, set[str]] = {}
    for node, module in module_of.items():
        found = imports(module, ast.parse(sources[module]))
        targets = {reached(origin, name, sources) for _, origin, name in found}
        met = {part(each) for each in targets & module_of.keys()} - {part(node)}
        graph.setdefault(part(node), set()).update(met)
    graph.pop("fleetstop", None)  # it imports lazily, heavy_roof sees to it
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        yield "import cycle: " + " <- ".join(error.args[1])


def impurities(sources: Sources) -> Iterator[str]:
    for module, text in sources.items():
        if room_of(module) != "core":
            continue
        tree = ast.parse(text)
        for line, origin, name in imports(module, tree):
            if origin.partition(".")[0] not in CORE_MAY_IMPORT or name in NAMES_THAT_ACT:
                yield f"{module}:{line}: core is pure, it may not import {name or origin}"
        for node in ast.walk(tree):
            match node:
                case ast.AsyncFunctionDef() | ast.Await() | ast.AsyncFor() | ast.AsyncWith():
                    yield f"{module}:{node.lineno}: core is pure, it has no loop"
                case ast.Call(func=ast.Name(id=name)) if name in BUILTINS_THAT_ACT:
                    yield f"{module}:{node.lineno}: core is pure, it may not call {name}"
                case ast.Call(func=ast.Attribute(attr=name)) if name in NAMES_THAT_ACT:
                    yield f"{module}:{node.lineno}: core is pure, it may not call {name}"


def too_big(sources: Sources) -> Iterator[str]:
    for module, text in sources.items():
        if (lines := len(text.splitlines())) > LINES_PER_FILE:
            yield f"{module}: {lines} lines, more than one sitting ({LINES_PER_FILE})"
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > LINES_PER_FUNCTION:
                    yield f"{module}:{node.lineno}: {node.name} has {lines} lines, not one screen"


def swallowed_errors(sources: Sources) -> Iterator[str]:
    for module, text in sources.items():
        for node in ast.walk(ast.parse(text)):
            match node:
                case ast.ExceptHandler(body=[ast.Pass() | ast.Expr(ast.Constant())]):
                    yield f"{module}:{node.lineno}: an error is swallowed in silence"


RULES: tuple[Rule, ...] = (
    wrong_arrows,
    heavy_roof,
    cycles,
    tangled_rooms,
    impurities,
    too_big,
    swallowed_errors,
)


@pytest.fixture(scope="module")
def ours() -> Sources:
    return {
        ".".join(("fleetstop", *path.relative_to(PACKAGE).with_suffix("").parts)): path.read_text()
        for path in PACKAGE.rglob("*.py")
    }


@pytest.mark.parametrize("rule", RULES)
def test_the_house_stands(rule: Rule, ours: Sources) -> None:
    assert sorted(rule(ours)) == []


# Each rule is seen to fail: the text of one module, and what must be said about it.
BROKEN = [
    (wrong_arrows, "core.ladder", "import fleetstop.actions.stop", "core may not import actions"),
    (wrong_arrows, "core.ladder", "from ..api import Fleet", "core may not import api"),
    (wrong_arrows, "core.ladder", "from .. import events", "core may not import events"),
    (wrong_arrows, "core.ladder", "from fleetstop import Fleet", "Fleet comes from the roof"),
    (wrong_arrows, "errors", "from fleetstop.core import kernel", "errors may not import core"),
    (wrong_arrows, "events", "from fleetstop.ports import Shell", "never along a floor"),
    (wrong_arrows, "actions.stop", "from fleetstop import remote", "never along a floor"),
    (wrong_arrows, "actions.stop", "def f():\n    import fleetstop.lab", "stop:2: actions may"),
    (wrong_arrows, "view.live", "if TYPE_CHECKING:\n    from fleetstop.api import Fleet", ":2:"),
    (wrong_arrows, "history", "import_module('fleetstop.cli')", "history may not import cli"),
    (wrong_arrows, "cli.main", "from fleetstop.remote import ssh", "cli may not import remote"),
    (wrong_arrows, "__main__", "from fleetstop import api", "__main__ may not import api"),
    (
        wrong_arrows,
        "__init__",
        "def f():\n    from .cli import main",
        "the roof may not import cli",
    ),
    (wrong_arrows, "utils", "", "the room utils is on no floor"),
    (wrong_arrows, "api", "from fleetstop.helpers import x", "the room helpers is on no floor"),
    (wrong_arrows, "actions.stop", "import asyncssh", "only lab and remote may import asyncssh"),
    (wrong_arrows, "api", "from tenacity import retry", "only lab and remote may import tenacity"),
    (wrong_arrows, "cli.main", "from rich.table import Table", "only view may import rich"),
    (wrong_arrows, "view.live", "import click", "only cli may import click"),
    (wrong_arrows, "cli.main", "from ruamel.yaml import YAML", "only config may import ruamel"),
    (wrong_arrows, "api", "import pathspec", "only config may import pathspec"),
    (heavy_roof, "__init__", "from fleetstop.api import Fleet", "loads fleetstop.api at once"),
    (heavy_roof, "__init__", "from . import errors", "loads fleetstop.errors at once"),
    (impurities, "core.ladder", "import time", "it may not import time"),
    (impurities, "core.ladder", "from os import path", "it may not import path"),
    (impurities, "core.ladder", "import asyncio", "it may not import asyncio"),
    (impurities, "core.ladder", "import rich", "it may not import rich"),
    (impurities, "core.ladder", "from pathlib import Path", "it may not import Path"),
    (impurities, "core.ladder", "x = pathlib.Path('a')", "it may not call Path"),
    (impurities, "core.ladder", "x = datetime.now(UTC)", "it may not call now"),
    (impurities, "core.ladder", "x = open('/proc/stat')", "it may not call open"),
    (impurities, "core.ladder", "async def f(): ...", "it has no loop"),
    (too_big, "core.ladder", "\n" * 351, "351 lines, more than one sitting"),
    (too_big, "core.ladder", "def f():\n" + "    x = 1\n" * 60, "f has 61 lines"),
    (swallowed_errors, "api", "try:\n    f()\nexcept OSError:\n    pass", "api:3: an error"),
    (swallowed_errors, "api", "try:\n    f()\nexcept OSError:\n    ...", "api:3: an error"),
]


@pytest.mark.parametrize(("rule", "module", "text", "said"), BROKEN)
def test_a_broken_house_is_seen(rule: Rule, module: str, text: str, said: str) -> None:
    complaints = list(rule({f"fleetstop.{module}": text}))
    assert len(complaints) == 1
    assert said in complaints[0]


def test_a_cycle_is_seen_in_functions_and_relative_imports_too() -> None:
    sources = {
        "fleetstop.core.__init__": "",
        "fleetstop.core.process": "from fleetstop.core import verdict",
        "fleetstop.core.verdict": "from .kernel import Fact",
        "fleetstop.core.kernel": "def f():\n    from . import process",
    }
    [complaint] = cycles(sources)
    assert {"fleetstop.core.process", "fleetstop.core.kernel"} <= set(complaint.split())
    assert not list(cycles({**sources, "fleetstop.core.kernel": ""}))


def test_a_circle_of_rooms_is_seen_though_no_module_is_in_one() -> None:
    sources = {
        "fleetstop.core.kin.family": "from fleetstop.core.above.units import Unit",
        "fleetstop.core.kin.birth": "",
        "fleetstop.core.above.units": "",
        "fleetstop.core.above.ranks": "from fleetstop.core.kin import birth",
    }
    assert not list(cycles(sources))
    [complaint] = tangled_rooms(sources)
    assert {"fleetstop.core.kin", "fleetstop.core.above"} <= set(complaint.split())
    assert not list(tangled_rooms({**sources, "fleetstop.core.above.ranks": ""}))


def test_a_sound_house_is_left_alone() -> None:
    sources = {
        "fleetstop.__init__": "import importlib.metadata\ndef f():\n    from .api import Fleet",
        "fleetstop.__main__": "from fleetstop.cli import main",
        "fleetstop.api": "from fleetstop import __version__, actions, config, errors, lab, remote",
        "fleetstop.cli.__init__": "import click\ndef f():\n    from fleetstop.lab import demo",
        "fleetstop.config": "import fleetstop\nfrom pathlib import Path\nimport ruamel.yaml",
        "fleetstop.core.__init__": "from .ladder import Ladder",
        "fleetstop.core.ladder": "import re\nimport msgspec\nfrom ..errors import Refused\n"
        "from . import process\nfrom datetime import datetime\nre.compile('')\nprocess.open()",
        "fleetstop.core.process": "from pathlib import PurePosixPath",
        "fleetstop.remote.ssh": "import asyncssh, tenacity\nfrom fleetstop.events import Emit\n"
        "try:\n    f()\nexcept OSError:\n    g()",
    }
    assert [said for rule in RULES for said in rule(sources)] == []
