"""Every verb of boot.sh that looks at or signals processes, in each shell a host may have."""

from __future__ import annotations

import asyncio
import os
import random
import secrets
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import pytest

from fleetstop.actions import looks
from fleetstop.actions.lock import Lock
from fleetstop.actions.telling import Run
from fleetstop.core.commands import Answer, Command
from fleetstop.core.gpus.openers import parse_openers
from fleetstop.core.ledger import Ledger, heard_before, parse_ledger, spent
from fleetstop.core.process import ProcessId
from fleetstop.core.procfs import parse_argv, parse_detail, parse_look
from fleetstop.errors import CouldNotLook, FrameTimedOut, Refused
from fleetstop.lab import Lab
from fleetstop.lab.processes import identify
from fleetstop.remote.container import is_frozen
from fleetstop.remote.shell import FramedShell
from tests.fakes.fake_place import FakeClock, FakePlace
from tests.fakes.local_channel import SHELLS, LocalShell, is_installed, local_shell

LOCKS = Path("/run/lock")
Story: TypeAlias = Callable[[LocalShell], Awaitable[None]]


@pytest.fixture(params=sorted(SHELLS))
def kind(request: pytest.FixtureRequest) -> str:
    if not is_installed(request.param):
        pytest.skip(f"{request.param} is not installed")
    return str(request.param)


@pytest.fixture
def target() -> Iterator[str]:
    """The name of a lock directory that nobody else has; a VMID that no node would give."""
    name = str(random.randrange(10**11, 10**12))
    yield name
    place = LOCKS / f"fleetstop.{name}"
    if place.is_symlink():
        place.unlink()
    shutil.rmtree(place, ignore_errors=True)


class Started:
    """Processes of this test; whatever is left of them ends with it."""

    def __init__(self) -> None:
        self.all: list[subprocess.Popen[bytes]] = []

    def run(self, *argv: str, ready: bool = False) -> subprocess.Popen[bytes]:
        """`ready`: returns when it has written a first line."""
        pipe = subprocess.PIPE if ready else subprocess.DEVNULL
        job = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            start_new_session=True,
            restore_signals=True,
        )
        self.all.append(job)
        if ready:
            assert job.stdout is not None
            assert job.stdout.readline()
        return job

    def sleeper(self) -> subprocess.Popen[bytes]:
        return self.run("sleep", "60")

    def zombie(self) -> subprocess.Popen[bytes]:
        job = self.run("true")
        os.waitid(os.P_PID, job.pid, os.WEXITED | os.WNOWAIT)
        return job

    def python(self, text: str) -> subprocess.Popen[bytes]:
        return self.run(sys.executable, "-S", "-c", text, ready=True)

    def end(self) -> None:
        for job in self.all:
            with suppress(ProcessLookupError):
                os.killpg(job.pid, signal.SIGKILL)
            job.wait()
            if job.stdout is not None:
                job.stdout.close()


@pytest.fixture
def started() -> Iterator[Started]:
    jobs = Started()
    yield jobs
    jobs.end()


def play(kind: str, story: Story, *, env: dict[str, str] | None = None) -> None:
    async def whole() -> None:
        async with local_shell(kind, env=env) as local:
            await asyncio.wait_for(story(local), 40)

    asyncio.run(whole())


async def ask(local: LocalShell, verb: str, *words: str, seconds: float = 10.0) -> Answer:
    return await local.framed.run(Command(verb, words, deadline_s=seconds))


def who(job: subprocess.Popen[bytes] | int) -> ProcessId:
    found = identify(job if isinstance(job, int) else job.pid)
    assert found is not None
    return ProcessId(found.pid, found.start)


def word(each: ProcessId, later: int = 0) -> str:
    return f"{each.pid}:{each.start + later}"


def dead(started: Started) -> ProcessId:
    job = started.sleeper()
    was = who(job)
    job.kill()
    job.wait()
    return was


# ------------------------------------------------------------------------------------- watch


def test_watch_waits_while_all_are_the_same(kind: str, started: Started) -> None:
    async def story(local: LocalShell) -> None:
        ids = [word(who(started.sleeper())) for _ in range(3)]
        began = time.monotonic()
        assert await ask(local, "watch", "500", *ids) == Answer(status=0, data=b"")
        took = time.monotonic() - began
        # five naps of 100 ms, and what the looks between them cost on a busy machine
        assert 0.5 <= took < 5

    play(kind, story)


def test_watch_tells_gone_other_and_zombie_apart(kind: str, started: Started) -> None:
    async def story(local: LocalShell) -> None:
        gone, other, zombie = dead(started), who(started.sleeper()), who(started.zombie())
        alive = word(who(started.sleeper()))
        answer = await ask(local, "watch", "2000", word(gone), word(other, 1), word(zombie), alive)
        lines = answer.data.decode().splitlines()
        assert answer.status == 0
        assert lines == [f"{word(gone)} 3 ", f"{word(other, 1)} 4 S", f"{word(zombie)} 0 Z"]

    play(kind, story)


def test_watch_looks_as_often_as_asked(kind: str, started: Started) -> None:
    """`MS/EVERY_MS`: a process that ends is told with the next look, not before."""

    async def story(local: LocalShell) -> None:
        alive = word(who(started.sleeper()))
        for every, least in (("50", 0.2), ("1500", 1.5)):
            begun = time.monotonic()
            answer = await ask(local, "watch", f"200/{every}", alive)
            assert answer == Answer(status=0, data=b"")
            assert least <= time.monotonic() - begun < least + 2

    play(kind, story)


_LEADER_ENDS = """
import ctypes, os, platform, threading, time
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
print("ready", flush=True)
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[platform.machine()], 0)
"""


def test_a_dead_leader_with_living_threads_is_alive(
    kind: str, started: Started, target: str
) -> None:
    job = started.python(_LEADER_ENDS)
    stat = Path(f"/proc/{job.pid}/stat")
    while stat.read_text().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.01)

    async def story(local: LocalShell) -> None:
        assert (await ask(local, "watch", "100", word(who(job)))).data == b""
        await ask(local, "claim", target, "run", "me")
        assert (await send(local, target, "TERM", who(job))).status == 0
        assert job.wait(5) == -signal.SIGTERM

    play(kind, story)


def test_watch_notices_an_end_at_once(kind: str, started: Started) -> None:
    async def story(local: LocalShell) -> None:
        job = started.sleeper()
        waiting = asyncio.create_task(
            ask(local, "watch", "2000", word(who(started.sleeper())), word(who(job)))
        )
        await asyncio.sleep(0.3)
        job.kill()
        ended = time.monotonic()
        assert (await waiting).data == f"{word(who(job))} 0 Z\n".encode()
        assert time.monotonic() - ended < 1.5

    play(kind, story)


