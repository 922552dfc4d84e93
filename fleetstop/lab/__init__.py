"""The practice fleet: real sshd and real containers on one machine, with stand-ins for the rest."""

from fleetstop.lab.fleet import Lab, free_vmids
from fleetstop.lab.launch import DECOYS, How, Started
from fleetstop.lab.processes import ProcessId
from fleetstop.lab.requirements import missing_parts

__all__ = ["DECOYS", "How", "Lab", "ProcessId", "Started", "free_vmids", "missing_parts"]
