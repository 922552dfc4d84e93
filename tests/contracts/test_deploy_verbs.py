"""The verbs of boot.sh that put files and run the job's interpreter, in each shell."""

from __future__ import annotations

import json
import os
import stat
import sys
import time
from pathlib import Path

import pytest

from fleetstop.core.commands import Command
from fleetstop.errors import FrameTimedOut
from tests.contracts import test_boot_verbs as verbs
from tests.contracts.test_boot_verbs import ask, play
from tests.fakes.local_channel import LocalShell

kind = verbs.kind
ODD = "a b $(touch x) '\"\n`é%s\\0"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# ------------------------------------------------------------------------------------------ py


def test_a_script_gets_its_text_and_its_input_as_they_are(kind: str) -> None:
    text = f"import sys, json\nprint(json.dumps([{ODD!r}, sys.stdin.read(), sys.flags.isolated]))"

    async def story(local: LocalShell) -> None:
        answer = await ask(local, "py", sys.executable, text, ODD)
        assert answer.status == 0
        assert json.loads(answer.data) == [ODD, ODD, 1]

    play(kind, story)


def test_a_script_that_fails_tells_its_status_and_the_end_of_what_it_said(kind: str) -> None:
    text = "import sys; print('out'); sys.stderr.write('x' * 9000 + 'status 0, last'); sys.exit(3)"

    async def story(local: LocalShell) -> None:
        answer = await ask(local, "py", sys.executable, text, "in")
        out, _, said = answer.data.partition(b"\n\n")
        assert (answer.status, out) == (3, b"out")
        assert said.endswith(b"xstatus 0, last\n")
        assert len(said) < 2100
        answer = await ask(local, "py", "/no/such/python", text, "in")
        assert answer.status == 127
        assert b"/no/such/python" in answer.data
        assert (await ask(local, "hello")).status == 0

    play(kind, story)


def test_a_script_takes_a_large_input_and_answers_with_raw_bytes(kind: str) -> None:
    text = "import sys; sys.stdout.buffer.write(bytes(range(256)) + sys.stdin.buffer.read()[-9:])"

    async def story(local: LocalShell) -> None:
        answer = await ask(local, "py", sys.executable, text, "y" * 300_000 + "the end.\n")
        assert answer.data == bytes(range(256)) + b"the end.\n"

    play(kind, story)


