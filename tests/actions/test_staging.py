"""Files are staged and proved on this machine, by real shells and a real interpreter."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import stat
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import pytest

from fleetstop import events
from fleetstop.actions import pushing, staging, tarring
from fleetstop.actions.reconnect import ReconnectingPlace
from fleetstop.actions.staging import Stage, Wish, stage, survey
from fleetstop.actions.telling import Run, Scope, Teller
from fleetstop.api.machine import SystemClock
from fleetstop.core.inventory import Host, Target
from fleetstop.core.releases.payload import File
from fleetstop.errors import DeployFailed
from fleetstop.events import AnyEvent, Event
from tests.fakes.local_place import LocalPlace, local_place

E = TypeVar("E", bound=Event)
Story: TypeAlias = Callable[["Deploy"], Awaitable[None]]
GOOD = b"print('new')\n"


class Deploy:
    """A payload, a destination that holds an older version, and what was told of it."""

    def __init__(self, place: LocalPlace, root: Path, run: str = "7f3a") -> None:
        self.place, self.root, self.run = place, root, run
        self.dest = root / "job dir é"
        self.base = self.dest / ".fleetstop/train"
        self.told: list[AnyEvent] = []
        self.contents: dict[str, bytes] = {}
        self.files: tuple[File, ...] = ()
        self.reads: list[str] = []
        clock = SystemClock()
        host = Host(name="pve1", ssh="root@pve1", pct=str(root / "pct"))
        target = Target(name="ct200:train", host=host, vmid=200, job=None)
        teller = Teller(target.name, self.told.append, clock)
        who = Run(id=run, operator="ann", origin="laptop")
        self.over: Any = ReconnectingPlace(place, "pve1", clock, teller)
        self.scope = Scope(who, target, self.over, clock, teller, lambda _: None)

    def sends(self, mode: int = 0o644, **contents: bytes) -> None:
        """Names with __ for / and _py for .py."""
        for name, data in contents.items():
            rel = name.replace("__", "/").replace("_py", ".py").replace("_bin", ".bin")
            self.contents[rel] = data
            file = File(rel, hashlib.sha256(data).hexdigest(), len(data), mode)
            self.files += (file,)

    def read(self, file: File) -> Iterator[bytes]:
        self.reads.append(file.rel)
        data = self.contents[file.rel]
        for at in range(0, len(data), 100_000):
            yield data[at : at + 100_000]

    def wish(self, **more: Any) -> Wish:
        facts = {"dest": str(self.dest), "base": str(self.base), "interpreter": sys.executable}
        return Wish(**{**facts, **more})

    async def stage(self, **more: Any) -> Stage:
        return await stage(self.scope, self.files, self.read, self.wish(**more))

    async def fails(self, **more: Any) -> DeployFailed:
        """And nothing is left of it, nor changed."""
        before = listed(self.root)
        with pytest.raises(DeployFailed) as caught:
            await self.stage(**more)
        assert listed(self.root) == before
        assert "nothing of the job was touched" in caught.value.message
        return caught.value

    def of(self, kind: type[E]) -> list[E]:
        return [each for each in self.told if isinstance(each, kind)]


def listed(root: Path) -> dict[str, tuple[int, int, float]]:
    """Everything below it but directories' times."""
    return {
        str(each.relative_to(root)): (
            each.lstat().st_mode,
            each.lstat().st_ino,
            each.lstat().st_size,
        )
        for each in sorted(root.rglob("*"))
    }


def play(tmp_path: Path, story: Story, *, env: dict[str, str] | None = None) -> None:
    async def whole() -> None:
        async with local_place(env=env) as place:
            deploy = Deploy(place, tmp_path)
            deploy.dest.mkdir()
            (deploy.dest / "train.py").write_bytes(b"print('old')\n")
            (deploy.dest / "train.py").chmod(0o640)
            await asyncio.wait_for(story(deploy), 60)

    asyncio.run(whole())


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# ------------------------------------------------------------------------------- all goes well


