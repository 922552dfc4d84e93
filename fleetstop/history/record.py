"""What one file of the history says, and how it is read back; knows no directory."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, Literal, Union

import msgspec
from msgspec import Struct

from fleetstop.core.jsonline import line
from fleetstop.core.report import Report
from fleetstop.events import AnyEvent, BlackBox, Event, Snapshot, Started, TargetFinished, Untold

SCHEMA = 1

State = Literal["ended", "interrupted", "running"]


class Record(Struct, frozen=True, kw_only=True):
    """One run. `events` in their order, `started` first; a killed client's has no `report`.

    `unread`: how many events a newer fleetstop wrote that this one does not know.
    """

    schema: int
    version: str
    run: str
    command: str | None = None
    events: tuple[Event, ...] = ()
    snapshots: tuple[Snapshot, ...] = ()
    black_boxes: tuple[BlackBox, ...] = ()
    report: Report | None = None
    unread: int = 0

    @property
    def started(self) -> Started | None:
        return next((each for each in self.events if isinstance(each, Started)), None)

    @property
    def finished(self) -> tuple[TargetFinished, ...]:
        return tuple(each for each in self.events if isinstance(each, TargetFinished))

    @property
    def last_at(self) -> str | None:
        """When the last thing happened that it knows of."""
        return self.events[-1].at if self.events else None

    @property
    def results(self) -> dict[str, str]:
        """Target to result, as far as it came."""
        if self.report is not None:
            return {each.target: _result(each) for each in self.report.targets}
        ends = (each for each in self.events if isinstance(each, TargetFinished))
        return {each.outcome.target: _result(each.outcome) for each in ends}


def _result(outcome: Any) -> str:
    return "interrupted" if outcome.interrupted else outcome.result


def head(run: str, version: str) -> str:
    """The first line of a growing record."""
    return line({"schema": SCHEMA, "version": version, "run": run})


def whole(lines: Iterable[str]) -> bytes:
    """The growing record's lines, each JSON already, as the one file they become."""
    first, *rest = lines
    kinds = [msgspec.json.decode(each, type=_Tagged) for each in rest]
    parts: dict[str, list[str]] = {"events": [], "snapshots": [], "black_boxes": []}
    report = "null"
    for kind, text in zip(kinds, rest, strict=True):
        if kind.event == "report":
            report = text
        else:
            parts[_SHELVES.get(kind.event, "events")].append(text)
    command = line(next((each.command for each in kinds if each.event == "started"), None))
    lists = [f'"{name}":[' + ",\n".join(texts) + "]" for name, texts in parts.items()]
    body = [first[:-1] + f',"command":{command}', *lists, f'"report":{report}' + "}"]
    return (",\n".join(body) + "\n").encode()


class _Tagged(Struct):
    event: str
    command: str | None = None


_SHELVES = {"snapshot": "snapshots", "black_box": "black_boxes"}


class _Stored(Struct, kw_only=True):
    schema: int
    version: str
    run: str
    command: str | None = None
    events: list[msgspec.Raw] = []
    snapshots: list[msgspec.Raw] = []
    black_boxes: list[msgspec.Raw] = []
    report: msgspec.Raw = msgspec.Raw(b"null")


def read(data: bytes) -> Record:
    """A finished file. Raises ValueError where it is none of ours."""
    stored = _stored(data)
    told = [*stored.events, *stored.snapshots, *stored.black_boxes]
    return _made(stored, [*told, stored.report])


def read_growing(data: bytes) -> Record:
    """A file that a client has not finished; its last line may be torn. Raises as `read` does."""
    lines = data.split(b"\n")[:-1]
    if not lines:
        raise ValueError("empty")
    return _made(_stored(lines[0]), lines[1:])


def _stored(data: bytes) -> _Stored:
    try:
        return msgspec.json.decode(data, type=_Stored)
    except msgspec.MsgspecError as error:  # a ValueError in newer msgspec only
        raise ValueError(str(error)) from error


def _made(stored: _Stored, told: Iterable[msgspec.Raw | bytes]) -> Record:
    known: list[AnyEvent] = []
    unread = 0
    for each in told:
        event = _event(bytes(each))
        if event is None:
            unread += each not in (b"null", b"")
        else:
            known.append(event)
    said = [e for e in known if isinstance(e, Event) and not isinstance(e, Untold)]
    started = next((each for each in said if isinstance(each, Started)), None)
    return Record(
        schema=stored.schema,
        version=stored.version,
        run=stored.run,
        command=stored.command or (started.command if started else None),
        events=tuple(said),
        snapshots=tuple(each for each in known if isinstance(each, Snapshot)),
        black_boxes=tuple(each for each in known if isinstance(each, BlackBox)),
        report=next((each for each in known if isinstance(each, Report)), None),
        unread=unread,
    )


def _event(text: bytes) -> AnyEvent | None:
    try:
        return _decoder().decode(text)
    except msgspec.MsgspecError:
        return None


@cache
def _decoder() -> msgspec.json.Decoder[AnyEvent]:
    kinds = [each for each in Event.__subclasses__() if each is not Untold]
    every = (*kinds, *Untold.__subclasses__(), Report)
    return msgspec.json.Decoder(Union[every])  # noqa: UP007 a union of what is known at run time
