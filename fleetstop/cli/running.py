"""From parsed options to an exit code: listeners, the event loop, errors for people."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TypeVar

from fleetstop.api import Fleet
from fleetstop.api.given import Selects
from fleetstop.cli import early
from fleetstop.core.durations import FOREVER, parse_duration
from fleetstop.core.inventory import Match
from fleetstop.core.report import Report
from fleetstop.errors import BadUsage, FleetstopError
from fleetstop.events import AnyEvent, Emit
from fleetstop.view.choose import colored, headed, people
from fleetstop.view.json_lines import JsonLines, line
from fleetstop.view.listing import listed
from fleetstop.view.listing import listing as table
from fleetstop.view.stream import Outlet
from fleetstop.view.table import StatusTable

if TYPE_CHECKING:
    from fleetstop.cli.asking import Terminal

Given = Mapping[str, Any]
Table = Callable[..., Emit]
T = TypeVar("T")
_NO_INVENTORY = (
    "no inventory yet; looked at $FLEETSTOP_INVENTORY, ./inventory/fleet*.yaml and the user "
    "config directory\n  next  an address needs none: fleetstop status root@HOST/VMID "
    "--script train.py\n"
)


def run_stop(**given: Any) -> int:
    async def work(fleet: Fleet) -> Report:
        if given["playbook"] is not None and given["ladder"] is not None:
            raise BadUsage("--playbook and --ladder exclude each other; a ladder is a playbook")
        return await fleet.stop(
            *named(given),
            graceful=given["graceful"],
            force=given["force"],
            max_loss=given["max_loss"],
            after_checkpoint=given["after_checkpoint"],
            at_most=given["at_most"],
            dry_run=given["dry_run"],
            playbook=given["playbook"],
            ladder=given["ladder"],
            signal=given["signal"],
            timeout=given["timeout"],
            break_lock=given["break_lock"],
            batch=given["batch"],
            max_failures=given["max_failures"],
            gpu=given["gpu"],
            **selected(given),
        )

    return operate(given, work, table=None)


def run_status(**given: Any) -> int:
    async def work(fleet: Fleet) -> Report:
        return await fleet.status(*named(given), stacks=given["stacks"], **selected(given))

    return operate(given, work, table=StatusTable)


def run_gpus(**given: Any) -> int:
    from fleetstop.view.gpus import GpuTable

    async def work(fleet: Fleet) -> Report:
        return await fleet.gpus(*given["targets"])

    return operate(given, work, table=GpuTable)


def run_wait(**given: Any) -> int:
    async def work(fleet: Fleet) -> Report:
        return await fleet.wait(
            *named(given),
            until=given["until"],
            timeout_s=limit(given["timeout"]),
            **selected(given),
        )

    return operate(given, work, table=None)


def limit(text: str | None) -> float | None:
    """Seconds of `--timeout`; None: none was given, or `forever`."""
    seconds = FOREVER if text is None else parse_duration(text)
    return None if seconds == FOREVER else seconds


def listing(**given: Any) -> int:
    try:
        fleet = Fleet.load(given["inventory"])
        words = given["targets"]
        chosen = fleet.select(words, purpose="status") if words else None
    except FleetstopError as exc:
        return complain(exc)
    out = Outlet(sys.stdout)
    if not fleet.inventory.hosts:
        Outlet(sys.stderr).write(_NO_INVENTORY)
    names = None if chosen is None else [each.name for each in chosen]
    if given["as_json"] or given["events"]:
        told = {"event": "listing", "schema": 1, "targets": listed(fleet.inventory, names)}
        out.write(line(told | {"groups": fleet.inventory.groups}) + "\n")
    else:
        for text in headed(table(fleet.inventory, names), sys.stdout, no_color=given["no_color"]):
            out.write(text + "\n")
    out.flush()
    return 0


def named(given: Given) -> tuple[str, ...]:
    """Of the command line, and of --targets-from."""
    stream = given["targets_from"]
    if stream is None:
        return tuple(given["targets"])
    try:
        lines = stream.read().splitlines()
    except (OSError, UnicodeDecodeError) as exc:
        raise BadUsage(f"--targets-from {stream.name} cannot be read: {exc}") from exc
    words = [word for line in lines for word in line.partition("#")[0].split()]
    if not words:
        raise BadUsage(f"--targets-from {stream.name} names no target")
    return (*given["targets"], *words)


def selected(given: Given) -> Selects:
    which = Selects(match=matched(given))
    for name in ("tags", "failed_in", "limit", "exclude", "all_jobs"):
        if name in given:
            which[name] = given[name]
    return which


def matched(given: Given) -> Match | None:
    named = [key for key in ("script", "pgrep", "pid") if given.get(key) is not None]
    if not named:
        return None
    if len(named) > 1:
        raise BadUsage(f"--{named[0]} and --{named[1]} exclude each other; name the job once")
    return Match(**{named[0]: given[named[0]]})


def operate(
    given: Given, work: Callable[[Fleet], Awaitable[Report]], *, table: Table | None
) -> int:
    """Runs one operation; the report's exit code, or the error's."""
    reported = False

    def heard(event: AnyEvent) -> None:
        nonlocal reported
        reported = reported or isinstance(event, Report)

    try:
        return _operated(given, work, table=table, heard=heard)
    except (KeyboardInterrupt, asyncio.CancelledError):
        if (given["as_json"] or given["events"]) and not reported:
            early.report()
        return 130


def _operated(
    given: Given, work: Callable[[Fleet], Awaitable[Report]], *, table: Table | None, heard: Emit
) -> int:
    with ExitStack() as stack:
        someone = None if table is not None else _someone(given)
        emit = _fan_out([_listeners(given, stack, table=table, first=someone), heard])
        try:
            fleet = Fleet.load(
                given["inventory"],
                emit=emit,
                parallel=given["parallel"],
                confirm=someone.confirm if someone else None,
                choose=someone.choose if someone else None,
            )
            stack.callback(tell_unrecorded, fleet)
            return asyncio.run(work_alone(fleet, work)).exit_code
        except FleetstopError as exc:
            return complain(exc)


def tell_unrecorded(fleet: Fleet) -> None:
    """One line; it changes no exit code."""
    if fleet.unrecorded is not None:
        Outlet(sys.stderr).write(f"fleetstop: this run left no whole record: {fleet.unrecorded}\n")


async def work_alone(fleet: Fleet, work: Callable[[Fleet], Awaitable[T]]) -> T:
    """One operation, with its connections closed behind it."""
    task = asyncio.current_task()
    assert task is not None
    # a supervisor's TERM and a terminal that closes are interruptions like Ctrl-C: tell, give the
    # lock back, go; under nohup HUP stays ignored
    for each in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(each) is not signal.SIG_IGN:
            asyncio.get_running_loop().add_signal_handler(each, task.cancel)
    async with fleet:
        return await work(fleet)


def _someone(given: Given) -> Terminal | None:
    from fleetstop.cli.asking import at_terminal

    return at_terminal(given, sys.stdout)


def _listeners(
    given: Given, stack: ExitStack, *, table: Table | None, first: Terminal | None = None
) -> Emit:
    machine = given["as_json"] or given["events"]
    stream = sys.stderr if machine else sys.stdout
    listeners: list[Emit] = [] if first is None else [first]
    if machine:
        listeners.append(JsonLines(sys.stdout, events=given["events"]))
    if table is not None:
        color = colored(stream, no_color=given["no_color"], environ=os.environ)
        loud = {"quiet": given["quiet"], "verbose": given["verbose"]}
        listeners.append(table(stream, width=_width(), color=color, **loud))
    else:
        listeners.append(
            stack.enter_context(
                people(
                    stream,
                    quiet=given["quiet"],
                    verbose=given["verbose"],
                    no_color=given["no_color"],
                )
            )
        )
    return _fan_out(listeners)


def _width() -> int:
    import shutil

    return max(60, shutil.get_terminal_size((104, 40)).columns)


def _fan_out(listeners: Sequence[Emit]) -> Emit:
    """Each hears every event; one that fails keeps the others hearing."""

    def emit(event: AnyEvent) -> None:
        failed: Exception | None = None
        for listener in listeners:
            try:
                listener(event)
            except Exception as exc:
                failed = exc
        if failed is not None:
            raise failed

    return emit


def complain(exc: FleetstopError) -> int:
    """What, where, next; on stderr."""
    from fleetstop.core.redact import text

    err = Outlet(sys.stderr)
    err.write(f"fleetstop: {text(exc.message)}\n")
    if exc.hint:
        err.write(f"  next  {text(exc.hint)}\n")
    err.flush()
    return exc.exit_code