_NAME = "a) 1 2 Z (b"


def test_a_name_with_brackets_and_newlines_hides_nothing(kind: str, started: Started) -> None:
    text = (
        "import time; open('/proc/self/comm', 'w').write({!r}); print(flush=True); time.sleep(60)"
    )

    async def story(local: LocalShell) -> None:
        for name in (_NAME, "x\n) Z 1", "* ?"):
            job = started.python(text.format(name))
            assert (await ask(local, "watch", "0", word(who(job)))).data == b""
            tree = parse_look((await ask(local, "look", "pids", str(job.pid))).data, 100)
            assert tree is not None
            assert tree.processes[job.pid].id == who(job)

    play(kind, story)


@pytest.mark.bed
def test_an_unreadable_proc_is_unknown_and_never_gone(
    kind: str, started: Started, target: str, bed: None
) -> None:
    async def whole() -> None:
        private = ("unshare", "-m", "--propagation", "private")
        async with local_shell(kind, before=private) as local:
            await ask(local, "claim", target, "run", "me")
            job = started.sleeper()
            inside = ["nsenter", "-t", str(local.pid), "-m"]
            subprocess.run([*inside, "mount", "-t", "tmpfs", "none", "/proc"], check=True)
            told = await ask(local, "watch", "500", word(who(job)))
            assert told == Answer(status=0, data=f"{word(who(job))} 5 \n".encode())
            assert (await send(local, target, "TERM", who(job))).status == 10
            for verb, words in [("look", ("host",)), ("ledger", (target,))]:
                assert (await ask(local, verb, *words)).status == 9
            assert job.poll() is None

    asyncio.run(whole())


class Cage:
    """A control group whose PID limit is what it holds already: no fork succeeds in it."""

    def __init__(self, place: Path) -> None:
        self._place = place

    def close_around(self, pid: int) -> None:
        (self._place / "cgroup.procs").write_text(str(pid))
        (self._place / "pids.max").write_text("1")

    def open(self) -> None:
        (self._place / "pids.max").write_text("max")


@pytest.fixture
def cage(bed: None) -> Iterator[Cage]:
    top = Path("/sys/fs/cgroup/pids")
    if not top.is_dir():
        top = Path("/sys/fs/cgroup")
        control = top / "cgroup.subtree_control"
        if not control.exists() or "pids" not in control.read_text().split():
            pytest.skip("the pids controller is not to be had here")
    place = top / f"fleetstop-test-{secrets.token_hex(4)}"
    place.mkdir()
    yield Cage(place)
    deadline = time.monotonic() + 5.0
    while place.exists():
        with suppress(OSError):
            place.rmdir()
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.bed
def test_with_no_pids_left_nothing_reads_as_gone(
    kind: str, started: Started, target: str, cage: Cage
) -> None:
    async def story(local: LocalShell) -> None:
        await ask(local, "claim", target, "run", "me")
        alive, heard, was = who(started.sleeper()), started.sleeper(), dead(started)
        cage.close_around(local.pid)
        gone = await ask(local, "watch", "500", word(was), word(alive))
        assert gone == Answer(status=0, data=f"{word(was)} 3 \n".encode())
        assert (await send(local, target, "TERM", who(heard))).status == 0
        assert heard.wait(5) == -signal.SIGTERM
        if kind == "bash":
            # bash tries to fork for 15 s and ends: that is unknown as well
            with pytest.raises(FrameTimedOut):
                await ask(local, "watch", "500", word(alive), seconds=1.0)
            return
        assert await ask(local, "watch", "500", word(alive)) == Answer(status=8, data=b"")
        assert (await ask(local, "look", "host")).status != 0
        assert (await ask(local, "gpus", "100")).status != 0
        cage.open()
        assert await ask(local, "watch", "100", word(alive)) == Answer(status=0, data=b"")
        assert (await ask(local, "look", "host")).status == 0

    play(kind, story)


# -------------------------------------------------------------------------------------- send


async def send(
    local: LocalShell,
    target: str,
    sig: str,
    *ids: ProcessId,
    masks: tuple[str, str] = ("-", "-"),
    cont: str = "-",
    scope: str = "host",
    run: str = "run",
) -> Answer:
    words = [target, run, "1", sig, "heard", cont, scope]
    for each in ids:
        words += [str(each.pid), str(each.start), *masks]
    return await ask(local, "send", *words)


def ledger_text(target: str, run: str = "run") -> str:
    return (LOCKS / f"fleetstop.{target}" / run).read_text()


def still_runs(*jobs: subprocess.Popen[bytes]) -> bool:
    time.sleep(0.1)
    return all(job.poll() is None for job in jobs)


def test_a_signal_is_noted_and_sent(kind: str, started: Started, target: str) -> None:
    async def story(local: LocalShell) -> None:
        jobs = [started.sleeper(), started.sleeper()]
        ids = [who(job) for job in jobs]
        assert (await ask(local, "claim", target, "run", "me")).status == 0
        answer = await send(local, target, "TERM", *ids)
        assert answer.status == 0
        assert answer.data.startswith(b"sent ")
        assert [job.wait(5) for job in jobs] == [-signal.SIGTERM] * 2
        last = ledger_text(target).splitlines()[-1].split()
        assert last[:4] == ["send", "1", "TERM", "heard"]
        assert last[5:] == [word(each) for each in ids]

    play(kind, story)


def test_a_signal_goes_to_all_or_to_none(kind: str, started: Started, target: str) -> None:
    async def story(local: LocalShell) -> None:
        await ask(local, "claim", target, "run", "me")
        before = ledger_text(target)
        first, second, third = (started.sleeper() for _ in range(3))
        changed = ProcessId(third.pid, who(third).start + 1)
        for bad in (changed, dead(started), who(started.zombie())):
            answer = await send(local, target, "KILL", who(first), who(second), bad)
            assert answer.status == 10
            assert answer.data.decode().startswith(word(bad))
        assert still_runs(first, second, third)
        assert ledger_text(target) == before

    play(kind, story)


