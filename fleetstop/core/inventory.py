"""What the fleet is: hosts, containers, jobs, groups. Knows no file and no connection."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from graphlib import CycleError, TopologicalSorter
from typing import Literal

from msgspec import Struct

from fleetstop.core.spelling import shown

# What a Proxmox guest's number may be (pve-common, JSONSchema.pm: pve-vmid).
VMID_LEAST, VMID_MOST = 100, 999_999_999
# The ways to recognise a job; a match sets exactly one, and may add `all: true`.
MATCH_KEYS = ("script", "module", "exe", "pgrep", "pid", "pidfile", "unit", "tmux", "gpu")

NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9_.-]*"
_NAME = re.compile(NAME_PATTERN)
FINGERPRINT_PATTERN = r"[0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){31}"
# tmux(1) makes _ of . and :, and reads $ @ % = + ! ~ { in front as something else
SESSION_PATTERN = r"[A-Za-z0-9][A-Za-z0-9_-]*"


class Match(Struct, frozen=True):
    """How a job's process is recognised; exactly one key is set.

    `pgrep` is an ERE for the container's own `pgrep -f`; `pid` is the number inside the
    container; `module` is what follows `-m`; `exe` a binary's name; `tmux` a session of the
    container's root, in whose panes the job is what no shell or wrapper is.
    """

    script: str | None = None
    module: str | None = None
    exe: str | None = None
    pgrep: str | None = None
    pid: int | None = None
    pidfile: str | None = None
    unit: str | None = None
    tmux: str | None = None
    gpu: bool = False
    all: bool = False


class Launcher(Struct, frozen=True):
    """What carries a trainer that we launch. `session`: the tmux session's name; None: the job's
    own, or one made of its name."""

    kind: Literal["setsid", "tmux", "systemd"] = "setsid"
    session: str | None = None


class Launch(Struct, frozen=True):
    run: tuple[str, ...] = ()
    cwd: str | None = None
    env: dict[str, str] = {}
    user: str | None = None
    resume: tuple[str, ...] = ()
    launcher: Launcher = Launcher()


class Deploy(Struct, frozen=True):
    """`ignore`: patterns of files that are not sent, in the grammar of .gitignore. `prove`: shell
    text that has to succeed in the container, in the directory of the staged files."""

    dest: str | None = None
    ignore: tuple[str, ...] = ()
    prove: str | None = None


class Healthcheck(Struct, frozen=True):
    log_matches: str | None = None
    within_s: float = 10.0


class Job(Struct, frozen=True):
    """A workload we know how to find and stop. `max_loss_s`: see `verify.checkpoint`."""

    # empty: an ad-hoc job, named on the command line only
    name: str
    match: Match
    stop_signal: str | None = None
    playbook: str = "standard"
    trainers: Literal["leaves", "all"] | None = None
    ranks: Literal["all_save", "rank0_saves"] | None = None
    wrapper: str | None = None
    max_loss_s: float = 60.0
    log: str | None = None
    checkpoints: str | None = None
    gpus: tuple[int, ...] | None = None
    launch: Launch | None = None
    deploy: Deploy | None = None
    healthcheck: Healthcheck | None = None
    protected: bool = False


class Api(Struct, frozen=True):
    """Where the Proxmox API is; `token_secret` names a source, it never holds the secret."""

    url: str
    token_id: str
    token_secret: dict[str, str]
    ca: str | None = None
    fingerprint: str | None = None


class Host(Struct, frozen=True):
    """An SSH destination, as written: `user@address` or an alias of ~/.ssh/config."""

    name: str
    ssh: str
    port: int | None = None
    jump: str | None = None
    identity: str | None = None
    known_hosts: str | None = None
    sudo: Literal["auto", "never", "always"] = "auto"
    pct: str = "/usr/sbin/pct"
    api: Api | None = None
    jobs: tuple[Job, ...] = ()
    tags: tuple[str, ...] = ()
    protected: bool = False


class Container(Struct, frozen=True):
    name: str
    host: str
    vmid: int
    tags: tuple[str, ...] = ()
    protected: bool = False
    jobs: tuple[Job, ...] = ()


class Inventory(Struct, frozen=True):
    """`sources` are the files it was read from, for messages; may be empty (ad hoc only)."""

    hosts: dict[str, Host] = {}
    containers: dict[str, Container] = {}
    groups: dict[str, tuple[str, ...]] = {}
    sources: tuple[str, ...] = ()


class Target(Struct, frozen=True):
    """One thing to act on: a job in a container, or directly on a host (`vmid` None).

    `name` is what people see: `ct200:train`, `box7:train`, `root@10.1.2.6/200`.
    `job` None: a place without a job in the inventory (status shows what runs there).
    """

    name: str
    host: Host
    vmid: int | None
    job: Job | None
    protected: bool = False
    # checkpoint directories that other jobs of the same place name (for "ours")
    foreign_checkpoints: tuple[str, ...] = ()

    @property
    def job_name(self) -> str | None:
        """The job's name in the inventory; None for an ad-hoc job and for a place without one."""
        return (self.job.name or None) if self.job is not None else None


