"""New files into a real container over real SSH, by tar and by `pct push`; and every way it fails.

Beside each failure a trainer runs: it is the same process afterwards, and neither the container nor
the host holds a file more than before.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import json
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import pytest

from fleetstop import events
from fleetstop.actions import pushing, tarring
from fleetstop.actions.reconnect import ReconnectingPlace
from fleetstop.actions.staging import Stage, Wish, stage, survey, unstage
from fleetstop.actions.telling import Run, Scope, Teller
from fleetstop.api.machine import SystemClock
from fleetstop.core.inventory import Host, Target
from fleetstop.core.releases.payload import File
from fleetstop.errors import DeployFailed, Refused
from fleetstop.events import AnyEvent, Event
from fleetstop.lab import Started
from fleetstop.lab.login import login
from fleetstop.remote.site import Site
from fleetstop.remote.ssh import Tunnels

from .bed import Bed, lives, until
from .proxy import Proxy

pytestmark = pytest.mark.bed

E = TypeVar("E", bound=Event)
Story: TypeAlias = Callable[["Deploy"], Awaitable[None]]
PYTHON = "/usr/bin/python3"
MIB = 1 << 20


class Payload:
    """Files to send, most of them from memory; `size` bytes of one kind where that is too much."""

    def __init__(self) -> None:
        self.files: list[File] = []
        self.read_of: dict[str, Callable[[], Iterator[bytes]]] = {}

    def add(self, rel: str, data: bytes, mode: int = 0o644) -> None:
        self.files.append(File(rel, hashlib.sha256(data).hexdigest(), len(data), mode))
        self.read_of[rel] = lambda: iter([data])

    def large(self, rel: str, mib: int, each: Callable[[int], None] = lambda _: None) -> None:
        """`each` is called before every MiB."""
        digest = hashlib.sha256()
        for number in range(mib):
            digest.update(_mib(number))

        def read() -> Iterator[bytes]:
            for number in range(mib):
                each(number)
                yield _mib(number)

        self.files.append(File(rel, digest.hexdigest(), mib * MIB, 0o644))
        self.read_of[rel] = read

    def read(self, file: File) -> Iterator[bytes]:
        return self.read_of[file.rel]()


def _mib(number: int) -> bytes:
    return number.to_bytes(4, "big") * (MIB // 4)


class Deploy:
    """One client with a connection of its own, and what it was told."""

    def __init__(self, box: Bed, scope: Scope, told: list[AnyEvent], dest: str) -> None:
        self.box, self.scope, self.told = box, scope, told
        self.wish = Wish(dest=dest, base=f"{dest}/.fleetstop/train", interpreter=PYTHON)
        self.payload = Payload()

    @property
    def here(self) -> Path:
        """The destination as this machine sees it, what is mounted in the container too."""
        init = self.box.lab.containers[self.box.vmid].init_pid()
        return Path(f"/proc/{init}/root{self.wish.dest}")

    async def stage(self, **more: Any) -> Stage:
        wish = Wish(
            **{**{name: getattr(self.wish, name) for name in Wish.__struct_fields__}, **more}
        )
        return await stage(self.scope, self.payload.files, self.payload.read, wish)

    def of(self, kind: type[E]) -> list[E]:
        return [each for each in self.told if isinstance(each, kind)]

    def whole(self, done: Stage) -> None:
        """All that was meant lies in the stage, byte for byte."""
        into = Path(str(self.here)[: -len(self.wish.dest)] + done.path) / "files"
        found = {
            str(each.relative_to(into)): (_sha(each), stat.S_IMODE(each.stat().st_mode))
            for each in into.rglob("*")
            if each.is_file()
        }
        assert found == {each.rel: (each.sha256, each.mode) for each in self.payload.files}


def _sha(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextlib.asynccontextmanager
async def client(
    box: Bed,
    dest: str,
    run: str = "7f3a",
    *,
    port: int | None = None,
    on_host: bool = False,
    dry_run: bool = False,
    **other: Any,
) -> AsyncIterator[Deploy]:
    server, told, clock = box.lab.server, list[AnyEvent](), SystemClock()
    facts = {
        "name": "lab1",
        "ssh": "root@127.0.0.1",
        "identity": str(server.identity),
        "known_hosts": str(server.known_hosts),
        "pct": str(box.lab.pct),
        "port": port or server.port,
        **other,
    }
    site = Site(Host(**facts), Tunnels())
    try:
        vmid = None if on_host else box.vmid
        target = Target(name=f"ct{box.vmid}:train", host=site.host, vmid=vmid, job=None)
        place = await site.place(vmid, dry_run=dry_run)
        teller = Teller(target.name, told.append, clock)
        over = ReconnectingPlace(place, "lab1", clock, teller)
        try:
            who = Run(id=run, operator="ann", origin="laptop")
            yield Deploy(box, Scope(who, target, over, clock, teller, lambda _: None), told, dest)
        finally:
            await place.close()
    finally:
        await site.close()


def play(box: Bed, story: Story, dest: str = "/root", seconds: float = 100.0, **how: Any) -> None:
    async def whole() -> None:
        async with client(box, dest, **how) as deploy:
            await asyncio.wait_for(story(deploy), seconds)

    asyncio.run(whole())


def host_litter(box: Bed) -> list[str]:
    place = Path(pushing.PLACE)
    return [str(each) for each in place.parent.glob(f"{place.name}-{box.vmid}.*")]


def listed(root: Path) -> dict[str, tuple[int, int, int]]:
    return {
        str(each.relative_to(root)): (
            each.lstat().st_mode,
            each.lstat().st_ino,
            each.lstat().st_size,
        )
        for each in sorted(root.rglob("*"))
    }


@contextlib.contextmanager
def untouched(box: Bed, deploy: Deploy | Path) -> Iterator[None]:
    """A trainer runs on, and not a file is left over."""
    place = deploy if isinstance(deploy, Path) else deploy.here
    job: Started = box.start()
    before = listed(place), host_litter(box)
    try:
        yield
        assert (listed(place), host_litter(box)) == before
        assert lives(job)
    finally:
        if lives(job):
            os.kill(job.process.pid, signal.SIGKILL)


async def fails(deploy: Deploy, words: str, **more: Any) -> DeployFailed:
    with untouched(deploy.box, deploy):
        with pytest.raises(DeployFailed) as caught:
            await deploy.stage(**more)
        assert words in caught.value.message, caught.value.message
        assert "nothing of the job was touched" in caught.value.message
    deploy.box.note(f"`{words}`", caught.value.message)
    return caught.value


class Mounts:
    """What is mounted in a container for one test."""

    def __init__(self, box: Bed) -> None:
        self.box = box

    def inside(self, *words: str) -> None:
        init = self.box.lab.containers[self.box.vmid].init_pid()
        subprocess.run(["nsenter", f"--mount=/proc/{init}/ns/mnt", *words], check=True)

    def tmpfs(self, path: str, options: str) -> None:
        self.inside("mkdir", "-p", path)
        self.inside("mount", "-t", "tmpfs", "-o", options, "none", path)

    def over_tar(self, with_this: str) -> None:
        """Another program in its place, or /dev/null: none."""
        self.inside("mount", "--bind", with_this, "/usr/bin/tar")


@pytest.fixture
def mounts(box: Bed) -> Mounts:
    return Mounts(box)


@pytest.fixture(autouse=True)
def by_stream(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is short comes with a question; these are the tests of the streams, but for those."""
    if "question" not in request.node.name:
        monkeypatch.setattr(tarring, "UNPACKED_MOST", -1)


