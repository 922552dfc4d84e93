"""The files someone named on this machine -> what is sent. Knows no destination and no container.

A file named by itself is sent whatever patterns say; in a directory everything that no pattern
leaves out, and whose name does not tell of secrets (.env). Each lands under its own last name; of
`DIR/.` the contents.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from fleetstop.config.ignoring import Ignore, SecretFiles, never_meant, pattern_problem
from fleetstop.core.releases.payload import IGNORE_FILE, File, Payload, assembled, some
from fleetstop.core.spelling import plain
from fleetstop.errors import BadUsage, DeployFailed

_CHUNK = 1024 * 1024
_MOST_FILES = 20_000
_DEEPEST = 100
_LARGEST_IGNORE_FILE = 1024 * 1024
_LEAVE_OUT = f"leave it out: a line in {IGNORE_FILE}, or deploy.ignore in the inventory"


def read_sources(
    words: Sequence[str],
    cwd: Path,
    *,
    ignore: Sequence[str] = (),
    checkpoints: str | None = None,
) -> Payload:
    """All that these words name, read once and hashed. Blocks: it reads every byte.

    `ignore` is deploy.ignore; `checkpoints` the job's own directory of them, whose like is left
    out. Raises BadUsage for a word that names nothing, DeployFailed for what cannot be sent.
    """
    walk = _Walk(ignore, checkpoints)
    for word in words:
        walk.add(word, cwd)
    found = [(_hashed(rel, path), str(path)) for rel, path in walk.found]
    sent = {rel for rel, _ in walk.found}  # one may be named by itself, and its directory too
    left_out, secret = ([e for e in each if e not in sent] for each in (walk.left_out, walk.secret))
    return assembled(found, left_out=left_out, secret=secret, empty=walk.empty)


def contents(payload: Payload, told: File) -> Iterator[bytes]:
    """The bytes of one file in pieces, read anew; raises DeployFailed, before the last piece is
    handed out, where they are not the ones that were hashed."""
    path, digest, size, held = Path(payload.origin[told.rel]), hashlib.sha256(), 0, b""
    for piece in _pieces(path):
        digest.update(piece)
        size += len(piece)
        if size > told.size:
            raise _changed(path)
        if held:
            yield held
        held = piece
    if digest.hexdigest() != told.sha256:
        raise _changed(path)
    if held:
        yield held


class _Walk:
    """Goes through what was named, and notes what it finds."""

    def __init__(self, ignore: Sequence[str], checkpoints: str | None) -> None:
        self.found: dict[tuple[str, Path], None] = {}
        self.left_out: list[str] = []
        self.secret: list[str] = []
        self.empty: list[str] = []
        self._noted = 0  # counts what was named twice twice
        self._never, self._configured = never_meant(checkpoints), Ignore(ignore)
        self._secret = SecretFiles()

    def add(self, word: str, cwd: Path) -> None:
        if not word or "\0" in word:
            raise BadUsage(f"{plain(word) or 'an empty word'} names no file")
        contents_only = word.rstrip("/").rpartition("/")[2] in (".", "..")
        whole = cwd / word
        # of a link that was named, its own name is the one to land under
        path = whole
        try:
            path = whole.resolve() if contents_only else whole.parent.resolve() / whole.name
            mode = path.stat().st_mode
        except (OSError, RuntimeError) as error:  # a circle of links is a RuntimeError up to 3.12
            where = "" if word.startswith("/") else f"paths count from {plain(str(cwd))}"
            raise BadUsage(_missing(word, path, error), hint=where) from error
        rel = "" if contents_only else path.name
        if not stat.S_ISDIR(mode):
            _must_be_a_file(path, mode)
            self._note(rel, path)
        elif rel or contents_only:
            self._directory(word, rel, path)
        else:
            raise BadUsage(f"{plain(word)} has no name to land under")

    def _directory(self, word: str, rel: str, top: Path) -> None:
        outer = (self._configured, _ignore_file(top.parent) if rel else Ignore(()))
        # a directory named by itself is meant, though a pattern has its name
        fronts = [f"{rel}/" if rel and not each.says(f"{rel}/") else "" for each in outer]
        known = [(each, front, "") for each, front in zip(outer, fronts, strict=True)]
        rules = _Rules(((self._never, "", ""), (self._secret, "", ""), *known))
        before = self._noted
        self._below(rel, "", top, top.resolve(), rules.with_file(top, ""))
        if self._noted == before and self.left_out:
            kept = [each for each in self.left_out if each.startswith(f"{rel}/" if rel else "")]
            raise DeployFailed(
                f"there is nothing to send in {plain(word)}: {some(kept)} left out",
                hint="what may hold secrets is sent if it is named itself" if self.secret else "",
            )
        if self._noted == before:
            raise DeployFailed(f"there is nothing to send in {plain(word)}: it is empty")

    def _below(self, rel: str, inner: str, here: Path, top: Path, rules: _Rules) -> None:
        if inner.count("/") > _DEEPEST:
            raise DeployFailed(f"{plain(str(here))} lies too deep", hint=_LEAVE_OUT)
        entries = _entries(here)
        for entry in entries:
            within = f"{inner}/{entry.name}" if inner else entry.name
            place = f"{rel}/{entry.name}" if rel else entry.name
            path = Path(entry.path)
            is_directory = entry.is_dir(follow_symlinks=False)
            if by := rules.left_out_by(f"{within}/" if is_directory else within):
                kept_back = [self.left_out, *([self.secret] if by is self._secret else [])]
                for each in kept_back:
                    each.append(f"{place}/" if is_directory else place)
            elif is_directory:
                self._below(place, within, path, top, rules.with_file(path, within))
            else:
                _must_be_inside(path, top)
                self._note(place, path)
        if not entries:
            self.empty.append(f"{rel}/")

    def _note(self, rel: str, path: Path) -> None:
        self._noted += 1
        self.found[rel, path] = None
        if len(self.found) > _MOST_FILES:
            raise DeployFailed(
                f"there are more than {_MOST_FILES} files in what was named",
                hint=_LEAVE_OUT.replace("leave it", "name less, or leave some"),
            )


class _Rules(Struct, frozen=True):
    """What holds in one directory; of all that speak, the last one counts.

    Each with what is put before a path seen from the directory that was named, and what is then
    taken off it: every file's patterns are seen from where that file lies.
    """

    every: tuple[tuple[Ignore, str, str], ...]

    def with_file(self, directory: Path, inner: str) -> _Rules:
        """With the directory's own .fleetstopignore, where there is one."""
        own = (_ignore_file(directory), "", f"{inner}/" if inner else "")
        return _Rules((*self.every, own))

    def left_out_by(self, within: str) -> Ignore | None:
        """Who says so; `within`: seen from the directory that was named."""
        for spec, before, off in self.every[::-1]:
            said = spec.says((before + within).removeprefix(off))
            if said is not None:
                return spec if said else None
        return None