def is_name(text: str) -> bool:
    """May hosts, containers, jobs and groups be called this?"""
    return _NAME.fullmatch(text) is not None


def parse_vmid(text: str) -> int | None:
    """A guest's number as someone wrote it; None for what cannot be one."""
    if re.fullmatch(r"[1-9][0-9]{2,8}", text) is None:
        return None
    return int(text)


def api_problem(key: str, text: str) -> str | None:
    """What is wrong with an API's url, token_id or fingerprint, or None. A secret that was pasted
    along is never in it."""
    if key == "url" and "@" in text:
        return "must not hold a login; write token_id and token_secret"
    if key == "url" and not re.fullmatch(r"https://[^\s/?#]+/?", text):
        return f"must be like https://10.1.2.6:8006, not {shown(text)}"
    # pasted as Proxmox prints it, the secret follows after a =
    if key == "token_id" and not re.fullmatch(r"[^@!\s=]+@[^@!\s=]+![^@!\s=]+", text):
        return "must be like fleet@pve!fleetstop, without the secret"
    if key == "fingerprint" and not re.fullmatch(FINGERPRINT_PATTERN, text):
        return "must be a SHA-256 fingerprint, 32 pairs like AB:CD:EF"
    return None


def match_problem(match: Match) -> str | None:
    """What is wrong with this match, or None."""
    # by identity: a pid of 0 equals False
    given = [
        k for k in MATCH_KEYS if getattr(match, k) is not None and getattr(match, k) is not False
    ]
    if len(given) != 1:
        found = "none is given" if not given else f"given are {' and '.join(given)}"
        return f"exactly one of {', '.join(MATCH_KEYS)} is needed, {found}"
    value = getattr(match, given[0])
    if isinstance(value, str) and given[0] != "pgrep" and not value.strip():
        return f"{given[0]} is empty"
    if match.pid is not None and match.pid <= 1:
        return "pid must be above 1"
    if match.pidfile is not None and not match.pidfile.startswith("/"):
        return "pidfile must be an absolute path"
    return ere_problem(match.pgrep) if match.pgrep is not None else None


def ere_problem(pattern: str) -> str | None:
    """What no `pgrep` would take (regex(7)), or None. Where libraries differ, nothing is said."""
    if not pattern:
        return "the pattern is empty"
    at = depth = 0
    while at < len(pattern):
        step = 1
        if pattern[at] == "\\":
            if at + 1 == len(pattern):
                return "the pattern ends with a lone backslash"
            step = 2
        elif pattern[at] == "[":
            end = _bracket_end(pattern, at)
            if end is None:
                return "the pattern has a [ that is not closed"
            step = end - at
        elif pattern[at] == "(":
            depth += 1
        elif pattern[at] == ")":
            depth = max(depth - 1, 0)
        at += step
    return "the pattern has a ( that is not closed" if depth else None


def _bracket_end(pattern: str, at: int) -> int | None:
    """Where the bracket expression that opens at `at` is over."""
    at += 2 if pattern.startswith("[^", at) else 1
    # a ] in the first place stands for itself
    at += pattern.startswith("]", at)
    while at < len(pattern):
        if pattern[at] == "]":
            return at + 1
        inner = pattern[at : at + 2]
        # [:alpha:] [.x.] [=x=] may hold a ] of their own
        closing = pattern.find(inner[1] + "]", at + 2) if inner in ("[:", "[.", "[=") else -1
        at = closing + 2 if closing >= 0 else at + 1
    return None


def group_cycle(groups: Mapping[str, tuple[str, ...]]) -> tuple[str, ...] | None:
    """A round of groups that contain each other, first and last the same; None when there is none.

    A member that is a group is written `@name`, and may be a glob.
    """
    inner = {
        name: [
            other
            for member in members
            if member.startswith("@")
            for other in groups
            if fnmatchcase(other, member[1:])
        ]
        for name, members in groups.items()
    }
    try:
        TopologicalSorter(inner).prepare()
    except CycleError as error:
        return tuple(error.args[1])
    return None