# ------------------------------------------------------------------------------------- it works


@pytest.mark.parametrize("kind", ["tar", "busybox", "question"])
def test_three_hundred_files_go_in_one_stream_and_none_of_them_twice(
    box: Bed, mounts: Mounts, kind: str
) -> None:
    if kind == "busybox":
        busybox = shutil.which("busybox") or pytest.skip("no busybox")
        mounts.over_tar(str(busybox))
    ways = 0 if kind == "question" else 1  # into the container, besides the shell's own

    async def story(deploy: Deploy) -> None:
        for number in range(297):
            text = f"x = {number}\n" * 40
            deploy.payload.add(f"pkg/sub{number % 7}/m{number}.py", text.encode())
        deploy.payload.add("run-it.sh", b"#!/bin/sh\n", 0o755)
        deploy.payload.add("é ü/" + "n" * 190 + ".py", b"x = 1\n", 0o600)
        deploy.payload.add("a b $(touch x)'\"", bytes(range(256)))
        began = time.monotonic()
        done = await deploy.stage()
        seconds = time.monotonic() - began
        deploy.whole(done)
        assert deploy.scope.place.pct_calls == 1 + ways
        assert deploy.scope.place.ssh_connections == 1
        # 300 files arrive, and tomorrow the same 300 with one that is new
        for each in done.files:
            target = deploy.here / each.file.rel
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(
                deploy.here / f".fleetstop/train/stage-7f3a/files/{each.file.rel}", target
            )
        assert await unstage(deploy.scope, deploy.wish) == ""
        deploy.payload.add("new.py", b"x = 'new'\n")
        again = await deploy.stage()
        deploy.whole(again)
        (sent,) = [each.sent for each in deploy.of(events.Staging)][-1:]
        (_, staged) = deploy.of(events.Staged)
        assert (staged.files, staged.same, staged.size, again.sent) == (301, 300, 10, 10)
        assert sent < 4096
        assert deploy.scope.place.pct_calls == 1 + 2 * ways
        box.note(f"300 files by {kind}", f"{seconds:.2f} s, then 1 of 301: {staged.seconds} s")

    play(box, story)


