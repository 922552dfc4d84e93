from __future__ import annotations

import asyncio
from pathlib import Path

import platformdirs
import pytest

from fleetstop import api, events
from fleetstop.api import Fleet
from fleetstop.api import runs as runs_module
from fleetstop.core.inventory import Container, Host, Inventory, Job, Match, Target
from fleetstop.core.report import Report
from fleetstop.errors import BadUsage
from fleetstop.events import AnyEvent, Emit
from fleetstop.ports import Place
from tests.actions.stage import JOB, job
from tests.fakes.fake_host import FakeHost, Trainer, a_job
from tests.fakes.fake_place import FakeClock

OTHER = Job(name="other", match=Match(script="other.py"), stop_signal="INT")
HOST = Host(name="pve1", ssh="root@pve1")


def inventory(*jobs: Job, protected: bool = False) -> Inventory:
    one = Container("ct200", "pve1", 200, protected=protected, jobs=jobs or (JOB,))
    return Inventory(hosts={"pve1": HOST}, containers={"ct200": one})


class Practice(Fleet):
    """A fleet whose one host is simulated; `opened` are the connections it was asked for."""

    def __init__(self, known: Inventory, emit: Emit) -> None:
        super().__init__(known, emit=emit)
        self.world = FakeHost(FakeClock())
        self.trainer: Trainer = a_job(self.world)
        self._clock = self.world.clock  # type: ignore[assignment]
        self.opened: list[tuple[str, bool]] = []

    async def _open(self, target: Target, *, dry_run: bool, shares: bool) -> Place:
        self.opened.append((target.name, dry_run))
        return self.world.place()


def practice(*jobs: Job, protected: bool = False) -> tuple[Practice, list[AnyEvent]]:
    told: list[AnyEvent] = []
    return Practice(inventory(*jobs, protected=protected), told.append), told


def test_a_stop_begins_with_started_and_ends_with_the_report_it_returns() -> None:
    async def story() -> None:
        fleet, told = practice()
        async with fleet:
            report = await fleet.stop("ct200", graceful=True)
        assert (report.exit_code, [each.result for each in report.targets]) == (0, ["stopped"])
        first = told[0]
        assert isinstance(first, events.Started)
        assert (first.command, first.asked, first.targets) == ("stop", ("ct200",), ("ct200:train",))
        assert first.run == report.run
        assert told[-1] is report
        assert fleet.trainer.heard == ["INT"]
        assert fleet.opened == [("ct200:train", False)]

    asyncio.run(story())


def test_a_dry_run_asks_for_a_dry_place() -> None:
    async def story() -> None:
        fleet, _ = practice()
        report = await fleet.stop("ct200", dry_run=True)
        assert [each.result for each in report.targets] == ["planned"]
        assert fleet.opened == [("ct200:train", True)]
        assert (fleet.world.kills, fleet.world.ledgers) == ([], {})

    asyncio.run(story())


def test_a_status_asks_for_a_dry_place_too() -> None:
    async def story() -> None:
        fleet, told = practice()
        report = await fleet.status("ct200")
        assert [each.result for each in report.targets] == ["running"]
        assert fleet.opened[0][1] is True
        assert isinstance(told[0], events.Started)
        assert told[0].command == "status"

    asyncio.run(story())


def test_protected_ones_are_never_connected_to() -> None:
    async def story() -> None:
        fleet, _ = practice(protected=True)
        report = await fleet.stop("ct200", force=True)
        assert (report.exit_code, fleet.opened) == (5, [])
        assert report.targets[0].reason == "protected in the inventory: never signalled"

    asyncio.run(story())


def test_several_jobs_where_one_was_meant_are_refused_as_a_report() -> None:
    async def story() -> None:
        fleet, told = practice(JOB, OTHER)
        report = await fleet.stop("ct200")
        assert (report.exit_code, fleet.opened) == (5, [])
        assert [type(each) for each in told] == [events.Started, events.TargetFinished, Report]

    asyncio.run(story())


def test_all_jobs_of_a_container_go_one_after_another() -> None:
    async def story() -> None:
        fleet, _ = practice(JOB, OTHER)
        other = Trainer(fleet.world, 1020, 1000, script="other.py", saves=None)
        fleet.world.add(other)
        report = await fleet.stop("ct200", all_jobs=True)
        assert [each.result for each in report.targets] == ["stopped", "stopped"]
        assert (fleet.trainer.heard, other.heard) == (["INT"], ["INT"])
        assert not any("is working on it" in (each.reason or "") for each in report.targets)

    asyncio.run(story())