def test_new_files_are_staged_and_proved_and_the_job_is_not_touched(tmp_path: Path) -> None:
    async def story(deploy: Deploy) -> None:
        deploy.sends(
            train_py=GOOD, model__deep__net_py=b"x = 1\n", configs__a_bin=bytes(range(256))
        )
        deploy.sends(
            0o755, **{"run.sh": b"#!/bin/sh\n", "é \udc80$(x)": b"odd", "n" * 180: b"long"}
        )
        done = await deploy.stage()
        into = Path(done.path) / "files"
        assert done.path == str(deploy.base / "stage-7f3a")
        for rel, data in deploy.contents.items():
            assert (into / rel).read_bytes() == data
        assert mode(into / "run.sh") == 0o755
        assert mode(into / "train.py") == 0o644
        first = done.files[0]
        assert (first.there.kind, first.there.mode, first.same) == ("file", 0o640, False)
        assert first.staged == str(into / "train.py")
        assert (deploy.dest / "train.py").read_bytes() == b"print('old')\n"
        assert (deploy.dest.stat().st_uid, (into / "train.py").stat().st_uid) == (os.getuid(),) * 2
        version = ".".join(map(str, sys.version_info[:3]))
        assert done.by == (f"compiled with {sys.executable} ({version})",)
        assert not list(deploy.root.rglob("__pycache__"))
        (staged,) = deploy.of(events.Staged)
        assert (staged.files, staged.same) == (6, 0)
        assert staged.size == done.sent == sum(map(len, deploy.contents.values()))
        assert deploy.of(events.Proved)[0].by == done.by
        told = deploy.of(events.Staging)
        assert (told[0].sent, told[-1].sent) == (0, told[-1].size)
        assert await staging.unstage(deploy.scope, deploy.wish()) == ""
        assert [each.name for each in deploy.dest.iterdir()] == ["train.py"]

    play(tmp_path, story)


def test_what_is_there_already_is_not_sent_and_the_stage_is_whole_all_the_same(
    tmp_path: Path,
) -> None:
    async def story(deploy: Deploy) -> None:
        weights = os.urandom(9 << 20)
        deploy.sends(train_py=GOOD, w_bin=weights, lib_py=b"x = 1\n")
        (deploy.dest / "w.bin").write_bytes(weights)
        (deploy.dest / "lib.py").write_bytes(b"x = 1\n")
        done = await deploy.stage()
        assert deploy.reads == ["train.py"]
        assert deploy.place.sent < 3000
        assert [each.same for each in done.files] == [False, True, True]
        into = Path(done.path) / "files"
        assert {rel: (into / rel).read_bytes() for rel in deploy.contents} == deploy.contents
        (staged,) = deploy.of(events.Staged)
        assert (staged.same, staged.size) == (2, len(GOOD))

    play(tmp_path, story)


def test_where_nothing_differs_nothing_is_carried(tmp_path: Path) -> None:
    async def story(deploy: Deploy) -> None:
        deploy.sends(train_py=b"print('old')\n")
        done = await deploy.stage()
        assert (deploy.place.sent, deploy.reads, done.sent) == (0, [], 0)
        assert Path(done.files[0].staged).exists()

    play(tmp_path, story)


def test_a_survey_alone_changes_nothing(tmp_path: Path) -> None:
    async def story(deploy: Deploy) -> None:
        deploy.sends(train_py=GOOD)
        before = listed(tmp_path)
        found = await survey(deploy.scope, deploy.files, deploy.wish())
        assert found.files[0].kind == "file"
        assert listed(tmp_path) == before

    play(tmp_path, story)


def test_a_large_file_tells_its_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(deploy: Deploy) -> None:
        deploy.sends(w_bin=b"\1" * 3_000_000)
        plain = deploy.read

        def slowly(file: File) -> Iterator[bytes]:
            for piece in plain(file):
                time.sleep(0.05)
                yield piece

        await stage(deploy.scope, deploy.files, slowly, deploy.wish())
        told = deploy.of(events.Staging)
        assert len(told) >= 3
        assert [each.sent for each in told] == sorted(each.sent for each in told)
        rates = [each.rate for each in told if each.rate is not None]
        assert rates
        assert all(0 < each < 5_000_000 for each in rates)

    play(tmp_path, story)


def test_what_an_earlier_client_left_behind_is_removed_but_not_what_is_in_use(
    tmp_path: Path,
) -> None:
    async def story(deploy: Deploy) -> None:
        for run in ("dead", "live"):
            (deploy.base / f"stage-{run}/files").mkdir(parents=True)
        deploy.sends(train_py=GOOD)
        await deploy.stage(others=("dead",))
        assert sorted(each.name for each in deploy.base.iterdir()) == ["stage-7f3a", "stage-live"]
        (finding,) = deploy.of(events.Finding)
        assert "run dead" in finding.text

    play(tmp_path, story)


