"""The verbs that tell how a process was started, and who a user is, in each shell."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import fleetstop
from fleetstop.core.launching.origin import Origin, parse_origins
from fleetstop.core.launching.recipe import Extra, Known, recipe
from tests.fakes.local_channel import SHELLS, LocalShell, is_installed

from .test_boot_verbs import ask, play

SUPERVISE = Path(fleetstop.__file__).parent / "remote/scripts/supervise.py"
_WAITS = "print(flush=True); import time; time.sleep(60)"


@pytest.fixture(params=sorted(SHELLS))
def kind(request: pytest.FixtureRequest) -> str:
    if not is_installed(request.param):
        pytest.skip(f"{request.param} is not installed")
    return str(request.param)


@pytest.fixture
def jobs() -> Iterator[list[subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for each in started:
        each.kill()
        each.wait()
        if each.stdout is not None:
            each.stdout.close()


@pytest.fixture
def open_to_all() -> Iterator[Path]:
    """Other users come to it; to pytest's own directories they don't."""
    place = Path(tempfile.mkdtemp(prefix="fs-origin-"))
    place.chmod(0o755)
    yield place
    shutil.rmtree(place, ignore_errors=True)  # a supervisor writes its last words just then


def origin_of(kind: str, pid: int, word: str | None = None) -> Origin:
    found: dict[int, Origin] = {}

    async def story(local: LocalShell) -> None:
        answer = await ask(local, "origin", word or str(pid))
        assert answer.status == 0
        found.update(parse_origins(answer.data))
        # the shell splits and globs words as before
        assert (await ask(local, "look", "pids", str(os.getpid()))).status == 0

    play(kind, story)
    return found[pid]


def test_how_a_process_was_started(
    kind: str, tmp_path: Path, jobs: list[subprocess.Popen[bytes]]
) -> None:
    log = tmp_path / "a log;$(touch x)\nsecond line.txt"
    place = tmp_path / "work *"
    place.mkdir()
    text = (
        "import os, resource, sys, time\n"
        "os.umask(0o027); os.nice(3); os.setgroups([4, 44]); os.setregid(12, 12)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (512, 600)); os.setreuid(34, 34)\n"
        "os.write(2, b'up'); time.sleep(60)"
    )
    env = {"PATH": "/usr/bin:/bin", "ODD": "a\nb = 'c' \\0040", "EMPTY": "", "RAW": "\udcff"}
    read, write = os.pipe()
    argv = ["/usr/bin/python3", "-S", "-c", text, "", "*"]
    with log.open("ab") as file:
        job = subprocess.Popen(argv, cwd=place, env=env, stdout=file, stderr=write)
    jobs.append(job)
    os.close(write)
    assert os.read(read, 2) == b"up"
    os.close(read)
    found = origin_of(kind, job.pid)
    assert found.argv == tuple(argv)
    assert found.env == env
    assert (found.cwd, found.log) == (str(place), str(log))
    assert (found.exe or "").startswith("/usr/bin/python3")
    assert (found.uid, found.gid, found.groups) == (34, 12, (4, 44))
    assert (found.umask, found.nice) == (0o027, os.nice(0) + 3)
    assert found.limits["NOFILE"] == (512, 600)
    assert len(found.limits) == 16
    assert found.streams[2].target.startswith("pipe:")
    assert found.streams[1].flags is not None
    assert found.unseen == ()


def test_what_was_deleted_under_it(
    kind: str, tmp_path: Path, jobs: list[subprocess.Popen[bytes]]
) -> None:
    place, log = tmp_path / "gone", tmp_path / "log"
    place.mkdir()
    with log.open("ab") as file:
        job = subprocess.Popen(
            [sys.executable, "-S", "-c", "import os, time; os.rmdir(os.getcwd()); " + _WAITS],
            cwd=place,
            stdout=subprocess.PIPE,
            stderr=file,
        )
    jobs.append(job)
    assert job.stdout is not None
    assert job.stdout.readline()
    log.unlink()
    found = origin_of(kind, job.pid)
    assert (found.cwd, found.log) == (str(place), None)
    assert set(found.unseen) == {
        f"its output goes to {log}, which has been deleted",
        f"its working directory, {place}, has been deleted or replaced since",
    }


def test_a_dead_leader_tells_through_a_living_thread(
    kind: str, jobs: list[subprocess.Popen[bytes]]
) -> None:
    text = (
        "import ctypes, threading, time\n"
        "threading.Thread(target=time.sleep, args=(60,)).start()\n"
        "print(flush=True); ctypes.CDLL(None).syscall(60, 0)"
    )
    job = subprocess.Popen([sys.executable, "-c", text, "word"], stdout=subprocess.PIPE)
    jobs.append(job)
    assert job.stdout is not None
    assert job.stdout.readline()
    for _ in range(500):
        if " Z " in Path(f"/proc/{job.pid}/stat").read_text():
            break
    found = origin_of(kind, job.pid, f"deep:{job.pid}")
    assert found.argv[-1] == "word"
    assert found.cwd == os.getcwd()
    assert found.env is not None
    assert found.env["PATH"] == os.environ["PATH"]
    assert found.umask is not None


def test_one_that_is_gone_is_not_there_and_words_are_numbers(kind: str) -> None:
    async def story(local: LocalShell) -> None:
        gone = subprocess.Popen(["true"])
        gone.wait()
        answer = await ask(local, "origin", str(gone.pid), str(os.getpid()))
        assert answer.status == 0
        assert set(parse_origins(answer.data)) == {os.getpid()}
        assert (await ask(local, "origin", "../self")).status == 2
        assert (await ask(local, "origin")).status == 0

    play(kind, story)


def test_it_runs_four_programs_however_many_are_asked_for(
    kind: str, tmp_path: Path, jobs: list[subprocess.Popen[bytes]]
) -> None:
    for name in ("grep", "find", "wc", "cat", "sed", "tail", "head"):
        tool = tmp_path / name
        tool.write_text(f'#!/bin/sh\necho {name} >>{tmp_path}/ran\nexec /usr/bin/{name} "$@"\n')
        tool.chmod(0o755)
    for _ in range(20):
        jobs.append(subprocess.Popen(["sleep", "60"]))

    async def story(local: LocalShell) -> None:
        answer = await ask(local, "origin", *(str(each.pid) for each in jobs))
        assert len(parse_origins(answer.data)) == 20

    play(kind, story, env={"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    ran = (tmp_path / "ran").read_text().split() if (tmp_path / "ran").exists() else []
    # busybox runs its own applets first
    assert sorted(ran) == sorted(["grep", "find", "grep", "wc"]) or kind == "busybox"


@pytest.mark.parametrize("getent", [True, False])
def test_who_a_user_is(kind: str, getent: bool, tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("sh", "id", "head", "sleep", "mktemp", "cat", "rm", "getconf", "printf"):
        (tools / name).symlink_to(f"/usr/bin/{name}")
    if getent:
        (tools / "getent").symlink_to("/usr/bin/getent")
    (tools / kind).symlink_to(f"/usr/bin/{kind}")

    async def story(local: LocalShell) -> None:
        want = pwd.getpwnam("backup")
        line = f"backup:x:{want.pw_uid}:{want.pw_gid}:backup:{want.pw_dir}:{want.pw_shell}\n"
        line += f"{want.pw_gid}\n"
        for word in ("backup", str(want.pw_uid)):
            answer = await ask(local, "user", word)
            assert (answer.status, answer.data.decode()) == (0, line)
        assert (await ask(local, "user", "nobody-of-that-name")).status == 40
        for bad in ("-x", "a b", "a:b", "*", "$(id)"):
            assert (await ask(local, "user", bad)).status == 2

    play(kind, story, env={"PATH": str(tools)})


_OWN_IDS = """
import ctypes, os, sys
assert ctypes.CDLL(None).unshare(0x10000000) == 0
print(flush=True)
sys.stdin.readline()
os.setgroups([4, 44]); os.setgid(12); os.setuid(34)
os.execv("/bin/sleep", ["sleep", "60"])
"""


def test_ids_are_those_of_the_container(kind: str, jobs: list[subprocess.Popen[bytes]]) -> None:
    """In an unprivileged container: /proc shows the host its own numbers (user_namespaces(7))."""
    pipe = subprocess.PIPE
    job = subprocess.Popen([sys.executable, "-c", _OWN_IDS], stdin=pipe, stdout=pipe)
    jobs.append(job)
    assert job.stdin is not None
    assert job.stdout is not None
    assert job.stdout.readline() == b"\n"
    for each in ("uid_map", "gid_map"):
        Path(f"/proc/{job.pid}/{each}").write_text("0 100000 65536\n")
    job.stdin.write(b"\n")
    job.stdin.close()
    waited_for(lambda: Path(f"/proc/{job.pid}/cmdline").read_bytes().startswith(b"sleep\0"))
    found: dict[int, Origin] = {}

    async def story(local: LocalShell) -> None:
        answer = await ask(local, "origin", str(job.pid))
        found.update(parse_origins(answer.data, first=job.pid))

    play(kind, story)
    here = found[job.pid]
    assert (here.uid, here.gid, here.groups) == (34, 12, (4, 44))
    # without a container's first process the numbers are those of whoever looks
    assert origin_of(kind, job.pid).uid == 100034


def test_what_is_started_by_the_recipe_is_born_as_the_old_one_was(
    kind: str, open_to_all: Path, jobs: list[subprocess.Popen[bytes]]
) -> None:
    """From one process's origin through the recipe and the supervisor to another's: the same."""
    log = open_to_all / "train.log"
    place = open_to_all / "work"
    place.mkdir()
    text = (
        "import os, resource, time\n"
        "if os.getuid() == 0:\n"
        "    os.umask(0o027); os.nice(3); os.setgroups([4, 44]); os.setregid(12, 12)\n"
        "    resource.setrlimit(resource.RLIMIT_NOFILE, (512, 600)); os.setreuid(34, 34)\n"
        "print('up', flush=True); time.sleep(60)"
    )
    env = {"PATH": "/usr/bin:/bin", "ODD": "a\nb = 'c' \\0040", "EMPTY": "", "HF_TOKEN": "x"}
    argv = ["/usr/bin/python3", "-S", "-c", text, "", "*"]
    log.touch()
    log.chmod(0o666)
    place.chmod(0o755)
    with log.open("ab") as file:
        jobs.append(subprocess.Popen(argv, cwd=place, env=env, stdout=file))
    waited_for(lambda: b"up" in log.read_bytes())
    old = origin_of(kind, jobs[0].pid)
    base = open_to_all / "base"
    base.mkdir(mode=0o700)
    made = recipe(
        None,
        Known(origin=old),
        Extra(env={"MORE": "1"}),
        log=None,
        mark="m1",
        status=str(base / "m1.json"),
    )
    assert made.notes == ()
    spec = base / "spec.json"
    spec.write_text(json.dumps(made.spec.words()))
    said = subprocess.run(
        ["/usr/bin/python3", "-I", str(SUPERVISE), str(spec)],
        stdout=subprocess.PIPE,
        timeout=60,
        check=True,
    ).stdout.split()
    assert said[0] == b"started", said
    pid = int(said[1])
    try:
        waited_for(lambda: log.read_bytes().count(b"up") == 2)
        new = origin_of(kind, pid)
        assert (new.env or {}).pop("FLEETSTOP_MARK") == "m1"
        assert (new.env or {}).pop("MORE") == "1"
        assert (new.env or {}).pop("PWD") == str(place)
        for field in ("argv", "cwd", "env", "uid", "gid", "groups", "umask", "nice", "limits"):
            assert getattr(new, field) == getattr(old, field), field
        assert (new.log, new.exe) == (old.log, old.exe)
    finally:
        os.kill(pid, signal.SIGKILL)


def waited_for(true: Callable[[], bool]) -> None:
    for _ in range(3000):
        if true():
            return
        time.sleep(0.01)
    raise AssertionError("did not come about")
