"""What every Shell promises, asked of each: local shells, real SSH, a real container, a dry one."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from fleetstop.core.commands import Answer, Command
from fleetstop.core.inventory import Host
from fleetstop.errors import ConnectionLost, FrameTimedOut, Refused, RemoteFailed
from fleetstop.lab import Lab
from fleetstop.lab.processes import ProcessId, identify
from fleetstop.ports import Shell
from fleetstop.remote import shell as shell_module
from fleetstop.remote.container import InsideShell, enter
from fleetstop.remote.dry_run import DryShell
from fleetstop.remote.host import open_shell
from fleetstop.remote.shell import FramedShell, encode
from fleetstop.remote.ssh import Tunnels, connect
from tests.fakes.local_channel import (
    SHELLS,
    LocalChannel,
    framed_over,
    is_installed,
    local_shell,
)
from tests.fakes.rooted import rooted_at

KINDS = [
    pytest.param("dash"),
    pytest.param("bash"),
    pytest.param("busybox"),
    pytest.param("dry"),
    # the files of a place that is not entered, read from the host by each of its shells
    *(pytest.param(f"through-{each}") for each in ("dash", "bash", "busybox")),
    pytest.param("ssh", marks=pytest.mark.bed),
    pytest.param("container", marks=pytest.mark.bed),
]


@dataclass
class Far:
    """A shell somewhere, and how this test reaches the same files and processes without it."""

    shell: Shell
    framed: FramedShell
    pid: int
    root: str  # a directory as the shell sees it
    here: Path  # the same as this test sees it
    proc: Path  # its /proc as this test sees it
    reach: tuple[str, ...]  # words in front of a command that run it where the shell is

    def path(self, name: str | bytes) -> str:
        return f"{self.root}/{os.fsdecode(name)}"

    def write(self, name: str | bytes, data: bytes) -> str:
        (self.here / os.fsdecode(name)).write_bytes(data)
        return self.path(name)

    async def raw(self, verb: str, *words: str, seconds: float = 10.0) -> Answer:
        return await self.shell.run(Command(verb, words, deadline_s=seconds))

    def watch_itself(self, ms: int) -> tuple[str, str]:
        start = (self.proc / str(self.pid) / "stat").read_text().rpartition(")")[2].split()[19]
        return str(ms), f"{self.pid}:{start}"


class Through:
    """Asks for files below the root of another process; all else as it comes."""

    def __init__(self, shell: Shell, root: ProcessId) -> None:
        self._shell, self._root = shell, root

    async def run(self, command: Command) -> Answer:
        if command.verb not in ("list", "log", "ends", "pidfile"):
            return await self._shell.run(command)
        words = (str(self._root.pid), str(self._root.start), "host", command.verb, *command.words)
        return await self._shell.run(Command("through", words, deadline_s=command.deadline_s))


@asynccontextmanager
async def _far(kind: str, here: Path, lab: Lab | None) -> AsyncIterator[Far]:
    if kind in (*SHELLS, "dry"):
        async with local_shell("dash" if kind == "dry" else kind) as local:
            shell: Shell = DryShell(local.framed) if kind == "dry" else local.framed
            yield Far(shell, local.framed, local.pid, str(here), here, Path("/proc"), ())
        return
    if kind.startswith("through-"):
        async with local_shell(kind.removeprefix("through-")) as local:
            with rooted_at(here.parent) as root:
                shell = Through(local.framed, root)
                yield Far(shell, local.framed, local.pid, f"/{here.name}", here, Path("/proc"), ())
        return
    assert lab is not None
    host = lab_host(lab)
    connection = await connect(host, tunnels=Tunnels())
    try:
        outside = await open_shell(connection, host)
        if kind == "ssh":
            shell = outside.shell
            yield Far(shell, outside.shell, outside.pid, str(here), here, Path("/proc"), ())
        else:
            async with _inside(connection, host, lab, outside.shell) as far:
                yield far
    finally:
        await connection.close()


@asynccontextmanager
async def _inside(connection, host, lab, outside) -> AsyncIterator[Far]:  # type: ignore[no-untyped-def]
    vmid = lab.vmids[0]
    opened: list[InsideShell] = []
    name = secrets.token_hex(4)
    init = lab.containers[vmid].init_pid()
    here = lab.rootfs(vmid) / "workspace" / name
    here.mkdir()
    inside = await enter(connection, host, vmid, outside, opened)
    try:
        proc = Path(f"/proc/{init}/root/proc")
        reach = tuple(lab.containers[vmid].attach([]))
        root = f"/workspace/{name}"
        yield Far(inside.shell, inside.shell, inside.pid, root, here, proc, reach)
    finally:
        with suppress(ConnectionLost):
            await inside.shell.close()
        words = (str(inside.attach.pid), str(inside.attach.start))
        await outside.run(Command("endtree", words))
        shutil.rmtree(here)


def lab_host(lab: Lab, **other: str) -> Host:
    facts = {
        "name": "lab1",
        "ssh": "root@127.0.0.1",
        "identity": str(lab.server.identity),
        "known_hosts": str(lab.server.known_hosts),
        "pct": str(lab.pct),
        **other,
    }
    return Host(port=lab.state.port, **facts)  # type: ignore[arg-type]


Story = Callable[[Far], Awaitable[None]]


@pytest.fixture(params=KINDS)
def play(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Story], None]:
    """Runs a story against a shell of this kind."""
    kind = str(request.param)
    if kind in SHELLS and not is_installed(kind):
        pytest.skip(f"{kind} is not installed")
    lab = request.getfixturevalue("lab") if kind in ("ssh", "container") else None

    def run(story: Story) -> None:
        async def whole() -> None:
            async with _far(kind, tmp_path, lab) as far:
                await story(far)

        asyncio.run(asyncio.wait_for(whole(), 60))

    return run


PAYLOADS = [
    b"",
    b"\n",
    b"no newline at the end",
    b"one\n\n\ntwo\n",
    b"\0\0a\0\n\0",
    b"\n\nready\n",
    b"0 0\n\n 0\n",
    bytes(range(256))[:64],
    bytes(range(256))[192:],
]


def test_data_comes_back_byte_for_byte(play: Callable[[Story], None]) -> None:
    async def story(far: Far) -> None:
        for number, data in enumerate(PAYLOADS):
            answer = await far.raw("pidfile", far.write(f"f{number}", data))
            assert answer == Answer(status=0, data=data)

    play(story)


def test_the_nonce_of_an_earlier_frame_ends_nothing(
    play: Callable[[Story], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[str] = []

    def remembered(size: int) -> str:
        used.append(secrets.token_bytes(size).hex())
        return used[-1]

    monkeypatch.setattr(secrets, "token_hex", remembered)

    async def story(far: Far) -> None:
        old = used[-1]
        trap = f"a\n{old} 0\n\n{old} 1\nb".encode()
        assert (await far.raw("pidfile", far.write("trap", trap))).data == trap[:64]
        name = f"x\n{old} 0\n"
        inner = Path(far.here, "d")
        inner.mkdir()
        (inner / name).write_bytes(b"")
        answer = await far.raw("list", far.path("d"))
        assert answer.status in (0, 1)
        assert name.encode() in answer.data or answer.status == 1
        assert (await far.raw("hello")).status == 0

    play(story)


CROWD = [f"{number:05}{'n' * 245}" for number in range(7200)]


def crowd(far: Far) -> str:
    """A directory whose listing is 2 MB long; made once, beside the directories of all tests."""
    place = far.here.parent / "crowd"
    if not place.exists():
        place.mkdir()
        for name in CROWD:
            os.close(os.open(place / name, os.O_CREAT))
    return f"{far.root.rpartition('/')[0]}/crowd"


def test_two_megabytes_arrive_whole(play: Callable[[Story], None]) -> None:
    async def story(far: Far) -> None:
        answer = await far.raw("list", crowd(far), seconds=30.0)
        assert answer.status == 0
        assert len(answer.data) > 2_000_000
        # one after the directory's real path, then five for each entry
        assert answer.data.count(b"\0") == 1 + 5 * (len(CROWD) + 1)
        found = {each.rpartition(b"/")[2] for each in answer.data.split(b"\0")}
        assert {name.encode() for name in CROWD} <= found

    play(story)


def test_the_newest_of_many_behind_their_directory(play: Callable[[Story], None]) -> None:
    async def story(far: Far) -> None:
        inner = Path(far.here, "d")
        inner.mkdir()
        for number, name in enumerate(["old", "a b\nc", "new"]):
            (inner / name).write_bytes(b"x" * number)
            os.utime(inner / name, (1000 + number, 1000 + number))
        answer = await far.raw("list", far.path("d"), "2")
        assert answer.status == 0
        _, _, rows = answer.data.partition(b"\n\0")
        top, *records, end = rows.split(b"\0")
        assert end == b""
        assert top.split(b" ", 4)[1::3] == [b"d", f"{far.root}/d/".encode()]
        told = [each.split(b" ", 4) for each in records]
        assert [(each[1], each[3]) for each in told] == [(b"f", b"2"), (b"f", b"1")]
        names = [each[4].rpartition(b"/d/")[2] for each in told]
        assert names == [b"new", b"a b\nc"]

    play(story)


def test_a_listing_of_the_newest_that_is_not_whole_has_a_status(
    play: Callable[[Story], None],
) -> None:
    async def story(far: Far) -> None:
        assert (await far.raw("list", far.path("nowhere"), "5")).status == 40
        plain = await far.raw("list", far.write("file", b""), "5")
        assert (plain.status, plain.data.partition(b"\n")[2]) == (41, b"file\n")
        Path(far.here, "d").mkdir()
        # head refuses the number: its pipe's end is not find's
        assert (await far.raw("list", far.path("d"), "x")).status == 9
        assert (await far.raw("hello")).status == 0

    play(story)


BYTES = bytes(b for b in range(1, 256) if b != ord("/"))
NAMES: list[str | bytes] = [
    BYTES[:127],
    BYTES[127:],
    " ",
    "two  blanks",
    "\ttab\t",
    "new\nline",
    "ends with newlines\n\n",
    "*",
    "?",
    "[a-z]*",
    "{1..3}",
    "back\\slash",
    "\\0101\\n\\c",
    "'single'",
    '"double"',
    "100%s%d%%",
    "-n",
    "--help",
    "$HOME `id` $(id)",
    "a;b&c|d>e<f",
    "~root",
    "#fleetstop-end",
    "é漢字",
    b"\xff\xfe latin \xe9",
    "12345678",
]


def test_every_word_arrives_as_it_was(play: Callable[[Story], None]) -> None:
    async def story(far: Far) -> None:
        for number, name in enumerate(NAMES):
            path = far.write(name, f"{number}".encode())
            assert (await far.raw("pidfile", path)).data == f"{number}".encode(), name
            logged = await far.raw("log", path)
            assert (logged.status, logged.data.split(b"\n")[-1]) == (0, f"{number}".encode())

    play(story)


def test_hostile_names_come_back_in_a_listing(play: Callable[[Story], None]) -> None:
    async def story(far: Far) -> None:
        for name in NAMES:
            if isinstance(name, str):
                (far.here / name).mkdir()
                far.write(f"{name}/{name}", b"x")
                listed = await far.raw("list", far.path(name))
                assert listed.status == 0, name
                assert listed.data.endswith(f"{far.root}/{name}/{name}\0".encode()), name

    play(story)


def test_hostile_patterns_reach_pgrep(play: Callable[[Story], None]) -> None:
    mark = secrets.token_hex(4)
    argv0 = f"-job{mark} (1)  [x] 'q' \"d\" 100%s \\ * é"
    pattern = f"-job{mark} \\(1\\)  \\[x\\] 'q' \"d\" 100%s \\\\ \\* é"

    async def story(far: Far) -> None:
        words = [*far.reach, "bash", "-c", 'echo $$; exec -a "$0" sleep 60', argv0]
        with subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True) as job:
            try:
                assert job.stdout is not None
                pid = int(job.stdout.readline())
                cmdline = far.proc / str(pid) / "cmdline"
                while mark.encode() not in cmdline.read_bytes().split(b"\0")[0]:
                    time.sleep(0.01)
                found = await far.raw("pgrep", pattern)
                assert (found.status, found.data.split()) == (0, [str(pid).encode()])
                assert (await far.raw("pgrep", f"no{mark}")).status == 1
                assert (await far.raw("pgrep", "(")).status == 2
            finally:
                host_pid = next(
                    each
                    for each in map(int, filter(str.isdigit, os.listdir("/proc")))
                    if mark.encode() in _argv0(each) and b"bash" not in _argv0(each)
                )
                os.kill(host_pid, signal.SIGKILL)

    play(story)


def _argv0(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0]
    return b""


def test_a_path_is_never_an_option(play: Callable[[Story], None]) -> None:
    async def story(far: Far) -> None:
        for word in ("-delete", "--help", "-", "(", "!", "-n"):
            for verb in ("list", "log", "pidfile"):
                assert (await far.raw(verb, word)).status == 40, (verb, word)

    play(story)


def test_words_that_cannot_be_framed_are_our_bug(play: Callable[[Story], None]) -> None:
    async def story(far: Far) -> None:
        for word in ("", "a\0b"):
            with pytest.raises(ValueError, match="cannot be framed"):
                await far.raw("list", word)
        assert (await far.raw("hello")).status == 0

    play(story)


def test_an_unknown_verb_is_a_failure_and_no_end(play: Callable[[Story], None]) -> None:
    async def story(far: Far) -> None:
        for verb in ("frobnicate", "same", "kill", "exit", "eval"):
            answer = await far.raw(verb, "1")
            assert answer.status != 0
            assert answer.data == b""
        assert (await far.raw("hello")).status == 0

    play(story)


def test_no_command_eats_the_next_frame(play: Callable[[Story], None]) -> None:
    async def story(far: Far) -> None:
        for verb, words in [("argv", ()), ("detail", ()), ("ends", ("-",)), ("send", ("x",))]:
            if not (verb == "send" and isinstance(far.shell, DryShell)):
                await far.raw(verb, *words, seconds=3.0)
        assert f"pid={far.pid}\n".encode() in (await far.raw("hello")).data

    play(story)


def test_a_passed_deadline_gives_the_shell_up(play: Callable[[Story], None]) -> None:
    async def story(far: Far) -> None:
        with pytest.raises(FrameTimedOut, match=r"no answer to 'watch' within 0\.2 s"):
            await far.raw("watch", *far.watch_itself(1000), seconds=0.2)
        assert far.framed.given_up
        began = time.monotonic()
        with pytest.raises(FrameTimedOut, match="no answer to 'watch'"):
            await far.raw("hello")
        assert time.monotonic() - began < 1.0

    play(story)


def test_a_cancelled_frame_is_drained_before_the_next(play: Callable[[Story], None]) -> None:
    async def story(far: Far) -> None:
        for patience in (0.0, 0.15):
            task = asyncio.create_task(far.raw("watch", *far.watch_itself(400)))
            await asyncio.sleep(patience)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert f"pid={far.pid}\n".encode() in (await far.raw("hello")).data
        # cancelled while it waits for the cancelled one
        first = asyncio.create_task(far.raw("watch", *far.watch_itself(400)))
        await asyncio.sleep(0.1)
        first.cancel()
        second = asyncio.create_task(far.raw("pidfile", far.write("two", b"2")))
        await asyncio.sleep(0.05)
        second.cancel()
        assert (await far.raw("pidfile", far.write("three", b"3"))).data == b"3"

    play(story)


def test_concurrent_runs_wait_for_their_turn(play: Callable[[Story], None]) -> None:
    async def story(far: Far) -> None:
        paths = [far.write(f"n{number}", b"%d" % number) for number in range(10)]
        order: list[int] = []

        async def ask(number: int) -> bytes:
            answer = await far.raw("pidfile", paths[number])
            order.append(number)
            return answer.data

        slow = asyncio.create_task(far.raw("watch", *far.watch_itself(200)))
        await asyncio.sleep(0)
        answers = await asyncio.gather(*(ask(number) for number in range(10)))
        assert slow.done()
        assert (await slow).data == b""
        assert answers == [b"%d" % number for number in range(10)]
        assert order == list(range(10))

    play(story)


def test_the_end_of_the_remote_shell_is_a_lost_connection(play: Callable[[Story], None]) -> None:
    async def story(far: Far) -> None:
        waiting = asyncio.create_task(far.raw("watch", *far.watch_itself(2000)))
        await asyncio.sleep(0.1)
        subprocess.run([*far.reach, "bash", "-c", f"kill -KILL {far.pid}"], check=True)
        for attempt in (waiting, far.raw("hello"), far.raw("hello")):
            with pytest.raises(ConnectionLost):
                await attempt

    play(story)


def test_too_much_is_not_collected(
    play: Callable[[Story], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell_module, "_LIMIT", 1 << 20)

    async def story(far: Far) -> None:
        with pytest.raises(RemoteFailed, match="more than 1 MiB"):
            await far.raw("list", crowd(far))
        with pytest.raises(FrameTimedOut, match="more than 1 MiB"):
            await far.raw("hello")

    play(story)


def test_closing_ends_the_far_process(play: Callable[[Story], None]) -> None:
    async def story(far: Far) -> None:
        await far.framed.close()
        deadline = time.monotonic() + 3.0
        while (far.proc / str(far.pid) / "exe").exists():
            assert time.monotonic() < deadline, "the shell lives on"
            await asyncio.sleep(0.02)

    play(story)


# ---------------------------------------------------------------------- without a far end of each


@pytest.fixture(params=sorted(SHELLS))
def kind(request: pytest.FixtureRequest) -> str:
    if not is_installed(request.param):
        pytest.skip(f"{request.param} is not installed")
    return str(request.param)


def test_a_dry_shell_sends_nothing_that_changes() -> None:
    async def story() -> None:
        async with local_shell() as local:
            dry, before = DryShell(local.framed), bytes(local.channel.written)
            with pytest.raises(Refused, match="a dry run does not send 'claim'"):
                await dry.run(Command("claim", ("host", "run", "me"), changes=True))
            assert bytes(local.channel.written) == before

    asyncio.run(story())


@pytest.mark.parametrize("noise", ["echo Welcome", "printf 'no end'", "echo; echo ready; echo"])
def test_noise_before_the_shell_is_dropped(kind: str, noise: str) -> None:
    async def story() -> None:
        text = f'{noise}; exec "$@"'
        async with local_shell(kind, before=("sh", "-c", text, "login")) as local:
            assert int(local.fields["pid"]) == local.pid
            assert (await local.framed.run(Command("hello"))).status == 0

    asyncio.run(story())


def test_a_word_with_every_byte_survives(kind: str) -> None:
    every = bytes(range(1, 256))

    async def story() -> None:
        text = f'{_decode_only()}; read -r w; decode "$w"; printf %s "$text"'
        channel = await LocalChannel.start([*SHELLS[kind], "-c", text])
        try:
            channel.write(encode(os.fsdecode(every)) + b"\n")
            got = b""
            while chunk := await channel.read():
                got += chunk
            assert got == every
        finally:
            await channel.end()

    asyncio.run(story())


def _decode_only() -> str:
    script = shell_module.boot_script().decode()
    return next(line for line in script.splitlines() if line.startswith("decode()"))


@pytest.mark.parametrize(
    ("argv", "error"),
    [
        (["sleep", "60"], FrameTimedOut),
        (["cat"], FrameTimedOut),
        (["true"], ConnectionLost),
        (["sh", "-c", "echo 'no shell for you' >&2; exit 1"], ConnectionLost),
    ],
)
def test_what_is_no_shell_is_told_apart(argv: list[str], error: type[Exception]) -> None:
    async def story() -> None:
        channel = await LocalChannel.start(argv)
        try:
            with pytest.raises(error) as caught:
                await framed_over(channel).boot(0.5)
            if "echo" in argv[-1]:
                assert "status 1" in str(caught.value)
                assert "no shell for you" in str(caught.value)
        finally:
            await channel.end()

    asyncio.run(story())


def test_a_first_line_that_does_not_come_gives_the_shell_up() -> None:
    async def story() -> None:
        channel = await LocalChannel.start(["sh", "-c", "echo hostpid=; exec sleep 60"])
        try:
            framed = framed_over(channel)
            assert await framed.first_line(b"hostpid=", 2.0) == b""
            with pytest.raises(FrameTimedOut, match=r"did not start within 0\.1 s"):
                await framed.first_line(b"hostpid=", 0.1)
            assert framed.given_up
        finally:
            await channel.end()

    asyncio.run(story())


def test_closing_in_the_middle_of_an_answer_counts_as_given_up() -> None:
    async def story() -> None:
        async with local_shell() as local:
            me = identify(local.pid)
            assert me is not None
            words = ("1000", f"{me.pid}:{me.start}")
            task = asyncio.create_task(local.framed.run(Command("watch", words)))
            await asyncio.sleep(0.1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not local.framed.given_up
            await local.framed.close()
            assert local.framed.given_up

    asyncio.run(story())