@pytest.mark.parametrize("way", ["question", "stream"])
def test_what_is_short_comes_with_the_question_and_is_the_same_as_by_stream(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """300 files need no second way into the container; one that cannot be packed does."""
    if way == "stream":
        monkeypatch.setattr(tarring, "UNPACKED_MOST", -1)

    async def story(deploy: Deploy) -> None:
        deploy.sends(0o750, **{f"configs__d{n % 7}__c{n}": b"a: %d\n" % n * 40 for n in range(300)})
        deploy.sends(0o444, empty=b"", train_py=GOOD)
        (deploy.dest / "empty").write_bytes(b"")
        done = await deploy.stage()
        into = Path(done.path) / "files"
        for each in deploy.files:
            assert (into / each.rel).read_bytes() == deploy.contents[each.rel]
            assert mode(into / each.rel) == each.mode
        assert len(deploy.place.streams) == (1 if way == "stream" else 0)
        told = deploy.of(events.Staging)
        assert (told[0].sent, told[-1].sent) == (0, told[-1].size)
        assert (deploy.of(events.Staged)[0].files, deploy.of(events.Staged)[0].same) == (302, 1)

    play(tmp_path, story)


def test_what_is_too_long_for_a_question_is_streamed(tmp_path: Path) -> None:
    async def story(deploy: Deploy) -> None:
        deploy.sends(a_bin=os.urandom(100_000), b_bin=os.urandom(100_000))
        await deploy.stage()
        assert len(deploy.place.streams) == 1
        assert deploy.reads == ["a.bin", "b.bin"] * 2

    play(tmp_path, story)


def test_a_python_without_zlib_gets_a_stream(tmp_path: Path) -> None:
    python = tmp_path / "python"
    text = "import sys; sys.modules['zlib'] = None; exec(sys.argv[1])"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -I -c "{text}" "$3"\n')
    python.chmod(0o755)

    async def story(deploy: Deploy) -> None:
        deploy.sends(train_py=GOOD)
        await deploy.stage(interpreter=str(python))
        assert len(deploy.place.streams) == 1

    play(tmp_path, story)


# ---------------------------------------------------------------------------- what is refused


def test_code_that_does_not_compile_is_refused_line_by_line(tmp_path: Path) -> None:
    async def story(deploy: Deploy) -> None:
        deploy.sends(train_py=b"def f(:\n", other_py=b"x = '\0'\n", fine_py=b"x = 1\n")
        error = await deploy.fails()
        assert "cannot compile train.py:1: " in error.message
        assert [each.partition(":")[0] for each in error.evidence] == ["train.py", "other.py"]
        assert error.exit_code == 7

    play(tmp_path, story)


def test_a_destination_that_is_missing_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    async def story(deploy: Deploy) -> None:
        deploy.sends(train_py=GOOD)
        shutil.rmtree(deploy.dest)
        error = await deploy.fails()
        assert "does not exist there" in error.message
        assert "--to" in error.hint
        assert deploy.place.streams == []

    play(tmp_path, story)


def test_an_interpreter_that_is_missing_is_named(tmp_path: Path) -> None:
    async def story(deploy: Deploy) -> None:
        deploy.sends(train_py=GOOD)
        error = await deploy.fails(interpreter="/opt/venv/bin/python")
        assert "interpreter, /opt/venv/bin/python, is not there" in error.message
        error = await deploy.fails(interpreter="/bin/cat")
        assert "/bin/cat did not answer" in error.message

    play(tmp_path, story)


def test_where_there_is_no_python_at_all_that_is_said(
    tmp_path: Path, without_tar: dict[str, str]
) -> None:
    async def story(deploy: Deploy) -> None:
        deploy.sends(train_py=GOOD)
        error = await deploy.fails(interpreter="python3")
        assert "there is no python3, and what brings a job up again runs on it" in error.message
        assert "install python3 there" in error.hint
        assert error.exit_code == 7

    play(tmp_path, story, env=without_tar)


def test_a_file_that_changes_while_it_is_sent_is_noticed(tmp_path: Path) -> None:
    async def story(deploy: Deploy) -> None:
        deploy.sends(train_py=GOOD)
        for now in (GOOD + b"more", GOOD[:-1]):
            deploy.contents["train.py"] = now
            assert "changed here while" in (await deploy.fails()).message
        deploy.contents["train.py"] = GOOD.replace(b"new", b"old")
        error = await deploy.fails()
        assert "not what was sent: train.py has another SHA-256" in error.message

    play(tmp_path, story)


def test_a_file_that_cannot_be_read_here_is_named(tmp_path: Path) -> None:
    async def story(deploy: Deploy) -> None:
        deploy.sends(train_py=GOOD)

        def broken(file: File) -> Iterator[bytes]:
            yield GOOD[:3]
            raise OSError(5, "Input/output error")

        deploy.read = broken  # type: ignore[method-assign]
        error = await deploy.fails()
        assert "train.py could not be read here: Input/output error" in error.message

    play(tmp_path, story)


def test_tars_own_words_are_told(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "tar").write_text(
        "#!/bin/sh\nhead -c 2000 >/dev/null\necho 'tar: x: No space left on device' >&2\nexit 2\n"
    )
    (tools / "tar").chmod(0o755)

    async def story(deploy: Deploy) -> None:
        deploy.sends(w_bin=b"\1" * 3_000_000)
        error = await deploy.fails()
        assert "(status 2): tar: x: No space left on device" in error.message

    play(tmp_path, story, env={"PATH": f"{tools}:{os.environ['PATH']}"})


# -------------------------------------------------------------------------- the prove command


def test_the_prove_command_runs_among_the_staged_files(tmp_path: Path) -> None:
    async def story(deploy: Deploy) -> None:
        deploy.sends(train_py=b"import lib\n", lib_py=b"x = 1\n")
        (deploy.dest / "lib.py").write_bytes(b"x = 1\n")
        text = '[ "$FLEETSTOP_STAGE" = "$PWD" ] && "$FLEETSTOP_PYTHON" -c "import train"'
        done = await deploy.stage(prove=text)
        assert done.by[1] == f"ran {text}"
        assert not list(deploy.root.rglob("__pycache__"))

    play(tmp_path, story)


def test_a_prove_command_that_fails_tells_its_last_words(tmp_path: Path) -> None:
    async def story(deploy: Deploy) -> None:
        deploy.sends(train_py=GOOD)
        error = await deploy.fails(prove="echo one; echo PASSWORD=hunter2; echo last >&2; exit 3")
        assert "ended with status 3: last;" in error.message
        assert error.evidence[0] == "one"
        assert error.evidence[-1] == "last"
        assert "hunter2" not in str(error.evidence) + error.message

    play(tmp_path, story)


def test_a_prove_command_that_does_not_end_is_ended(tmp_path: Path) -> None:
    mark = tmp_path / "pid"

    async def story(deploy: Deploy) -> None:
        deploy.sends(train_py=GOOD)
        mark.write_text("        ")
        error = await deploy.fails(prove=f"printf %8s $$ 1<>{mark} >&1; sleep 300", prove_s=1.5)
        assert "was not done within 1.5 s" in error.message
        pid = int(mark.read_text())
        until = time.monotonic() + 10
        while Path(f"/proc/{pid}").exists():
            assert time.monotonic() < until
            await asyncio.sleep(0.05)

    play(tmp_path, story)


# ---------------------------------------------------------------------------- interrupted ways


def test_a_connection_cut_in_the_middle_leaves_nothing(tmp_path: Path) -> None:
    async def story(deploy: Deploy) -> None:
        deploy.sends(w_bin=b"\1" * 3_000_000)
        deploy.place.cut = 1_000_000
        error = await deploy.fails()
        assert "the connection was lost" in error.message

    play(tmp_path, story)


def test_a_cancelled_stage_leaves_nothing(tmp_path: Path) -> None:
    async def story(deploy: Deploy) -> None:
        deploy.sends(w_bin=b"\1" * 30_000_000)
        plain = deploy.read

        def slowly(file: File) -> Iterator[bytes]:
            for piece in plain(file):
                time.sleep(0.02)
                yield piece

        before = listed(tmp_path)
        task = asyncio.create_task(stage(deploy.scope, deploy.files, slowly, deploy.wish()))
        while deploy.place.sent < 1_000_000:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert listed(tmp_path) == before

    play(tmp_path, story)


# ------------------------------------------------------------------------------------ pct push

PCT = """#!/bin/bash
# push VMID FILE DEST --perms MODE
echo "$*" >>"$(dirname "$0")/calls"
[ "$1" = push ] || exit 2
{faults}
cat "$3" >"$4" && chmod "$6" "$4"
"""


@pytest.fixture
def without_tar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The place has no tar; the host has, and a pct. Nothing is short enough for a question."""
    monkeypatch.setattr(tarring, "UNPACKED_MOST", -1)
    monkeypatch.setattr(pushing, "PLACE", str(tmp_path / "host/fleetstop-push"))
    (tmp_path / "host").mkdir()
    tools = tmp_path / "tools"
    tools.mkdir()
    for each in (
        "sh",
        "rm",
        "mkdir",
        "rmdir",
        "tail",
        "sleep",
        "cat",
        "id",
        "getconf",
        "dash",
        "head",
    ):
        (tools / each).symlink_to(shutil.which(each) or each)
    return {"PATH": str(tools)}


def pct(root: Path, faults: str = "") -> None:
    (root / "pct").write_text(PCT.replace("{faults}", faults))
    (root / "pct").chmod(0o755)
    (root / "calls").write_text("")


def calls(root: Path) -> list[str]:
    return (root / "calls").read_text().splitlines()


def test_without_tar_files_are_pushed_one_by_one(
    tmp_path: Path, without_tar: dict[str, str]
) -> None:
    async def story(deploy: Deploy) -> None:
        pct(tmp_path)
        deploy.sends(0o755, train_py=GOOD, model__net_py=b"x = 1\n", w_bin=b"\1" * 500_000)
        done = await deploy.stage()
        into = Path(done.path) / "files"
        assert {rel: (into / rel).read_bytes() for rel in deploy.contents} == deploy.contents
        assert mode(into / "train.py") == 0o755
        assert len(calls(tmp_path)) == 3
        assert list((tmp_path / "host").iterdir()) == []

    play(tmp_path, story, env=without_tar)


@pytest.mark.parametrize(
    ("faults", "words"),
    [
        # a full disk: cut without a word, and it says 0
        ('head -c 65536 "$3" >"$4"; exit 0', "w.bin has 65536 of 500000 bytes"),
        ('echo "failed to create file: $4: No such file" >&2; exit 0', "pct push said: "),
        ('echo "can only push files to a running CT" >&2; exit 255', "to a running CT"),
        (
            "echo \"can't lock file '/run/lock/lxc/x.lock' - got timeout\" >&2; exit 4",
            "can't lock file",
        ),
    ],
)
def test_a_push_that_failed_is_found_out_whatever_it_said(
    tmp_path: Path, without_tar: dict[str, str], faults: str, words: str
) -> None:
    async def story(deploy: Deploy) -> None:
        pct(tmp_path, faults)
        deploy.sends(w_bin=b"\1" * 500_000)
        (tmp_path / "calls").write_text("x" * 1000)  # the list is compared by size

        before = set(listed(tmp_path))
        with pytest.raises(DeployFailed) as caught:
            await deploy.stage()
        assert words in caught.value.message
        assert set(listed(tmp_path)) == before
        if "lock" in words:
            assert len(calls(tmp_path)) == 3

    play(tmp_path, story, env=without_tar)


def test_a_lock_that_is_busy_once_is_waited_for(
    tmp_path: Path, without_tar: dict[str, str]
) -> None:
    async def story(deploy: Deploy) -> None:
        pct(
            tmp_path,
            '[ -e "$0.free" ] || { touch "$0.free"; echo "can\'t lock file x - got timeout" >&2; '
            "exit 4; }",
        )
        deploy.sends(train_py=GOOD)
        await deploy.stage()
        assert len(calls(tmp_path)) == 2

    play(tmp_path, story, env=without_tar)


def test_a_push_that_is_cut_leaves_nothing_on_the_host_and_the_next_cleans_what_a_kill_left(
    tmp_path: Path, without_tar: dict[str, str]
) -> None:
    async def story(deploy: Deploy) -> None:
        pct(tmp_path)
        deploy.sends(w_bin=b"\1" * 3_000_000)
        deploy.place.cut = 1_000_000
        before = listed(tmp_path)
        with pytest.raises(DeployFailed):
            await deploy.stage()
        assert listed(tmp_path) == before
        deploy.place.cut = None
        place = tmp_path / f"host/fleetstop-push-200.{os.getuid()}"
        (place / "dead").mkdir(parents=True)
        (place / "dead/0").write_bytes(b"half")
        place.chmod(0o700)
        await deploy.stage()
        assert list((tmp_path / "host").iterdir()) == []

    play(tmp_path, story, env=without_tar)


def test_somebody_elses_directory_on_the_host_is_not_used(
    tmp_path: Path, without_tar: dict[str, str]
) -> None:
    async def story(deploy: Deploy) -> None:
        pct(tmp_path)
        deploy.sends(train_py=GOOD)
        theirs = tmp_path / "theirs"
        theirs.mkdir()
        (theirs / "work").write_text("six days")
        (tmp_path / f"host/fleetstop-push-200.{os.getuid()}").symlink_to(theirs)
        with pytest.raises(DeployFailed, match="not a directory of ours"):
            await deploy.stage()
        assert (theirs / "work").read_text() == "six days"

    play(tmp_path, story, env=without_tar)
