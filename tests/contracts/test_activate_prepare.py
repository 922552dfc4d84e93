"""What can fail fails before anything is stopped, in one sentence, and leaves nothing behind."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.activation import NEW, OLD, RUN, SCRIPTS, SHIPPED, Activator, alive, tree

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts and changes owners")


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Activator]:
    made = Activator(tmp_path)
    made.old("train.sh", OLD)
    made.new("train.sh", NEW)
    yield made
    made.close()


def refuses(job: Activator, **spec: Any) -> str:
    """The sentence; what lies there is as it was, but for what was staged."""
    staged = {path for path in tree(job.dest) if RUN in path}
    before = {path: what for path, what in tree(job.dest).items() if path not in staged}
    code, line = job.ask(**spec)
    assert code == 1, line
    assert line.startswith("failed ")
    assert tree(job.dest) == before
    return line.removeprefix("failed ")


def test_a_staged_file_that_is_missing(job: Activator) -> None:
    job.new("more.py", "x")
    (job.stage / "files/more.py").unlink()
    assert refuses(job) == f"cannot read {job.stage}/files/more.py: No such file or directory"


@pytest.mark.parametrize("text", ["", NEW + "#", NEW.replace("new", "NEW")])
def test_a_staged_file_that_is_another(job: Activator, text: str) -> None:
    (job.stage / "files/train.sh").write_text(text)
    said = f"{job.stage}/files/train.sh is not what was sent: size or SHA-256 differs"
    assert refuses(job) == said


def test_a_staged_file_that_is_a_link_or_hangs(job: Activator) -> None:
    staged = job.stage / "files/train.sh"
    staged.unlink()
    staged.symlink_to("/etc/hostname")
    assert refuses(job) == f"cannot read {staged}: Too many levels of symbolic links"
    job.stage.joinpath("files").mkdir(parents=True)
    os.mkfifo(staged)
    assert refuses(job) == "what is to be copied is no regular file"


def test_no_link_is_followed_out_of_the_destination(job: Activator, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "a.yaml").write_text("theirs")
    (job.dest / "configs").symlink_to(elsewhere)
    job.new("configs/a.yaml", "x: 1\n")
    said = f"{job.dest}/configs is no directory of its own: no link is followed"
    assert refuses(job) == said
    assert tree(elsewhere).keys() == {"a.yaml"}
    assert (elsewhere / "a.yaml").read_text() == "theirs"


def test_what_is_replaced_has_to_be_a_regular_file(job: Activator, tmp_path: Path) -> None:
    (job.dest / "link.py").symlink_to("/etc/hostname")
    job.new("link.py", "x")
    assert refuses(job) == "link.py is there and is no regular file"
    job.spec["files"].clear()
    (job.dest / "configs").mkdir()
    job.new("configs", "x")
    assert refuses(job) == "configs is there and is no regular file"


def test_a_temporary_name_that_is_taken_is_not_written_to(job: Activator, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("theirs")
    trap = job.dest / f".train.sh.fleetstop-{RUN}"
    trap.symlink_to(victim)
    code, line = job.ask()
    assert (code, line) == (1, f"failed cannot write {job.dest}/train.sh: File exists")
    assert victim.read_text() == "theirs"
    assert (job.dest / "train.sh").read_text() == OLD


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/etc/passwd", "does not lie in"),
        ("{dest}/../out.py", "does not lie in"),
        ("{dest}er/out.py", "does not lie in"),
        ("{dest}/.fleetstop/train/supervise.py", "is nothing that can be replaced"),
    ],
)
def test_a_path_that_is_no_destination(job: Activator, path: str, said: str) -> None:
    job.spec["files"][0]["path"] = path.format(dest=job.dest)
    assert said in refuses(job)


def test_what_is_replaced_is_kept_under_a_name(job: Activator) -> None:
    said = "what is replaced has to be kept, but no release before is named"
    assert refuses(job, before=None) == said


def test_a_kept_release_is_not_taken_for_another(job: Activator) -> None:
    kept = job.base / "releases/r1"
    (kept / "files").mkdir(parents=True)
    (kept / "files/train.sh").write_text("older still")
    (kept / "manifest.json").write_text("{}")
    assert refuses(job) == f"{job.dest}/train.sh is not what release r1 holds"


def test_a_user_that_the_container_does_not_know(job: Activator) -> None:
    job.spec["files"][0]["uid"] = 2**32 - 2
    if os.geteuid() == 0:
        job.before = ["unshare", "-Ur"]  # as in an unprivileged container
        if subprocess.run([*job.before, "true"], check=False).returncode != 0:
            pytest.skip("no user namespace can be made here")
    said = refuses(job)
    assert said.startswith(f"cannot write {job.dest}/train.sh: ")
    assert said.endswith(("Invalid argument", "Operation not permitted"))


def test_a_mark_that_was_used_before(job: Activator) -> None:
    """Its state file would be taken for the new start's."""
    status = job.base / "status/old.json"
    status.parent.mkdir()
    status.write_text("{}")
    assert refuses(job) == f"{status} is there: a mark is used once"


def test_a_directory_that_others_may_write(job: Activator) -> None:
    job.base.chmod(0o777)
    assert refuses(job).startswith(f"{job.base} is not ours alone to write to: its owner is ")


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"roll_back": "no"}, "does not tell roll_back as it should"),
        ({"files": None}, "does not tell files as it should"),
        ({"launch": []}, "does not tell launch as it should"),
        ({"health": {"within_s": 1, "log_matches": "("}}, "log_matches is no regular expression"),
        ({"release": "../r2"}, "is no name for a run or a release"),
        ({"before": "."}, "is no name for a run or a release"),
        ({"dest": "/no/such"}, "cannot look into /no/such: No such file or directory"),
    ],
)
def test_a_spec_that_is_none(job: Activator, spec: dict[str, Any], said: str) -> None:
    assert said in refuses(job, **spec)