def test_a_script_that_does_not_end_is_given_up_with_its_frame(kind: str, tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    text = f"import os, time; open({str(mark)!r}, 'w').write(str(os.getpid())); time.sleep(300)"

    async def story(local: LocalShell) -> None:
        with pytest.raises(FrameTimedOut):
            await local.framed.run(Command("py", (sys.executable, text, "in"), deadline_s=2.0))
        assert mark.exists()

    play(kind, story)


# ----------------------------------------------------------------------------------------- put


def test_a_file_is_put_by_rename_with_its_mode(kind: str, tmp_path: Path) -> None:
    old = tmp_path / ODD.replace("/", "")
    old.write_text("a longer text than what comes")
    old.chmod(0o777)
    inode = old.stat().st_ino

    async def story(local: LocalShell) -> None:
        assert (await ask(local, "put", str(old), "600", ODD)).status == 0
        assert (old.read_text(), mode(old)) == (ODD, 0o600)
        assert old.stat().st_ino != inode
        assert (await ask(local, "put", str(tmp_path / "empty"), "0644")).status == 0
        assert mode(tmp_path / "empty") == 0o644

    play(kind, story)
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted([old.name, "empty"])


def test_what_cannot_be_put_leaves_nothing(kind: str, tmp_path: Path) -> None:
    (tmp_path / "dir").mkdir()
    target = tmp_path / "real"
    target.write_text("mine")
    (tmp_path / "link").symlink_to(target)

    async def story(local: LocalShell) -> None:
        assert (await ask(local, "put", str(tmp_path / "dir"), "600", "x")).status == 41
        assert (await ask(local, "put", str(tmp_path / "no/x"), "600", "x")).status == 20
        assert (await ask(local, "put", "/proc/x", "600", "x")).status == 20
        assert (await ask(local, "put", str(tmp_path / "x"), "u+x", "x")).status == 2
        assert (await ask(local, "put", str(tmp_path / "link"), "600", "x")).status == 0
        assert (await ask(local, "hello")).status == 0

    play(kind, story)
    assert target.read_text() == "mine"
    assert not (tmp_path / "link").is_symlink()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["dir", "link", "real"]


def test_a_full_disk_leaves_the_old_file_and_no_other(kind: str, tmp_path: Path) -> None:
    place = tmp_path / "small"
    place.mkdir()
    if os.geteuid() != 0 or os.system(f"mount -t tmpfs -o size=64k none {place} 2>/dev/null"):
        pytest.skip("no tmpfs can be mounted here")
    try:
        (place / "one").write_text("as it was")

        async def story(local: LocalShell) -> None:
            assert (await ask(local, "put", str(place / "one"), "600", "y" * 90_000)).status == 20

        play(kind, story)
        assert [each.name for each in place.iterdir()] == ["one"]
        assert (place / "one").read_text() == "as it was"
    finally:
        os.system(f"umount {place}")


# -------------------------------------------------------------------------------- order and beat


def test_an_order_is_one_line_and_counts_as_a_sign_of_life(kind: str, tmp_path: Path) -> None:
    base = tmp_path / "new code" / ".fleetstop" / "train"
    base.mkdir(parents=True)

    async def story(local: LocalShell) -> None:
        assert (await ask(local, "order", str(base), "7f3a", "armed")).status == 0
        assert (base / "order").read_text() == "7f3a armed\n"
        os.utime(base / "beat", (1, 1))
        assert (await ask(local, "order", str(base), "7f3a", "go")).status == 0
        assert (base / "order").read_text() == "7f3a go\n"
        why = "alone it's not well: \"$(id)\" \\0101 %s 'tok/s' · è"
        assert (await ask(local, "order", str(base), "7f3a", "unwell", why)).status == 0
        assert (base / "order").read_text() == f"7f3a unwell {why}\n"
        assert (base / "beat").stat().st_mtime > time.time() - 60
        os.utime(base / "beat", (1, 1))
        assert (await ask(local, "beat", str(base))).status == 0
        assert (base / "beat").stat().st_mtime > time.time() - 60
        for words in (("7f3a", "go now"), ("../x", "go"), ("7f3a", ""), ("", "go")):
            told = await ask(local, "order", str(base), *(each or "\n" for each in words))
            assert told.status == 2
        for where in (tmp_path, base / "deeper", base / "..", tmp_path / ".fleetstop"):
            assert (await ask(local, "order", str(where), "7f3a", "go")).status == 2
            assert (await ask(local, "beat", str(where))).status == 2
        assert (await ask(local, "beat", f"{base}2")).status == 20
        assert (await ask(local, "order", f"{base}2", "7f3a", "go")).status == 20

    play(kind, story)
    assert sorted(each.name for each in base.iterdir()) == ["beat", "order"]


# ------------------------------------------------------------------------------ stage and unstage


def test_a_stage_comes_and_goes_without_a_trace(kind: str, tmp_path: Path) -> None:
    base = tmp_path / ".fleetstop" / "train"

    async def story(local: LocalShell) -> None:
        assert (
            await ask(local, "stage", str(base), "7f3a", "configs/deep", "a b $(x)")
        ).status == 0
        files = base / "stage-7f3a/files"
        assert sorted(each.name for each in files.iterdir()) == ["a b $(x)", "configs"]
        assert (files / "configs/deep").is_dir()
        assert (mode(base), mode(files)) == (0o755, 0o755)
        assert (await ask(local, "stage", str(base), "7f3a")).status == 41
        (files / "configs/x.py").write_text("x")
        assert (await ask(local, "stage", str(base), "other")).status == 0
        assert (await ask(local, "unstage", str(base), "other")).status == 0
        assert files.exists()
        assert (await ask(local, "unstage", str(base), "7f3a", "never")).status == 0

    play(kind, story)
    assert list(tmp_path.iterdir()) == []


def test_only_a_stage_is_ever_removed(kind: str, tmp_path: Path) -> None:
    base = tmp_path / ".fleetstop" / "train"
    kept = base / "releases" / "r1"
    kept.mkdir(parents=True)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "work").write_text("six days")
    (base / "stage-link").symlink_to(elsewhere)
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / ".fleetstop").symlink_to(elsewhere)

    async def story(local: LocalShell) -> None:
        for run in ("..", "x/../../..", "", ".", "-rf"):
            assert (await ask(local, "unstage", str(base), run or "\n")).status == 2
            assert (await ask(local, "stage", str(base), run or "\n")).status == 2
        for where in (tmp_path, elsewhere, base / "..", f"{base}/", base / "releases"):
            assert (await ask(local, "unstage", str(where), "link")).status == 2
        assert (await ask(local, "stage", str(base), "7f3a", "../../x")).status == 2
        assert (await ask(local, "unstage", str(base), "link", "7f3a")).status == 0
        aside = tmp_path / "linked/.fleetstop/train"
        assert (await ask(local, "stage", str(aside), "7f3a")).status == 21
        assert (await ask(local, "stage", str(tmp_path / "no/.fleetstop/x"), "7f3a")).status == 40
        assert (await ask(local, "stage", "/proc/.fleetstop/x", "7f3a")).status == 20

    play(kind, story)
    assert kept.is_dir()
    assert (elsewhere / "work").read_text() == "six days"
    assert [each.name for each in base.iterdir()] == ["releases"]
