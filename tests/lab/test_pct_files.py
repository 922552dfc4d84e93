"""`pct push` and `pct pull`: what they do, and what they say of it, which is mostly nothing."""

from __future__ import annotations

import fcntl
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from fleetstop.lab import Lab

pytestmark = pytest.mark.bed

Done = subprocess.CompletedProcess[str]
Pct = Callable[..., Done]


@pytest.fixture
def push(lab: Lab, vmid: int, pct: Pct, tmp_path: Path) -> Callable[..., Done]:
    """Pushes this text; says what the tool said."""

    def one(text: str | bytes, target: str, *options: str) -> Done:
        source = tmp_path / "source"
        source.write_bytes(text if isinstance(text, bytes) else text.encode())
        source.chmod(0o755)
        return pct("push", str(vmid), str(source), target, *options)

    return one


def said(done: Done) -> tuple[int, str, str]:
    return done.returncode, done.stdout, done.stderr


def test_a_file_arrives_and_its_mode_does_not(
    lab: Lab, vmid: int, push: Callable[..., Done]
) -> None:
    assert said(push("one\n", "/root/new.py")) == (0, "", "")
    there = lab.rootfs(vmid) / "root/new.py"
    assert there.read_text() == "one\n"
    assert (there.stat().st_mode & 0o777, there.stat().st_uid) == (0o644, 0)


def test_a_target_is_rewritten_in_place_with_its_own_mode_and_owner(
    lab: Lab, vmid: int, push: Callable[..., Done]
) -> None:
    there = lab.rootfs(vmid) / "root/old.py"
    there.write_text("a longer text than what comes\n")
    there.chmod(0o755)
    os.chown(there, 65534, 65534)
    before = there.stat().st_ino
    assert said(push("two\n", "/root/old.py")) == (0, "", "")
    now = there.stat()
    assert (there.read_text(), now.st_ino) == ("two\n", before)
    assert (now.st_mode & 0o777, now.st_uid, now.st_gid) == (0o755, 65534, 65534)


@pytest.mark.parametrize(
    ("options", "mode", "owner"),
    [
        (("--perms", "755"), 0o755, (0, 0)),
        (("--perms", "0x1ed"), 0o755, (0, 0)),
        (("--user", "nobody", "--group", "65534"), 0o644, (65534, 65534)),
        (("--user", "12345"), 0o644, (12345, 0)),
    ],
)
def test_what_the_options_make_of_it(
    lab: Lab,
    vmid: int,
    push: Callable[..., Done],
    options: tuple[str, ...],
    mode: int,
    owner: tuple[int, int],
) -> None:
    made = lab.rootfs(vmid) / "root/made"
    made.unlink(missing_ok=True)
    assert said(push("x", "/root/made", *options)) == (0, "", "")
    there = made.stat()
    assert (there.st_mode & 0o777, (there.st_uid, there.st_gid)) == (mode, owner)


@pytest.mark.parametrize(
    ("target", "options", "stderr"),
    [
        ("/nodir/x.txt", (), "failed to create file: /nodir/x.txt: No such file or directory\n"),
        ("/root", (), "failed to create file: /root: Is a directory\n"),
        ("/root/x", ("--perms", "u+x"), "invalid mode: '0u+x'\n"),
        ("/root/x", ("--user", "nosuchuser"), "failed to get uid for: nosuchuser\n"),
        ("/usr/x", (), "failed to create file: /usr/x: Read-only file system\n"),
    ],
)
def test_a_copy_that_failed_exits_with_0(
    lab: Lab,
    vmid: int,
    push: Callable[..., Done],
    target: str,
    options: tuple[str, ...],
    stderr: str,
) -> None:
    assert said(push("x", target, *options)) == (0, "", stderr)
    assert not (lab.rootfs(vmid) / "root/x").exists()


def test_a_source_that_is_not_there_or_is_a_directory(
    lab: Lab, vmid: int, pct: Pct, tmp_path: Path
) -> None:
    done = pct("push", str(vmid), "/nonexist", "/root/a")
    assert said(done) == (0, "", "failed to open /nonexist for reading\n")
    assert not (lab.rootfs(vmid) / "root/a").exists()
    assert said(pct("push", str(vmid), str(tmp_path), "/root/b")) == (0, "", "")
    assert (lab.rootfs(vmid) / "root/b").read_bytes() == b""


