"""One more job in an inventory's file: the new text proved before it is written, then by rename."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from fleetstop.config.adding import BY_HAND, added
from fleetstop.config.files import read_bytes, read_file, read_roots, relative
from fleetstop.config.spot import Spot
from fleetstop.core.adopting.placing import Placing
from fleetstop.core.adopting.stanza import Stanza, Tree
from fleetstop.core.inventory import Container, Host, Inventory, Job
from fleetstop.core.spelling import plain
from fleetstop.errors import BadConfig, Refused

BOM = b"\xef\xbb\xbf"
NEW_FILE = Path("inventory") / "fleet.yaml"


class Change(Struct, frozen=True):
    """A file's text before and after; `before` None: it is not there yet. `shown`: its path as
    messages name it."""

    path: Path
    shown: str
    before: bytes | None
    after: bytes
    inventory: Inventory


def change(files: Sequence[Path], cwd: Path, placing: Placing, stanza: Stanza) -> Change:
    """Where the stanza goes, and the whole file with it. Nothing is written.

    It is read back: the inventory must be what it was, and this job. Raises Refused where a file
    is written in a way that this cannot be added to.
    """
    for each in files:
        if not each.is_file():  # a pipe has been read, and is empty now
            raise Refused(f"{plain(relative(cwd, each))} is no plain file; nothing can be added")
    path = _file_for(files, cwd, placing) if files else cwd / NEW_FILE
    shown = relative(cwd, path)
    before = content_of(path, shown) if files else None
    raw = before or b""
    bom = BOM if raw.startswith(BOM) else b""
    text = raw.removeprefix(BOM).decode("utf-8")
    for keys, tree in _entries(placing, stanza):
        text = added(text, keys, tree)
    after = bom + text.encode("utf-8")
    was = read_roots(roots_with(files, cwd, path, raw), cwd) if files else Inventory()
    return Change(
        path, shown, before, after, _proved(was, files or (path,), cwd, path, after, placing)
    )


def _entries(placing: Placing, stanza: Stanza) -> list[tuple[tuple[str, ...], Tree]]:
    entries: list[tuple[tuple[str, ...], Tree]] = []
    new = placing.new
    if placing.host in new and placing.kind == "containers":
        entries.append((("hosts", placing.host), new[placing.host]))
    if placing.place in new:
        tree = {**new[placing.place], "jobs": {placing.job: stanza.tree()}}
        return [*entries, ((placing.kind, placing.place), tree)]
    return [*entries, (placing.path, stanza.tree())]


def _file_for(files: Sequence[Path], cwd: Path, placing: Placing) -> Path:
    """The file that has the place; of a new container that which has its host; else the first."""
    for kind, name in ((placing.kind, placing.place), ("hosts", placing.host)):
        for path in files:
            root = read_file(path, cwd).entries()
            if kind in root and name in root[kind].entries():
                return path
    return files[0]


def content_of(path: Path, shown: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadConfig(f"{plain(shown)}: {error.strerror}") from error


def _proved(
    was: Inventory,
    files: Sequence[Path],
    cwd: Path,
    path: Path,
    after: bytes,
    placing: Placing,
) -> Inventory:
    """The inventory with the new text, which must be the old one and this job."""
    try:
        found = read_roots(roots_with(files, cwd, path, after), cwd)
    except BadConfig as error:
        said = f"with the job added the inventory would not be read: {error.message}"
        raise Refused(said, hint=BY_HAND) from error
    if _without(found, placing) != _without(was, placing):
        raise Refused(
            f"{plain(relative(cwd, path))}: what stands there would be changed by an addition "
            "(an anchor that is used again, most likely)",
            hint=BY_HAND,
        )
    return found


def roots_with(files: Sequence[Path], cwd: Path, path: Path, after: bytes) -> list[Spot]:
    return [
        read_bytes(after, relative(cwd, each)) if each == path else read_file(each, cwd)
        for each in files
    ]


def _without(inventory: Inventory, placing: Placing) -> Inventory:
    """The same without this job, and without the places that are new with it."""

    def jobs(name: str, every: tuple[Job, ...]) -> tuple[Job, ...]:
        same = name == placing.place
        return tuple(each for each in every if not (same and each.name == placing.job))

    hosts: dict[str, Host] = {
        name: msgspec.structs.replace(each, jobs=jobs(name, each.jobs))
        for name, each in inventory.hosts.items()
        if name not in placing.new
    }
    containers: dict[str, Container] = {
        name: msgspec.structs.replace(each, jobs=jobs(name, each.jobs))
        for name, each in inventory.containers.items()
        if name not in placing.new
    }
    return Inventory(hosts, containers, inventory.groups)


def write(made: Change) -> None:
    """By rename, with the mode and owner it had. Raises Refused where the file is another by now,
    BadConfig where it cannot be written; then all is as it was."""
    path = made.path.resolve() if made.before is not None else made.path
    now = _now(path)
    if now != made.before:
        raise Refused(
            f"{plain(made.shown)} has been changed meanwhile; nothing was written",
            hint="the same command again looks at it anew",
        )
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _put(temporary, made.after, path if made.before is not None else None)
        # nobody is kept from the file between this look and the rename: the moment is short
        if _now(path) != made.before:
            raise Refused(f"{plain(made.shown)} has been changed meanwhile; nothing was written")
        temporary.rename(path)
        _settle(path.parent)
    except OSError as error:
        raise BadConfig(f"{plain(made.shown)}: {error.strerror}; nothing was written") from error
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()


def _now(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadConfig(f"{plain(str(path))}: {error.strerror}") from error


def _put(temporary: Path, content: bytes, like: Path | None) -> None:
    with temporary.open("xb") as file:
        if like is not None:
            was = like.stat()
            if (was.st_uid, was.st_gid) != (os.geteuid(), os.getegid()):
                os.fchown(file.fileno(), was.st_uid, was.st_gid)
            os.fchmod(file.fileno(), stat.S_IMODE(was.st_mode))
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _settle(directory: Path) -> None:
    """The rename itself is on disk."""
    number = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
