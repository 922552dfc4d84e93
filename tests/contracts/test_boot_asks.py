"""The verbs of boot.sh that ask a job in another way than by a signal, in each shell."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetstop.core.process import ProcessId
from tests.contracts import test_boot_verbs as verbs
from tests.contracts.test_boot_verbs import Started, ask, dead, play, still_runs, who, word
from tests.fakes.local_channel import LocalShell

SOON = "9" * 9  # no machine is up so long, in seconds
kind, target, started = verbs.kind, verbs.target, verbs.started


async def note(local: LocalShell, target: str, word_: str, *ids: ProcessId) -> tuple[int, str]:
    words = [w for each in ids for w in (str(each.pid), str(each.start), "-", "-")]
    answer = await ask(local, "note", target, "run", "1", word_, "asked", "-", "host", *words)
    return answer.status, answer.data.decode()


@pytest.mark.parametrize("what", ["RUN", "TOUCH", "KEYS"])
def test_an_ask_is_noted_like_a_signal_and_nobody_is_killed(
    kind: str, started: Started, target: str, what: str
) -> None:
    async def story(local: LocalShell) -> None:
        jobs = [started.sleeper(), started.sleeper()]
        await ask(local, "claim", target, "run", "me")
        status, said = await note(local, target, what, *map(who, jobs))
        assert (status, said.split()[0], said.split()[-1]) == (0, "noted", "0")
        last = verbs.ledger_text(target).splitlines()[-1].split()
        assert last[:4] == ["send", "1", what, "asked"]
        assert last[5:] == [word(who(job)) for job in jobs]
        assert still_runs(*jobs)

    play(kind, story)


def test_no_ask_can_be_sent_as_a_signal(kind: str, started: Started, target: str) -> None:
    async def story(local: LocalShell) -> None:
        job = started.sleeper()
        await ask(local, "claim", target, "run", "me")
        before = verbs.ledger_text(target)
        assert (await verbs.send(local, target, "RUN", who(job))).status == 2
        assert (await note(local, target, "RUN", who(job), dead(started)))[0] == 10
        gone = ProcessId(job.pid, who(job).start + 1)
        assert (await note(local, target, "RUN", gone))[0] == 10
        assert verbs.ledger_text(target) == before
        assert still_runs(job)

    play(kind, story)


def test_no_line_no_ask(kind: str, started: Started, target: str) -> None:
    async def story(local: LocalShell) -> None:
        assert (await note(local, target, "RUN", who(started.sleeper())))[0] == 20

    play(kind, story)


def test_touch_makes_a_file_and_tells_when_it_cannot(kind: str, tmp_path: Path) -> None:
    async def story(local: LocalShell) -> None:
        for name in ("STOP", "-rf", "a b $(x) '\"\n`"):
            assert (await ask(local, "before", SOON, "touch", str(tmp_path / name))).status == 0
            assert (tmp_path / name).exists()
        assert (await ask(local, "before", SOON, "touch", str(tmp_path / "no/dir"))).status == 44
        (tmp_path / "dangling").symlink_to(tmp_path / "yet")
        for name in ("STOP", "-rf", "new", "dangling", "a b $(x) '\"\n`"):
            assert (await ask(local, "touchable", str(tmp_path / name))).status == 0
        assert not (tmp_path / "new").exists()
        assert (await ask(local, "touchable", "/STOP")).status == 0
        for place in (str(tmp_path / "no/dir"), str(tmp_path / "STOP/file"), "/proc/STOP"):
            told = (await ask(local, "touchable", place)).status
            assert told == 44 or (told == 0 and place == "/proc/STOP")
        assert (await ask(local, "hello")).status == 0

    play(kind, story)


def test_whether_a_command_is_there_is_seen_without_running_it(kind: str, tmp_path: Path) -> None:
    async def story(local: LocalShell) -> None:
        made = tmp_path / "a b $(x)"
        made.write_text("#!/bin/sh\ntouch ran\n")
        for there in ("cat", "cd", "/bin/cat"):
            assert (await ask(local, "runnable", there)).status == 0
        assert (await ask(local, "runnable", str(made))).status == 126
        assert (await ask(local, "runnable", str(tmp_path))).status == 126
        made.chmod(0o755)
        assert (await ask(local, "runnable", str(made))).status == 0
        for none in ("no-such-program", "-v", str(tmp_path / "none"), "$(touch x)"):
            assert (await ask(local, "runnable", none)).status == 127
        assert list(tmp_path.iterdir()) == [made]
        assert (await ask(local, "hello")).status == 0

    play(kind, story)


def test_an_ask_that_comes_late_is_none(kind: str, tmp_path: Path) -> None:
    async def story(local: LocalShell) -> None:
        up = int((await ask(local, "clock")).data.removeprefix(b"uptime:").partition(b".")[0])
        mark = tmp_path / "STOP"
        for words in (("touch", str(mark)), ("run", "1000", f"touch {mark}"), ("keys", "x", "1")):
            for latest in (str(up - 2), "", "x"):
                late = [latest] if latest else []
                answer = await ask(local, "before", *late, *words)
                assert answer.status in (2, 13)
        for verb in ("hello", "forget", "endtree"):
            assert (await ask(local, "before", SOON, verb, "x", "y")).status == 2
        assert not mark.exists()
        assert (await ask(local, "before", str(up + 60), "touch", str(mark))).status == 0
        assert mark.exists()

    play(kind, story)


async def ended(local: LocalShell, where: str, seconds: float = 20.0) -> list[str]:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        answer = await ask(local, "ran", where)
        if answer.status != 47:
            assert answer.status == 0
            return answer.data.decode().splitlines()
        await asyncio.sleep(0.05)
    raise AssertionError("it still runs")


async def begun(local: LocalShell, text: str, ms: int = 30_000) -> str:
    answer = await ask(local, "before", SOON, "run", str(ms), text)
    assert answer.status == 0
    return answer.data.decode().strip()


def test_a_command_runs_beside_the_frames_and_tells_its_status_and_words(kind: str) -> None:
    async def story(local: LocalShell) -> None:
        where = await begun(local, "echo one; echo '$HOME \"two\"'; exit 7")
        assert await ended(local, where) == ["7", "one", '$HOME "two"']
        assert not Path(where).exists()
        slow = await begun(local, "sleep 1; echo done")
        assert (await ask(local, "ran", slow)).status == 47
        assert (await ask(local, "hello")).status == 0  # it blocks no other frame
        assert await ended(local, slow) == ["0", "done"]
        assert (await ask(local, "ran", slow)).status == 40
        assert (await ask(local, "ran", "/tmp")).status == 2

    play(kind, story)


def test_a_command_is_ended_with_its_children_when_its_time_is_up(
    kind: str, tmp_path: Path
) -> None:
    async def story(local: LocalShell) -> None:
        mark = tmp_path / "pid"
        text = f"sleep 300 & echo $! >{mark}; wait"
        where = await begun(local, text, ms=500)
        assert (await ended(local, where))[0] == "late"
        child = int(mark.read_text())
        until = time.monotonic() + 10
        while _lives(child) and time.monotonic() < until:
            await asyncio.sleep(0.05)
        assert not _lives(child)

    play(kind, story)


def test_a_command_killed_by_somebody_is_lost_and_waited_for_no_longer(
    kind: str, tmp_path: Path
) -> None:
    async def story(local: LocalShell) -> None:
        mark = tmp_path / "pid"
        # its own parent is the subshell that would have written the status
        where = await begun(local, f"echo $PPID >{mark}; kill -9 $PPID; sleep 0.5")
        assert (await ended(local, where))[0] == "lost"

    play(kind, story)


def test_a_command_eats_no_frame_and_outlives_the_shell(kind: str, tmp_path: Path) -> None:
    done = tmp_path / "done"
    places: list[str] = []

    async def story(local: LocalShell) -> None:
        places.append(await begun(local, f"cat; sleep 1; touch {done}"))
        assert (await ask(local, "hello")).status == 0
        local.channel.eof()
        until = time.monotonic() + 15
        while not done.exists() and time.monotonic() < until:
            await asyncio.sleep(0.1)
        assert done.exists()

    play(kind, story)
    shutil.rmtree(places[0])  # nobody asked for its words


def _lives(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] not in "ZX"


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """On a server of its own: one leaves with its last session, while another is made on it."""
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    sockets = tempfile.mkdtemp(prefix="fst-", dir="/tmp")
    monkeypatch.setenv("TMUX_TMPDIR", sockets)
    name = f"fs{os.getpid()}-{tmp_path.name[-20:]}"
    for window in ("first", "second"):
        text = f"cat >{tmp_path}/{window}"
        words = (
            ["new-session", "-d", "-s", name] if window == "first" else ["new-window", "-t", name]
        )
        subprocess.run(["tmux", *words, text], check=True, stdin=subprocess.DEVNULL)
    yield name
    subprocess.run(["tmux", "kill-session", "-t", f"={name}"], check=False)
    shutil.rmtree(sockets)


def _panes(session: str) -> list[str]:
    done = subprocess.run(
        ["tmux", "list-panes", "-s", "-t", f"={session}", "-F", "#{pane_pid}"],
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.split()


def test_keys_reach_the_named_pane_alone(kind: str, session: str, tmp_path: Path) -> None:
    async def story(local: LocalShell) -> None:
        first, _ = _panes(session)
        subprocess.run(["tmux", "copy-mode", "-t", f"={session}:0"], check=True)
        answer = await ask(
            local, "before", SOON, "keys", session, f"{first},1", "q $(x) -n", "Enter", "C-d"
        )
        assert answer.status == 0
        until = time.monotonic() + 10
        while first in _panes(session) and time.monotonic() < until:
            await asyncio.sleep(0.05)
        assert (tmp_path / "first").read_text() == "q $(x) -n\n"
        assert (tmp_path / "second").read_text() == ""
        assert (await ask(local, "before", SOON, "keys", session, "1", "x")).status == 46
        assert (
            await ask(local, "before", SOON, "keys", "nobody-has-this", first, "x")
        ).status == 46

    play(kind, story)


def test_a_dead_pane_names_nobody(kind: str, session: str, tmp_path: Path) -> None:
    """It keeps its process's PID (remain-on-exit), which may be a stranger's by now."""

    async def story(local: LocalShell) -> None:
        first, second = _panes(session)
        for words in (["set", "-w", "-t", f"={session}:0", "remain-on-exit", "on"],
                      ["send-keys", "-t", f"={session}:0", "C-d"]):  # fmt: skip
            subprocess.run(["tmux", *words], check=True)
        until = time.monotonic() + 30
        while _lives(int(first)) and time.monotonic() < until:
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.3)
        assert first in _panes(session)
        assert (await ask(local, "panes", session)).data.split() == [second.encode()]
        assert (await ask(local, "before", SOON, "keys", session, first, "x")).status == 46

    play(kind, story)
