"""What a job's code is, asked in real shells: here, and below another root."""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from fleetstop.core.commands import Answer, Command
from fleetstop.core.releases.sighting import Beside, parse_code
from tests.fakes.local_channel import SHELLS, LocalShell, is_installed, local_shell
from tests.fakes.rooted import rooted_at

LOOKED, MISSING = 0, 40


@pytest.fixture(params=sorted(SHELLS))
def kind(request: pytest.FixtureRequest) -> str:
    if not is_installed(request.param):
        pytest.skip(f"{request.param} is not installed")
    return str(request.param)


class Place:
    """Verbs asked below `root`: through a process that has it, or, where that is none, here."""

    def __init__(self, root: Path, local: LocalShell, head: tuple[str, ...] = ()) -> None:
        self.root, self._local, self._head = root, local, head

    async def ask(self, verb: str, *words: str) -> Answer:
        if self._head:
            return await self._local.framed.run(Command("through", (*self._head, verb, *words)))
        return await self._local.framed.run(Command(verb, words))

    async def code(self, *words: str) -> Beside:
        answer = await self.ask("code", *words)
        assert answer.status == LOOKED, answer
        seen = parse_code(answer.data)
        assert seen is not None, answer.data
        return seen

    def name(self, path: str) -> str:
        """As it is called in that place."""
        return path if self._head else f"{self.root}{path}"

    def write(self, path: str, text: str = "") -> Path:
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file


def play(kind: str, root: Path, story: Callable[[Place], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with local_shell(kind) as local:
            await asyncio.wait_for(story(Place(root, local)), 60)
            with rooted_at(root) as who:
                head = (str(who.pid), str(who.start), "host")
                await asyncio.wait_for(story(Place(root, local, head)), 60)

    asyncio.run(whole())


def test_times_siblings_and_imports(kind: str, tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        main = place.write("/root/train.py", "import model\nx = 1\nif x:\n    from pkg import a\n")
        place.write("/root/model.py", "import os")
        place.write("/root/pkg/__init__.py")
        place.write("/root/pkg/a b.py")
        place.write("/root/data/not_a_package.py")
        place.write("/root/notes.txt", "import antigravity")
        os.utime(main, (1000.25, 1000.25))
        seen = await place.code("-", place.name("/root/none.py"), place.name("/root/train.py"))
        assert (seen.asked, seen.main) == (place.name("/root/train.py"),) * 2
        names = ("train.py", "model.py", "pkg/__init__.py", "pkg/a b.py")
        assert set(seen.files) == {place.name(f"/root/{each}") for each in names}
        stamps, real = seen.files[place.name("/root/train.py")], main.stat()
        assert stamps.changed == 1000.25
        assert abs(stamps.touched - real.st_ctime) < 1e-3
        assert stamps.touched - 1000 > stamps.changed
        # where the file system tells
        assert stamps.born is None or abs(stamps.born - time.time()) < 600
        assert seen.imports[place.name("/root/train.py")][:2] == (
            "import model",
            "    from pkg import a",
        )
        assert seen.imports[place.name("/root/model.py")] == ("import os",)
        assert not seen.links

    play(kind, tmp_path, story)


def test_the_clocks_are_one(kind: str, tmp_path: Path) -> None:
    """A process's start and a file's date, told by the same frame, whatever /proc/uptime says."""

    async def story(place: Place) -> None:
        if not (place.root / "train.py").exists():
            place.write("/train.py")
        before = time.time()
        seen = await place.code("-", place.name("/train.py"))
        ticks, hz = time.clock_gettime(time.CLOCK_BOOTTIME), os.sysconf("SC_CLK_TCK")
        assert before - 0.1 <= seen.now <= time.time() + 0.1
        assert abs(seen.began(int(ticks * hz), hz) - time.time()) < 5.0

    play(kind, tmp_path, story)


def test_a_link_is_named_with_its_own_times(kind: str, tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        place.write("/opt/v2/train.py")
        link = place.root / "opt/current"
        if not link.is_symlink():
            link.symlink_to("v2")
        os.utime(link, (5.0, 5.0), follow_symlinks=False)
        seen = await place.code("-", place.name("/opt/current/train.py"))
        assert seen.main == place.name("/opt/v2/train.py")
        assert seen.links[place.name("/opt/current")].changed == 5.0

    play(kind, tmp_path, story)


def test_states_of_the_places_that_may_be_ours(kind: str, tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        base = place.name("/root/my code/.fleetstop/job")
        place.write("/root/my code/.fleetstop/job/state.json", '{"run": "7f3a"}\n')
        beat = place.write("/root/my code/.fleetstop/job/beat")
        os.utime(beat, (1234.5, 1234.5))
        seen = await place.code(place.name("/nowhere/.fleetstop/job"), base, "-")
        assert (seen.states, seen.beats) == ({base: b'{"run": "7f3a"}\n'}, {base: 1234.5})
        assert seen.main is None
        assert seen.files == {}

    play(kind, tmp_path, story)


def test_what_would_hang_or_lead_elsewhere_is_not_read(kind: str, tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        place.write("/root/train.py", "import model")
        place.write("/secret/model.py", "import hidden")
        for path, to in (("link.py", f"{tmp_path}/secret/model.py"), ("far", f"{tmp_path}/secret")):
            if not (file := place.root / "root" / path).is_symlink():
                file.symlink_to(to)
        place.write("/secret/__init__.py")
        if not (fifo := place.root / "root/pipe.py").exists():
            os.mkfifo(fifo)
        seen = await place.code("-", place.name("/root/train.py"))
        assert set(seen.files) == {place.name("/root/train.py")}
        assert "hidden" not in str(seen.imports)

    play(kind, tmp_path, story)


def test_bodies_and_hashes(kind: str, tmp_path: Path) -> None:
    async def story(place: Place) -> None:
        place.write("/root/train.py", "one\n")
        (place.root / "dir").mkdir(exist_ok=True)
        name = place.name("/root/train.py")
        assert await place.ask("body", name, "3") == Answer(0, b"one")
        assert (await place.ask("body", place.name("/root/none"), "3")).status == MISSING
        words = (place.name("/root/none"), name, place.name("/dir"))
        sums = [line.split()[0] for line in (await place.ask("sums", *words)).data.splitlines()]
        assert sums == [b"-", hashlib.sha256(b"one\n").hexdigest().encode(), b"-"]

    play(kind, tmp_path, story)
