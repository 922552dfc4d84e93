"""The container's own PIDs and the host's: answers and words carried from one to the other."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_NSPID = re.compile(rb"^/proc/(\d{1,10})/status:NSpid:\s+\d{1,10}\s+(\d{1,10})\b", re.MULTILINE)
_START = re.compile(rb"(?P<begin>^|[\n\0])/proc/(?P<pid>\d{1,10})/(?P<main>task/(?P=pid)/)?")


def inner_pids(look: bytes) -> dict[int, int]:
    """Host PID -> the container's own, from the answer of `look` (proc(5), NSpid)."""
    return {int(each[1]): int(each[2]) for each in _NSPID.finditer(look)}


def from_inside(answer: bytes, inner: Mapping[int, int]) -> bytes:
    """An answer of `argv` or `detail` given inside, as the host would have given it.

    Whoever has no number outside was not asked for, and is left under a PID that nobody has. Of
    the threads only the first is found by its number: it is the process's own.
    """
    outer = {inside: outside for outside, inside in inner.items()}

    def renamed(found: re.Match[bytes]) -> bytes:
        pid = outer.get(int(found["pid"]), 0)
        main = b"task/%d/" % pid if found["main"] else b""
        return found["begin"] + b"/proc/%d/" % pid + main

    return _START.sub(renamed, answer)


def strike_words(
    send: tuple[str, ...], inner: Mapping[int, int], latest: int
) -> tuple[str, ...] | None:
    """The words of `send` as `strike` takes them inside; None where somebody has no number there.

    The start times are the same inside and outside (no time namespace in LXC).
    """
    signal, resume, recipients = send[3], send[5], send[7:]
    words: list[str] = []
    for at in range(0, len(recipients), 4):
        if recipients[at + 3].startswith("+"):
            continue  # it stands in the ledger's line only
        pid = inner.get(int(recipients[at]))
        if pid is None:
            return None
        words += [str(pid), *recipients[at + 1 : at + 4]]
    return (str(latest), signal, resume, *words)


def known_inside(words: Iterable[str], inner: Mapping[int, int]) -> tuple[str, ...]:
    """These host PIDs (`deep:` ones too) by the container's numbers; those that have none are
    left out."""
    known: list[str] = []
    for each in words:
        deep, colon, pid = each.rpartition(":")
        if int(pid) in inner:
            known.append(f"{deep}{colon}{inner[int(pid)]}")
    return tuple(known)
