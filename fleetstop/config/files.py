"""Where inventories are looked for, and the reading of any file. Knows no key in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from fleetstop.config.inventory import read_inventory
from fleetstop.config.spot import Spot, read_yaml
from fleetstop.core.inventory import Inventory
from fleetstop.core.spelling import plain
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
    files = inventory_files(path, env, cwd, user_dir)
    return _read_files(files, cwd) if files else Inventory()


def inventory_files(
    path: Path | None, env: Mapping[str, str], cwd: Path, user_dir: Path
) -> tuple[Path, ...]:
    """The files of the inventory that `load_inventory` reads; none where there is none."""
    if path is not None:
        return tuple(_named_files(path, cwd, "--inventory"))
    if env.get(INVENTORY_VARIABLE):
        named = Path(env[INVENTORY_VARIABLE])
        return tuple(_named_files(named, cwd, f"${INVENTORY_VARIABLE}"))
    for directory in (cwd / "inventory", user_dir):
        if files := _fleet_files(directory):
            return tuple(files)
    return ()


def _named_files(path: Path, cwd: Path, by: str) -> list[Path]:
    path = cwd / expanded(path, by)
    if not exists(path):
        raise BadConfig(f"{by}: there is no {seen_from(cwd, path)}", hint=_DIRECTORY_HINT)
    if not path.is_dir():
        return [path]
    files = _fleet_files(path)
    if not files:
        raise BadConfig(
            f"{by}: there is no {_PATTERN} in {seen_from(cwd, path)}", hint=_DIRECTORY_HINT
        )
    return files


def _fleet_files(directory: Path) -> list[Path]:
    return [path for path in in_directory(directory) if path.match(_PATTERN)]


def in_directory(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise BadConfig(f"{plain(str(directory))}: {error.strerror}") from error


def exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a path"
        raise BadConfig(f"{plain(str(path))}: {reason}") from error


def expanded(path: Path, by: str) -> Path:
    try:
        return path.expanduser()
    except RuntimeError as error:
        problem = "the home directory that ~ stands for is not known"
        raise BadConfig(f"{by}: {plain(str(path))}: {problem}") from error


def _read_files(files: Sequence[Path], cwd: Path) -> Inventory:
    return read_roots([read_file(path, cwd) for path in files], cwd)


def read_roots(roots: Sequence[Spot], cwd: Path) -> Inventory:
    return read_inventory(roots, lambda spot: (cwd / spot.file).parent)


def read_file(path: Path, cwd: Path) -> Spot:
    file = relative(cwd, path)
    try:
        if path.is_fifo() and not path.is_relative_to("/dev"):  # /dev/fd: what a shell substitutes
            raise BadConfig(f"{plain(file)}: is a pipe, no file")
        with path.open("rb") as stream:
            content = stream.read(_LARGEST + 1)
    except FileNotFoundError as error:
        raise BadConfig(f"{plain(file)}: there is no such file") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a path"
        raise BadConfig(f"{plain(file)}: {reason}") from error
    if len(content) > _LARGEST:
        raise BadConfig(f"{plain(file)}: larger than {_LARGEST // 1024**2} MiB")
    return read_bytes(content, file)


def read_bytes(content: bytes, file: str) -> Spot:
    """`file` is how messages name it."""
    try:
        return read_yaml(content.decode("utf-8-sig"), file)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise BadConfig(f"{plain(file)}:{line}: not UTF-8 text") from error


def relative(cwd: Path, path: Path) -> str:
    return str(path.relative_to(cwd)) if path.is_relative_to(cwd) else str(path)


def seen_from(cwd: Path, path: Path) -> str:
    return plain(relative(cwd, path))