def test_a_full_disk_truncates_without_a_word(
    lab: Lab, vmid: int, pct: Pct, push: Callable[..., Done]
) -> None:
    inside = "mkdir /tmp/small && mount -t tmpfs -o size=64k tmpfs /tmp/small"
    assert pct("exec", str(vmid), "--", "sh", "-c", inside).returncode == 0
    assert said(push(b"x" * 1_000_000, "/tmp/small/big")) == (0, "", "")
    seen = pct("exec", str(vmid), "--", "stat", "-c", "%s", "/tmp/small/big")
    assert seen.stdout == "65536\n"


def test_a_program_that_runs_is_busy(
    lab: Lab, vmid: int, pct: Pct, push: Callable[..., Done]
) -> None:
    inside = "cp /usr/bin/sleep /root/busy && { setsid -f /root/busy 60 >/dev/null 2>&1; }"
    assert pct("exec", str(vmid), "--", "sh", "-c", inside).returncode == 0
    done = push("x", "/root/busy")
    assert said(done) == (0, "", "failed to create file: /root/busy: Text file busy\n")


def test_a_link_is_followed_inside_and_a_relative_target_is_below_the_root(
    lab: Lab, vmid: int, push: Callable[..., Done]
) -> None:
    root = lab.rootfs(vmid)
    (root / "root/link").symlink_to("/workspace/behind")
    assert said(push("1", "/root/link")) == (0, "", "")
    assert (root / "workspace/behind").read_text() == "1"
    assert said(push("2", "rel.txt")) == (0, "", "")
    assert (root / "rel.txt").read_text() == "2"


def test_a_frozen_container_takes_files(lab: Lab, vmid: int, push: Callable[..., Done]) -> None:
    lab.freeze(vmid)
    assert said(push("1", "/root/frozen")) == (0, "", "")
    lab.thaw(vmid)
    assert (lab.rootfs(vmid) / "root/frozen").read_text() == "1"


def test_one_that_does_not_run_or_is_not_here(
    lab: Lab, vmid: int, pct: Pct, push: Callable[..., Done], tmp_path: Path
) -> None:
    lab.stop(vmid)
    words = "can only push files to a running CT\n"
    assert said(push("x", "/root/x")) == (255, "", words)
    assert said(pct("push", "199", str(tmp_path / "source"), "/root/x")) == (255, "", words)
    done = pct("pull", str(vmid), "/root/x", str(tmp_path / "pulled"))
    assert done.returncode == 255
    assert done.stderr.startswith("can only pull files from a running VM at ")
    assert done.stderr.endswith("pct.pm line 664.\n")
    assert not (tmp_path / "pulled").exists()


def test_copies_into_one_container_wait_for_each_other(
    lab: Lab, vmid: int, pct: Pct, push: Callable[..., Done]
) -> None:
    assert said(push("x", "/root/x"))[0] == 0
    place = lab.root / f"run/lock/lxc/pve-config-{vmid}.lock"
    with place.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = push("y", "/root/x")
    shown = f"/run/lock/lxc/pve-config-{vmid}.lock"
    told = f"trying to acquire lock...\ncan't lock file '{shown}' - got timeout\n"
    assert said(done) == (4, "", told)
    assert (lab.rootfs(vmid) / "root/x").read_text() == "x"
    assert pct("exec", str(vmid), "--", "true").returncode == 0


def test_pull(lab: Lab, vmid: int, pct: Pct, tmp_path: Path) -> None:
    (lab.rootfs(vmid) / "root/out").write_text("from inside\n")
    target = tmp_path / "pulled"
    assert said(pct("pull", str(vmid), "/root/out", str(target), "--perms", "600")) == (0, "", "")
    assert (target.read_text(), target.stat().st_mode & 0o777) == ("from inside\n", 0o600)


def test_pull_empties_its_target_before_it_looks_for_its_source(
    vmid: int, pct: Pct, tmp_path: Path
) -> None:
    target = tmp_path / "pulled"
    target.write_text("what was here\n")
    done = pct("pull", str(vmid), "/root/missing", str(target))
    assert (done.returncode, target.read_bytes()) == (0, b"")
    assert done.stderr == "failed to open /root/missing for reading\n"


def test_a_name_in_a_plain_locale_arrives_as_something_else(
    lab: Lab, vmid: int, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    source.write_text("x")
    words = [str(lab.pct), "push", str(vmid), str(source), "/root/é.py"]
    done = subprocess.run(words, env={"LC_ALL": "C"}, capture_output=True, check=False)
    assert done.returncode == 0
    names = os.listdir(os.fsencode(lab.rootfs(vmid) / "root"))
    assert b"\xef\xbf\xbd\xef\xbf\xbd.py" in names
    assert "é.py".encode() not in names
