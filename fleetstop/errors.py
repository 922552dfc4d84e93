"""Every failure fleetstop expects, as one tree; knows nothing else of the house.

FleetstopError                       exit 70
├── BadUsage                         exit 2   the command line is wrong
├── BadConfig                        exit 3   inventory or playbook is wrong
├── CouldNotLook                     exit 4   the truth could not be seen
│   ├── HostUnreachable                       no connection: network, time-out, sshd
│   │   ├── LoginRefused                      the server is there and said no
│   │   ├── CertificateRefused                a Proxmox API, and not the one that was meant
│   │   ├── HostKeyUnknown                    never seen this key
│   │   └── HostKeyChanged                    it is not the key we know
│   ├── PrivilegeMissing                      root is needed and was not given
│   ├── ToolMissing                           a program the inventory names is not there
│   ├── ContainerMissing                      no such container on this host
│   ├── ContainerFrozen                       entering it would hang for good
│   ├── ConnectionLost                        it was there, and went away
│   ├── FrameTimedOut                         a remote answer did not come in time
│   └── RemoteFailed                          a remote answer came, and is a failure
│       ├── NodeUnreachable                   a node of a cluster, from the one that was asked
│       ├── ContainerStopped                  it was entered, and does not run
│       └── LockTaken                         another run has taken this one's lock over
├── Refused                          exit 5   nothing was sent, on purpose
├── DeployFailed                     exit 7   new code failed its proof; the job was not touched
└── LabUnavailable                   exit 4   the practice fleet cannot stand here

An error says what and where; its `hint` says what to do next, with a command that exists.
"""

from __future__ import annotations

from typing import ClassVar


class FleetstopError(Exception):
    """Base of all; `exit_code` as in the README's table, `hint` may be empty."""

    exit_code: ClassVar[int] = 70

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class BadUsage(FleetstopError):
    exit_code = 2


class BadConfig(FleetstopError):
    """`message` is already `file:line: path: problem`, with a suggestion where one is near."""

    exit_code = 3


class CouldNotLook(FleetstopError):
    exit_code = 4


class HostUnreachable(CouldNotLook):
    pass


class LoginRefused(HostUnreachable):
    pass


class CertificateRefused(HostUnreachable):
    """Nothing was sent to it, the token least of all."""


class HostKeyUnknown(HostUnreachable):
    pass


class HostKeyChanged(HostUnreachable):
    pass


class PrivilegeMissing(CouldNotLook):
    pass


class ContainerMissing(CouldNotLook):
    pass


class ContainerFrozen(CouldNotLook):
    pass


class ConnectionLost(CouldNotLook):
    pass


class FrameTimedOut(CouldNotLook):
    pass


class RemoteFailed(CouldNotLook):
    pass


class NodeUnreachable(RemoteFailed):
    """The API answers; one node behind it does not."""


class ContainerStopped(RemoteFailed):
    """It was to be looked into, and does not run."""


class ToolMissing(CouldNotLook):
    """A program that the inventory names is not there: nothing is done on a guess."""


class LockTaken(RemoteFailed):
    """This run has sent something, and must not send any more."""


class Refused(FleetstopError):
    """`evidence`: what was seen, a line each (the trees that match, say)."""

    exit_code = 5

    def __init__(self, message: str, *, hint: str = "", evidence: tuple[str, ...] = ()) -> None:
        super().__init__(message, hint=hint)
        self.evidence = evidence


class DeployFailed(FleetstopError):
    """`evidence`: what was seen, a line each (what the interpreter said of each file, say)."""

    exit_code = 7

    def __init__(self, message: str, *, hint: str = "", evidence: tuple[str, ...] = ()) -> None:
        super().__init__(message, hint=hint)
        self.evidence = evidence


class LabUnavailable(FleetstopError):
    exit_code = 4
