"""Durations and sizes as people write and read them. Knows no file and no clock."""

from __future__ import annotations

import re

from fleetstop.core.spelling import shown
from fleetstop.errors import BadUsage

FOREVER = float("inf")

_SECONDS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
# Largest unit first, each at most once: `1h30m`. Twelve digits keep every sum finite and exact.
_COMPOUND = re.compile("".join(rf"(?:(?P<{u}>[0-9]{{1,12}}){u}(?![a-z]))?" for u in _SECONDS))
_DECIMAL = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)(d|h|ms|m|s|)")

# The same for who cannot call us (JSON Schema, ECMA 262): at most one of each unit, in order.
_ORDERED = "".join(rf"(?:[0-9]{{1,12}}{unit}(?![a-z]))?" for unit in _SECONDS)
_WRITTEN = rf"{_DECIMAL.pattern.replace('(d|h', '(?:d|h')}|(?=[0-9]){_ORDERED}"
FINITE_PATTERN = rf"^\s*(?:{_WRITTEN})\s*$"
DURATION_PATTERN = rf"^\s*(?:forever|{_WRITTEN})\s*$"

_BYTES: dict[str, int] = {"": 1, "B": 1}
for _power, _letter in enumerate("KMGTP", start=1):
    _BYTES |= {f"{_letter}B": int(1000**_power), f"{_letter}iB": int(1024**_power)}
_SIZE = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?) ?([A-Za-z]*)")


def parse_duration(text: str) -> float:
    """Seconds; `forever` is `FOREVER`, a bare number is seconds. Raises BadUsage."""
    word = text.strip()
    if word == "forever":
        return FOREVER
    if decimal := _DECIMAL.fullmatch(word):
        return float(decimal[1]) * _SECONDS.get(decimal[2], 1.0)
    compound = _COMPOUND.fullmatch(word)
    if not word or compound is None:
        raise BadUsage(
            f"{shown(text)} is not a duration; write 90s, 3m, 1h30m or forever",
            hint="units are d, h, m, s and ms, the largest first; a bare number is seconds",
        )
    return sum(float(count) * _SECONDS[unit] for unit, count in compound.groupdict("0").items())


def spoken(seconds: float) -> str:
    """For people, in the sentences of reasons and findings: `45 s`, `18 min`, `2 h 5 min`."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min".removesuffix(" 0 min")


def written(seconds: float) -> str:
    """A limit as a playbook or an inventory writes it: `3m`, `90s`, `1h30m`, `forever`."""
    if seconds == FOREVER:
        return "forever"
    if seconds != int(seconds) or seconds < 60:
        return f"{seconds:g}s"
    whole = int(seconds)
    if whole % 60:
        return f"{whole}s" if whole < 120 else f"{whole // 60}m{whole % 60}s"
    hours, minutes = whole // 3600, whole % 3600 // 60
    return (f"{hours}h" if hours else "") + (f"{minutes}m" if minutes else "")


def parse_size(text: str) -> int:
    """Bytes; a bare number is bytes, `MiB` counts in 1024, `MB` in 1000. Raises BadUsage."""
    size = _SIZE.fullmatch(text.strip())
    if size is None or size[2] not in _BYTES:
        raise BadUsage(
            f"{shown(text)} is not a size; write 500MiB or 2GiB",
            hint="units are B, KiB, MiB, GiB, TiB and PiB; a bare number is bytes",
        )
    whole, _, fraction = size[1].partition(".")
    unit = _BYTES[size[2]]
    return int(whole) * unit + (int(fraction) * unit // 10 ** len(fraction) if fraction else 0)
