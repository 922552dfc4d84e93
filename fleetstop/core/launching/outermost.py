"""Which process a job is started by, and where its output goes; asks nothing, starts nothing."""

from __future__ import annotations

from collections.abc import Iterable

from fleetstop.core.above.supervisors import Above
from fleetstop.core.kin.family import Family
from fleetstop.core.kin.lineage import pipe_partner, shell_runs
from fleetstop.core.kin.matching import base, script_of
from fleetstop.core.launching.origin import GONE, Origin
from fleetstop.core.process import Process, ProcessTree

# what stands above and has the job in its keeping, whether or not it restarts it
_OWNERS = ("systemd", "supervisord", "cron", "docker", "ray")


def outermost(tree: ProcessTree, family: Family) -> Process | None:
    """The one to be started anew: the farthest wrapper or launcher of the family, else the trainer
    itself. `timeout` and its like are wrappers: what they do is part of how it was started.

    None where there is not one: several trees, or none is left.
    """
    ids = family.ids
    tops = {}
    for kin in family.trainers:
        here = tree.get(kin.id)
        if here is None:
            return None
        for above in tree.above(here.id.pid):
            if above.id not in ids:
                break
            here = above
        tops[here.id] = here
    return next(iter(tops.values())) if len(tops) == 1 else None


def program_word(process: Process) -> str | None:
    """What its command line names to be executed: a shell's or interpreter's script, or a program
    by its path. None: found by PATH, or none."""
    argv = process.argv or ()
    ran = shell_runs(argv)
    if ran is not None:
        return ran[1] if ran[0] == "script" else None
    script = script_of(process)
    if script is not None:
        return script
    return argv[0] if argv and "/" in argv[0] else None


def tee_log(tree: ProcessTree, family: Family, head: Process | None = None) -> str | None:
    """The file of the `tee` that a member's output is piped through (`run.sh | tee log`). `head`:
    only one that was started below it, and is again when that is; what somebody typed behind it is
    not."""
    members = [each for kin in family.members if (each := tree.get(kin.id)) is not None]
    beside = {kid.id: kid for each in members for kid in tree.children(each.ppid)}
    beside |= {kid.id: kid for each in members for kid in tree.children(each.id.pid)}
    for each in beside.values():
        argv = each.argv or ()
        if not argv or base(argv[0]) != "tee" or not pipe_partner(each, members):
            continue
        if head is not None and all(above.id != head.id for above in tree.above(each.id.pid)):
            continue
        for file in (each.detail.files if each.detail else None) or ():
            if (file.writable_file or file.appended_file) and not file.target.endswith(GONE):
                return file.target
    return None


def writes_own_log(head: Origin, trainer: Origin, tee: str | None, log: str | None) -> bool:
    """Whether the job opens its log by itself (a script with `> log`, or `| tee log`), while what
    starts it writes elsewhere: whoever starts it must not open that file for it, or lines of a tee
    would stand there twice."""
    return log is not None and head.log != log and log in (trainer.log, tee)


def owners(family: Family, above: Iterable[Above]) -> tuple[Above, ...]:
    """What stands above the job, is none of it and would start it by itself, now or at times of
    its own: such a job is its owner's to relaunch."""
    ids = family.ids
    return tuple(
        each for each in above if each.id not in ids and (each.kind in _OWNERS or each.restarts)
    )