def _ignore_file(directory: Path) -> Ignore:
    path = directory / IGNORE_FILE
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST_IGNORE_FILE + 1)
    except FileNotFoundError:
        return Ignore(())
    except OSError as error:
        raise DeployFailed(f"cannot read {plain(str(path))}: {error.strerror}") from error
    if len(content) > _LARGEST_IGNORE_FILE:
        raise DeployFailed(f"{plain(str(path))} is larger than 1 MiB")
    lines = content.decode("utf-8-sig", "surrogateescape").splitlines()
    for number, line in enumerate(lines, start=1):
        if line.strip() and not line.startswith("#") and pattern_problem(line):
            raise DeployFailed(f"{plain(str(path))}:{number}: {pattern_problem(line)}")
    return Ignore(lines)


def _entries(directory: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as every:
            return sorted(every, key=lambda entry: entry.name)
    except OSError as error:
        raise DeployFailed(
            f"cannot read {plain(str(directory))}: {error.strerror}", hint=_LEAVE_OUT
        ) from error


def _must_be_inside(path: Path, top: Path) -> None:
    """A regular file, or a link to one below the directory that was named."""
    try:
        seen = path.lstat()
        if not stat.S_ISLNK(seen.st_mode):
            return _must_be_a_file(path, seen.st_mode)
        real = path.resolve(strict=True)
        mode = real.stat().st_mode
    except (OSError, RuntimeError) as error:
        link = f", a link to {plain(os.readlink(path))}," if path.is_symlink() else ""
        raise DeployFailed(
            f"cannot read {plain(str(path))}{link or ':'} {_reason(error)}", hint=_LEAVE_OUT
        ) from error
    if not real.is_relative_to(top):
        raise DeployFailed(
            f"{plain(str(path))} is a link to {plain(str(real))}, outside what was named",
            hint=_LEAVE_OUT,
        )
    if stat.S_ISDIR(mode):
        raise DeployFailed(
            f"{plain(str(path))} is a link to the directory {plain(str(real))}; links to"
            " directories are not followed",
            hint=_LEAVE_OUT,
        )
    return _must_be_a_file(path, mode)


def _must_be_a_file(path: Path, mode: int) -> None:
    kinds = {
        stat.S_IFSOCK: "a socket",
        stat.S_IFIFO: "a pipe",
        stat.S_IFBLK: "a device",
        stat.S_IFCHR: "a device",
    }
    if not stat.S_ISREG(mode):
        kind = kinds.get(stat.S_IFMT(mode), "no file")
        raise DeployFailed(f"{plain(str(path))} is {kind}, no file to send", hint=_LEAVE_OUT)


def _missing(word: str, path: Path, error: Exception) -> str:
    if isinstance(error, FileNotFoundError) and path.is_symlink():
        return f"{plain(word)} is a link to {plain(os.readlink(path))}, which is not there"
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return f"{plain(word)}: there is no such file or directory here"
    return f"cannot read {plain(word)}: {_reason(error)}"


def _hashed(rel: str, path: Path) -> File:
    """Reads the file once; what it is before and after must be the same."""
    digest, size = hashlib.sha256(), 0
    before = _stat(path)
    for piece in _pieces(path):
        digest.update(piece)
        size += len(piece)
    after = _stat(path)
    if _marks(before) != _marks(after) or size != after.st_size:
        raise _changed(path)
    return File(rel, digest.hexdigest(), size, stat.S_IMODE(after.st_mode) & 0o777)


def _pieces(path: Path) -> Iterator[bytes]:
    try:
        # a pipe that took the file's place must not hang us
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(descriptor, "rb", buffering=0) as file:
            while piece := file.read(_CHUNK):
                yield piece
    except OSError as error:
        raise DeployFailed(
            f"cannot read {plain(str(path))}: {_reason(error)}", hint=_LEAVE_OUT
        ) from error


def _stat(path: Path) -> os.stat_result:
    try:
        return path.stat()
    except OSError as error:
        raise DeployFailed(f"cannot read {plain(str(path))}: {_reason(error)}") from error


def _marks(seen: os.stat_result) -> tuple[int, ...]:
    return seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_mode


def _changed(path: Path) -> DeployFailed:
    return DeployFailed(
        f"{plain(str(path))} was changed while it was read", hint="run the same command again"
    )


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or "its links lead in a circle"
