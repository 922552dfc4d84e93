"""The fleet from Python: the one place where files, SSH and actions are put together."""

from fleetstop.api.fleet import Fleet
from fleetstop.api.machine import log_fault

__all__ = ["Fleet", "log_fault"]
