"""Signal names, mask arithmetic, and how a signal would land. Knows no process table.

Numbers are Linux's generic ones (signal(7), x86 and arm). Bit n-1 of a mask in
/proc/PID/status is signal n (proc(5)).
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct

Landing: TypeAlias = Literal["heard", "ignored", "blocked", "fatal"]

# What a playbook may send. STOP, TSTP and CONT are no requests to end; CONT is ours alone.
NUMBERS: dict[str, int] = {
    "HUP": 1,
    "INT": 2,
    "QUIT": 3,
    "ABRT": 6,
    "KILL": 9,
    "USR1": 10,
    "USR2": 12,
    "ALRM": 14,
    "TERM": 15,
}
# Worst last. A rung that reaches several counts as the worst of them.
_ORDER: tuple[Landing, ...] = ("heard", "ignored", "blocked", "fatal")


class Masks(Struct, frozen=True):
    """One process's signal state. `blocked` is what every thread blocks, None: not seen."""

    pending: int
    blocked: int | None
    ignored: int
    caught: int


def canonical(name: str) -> str | None:
    """`SIGINT`, `int`, `2` -> `INT`; None for what cannot be sent."""
    text = name.strip().upper().removeprefix("SIG")
    number = text.lstrip("0")
    return next((each for each in NUMBERS if text == each or number == str(NUMBERS[each])), None)


def has(mask: int, signal: str) -> bool:
    return bool(mask >> (NUMBERS[signal] - 1) & 1)


def named(mask: int) -> tuple[str, ...]:
    """The signals of a mask by name, by number where we have none for it."""
    names = {number: name for name, number in (*NUMBERS.items(), ("STOP", 19), ("CONT", 18))}
    return tuple(names.get(bit + 1, str(bit + 1)) for bit in range(64) if mask >> bit & 1)


def landing(masks: Masks, signal: str, *, namespace_init: bool = False) -> Landing:
    """How `signal` would land on a process with these masks now.

    `namespace_init`: PID 1 of its own PID namespace, for which every unhandled signal but
    KILL is discarded by the kernel (pid_namespaces(7)).
    """
    if signal == "KILL":
        return "fatal"
    if has(masks.ignored, signal):
        return "ignored"
    # Not seen for every thread: the leader's own mask cannot prove deafness, so it is not used.
    if masks.blocked is not None and has(masks.blocked, signal):
        return "blocked"
    if has(masks.caught, signal):
        return "heard"
    return "ignored" if namespace_init else "fatal"


def worst(landings: list[Landing]) -> Landing:
    """The landing a whole rung counts as; `landings` is not empty."""
    return max(landings, key=_ORDER.index)
