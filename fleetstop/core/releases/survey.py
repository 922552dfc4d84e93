"""Where files are to go, as the job's own Python saw it, and whether they can; sends nothing."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec
from msgspec import Struct

from fleetstop.core.releases.destination import below
from fleetstop.core.releases.payload import File
from fleetstop.core.spelling import plain

_BLOCK = 4096
_LINKED_FROM = 8 << 20  # as survey.py says it: what is larger is linked and takes no room
T = TypeVar("T")


class There(Struct, frozen=True):
    """What lies at one destination now, links followed; `kind` None: nothing, else file, dir or
    other. `sha256` only where the size is that of the new file. `unmapped`: its owner has no
    number in this container. `mtime` by the container's clock."""

    path: str
    kind: str | None
    real: str
    problem: str | None = None
    size: int | None = None
    sha256: str | None = None
    mode: int | None = None
    uid: int | None = None
    gid: int | None = None
    mtime: float | None = None
    unmapped: bool = False


class Directory(Struct, frozen=True):
    """A directory that is to be written to. `free` bytes and `inodes` None: nobody counts them."""

    path: str
    exists: bool
    real: str
    writable: bool = False
    read_only: bool = False
    free: int | None = None
    inodes: int | None = None
    unmapped: bool = False
    uid: int | None = None
    gid: int | None = None


class Survey(Struct, frozen=True):
    """`around`: the directories, there already, next to which each file lands. `uid`: as whom we
    look. `unpacks`: it takes files with a question."""

    python: str
    tar: bool
    uid: int
    dest: Directory
    around: tuple[Directory, ...]
    files: tuple[There, ...]
    unpacks: bool = False


class Proof(Struct, frozen=True):
    """`wrong`: path and why it is not what was sent. `broken`: what the interpreter said of each
    file that it would not take. `compiled`: how many it was asked about. `unwritten`: a path and
    why it could not be written there; then nothing was proved."""

    wrong: tuple[tuple[str, str], ...]
    broken: tuple[str, ...]
    compiled: int
    unwritten: tuple[str, str] | None = None


class Obstacle(Struct, frozen=True):
    """Why nothing can be put there: a sentence, and what to do about it."""

    sentence: str
    hint: str = ""


def answer(data: bytes, kind: type[T]) -> T | None:
    """What survey.py printed; None where it is something else. A name may hold lone bytes."""
    try:
        return msgspec.convert(json.loads(data), kind)
    except (ValueError, msgspec.ValidationError):
        return None


def unchanged(file: File, there: There) -> bool:
    return there.kind == "file" and (there.size, there.sha256) == (file.size, file.sha256)


def obstacle(survey: Survey, files: Sequence[File]) -> Obstacle | None:
    """What keeps these files from being put there; None: nothing that can be seen."""
    if not survey.dest.exists:
        said = f"{plain(survey.dest.path)} does not exist there, or is no directory"
        return Obstacle(said, "make it, or name another with --to")
    for place in (survey.dest, *survey.around):
        if found := _unwritable(place, survey.uid):
            return found
    for there in survey.files:
        if found := _in_the_way(there) or _elsewhere(survey.dest, there):
            return found
    return _too_full(survey, files)


def _unwritable(place: Directory, uid: int) -> Obstacle | None:
    name = plain(place.path)
    if place.read_only:
        return Obstacle(f"{name} is on a file system that is mounted read-only")
    if place.unmapped and not place.writable:
        said = f"{name} belongs to somebody who has no number in this unprivileged container"
        hint = (
            f"its owner shows as {place.uid}, and not even root in the container may write there; "
            "on the host: chown it to the container's range, which mostly begins at 100000"
        )
        return Obstacle(said, hint)
    if not place.writable:
        return Obstacle(f"{name} cannot be written to by uid {uid}")
    return None


def _in_the_way(there: There) -> Obstacle | None:
    name = plain(there.path)
    if there.problem is not None:
        return Obstacle(f"{name} could not be looked at: {there.problem}")
    if there.kind not in (None, "file"):
        what = "a directory" if there.kind == "dir" else "no plain file"
        return Obstacle(f"{name} is {what} there, and a file is to come in its place")
    if there.unmapped:
        said = f"the owner of {name} has no number in this unprivileged container"
        hint = "a new file could not be given to them; on the host: chown the old one to root there"
        return Obstacle(said, hint)
    return None


def _elsewhere(dest: Directory, there: There) -> Obstacle | None:
    """Swapped in by rename and put back from what is kept is only what lies in one place."""
    if below(there.real, dest.real) is not None:
        return None
    name, where = plain(there.path), plain(posixpath.dirname(there.real))
    said = f"{name} lies outside of {plain(dest.path)}: a link leads to {plain(there.real)}"
    return Obstacle(said, f"send that by itself, with --to {where}; or leave it out: deploy.ignore")


def _too_full(survey: Survey, files: Sequence[File]) -> Obstacle | None:
    """Twice what changes: once as the stage, once beside the destination, before anything is
    swapped. What does not change is copied into the stage, or linked where it is large."""
    pairs = list(zip(files, survey.files, strict=True))
    new = [file for file, there in pairs if not unchanged(file, there)]
    kept = [file for file, there in pairs if unchanged(file, there) and file.size < _LINKED_FROM]
    needed, dest = 2 * blocks(new) + blocks(kept), survey.dest
    if dest.free is not None and needed > dest.free:
        room = f"{amount(needed)} are needed and {amount(dest.free)} are free"
        said = f"the file system of {plain(dest.path)} is too full: {room}"
        return Obstacle(
            said, "make room there: the new files take it twice until they are swapped in"
        )
    number = 2 * len(new) + len(kept) + 16
    if dest.inodes is not None and number > dest.inodes:
        said = f"the file system of {plain(dest.path)} has room for {dest.inodes} files more"
        return Obstacle(f"{said}, and {number} are needed", "remove files there, or send fewer")
    return None


def blocks(files: Iterable[File]) -> int:
    """The room they take on a disk, bytes."""
    return sum(-(-each.size // _BLOCK) * _BLOCK for each in files)


def amount(size: float) -> str:
    """Bytes for people: 512 bytes, 3.4 KiB, 200 MiB."""
    if size < 1024:
        return f"{size:.0f} bytes"
    for unit in ("KiB", "MiB", "GiB"):
        size /= 1024
        if size < 1000:
            return _short(size, unit)
    return _short(size / 1024, "TiB")


def _short(size: float, unit: str) -> str:
    return f"{size:.1f} {unit}" if size < 10 else f"{size:.0f} {unit}"
