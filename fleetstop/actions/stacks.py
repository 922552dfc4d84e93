"""Where the trainers are in their Python code, by py-spy where there is one; stops nobody."""

from __future__ import annotations

from fleetstop.actions.telling import Scope
from fleetstop.core.commands import Command
from fleetstop.core.kin.family import Family, Kin
from fleetstop.core.report import Stack
from fleetstop.core.stacks import Dump, parse_dump
from fleetstop.errors import CouldNotLook
from fleetstop.ports import Shell

# statuses of the verb
ABSENT, LATE = 30, 31
MOST_TRAINERS = 16
NOWHERE = (
    "no stacks: there is no py-spy on the host, nor in the container; "
    "`pip install py-spy` in either of them gives it"
)


async def stacks(
    scope: Scope, family: Family, *, within_s: float = 10.0, inside: bool = True
) -> tuple[Stack, ...]:
    """One for each trainer that could be asked, within `within_s` for all of them. The host's
    py-spy is asked first: it costs no `pct`. Empty: there is none."""
    until = scope.clock.now() + within_s
    made: list[Stack] = []
    for kin in family.trainers[:MOST_TRAINERS]:
        left = until - scope.clock.now()
        if left < 0.2:
            made.append(Stack(kin.pid, (), "there was no time left for it"))
            continue
        dump = await _dump(scope, kin, left, inside)
        if dump is None:
            return tuple(made)
        made.append(Stack(kin.pid, dump.lines, dump.problem))
    return tuple(made)


async def _dump(scope: Scope, kin: Kin, within_s: float, inside: bool) -> Dump | None:
    """None: no py-spy anywhere."""
    dump = await _ask(scope.place.host, kin.id.pid, within_s)
    if dump is None and inside and scope.target.vmid is not None:
        try:
            shell = await scope.place.inside()
        except CouldNotLook as exc:
            return Dump((), exc.message)
        dump = await _ask(shell, kin.pid, within_s)
    return dump


async def _ask(shell: Shell, pid: int, within_s: float) -> Dump | None:
    """The far end ends py-spy itself when its time is over, so that no shell is lost to it."""
    words = (str(pid), str(int(within_s * 1000)))
    answer = await shell.run(Command("stacks", words, deadline_s=within_s + 10.0))
    if answer.status == ABSENT:
        return None
    if answer.status == LATE:
        return Dump((), f"py-spy did not answer within {within_s:.0f} s")
    return parse_dump(answer.data, answer.status)
