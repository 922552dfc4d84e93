from __future__ import annotations

import asyncio
import stat
import threading
import time
from pathlib import Path

import pytest

from fleetstop import events
from fleetstop.api import past
from fleetstop.api.fleet import Fleet
from fleetstop.core.jsonline import line
from fleetstop.core.report import Report
from fleetstop.events import AnyEvent, Untold
from fleetstop.history import shelf, writer
from fleetstop.history.recorder import Recorder
from tests.actions.test_api import Practice, practice


def recorded(where: Path) -> tuple[Practice, list[AnyEvent]]:
    fleet, told = practice()
    fleet._records = past.Records(where)
    return fleet, told


def test_a_run_is_recorded_and_the_listener_hears_no_snapshot(tmp_path: Path) -> None:
    async def story() -> Report:
        fleet, told = recorded(tmp_path)
        async with fleet:
            report = await fleet.stop("ct200", graceful=True)
        assert not any(isinstance(each, Untold) for each in told)
        found, state = shelf.find(tmp_path, report.run)
        assert [*found.events, found.report] == told
        assert [each.moment for each in found.snapshots] == ["found", "before INT", "end"]
        assert state == "ended"
        assert fleet.unrecorded is None
        return report

    assert asyncio.run(story()).exit_code == 0


def test_two_runs_at_once_do_not_mix(tmp_path: Path) -> None:
    async def story() -> None:
        fleet, _ = recorded(tmp_path)
        first, second = await asyncio.gather(fleet.status("ct200"), fleet.status("ct200"))
        for report in (first, second):
            found, _ = shelf.find(tmp_path, report.run)
            assert found.report == report
            assert sum(isinstance(each, events.Started) for each in found.events) == 1

    asyncio.run(story())


def test_a_bug_in_the_history_never_hurts_the_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[str] = []
    monkeypatch.setattr(past, "log_fault", lambda run, text: kept.append(text))

    def broken(self: Recorder, event: AnyEvent) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Recorder, "__call__", broken)

    async def story() -> None:
        fleet, told = recorded(tmp_path)
        async with fleet:
            report = await fleet.stop("ct200", graceful=True)
        assert (report.exit_code, told[-1]) == (0, report)
        assert fleet.trainer.heard == ["INT"]
        assert fleet.unrecorded is not None

    asyncio.run(story())
    assert len(kept) == 1
    assert "ZeroDivisionError" in kept[0]


def test_a_state_directory_that_hangs_stops_neither_the_stop_nor_its_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A home on a network disk whose server is away: written in the loop, the first event would
    hang the watching for good."""
    monkeypatch.setattr(past, "ENDS_S", 0.2)
    back = threading.Event()
    write = Recorder._write

    def hanging(self: Recorder, text: str) -> None:
        back.wait(60)
        write(self, text)

    monkeypatch.setattr(Recorder, "_write", hanging)

    async def story() -> str:
        fleet, told = recorded(tmp_path)
        began = time.monotonic()
        async with fleet:
            report = await fleet.stop("ct200", graceful=True)
        assert time.monotonic() - began < 20
        assert (report.exit_code, told[-1]) == (0, report)
        assert fleet.trainer.heard == ["INT"]
        assert fleet.unrecorded == f"{tmp_path} does not answer"
        return report.run

    run = asyncio.run(story())
    back.set()  # the server is there again: what was kept back is written, in order
    deadline = time.monotonic() + 20
    while not (tmp_path / f"{run}.json").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    found, state = shelf.find(tmp_path, run)
    assert (state, len(found.snapshots)) == ("ended", 3)
    assert isinstance(found.events[0], events.Started)


def test_what_a_hanging_disk_keeps_back_is_bounded_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past, "ENDS_S", 0.1)
    monkeypatch.setattr(writer, "MOST", 3)
    back = threading.Event()
    monkeypatch.setattr(Recorder, "_write", lambda self, text: back.wait(60))

    async def story() -> None:
        fleet, told = recorded(tmp_path)
        async with fleet:
            report = await fleet.stop("ct200", graceful=True)
        assert (report.exit_code, told[-1]) == (0, report)
        assert fleet.unrecorded == f"{tmp_path} does not answer"

    asyncio.run(story())
    back.set()


def test_without_a_thread_to_be_had_there_is_no_record_and_the_stop_is_as_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", none)

    async def story() -> None:
        fleet, told = recorded(tmp_path)
        async with fleet:
            report = await fleet.stop("ct200", graceful=True)
        assert (report.exit_code, told[-1]) == (0, report)
        assert fleet.unrecorded is not None

    asyncio.run(story())


def test_on_a_sound_disk_every_event_is_written_before_it_is_told(tmp_path: Path) -> None:
    async def story() -> None:
        fleet, _ = recorded(tmp_path)
        behind: list[str] = []

        def listening(event: AnyEvent) -> None:
            for path in tmp_path.glob("*.partial"):
                if line(event) not in path.read_text():
                    behind.append(line(event))

        fleet._emit = listening
        async with fleet:
            await fleet.stop("ct200", graceful=True)
        assert len(behind) <= 1  # the report, which is told first

    asyncio.run(story())


def test_an_interrupted_run_and_one_with_a_bug_leave_a_readable_record(tmp_path: Path) -> None:
    async def story() -> None:
        fleet, told = recorded(tmp_path)
        async with fleet:
            work = asyncio.ensure_future(fleet.wait("ct200"))
            while not any(isinstance(each, events.Waiting) for each in told):
                await asyncio.sleep(0)
            work.cancel()
            with pytest.raises(asyncio.CancelledError):
                await work
        (path,) = tmp_path.iterdir()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        found, state = shelf.find(tmp_path, path.name[:8])
        assert state == "interrupted"
        assert found.report is not None

    asyncio.run(story())


def test_a_wait_sends_nothing_and_asks_for_a_dry_place() -> None:
    async def story() -> None:
        fleet, told = practice()
        fleet.world.later(5.0, lambda: fleet.world.end(fleet.trainer))
        report = await fleet.wait("ct200", timeout_s=60.0)
        assert [each.result for each in report.targets] == ["not_running"]
        assert isinstance(told[0], events.Started)
        assert told[0].command == "wait"
        assert fleet.opened == [("ct200:train", True)]
        assert (fleet.world.kills, fleet.world.ledgers) == ([], {})

    asyncio.run(story())


def test_loading_says_whether_runs_are_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (tmp_path / "fleet.yaml").write_text("hosts: {pve1: {ssh: root@pve1}}\n")
    assert past.records_directory() == tmp_path / "fleetstop/runs"
    for record in (True, False):
        fleet = Fleet.load(tmp_path / "fleet.yaml", record=record)
        assert (fleet._records._directory == past.records_directory()) is record
