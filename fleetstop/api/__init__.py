"""The fleet from Python: the one place where files, SSH and actions are put together."""

from fleetstop.api.fleet import Fleet
from fleetstop.api.machine import log_fault
from fleetstop.api.past import Record, past_run, past_runs

__all__ = ["Fleet", "Record", "log_fault", "past_run", "past_runs"]