def test_what_is_no_pid_of_a_job_is_refused(kind: str, started: Started, target: str) -> None:
    async def story(local: LocalShell) -> None:
        await ask(local, "claim", target, "run", "me")
        before, job = ledger_text(target), started.sleeper()
        good = (str(job.pid), str(who(job).start), "-", "-")
        head = (target, "run", "1", "TERM", "heard", "-", "host")
        for bad in ("0", "1", "-1", f"-{job.pid}", "00", "01", f"0{job.pid}", "abc", "self", "1 2"):
            assert (await ask(local, "send", *head, bad, "1", "-", "-")).status == 2, bad
            assert (await ask(local, "send", *head, *good, bad, "1", "-", "-")).status == 2, bad
        assert (await ask(local, "send", *head)).status == 2
        assert (await ask(local, "send", *head, *good, str(job.pid))).status == 2
        assert (await ask(local, "send", *head[:3])).status != 0
        assert still_runs(job)
        assert ledger_text(target) == before

    play(kind, story)


def test_a_pid_outside_the_container_is_refused(kind: str, started: Started, target: str) -> None:
    async def story(local: LocalShell) -> None:
        await ask(local, "claim", target, "run", "me")
        before, job = ledger_text(target), started.sleeper()
        answer = await send(local, target, "TERM", who(job), scope="lxc:999999999")
        assert (answer.status, answer.data) == (11, f"{word(who(job))} scope\n".encode())
        assert still_runs(job)
        assert ledger_text(target) == before

    play(kind, story)


@pytest.mark.bed
def test_scopes_of_a_real_container(kind: str, lab: Lab, target: str) -> None:
    vmid = lab.vmids[0]
    before = lab.host_pids(vmid)
    lab.exec(vmid, ["setsid", "-f", "sh", "-c", "exec sleep 60 >/dev/null 2>&1 </dev/null"])
    deadline = time.monotonic() + 5
    while not (new := [p for p in lab.host_pids(vmid) - before if _comm(p) == "sleep"]):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    job = who(new[0])

    async def story(local: LocalShell) -> None:
        await ask(local, "claim", target, "run", "me")
        for scope in ("host", f"lxc:{str(vmid)[:-1]}", f"lxc:{vmid}0", "lxc:*", "lxc:", "both"):
            assert (await send(local, target, "KILL", job, scope=scope)).status == 11, scope
        assert identify(job.pid) is not None
        seen = parse_look((await ask(local, "look", f"lxc:{vmid}")).data, 100)
        other = parse_look((await ask(local, "look", f"lxc:{str(vmid)[:-1]}")).data, 100)
        assert seen is not None
        assert other is not None
        assert seen.processes[job.pid].id == job
        assert os.getpid() not in seen.processes
        assert job.pid not in other.processes
        assert (await send(local, target, "KILL", job, scope=f"lxc:{vmid}")).status == 0

    play(kind, story)


@pytest.mark.bed
def test_one_hierarchy_in_a_container_is_enough_to_be_no_process_of_the_host(
    kind: str, started: Started, target: str, bed: None
) -> None:
    """On cgroup v1 a process has a line for each controller, and any of them may be the last."""
    top = Path("/sys/fs/cgroup/pids")
    if not top.is_dir():
        pytest.skip("cgroup v2 has one hierarchy")
    vmid = target[:9]
    place = top / "lxc" / vmid
    place.mkdir(parents=True)
    job = started.sleeper()
    (place / "cgroup.procs").write_text(str(job.pid))

    async def story(local: LocalShell) -> None:
        await ask(local, "claim", target, "run", "me")
        assert (await send(local, target, "KILL", who(job), scope="host")).status == 11
        assert still_runs(job)
        assert (await send(local, target, "KILL", who(job), scope=f"lxc:{vmid}")).status == 0
        job.wait(5)

    try:
        play(kind, story)
    finally:
        started.end()
        place.rmdir()
        with suppress(OSError):
            place.parent.rmdir()