def test_a_file_of_200_mb_shows_how_far_it_is_and_takes_no_memory(box: Bed) -> None:
    async def story(deploy: Deploy) -> None:
        deploy.payload.large("w.bin", 200)
        deploy.payload.add("train.py", b"x = 1\n")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        done = await deploy.stage()
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        deploy.whole(done)
        told = deploy.of(events.Staging)
        assert len(told) > 3
        assert [each.sent for each in told] == sorted(each.sent for each in told)
        assert (told[0].sent, told[-1].sent) == (0, told[-1].size)
        rates = [each.rate for each in told if each.rate]
        assert rates
        assert grown < 64 * 1024, f"{grown} KiB"
        (staged,) = deploy.of(events.Staged)
        box.note(
            "200 MB",
            f"{staged.seconds} s, {len(told)} times told, at {max(rates) / MIB:.0f} MiB/s, "
            f"{grown} KiB more memory",
        )

    play(box, story)


def test_owner_and_mode_of_what_is_there_are_told_for_the_swap(box: Bed) -> None:
    old = box.lab.rootfs(box.vmid) / "root/config.py"
    old.write_text("x = 0\n")
    old.chmod(0o640)
    os.chown(old, 1234, 2345)
    (old.parent / "link.py").symlink_to("config.py")

    async def story(deploy: Deploy) -> None:
        deploy.payload.add("config.py", b"x = 1\n", 0o600)
        deploy.payload.add("link.py", b"x = 2\n")
        first, second = (await deploy.stage()).files
        assert (first.there.mode, first.there.uid, first.there.gid) == (0o640, 1234, 2345)
        assert second.there.real == "/root/config.py"
        assert (deploy.here / ".fleetstop/train/stage-7f3a/files/config.py").stat().st_uid == 0
        assert old.read_text() == "x = 0\n"

    play(box, story)


def test_without_root_on_the_host_it_is_staged_as_well(box: Bed) -> None:
    with login() as someone:
        someone.allow(str(box.lab.pct))

        async def story(deploy: Deploy) -> None:
            deploy.payload.add("new.py", b"x = 1\n")
            deploy.whole(await deploy.stage(prove="python3 -c 'import new'"))

        play(
            box, story, ssh=f"{someone.name}@127.0.0.1", known_hosts=str(box.lab.server.known_hosts)
        )


def test_on_a_plain_host_it_is_staged_without_any_container(box: Bed, tmp_path: Path) -> None:
    async def story(deploy: Deploy) -> None:
        deploy.payload.add("pkg/new.py", b"x = 1\n", 0o640)
        deploy.payload.large("w.bin", 5)
        done = await deploy.stage(prove='cd pkg && "$FLEETSTOP_PYTHON" -c "import new"')
        placed = Path(done.path) / "files/pkg/new.py"
        assert (placed.read_bytes(), stat.S_IMODE(placed.stat().st_mode)) == (b"x = 1\n", 0o640)
        assert deploy.scope.place.pct_calls == 0
        assert await unstage(deploy.scope, deploy.wish) == ""
        assert list(tmp_path.iterdir()) == []

    play(box, story, str(tmp_path), on_host=True)


