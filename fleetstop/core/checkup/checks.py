"""The closed set of checks, what a check may say, and the exit code; the JSON contract of `doctor`.

Names are read by scripts: they may be extended, never renamed.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from fleetstop.core.inventory import Host

Name = Literal[
    # a host
    "reachable",
    "host_key",
    "login",
    "root",
    "pct",
    "tools",
    "nvidia_smi",
    "clock",
    "kernel_log",
    # a container
    "container",
    "entered",
    "lock",
    # a job
    "job",
    "stops",
    "log",
    "checkpoints",
    # a bug of ours
    "fault",
]
Kind = Literal["host", "container", "job"]
_NO_WAY: frozenset[Name] = frozenset({"reachable", "host_key", "login"})
_BLIND, _FAULT = 4, 70


class Check(Struct, frozen=True):
    """`ok` None: could not be seen. `fix`: a command to type; None: none is known or needed."""

    check: Name
    ok: bool | None
    says: str
    fix: str | None = None


class Checked(Struct, frozen=True):
    """One host, container or job, with its checks in the order in which they were made."""

    place: str
    kind: Kind
    host: str
    vmid: int | None = None
    job: str | None = None
    checks: tuple[Check, ...] = ()

    @property
    def problems(self) -> int:
        return sum(each.ok is False for each in self.checks)

    @property
    def unseen(self) -> int:
        return sum(each.ok is None for each in self.checks)


class Checkup(Struct, frozen=True, tag_field="event", tag="checkup"):
    """What one `doctor` found. A problem is a finding and no failure: 0. 4: something could not be
    looked at, an unreachable host above all; 70: a fault in fleetstop."""

    exit_code: int
    places: tuple[Checked, ...]
    schema: int = 1


def checkup(places: Sequence[Checked]) -> Checkup:
    every = [check for each in places for check in each.checks]
    blind = any(each.ok is None or (each.check in _NO_WAY and not each.ok) for each in every)
    fault = any(each.check == "fault" for each in every)
    return Checkup(_FAULT if fault else _BLIND if blind else 0, tuple(places))


def on_host(host: Host, *words: str) -> str:
    """A command line that runs these words there as root."""
    return told_to(host, shlex.join(words))


def told_to(host: Host, text: str) -> str:
    """The same for shell text, whose first command is run as root."""
    user, at, _ = host.ssh.rpartition("@")
    sudo = "sudo " if at and user != "root" else ""
    way = ["ssh", *(("-J", host.jump) if host.jump else ())]
    way += ["-p", str(host.port)] if host.port else []
    way += ["-i", host.identity] if host.identity else []
    # ssh hands one text to the far end's shell
    return shlex.join([*way, host.ssh, sudo + text])


def at_place(host: Host, vmid: int | None, *words: str) -> str:
    """The same in a container; on the host itself without one."""
    return on_host(host, *(() if vmid is None else (host.pct, "exec", str(vmid), "--")), *words)
