"""The list of past runs, and one run told again from its record. Knows no file."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import tzinfo
from typing import TextIO

from fleetstop.core import redact
from fleetstop.core.report import Report
from fleetstop.core.signals import NUMBERS, has
from fleetstop.events import AnyEvent, BlackBox, Boxed, Started
from fleetstop.view import words
from fleetstop.view.gpus import GpuTable
from fleetstop.view.layout import WIDTH, Line, columns, fact
from fleetstop.view.lines import Lines
from fleetstop.view.table import StatusTable

_TITLES = ("RUN", "WHEN", "COMMAND", "TARGETS", "RESULT", "EXIT")
_SHOWN_FILES = 8


def row(
    run: str,
    at: str | None,
    command: str | None,
    targets: Sequence[str],
    results: dict[str, str],
    state: str,
    exit_code: int | None,
    *,
    zone: tzinfo | None = None,
) -> tuple[str, ...]:
    names = ", ".join(targets[:2]) + (f" +{len(targets) - 2}" if len(targets) > 2 else "")
    code = "-" if exit_code is None else str(exit_code)
    what = redact.safe(command or "?", 20)
    return (run, day(at, zone), what, redact.text(names, 40), _result(results, state), code)


def table(rows: Sequence[tuple[str, ...]], target: str | None = None) -> list[str]:
    """`target`: the one that the runs were asked of."""
    if rows:
        return columns([_TITLES, *rows])
    return [f"no runs with {redact.text(target)}" if target else "no runs yet"]


def _result(results: dict[str, str], state: str) -> str:
    """`stopped`, `2 stopped, 1 refused`; a run that never reported says so."""
    counts: dict[str, int] = {}
    for each in results.values():
        counts[each] = counts.get(each, 0) + 1
    several = len(results) > 1
    told = ", ".join(f"{n} {w}" if several else w for w, n in counts.items()).replace("_", " ")
    if state == "running":
        return "under way" + (f" ({told})" if told else "")
    if state == "interrupted" and "interrupted" not in counts:
        return "interrupted" + (f" ({told})" if told else "")
    return told or "-"


def day(at: str | None, zone: tzinfo | None = None) -> str:
    """Local `2025-03-04 14:02:10`."""
    read = words.moment(at) if at else None
    return read.astimezone(zone).strftime("%Y-%m-%d %H:%M:%S") if read else "?"


def title(
    run: str, started: Started | None, version: str, state: str, zone: tzinfo | None = None
) -> list[Line]:
    """What was asked, when, and of which fleetstop."""
    if started is None:
        return [Line("", f"run {run}: nothing is left of its beginning", "head")]
    asked = " ".join(redact.text(each) for each in started.asked or started.targets)
    said = f"run {run}: {redact.safe(started.command)} {asked}, {day(started.at, zone)}"
    lines = [Line("", f"{said}, fleetstop {redact.safe(version)}", "head")]
    if state == "running":
        lines.append(Line("  ! ", "it is still under way; this is what is known so far", "warn"))
    return lines


def replay(
    events: Sequence[AnyEvent],
    report: Report | None,
    stream: TextIO,
    *,
    color: bool = False,
    width: int = WIDTH,
    zone: tzinfo | None = None,
) -> None:
    """The run's own screen again, through the same views."""
    command = next((each.command for each in events if isinstance(each, Started)), None)
    told = [*events, *([report] if report is not None else [])]
    if command in ("status", "gpus"):
        kind = StatusTable if command == "status" else GpuTable
        table = kind(stream, width=width, color=color)
        for event in told:
            table(event)
        return
    with Lines(stream, color=color, width=width, zone=zone) as lines:
        for event in told:
            lines(event)


def unfinished(last: str | None, zone: tzinfo | None = None) -> Line:
    """The client was ended before it could report."""
    when = f"; the last it noted was at {words.clock(last, zone)}" if last else ""
    text = f"interrupted: the client went away without a report{when}. What it sent stands above."
    return Line("", text, "bad")


def black_box(box: BlackBox, zone: tzinfo | None = None) -> list[Line]:
    """What was kept before a signal that may lose work."""
    name, at = redact.text(box.target or "?"), words.clock(box.at, zone)
    head = f"black box of {name}, {at}, before {redact.safe(box.before)}"
    lines = [Line("", head, "head")]
    for each in box.processes:
        lines += _process(each)
    lines += _block("log", box.log, 6) + _block("gpus", box.nvidia_smi, 20)
    return lines + [Line("  ! ", redact.text(each), "warn") for each in box.missing]


def _process(each: Boxed) -> list[Line]:
    one = each.process
    lines = [fact(one.role, f"{one.pid} {redact.text(one.cmd)}")]
    if one.state is None:
        return [*lines, fact("", "gone by then")]
    sleeps = f", sleeps in {redact.safe(each.wchan)}" if each.wchan not in (None, "0") else ""
    state = f"state {redact.safe(one.state)}{sleeps}, {words.count(one.threads or 0, 'thread')}"
    lines.append(fact("", state))
    pairs = (
        ("ignored", one.ignored),
        ("caught", one.caught),
        ("blocked", one.blocked),
        ("pending", one.pending),
    )
    masks = "; ".join(f"{name} {_mask(mask)}" for name, mask in pairs)
    lines.append(fact("", f"signals {masks}"))
    lines += [fact("", redact.text(frame.strip())) for frame in each.stack]
    if each.files is None:
        return [*lines, fact("", "open files: unseen")]
    paths = [redact.text(file.path) for file in each.files if file.path.startswith("/")]
    named = list(dict.fromkeys(path for path in paths if not path.startswith("/dev/null")))
    more = f" +{len(named) - _SHOWN_FILES}" if len(named) > _SHOWN_FILES else ""
    return [*lines, fact("", f"open: {', '.join(named[:_SHOWN_FILES]) or 'no file'}{more}")]


def _mask(mask: str | None) -> str:
    """`HUP, INT, QUIT (1001007)`: those that matter by name, all of them in hexadecimal, where
    bit n-1 is signal n (proc(5))."""
    try:
        bits = int(mask or "", 16)
    except ValueError:
        return "unseen"
    names = ", ".join(name for name in NUMBERS if has(bits, name))
    return f"{names or 'none of ours'} ({bits:x})" if bits else "none"


def _block(label: str, texts: Sequence[str] | None, most: int) -> list[Line]:
    lines = [each for each in texts or () if each.strip()][-most:]
    return [fact(label if at == 0 else "", redact.text(each)) for at, each in enumerate(lines)]