def test_a_spec_that_is_not_even_json(job: Activator) -> None:
    file = job.stage / "spec.json"
    file.write_text('{"env": {"TOKEN": "hunter2')
    code, line = job.script(str(file))
    assert code == 1
    assert line.startswith(f"failed cannot read {file}: ")
    assert not file.exists()
    assert job.script(str(file)) == (1, f"failed cannot read {file}: No such file or directory")
    code, line = job.script()
    assert (code, line.partition(":")[0]) == (1, "failed usage")


def test_a_second_activator_is_refused_while_the_first_lives(job: Activator) -> None:
    job.begin()
    again = json.loads(json.dumps(job.spec).replace(RUN, "other"))
    file = job.base / "again.json"
    file.write_text(json.dumps(again))
    assert job.script(str(file)) == (1, f"failed run {RUN} is at it: waiting")
    job.order("cancel")
    job.end("cancelled")


@pytest.fixture
def small(tmp_path: Path) -> Iterator[tuple[Activator, Path]]:
    """A job on a file system of 1 MiB that only one mount namespace has, seen from outside."""
    place = tmp_path / "small"
    place.mkdir()
    mount = 'mount -t tmpfs -o size=1M none "$1" && echo ready && exec sleep 300'
    holder = subprocess.Popen(
        ["unshare", "-m", "sh", "-c", mount, "-", str(place)], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    if holder.stdout.readline() != "ready\n":
        holder.wait()
        pytest.skip("no file system can be mounted here")
    job = Activator(tmp_path, Path(f"/proc/{holder.pid}/root{place}/job"))
    job.old("train.sh", OLD)
    job.new("train.sh", NEW)
    yield job, place
    job.close()
    holder.kill()
    holder.wait()


@as_root
def test_a_disk_that_is_full(small: tuple[Activator, Path]) -> None:
    job, _ = small
    job.new("big.bin", "x" * 400_000)
    with (job.dest / "full").open("wb") as full:
        full.write(b"\0" * 300_000)
    assert refuses(job) == f"cannot write {job.dest}/big.bin: No space left on device"


@as_root
def test_a_disk_that_is_full_by_the_time_the_old_run_has_ended(
    small: tuple[Activator, Path],
) -> None:
    """Its last save took the room: the new version runs all the same, and the old one would."""
    job, _ = small
    job.log.write_text("old\n")
    job.begin("armed", stale_s=1.0, health={"within_s": 300, "log_matches": None})
    with contextlib.suppress(OSError), (job.dest / "ckpt").open("wb") as full:
        full.write(b"\0" * 2_000_000)
    with pytest.raises(OSError, match="No space left"):
        job.order("go")  # so the client can but fall silent
    job.reach("launched")
    new = job.runs_now("new")
    assert (job.dest / "train.sh").read_text() == NEW
    os.kill(new, signal.SIGKILL)
    assert job.end("rolled_back")["signal"] == "KILL"
    job.runs_now("old")
    assert (job.dest / "train.sh").read_text() == OLD


@as_root
def test_a_destination_that_is_read_only(small: tuple[Activator, Path], tmp_path: Path) -> None:
    job, _ = small
    (job.dest / "ro").mkdir()
    job.new("ro/a.py", "x")
    inside = ["nsenter", "-m", "-t", job.dest.parts[2]]
    inner = "/" + "/".join(job.dest.parts[4:]) + "/ro"
    subprocess.run([*inside, "mount", "-t", "tmpfs", "-o", "ro", "none", inner], check=True)
    assert refuses(job) == f"cannot write {job.dest}/ro/a.py: Read-only file system"


def test_it_reads_as_python_3_6_and_signals_nobody() -> None:
    for name in SHIPPED:
        text = (SCRIPTS / f"{name}.py").read_text()
        for node in ast.walk(ast.parse(text, feature_version=(3, 6))):
            match node:
                case ast.Import(names=names):
                    tops = {each.name.partition(".")[0] for each in names}
                case ast.ImportFrom(module=module):
                    tops = {str(module).partition(".")[0]}
                case ast.Attribute(attr=attr):
                    assert attr not in {"kill", "killpg", "terminate", "send_signal"}, name
                    continue
                case _:
                    continue
            assert tops <= sys.stdlib_module_names | {*SHIPPED, "fleetstop"}, name


def test_nothing_is_held_of_whoever_started_it(job: Activator) -> None:
    job.before = ["sh", "-c", 'exec "$@" 7</etc/hostname', "-"]
    job.begin()
    pid, start = job.activator
    own = Path(f"/proc/{pid}")
    assert {link.readlink() for link in (own / "fd").iterdir()} == {Path("/dev/null")}
    assert (own / "cwd").readlink() == Path("/")
    assert os.getsid(pid) not in {os.getsid(0), pid}
    masks = (own / "status").read_text()
    ignored = int(masks.partition("SigIgn:\t")[2].split()[0], 16)
    assert ignored & 0b100_0000_0000_0111 == 0b100_0000_0000_0111  # HUP, INT, QUIT, TERM
    assert alive(pid, start)
    job.order("cancel")
    job.end("cancelled")
