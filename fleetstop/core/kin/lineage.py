"""What kinds of ancestors there are: wrappers, launchers, and those that end the chain."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from fleetstop.core.kin.matching import SHELLS, base, executed, is_shell, records_the_end
from fleetstop.core.process import Process, ProcessTree

PASS_THROUGH = frozenset(
    "timeout nice env uv conda sudo su script time stdbuf setpriv xargs flock nohup setsid ionice"
    " chrt taskset numactl doas runuser micromamba mamba pixi poetry pipenv uvx".split()
)
LAUNCHERS = frozenset(
    "torchrun accelerate accelerate-launch deepspeed deepspeed.pt mpirun mpiexec horovodrun".split()
)
_LAUNCHER_SCRIPTS = LAUNCHERS | {"ds"}  # deepspeed's short name; as a program's it may be anything
LAUNCHER_MODULES = (
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate.commands",
    "deepspeed.launcher",
)


def above_kind(process: Process, named: str | None) -> Literal["wrapper", "launcher"] | None:
    """Whether this ancestor of a trainer belongs to the job; None ends the chain.

    `named` is the job's `wrapper:`. A terminal's own shell (no script, no -c), tmux, sshd,
    an init, our own launch's supervisor and every unknown program end it: they are shown, never
    signalled.
    """
    argv = process.argv or ()
    if process.pid == 1 or process.id.pid == 1 or not argv or records_the_end(process):
        return None
    name = base(argv[0])
    ran = executed(argv)
    script = base(ran.script) if ran.script else None
    if named and named != "outlives" and named in (name, script, process.comm):
        return "wrapper"
    if name in LAUNCHERS or script in _LAUNCHER_SCRIPTS:
        return "launcher"
    if ran.module and ran.module.startswith(LAUNCHER_MODULES):
        return "launcher"
    if name in SHELLS:
        return "wrapper" if shell_runs(argv) is not None else None
    return "wrapper" if name in PASS_THROUGH or script in PASS_THROUGH else None


def through_panes(tree: ProcessTree, panes: frozenset[int]) -> frozenset[int]:
    """What works in these panes, by the container's own PIDs: down from each pane's first
    process, through shells, wrappers and launchers, to the first that is none of them."""
    first = [each for each in tree.processes.values() if each.pid in panes]
    return frozenset(each.pid for each in at_work(tree, first))


def at_work(tree: ProcessTree, first: Iterable[Process]) -> list[Process]:
    """Down from each, through shells, wrappers and launchers, to the first that is none of them."""
    todo = list(first)
    found: list[Process] = []
    seen: set[int] = set()
    while todo:
        here = todo.pop()
        if here.id.pid in seen:
            continue
        seen.add(here.id.pid)
        if is_shell(here) or above_kind(here, None) is not None or records_the_end(here):
            todo += tree.children(here.id.pid)
        else:
            found.append(here)
    return found


def shell_runs(argv: Sequence[str]) -> tuple[Literal["text", "script"], str] | None:
    """What a shell was given to run: its `-c` text, or a script's path. None: it waits for
    somebody's typing, or is no shell."""
    words = list(argv[1:])
    if not argv or base(argv[0]) not in SHELLS:
        return None
    if base(argv[0]) == "busybox":
        words = words[1:]
    while words:
        word = words.pop(0)
        if word in ("--rcfile", "--init-file"):
            words = words[1:]
        elif word.startswith("--"):
            continue
        elif word.startswith(("-", "+")):
            if "c" in word[1:]:
                # options may stand between -c and its text: bash -c -x 'text'
                while len(words) > 1 and words[0].startswith(("-", "+")):
                    words.pop(0)
                return ("text", words[0]) if words else None
            if "s" in word[1:] or "i" in word[1:]:
                return None
            # each o or O takes a word of its own, also in a cluster: -euo pipefail
            words = words[word[1:].count("o") + word[1:].count("O") :]
        else:
            return "script", word
    return None


def pipe_partner(process: Process, family: Iterable[Process]) -> bool:
    """One reads what the other writes, like the tee of `python train.py | tee log`.

    Two that write to the same pipe only share somebody's stdout: that is no kinship.
    False where its files, or the members', could not be read.
    """
    reads, writes = _pipes(process, 0), _pipes(process, 1, 2)
    return any(
        reads & _pipes(member, 1, 2) or writes & _pipes(member, 0)
        for member in family
        if member.id != process.id
    )


def strangers(others: list[Process], members: list[Process]) -> list[Process]:
    """Who is left when the dead and the partners along the pipeline (| grep | tee) are aside."""
    joined, left = list(members), [kid for kid in others if not kid.zombie]
    while partners := [kid for kid in left if pipe_partner(kid, joined)]:
        joined += partners
        left = [kid for kid in left if kid not in partners]
    return left


def piped_together(processes: Iterable[Process]) -> set[int]:
    """Those that share a pipe with another one of the same parent, as a pipeline's parts do."""
    every = list(processes)
    return {
        each.id.pid
        for each in every
        if pipe_partner(each, [other for other in every if other.ppid == each.ppid])
    }


def _pipes(process: Process, *fds: int) -> set[str]:
    files = process.detail.files if process.detail else None
    return {f.target for f in files or () if f.fd in fds and f.target.startswith("pipe:")}


def spawned(process: Process) -> bool:
    """A child of multiprocessing's spawn method (multiprocessing/spawn.py get_command_line)."""
    argv = process.argv or ()
    return "--multiprocessing-fork" in argv or any("multiprocessing.spawn" in w for w in argv)


def abandoned(tree: ProcessTree) -> tuple[Process, ...]:
    """What multiprocessing started for a Python that has ended: children of spawn, a fork server
    with its forks, resource trackers. Their first ancestor that is no such process is PID 1, or the
    supervisor of our own launch, which adopts them."""
    return tuple(p for p in tree.processes.values() if not p.zombie and _abandoned(tree, p))


def _abandoned(tree: ProcessTree, process: Process) -> bool:
    if not _multiprocessing(process):
        return False
    for each in tree.above(process.id.pid):
        if each.pid == 1 or each.id.pid == 1:
            # a container's first process may be the Python itself
            return not each.comm.startswith("python")
        if records_the_end(each):
            return True
        if not _multiprocessing(each):
            return False
    return True


def _multiprocessing(process: Process) -> bool:
    argv = process.argv or ()
    return spawned(process) or any(w.startswith("from multiprocessing.") for w in argv)
