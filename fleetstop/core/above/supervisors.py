"""What stands above the trainers and what each will do when they end; it asks and sends nothing."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile

from msgspec import Struct

from fleetstop.core.above.launchers import Launcher, launcher_of
from fleetstop.core.above.own import own_pane
from fleetstop.core.above.units import Policy, docker_of, handed_on, units_of
from fleetstop.core.kin.family import Family
from fleetstop.core.kin.lineage import above_kind, shell_runs, spawned
from fleetstop.core.kin.loops import Again, told
from fleetstop.core.kin.matching import base, executed, is_shell, records_the_end, stands_for_it
from fleetstop.core.kin.shells import loop_of, names_below, scripts
from fleetstop.core.process import Process, ProcessId, ProcessTree

_ENDING = {
    "supervisor": "records the end of what it started; starts nothing again",
    "cron": "starts it at the times of its table, and not because it ended",
    "tmux": "closes the pane when it ends, or keeps it with remain-on-exit; starts nothing",
    "screen": "closes the window when it ends; starts nothing",
    "login": "is somebody's shell; starts nothing by itself",
    "jupyter": "starts a kernel again that dies; a script it leaves ended",
    "ray": "starts actors and tasks again as their max_restarts says, which was not read",
    "docker": "may start the container again: its restart policy could not be read",
    "supervisord": "may start it again: its configuration could not be read",
    "systemd": "may start it again: systemctl gave no answer",
    "other": "is not known to start it again",
}
# pytorch_lightning 2.2 strategies/launchers/subprocess_script.py, trainer/call.py of 2.6
_PARENT = (
    "is the parent of other ranks; Lightning's KILLs them when it ends, and all of them, itself "
    "too, within 5 s of one that exits non-zero"
)
# torch/multiprocessing/spawn.py, ProcessContext.join: torch 1.13, tried; the KILL is of later ones
_SPAWNED = (
    "waits for the ranks it spawned; torch.multiprocessing's TERMs the others as soon as one exits "
    "non-zero, and may KILL them 30 s later"
)
# units that carry whatever is started through them
_CARRIERS = frozenset(
    "ssh sshd cron crond atd docker containerd lxc lxcfs getty@tty1 console-getty".split()
)
# first processes of docker's containers that leave with the one that they started
_FIRST_WAITS = ("docker-init", "tini", "dumb-init", "catatonit")
_COMMS = {
    "cron": ("cron", "crond", "anacron", "atd"),
    "tmux": ("tmux",),
    "screen": ("screen", "SCREEN"),
    "login": ("sshd", "login", "lxc-attach", "su"),
    "ray": ("raylet", "gcs_server"),
    "docker": ("containerd-shim", "conmon", "dockerd"),
}


class Above(Struct, frozen=True):
    """One of them. `id` None: no process of its own in the look (a unit, a container); `name`:
    what its supervisor calls it, instead of a command line; `main_pid`: whose end a unit waits
    for, as the container counts; `stopping`: it has been told to let the job end."""

    id: ProcessId | None
    pid: int | None
    kind: str
    argv: tuple[str, ...]
    will: str
    again: Again = "never"
    delay_s: float = 0.0
    limit_s: float | None = None
    name: str | None = None
    main_pid: int | None = None
    stopping: bool = False

    @property
    def restarts(self) -> bool:
        """It starts the job again by itself, after some ends at least."""
        return self.again in ("always", "failure", "success", "rounds")


class Notes(Struct, frozen=True):
    """What was read about them: script texts by shell, policies by `subject`."""

    texts: dict[ProcessId, str] = {}
    policies: dict[str, Policy] = {}


class Ask(Struct, frozen=True):
    """What has to be read to know more: (shell, its open script's descriptor), and subjects."""

    scripts: tuple[tuple[ProcessId, int], ...] = ()
    units: tuple[str, ...] = ()
    supervisord: Process | None = None
    docker: str | None = None


def to_ask(tree: ProcessTree, families: Iterable[Family]) -> Ask:
    members = [p for f in families for k in f.members if (p := tree.get(k.id)) is not None]
    ends = [top for p in members if (top := _ending(tree, p, {m.id for m in members}))]
    groups = tuple(dict.fromkeys(group for each in members for group in each.cgroups))
    return Ask(
        scripts=scripts([*members, *ends]),
        units=units_of(groups),
        supervisord=next((each for each in ends if _kind(each) == "supervisord"), None),
        docker=docker_of(groups),
    )


def subject(process: Process) -> str:
    return f"supervisord {process.id.pid}"


def standing_above(tree: ProcessTree, family: Family, notes: Notes) -> tuple[Above, ...]:
    """Everything above the trainers, the farthest first: members, then what ends the chain."""
    ids = family.ids
    found: dict[object, Above] = {}
    for kin in family.trainers:
        path = list(tree.above(kin.id.pid))
        inside = []
        for each in path:
            if each.id not in ids:
                break
            inside.append(each)
        for each in reversed(_ends(path[len(inside) :])):
            for one in _supervisors(tree, each, family, notes):
                found.setdefault(one.id or one.name, one)
        for each in reversed(inside):
            if (made := _member(tree, each, family, notes)) is not None:
                found.setdefault(each.id, made)
    units = [_from(policy, None, None) for policy in _units(tree, family, notes)]
    return (*units, *found.values())


def _ends(path: list[Process]) -> list[Process]:
    """What ends the chain: the first that is no member. Where that is our own launch's, the pane
    that it stands in, too."""
    ours = list(takewhile(records_the_end, path))
    pane = path[len(ours) : len(ours) + 1] if ours else []
    return [*path[:1], *(each for each in pane if _kind(each) in ("tmux", "screen"))]


def _member(tree: ProcessTree, process: Process, family: Family, notes: Notes) -> Above | None:
    role = next(kin.role for kin in family.members if kin.id == process.id)
    argv = process.argv or (process.comm,)

    def made(kind: str, will: str, **facts: object) -> Above:
        return Above(process.id, process.pid, kind, argv, will, **facts)  # type: ignore[arg-type]

    if role == "trainer":
        return made("ranks", _PARENT)
    if role == "launcher" and above_kind(process, None) == "launcher":
        one = _launcher(tree, process, family)
        again: Again = "failure" if one.restarts else "never"
        limit = one.limit_s if one.forwards else None
        return made("launcher", one.will, again=again, delay_s=2.0, limit_s=limit)
    if role == "launcher":
        spawns = spawning_parent(tree, family) == process
        return made("launcher", _SPAWNED if spawns else "waits for the trainers below it")
    if role != "wrapper":
        return None
    loop = loop_of(process, names_below(tree, process, _ids(family)), notes.texts)
    if loop is not None:
        return made("loop", told(loop), again=loop.again, delay_s=loop.delay_s)
    return made("wrapper", "goes on when the trainer has ended, and leaves")


def _launcher(tree: ProcessTree, process: Process, family: Family) -> Launcher:
    own = [each for each in _trainers(tree, family) if _started_by(tree, each, family) == process]
    here = process.detail
    ranks = {each.detail.rank for each in own if each.detail} - {None, here.rank if here else None}
    told_s = here.shutdown_s if here else None
    return launcher_of(process.argv or (), ranks=len(own), ranked=bool(ranks), told_s=told_s)


def _trainers(tree: ProcessTree, family: Family) -> list[Process]:
    return [each for kin in family.trainers if (each := tree.get(kin.id)) is not None]


def _started_by(tree: ProcessTree, trainer: Process, family: Family) -> Process | None:
    """The nearest launcher above it, or trainer: Lightning's ranks are their rank 0's. What was
    spawned is its parent's, whatever that is."""
    trainers = {kin.id for kin in family.trainers}
    for each in tree.above(trainer.id.pid):
        if each.id in trainers or above_kind(each, None) == "launcher" or spawned(trainer):
            return each
    return None


def forwarder(tree: ProcessTree, family: Family) -> tuple[Process, Launcher] | None:
    """The launcher above all trainers, the nearest one: deepspeed's runner stands above the ranks'
    parent, accelerate above mpirun, and what the farther one is sent stays there. None where there
    is not one, or the ranks' own parent keeps to itself what it hands on."""
    if spawning_parent(tree, family) is not None:
        return None
    for kin in reversed(family.of("launcher")):
        process = tree.get(kin.id)
        if process is not None and above_kind(process, None) == "launcher":
            below = {each.id for each in tree.below(process.id.pid)}
            if all(each.id in below for each in _trainers(tree, family)):
                return process, _launcher(tree, process, family)
    return None


def parent_rank(tree: ProcessTree, family: Family) -> Process | None:
    """The trainer that is the parent of all other ranks, as Lightning's rank 0 is."""
    every = _trainers(tree, family)
    for one in every:
        below = {each.id for each in tree.below(one.id.pid)}
        if len(every) > 1 and all(each.id in below for each in every if each.id != one.id):
            return one
    return None


def spawning_parent(tree: ProcessTree, family: Family) -> Process | None:
    """The parent of all ranks by multiprocessing's spawn method, and no rank itself: it called
    torch.multiprocessing.spawn, or is Lightning's with ddp_spawn. None where there is not one."""
    every = _trainers(tree, family)
    parents = {each.ppid for each in every}
    if len(every) < 2 or len(parents) != 1 or not all(map(spawned, every)):
        return None
    return tree.processes.get(parents.pop())


def _ending(tree: ProcessTree, process: Process, ids: set[ProcessId]) -> Process | None:
    """The nearest ancestor that is no member."""
    return next((each for each in tree.above(process.id.pid) if each.id not in ids), None)


def _kind(process: Process) -> str | None:
    """What a process that is no member is; None for an init, which says nothing."""
    argv = process.argv or ()
    if records_the_end(process):
        return "supervisor"
    comm = process.comm.partition(":")[0].strip()
    ran = executed(argv)
    if "supervisord" in (base(argv[0]) if argv else "", base(ran.script or ""), comm):
        return "supervisord"
    if process.pid == 1 or process.id.pid == 1 or comm in ("systemd", "init"):
        return None
    if comm in _FIRST_WAITS and _first_in_its_own(process):
        return "docker"
    for kind, comms in _COMMS.items():
        if comm.lower() in {each.lower() for each in comms} or comm.startswith("containerd-shim"):
            return kind if not comm.startswith("containerd-shim") else "docker"
    if any(base(word).startswith(("jupyter", "ipykernel")) for word in argv[:4]):
        return "jupyter"
    if is_shell(process):
        return "login"
    return "other"


def _supervisors(
    tree: ProcessTree, process: Process, family: Family, notes: Notes
) -> Iterable[Above]:
    loop = loop_of(process, names_below(tree, process, _ids(family)), notes.texts)
    if loop is not None:
        argv = process.argv or (process.comm,)
        yield Above(process.id, process.pid, "loop", argv, told(loop), loop.again, loop.delay_s)
        return
    kind = _kind(process)
    if kind is None:
        return
    if kind == "login":
        # a shell in a pane, or of a login: what carries it says more
        for each in tree.above(process.id.pid):
            if (over := _kind(each)) in ("tmux", "screen", "jupyter", "docker"):
                kind = over or kind
                break
    policy = notes.policies.get(subject(process)) if kind == "supervisord" else None
    container = docker_of(process.cgroups) or _container_of(tree, family)
    if kind == "docker" and container is not None:
        policy = notes.policies.get(f"docker {container}")
    if kind == "docker" and _goes_on(tree, process, family):
        will = "goes on: what it waits for is the container's first process, and that is another"
        name = policy.name if policy is not None else None
        yield Above(process.id, process.pid, kind, process.argv or (), will, name=name)
    elif policy is not None:
        yield _from(policy, process.id, process.pid)
    else:
        argv, will = own_pane(tree, process) or (process.argv or (process.comm,), _ENDING[kind])
        again: Again = "unknown" if kind in ("supervisord", "docker", "ray") else "never"
        yield Above(process.id, process.pid, kind, argv, will, again)


def _ids(family: Family) -> tuple[ProcessId, ...]:
    return tuple(kin.id for kin in family.trainers)


def _goes_on(tree: ProcessTree, ending: Process, family: Family) -> bool:
    """The job was started in a container that runs for something else (`docker exec`, a terminal
    in it). False where its first process cannot be told from others (`--pid host`)."""
    every = [ending, *(p for k in family.members if (p := tree.get(k.id)) is not None)]
    own = [each for each in every if _in_its_own(each)]
    return bool(own) and not any(_first_in_its_own(each) for each in own if not _typed_into(each))


def _typed_into(process: Process) -> bool:
    """A shell that waits for somebody's typing ends with nobody."""
    return is_shell(process) and shell_runs(process.argv or ()) is None


def _in_its_own(process: Process) -> bool:
    """In a namespace below that of the place: a docker container's."""
    return len(process.inner) > (0 if process.nested else 1)


def _first_in_its_own(process: Process) -> bool:
    return _in_its_own(process) and process.inner[-1] == 1


def _container_of(tree: ProcessTree, family: Family) -> str | None:
    groups = [g for k in family.members if (p := tree.get(k.id)) for g in p.cgroups]
    return docker_of(groups)


def _units(tree: ProcessTree, family: Family, notes: Notes) -> list[Policy]:
    """Units whose main process is a member, or stands above one for our own launch; a unit that
    only carries it (sshd's, cron's, the container runtime's) has nothing to start again. One that
    systemctl did not tell of may."""
    pids = {kin.pid for kin in family.members}
    above = [each for kin in family.trainers for each in tree.above(kin.id.pid)]
    ours = {each.pid for each in above if stands_for_it(each)}
    groups = [g for k in family.members if (p := tree.get(k.id)) for g in p.cgroups]
    found = []
    for unit in units_of(groups):
        policy = notes.policies.get(unit)
        if policy is None and unit.removesuffix(".service") not in _CARRIERS:
            found.append(Policy("systemd", unit, "unknown", 0.0, _ENDING["systemd"]))
        elif policy is not None and policy.main_pid in ours:
            found.append(handed_on(policy))
        elif policy is not None and policy.main_pid in pids:
            found.append(policy)
    return found


def _from(policy: Policy, identity: ProcessId | None, pid: int | None) -> Above:
    return Above(
        identity,
        pid,
        policy.kind,
        (),
        policy.will,
        policy.again,
        policy.delay_s,
        name=policy.name,
        main_pid=policy.main_pid,
        stopping=policy.stopping,
    )
