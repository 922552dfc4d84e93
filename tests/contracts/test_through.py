"""Files of a place read from the host, below the root of a process: never the host's own."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from fleetstop.actions import reading
from fleetstop.core.commands import Answer, Command
from fleetstop.core.saves.listing import Listing
from fleetstop.lab import Lab
from fleetstop.lab.processes import ProcessId, identify
from tests.fakes.local_channel import SHELLS, LocalShell, is_installed, local_shell
from tests.fakes.rooted import rooted_at

ELSEWHERE, UNFOLLOWED, MISSING = 48, 49, 40


@pytest.fixture(params=sorted(SHELLS))
def kind(request: pytest.FixtureRequest) -> str:
    if not is_installed(request.param):
        pytest.skip(f"{request.param} is not installed")
    return str(request.param)


class Place:
    """A root directory, and verbs asked below it. `scope`: where its process has to be."""

    def __init__(self, root: Path, who: ProcessId, local: LocalShell, scope: str = "host") -> None:
        self.root, self.who, self._local, self._scope = root, who, local, scope

    async def ask(self, verb: str, *words: str, start: int | None = None) -> Answer:
        head = (str(self.who.pid), str(start or self.who.start), self._scope)
        return await self._local.framed.run(Command("through", (*head, verb, *words)))

    async def run(self, command: Command) -> Answer:
        return await self.ask(command.verb, *command.words)

    async def names(self, directory: str) -> list[str]:
        listed = await reading.listing(self, directory)
        assert isinstance(listed.listing, Listing), listed
        return sorted(each.path for each in listed.listing.entries)

    def write(self, name: str, text: str = "theirs") -> Path:
        path = self.root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def link(self, name: str, to: str) -> None:
        path = self.root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(to)


def play(kind: str, story: Callable[[Place], Awaitable[None]], root: Path) -> None:
    async def whole() -> None:
        async with local_shell(kind) as local:
            with rooted_at(root) as who:
                await asyncio.wait_for(story(Place(root, who, local)), 60)

    asyncio.run(whole())


@pytest.fixture
def ours() -> Iterator[Path]:
    """A directory of the host, by a path that a container may have too."""
    place = Path(tempfile.mkdtemp(prefix="fsx-", dir="/tmp"))
    (place / "ck").mkdir()
    (place / "ck/ours.pt").write_text("ours")
    (place / "train.log").write_text("ours\n")
    yield place
    shutil.rmtree(place)


def test_an_absolute_link_means_the_root_of_the_place(
    kind: str, tmp_path: Path, ours: Path
) -> None:
    """The kernel, asked for /proc/PID/root/data/ck, would follow it to the host's."""

    async def story(place: Place) -> None:
        place.write(f"{ours}/ck/theirs.pt")
        place.write(f"{ours}/train.log", "theirs\n")
        place.link("/data/ck", f"{ours}/ck")
        place.link("/data/log", f"{ours}/train.log")
        place.link("/twice", "/data")
        for directory in ("/data/ck", "/data/ck/", "/twice/ck", "/data/../twice/./ck"):
            listed = await reading.listing(place, directory)
            assert isinstance(listed.listing, Listing)
            # named as it was asked for; its real path is the place's own
            names = [each.path.replace("//", "/") for each in listed.listing.entries]
            assert names == [f"{directory.rstrip('/')}/theirs.pt"]
            assert listed.real == f"{ours}/ck"
        log = await reading.log(place, "/data/log")
        assert log is not None
        assert log.lines[0] == "theirs"
        one = "/data/ck/theirs.pt"
        assert await reading.ends(place, one, 6) == (b"theirs", b"theirs")
        assert (await place.ask("pidfile", "/data/log")).data == b"theirs\n"

    play(kind, story, tmp_path)


def test_a_link_to_what_only_the_host_has_is_not_there(
    kind: str, tmp_path: Path, ours: Path
) -> None:
    async def story(place: Place) -> None:
        place.link("/data/ck", f"{ours}/ck")
        place.link("/data/log", f"{ours}/train.log")
        place.link("/data/up", "../../../../../../../.." + f"{ours}/ck")
        for directory in ("/data/ck", "/data/up", f"/..{ours}/ck", f"/data/../..{ours}/ck"):
            answer = await place.ask("list", directory)
            assert answer.status == MISSING, (directory, answer)
            assert b"ours" not in answer.data
        assert (await place.ask("log", "/data/log")).status == MISSING
        assert (await place.ask("ends", "/data/ck/ours.pt")).status == MISSING
        # the kernel's own way leads out: that is what is not trusted
        assert Path(f"/proc/{place.who.pid}/root/data/ck/ours.pt").exists()

    play(kind, story, tmp_path)


