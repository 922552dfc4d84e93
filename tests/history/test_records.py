from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from fleetstop import events
from fleetstop.core.report import Report
from fleetstop.errors import BadUsage, CouldNotLook
from fleetstop.events import AnyEvent, SeenProcess
from fleetstop.history import record, shelf
from fleetstop.history.recorder import HOLD_EVERY_S, Recorder
from tests.view import scenes as s

RUN = "7f3a0001"
SNAPSHOT = events.Snapshot(
    at=s.at("14:02:11"), target=s.T, moment="found", verdict="busy", evidence=("CPU 90 %",),
    processes=(SeenProcess(26982, 1826982, 7, "trainer", "python3 train.py", "busy", "S"),),
)  # fmt: skip
BOX = events.BlackBox(
    at=s.at("14:02:12"), target=s.T, before="KILL",
    processes=(
        events.Boxed(SNAPSHOT.processes[0], "do_sleep", (events.Opened(3, "/a.pt", "100001", 7),)),
    ),
    log=("step 1",), nvidia_smi=None, seconds=0.2, missing=("nvidia-smi: status 31",),
)  # fmt: skip


def told(where: Path, story: list[AnyEvent], run: str = RUN) -> Recorder:
    recorder = Recorder(where, run)
    for event in story:
        recorder(event)
    assert recorder.problem is None
    return recorder


def test_a_run_becomes_one_file_that_is_its_owner_s_alone(tmp_path: Path) -> None:
    where = tmp_path / "state/runs"
    told(where, [*s.POLITE[:3], SNAPSHOT, BOX, *s.POLITE[3:]])
    (path,) = where.iterdir()
    assert path.name == f"{RUN}.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(where.stat().st_mode) == 0o700
    found = record.read(path.read_bytes())
    assert list(found.events) == s.POLITE[:-1]
    assert (found.snapshots, found.black_boxes) == ((SNAPSHOT,), (BOX,))
    assert found.report == s.POLITE[-1]
    assert (found.run, found.command, found.schema, found.unread) == (RUN, "stop", 1, 0)


def test_every_event_is_on_the_disk_before_the_next_one(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, RUN)
    for count, event in enumerate(s.POLITE[:4], start=1):
        recorder(event)
        lines = (tmp_path / f"{RUN}.partial").read_bytes().splitlines()
        assert len(lines) == count + 1
    found, state = shelf.find(tmp_path, RUN)
    assert (state, found.report) == ("running", None)
    recorder.close()
    found, state = shelf.find(tmp_path, RUN)
    assert state == "interrupted"
    assert list(found.events) == s.POLITE[:4]


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    told(tmp_path, s.POLITE[:3]).close()
    path = tmp_path / f"{RUN}.partial"
    path.write_bytes(path.read_bytes() + b'{"event": "signal_se')
    found, _ = shelf.find(tmp_path, RUN)
    assert list(found.events) == s.POLITE[:3]


def test_a_client_killed_hard_leaves_it_readable_and_unlocked(tmp_path: Path) -> None:
    code = (
        "import sys, time\nfrom pathlib import Path\n"
        "from fleetstop.history.recorder import Recorder\n"
        "from tests.view import scenes as s\n"
        f"recorder = Recorder(Path({str(tmp_path)!r}), {RUN!r})\n"
        "for event in s.POLITE[:5]:\n    recorder(event)\n"
        "print('there', flush=True)\ntime.sleep(60)\n"
    )
    client = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert client.stdout is not None
    assert client.stdout.readline() == "there\n"
    assert shelf.find(tmp_path, RUN)[1] == "running"
    client.kill()
    client.wait()
    assert shelf.find(tmp_path, RUN)[1] == "interrupted"


def test_secrets_never_reach_the_disk(tmp_path: Path) -> None:
    told(tmp_path, s.HOSTILE_EVENTS)
    assert "Zq9xW3vK7pLm2RtY" not in (tmp_path / f"{RUN}.json").read_text()


def test_a_long_hold_is_thinned_but_never_its_change(tmp_path: Path) -> None:
    holds = [s.held(f"14:02:{n:02}", "saving", f"{n} GiB") for n in range(20)]
    change = s.held("14:02:19", "saving", "19 GiB", over=True)
    told(tmp_path, [s.POLITE[0], *holds, change, *s.finished("14:03:00", "stopped")])
    kept = [e for e in shelf.find(tmp_path, RUN)[0].events if isinstance(e, events.Holding)]
    assert [each.evidence[0] for each in kept[:-1]] == ["0 GiB", "5 GiB", "10 GiB", "15 GiB"]
    assert kept[-1] == change
    assert HOLD_EVERY_S == 5.0


def test_a_large_file_on_its_way_is_kept_every_few_seconds(tmp_path: Path) -> None:
    story: list[AnyEvent] = [
        events.Staging(
            at=f"2026-03-01T14:{second // 60:02d}:{second % 60:02d}.{tenth}00Z",
            target=s.T,
            sent=second * 4 + tenth,
            size=400,
            files=1,
            same=0,
        )
        for second in range(100)
        for tenth in range(4)
    ]
    last = msgspec.structs.replace(story[-1], sent=400)
    told(tmp_path, [*story, last, s.POLITE[-1]])
    kept = [e for e in shelf.find(tmp_path, RUN)[0].events if isinstance(e, events.Staging)]
    assert (kept[0].sent, kept[-1].sent) == (0, 400)
    assert len(kept) == 21


