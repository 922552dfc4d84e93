"""YAML files -> inventory and playbooks, one more job or place in a file. The only door to YAML.

Every error is a BadConfig: `file:line: path: problem, did you mean 'x'?`. A file is named as it
lies seen from the working directory.
"""

from fleetstop.config.extending import extended
from fleetstop.config.files import INVENTORY_VARIABLE, inventory_files, load_inventory
from fleetstop.config.schema import SCHEMAS, schema
from fleetstop.config.shelf import (
    load_playbook,
    playbook_dirs,
    playbook_files,
    shelved,
    stock_dir,
)
from fleetstop.config.writing import Change, change, write

__all__ = [
    "INVENTORY_VARIABLE",
    "SCHEMAS",
    "Change",
    "change",
    "extended",
    "inventory_files",
    "load_inventory",
    "load_playbook",
    "playbook_dirs",
    "playbook_files",
    "schema",
    "shelved",
    "stock_dir",
    "write",
]
