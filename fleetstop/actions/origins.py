"""Ask how a job and its processes were started, and who a user is there; starts nothing."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable

import msgspec
from msgspec import Struct

from fleetstop.actions import looks, reading
from fleetstop.actions.telling import Scope
from fleetstop.core.commands import Command
from fleetstop.core.inventory import Launch
from fleetstop.core.kin.family import Family, Kin
from fleetstop.core.launching.origin import Origin, parse_origins, started_in
from fleetstop.core.launching.outermost import outermost, program_word, tee_log, writes_own_log
from fleetstop.core.launching.output import Wrote, alike
from fleetstop.core.launching.recipe import Known, whom
from fleetstop.core.launching.surroundings import Person, parse_login, parse_person
from fleetstop.core.process import Process, ProcessId, ProcessTree
from fleetstop.errors import CouldNotLook, Refused, RemoteFailed

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


class Began(Struct, frozen=True):
    """How a job was started: its outermost process and its first trainer; `cwd`: the directory in
    which the outermost was started; `tee`: the file of the tee that it is piped through, `own_tee`:
    where the outermost itself has started that."""

    head: Origin
    trainer: Origin
    cwd: str | None
    tee: str | None
    own_tee: str | None = None
    ranks: int = 1

    @property
    def bare(self) -> bool:
        """No script stands above the trainer: whoever started that has opened its log, and has
        become the trainer, or somebody typed it."""
        return self.head.id == self.trainer.id

    @property
    def wrote(self) -> Wrote | None:
        """None: nothing but what the outermost was started with, as far as is seen."""
        log, head = self.trainer.log, self.head.log
        own = log if log != head and self.ranks == 1 else None  # a rank may have a file of its own
        own = own or (self.own_tee if not self.bare else None)
        path = own or self.tee or log
        if path is None or path == head:
            return None
        return Wrote(self.head.argv, path, own is not None)

    def opens(self, log: str | None, launch: Launch | None) -> bool:
        """Whether that log is opened by what is started by this `launch`, or else as it runs."""
        run = launch.run if launch is not None else ()
        again = not self.bare or bool(run and not alike(run, self.head.argv))
        tee = self.own_tee if again else None
        return writes_own_log(self.head, self.trainer, tee, log)


async def began(scope: Scope, tree: ProcessTree, family: Family) -> Began:
    """Raises Refused where no one command starts it, RemoteFailed where it has ended meanwhile."""
    head = outermost(tree, family)
    if head is None:
        raise Refused("its trainers were started apart from each other: no one command starts it")
    trainer = process_of(tree, family.trainers[0])
    found = await origins(scope, tree, {each.id: each for each in (head, trainer)}.values())
    first = _there(found, head)
    cwd = await where_from(scope, first, program_word(head))
    return Began(
        head=first,
        trainer=_there(found, trainer),
        cwd=cwd,
        tee=tee_log(tree, family),
        own_tee=tee_log(tree, family, head),
        ranks=len(family.trainers),
    )


async def known(
    scope: Scope,
    launch: Launch | None,
    log: str | None,
    running: tuple[ProcessTree, Family] | None,
    checkpoint: str | None = None,
) -> Known:
    """All that `recipe` needs to know of the place; `running`: the job as it was seen last, None
    where it does not run. `log`: the inventory's."""
    start = await began(scope, *running) if running is not None else None
    origin = msgspec.structs.replace(start.head, cwd=start.cwd) if start is not None else None
    ours = await _ours(scope)
    return Known(
        origin=origin,
        person=await person(scope, whom(launch, origin, ours)),
        login=await login(scope),
        checkpoint=checkpoint,
        own_log=start is not None and start.opens(log, launch),
        wrote=start.wrote if start is not None else None,
        inherited=ours.limits if start is not None and ours is not None else {},
    )


async def _ours(scope: Scope) -> Origin | None:
    """Of our own shell there, which starts what is started: the container's, else the host's."""
    place = scope.place
    try:
        shell, ours = place.host, [place.own_pid]
        if scope.target.vmid is not None:
            shell = await place.inside()
            ours = [each.pid for each in place.ours_inside]
        answer = await shell.run(Command("origin", tuple(map(str, ours))))
    except CouldNotLook:
        return None
    found = list(parse_origins(answer.data).values()) if answer.status == 0 else []
    return found[0] if found else None


def process_of(tree: ProcessTree, kin: Kin) -> Process:
    found = tree.get(kin.id)
    if found is None:
        raise RemoteFailed(f"{kin.pid} was there, and is not in the look")
    return found


async def origin_of(scope: Scope, tree: ProcessTree, process: Process) -> Origin:
    return _there(await origins(scope, tree, [process]), process)


def _there(found: dict[ProcessId, Origin], process: Process) -> Origin:
    if process.id not in found:
        raise RemoteFailed(
            f"{process.pid} ({process.comm}) ended while it was looked at, or is hidden from us"
        )
    return found[process.id]


async def script_of(scope: Scope, process: Process, origin: Origin) -> str | None:
    """The file it executes, absolute; None where it is none, or cannot be told."""
    word = program_word(process)
    if word is None or word == (process.argv or ("",))[0]:
        return None
    directory = await where_from(scope, origin, word)
    if not word.startswith("/") and directory is None:
        return None
    return posixpath.normpath(posixpath.join(directory or "/", word))


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
        return parse_login(await reading.heads(await scope.place.inside(), LOGIN_FILES))
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
