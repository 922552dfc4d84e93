"""New hosts and containers in an inventory's file, proved as `writing` proves a job. Knows no
cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fleetstop.config.adding import BY_HAND, added
from fleetstop.config.files import read_file, read_roots, relative
from fleetstop.config.writing import BOM, NEW_FILE, Change, content_of, roots_with
from fleetstop.core.adopting.stanza import Tree
from fleetstop.core.inventory import Inventory
from fleetstop.core.spelling import plain
from fleetstop.errors import BadConfig, Refused


def extended(
    files: Sequence[Path],
    cwd: Path,
    hosts: Mapping[str, Tree],
    containers: Mapping[str, Tree],
    new: Path = NEW_FILE,
) -> Change:
    """The file's text with these; `new`: the file to be made where there is none. Nothing is
    written. It is read back: what the inventory had before must be as it was. Raises Refused."""
    for each in files:
        if not each.is_file():
            raise Refused(f"{plain(relative(cwd, each))} is no plain file; nothing can be added")
    path = _file_for(files, cwd) if files else cwd / new
    shown = relative(cwd, path)
    before = content_of(path, shown) if files else None
    raw = before or b""
    bom = BOM if raw.startswith(BOM) else b""
    text = raw.removeprefix(BOM).decode("utf-8")
    for kind, entries in (("hosts", hosts), ("containers", containers)):
        for name, tree in entries.items():
            text = added(text, (kind, name), tree)
    after = bom + text.encode("utf-8")
    was = read_roots(roots_with(files, cwd, path, raw), cwd) if files else Inventory()
    try:
        found = read_roots(roots_with(files or (path,), cwd, path, after), cwd)
    except BadConfig as error:
        said = f"with these added the inventory would not be read: {error.message}"
        raise Refused(said, hint=BY_HAND) from error
    rest = Inventory(
        {name: each for name, each in found.hosts.items() if name not in hosts},
        {name: each for name, each in found.containers.items() if name not in containers},
        found.groups,
    )
    if rest != Inventory(was.hosts, was.containers, was.groups):
        raise Refused(
            f"{plain(shown)}: what stands there would be changed by an addition "
            "(an anchor that is used again, most likely)",
            hint=BY_HAND,
        )
    return Change(path, shown, before, after, found)


def _file_for(files: Sequence[Path], cwd: Path) -> Path:
    """The first that has hosts; else the first."""
    having = (each for each in files if "hosts" in read_file(each, cwd).entries())
    return next(having, files[0])
