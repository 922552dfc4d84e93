"""The fleet from Python: the one place where files, SSH and actions are put together."""

from fleetstop.api.fleet import Fleet
from fleetstop.api.machine import log_fault
from fleetstop.api.playbooks import all_playbooks, checked_playbooks, file_schema, one_playbook

__all__ = [
    "Fleet",
    "all_playbooks",
    "checked_playbooks",
    "file_schema",
    "log_fault",
    "one_playbook",
]
