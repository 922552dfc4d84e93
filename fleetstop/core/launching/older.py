"""A start whose own words or variables name a checkpoint that is not the newest: it would lose what
was saved since. Starts nothing, and sees no disk."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from fleetstop.core import redact
from fleetstop.core.launching.recipe import Recipe
from fleetstop.core.launching.resumed import CHECKPOINT
from fleetstop.core.spelling import plain

# what stands around a path in a shell's text, or before it in --resume=PATH
_AROUND = re.compile(r"[\s'\"=,;|&()<>]+")
# where a shell stands and stood, which no program goes on from
_NOT_ASKED = frozenset({"PWD", "OLDPWD", "_"})
_OPTION = re.compile(r"--?[A-Za-z0-9][\w.-]*")


class Saves(Struct, frozen=True):
    """Paths: the `newest` complete checkpoint, None where none is seen, and all that are `older`,
    complete or not."""

    newest: str | None = None
    older: tuple[str, ...] = ()


class _Named(Struct, frozen=True):
    """`at`: the word's place; `option`: what stands before the path, `--resume` or `--resume=`."""

    at: int
    path: str
    option: str | None


class _Held(Struct, frozen=True):
    """By a variable; `alone`: it holds nothing else."""

    name: str
    path: str
    alone: bool


def named(made: Recipe, saves: Saves) -> tuple[str, ...]:
    """The paths there that the words or variables of this start name, as they are said once."""
    newest = (saves.newest,) if saves.newest is not None else ()
    there = (*saves.older, *newest)
    if made.added:
        return ()
    words, variables = _named(made, there), _held(made, there)
    return tuple(each.path for each in words) + tuple(each.path for each in variables)


def from_older(made: Recipe, saves: Saves) -> tuple[str, ...]:
    """Sentences. None where it goes on from the newest by the inventory's words, or names that."""
    newest = saves.newest
    if made.added or newest is None or _named(made, (newest,)) or _held(made, (newest,)):
        return ()
    told = []
    for one in _named(made, saves.older):
        argv, first = made.spec.argv, one.at
        first -= 1 if one.option is not None and not one.option.endswith("=") else 0
        words = redact.command(argv[first : one.at + 1]) if one.option else plain(one.path)
        way = f"; {_way(one.option)} in the inventory goes on from that" if one.option else ""
        told.append(f"it is started with {words}, though {plain(newest)} is newer{way}")
    for each in _held(made, saves.older):
        again = redact.command(("--env", f"{each.name}={newest}"))
        way = f"; {again} starts it from that" if each.alone else ""
        has = f"its variable {plain(each.name)} names {plain(each.path)}"
        told.append(f"{has}, though {plain(newest)} is newer{way}")
    return tuple(dict.fromkeys(told))


def _way(option: str) -> str:
    one = option.endswith("=")
    words = f"'{option}{CHECKPOINT}'" if one else f"{option}, '{CHECKPOINT}'"
    return f"`launch: {{resume: [{words}]}}`"


def _named(made: Recipe, saves: Iterable[str]) -> tuple[_Named, ...]:
    known, argv, found = tuple(saves), made.spec.argv, []
    for at, word in enumerate(argv):
        for piece, path in _paths(word, made.spec.cwd, known):
            option = _option(argv, at, piece) if path in known else None
            found.append(_Named(at, path, option))
    return tuple(found)


def _held(made: Recipe, saves: Iterable[str]) -> tuple[_Held, ...]:
    known = tuple(saves)
    return tuple(
        _Held(name, path, alone=piece == value and path in known)
        for name, value in made.spec.env.items()
        if name not in _NOT_ASKED
        for piece, path in _paths(value, made.spec.cwd, known)
    )


def _paths(text: str, cwd: str, known: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Those in it that are one of the known ones, or lie within one; as it is said, and whole."""
    for piece in dict.fromkeys((text, *_AROUND.split(text))):
        # a bare number or name may be anything
        if not {"/", "."} & set(piece):
            continue
        path = posixpath.normpath(posixpath.join(cwd, piece))
        if any(path == each or path.startswith(f"{each}/") for each in known):
            yield piece, path


def _option(argv: Sequence[str], at: int, piece: str) -> str | None:
    """None: it is not said in words of its own, and nothing can be put in their place."""
    before = argv[at - 1] if at else ""
    if argv[at] == piece:
        return before if _OPTION.fullmatch(before) else None
    head = argv[at].removesuffix(piece)
    return head if head.endswith("=") and _OPTION.fullmatch(head[:-1]) else None
