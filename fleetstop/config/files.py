"""Where inventories and playbooks are looked for, and the reading of them. Knows no key in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fleetstop.config.inventory import read_inventory
from fleetstop.config.playbook import read_playbook
from fleetstop.config.spot import Spot, read_yaml
from fleetstop.core.inventory import Inventory
from fleetstop.core.playbook import Playbook
from fleetstop.core.spelling import did_you_mean, plain, shown
from fleetstop.errors import BadConfig

INVENTORY_VARIABLE = "FLEETSTOP_INVENTORY"

_LARGEST = 16 * 1024 * 1024
_PATTERN = "fleet*.yaml"
_DIRECTORY_HINT = f"of an inventory directory every {_PATTERN} is read"


def load_inventory(
    path: Path | None, env: Mapping[str, str], cwd: Path, user_dir: Path
) -> Inventory:
    """The first that there is: `path`, $FLEETSTOP_INVENTORY, cwd/inventory/, user_dir.

    `path` and the variable name a file or a directory, and must exist. Without any inventory it
    is empty: ad-hoc addresses need none. Raises BadConfig.
    """
    if path is not None:
        return _read_files(_named_files(path, cwd, "--inventory"), cwd)
    if env.get(INVENTORY_VARIABLE):
        named = Path(env[INVENTORY_VARIABLE])
        return _read_files(_named_files(named, cwd, f"${INVENTORY_VARIABLE}"), cwd)
    for directory in (cwd / "inventory", user_dir):
        if files := _fleet_files(directory):
            return _read_files(files, cwd)
    return Inventory()


def load_playbook(name_or_path: str, *, cwd: Path, dirs: Sequence[Path]) -> Playbook:
    """A playbook by its path (anything with a / or ending in .yaml), else by name in `dirs`."""
    if "/" in name_or_path or name_or_path.endswith((".yaml", ".yml")):
        path = cwd / _expanded(Path(name_or_path), "playbook")
        return read_playbook(path.stem, _read_file(path, cwd))
    for directory in dirs:
        path = directory / f"{name_or_path}.yaml"
        if name_or_path and "\0" not in name_or_path and _exists(path):
            return read_playbook(name_or_path, _read_file(path, cwd))
    known = list(playbook_files(dirs))
    places = ", ".join(_seen_from(cwd, each) for each in dirs)
    raise BadConfig(
        f"no playbook {shown(name_or_path)}{did_you_mean(name_or_path, known)}; looked in {places}",
        hint=f"playbooks there: {', '.join(plain(each) for each in known)}" if known else "",
    )


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
    for path in (path for each in dirs for path in _listed(each) if path.suffix == ".yaml"):
        files.setdefault(path.stem, path)
    return files


def stock_dir() -> Path:
    """The stock playbooks: inside the package in a wheel, beside it in a checkout."""
    package = Path(__file__).parent.parent
    inside = package / "playbooks"
    return inside if inside.is_dir() else package.parent / "playbooks"


def _named_files(path: Path, cwd: Path, by: str) -> list[Path]:
    path = cwd / _expanded(path, by)
    if not _exists(path):
        raise BadConfig(f"{by}: there is no {_seen_from(cwd, path)}", hint=_DIRECTORY_HINT)
    if not path.is_dir():
        return [path]
    files = _fleet_files(path)
    if not files:
        raise BadConfig(
            f"{by}: there is no {_PATTERN} in {_seen_from(cwd, path)}", hint=_DIRECTORY_HINT
        )
    return files


def _fleet_files(directory: Path) -> list[Path]:
    return [path for path in _listed(directory) if path.match(_PATTERN)]


def _listed(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise BadConfig(f"{plain(str(directory))}: {error.strerror}") from error


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a path"
        raise BadConfig(f"{plain(str(path))}: {reason}") from error


def _expanded(path: Path, by: str) -> Path:
    try:
        return path.expanduser()
    except RuntimeError as error:
        problem = "the home directory that ~ stands for is not known"
        raise BadConfig(f"{by}: {plain(str(path))}: {problem}") from error


def _read_files(files: Sequence[Path], cwd: Path) -> Inventory:
    roots = [_read_file(path, cwd) for path in files]
    return read_inventory(roots, lambda spot: (cwd / spot.file).parent)


def _read_file(path: Path, cwd: Path) -> Spot:
    file = _relative(cwd, path)
    try:
        with path.open("rb") as stream:
            content = stream.read(_LARGEST + 1)
    except FileNotFoundError as error:
        raise BadConfig(f"{plain(file)}: there is no such file") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a path"
        raise BadConfig(f"{plain(file)}: {reason}") from error
    if len(content) > _LARGEST:
        raise BadConfig(f"{plain(file)}: larger than {_LARGEST // 1024**2} MiB")
    try:
        return read_yaml(content.decode("utf-8-sig"), file)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise BadConfig(f"{plain(file)}:{line}: not UTF-8 text") from error


def _relative(cwd: Path, path: Path) -> str:
    return str(path.relative_to(cwd)) if path.is_relative_to(cwd) else str(path)


def _seen_from(cwd: Path, path: Path) -> str:
    return plain(_relative(cwd, path))
