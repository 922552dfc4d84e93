"""Process trees for tests, told as indented text: who is whose child, and what each should be.

    100 'sshd: ada@pts/0'
      110 -bash
        120 bash run.sh              => wrapper
          130 python train.py        # gpu => trainer

A line is `PID COMMAND LINE`, `-` for none; then `#` and tags; then `=>` and the role it should
get (`trainer/2`: in the second family). Without `=>` it should be in no family. Tags:

    gpu, gpu=1+2    holds /dev/nvidiaN          rank        RANK or LOCAL_RANK in its environment
    fork            forked, never exec'd        leader      leads a session of its own
    Z, T, D         its state                   threads=2   how many
    0<a, 1>a        reads, writes the pipe a    unseen      no closer look was possible
    sid=, ppid=, born=, comm=, in=, cwd=, mark=  as told; in= is the container's number
"""

from __future__ import annotations

import posixpath
import re
import shlex

from msgspec import Struct

from fleetstop.core.kin.family import Found
from fleetstop.core.process import PF_FORKNOEXEC, Detail, OpenFile, Process, ProcessId, ProcessTree

_PIPE = re.compile(r"([0-2])[<>](\w+)")


class Told(Struct, frozen=True):
    """A tree, and the roles that its text promises: PID -> role, `/N` from the second family on."""

    tree: ProcessTree
    roles: dict[int, str]


def told(text: str, *, uptime: float = 1000.0) -> Told:
    made: dict[int, Process] = {}
    roles: dict[int, str] = {}
    above: list[tuple[int, int]] = []
    for line in text.splitlines():
        rest, _, role = line.partition(" => ")
        words, _, tags = rest.partition(" # ")
        if not words.strip():
            continue
        depth = len(words) - len(words.lstrip())
        while above and above[-1][0] >= depth:
            above.pop()
        number, _, command = words.strip().partition(" ")
        parent = made[above[-1][1]] if above else None
        one = process(int(number), command.strip(), parent, tags.split())
        above.append((depth, one.id.pid))
        made[one.id.pid] = one
        if role:
            roles[one.id.pid] = role.strip()
    return Told(tree=ProcessTree(processes=made, uptime=uptime), roles=roles)


def tree(text: str) -> ProcessTree:
    return told(text).tree


def process(
    pid: int, command: str, parent: Process | None = None, tags: list[str] | None = None
) -> Process:
    tags = tags or []
    argv = None if command == "-" else tuple(shlex.split(command))
    values = dict(tag.split("=", 1) for tag in tags if "=" in tag)
    sid = parent.sid if parent is not None and "leader" not in tags else pid
    return Process(
        id=ProcessId(pid, int(values.get("born", pid))),
        ppid=int(values.get("ppid", parent.id.pid if parent else pid > 1)),
        pgid=pid,
        sid=int(values.get("sid", sid)),
        state=next((tag for tag in tags if tag in ("Z", "T", "D")), "S"),
        comm=values.get("comm", posixpath.basename(argv[0])[:15] if argv else "gone"),
        flags=PF_FORKNOEXEC if "fork" in tags else 0,
        threads=int(values.get("threads", 1)),
        ticks=0,
        inner=(int(values["in"]),) if "in" in values else (),
        argv=argv,
        detail=None if "unseen" in tags else _detail(tags, values),
    )


def _detail(tags: list[str], values: dict[str, str]) -> Detail:
    gpus = values["gpu"].split("+") if "gpu" in values else ["0"] if "gpu" in tags else []
    pipes = [found for tag in tags if (found := _PIPE.fullmatch(tag))]
    files = [
        *(OpenFile(int(found[1]), f"pipe:[{found[2]}]", None, 0) for found in pipes),
        *(OpenFile(9 + int(each), f"/dev/nvidia{each}", 0o2, 0) for each in gpus),
    ]
    # a rank of its own for each place in the story: ranks hold different GPUs
    rank = f"RANK={'+'.join(gpus)}" if "rank" in tags else values.get("rank")
    return Detail(
        blocked=0,
        files=tuple(files),
        cwd=values.get("cwd", "/job"),
        rank=rank,
        mark=values.get("mark"),
    )


def roles_of(found: Found) -> dict[int, str]:
    """PID -> role as `told` writes it, to be compared with what the text promised."""
    return {
        kin.id.pid: kin.role if number == 1 else f"{kin.role}/{number}"
        for number, family in enumerate(found.families, start=1)
        for kin in family.members
    }
