"""Read what stands above a job: scripts its shells hold open, and what supervisors were told."""

from __future__ import annotations

from collections.abc import Iterable

from fleetstop.actions import looks, reading
from fleetstop.actions.telling import Scope
from fleetstop.core.above.supervisors import Ask, Notes, subject, to_ask
from fleetstop.core.above.units import (
    SHOWN,
    Policy,
    docker_policy,
    included,
    supervisord_policy,
    systemd_policy,
)
from fleetstop.core.kin.family import Family
from fleetstop.core.kin.shells import scripts
from fleetstop.core.process import Process, ProcessId, ProcessTree
from fleetstop.errors import CouldNotLook

_CONFIGS = ("/etc/supervisor/supervisord.conf", "/etc/supervisord.conf")
_AT_MOST = 20


async def notes(scope: Scope, tree: ProcessTree, families: Iterable[Family]) -> Notes:
    """What could be read; what could not is missing there, and said so where it is told."""
    families = tuple(families)
    ask = to_ask(tree, families)
    read = await texts(scope, [p for pid, _ in ask.scripts if (p := tree.get(pid)) is not None])
    return Notes(texts=read, policies=await _policies(scope, families, ask))


async def texts(scope: Scope, shells: Iterable[Process]) -> dict[ProcessId, str]:
    """The scripts that these shells hold open; one frame on the host, no way into the container."""
    wanted = {f"/proc/{each.pid}/fd/{fd}": each for each, fd in scripts(shells)[:_AT_MOST]}
    found = await reading.heads(scope.place.host, tuple(wanted))
    return {wanted[path]: text for path, text in found.items() if path in wanted}


async def _policies(scope: Scope, families: tuple[Family, ...], ask: Ask) -> dict[str, Policy]:
    found: dict[str, Policy] = {}
    if not (ask.units or ask.supervisord or ask.docker):
        return found
    for unit in ask.units[:3]:
        if (policy := await ask_unit(scope, unit)) is not None:
            found[unit] = policy
    if ask.supervisord is not None:
        text = await _supervisord(scope, ask.supervisord)
        if (policy := supervisord_policy(text, _names(families))) is not None:
            found[subject(ask.supervisord)] = policy
    if ask.docker is not None:
        path = f"/var/lib/docker/containers/{ask.docker}/hostconfig.json"
        text = "".join((await _inside(scope, path)).values())
        if (policy := docker_policy(ask.docker, text)) is not None:
            found[f"docker {ask.docker}"] = policy
    return found


async def ask_unit(scope: Scope, unit: str) -> Policy | None:
    """What systemd of the place says of this unit now; None where it gives no answer."""
    try:
        shell = await scope.place.inside()
        text = await looks.unit(shell, unit, ",".join(SHOWN))
    except CouldNotLook:
        return None
    return systemd_policy(unit, text) if text is not None else None


async def _inside(scope: Scope, *patterns: str) -> dict[str, str]:
    try:
        return await reading.heads(await scope.place.inside(), patterns)
    except CouldNotLook:
        return {}


async def _supervisord(scope: Scope, process: Process) -> str:
    """Its configuration file and what that includes, as one text."""
    argv = process.argv or ()
    named = [
        argv[at + 1] for at, word in enumerate(argv[:-1]) if word in ("-c", "--configuration")
    ] + [word.partition("=")[2] for word in argv if word.startswith("--configuration=")]
    read = await _inside(scope, *(named or _CONFIGS))
    for path, text in list(read.items())[:1]:
        folder = path.rpartition("/")[0]
        patterns = [p if p.startswith("/") else f"{folder}/{p}" for p in included(text)]
        more = await _inside(scope, *patterns[:5]) if patterns else {}
        return "\n".join([text, *more.values()])
    return ""


def _names(families: tuple[Family, ...]) -> list[str]:
    """What a program's command line may name: the script of whoever stands highest."""
    argvs = [kin.argv for family in families for kin in family.members if kin.role != "worker"]
    words = {word.rpartition("/")[2] for argv in argvs for word in argv[1:]}
    return sorted(each for each in words if each.endswith((".py", ".sh")))
