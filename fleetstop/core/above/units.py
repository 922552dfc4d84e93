"""What supervisors were told to do: recorded texts of theirs into policies; asks nobody."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from fleetstop.core.kin.loops import Again
from fleetstop.core.signals import NUMBERS

SHOWN = (
    "MainPID Restart RestartUSec KillSignal KillMode TimeoutStopUSec ActiveState SubState".split()
)
"""Properties of `systemctl show`; org.freedesktop.systemd1(5)."""
_MAIN = "its main process"
_UNIT = re.compile(r"[A-Za-z0-9:_.@\\-]{1,255}\.service")
_DOCKER = re.compile(r"(?:docker-|/docker/)([0-9a-f]{64})")
_SPAN = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(us|ms|s|min|h|d)?")
_FACTORS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "": 1e-6}
_AGAIN: dict[str, Again] = {
    "always": "always",
    "on-failure": "failure",
    "on-abnormal": "failure",
    "on-abort": "failure",
    "on-watchdog": "never",
    "on-success": "success",
    "no": "never",
}
_WHEN = {
    "always": "starts it again however it ends, but for `systemctl stop`",
    "on-failure": "starts it again when it fails (INT and TERM count as clean)",
    "on-abnormal": "starts it again when a signal ends it (INT and TERM count as clean)",
    "on-abort": "starts it again when a signal ends it (INT and TERM count as clean)",
    "on-success": "starts it again when it exits 0, or INT or TERM ends it",
}


class Policy(Struct, frozen=True):
    """A supervisor's own word: when it starts the job again, and how long after its end.

    `settled`: asked after the job's end, it says that nothing more will come by itself.
    `stopping`: somebody has told it to stop, and its main process has not ended yet.
    """

    kind: str
    name: str
    again: Again
    delay_s: float
    will: str
    main_pid: int | None = None
    settled: bool = False
    stopping: bool = False


def units_of(cgroups: Iterable[str]) -> tuple[str, ...]:
    """The services of the system's manager that a process's control groups lie in. A user's
    manager (user@1000.service) is not asked: its units are none of the system's."""
    found = []
    for path in cgroups:
        parts = path.split("/")
        if any(part.startswith("user@") for part in parts):
            continue
        found += [part for part in parts if _UNIT.fullmatch(part)][-1:]
    return tuple(dict.fromkeys(found))


def docker_of(cgroups: Iterable[str]) -> str | None:
    """The ID of the docker container that a process's control groups lie in."""
    return next((found[1] for each in cgroups if (found := _DOCKER.search(each))), None)


def systemd_policy(unit: str, text: str) -> Policy | None:
    """The answer of `systemctl show -p …`; None where it says nothing of how it restarts."""
    said = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    restart = said.get("Restart", "")
    if restart not in _AGAIN:
        return None
    delay = span(said.get("RestartUSec", ""))
    after = f", after {_seconds(delay)}" if _AGAIN[restart] != "never" and delay else ""
    will = _WHEN.get(restart, "leaves it ended")
    state = said.get("ActiveState", "")
    main = said.get("MainPID", "0")
    return Policy(
        kind="systemd",
        name=f"{unit} (Restart={restart}{after})",
        again=_AGAIN[restart],
        delay_s=delay or 0.0,
        will=f"{will}; {_stop(said)}",
        main_pid=int(main) if re.fullmatch(r"[1-9][0-9]{0,9}", main) else None,
        settled=state in ("inactive", "failed"),
        # not stop-watchdog, after which it starts it again
        stopping=said.get("SubState", "") in ("stop", "stop-sigterm", "stop-sigkill"),
    )


def handed_on(policy: Policy) -> Policy:
    """The same of a unit whose main process stands there for our own launch's trainer."""
    will = policy.will.replace(_MAIN, f"{_MAIN}, which hands it on to the trainer once")
    return replace(policy, will=will)