def test_graceful_never_skips_to_a_lossy_rung_and_force_does() -> None:
    async def story() -> None:
        for facts, result in (({"graceful": True}, "still_running"), ({"force": True}, "stopped")):
            fleet, _ = practice()
            fleet.trainer.hears, fleet.trainer.ignores = set(), {"INT"}
            report = await fleet.stop("ct200", ladder="INT/1s KILL:tree/5s", **facts)  # type: ignore[arg-type]
            assert report.targets[0].result == result
            assert (("KILL", 1010) in fleet.world.kills) is (result == "stopped")

    asyncio.run(story())


def test_graceful_and_force_together_are_a_mistake() -> None:
    fleet, told = practice()
    with pytest.raises(BadUsage, match="contradict"):
        asyncio.run(fleet.stop("ct200", graceful=True, force=True))
    assert (told, fleet.opened) == ([], [])


def test_kill_is_no_stop_signal() -> None:
    fleet, told = practice()
    with pytest.raises(BadUsage, match="KILL"):
        asyncio.run(fleet.stop("ct200", signal="SIGKILL", force=True))
    assert (told, fleet.opened) == ([], [])


def test_a_signal_named_by_hand_is_the_jobs_own_for_once() -> None:
    async def story() -> None:
        fleet, _ = practice(job(stop_signal=None))
        fleet.trainer.hears = {"INT", "TERM"}
        report = await fleet.stop("ct200", signal="SIGTERM")
        assert [each.signal for each in report.targets[0].signals] == ["TERM"]

    asyncio.run(story())


def test_a_listener_that_raises_never_hurts(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[str] = []
    monkeypatch.setattr(runs_module, "log_fault", lambda run, text: kept.append(text))
    heard: list[AnyEvent] = []

    def listener(event: AnyEvent) -> None:
        heard.append(event)
        raise RuntimeError("a listener")

    async def story() -> None:
        fleet = Practice(inventory(), listener)
        report = await fleet.stop("ct200")
        assert report.exit_code == 0
        assert fleet.trainer.heard == ["INT"]
        assert heard[-1] is report
        assert len(kept) == 1
        assert "a listener" in kept[0]

    asyncio.run(story())


def test_an_interruption_is_reported_before_it_passes_on() -> None:
    async def story() -> None:
        fleet, told = practice()
        fleet.trainer._takes_s = 1e6

        def listener(event: AnyEvent) -> None:
            told.append(event)
            if isinstance(event, events.SignalSent):
                work.cancel()

        fleet._emit = listener
        work = asyncio.ensure_future(fleet.stop("ct200", graceful=True))
        with pytest.raises(asyncio.CancelledError):
            await work
        report = told[-1]
        assert isinstance(report, Report)
        assert report.exit_code == 130
        (outcome,) = report.targets
        assert (outcome.interrupted, [each.signal for each in outcome.signals]) == (True, ["INT"])
        assert any(isinstance(each, events.Interrupted) for each in told)

    asyncio.run(story())


def test_every_run_has_an_id_of_its_own() -> None:
    async def story() -> None:
        fleet, _ = practice()
        ids = {(await fleet.status("ct200")).run for _ in range(3)}
        assert len(ids) == 3

    asyncio.run(story())


def test_a_mistake_in_the_selection_is_told_before_anything_begins() -> None:
    fleet, told = practice()
    with pytest.raises(BadUsage):
        asyncio.run(fleet.stop("ct999"))
    with pytest.raises(BadUsage):
        asyncio.run(fleet.stop())
    assert (told, fleet.opened) == ([], [])


def test_a_traceback_is_kept_for_its_owner_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platformdirs, "user_log_dir", lambda _: str(tmp_path / "log"))
    path = api.log_fault("run1", "Traceback: a mistake")
    assert path is not None
    assert Path(path).read_text() == "Traceback: a mistake"
    assert Path(path).stat().st_mode & 0o777 == 0o600


def test_where_no_traceback_can_be_kept_there_is_no_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(platformdirs, "user_log_dir", lambda _: str(tmp_path / "file" / "log"))
    assert api.log_fault("run1", "text") is None