def test_a_dry_run_surveys_and_stages_nothing(box: Bed) -> None:
    async def story(deploy: Deploy) -> None:
        deploy.payload.add("run.sh", b"new\n")
        before = listed(deploy.here)
        found = await survey(deploy.scope, deploy.payload.files, deploy.wish)
        assert found.files[0].kind == "file"
        with pytest.raises(Refused, match="a dry run does not send"):
            await deploy.stage()
        assert listed(deploy.here) == before

    play(box, story, dry_run=True)


# ------------------------------------------------------------------------ what cannot be put there


def test_a_full_disk_is_seen_beforehand(box: Bed, mounts: Mounts) -> None:
    mounts.tmpfs("/small", "size=16m")

    async def story(deploy: Deploy) -> None:
        deploy.payload.large("w.bin", 10)
        error = await fails(deploy, "is too full: 20 MiB are needed and 16 MiB are free")
        assert "twice" in error.hint
        assert deploy.scope.place.pct_calls == 1

    play(box, story, "/small")


def test_a_disk_that_fills_up_meanwhile_cuts_nothing_short(box: Bed, mounts: Mounts) -> None:
    mounts.tmpfs("/small", "size=32m")

    async def story(deploy: Deploy) -> None:
        other = deploy.here / "other"

        def fill(number: int) -> None:
            if number == 2:
                with other.open("wb") as stream, contextlib.suppress(OSError):
                    while True:
                        stream.write(_mib(1))

        (deploy.here / "train.py").write_text("x = 0\n")
        deploy.payload.large("w.bin", 12, fill)
        before = set(listed(deploy.here))
        with pytest.raises(
            DeployFailed, match=r"Wrote only .* \(0 bytes are free there\)"
        ) as caught:
            await deploy.stage()
        box.note("it fills up meanwhile", caught.value.message)
        assert set(listed(deploy.here)) == {*before, "other"}
        assert (deploy.here / "train.py").read_text() == "x = 0\n"

    play(box, story, "/small")


def test_too_few_inodes_are_seen_beforehand(box: Bed, mounts: Mounts) -> None:
    mounts.tmpfs("/small", "size=16m,nr_inodes=20")

    async def story(deploy: Deploy) -> None:
        for number in range(10):
            deploy.payload.add(f"m{number}.py", b"x = 1\n")
        await fails(deploy, "has room for 19 files more")

    play(box, story, "/small")


def test_a_read_only_destination_is_refused(box: Bed, mounts: Mounts) -> None:
    mounts.tmpfs("/fixed", "ro")

    async def story(deploy: Deploy) -> None:
        deploy.payload.add("train.py", b"x = 1\n")
        await fails(deploy, "/fixed is on a file system that is mounted read-only")

    play(box, story, "/fixed")


def test_a_missing_destination_is_refused(box: Bed) -> None:
    async def story(deploy: Deploy) -> None:
        deploy.payload.add("train.py", b"x = 1\n")
        with pytest.raises(DeployFailed, match="/root/none does not exist there") as caught:
            await deploy.stage()
        assert "--to" in caught.value.hint
        assert not (box.lab.rootfs(box.vmid) / "root/none").exists()

    play(box, story, "/root/none")


def test_an_interpreter_that_is_not_there_is_named(box: Bed) -> None:
    async def story(deploy: Deploy) -> None:
        deploy.payload.add("train.py", b"x = 1\n")
        await fails(
            deploy, "/opt/venv/bin/python, is not there", interpreter="/opt/venv/bin/python"
        )

    play(box, story)


# ------------------------------------------------------------------------------ what is no program


def test_code_that_the_jobs_interpreter_does_not_take_is_refused(box: Bed) -> None:
    async def story(deploy: Deploy) -> None:
        version = box.lab.exec(box.vmid, [PYTHON, "-V"]).stdout.split()[1]
        deploy.payload.add("train.py", b"import os\n\ndef f(:\n    pass\n")
        error = await fails(deploy, f"{PYTHON} ({version}) cannot compile train.py:3: ")
        assert error.evidence[0].endswith("def f(:")
        deploy.payload = Payload()
        deploy.payload.add("train.py", b"x = 1\ny = '\0'\n")
        await fails(deploy, "null bytes")
        deploy.payload = Payload()
        deploy.payload.add("train.py", b"x = 1\n# \xff\n")
        await fails(deploy, "train.py:2: byte 0xff is not utf-8")
        if version < "3.12":
            deploy.payload = Payload()
            deploy.payload.add("new.py", b"x = 1\ntype X = int\n")
            await fails(deploy, f"{PYTHON} ({version}) cannot compile new.py:2: invalid syntax")

    play(box, story)