def _stop(said: dict[str, str]) -> str:
    number = said.get("KillSignal", "15")
    name = next((n for n, v in NUMBERS.items() if str(v) == number), number.removeprefix("SIG"))
    mode = said.get("KillMode", "")
    # systemd.kill(5): `mixed` sends KillSignal to the main process, and KILL to all that is left
    alone, nobody = mode in ("process", "mixed"), mode == "none"
    whom = _MAIN if alone else "nobody" if nobody else "all of it"
    left = span(said.get("TimeoutStopUSec", ""))
    rest = " to what is left" if mode == "mixed" else ""
    then = f", and KILL{rest} after {_seconds(left)}" if left and not nobody else ""
    return f"`systemctl stop` would send {name} to {whom}{then}"


def span(text: str) -> float | None:
    """`1min 30s`, `100ms`, `5s` into seconds; None for `infinity` and what is no time."""
    parts = _SPAN.findall(text)
    if not parts or _SPAN.sub("", text).strip():
        return None
    return sum(float(number) * _FACTORS[unit] for number, unit in parts)


def _seconds(seconds: float | None) -> str:
    return f"{seconds or 0.0:g} s"


def supervisord_policy(text: str, names: Sequence[str]) -> Policy | None:
    """The program of these configuration files whose command names one of `names`, or their
    only one. supervisord.org/configuration.html: autorestart is `unexpected` where unsaid."""
    programs = _programs(text)
    named = [p for p, said in programs.items() if any(n in said.get("command", "") for n in names)]
    chosen = named or list(programs)
    if len(chosen) != 1:
        return None
    keys = programs[chosen[0]]
    said = keys.get("autorestart", "unexpected").lower()
    again: Again = "always" if said in ("true", "1", "yes", "on") else "never"
    will = "starts it again at once, whatever it returns"
    if again == "never":
        will = "leaves it ended"
    if said == "unexpected":
        codes = keys.get("exitcodes", "0")
        again, will = "failure", f"starts it again unless it exits {codes}; a signal's end counts"
    program = chosen[0]
    stop = f"; `supervisorctl stop {program}` keeps it ended"
    return Policy("supervisord", f"{program} (autorestart={said})", again, 0.0, will + stop)


def _programs(text: str) -> dict[str, dict[str, str]]:
    """Name -> keys of each [program:NAME]; ` ;` begins a comment in a line, `;` or `#` one of
    its own."""
    programs: dict[str, dict[str, str]] = {}
    here: dict[str, str] = {}
    for raw in text.splitlines():
        line = raw.partition(" ;")[0].strip()
        head = re.fullmatch(r"\[(?:program:)?(.*)\]", line)
        if head is not None:
            here = {}
            if line.startswith("[program:"):
                programs[head[1].strip()] = here
        elif "=" in line and not line.startswith((";", "#")):
            key, _, value = line.partition("=")
            here[key.strip()] = value.strip()
    return programs


def included(text: str) -> tuple[str, ...]:
    """The file patterns that a supervisord.conf includes."""
    found = re.search(r"(?ms)^\[include\]\s*$(.*?)(?=^\[|\Z)", text)
    files = re.search(r"(?m)^\s*files\s*=\s*(.+)$", found[1]) if found else None
    return tuple(files[1].split(" ;")[0].split()) if files else ()


def docker_policy(container: str, text: str) -> Policy | None:
    """A docker container's hostconfig.json; None where it could not be read."""
    try:
        said = json.loads(text)["RestartPolicy"]["Name"] or "no"
    except (ValueError, KeyError, TypeError):
        return None
    again: Again = {"always": "always", "unless-stopped": "always", "on-failure": "failure"}.get(
        said, "never"
    )  # type: ignore[assignment]
    will = {
        "always": "starts the container again when its first process ends",
        "failure": "starts the container again when its first process fails",
    }.get(again, "leaves the container ended")
    return Policy("docker", f"container {container[:12]} (restart={said})", again, 0.1, will)