def test_links_beside_each_other_and_above_the_root(kind: str, tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        place.write("/runs/17/ck/a.pt")
        place.link("/runs/last", "17")
        place.link("/ck", "../runs/last/ck")  # above the root is the root
        place.write("/runs/17/log", "a line\n")
        place.link("/runs/17/train.log", "log")
        assert await place.names("/ck") == ["/ck/a.pt"]
        assert await place.names("/runs/last/ck") == ["/runs/last/ck/a.pt"]
        assert (await reading.listing(place, "/ck")).real == "/runs/17/ck"
        log = await reading.log(place, "/runs/last/train.log")
        assert log is not None
        assert (log.size, log.lines[0]) == (7, "a line")
        # below the directory links are not followed, as in the place itself
        place.link("/runs/17/ck/link.pt", "a.pt")
        place.link("/runs/17/ck/out", "/")
        assert await place.names("/ck") == ["/ck/a.pt"]
        assert await place.names("/") != []

    play(kind, story, tmp_path)


def test_what_cannot_be_followed_is_not_called_missing(kind: str, tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        place.link("/loop", "/loop/ck")
        place.link("/a", "/b")
        place.link("/b", "/a")
        (place.root / "proc").mkdir()
        for directory in ("/loop", "/loop/ck", "/a/ck", "/proc/1/root/ck", "/proc/self/cwd"):
            assert (await place.ask("list", directory)).status == UNFOLLOWED, directory
        assert (await place.ask("log", "/a/train.log")).status == UNFOLLOWED
        for directory in ("/nowhere", "/nowhere/ck", "/nowhere/../nowhere"):
            assert (await place.ask("list", directory)).status == MISSING, directory
        place.write("/file", "x")
        assert (await place.ask("list", "/file")).status == 41
        assert (await place.ask("list", "/file/ck")).status == MISSING
        place.write("/-n * [x]\n/a.pt")
        assert await place.names("/-n * [x]\n") == ["/-n * [x]\n/a.pt"]

    play(kind, story, tmp_path)


def test_another_process_of_that_number_shows_nothing(kind: str, tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        place.write("/ck/a.pt")
        answer = await place.ask("list", "/ck", start=place.who.start + 1)
        assert answer == Answer(status=ELSEWHERE, data=b"")
        elsewhere = Place(place.root, place.who, place._local, "lxc:123456789")
        assert await elsewhere.ask("list", "/ck") == Answer(status=ELSEWHERE, data=b"")
        for verb in ("send", "touch", "hello", "run", "list;id", "through"):
            assert (await place.ask(verb, "/ck")).status == 2, verb
        os.kill(place.who.pid, 9)
        assert (await place.ask("list", "/ck")).status == ELSEWHERE

    play(kind, story, tmp_path)


def test_one_that_ends_meanwhile_is_not_believed(kind: str, tmp_path: Path) -> None:
    """Its PID may be another's by then: what was printed is told to be nobody's."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)

    async def story(place: Place) -> None:
        asked = asyncio.create_task(place.ask("ends", "/fifo"))
        ended = False
        while not asked.done():  # head reads it, then tail
            await asyncio.sleep(0.02)
            with suppress(OSError):  # nobody reads just now
                stream = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
                if not ended:
                    os.kill(place.who.pid, 9)
                    os.waitid(os.P_PID, place.who.pid, os.WEXITED | os.WNOWAIT)
                    ended = True
                os.write(stream, b"x")
                os.close(stream)
        assert ended
        assert (await asked).status == ELSEWHERE

    play(kind, story, tmp_path)


def test_the_same_bytes_as_in_the_place_itself(kind: str, tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        for name in ("a.pt", "step_1/b.pt", "100%s%d%%", "back\\slash\\n", "new\nline"):
            place.write(f"/c%P\\k/{name}")
        (place.root / "c%P\\k").joinpath("z" * 200).write_text("")
        here = f"{place.root}/c%P\\k"
        for more in ((), ("3",)):
            inside = (await place._local.framed.run(Command("list", (here, *more)))).data
            outside = (await place.ask("list", "/c%P\\k", *more)).data
            rows = inside.partition(b"\n")[2].replace(os.fsencode(place.root), b"")
            assert outside.partition(b"\n")[2] == rows
            assert rows.count(b"\0") > 3

    play(kind, story, tmp_path)


# ------------------------------------------------- a real container: a root nobody else can name


@pytest.mark.bed
def test_a_real_containers_files(kind: str, lab: Lab, ours: Path) -> None:
    vmid = lab.vmids[0]
    init = lab.containers[vmid].init_pid()
    assert init is not None
    who = identify(init)
    assert who is not None
    text = f"mkdir -p {ours}/ck; echo -n theirs >{ours}/ck/theirs.pt; ln -sfn {ours}/ck /root/ck"
    done = lab.exec(vmid, ["bash", "-c", text])
    assert done.returncode == 0, done

    async def story() -> None:
        async with local_shell(kind) as local:
            place = Place(Path(f"/proc/{init}/root"), who, local, f"lxc:{vmid}")
            assert await place.names("/root/ck") == ["/root/ck/theirs.pt"]
            assert (await reading.listing(place, "/root/ck")).real == f"{ours}/ck"
            assert await reading.ends(place, "/root/ck/theirs.pt", 6) == (b"theirs", b"theirs")
            # /tmp is a mount of its own in there
            assert await place.names(f"{ours}") == [f"{ours}/ck", f"{ours}/ck/theirs.pt"]
            assert (await place.ask("log", f"{ours}/train.log")).status == MISSING
            assert (await place.ask("list", "/../../../proc/1/root")).status == UNFOLLOWED
            lab.freeze(vmid)
            try:
                assert await place.names("/root/ck") == ["/root/ck/theirs.pt"]
            finally:
                lab.thaw(vmid)

    asyncio.run(asyncio.wait_for(story(), 60))
