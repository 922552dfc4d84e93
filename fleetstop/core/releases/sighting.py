"""A job's code as one look shows it: the answer of boot.sh's `code`. Knows no process, judges none.

A file's dates may be anything (scp -p, rsync -t, tar and touch set them); its change of status is
the kernel's own: before that nobody can have written to it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping

from msgspec import Struct

from fleetstop.core.procfs import text


class Stamps(Struct, frozen=True):
    """Seconds since the epoch. `changed`: its date (mtime); `touched`: when its content, owner,
    mode, name or links last changed (ctime); `born`: when this very file was made, None unseen."""

    changed: float
    touched: float
    born: float | None = None

    def rewritten(self, began: float) -> float | None:
        """When it surely got another content or became another file, if after `began`. None: it
        may have got other rights, another name or a date that is not true."""
        if self.touched <= began:
            return None
        after = [at for at in (self.changed, self.born) if at is not None and at > began]
        return min((*after, self.touched)) if after else None


class Beside(Struct, frozen=True):
    """Every path is absolute, by its real name. `main`: the first of those asked that is a file;
    `links`: symbolic ones on the way to it, as the path asked leads through them. `states` and
    `beats` by base directory: state.json, and when its client was last heard."""

    now: float
    tick: int
    states: dict[str, bytes]
    beats: dict[str, float]
    asked: str | None = None
    main: str | None = None
    files: dict[str, Stamps] = {}
    links: dict[str, Stamps] = {}
    imports: dict[str, tuple[str, ...]] = {}

    def began(self, start: int, hz: int) -> float:
        """When a process of this start (clock ticks since boot) began, by the files' clock."""
        return self.now - (self.tick - start) / hz


def parse_code(data: bytes) -> Beside | None:
    """None for what is no whole answer."""
    fields, found, lists = iter(data.split(b"\0")), _Found(), b""
    try:
        for kind in fields:
            if kind == b"i":
                lists = next(fields)
                break
            found.take(kind, fields)
    except (StopIteration, ValueError, IndexError):
        return None
    if found.now is None or found.tick is None:
        return None
    return Beside(
        now=found.now,
        tick=found.tick,
        states=found.states,
        beats=found.beats,
        asked=found.asked,
        main=found.main,
        files=found.files,
        links=found.links,
        imports=_imports(lists, found.folder) if found.folder is not None else {},
    )


class _Found:
    def __init__(self) -> None:
        self.now: float | None = None
        self.tick: int | None = None
        self.asked: str | None = None
        self.main: str | None = None
        self.folder: str | None = None
        self.states: dict[str, bytes] = {}
        self.beats: dict[str, float] = {}
        self.files: dict[str, Stamps] = {}
        self.links: dict[str, Stamps] = {}

    def take(self, kind: bytes, fields: Iterator[bytes]) -> None:
        match kind:
            case b"n":
                # proc(5): field 22; the name in brackets may hold blanks
                self.tick = int(next(fields).rpartition(b")")[2].split()[19])
                self.now = float(next(fields))
            case b"s":
                base = text(next(fields))
                self.states[base] = next(fields)
            case b"b":
                base = text(next(fields))
                self.beats[base] = _stamps(next(fields)).changed
                next(fields)
            case b"q":
                self.links = {}  # another path is asked for; the way to the last one was none
            case b"l":
                path = text(next(fields))
                self.links[path] = _stamps(next(fields))
                next(fields)
            case b"p":
                self.asked, self.main = text(next(fields)), text(next(fields))
                self.files[self.main] = _stamps(next(fields))
                next(fields)
            case b"d":
                self.folder = text(next(fields)) or "/"
            case b"":
                return
            case _:
                # stamps come first, then the name
                name = text(next(fields))
                if self.folder is not None:
                    self.files.setdefault(_within(self.folder, name), _stamps(kind))


def _stamps(field: bytes) -> Stamps:
    changed, touched, born = field.split()
    made = float(born) if born not in (b"-", b"?", b"W") else 0.0
    return Stamps(float(changed), float(touched), made if made > 0 else None)


def _within(folder: str, name: str) -> str:
    return posixpath.join(folder, name.removeprefix("./"))


def _imports(lines: bytes, folder: str) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for line in text(lines).split("\n"):
        name, _, statement = line.partition(":")
        if statement:
            found.setdefault(_within(folder, name), []).append(statement)
    return {path: tuple(each) for path, each in found.items()}


_IMPORT = re.compile(r"(\s*)import\s+(.+)")
_FROM = re.compile(r"(\s*)from\s+(\.*)([\w.]*)\s+import\s+(.*)")
_NAME = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")


def imported(main: str, root: str, seen: Beside) -> dict[str, bool]:
    """The files seen that `main` reaches by import statements, itself not among them; False: only
    by one that may never be done. `root` is the first of its sys.path."""
    reached: dict[str, bool] = {}
    todo = [(main, True)]
    package = f"{posixpath.dirname(main)}/__init__.py"
    if root != posixpath.dirname(main) and package in seen.files:
        todo.append((package, True))
        reached[package] = True
    while todo:
        path, sure = todo.pop()
        for name, always in _reached(path, root, seen.imports.get(path, ()), seen.files):
            one = sure and always
            if name != main and (name not in reached or (one and not reached[name])):
                reached[name] = one
                todo.append((name, one))
    return reached


def _reached(
    path: str, root: str, statements: tuple[str, ...], files: Mapping[str, Stamps]
) -> Iterator[tuple[str, bool]]:
    for statement in statements:
        for name, base, always in _modules(statement.partition("#")[0], path, root):
            parts = name.split(".") if name else []
            for count in range(1, len(parts) + 1):
                stem = posixpath.join(base, *parts[:count])
                for each in (f"{stem}.py", f"{stem}/__init__.py"):
                    if each in files:
                        yield each, always


def _modules(statement: str, path: str, root: str) -> Iterator[tuple[str, str, bool]]:
    """Dotted name, the directory where it begins, and whether it is done whenever the file is."""
    if (told := _IMPORT.fullmatch(statement)) is not None:
        for part in told[2].split(","):
            if (name := _NAME.match(part.strip())) is not None:
                yield name[0], root, not told[1]
    elif (told := _FROM.fullmatch(statement)) is not None:
        base = root
        if told[2]:
            base = posixpath.dirname(path)
            for _ in told[2][1:]:
                base = posixpath.dirname(base)
        yield told[3], base, not told[1]
        for part in told[4].strip("() \\").split(","):
            if (name := _NAME.match(part.strip())) is not None:
                yield f"{told[3]}.{name[0]}".strip("."), base, not told[1]
