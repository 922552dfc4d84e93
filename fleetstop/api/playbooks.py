"""Playbooks and schemas for who looks at them without stopping anything. Connects to nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fleetstop import config
from fleetstop.core.inventory import Inventory
from fleetstop.core.shelf import Shelved
from fleetstop.errors import BadConfig


def all_playbooks(inventory: Inventory) -> list[Shelved]:
    """Every playbook that can be named, the broken ones too, by name."""
    cwd = Path.cwd()
    dirs = config.playbook_dirs(inventory, cwd)
    # by path: a name like `x.y` would be looked for, this file is the one that was found
    files = sorted(config.playbook_files(dirs).values(), key=lambda path: path.stem)
    return [config.shelved(str(path), cwd=cwd, dirs=dirs) for path in files]


def one_playbook(inventory: Inventory, name: str) -> Shelved:
    """By name or path, what it extends resolved. Raises BadConfig for what is wrong in it."""
    cwd = Path.cwd()
    found = config.shelved(name, cwd=cwd, dirs=config.playbook_dirs(inventory, cwd))
    if found.problem is not None:
        raise BadConfig(found.problem, hint=found.hint)
    return found


def checked_playbooks(inventory: Inventory, files: Sequence[str]) -> list[Shelved]:
    """Each file, or name, with its first mistake; one that is not there is a mistake too."""
    return [_checked(inventory, each) for each in files]


def _checked(inventory: Inventory, name: str) -> Shelved:
    cwd = Path.cwd()
    try:
        return config.shelved(name, cwd=cwd, dirs=config.playbook_dirs(inventory, cwd))
    except BadConfig as error:
        return Shelved(name, name, False, problem=error.message, hint=error.hint)


def file_schema(kind: str) -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a `playbook` or of one `inventory` file."""
    return config.schema(kind)