def _comm(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


_HANDLES = """
import signal, sys, time
signal.signal(signal.SIGUSR1, lambda *_: open(sys.argv[1] + "/usr1", "w").close())
signal.signal(signal.SIGTERM, signal.SIG_DFL)
print("ready", flush=True)
while True: time.sleep(0.02)
"""


def masks_of(pid: int) -> tuple[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return fields["SigIgn"].strip(), fields["SigCgt"].strip()


def handler(started: Started, tmp_path: Path) -> subprocess.Popen[bytes]:
    return started.run(sys.executable, "-S", "-c", _HANDLES, str(tmp_path), ready=True)


def appears(path: Path) -> bool:
    deadline = time.monotonic() + 5
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    return path.exists()


def test_who_hears_it_from_another_stands_in_the_line_and_gets_no_signal(
    kind: str, started: Started, target: str, tmp_path: Path
) -> None:
    async def story(local: LocalShell) -> None:
        await ask(local, "claim", target, "run", "me")
        launcher, rank = started.sleeper(), handler(started, tmp_path)
        ignored, caught = masks_of(rank.pid)

        async def through(expected: str) -> Answer:
            words = [target, "run", "1", "USR1", "heard", "-", "host"]
            for job, masks in ((launcher, ("-", "-")), (rank, (ignored, f"+{expected}"))):
                words += [str(job.pid), str(who(job).start), *masks]
            return await ask(local, "send", *words)

        before = ledger_text(target)
        assert (await through("0" * 16)).status == 12
        assert ledger_text(target) == before
        assert (await through(caught)).status == 0
        assert ledger_text(target).splitlines()[-1].split()[5:] == [
            f"{job.pid}:{who(job).start}" for job in (launcher, rank)
        ]
        time.sleep(0.2)
        assert not (tmp_path / "usr1").exists()
        assert launcher.wait(10) != 0  # USR1 has ended a sleeper

    play(kind, story)


def test_changed_masks_stop_the_signal(
    kind: str, started: Started, target: str, tmp_path: Path
) -> None:
    async def story(local: LocalShell) -> None:
        await ask(local, "claim", target, "run", "me")
        before, job = ledger_text(target), handler(started, tmp_path)
        ignored, caught = masks_of(job.pid)
        nothing = "0" * 16
        for masks in ((ignored, nothing), ("f" * 16, caught), ("-", nothing)):
            answer = await send(local, target, "USR1", who(job), masks=masks)
            assert answer.status == 12
            assert answer.data.decode().split()[1:] == ["masks", ignored, caught]
        time.sleep(0.1)
        assert not (tmp_path / "usr1").exists()
        assert ledger_text(target) == before
        for masks in ((ignored, caught), ("-", caught), (ignored, "-"), ("-", "-")):
            assert (await send(local, target, "USR1", who(job), masks=masks)).status == 0
            assert appears(tmp_path / "usr1")
            (tmp_path / "usr1").unlink()

    play(kind, story)


def test_no_line_written_no_signal_sent(kind: str, started: Started, target: str) -> None:
    place = LOCKS / f"fleetstop.{target}"

    async def story(local: LocalShell) -> None:
        job = started.sleeper()
        assert (await send(local, target, "TERM", who(job))).status == 20  # no directory
        await ask(local, "claim", target, "run", "me")
        assert (await send(local, target, "TERM", who(job), run="other")).status == 20
        assert (await send(local, target, "TERM", who(job), run="../run")).status == 20
        (place / "run").unlink()
        assert (await send(local, target, "TERM", who(job))).status == 20
        (place / "run").symlink_to("elsewhere")
        (place / "elsewhere").write_text("")
        assert (await send(local, target, "TERM", who(job))).status == 20
        assert still_runs(job)
        assert (place / "elsewhere").read_text() == ""

    play(kind, story)


@pytest.fixture
def full_disk(target: str, bed: None) -> Iterator[Callable[[], None]]:
    """The lock directory as a file system of its own, and what fills it to the last byte."""
    place = LOCKS / f"fleetstop.{target}"
    place.mkdir(mode=0o1777)
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k,mode=1777", "none", str(place)]
    subprocess.run(mount, check=True)

    def fill() -> None:
        page = os.sysconf("SC_PAGE_SIZE")
        run = place / "run"
        with run.open("a") as stream:
            stream.write("x" * (-run.stat().st_size % page - 1) + "\n")
        with suppress(OSError), (place / "filler").open("wb", buffering=0) as stream:
            while True:
                stream.write(b"x" * page)

    yield fill
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.bed
def test_a_full_disk_means_no_signal(
    kind: str, started: Started, target: str, full_disk: Callable[[], None]
) -> None:
    async def story(local: LocalShell) -> None:
        job = started.sleeper()
        assert (await ask(local, "claim", target, "run", "me")).status == 0
        full_disk()
        before = ledger_text(target)
        assert (await send(local, target, "TERM", who(job))).status == 20
        assert (await ask(local, "stamp", target, "run")).status == 20
        assert (await ask(local, "claim", target, "late", "me")).status == 20
        assert still_runs(job)
        assert ledger_text(target) == before
        (LOCKS / f"fleetstop.{target}" / "filler").unlink()
        answer = await send(local, target, "TERM", who(job))
        assert (answer.status, answer.data.split()[0]) == (0, b"sent")
        assert job.wait(5) == -signal.SIGTERM

    play(kind, story)


def test_a_ledger_tells_when_a_signal_went_out_by_the_clock_of_files(
    kind: str, started: Started, target: str, tmp_path: Path
) -> None:
    """A file written just before it is older, one written after it is newer."""

    async def story(local: LocalShell) -> None:
        job = started.sleeper()
        await ask(local, "claim", target, "run", "me")
        before, after = tmp_path / "before", tmp_path / "after"
        before.touch()
        time.sleep(0.05)
        assert (await send(local, target, "TERM", who(job))).status == 0
        time.sleep(0.05)
        after.touch()
        found = parse_ledger((await ask(local, "ledger", target)).data)
        assert found is not None
        between = heard_before(found, frozenset({who(job)}))[who(job)].between
        assert between is not None
        assert before.stat().st_mtime < between[0] + 0.05
        assert between[0] < between[1] < after.stat().st_mtime + 2.0  # a busy machine may be slow
        assert between[0] < after.stat().st_mtime

    play(kind, story)


def test_a_noted_signal_is_not_sent_and_a_strike_is_not_noted(
    kind: str, started: Started, target: str
) -> None:
    """The two halves of a send, for where the one who may write the line may not kill."""

    async def story(local: LocalShell) -> None:
        job, other = started.sleeper(), started.sleeper()
        await ask(local, "claim", target, "run", "me")
        head = (target, "run", "7@999999999", "TERM", "heard", "-", "host")
        words = (str(job.pid), str(who(job).start), "-", "-")
        assert (await ask(local, "note", *head, *words)).status == 0
        assert still_runs(job)
        noted = ledger_text(target)
        assert noted.splitlines()[-1].split()[:4] == ["send", "7", "TERM", "heard"]
        clock = (await ask(local, "clock")).data.removeprefix(b"uptime:")
        late = str(int(float(clock)) - 1)
        latest = str(int(float(clock)) + 8)
        changed = (str(other.pid), str(who(other).start + 1), "-", "-")
        assert (await ask(local, "strike", late, "TERM", "-", *words)).status == 13
        assert (await ask(local, "strike", latest, "TERM", "-", *words, *changed)).status == 10
        assert (await ask(local, "strike", latest, "TERM", "-", *words[:2], "ff", "-")).status == 12
        for bad in ("0", "1", "-1", f"-{job.pid}"):
            assert (await ask(local, "strike", latest, "TERM", "-", bad, "1", "-", "-")).status == 2
        assert still_runs(job, other)
        answer = await ask(local, "strike", latest, "TERM", "-", *words)
        assert (answer.status, answer.data.split()[-1]) == (0, b"0")
        assert job.wait(5) == -signal.SIGTERM
        assert ledger_text(target) == noted
        assert (await ask(local, "unsent", target, "run", "7")).status == 0
        assert (await ledger(local, target)).runs[0].sends == ()

    play(kind, story)


def as_nobody(*before: str) -> list[str]:
    drop = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--"]
    return [*before, *drop]


async def as_other(kind: str, story: Story, *before: str) -> None:
    async with local_shell(kind, before=as_nobody(*before)) as local:
        await asyncio.wait_for(story(local), 40)


@pytest.mark.bed
def test_who_may_not_signal_leaves_no_line(
    kind: str, started: Started, target: str, bed: None
) -> None:
    """A line without its signal would cost the job the only INT it will hear."""

    async def story(local: LocalShell) -> None:
        job = started.sleeper()
        assert (await ask(local, "claim", target, "run", "me")).status == 0
        before = ledger_text(target)
        answer = await send(local, target, "TERM", who(job))
        assert (answer.status, answer.data) == (14, f"{job.pid}\n".encode())
        assert still_runs(job)
        assert ledger_text(target) == before

    asyncio.run(as_other(kind, story))


@pytest.mark.bed
def test_users_of_one_directory_believe_each_other(
    kind: str, started: Started, target: str, bed: None
) -> None:
    place = LOCKS / f"fleetstop.{target}"

    async def theirs(local: LocalShell) -> None:
        assert (await ask(local, "claim", target, "theirs", "them")).status == 0
        now = await ledger(local, target)
        assert {each.run for each in now.runs} == {"theirs"}
        (place / "private").write_text("header x\n")
        (place / "private").chmod(0o600)
        assert (await ask(local, "ledger", target)).status == 24
        (place / "private").unlink()

    async def ours(local: LocalShell) -> None:
        # a dry run, or a status, changes nothing
        assert {each.run for each in (await ledger(local, target)).runs} == {"theirs"}
        assert place.stat().st_uid == 65534
        assert (await ask(local, "claim", target, "ours", "us")).status == 0
        # root does not rest on a directory whose owner could remove its lines
        assert (place.stat().st_uid, place.stat().st_mode & 0o7777) == (0, 0o1777)
        assert {each.run for each in (await ledger(local, target)).runs} == {"theirs", "ours"}

    async def again(local: LocalShell) -> None:
        assert (await ask(local, "stamp", target, "theirs")).status == 0
        assert (await ask(local, "stamp", target, "ours")).status == 20
        assert (await ask(local, "claim", target, "ours", "them")).status == 20
        assert (await ask(local, "forget", target, "ours", "theirs")).status == 0
        assert [each.name for each in place.iterdir()] == ["ours"]

    asyncio.run(as_other(kind, theirs))
    play(kind, ours)
    asyncio.run(as_other(kind, again))


@pytest.mark.bed
def test_a_directory_where_anybody_could_remove_our_lines_is_refused(
    kind: str, started: Started, target: str, bed: None
) -> None:
    place = LOCKS / f"fleetstop.{target}"
    place.mkdir()
    place.chmod(0o777)

    async def story(local: LocalShell) -> None:
        assert (await ask(local, "claimable", target, "run")).status == 23
        assert (await ask(local, "claim", target, "run", "me")).status == 23
        assert (await ask(local, "ledger", target)).status == 23
        place.chmod(0o1777)
        assert (await ask(local, "claim", target, "run", "me")).status == 0
        job = started.run("sleep", "60")
        place.chmod(0o777)
        head = (target, "run", "1", "TERM", "heard", "-", "host")
        words = (str(job.pid), str(who(job).start), "-", "-")
        before = ledger_text(target)
        assert (await ask(local, "note", *head, *words)).status == 20
        assert ledger_text(target) == before

    asyncio.run(as_other(kind, story))


@pytest.mark.bed
def test_whether_it_can_be_claimed_is_seen_without_claiming(
    kind: str, started: Started, target: str, bed: None
) -> None:
    """A dry run must not plan what `claim` would refuse, and must leave nothing behind."""
    place = LOCKS / f"fleetstop.{target}"

    async def both(local: LocalShell, expected: int) -> None:
        before = sorted(place.iterdir()) if place.is_dir() else place.exists()
        assert (await ask(local, "claimable", target, "run")).status == expected
        assert (sorted(place.iterdir()) if place.is_dir() else place.exists()) == before
        assert (await ask(local, "claim", target, "run", "me")).status == expected

    async def theirs(local: LocalShell) -> None:
        place.write_text("no directory")
        await both(local, 20)
        place.unlink()
        place.mkdir()
        place.chmod(0o1755)  # sticky, and root's alone to write in
        await both(local, 20)
        place.chmod(0o1777)
        await both(local, 0)
        assert (await ask(local, "claimable", target, "../run")).status == 2

    async def anew(local: LocalShell) -> None:
        await both(local, 0)

    asyncio.run(as_other(kind, theirs))
    shutil.rmtree(place)
    play(kind, anew)


@pytest.mark.bed
def test_a_proc_that_hides_other_people_is_told(kind: str, bed: None) -> None:
    hide = 'mount -t proc -o hidepid=2 proc /proc && exec "$@"'
    before = ("unshare", "-m", "--propagation", "private", "sh", "-c", hide, "hide")
    fields: dict[str, str] = {}

    async def story(local: LocalShell) -> None:
        fields.update(local.fields)

    asyncio.run(as_other(kind, story, *before))
    assert (fields["uid"], fields["hidden"]) == ("65534", "yes")
    play(kind, story)
    assert (fields["uid"], fields["hidden"]) == ("0", "")


def test_a_wrapper_killed_first_starts_nothing_new(
    kind: str, started: Started, target: str, tmp_path: Path
) -> None:
    again = tmp_path / "again"

    async def story(local: LocalShell) -> None:
        text = f'sleep 60 & echo $!; wait $!; touch "{again}"; sleep 60'
        wrapper = subprocess.Popen(
            ["sh", "-c", text], stdout=subprocess.PIPE, start_new_session=True
        )
        started.all.append(wrapper)
        assert wrapper.stdout is not None
        child = who(int(wrapper.stdout.readline()))
        await ask(local, "claim", target, "run", "me")
        order = [who(wrapper), child]
        assert (await send(local, target, "KILL", *order)).status == 0
        assert wrapper.wait(5) == -signal.SIGKILL
        time.sleep(0.2)
        assert not again.exists()
        assert ledger_text(target).split()[-2:] == [word(each) for each in order]

    play(kind, story)


def test_a_suspended_trainer_is_continued_after_its_signal(
    kind: str, started: Started, target: str, tmp_path: Path
) -> None:
    async def story(local: LocalShell) -> None:
        await ask(local, "claim", target, "run", "me")
        job = handler(started, tmp_path)
        os.kill(job.pid, signal.SIGSTOP)
        assert (await send(local, target, "USR1", who(job))).status == 0
        time.sleep(0.2)
        assert not (tmp_path / "usr1").exists()
        assert (await send(local, target, "USR1", who(job), cont="cont")).status == 0
        assert appears(tmp_path / "usr1")

    play(kind, story)


# ---------------------------------------------------------------------------- lock and ledger


def craft(target: str, run: str, *lines: str) -> Path:
    place = LOCKS / f"fleetstop.{target}"
    place.mkdir(mode=0o1777, exist_ok=True)
    (place / run).write_text("".join(f"{line}\n" for line in lines))
    return place


def uptime() -> float:
    return float(Path("/proc/uptime").read_text().split()[0])


async def ledger(local: LocalShell, target: str) -> Ledger:
    answer = await ask(local, "ledger", target, seconds=3.0)
    assert answer.status == 0
    found = parse_ledger(answer.data)
    assert found is not None
    return found


def lock(shell: FramedShell, target: str, run: str, clock: FakeClock | None = None) -> Lock:
    return Lock(shell, Run(run, "ml", "laptop"), int(target), clock or RealClock())


class RealClock(FakeClock):
    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def test_a_claim_is_complete_and_older_than_any_later_one(kind: str, target: str) -> None:
    async def story(local: LocalShell) -> None:
        for number in range(5):
            await ask(local, "claim", target, f"run{number}", "ml@laptop")
            now = await ledger(local, target)
            mine = next(each for each in now.runs if each.run == f"run{number}")
            assert (mine.header, mine.done) == ("ml@laptop", False)
            # else one that appears in this tick could be taken for the earlier one
            assert mine.since is not None
            assert mine.since < now.uptime
        mode = (LOCKS / f"fleetstop.{target}").stat().st_mode
        assert mode & 0o7777 == 0o1777

    play(kind, story)


def test_of_two_claims_at_once_exactly_one_holds(kind: str, target: str) -> None:
    async def whole() -> None:
        async with local_shell(kind) as one, local_shell(kind) as two:
            for number in range(20):
                locks = [
                    lock(shell.framed, target, f"{name}{number}")
                    for shell, name in ((one, "b"), (two, "a"))
                ]
                tries = await asyncio.gather(
                    *(each.claim() for each in locks), return_exceptions=True
                )
                refused = [each for each in tries if isinstance(each, BaseException)]
                assert [type(each) for each in refused] == [Refused], tries
                assert "is working on it since" in str(refused[0])
                for each in locks:
                    await each.release(frozenset())
            assert not (LOCKS / f"fleetstop.{target}").exists()

    asyncio.run(whole())


def test_a_claim_beside_a_release_is_had_or_refused(kind: str, target: str) -> None:
    """The one that leaves removes the directory under the other's feet."""

    async def whole() -> None:
        async with local_shell(kind) as one, local_shell(kind) as two:
            for number in range(20):
                first = lock(one.framed, target, f"a{number}")
                second = lock(two.framed, target, f"b{number}")
                await first.claim()
                claimed, _ = await asyncio.gather(
                    second.claim(), first.release(frozenset()), return_exceptions=True
                )
                assert isinstance(claimed, Ledger | Refused), claimed
                await second.release(frozenset())

    asyncio.run(whole())


def test_a_stale_claim_is_taken_over_and_a_live_one_is_not(kind: str, target: str) -> None:
    async def story(local: LocalShell) -> None:
        old = uptime() - 31
        craft(target, "stale", "header a@b", f"stamp {old}", f"since {old}")
        mine = lock(local.framed, target, "mine")
        await mine.claim()
        await mine.release(frozenset())
        young = uptime() - 20
        craft(target, "live", "header a@b", f"stamp {young}", f"since {old}")
        with pytest.raises(Refused, match=r"a@b is working on it since 3\d s ago \(run live\)"):
            await lock(local.framed, target, "next").claim()

    play(kind, story)


def test_a_run_that_is_done_holds_nothing(kind: str, target: str) -> None:
    async def story(local: LocalShell) -> None:
        first = lock(local.framed, target, "first")
        await first.claim()
        assert (await ask(local, "done", target, "first")).status == 0
        await lock(local.framed, target, "second").claim()
        # the same run may take it again
        assert (await ask(local, "done", target, "second")).status == 0
        await lock(local.framed, target, "first").claim()

    play(kind, story)


def test_an_unfinished_claim_of_somebody_is_not_overtaken(kind: str, target: str) -> None:
    async def story(local: LocalShell) -> None:
        craft(target, "slow", "header a@b", f"stamp {uptime()}")
        clock = FakeClock()
        with pytest.raises(Refused, match="could not be had"):
            await lock(local.framed, target, "mine", clock).claim()
        assert 1.0 <= sum(clock.slept) <= 2.1
        craft(target, "slow", "header a@b", f"stamp {uptime() - 31}")
        await lock(local.framed, target, "mine").claim()

    play(kind, story)


def test_only_spent_runs_are_forgotten(kind: str, started: Started, target: str) -> None:
    async def story(local: LocalShell) -> None:
        alive, gone = who(started.sleeper()), dead(started)
        now = uptime()
        head = ("header a@b", f"stamp {now}", f"since {now}")
        craft(target, "heard", *head, f"send 1 INT heard {now} {word(alive)}", f"done {now}")
        craft(target, "over", *head, f"send 1 INT heard {now} {word(gone)}", f"done {now}")
        place = craft(target, "live", *head)
        old = spent(await ledger(local, target), frozenset([alive]), "me")
        assert old == ("over",)
        for bad in ("../x", ".", "..", "a/b", ".hidden"):
            assert (await ask(local, "forget", target, "live", bad)).status == 2
        assert sorted(each.name for each in place.iterdir()) == ["heard", "live", "over"]
        assert (await ask(local, "forget", target, *old)).status == 0
        assert sorted(each.name for each in place.iterdir()) == ["heard", "live"]
        assert (await ask(local, "forget", target, "heard", "live", "never")).status == 0
        assert not place.exists()

    play(kind, story)


def test_run_files_that_are_not_there_are_not_made(kind: str, target: str) -> None:
    async def story(local: LocalShell) -> None:
        assert (await ask(local, "stamp", target, "run")).status == 22
        assert (await ask(local, "done", target, "run")).status == 22
        place = craft(target, "other", "header a@b")
        assert (await ask(local, "stamp", target, "run")).status == 20
        assert (await ask(local, "done", target, "run")).status == 20
        assert (await ask(local, "claim", target, "../run", "me")).status == 2
        assert [each.name for each in place.iterdir()] == ["other"]
        before = (await ledger(local, target)).runs[0].stamp
        assert (await ask(local, "stamp", target, "other")).status == 0
        assert (await ledger(local, target)).runs[0].stamp > before

    play(kind, story)


def test_a_linked_lock_directory_is_refused(
    kind: str, started: Started, target: str, tmp_path: Path
) -> None:
    (tmp_path / "run").write_text("header a@b\n")
    (LOCKS / f"fleetstop.{target}").symlink_to(tmp_path)

    async def story(local: LocalShell) -> None:
        job = started.sleeper()
        for verb in ("claim", "claimable", "ledger", "stamp", "done", "forget"):
            assert (await ask(local, verb, target, "run", "me")).status == 21, verb
        assert (await send(local, target, "TERM", who(job))).status == 21
        assert still_runs(job)
        assert (tmp_path / "run").read_text() == "header a@b\n"
        for bad in ("../x", "A", "a.b", "*"):
            assert (await ask(local, "claim", bad, "run", "me")).status == 2

    play(kind, story)


def test_what_others_plant_in_the_ledger_hangs_nothing(
    kind: str, target: str, tmp_path: Path
) -> None:
    async def story(local: LocalShell) -> None:
        await ask(local, "claim", target, "run", "me")
        place = LOCKS / f"fleetstop.{target}"
        os.mkfifo(place / "fifo")
        (tmp_path / "secret").write_text("header secret\n")
        (place / "link").symlink_to(tmp_path / "secret")
        (place / "endless").symlink_to("/dev/zero")
        os.mkfifo(tmp_path / "far")
        (place / "tofifo").symlink_to(tmp_path / "far")
        (place / "dir").mkdir()
        (place / "-n").write_text("header dash\n")
        (place / "a b*").write_text("header blank\n")
        found = await ledger(local, target)
        assert {each.run for each in found.runs} == {"run", "-n", "a b*"}
        other = lock(local.framed, target, "other", FakeClock())
        with pytest.raises(Refused):
            await other.claim()
        assert (await ask(local, "send", target, "fifo", "1", "TERM")).status != 0

    play(kind, story)


def test_an_empty_or_missing_ledger_is_empty(kind: str, target: str) -> None:
    async def story(local: LocalShell) -> None:
        assert (await ledger(local, target)).runs == ()
        (LOCKS / f"fleetstop.{target}").mkdir()
        assert (await ledger(local, target)).runs == ()

    play(kind, story)


# -------------------------------------------------------------------------------------- looks


def test_looks_at_what_has_vanished_leave_it_out(kind: str, started: Started) -> None:
    async def story(local: LocalShell) -> None:
        job, gone = started.sleeper(), dead(started)
        pids = (str(gone.pid), str(job.pid), str(gone.pid))
        seen = await ask(local, "look", "pids", *pids)
        assert seen.status == 0
        tree = parse_look(seen.data, 100)
        assert tree is not None
        assert set(tree.processes) == {job.pid}
        assert tree.processes[job.pid].id == who(job)
        argv = await ask(local, "argv", *pids)
        assert (argv.status, parse_argv(argv.data)) == (0, {job.pid: ("sleep", "60")})
        detail = await ask(local, "detail", *pids)
        assert detail.status == 0
        found = parse_detail(detail.data)
        assert set(found) == {job.pid}
        assert found[job.pid].files is not None
        assert (await ask(local, "look", "pids", str(gone.pid))).status == 0
        assert (await ask(local, "look", "nonsense")).status == 2

    play(kind, story)


def test_a_look_at_the_host_sees_this_process(kind: str) -> None:
    async def story(local: LocalShell) -> None:
        answer = await ask(local, "look", "host")
        assert answer.status == 0
        tree = parse_look(answer.data, int(local.fields["hz"]))
        assert tree is not None
        assert tree.processes[os.getpid()].id == who(os.getpid())
        assert tree.processes[local.pid].id == ProcessId(local.pid, int(local.fields["start"]))
        assert tree.processes[os.getpid()].masks is not None

    play(kind, story)


def test_endtree_ends_a_tree_by_identity(kind: str, started: Started) -> None:
    async def story(local: LocalShell) -> None:
        text = "sh -c 'sleep 60; :' & sleep 60 & sh -c 'sleep 60; :' & echo ready; wait"
        top, other = started.run("sh", "-c", text, ready=True), started.sleeper()
        await asyncio.sleep(0.2)
        tree = parse_look((await ask(local, "look", "host")).data, 100)
        assert tree is not None
        below = [each.id for each in tree.below(top.pid)]
        assert len(below) >= 5
        start = who(top).start
        assert (await ask(local, "endtree", str(top.pid), str(start + 1))).status == 0
        assert (await ask(local, "endtree", "1", "0")).status == 2
        assert still_runs(top, other)
        assert (await ask(local, "endtree", str(top.pid), str(start))).status == 0
        assert top.wait(5) == -signal.SIGKILL
        deadline = time.monotonic() + 5
        while any(lives(each) for each in below):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)
        assert still_runs(other)

    play(kind, story)


def lives(each: ProcessId) -> bool:
    with suppress(OSError):
        fields = Path(f"/proc/{each.pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[19]) == each.start and fields[0] != "Z"
    return False


# ------------------------------------------------------------------------------- frozen, gpus


@pytest.mark.bed
def test_a_frozen_container_is_seen_from_outside(kind: str, lab: Lab) -> None:
    vmid = lab.vmids[0]

    async def story(local: LocalShell) -> None:
        assert not is_frozen((await ask(local, "frozen", str(vmid))).data)
        lab.freeze(vmid)
        try:
            assert is_frozen((await ask(local, "frozen", str(vmid))).data)
            assert not is_frozen((await ask(local, "frozen", str(vmid)[:-1])).data)
        finally:
            lab.thaw(vmid)
        assert not is_frozen((await ask(local, "frozen", str(vmid))).data)

    play(kind, story)


@pytest.mark.parametrize(
    ("text", "frozen"),
    [
        # recorded on cgroup v2: liblxc freezes the inner group, the outer one stays as it is
        (
            b"/sys/fs/cgroup/lxc/200/cgroup.events:frozen 0\n"
            b"/sys/fs/cgroup/lxc/200/ns/cgroup.events:frozen 1\n",
            True,
        ),
        (
            b"/sys/fs/cgroup/lxc/200/cgroup.events:frozen 0\n"
            b"/sys/fs/cgroup/lxc/200/ns/cgroup.events:frozen 0\n",
            False,
        ),
        (b"/sys/fs/cgroup/freezer/lxc/200/freezer.state:FROZEN\n", True),
        (b"/sys/fs/cgroup/freezer/lxc/200/ns/freezer.state:FREEZING\n", True),
        (b"/sys/fs/cgroup/freezer/lxc/200/freezer.state:THAWED\n", False),
        (b"", False),
    ],
)
def test_what_the_freezer_says(text: bytes, frozen: bool) -> None:
    assert is_frozen(text) is frozen


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """All that `gpus` needs, and no nvidia-smi but the one a test writes."""
    place = tmp_path / "bin"
    place.mkdir()
    for name in ("mktemp", "cat", "rm", "sleep", "id", "getconf", "sh", "grep"):
        found = shutil.which(name)
        if found:
            (place / name).symlink_to(found)
    return place


def write_smi(tools: Path, *lines: str) -> None:
    (tools / "nvidia-smi").write_text("\n".join(("#!/bin/sh", *lines)) + "\n")
    (tools / "nvidia-smi").chmod(0o755)


def with_tools(kind: str, tools: Path, tmp_path: Path, story: Story) -> None:
    found = shutil.which(SHELLS[kind][0])
    assert found is not None
    (tools / SHELLS[kind][0]).symlink_to(found)
    (tmp_path / "t").mkdir()
    play(kind, story, env={"PATH": str(tools), "TMPDIR": str(tmp_path / "t")})


def test_without_nvidia_smi(kind: str, tools: Path, tmp_path: Path) -> None:
    async def story(local: LocalShell) -> None:
        assert await ask(local, "gpus", "8000") == Answer(status=30, data=b"")

    with_tools(kind, tools, tmp_path, story)


def test_nvidia_smi_answers(kind: str, tools: Path, tmp_path: Path) -> None:
    write_smi(
        tools,
        'case $1 in *compute-apps*) echo "GPU-1, 4711, 300" ;; *) echo "0, GPU-1, 40, 301, 900" ;;',
        "esac",
    )

    async def story(local: LocalShell) -> None:
        answer = await ask(local, "gpus", "8000")
        expected = b"gpus 0\n0, GPU-1, 40, 301, 900\n\n\0apps 0\nGPU-1, 4711, 300\n"
        assert answer == Answer(status=0, data=expected)
        place = FakePlace()
        place.host.on("gpus", answer)
        assert "4711" in str(await looks.gpus(place))
        assert list((tmp_path / "t").iterdir()) == []

    with_tools(kind, tools, tmp_path, story)


def test_nvidia_smi_fails(kind: str, tools: Path, tmp_path: Path) -> None:
    write_smi(tools, "echo 'NVIDIA-SMI has failed because'", "echo no driver >&2", "exit 9")

    async def story(local: LocalShell) -> None:
        said = b"NVIDIA-SMI has failed because\nno driver\n"
        expected = b"gpus 9\n" + said + b"\n\0apps 9\n" + said
        assert await ask(local, "gpus", "8000") == Answer(status=0, data=expected)

    with_tools(kind, tools, tmp_path, story)


def test_nvidia_smi_hangs(kind: str, tools: Path, tmp_path: Path) -> None:
    write_smi(tools, f'echo $$ >"{tmp_path}/pid"', "exec sleep 60")

    async def story(local: LocalShell) -> None:
        began = time.monotonic()
        assert await ask(local, "gpus", "300") == Answer(status=31, data=b"")
        assert 0.3 <= time.monotonic() - began < 2.0
        assert (await ask(local, "hello")).status == 0
        assert await ask(local, "gpus", "100") == Answer(status=31, data=b"")

    with_tools(kind, tools, tmp_path, story)


@pytest.mark.skipif(os.geteuid() != 0, reason="a device node of another name takes root")
def test_who_has_a_gpu_open_by_the_name_or_the_number_of_its_node(
    kind: str, tmp_path: Path
) -> None:
    other = Path(f"/dev/fleetstop-test-{os.getpid()}-{kind}")
    plain = Path(f"/dev/nvidia77{os.getpid() % 100}")
    plain.symlink_to("/dev/null")  # the link text of what is opened is then /dev/null: no GPU
    os.mknod(other, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    fds = [os.open(other, os.O_RDWR), os.open(plain, os.O_RDWR)]
    node = Path(f"/dev/nvidia66{os.getpid() % 100}")
    os.mknod(node, 0o600 | stat.S_IFCHR, os.makedev(1, 3))
    fds.append(os.open(node, os.O_RDWR))

    async def story(local: LocalShell) -> None:
        answer = await ask(local, "openers")
        assert answer.status == 0
        records = answer.data.split(b"\0")
        told = dict(zip(records[::2], records[1::2], strict=False))
        mine = f"/proc/{os.getpid()}/fd/".encode()
        assert told[mine + str(fds[0]).encode()] == b"1:3"
        assert mine + str(fds[1]).encode() not in told
        assert told[mine + str(fds[2]).encode()] == str(node).encode()
        assert parse_openers(answer.data)[os.getpid()] == {int(node.name.removeprefix("nvidia"))}

    try:
        play(kind, story)
    finally:
        for each in fds:
            os.close(each)
        for path in (other, plain, node):
            path.unlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="a mount of its own takes root")
def test_an_nvidia_smi_that_hangs_already_is_noticed_first(
    kind: str, tools: Path, tmp_path: Path
) -> None:
    """In D for 10 s is no healthy query. What its stat says is laid over a process of ours, in a
    mount namespace: a real one would be found by everybody on this machine."""
    write_smi(tools, "echo 0, GPU-1, 40, 301, 900")
    (tools / SHELLS[kind][0]).symlink_to(str(shutil.which(SHELLS[kind][0])))
    (tmp_path / "t").mkdir()
    sleeper = subprocess.Popen(["sleep", "60"])
    now = float(Path("/proc/uptime").read_text().split()[0])

    async def story(state: str, age_s: float) -> Answer:
        rest = f"1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {int((now - age_s) * 100)} 0 0"
        fake = tmp_path / "stat"
        fake.write_text(f"{sleeper.pid} (nvidia-smi) {state} {rest}\n")
        laid = f'/usr/bin/mount --bind "$0" /proc/{sleeper.pid}/stat && exec "$@"'
        before = (str(shutil.which("unshare")), "-m", "/bin/sh", "-c", laid, str(fake))
        env = {"PATH": str(tools), "TMPDIR": str(tmp_path / "t")}
        async with local_shell(kind, env=env, before=before) as local:
            return await ask(local, "gpus", "3000")

    try:
        answer = asyncio.run(story("D", 30.0))
        assert answer == Answer(status=33, data=f"{sleeper.pid}\n".encode())
        for state, age_s in (("D", 2.0), ("S", 30.0)):
            assert asyncio.run(story(state, age_s)).status == 0
    finally:
        sleeper.kill()
        sleeper.wait()
    place = FakePlace()
    place.host.on("gpus", answer)
    assert f"host PID {sleeper.pid}) hangs" in str(asyncio.run(looks.gpus(place)))


def test_unseen_is_an_error_and_never_an_empty_place() -> None:
    async def story() -> None:
        place = FakePlace()
        for answer in (Answer(2, b""), Answer(9, b"uptime:1\n"), b""):
            place.host.on("look", answer)
            with pytest.raises(CouldNotLook):
                await looks.look(place, 200)

    asyncio.run(story())
