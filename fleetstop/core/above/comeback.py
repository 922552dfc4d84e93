"""Who would start the job again if this rung ended its trainers; it asks and sends nothing."""

from __future__ import annotations

from collections.abc import Iterable

from fleetstop.core.above.supervisors import Above
from fleetstop.core.process import ProcessId, ProcessTree
from fleetstop.core.redact import brief, text

# systemd.service(5): a main process that one of these ends has ended cleanly
_CLEAN = ("HUP", "INT", "TERM", "PIPE")
# what these do to a unit or a program lets it start the job again, or does nothing
_NO_STOP = {
    "systemd": frozenset("kill status show cat restart start try-restart reload".split()),
    "supervisord": frozenset("signal status pid tail restart start".split()),
    "docker": frozenset("ps inspect logs top restart start".split()),
}
_TOLD_BY = {"supervisord": ("supervisorctl",), "docker": ("docker", "podman", "nerdctl")}


def called(each: Above) -> str:
    """`30 bash -c 'while …'`, `systemd unit train.service (Restart=always)`."""
    if each.kind in ("loop", "launcher") and each.pid is not None:
        return f"{each.pid} {brief(each.argv)}"
    name = {"systemd": "systemd unit ", "docker": "docker "}.get(each.kind, f"{each.kind} ")
    return name + (text(each.name) if each.name else brief(each.argv))


def untold(above: Iterable[Above], commands: Iterable[str]) -> tuple[Above, ...]:
    """Those that nobody has told to let the job end: neither one of these commands, run by the
    ladder so far, nor another operator."""
    done = list(commands)
    return tuple(
        each
        for each in above
        if not each.stopping and not any(_is_for(each, said) for said in done)
    )


def _is_for(each: Above, said: str) -> bool:
    words = {word.strip("\"'") for word in said.split()}
    if words & _NO_STOP.get(each.kind, frozenset()) and "stop" not in words:
        return False
    if each.kind == "systemd":
        unit = (each.name or "").partition(" ")[0]
        return bool(words & {unit, unit.removesuffix(".service")})
    return bool(words & set(_TOLD_BY.get(each.kind, ())))


def in_vain(
    above: Iterable[Above],
    signal: str,
    ends: bool,
    reached: frozenset[ProcessId],
    trainers: frozenset[int],
    tree: ProcessTree,
) -> str | None:
    """Why what may lose work would stop nothing: somebody whom it does not reach starts the job
    again. None where nobody is known to.

    `ends`: the signal itself ends a trainer (KILL, or no handler); else how it will end is not
    known. `trainers`: their PIDs in the container.
    """
    for each in above:
        if each.id is not None and not _lives(each.id, signal, reached, tree):
            continue
        if _starts_again(each, signal, ends, each.main_pid in trainers):
            return f"But {called(each)} would start it again: {comes_first(each)}"
    return None


def _lives(identity: ProcessId, signal: str, reached: frozenset[ProcessId], t: ProcessTree) -> bool:
    process = t.get(identity)
    if process is None or not process.alive:
        return False
    # what it does with a signal that it hears is not known: dash leaves its loop on INT
    return identity not in reached or process.landing(signal) in ("ignored", "blocked")


def _starts_again(each: Above, signal: str, ends: bool, main: bool) -> bool:
    """`main`: the supervisor sees the trainer's own end, not that of a wrapper around it."""
    if each.again in ("always", "rounds"):
        return True
    if not ends:
        return False
    # a shell around it passes the end on as a plain number, which is no clean one
    clean = each.kind == "systemd" and main and signal in _CLEAN
    return clean if each.again == "success" else each.again == "failure" and not clean


def surely(above: Iterable[Above]) -> Above | None:
    """Who starts the job again after any end of it, and has not been told to let it end."""
    return next((each for each in above if each.again == "always" and not each.stopping), None)


def comes_first(each: Above) -> str:
    """What has to be done about it before the job can be ended for good, a sentence."""
    name = (each.name or "").partition(" ")[0]
    if each.kind == "systemd":
        return f"`systemctl stop {name}` comes first (playbook systemd does that)"
    if each.kind == "supervisord" and name:
        return f"`supervisorctl stop {name}` comes first"
    if each.kind == "docker" and name:
        return f"`docker stop {(each.name or '').split()[1]}` comes first"
    if each.kind in ("loop", "launcher"):
        return "it has to end first (a KILL rung to `tree` does that where it is of the job)"
    return "it has to be told first"
