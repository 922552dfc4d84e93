"""Numbers as people say them: durations, ages, sizes, lists of indexes. Knows no event."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo

from fleetstop.core.durations import written

KIB, MIB, GIB, TIB = 1024, 1024**2, 1024**3, 1024**4
NAMES_SHOWN = 6


def elapsed(seconds: float) -> str:
    """How long something took: `0.4 s`, `25 s`, `3 min 36 s`, `1 h 2 min`."""
    if not math.isfinite(seconds):
        return "?"
    seconds = max(seconds, 0.0)
    if seconds < 9.95:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return _two(whole // 60, "min", whole % 60, "s")
    if whole < 172_800:
        return _two(whole // 3600, "h", whole % 3600 // 60, "min")
    return _two(whole // 86_400, "d", whole % 86_400 // 3600, "h")


def _two(much: int, unit: str, little: int, small: str) -> str:
    return f"{much} {unit} {little} {small}" if little else f"{much} {unit}"


def uptime(seconds: float) -> str:
    """How long something runs: `3d 4h`, `4h 12m`, `12m`, `45s`."""
    if not math.isfinite(seconds):
        return "?"
    whole = max(int(seconds), 0)
    days, hours, minutes = whole // 86_400, whole % 86_400 // 3600, whole % 3600 // 60
    if days:
        return f"{days}d {hours}h" if hours else f"{days}d"
    if hours:
        return f"{hours}h {minutes}m" if minutes else f"{hours}h"
    return f"{minutes}m" if minutes else f"{whole}s"


def age(seconds: float) -> str:
    """One unit is enough: `2 s`, `18 min`, `5 h`, `3 d`."""
    if not math.isfinite(seconds):
        return "?"
    whole = max(seconds, 0.0)
    for limit, unit, name in ((90, 1, "s"), (5400, 60, "min"), (129_600, 3600, "h")):
        if whole < limit:
            return f"{round(whole / unit)} {name}"
    return f"{round(whole / 86_400)} d"


def wait(seconds: float | None) -> str:
    """A limit as a playbook writes it; None: there is none."""
    return written(math.inf if seconds is None else seconds)


def patience(seconds: float | None) -> str:
    """`up to 3m`, or that there is no limit."""
    limit = wait(seconds)
    return "as long as it takes" if limit == "forever" else f"up to {limit}"


def size(count: float) -> str:
    """Bytes: `17 B`, `126 MiB`, `18.4 GiB`."""
    for unit, name in ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if count >= unit:
            value = count / unit
            return f"{value:.0f} {name}" if value >= 99.95 else f"{value:.1f} {name}"
    return f"{count:.0f} B"


def memory(mib: int) -> str:
    """GPU memory: whole GiB from 10 on, else as `size` says it."""
    return f"{round(mib / 1024)} GiB" if mib >= 10 * 1024 else size(mib * MIB)


def share(held: int, total: int) -> str:
    """`612/768 GiB`."""
    if total < 10 * 1024:
        return f"{held}/{total} MiB"
    return f"{round(held / 1024)}/{round(total / 1024)} GiB"


def indexes(numbers: Sequence[int]) -> str:
    """`0-7`, `0-3,6`."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{a}-{b}" if a < b else f"{a}" for a, b in runs)


def pids(numbers: Sequence[int]) -> str:
    """`26982, 26990`; many are said as `101-108`, or cut and counted."""
    if len(numbers) <= NAMES_SHOWN:
        return ", ".join(str(each) for each in numbers)
    ranges = indexes(numbers)
    if ranges.count(",") < NAMES_SHOWN:
        return ranges
    first = ", ".join(str(each) for each in numbers[:3])
    return f"{first} … {numbers[-1]} ({len(numbers)} in all)"


def count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def moment(at: str) -> datetime | None:
    """An event's `at`; None where it cannot be read."""
    try:
        read = datetime.fromisoformat(at)
    except ValueError:
        return None
    return read if read.tzinfo else read.replace(tzinfo=UTC)


def clock(at: str, zone: tzinfo | None) -> str:
    """Local `14:02:11`; `zone` None is the machine's own."""
    read = moment(at)
    return read.astimezone(zone).strftime("%H:%M:%S") if read else "--:--:--"


def between(earlier: str, later: str) -> float:
    """Seconds from one `at` to another; 0 where one cannot be read."""
    first, second = moment(earlier), moment(later)
    return (second - first).total_seconds() if first and second else 0.0
