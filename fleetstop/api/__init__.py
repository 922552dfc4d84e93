"""The fleet from Python: the one place where files, SSH and actions are put together."""

from fleetstop.api.adopting import Adopted
from fleetstop.api.discovering import Discovered
from fleetstop.api.fleet import Fleet
from fleetstop.api.machine import log_fault
from fleetstop.api.past import Record, past_run, past_runs
from fleetstop.api.playbooks import all_playbooks, checked_playbooks, file_schema, one_playbook

__all__ = [
    "Adopted",
    "Discovered",
    "Fleet",
    "Record",
    "all_playbooks",
    "checked_playbooks",
    "file_schema",
    "log_fault",
    "one_playbook",
    "past_run",
    "past_runs",
]
