"""The table of `gpus`: for each GPU a row for everybody on it. Knows no stream's tricks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from fleetstop import events as e
from fleetstop.core import redact
from fleetstop.core.report import GpuHolder, GpuRecord, Outcome, Report
from fleetstop.view import words
from fleetstop.view.ending import cost
from fleetstop.view.layout import WIDTH, Line, cells, columns, fold, painted
from fleetstop.view.stream import Outlet

_HEAD = ("GPU", "MEMORY", "HOLDS", "WHO", "PID", "HOST PID", "USER", "UP", "COMMAND")
# what a narrow terminal does without, the least needed first
_SPARE = ("USER", "UP", "HOST PID")
_COMMAND_LEAST = 12


class GpuTable:
    """A listener that writes one table for each host when the report comes."""

    def __init__(
        self,
        stream: TextIO | None,
        *,
        width: int = WIDTH,
        color: bool = False,
        quiet: bool = False,
        verbose: bool = False,
    ) -> None:
        self._out = Outlet(stream)
        self._width, self._color = width, color
        self._quiet, self._verbose = quiet, verbose

    def __call__(self, event: e.AnyEvent) -> None:
        if isinstance(event, Report):
            lines = [line for each in event.targets for line in self._host(each)]
            self._out.write("".join(painted(each, self._color) + "\n" for each in lines))

    def _host(self, outcome: Outcome) -> list[Line]:
        title = fold(Line("", _title(outcome), "head"), self._width)
        if self._quiet:
            return title
        told = [Line("  ! ", redact.text(each), "warn") for each in outcome.findings]
        told += [Line("  next    ", redact.text(outcome.hint))] if outcome.hint else []
        told += cost(outcome) if self._verbose else []
        rest = [part for each in told for part in fold(each, self._width)]
        return title + table(outcome.gpus or (), self._width) + rest


def _title(outcome: Outcome) -> str:
    """`pve1: 8 GPUs, 612/640 GiB in use, 3 idle`."""
    name = redact.text(outcome.target)
    if outcome.gpus is None:
        return f"{name}: {redact.text(outcome.reason or outcome.result)}"
    known = [each for each in outcome.gpus if each.used_mib is not None and each.total_mib]
    used = sum(each.used_mib or 0 for each in known)
    total = sum(each.total_mib or 0 for each in known)
    parts = [words.count(len(outcome.gpus), "GPU")]
    parts += [f"{words.share(used, total)} in use"] if known else []
    unknown = len(outcome.gpus) - len(known)
    parts += [f"{unknown} not known"] if unknown else []
    idle = sum(each.state == "idle" for each in outcome.gpus)
    held = all(each.state == "held" for each in outcome.gpus)
    parts += [f"{idle} idle"] if idle else ["none idle"] if held else []
    return f"{name}: {', '.join(parts)}"


def table(gpus: Sequence[GpuRecord], width: int) -> list[Line]:
    if not gpus:
        return []
    rows = [row for each in gpus for row in _rows(each)]
    head, *texts = _fitting([_HEAD, *rows], width)
    tones = [each.state for each in gpus for _ in _rows(each)]
    bad = ("fault", "unlisted", "unknown")
    lines = [
        Line("", text, "warn" if tone in bad else "plain")
        for text, tone in zip(texts, tones, strict=True)
    ]
    return [Line("", head, "dim"), *lines]


def _rows(gpu: GpuRecord) -> list[tuple[str, ...]]:
    first = (str(gpu.index), _memory(gpu))
    listed = [each for each in gpu.held_by or () if each.listed]
    rows = [_row(each) for each in listed]
    if not rows:
        said = {"fault": gpu.fault or "a fault", "idle": "idle", "unknown": "not known"}
        rows = [("-", said.get(gpu.state or "unknown", "nobody listed"), *"-----")]
    rows += [_row(each) for each in gpu.held_by or () if not each.listed]
    return [(*(first if not n else ("", "")), *each) for n, each in enumerate(rows)]


def _memory(gpu: GpuRecord) -> str:
    if gpu.used_mib is None:
        return "?"
    if gpu.total_mib is None:
        return words.memory(gpu.used_mib)
    return words.share(gpu.used_mib, gpu.total_mib)


def _row(each: GpuHolder) -> tuple[str, ...]:
    held = "?" if each.held_mib is None else words.memory(each.held_mib)
    return (
        held if each.listed else "open",
        _who(each),
        "?" if each.pid is None else str(each.pid),
        "?" if each.host_pid is None else str(each.host_pid),
        redact.safe(each.user or "?"),
        "?" if each.age_s is None else words.uptime(each.age_s),
        _command(each),
    )


def _command(each: GpuHolder) -> str:
    if each.cmd is None:
        return "not shown by the driver" if each.host_pid is None else "has ended"
    return ("orphan: " if each.orphan else "") + redact.text(each.cmd)


def _who(each: GpuHolder) -> str:
    """Its job, else its container by name or number, else the host."""
    if each.job is not None:
        return redact.text(each.job)
    if each.pid is None:
        return "?"
    if each.vmid is None:
        return "host itself"
    return redact.text(each.container or f"container {each.vmid}")


def _fitting(rows: Sequence[tuple[str, ...]], width: int) -> list[str]:
    """Aligned; the spare columns go first, then what is left of the commands is cut."""
    spare = list(_SPARE)
    while True:
        bare = max(cells(each) for each in columns([row[:-1] for row in rows]))
        room = width - bare - 2
        if room >= _COMMAND_LEAST or not spare:
            break
        at = rows[0].index(spare.pop(0))
        rows = [row[:at] + row[at + 1 :] for row in rows]
    most = max(room, _COMMAND_LEAST)
    return columns([(*row[:-1], _cut(row[-1], most)) for row in rows])


def _cut(text: str, most: int) -> str:
    while cells(text) > most:
        text = text[:-2] + "…" if text.endswith("…") else text[:-1] + "…"
    return text
