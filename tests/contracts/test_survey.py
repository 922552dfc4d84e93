"""The survey that the job's Python runs, in the oldest and the newest that can be had here."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fleetstop
from fleetstop.core.releases.survey import Proof, Survey, answer

SCRIPT = (Path(fleetstop.__file__).parent / "remote/scripts/survey.py").read_text()
PYENV = Path.home() / ".pyenv/versions"


def interpreters() -> list[str]:
    """This one, the system's, and the oldest and newest that pyenv has."""
    own = sorted(PYENV.glob("3.*/bin/python"), key=lambda each: int(each.parts[-3].split(".")[1]))
    found = [str(each) for each in own if each.exists()]
    return [sys.executable, *found[:1], *found[-1:]]


@pytest.fixture(params=interpreters())
def python(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def ask(python: str, asked: dict[str, Any], cwd: Path | None = None, **env: str) -> bytes:
    done = subprocess.run(
        [python, "-I", "-c", SCRIPT],
        input=json.dumps(asked).encode(),
        capture_output=True,
        check=False,
        env={"PATH": os.environ["PATH"], "LC_ALL": "C", **env},
        cwd=cwd,
    )
    assert (done.returncode, done.stderr) == (0, b""), done.stderr.decode()
    return done.stdout


def surveyed(python: str, dest: Path, *files: Path, **env: str) -> Survey:
    wanted = [{"path": str(each), "size": 3, "sha256": "x"} for each in files]
    asked = {
        "ask": "survey",
        "dest": str(dest),
        "files": wanted,
    }
    found = answer(ask(python, asked, None, **env), Survey)
    assert found is not None
    return found


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_what_is_there_is_told_of_every_file(python: str, tmp_path: Path) -> None:
    odd = tmp_path / "é\udc80 \n$(x).py"
    odd.write_bytes(b"abc")
    odd.chmod(0o640)
    os.utime(odd, (1000, 1000))
    longer = tmp_path / "longer"
    longer.write_bytes(b"abcd")
    link = tmp_path / "link.py"
    link.symlink_to(odd.name)
    (tmp_path / "dir").mkdir()
    os.mkfifo(tmp_path / "fifo")
    names = (odd, longer, link, tmp_path / "dir", tmp_path / "fifo", tmp_path / "none/x.py")
    found = surveyed(python, tmp_path, *names)
    first, second, third, fourth, fifth, last = found.files
    assert (first.kind, first.size, first.sha256) == ("file", 3, sha(b"abc"))
    assert (first.mode, first.uid, first.mtime) == (0o640, os.getuid(), 1000.0)
    assert (second.kind, second.sha256) == ("file", None)
    assert (third.real, third.sha256) == (str(odd), sha(b"abc"))
    assert [fourth.kind, fifth.kind, last.kind, last.problem] == ["dir", "other", None, None]
    assert not any(each.unmapped for each in found.files)
    assert [each.path for each in found.around] == [str(tmp_path)]
    assert (found.dest.exists, found.dest.writable, found.dest.read_only) == (True, True, False)
    assert found.dest.free is not None
    assert found.tar
    version = subprocess.check_output([python, "-V"], text=True).split()[1]
    assert found.python == version.rstrip("+")


def test_what_is_missing_is_said_to_be(python: str, tmp_path: Path) -> None:
    found = surveyed(python, tmp_path / "none", tmp_path / "none/x.py", PATH=str(tmp_path))
    assert (found.dest.exists, found.tar) == (False, False)
    assert [each.path for each in found.around] == [str(tmp_path)]


def test_a_read_only_mount_is_seen(python: str, tmp_path: Path) -> None:
    mount = ["unshare", "-m", "sh", "-c", f'mount -t tmpfs -o ro none {tmp_path} && exec "$@"', "x"]
    if subprocess.run([*mount, "true"], capture_output=True, check=False).returncode:
        pytest.skip("nothing can be mounted here")
    asked = {"ask": "survey", "dest": str(tmp_path), "base": f"{tmp_path}/b", "files": []}
    told = subprocess.run(
        [*mount, python, "-I", "-c", SCRIPT],
        input=json.dumps(asked).encode(),
        capture_output=True,
        check=True,
    )
    found = answer(told.stdout, Survey)
    assert found is not None
    assert (found.dest.read_only, found.dest.writable) == (True, False)


def test_an_owner_without_a_number_here_is_seen(python: str, tmp_path: Path) -> None:
    """As in an unprivileged container that was given a directory of the host."""
    inside = ["unshare", "--user", "--map-root-user"]
    if subprocess.run([*inside, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no user namespaces here")
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    if not os.access(python, os.X_OK):
        pytest.skip("it could not be run there")
    alien = tmp_path / "alien"
    alien.mkdir()
    (alien / "x.py").write_bytes(b"abc")
    os.chown(alien, 4711, 4711)
    os.chown(alien / "x.py", 4711, 4711)
    wanted = [{"path": str(alien / "x.py"), "size": 3, "sha256": "x"}]
    asked = {"ask": "survey", "dest": str(alien), "base": f"{alien}/b", "files": wanted}
    told = subprocess.run(
        [*inside, python, "-I", "-c", SCRIPT],
        input=json.dumps(asked).encode(),
        capture_output=True,
        check=True,
    )
    found = answer(told.stdout, Survey)
    assert found is not None
    assert (found.dest.unmapped, found.dest.writable) == (True, False)
    assert found.files[0].unmapped
    assert found.uid == 0


# -------------------------------------------------------------------------------------- prove


def proved(python: str, stage: Path, **files: bytes) -> Proof:
    """These were sent, and lie there as they are now."""
    wanted = [
        {"rel": name.replace("_", ".", 1), "size": len(data), "sha256": sha(data)}
        for name, data in files.items()
    ]
    found = answer(ask(python, {"ask": "prove", "stage": str(stage), "files": wanted}), Proof)
    assert found is not None
    return found


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "stage"
    place.mkdir()
    yield place
    assert not list(place.rglob("__pycache__"))


def test_what_came_as_it_was_sent_is_proved(python: str, stage: Path) -> None:
    files = {"a_py": b"print(1)\n", "b_bin": b"\0" * 3_000_000, "c_py": "é = '\\d'\n".encode()}
    for name, data in files.items():
        (stage / name.replace("_", ".", 1)).write_bytes(data)
    assert proved(python, stage, **files) == Proof((), (), 2)


def test_what_did_not_come_as_it_was_sent_is_named(python: str, stage: Path) -> None:
    (stage / "short.py").write_bytes(b"x = 1")
    (stage / "other.py").write_bytes(b"x = 2\n")
    (stage / "link.py").symlink_to("other.py")
    sent = dict.fromkeys(("short_py", "other_py", "none_py", "link_py"), b"x = 1\n")
    assert dict(proved(python, stage, **sent).wrong) == {
        "short.py": "has 5 of 6 bytes",
        "other.py": "has another SHA-256",
        "none.py": "could not be read: No such file or directory",
        "link.py": "is no plain file",
    }


def test_what_this_interpreter_would_not_take_is_named_with_its_line(
    python: str, stage: Path
) -> None:
    files = {
        "syntax_py": b"import os\n\ndef f(:\n    pass\n",
        "null_py": b"x = 1\ny = '\0'\n",
        "bytes_py": b"x = 1\n# \xff\ny = 2\n",
        "cut_py": b"def f():\n    return (1,\n",
        "outside_py": b"return 1\n",
        "codec_py": b"# -*- coding: nothing-known -*-\n",
        "fine_py": b"\xef\xbb\xbfx = 1\n",
    }
    for name, data in files.items():
        (stage / name.replace("_", ".", 1)).write_bytes(data)
    found = proved(python, stage, **files)
    assert found.wrong == ()
    assert found.compiled == 7
    told = {each.partition(".py")[0]: each for each in found.broken}
    assert set(told) == {"syntax", "null", "bytes", "cut", "outside", "codec"}
    assert told["syntax"].startswith("syntax.py:3: ")
    assert told["syntax"].endswith("def f(:")
    assert "null bytes" in told["null"]
    assert told["bytes"] == "bytes.py:2: byte 0xff is not utf-8"
    assert told["outside"].startswith("outside.py:1: 'return' outside function")
    assert "nothing-known" in told["codec"]


def test_the_line_that_is_shown_is_the_new_files_own(python: str, stage: Path) -> None:
    """The old one of that name may lie in the directory in which we look."""
    (stage.parent / "train.py").write_bytes(b"one = 1\ntwo = 2\nthree = 3\n")
    text = b"import os\n\ndef f(:\n"
    files = [{"rel": "train.py", "size": len(text), "sha256": sha(text)}]
    (stage / "train.py").write_bytes(text)
    asked = {"ask": "prove", "stage": str(stage), "files": files}
    found = answer(ask(python, asked, cwd=stage.parent), Proof)
    assert found is not None
    assert found.broken[0].startswith("train.py:3: ")
    assert found.broken[0].endswith(": def f(:")


def test_syntax_that_is_newer_than_the_interpreter_is_no_syntax_for_it(
    python: str, stage: Path
) -> None:
    files = {"walrus_py": b"if (n := 1):\n    pass\n", "alias_py": b"x = 1\ntype X = int\n"}
    for name, data in files.items():
        (stage / name.replace("_", ".", 1)).write_bytes(data)
    version = subprocess.check_output(
        [python, "-c", "import sys; print(sys.version_info[1])"], text=True
    )
    too_new = [name for name, minor in (("walrus", 8), ("alias", 12)) if int(version) < minor]
    found = [each.partition(".py")[0] for each in proved(python, stage, **files).broken]
    assert found == too_new


def test_three_hundred_files_and_a_large_one_are_quickly_proved(stage: Path) -> None:
    files = {f"m{number}_py": f"x = {number}\n".encode() * 50 for number in range(300)}
    for name, data in files.items():
        (stage / name.replace("_", ".", 1)).write_bytes(data)
    large = b"\1" * (200 << 20)
    (stage / "w.bin").write_bytes(large)
    began = time.monotonic()
    assert proved(sys.executable, stage, **files, w_bin=large) == Proof((), (), 300)
    assert time.monotonic() - began < 20


# --------------------------------------------------------------------------------------- fill


def filled(python: str, stage: Path, pairs: list[Any] | None = None, **sent: bytes) -> Proof:
    rows = [[name.replace("_", "."), len(data), 0o640] for name, data in sent.items()]
    packed = base64.b64encode(zlib.compress(b"".join(sent.values()))).decode()
    files = [
        {
            "rel": name.replace("_", "."),
            "size": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
        }
        for name, data in sent.items()
    ]
    asked = {"ask": "fill", "stage": str(stage), "files": files, "pairs": pairs or [],
             "sent": rows, "packed": packed}  # fmt: skip
    proof = answer(ask(python, asked), Proof)
    assert proof is not None
    return proof


def test_what_was_not_sent_is_copied_and_a_large_file_linked(python: str, stage: Path) -> None:
    here = stage.parent
    (here / "small.py").write_bytes(b"x = 1\n")
    (here / "large.bin").write_bytes(b"\1" * (9 << 20))
    pairs = [
        [str(here / "small.py"), "small.py", 0o755],
        [str(here / "large.bin"), "large.bin", 0o644],
    ]
    filled(python, stage, pairs)
    small, large = (stage / "small.py").stat(), (stage / "large.bin").stat()
    assert (stat.S_IMODE(small.st_mode), small.st_nlink) == (0o755, 1)
    assert large.st_ino == (here / "large.bin").stat().st_ino
    if os.path.ismount("/dev/shm") and os.stat("/dev/shm").st_dev != here.stat().st_dev:
        other = Path("/dev/shm") / f"fleetstop-survey-{os.getpid()}"
        other.mkdir()
        try:
            filled(python, other, [[str(here / "large.bin"), "large.bin", 0o600]])
            assert (other / "large.bin").stat().st_size == 9 << 20
        finally:
            shutil.rmtree(other)


def test_what_came_with_the_question_is_written_and_proved(python: str, stage: Path) -> None:
    proof = filled(python, stage, train_py=b"x = 1\n", bad_py=b"def f(:\n", w_bin=b"\0\xff" * 9)
    assert (proof.wrong, proof.compiled, proof.unwritten) == ((), 2, None)
    assert proof.broken[0].startswith("bad.py:1: ")
    assert (stage / "w.bin").read_bytes() == b"\0\xff" * 9
    assert stat.S_IMODE((stage / "w.bin").stat().st_mode) == 0o640


def test_nothing_is_written_through_what_lies_in_the_stage(python: str, stage: Path) -> None:
    """Nor proved: whatever it is, it is not ours."""
    theirs = stage.parent / "theirs"
    theirs.write_text("six days")
    (stage / "train.py").symlink_to(theirs)
    proof = filled(python, stage, train_py=b"x = 1\n")
    assert proof.unwritten == ("train.py", "File exists")
    assert theirs.read_text() == "six days"


def test_a_disk_that_is_full_is_told(python: str, stage: Path) -> None:
    (stage / "w.bin").mkdir()
    assert filled(python, stage, w_bin=b"x").unwritten == ("w.bin", "File exists")
    gone = stage.parent / "gone"
    assert filled(python, gone, w_bin=b"x").unwritten == ("w.bin", "No such file or directory")