def test_the_prove_command_decides_too(box: Bed) -> None:
    async def story(deploy: Deploy) -> None:
        deploy.payload.add("train.py", b"import nothing_like_this\n")
        error = await fails(
            deploy,
            "ended with status 1: ModuleNotFoundError: No module named 'nothing_like_this'",
            prove="python3 -c 'import train'",
        )
        assert any("line 1, in <module>" in each for each in error.evidence)
        await fails(deploy, "was not done within 1 s", prove="sleep 300", prove_s=1.0)

    play(box, story)


# ------------------------------------------------------------------------------------ interrupted


@pytest.mark.parametrize("wrong", ["cut", "killed", "stopped"])
def test_a_connection_that_goes_wrong_in_the_middle_leaves_nothing(
    box: Bed, tmp_path: Path, wrong: Any
) -> None:
    proxy = Proxy(box.lab, wrong)
    arriving = box.lab.rootfs(box.vmid) / "root/.fleetstop/train/stage-7f3a/files/w.bin"
    proxy.when = lambda _: arriving.exists() and arriving.stat().st_size > 4 * MIB
    proxy.inventory(tmp_path)

    async def story(deploy: Deploy) -> None:
        deploy.payload.large("w.bin", 60, lambda _: time.sleep(0.02))
        await fails(deploy, "the connection was lost")
        assert proxy.fired.is_set()
        deploy.whole(await deploy.stage())

    try:
        known = str(tmp_path / f"known-{proxy.port}")
        play(box, story, port=proxy.port, known_hosts=known)
    finally:
        proxy.close()


def test_nor_does_one_of_a_login_without_root(box: Bed, tmp_path: Path) -> None:
    proxy = Proxy(box.lab, "cut")
    arriving = box.lab.rootfs(box.vmid) / "root/.fleetstop/train/stage-7f3a/files/w.bin"
    proxy.when = lambda _: arriving.exists() and arriving.stat().st_size > 4 * MIB
    proxy.inventory(tmp_path)

    async def story(deploy: Deploy) -> None:
        deploy.payload.large("w.bin", 60, lambda _: time.sleep(0.02))
        await fails(deploy, "the connection was lost")

    try:
        known = str(tmp_path / f"known-{proxy.port}")
        with login() as someone:
            someone.allow(str(box.lab.pct))
            ssh = f"{someone.name}@127.0.0.1"
            play(box, story, port=proxy.port, known_hosts=known, ssh=ssh)
    finally:
        proxy.close()


CLIENT = """
import json, sys
sys.path[:0] = json.loads(sys.argv[1])
from pathlib import Path
from fleetstop.lab import Lab
from tests.beds import test_staging as t
from tests.beds.bed import Bed

async def story(deploy):
    deploy.payload.large("w.bin", 60, lambda n: t.time.sleep(0.05))
    await deploy.stage()

t.play(Bed(Lab.load(Path(sys.argv[2])), int(sys.argv[3])), story, run="dead")
"""


@pytest.mark.parametrize("way", ["tar", "push"])
def test_what_a_killed_client_leaves_the_next_run_removes(
    box: Bed, mounts: Mounts, way: str
) -> None:
    if way == "push":
        mounts.over_tar("/dev/null")
    base = box.lab.rootfs(box.vmid) / "root/.fleetstop/train"
    words = [sys.executable, "-c", CLIENT, json.dumps(sys.path)]
    words += [str(box.lab.root), str(box.vmid)]
    child = subprocess.Popen(words, stdin=subprocess.DEVNULL)

    def arriving() -> bool:
        host = [each for place in host_litter(box) for each in Path(place).glob("dead/0")]
        return any(
            each.exists() and each.stat().st_size > 2 * MIB
            for each in (base / "stage-dead/files/w.bin", *host)
        )

    try:
        until(arriving)
    finally:
        child.kill()
        child.wait()
    # sshd notices, and nothing of the client runs on; on the host it cleans up by itself
    until(lambda: box.litter() == [] and host_litter(box) == [])
    assert (base / "stage-dead").is_dir()

    async def story(deploy: Deploy) -> None:
        deploy.payload.add("train.py", b"x = 1\n")
        deploy.whole(await deploy.stage(others=("dead",)))
        assert [each.name for each in base.iterdir()] == ["stage-7f3a"]
        (finding,) = deploy.of(events.Finding)
        assert "run dead" in finding.text
        assert host_litter(box) == []

    play(box, story)


