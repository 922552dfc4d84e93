"""YAML files -> inventory and playbooks. The only door to YAML.

Every error is a BadConfig: `file:line: path: problem, did you mean 'x'?`. A file is named as it
lies seen from the working directory.
"""

from fleetstop.config.files import (
    INVENTORY_VARIABLE,
    load_inventory,
    load_playbook,
    playbook_dirs,
    playbook_files,
    stock_dir,
)

__all__ = [
    "INVENTORY_VARIABLE",
    "load_inventory",
    "load_playbook",
    "playbook_dirs",
    "playbook_files",
    "stock_dir",
]