def test_a_disk_that_is_full_is_told_and_ends_the_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = told(tmp_path, s.POLITE[:2])

    def full(fd: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    for event in s.POLITE[2:]:
        recorder(event)
    assert recorder.problem is not None
    assert recorder.problem.startswith("No space left on device")
    assert not (tmp_path / f"{RUN}.json").exists()


def test_a_run_id_twice_never_overwrites(tmp_path: Path) -> None:
    first = told(tmp_path, s.POLITE[:3])
    second = Recorder(tmp_path, RUN)
    second(s.POLITE[0])
    assert second.problem is not None
    first.close()
    assert list(shelf.find(tmp_path, RUN)[0].events) == s.POLITE[:3]


# the shelf


def finished(where: Path, run: str, command: str, minute: int) -> None:
    told(where, [s.started(command), *s.finished("14:02:36", "stopped")], run)
    stamp = time.time() - 100_000 + minute * 60
    os.utime(where / f"{run}.json", (stamp, stamp))


def test_the_newest_come_first_and_one_target_s_only(tmp_path: Path) -> None:
    for number, command in enumerate(("stop", "status", "wait")):
        finished(tmp_path, f"0000000{number}", command, number)
    found = shelf.runs(tmp_path, limit=2)
    assert [(each.run, each.command) for each in found] == [
        ("00000002", "wait"),
        ("00000001", "status"),
    ]
    assert found[0].results == {s.T: "stopped"}
    assert (found[0].state, found[0].exit_code) == ("ended", 0)
    assert len(shelf.runs(tmp_path, limit=9, target="ct200")) == 3
    assert shelf.runs(tmp_path, limit=9, target="ct20") == ()
    assert shelf.runs(tmp_path / "nowhere", limit=9) == ()


def test_an_interrupted_run_says_so(tmp_path: Path) -> None:
    told(tmp_path, s.INTERRUPTED)
    (entry,) = shelf.runs(tmp_path, limit=9)
    assert (entry.state, entry.exit_code) == ("interrupted", 130)


def test_a_prefix_is_enough_where_it_names_one(tmp_path: Path) -> None:
    finished(tmp_path, "00aa0000", "stop", 1)
    finished(tmp_path, "00ab0000", "stop", 2)
    assert shelf.find(tmp_path, "00ab")[0].run == "00ab0000"
    with pytest.raises(BadUsage, match="2 runs begin"):
        shelf.find(tmp_path, "00")
    for wrong in ("ff", "", "../x", "00ab0000.json"):
        with pytest.raises(BadUsage, match="no run"):
            shelf.find(tmp_path, wrong)


def test_old_runs_go_looks_before_deeds_and_nothing_that_is_not_ours(tmp_path: Path) -> None:
    finished(tmp_path, "00000000", "stop", 0)
    for number in range(1, 5):
        finished(tmp_path, f"0000000{number}", "status", number)
    finished(tmp_path, "00000009", "stop", 9)
    foreign = [tmp_path / name for name in ("notes.json", "deadbeef.txt", "0000000a.json.bak")]
    for path in foreign:
        path.write_text("mine")
    growing = told(tmp_path, s.POLITE[:2], "0000000b")
    os.utime(tmp_path / "0000000b.partial", (0, 0))
    shelf.tidy(tmp_path, keep=2)
    left = sorted(each.name for each in tmp_path.iterdir())
    assert left == sorted(
        ["00000000.json", "00000003.json", "00000004.json", "00000009.json", "0000000b.partial"]
        + [each.name for each in foreign]
    )
    growing.close()
    shelf.tidy(tmp_path, keep=2)
    assert not (tmp_path / "0000000b.partial").exists()


def test_what_a_newer_version_wrote_is_counted_not_lost(tmp_path: Path) -> None:
    told(tmp_path, s.POLITE)
    path = tmp_path / f"{RUN}.json"
    text = path.read_text().replace('"events":[', '"events":[{"event":"teleported","at":"x"},')
    found = record.read(text.replace('"schema":1', '"schema":2', 1).encode())
    assert (found.unread, found.schema) == (1, 2)
    assert list(found.events) == s.POLITE[:-1]


def test_a_file_that_is_no_record_is_left_out_and_named(tmp_path: Path) -> None:
    (tmp_path / "00000001.json").write_text("{}")
    (tmp_path / "00000002.partial").write_text("")
    assert shelf.runs(tmp_path, limit=9) == ()
    with pytest.raises(BadUsage, match="cannot be read"):
        shelf.find(tmp_path, "00000001")


def test_every_event_there_is_can_be_read_back(tmp_path: Path) -> None:
    stories = [s.SLOW, s.DEAF_FORCE, s.AGAIN, s.DRY_POLITE, s.FAULT, s.REFUSED, s.RANKS]
    for number, story in enumerate(stories):
        run = f"0000000{number}"
        told(tmp_path, story, run)
        found, _ = shelf.find(tmp_path, run)
        assert found.unread == 0
        assert isinstance(found.report, Report)
        kinds = [type(each) for each in found.events]
        assert kinds == [type(e) for e in story if not isinstance(e, events.Holding | Report)] or (
            events.Holding in kinds
        )


def test_the_list_is_by_when_they_began_and_what_cannot_be_read_is_not_empty(
    tmp_path: Path,
) -> None:
    """A long run ends after a short one that began later."""
    early, late = "00000001", "00000002"
    told(tmp_path, [s.started("stop"), *s.finished("14:02:36", "stopped")], early)
    began = s.started("status")
    later = msgspec.structs.replace(began, at=began.at.replace("T14:", "T15:"))
    told(tmp_path, [later, *s.finished("15:02:36", "stopped")], late)
    os.utime(tmp_path / f"{late}.json", (1.0, 1.0))
    assert [each.run for each in shelf.runs(tmp_path, limit=9)] == [late, early]
    (tmp_path / "file").write_text("")
    with pytest.raises(CouldNotLook, match="cannot be read: Not a directory"):
        shelf.runs(tmp_path / "file", limit=9)