def test_a_cancelled_run_leaves_nothing(box: Bed) -> None:
    async def story(deploy: Deploy) -> None:
        deploy.payload.large("w.bin", 60, lambda _: time.sleep(0.05))
        with untouched(box, deploy):
            task = asyncio.create_task(deploy.stage())
            arriving = deploy.here / ".fleetstop/train/stage-7f3a/files/w.bin"
            while not (arriving.exists() and arriving.stat().st_size > MIB):
                await asyncio.sleep(0.02)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    play(box, story)


# --------------------------------------------------------------------------------------- pct push


def test_without_tar_files_are_pushed(box: Bed, mounts: Mounts) -> None:
    mounts.over_tar("/dev/null")

    async def story(deploy: Deploy) -> None:
        deploy.payload.add("train.py", b"x = 1\n", 0o755)
        deploy.payload.add("é ü/a b $(x).py", b"x = 2\n", 0o600)
        deploy.payload.large("w.bin", 20)
        done = await deploy.stage()
        deploy.whole(done)
        pushes = [each for each in box.lab.pct_calls() if each[:2] == ["push", str(box.vmid)]]
        assert len(pushes) == 3
        assert host_litter(box) == []
        assert await unstage(deploy.scope, deploy.wish) == ""

    play(box, story)


def test_without_tar_and_without_root_they_are_pushed_by_sudo(box: Bed, mounts: Mounts) -> None:
    mounts.over_tar("/dev/null")
    with login() as someone:
        someone.allow(str(box.lab.pct))

        async def story(deploy: Deploy) -> None:
            deploy.payload.add("é.py", b"x = 1\n")
            deploy.whole(await deploy.stage())
            assert host_litter(box) == []

        play(box, story, ssh=f"{someone.name}@127.0.0.1")


def test_a_push_onto_a_full_disk_is_found_out(box: Bed, mounts: Mounts) -> None:
    """It truncates without a word and says 0."""
    mounts.over_tar("/dev/null")
    mounts.tmpfs("/small", "size=32m")

    async def story(deploy: Deploy) -> None:
        def fill(number: int) -> None:
            if number == 2:
                with (deploy.here / "other").open("wb") as stream, contextlib.suppress(OSError):
                    while True:
                        stream.write(_mib(1))

        deploy.payload.large("w.bin", 12, fill)
        before = set(listed(deploy.here))
        with pytest.raises(DeployFailed, match=f"w.bin has [0-9]+ of {12 * MIB} bytes"):
            await deploy.stage()
        assert set(listed(deploy.here)) == {*before, "other"}
        assert host_litter(box) == []

    play(box, story, "/small")


def test_a_push_that_fails_and_says_0_is_found_out(box: Bed, mounts: Mounts) -> None:
    mounts.over_tar("/dev/null")

    async def story(deploy: Deploy) -> None:
        def gone(number: int) -> None:
            shutil.rmtree(deploy.here / ".fleetstop/train/stage-7f3a/files", ignore_errors=True)

        deploy.payload.large("w.bin", 1, gone)
        error = await fails(deploy, "w.bin could not be read: No such file or directory")
        assert "pct push said: " in error.message
        assert "failed to create file" in error.message

    play(box, story)


def test_a_lock_that_is_busy_for_more_than_ten_seconds_is_waited_for(
    box: Bed, mounts: Mounts
) -> None:
    mounts.over_tar("/dev/null")
    path = box.lab.root / f"run/lock/lxc/pve-config-{box.vmid}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)

    async def story(deploy: Deploy) -> None:
        deploy.payload.add("train.py", b"x = 1\n")
        with path.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            free = threading.Timer(13.0, lambda: fcntl.flock(lock, fcntl.LOCK_UN))
            free.start()
            began = time.monotonic()
            deploy.whole(await deploy.stage())
            free.join()
        assert time.monotonic() - began > 12
        assert (
            len([each for each in box.lab.pct_calls() if each[:2] == ["push", str(box.vmid)]]) >= 2
        )

    play(box, story)
