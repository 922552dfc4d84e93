"""Where playbooks are looked for, what they extend, and what there is. Knows no key in them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fleetstop.config.files import exists, expanded, in_directory, read_file, seen_from
from fleetstop.config.nodes import misplaced
from fleetstop.config.playbook import extended, read_playbook
from fleetstop.config.spot import Spot
from fleetstop.core.inventory import Inventory
from fleetstop.core.playbook import Playbook
from fleetstop.core.shelf import Shelved, purpose_of
from fleetstop.core.spelling import and_then, did_you_mean, plain, shown
from fleetstop.errors import BadConfig

_OWN_NAME = "a name means the nearest file of that name; to build on another, rename this file"
_PURPOSE_WITHIN = 4096


def load_playbook(name_or_path: str, *, cwd: Path, dirs: Sequence[Path]) -> Playbook:
    """A playbook by its path (anything with a / or ending in .yaml), else by name in `dirs`,
    on top of what it extends. Raises BadConfig."""
    path = _found(name_or_path, cwd, cwd, dirs)
    root = read_file(path, cwd)
    return read_playbook(path.stem, root, _parents(path, root, cwd, dirs))


def shelved(name_or_path: str, *, cwd: Path, dirs: Sequence[Path]) -> Shelved:
    """The same as a value, with what is wrong in it. Raises BadConfig if there is no such file."""
    path = _found(name_or_path, cwd, cwd, dirs)
    source = seen_from(cwd, path)
    stock = path.parent == stock_dir()
    try:
        root = read_file(path, cwd)
        playbook = read_playbook(path.stem, root, _parents(path, root, cwd, dirs))
    except BadConfig as error:
        return Shelved(path.stem, source, stock, problem=error.message, hint=error.hint)
    return Shelved(path.stem, source, stock, _purpose(path), playbook)


def playbook_dirs(inventory: Inventory, cwd: Path) -> tuple[Path, ...]:
    """Where playbooks are looked for by name: ./playbooks, beside the inventory, the stock."""
    dirs = [cwd / "playbooks"]
    for source in inventory.sources:
        directory = (cwd / source).parent
        dirs += [directory / "playbooks", directory.parent / "playbooks"]
    return tuple(dict.fromkeys((*dirs, stock_dir())))


def playbook_files(dirs: Sequence[Path]) -> dict[str, Path]:
    """Every playbook that can be loaded by name; the first directory that has it wins."""
    files: dict[str, Path] = {}
    for path in (path for each in dirs for path in in_directory(each) if path.suffix == ".yaml"):
        files.setdefault(path.stem, path)
    return files


def stock_dir() -> Path:
    """The stock playbooks: inside the package in a wheel, beside it in a checkout."""
    package = Path(__file__).parent.parent
    inside = package / "playbooks"
    return inside if inside.is_dir() else package.parent / "playbooks"


def _found(name_or_path: str, beside: Path, cwd: Path, dirs: Sequence[Path]) -> Path:
    """The file meant; a relative path counts from `beside`. A path need not be there."""
    if "/" in name_or_path or name_or_path.endswith((".yaml", ".yml")):
        return beside / expanded(Path(name_or_path), "playbook")
    for directory in dirs:
        path = directory / f"{name_or_path}.yaml"
        if name_or_path and "\0" not in name_or_path and exists(path):
            return path
    known = list(playbook_files(dirs))
    places = ", ".join(seen_from(cwd, each) for each in dirs)
    raise BadConfig(
        f"no playbook {shown(name_or_path)}"
        + and_then(did_you_mean(name_or_path, known), f"looked in {places}"),
        hint=f"playbooks there: {', '.join(plain(each) for each in known)}" if known else "",
    )


def _parents(path: Path, root: Spot, cwd: Path, dirs: Sequence[Path]) -> list[Spot]:
    """What a file extends, and what that extends, nearest first."""
    chain = [root]
    known = {path.resolve(): root.file}
    while (more := extended(chain[-1])) is not None:
        spot, word = more
        path = _parent(spot, word, path, cwd, dirs)
        if path.resolve() in known:
            raise _cycle(spot, [*known.values(), known[path.resolve()]])
        chain.append(read_file(path, cwd))
        known[path.resolve()] = chain[-1].file
    return chain[1:]


def _parent(spot: Spot, word: str, child: Path, cwd: Path, dirs: Sequence[Path]) -> Path:
    try:
        path = _found(word, child.parent, cwd, dirs)
    except BadConfig as error:
        raise misplaced(spot.file, spot.line, spot.path, error.message, error.hint) from error
    if not exists(path):
        raise spot.wrong(f"there is no {seen_from(cwd, path)}")
    return path


def _cycle(spot: Spot, files: Sequence[str]) -> BadConfig:
    names = [plain(each) for each in files[files.index(files[-1]) :]]
    if len(names) == 2:
        return misplaced(spot.file, spot.line, spot.path, "it extends itself", _OWN_NAME)
    return spot.wrong(f"playbooks extend each other: {' > '.join(names)}")


def _purpose(path: Path) -> str:
    with path.open(encoding="utf-8-sig", errors="replace") as stream:
        return purpose_of(stream.read(_PURPOSE_WITHIN), path.name)
