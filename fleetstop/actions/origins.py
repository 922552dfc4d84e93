"""Ask how processes were started, and who a user is there; decides nothing."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable

from fleetstop.actions import looks
from fleetstop.actions.telling import Scope
from fleetstop.core.commands import Command
from fleetstop.core.launching.origin import Origin, parse_origins, started_in
from fleetstop.core.launching.surroundings import Person, parse_login, parse_person
from fleetstop.core.process import Process, ProcessId, ProcessTree
from fleetstop.errors import CouldNotLook, RemoteFailed

LOGIN_FILES = ("/etc/environment", "/etc/default/locale")


async def origins(
    scope: Scope, tree: ProcessTree, processes: Iterable[Process]
) -> dict[ProcessId, Origin]:
    """How each was started, in the container's own numbers; one that has ended is missing.

    With root it is asked on the host; without, in the container, whose shell may read it.
    """
    wanted = list(processes)
    place, vmid = scope.place, scope.target.vmid
    if vmid is not None and place.without_root is not None:
        shell = await place.inside()
        words = [looks.word(each).replace(str(each.id.pid), str(each.pid)) for each in wanted]
        answer = await shell.run(Command("origin", ("1", *words)))
        numbers, first = {each.pid: each for each in wanted}, 1
    else:
        init = tree.by_inner(1) if vmid is not None else None
        words = [*([str(init.id.pid)] if init is not None else []), *map(looks.word, wanted)]
        answer = await looks.of_processes(place, "origin", words)
        numbers, first = {each.id.pid: each for each in wanted}, init.id.pid if init else 0
    if answer.status != 0:
        raise RemoteFailed(f"how it was started could not be read (status {answer.status})")
    found = parse_origins(answer.data, first or None)
    return {
        each.id: found[number]
        for number, each in numbers.items()
        if number in found and found[number].id.start == each.id.start
    }


async def person(scope: Scope, who: str) -> Person | None:
    """The user of this name or number in the container; None where there is none, or nobody could
    be asked."""
    try:
        answer = await (await scope.place.inside()).run(Command("user", (who,), deadline_s=15.0))
    except CouldNotLook:
        return None
    return parse_person(answer.data) if answer.status == 0 else None


async def login(scope: Scope) -> dict[str, str]:
    """What a clean login there is given by /etc/environment and /etc/default/locale."""
    try:
        return parse_login(await looks.heads(await scope.place.inside(), LOGIN_FILES))
    except CouldNotLook:
        return {}


async def where_from(scope: Scope, origin: Origin, script: str | None) -> str | None:
    """The directory in which it was started; `script`: what its command line names, and which is
    looked for where it is relative and the process may have moved."""
    places = started_in(origin, script)
    if len(places) < 2 or script is None:
        return places[0] if places else None
    for each in places:
        if await _is_file(scope, posixpath.join(each, script)):
            return each
    return places[0]


async def _is_file(scope: Scope, path: str) -> bool:
    try:
        shell = await scope.place.files()
        # it reads the first bytes of any plain file
        answer = await shell.run(Command("pidfile", (path,)))
    except CouldNotLook:
        return False
    return answer.status == 0
