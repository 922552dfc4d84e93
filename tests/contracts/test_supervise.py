"""What starts a trainer and records its end: real processes, the script as it is shipped."""

from __future__ import annotations

import ast
import json
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import fleetstop
from fleetstop.core.kin.matching import records_the_end
from tests.core.trees import process

SCRIPT = Path(fleetstop.__file__).parent / "remote" / "scripts" / "supervise.py"
PATIENCE_S = 30.0
NOBODY = 65534
DEAF = "import os, signal, sys\n"
DEAF += (
    "for s in ('INT', 'QUIT', 'HUP'): signal.signal(getattr(signal, 'SIG' + s), signal.SIG_IGN)\n"
)
DEAF += "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])\n"
DEAF += "os.execv(sys.argv[1], sys.argv[1:])\n"
# what is started by glibc's posix_spawn(3), which make uses, ignores libc's internal 32 and 33;
# rt_sigaction(2) itself is asked for it: 13 on x86-64, 134 on the others
LIBCS_OWN = "import ctypes, platform\n"
LIBCS_OWN += "number = 13 if platform.machine() == 'x86_64' else 134\n"
LIBCS_OWN += "ignore = (ctypes.c_ulong * 4)(1, 0, 0, 0)\n"
LIBCS_OWN += "for s in (32, 33): assert not ctypes.CDLL(None).syscall(number, s, ignore, None, 8)\n"
SAVES = "import pathlib, time\nprint('up', flush=True)\n"
SAVES += "try:\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    print('saved', flush=True)\n"
RAISES = "import time\nprint('up', flush=True)\ntime.sleep(60)\n"

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can change who a process is")


def alive(pid: int, start: int) -> bool:
    """That very process, and not merely its remains."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return int(fields[19]) == start and fields[0] not in "ZX"


def until(true: Callable[[], Any], what: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.02)


class Run:
    """One spec and what came of it."""

    def __init__(self, place: Path) -> None:
        self.status = place / "status.json"
        self.log = place / "train.log"
        self.file = place / "spec.json"
        self.spec: dict[str, Any] = {
            "argv": ["true"], "cwd": str(place), "env": {"PATH": os.environ["PATH"], "A": "b c\n"},
            "log": str(self.log), "uid": os.getuid(), "gid": os.getgid(),
            "groups": os.getgroups(), "umask": 0o27, "nice": 0, "limits": {},
            "mark": "run-7", "status": str(self.status),
        }  # fmt: skip
        self.pid = self.start = 0

    def ask(self, *before: str, **spec: Any) -> tuple[int, str]:
        self.spec |= spec
        self.file.write_text(json.dumps(self.spec))
        words = [*before, sys.executable, "-I", str(SCRIPT), str(self.file)]
        done = subprocess.run(
            words, input="the caller's", capture_output=True, text=True, timeout=60, check=False
        )
        assert done.stderr == ""
        assert done.stdout.count("\n") == 1
        return done.returncode, done.stdout.removesuffix("\n")

    def go(self, *before: str, **spec: Any) -> None:
        code, line = self.ask(*before, **spec)
        word, pid, start = line.split()
        assert (code, word) == (0, "started")
        self.pid, self.start = int(pid), int(start)
        assert self.state["trainer"] == {"pid": self.pid, "start": self.start}

    def python(self, text: str, *before: str, **spec: Any) -> None:
        self.go(*before, argv=[sys.executable, "-c", text], **spec)

    @property
    def state(self) -> dict[str, Any]:
        return dict(json.loads(self.status.read_text()))

    @property
    def supervisor(self) -> tuple[int, int]:
        one = self.state["supervisor"]
        return one["pid"], one["start"]

    def ended(self) -> tuple[int | None, str | None]:
        until(lambda: self.state["ended_at"], "its end is recorded")
        return self.state["exit"], self.state["signal"]

    def said(self, text: str) -> None:
        until(lambda: self.log.exists() and text in self.log.read_text(), f"it says {text}")

    def seen(self, name: str) -> str:
        return Path(f"/proc/{self.pid}/{name}").read_text()

    def field(self, name: str) -> str:
        lines = dict(line.split(":", 1) for line in self.seen("status").splitlines())
        return lines[name].strip()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    made = Run(tmp_path)
    yield made
    pairs = [(made.pid, made.start)]
    if made.status.exists() and made.state["trainer"]:
        pairs += [made.supervisor]
    for pid, start in pairs:
        if pid and alive(pid, start):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("code", [0, 3, 130])
def test_the_exit_code_is_recorded(run: Run, code: int) -> None:
    run.go(argv=["sh", "-c", f"exit {code}"])
    assert run.ended() == (code, None)
    state = run.state
    assert (state["schema"], state["mark"], state["failed"]) == (1, "run-7", None)
    assert state["started_at"] <= state["ended_at"]
    assert state["ended_at"].endswith("+00:00")
    assert stat.S_IMODE(run.status.stat().st_mode) == 0o644
    assert sorted(p.name for p in run.status.parent.iterdir()) == [
        "spec.json", "status.json", "train.log",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["KILL", "INT", "TERM", "SEGV", "RTMIN"])
def test_the_signal_that_ended_it_is_recorded(run: Run, name: str) -> None:
    run.python(RAISES, limits={"CORE": [0, 0]})
    run.said("up")
    os.kill(run.pid, getattr(signal, f"SIG{name}"))
    # CPython ends itself with the INT that nobody caught
    assert run.ended() == (None, name)


def test_a_signal_to_the_trainers_whole_group_is_recorded(run: Run) -> None:
    run.python(RAISES)
    run.said("up")
    assert os.getpgid(run.pid) == os.getsid(run.pid) == run.pid
    own = run.supervisor[0]
    assert run.pid not in (os.getpgid(own), os.getsid(own))
    os.killpg(run.pid, signal.SIGTERM)
    assert run.ended() == (None, "TERM")
    until(lambda: not alive(*run.supervisor), "the supervisor leaves")


def test_a_signal_to_everybody_does_not_cost_the_record(run: Run) -> None:
    run.python(RAISES)
    run.said("up")
    for each in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        os.kill(run.supervisor[0], each)
    time.sleep(0.2)
    assert alive(run.pid, run.start)  # and none of them was handed on
    os.kill(run.pid, signal.SIGTERM)
    assert run.ended() == (None, "TERM")


def test_started_deaf_the_trainer_hears_and_saves(run: Run) -> None:
    run.python(SAVES, sys.executable, "-c", DEAF)
    run.said("up")
    assert int(run.field("SigBlk"), 16) == 0
    assert int(run.field("SigIgn"), 16) & 0b111 == 0
    assert int(run.field("SigCgt"), 16) >> (signal.SIGINT - 1) & 1
    os.kill(run.pid, signal.SIGINT)
    assert run.ended() == (0, None)
    assert run.log.read_text() == "up\nsaved\n"


@pytest.mark.parametrize("start", ["", LIBCS_OWN], ids=["as usual", "by make"])
def test_nothing_is_ignored_or_blocked_in_what_is_no_python(run: Run, start: str) -> None:
    """Two are no program's: no libc lets a program change how its own 32 and 33 land."""
    run.go(sys.executable, "-c", start + DEAF, argv=["sleep", "60"])
    masks = {name: int(run.field(name), 16) for name in ("SigIgn", "SigBlk", "SigCgt")}
    masks["SigIgn"] &= ~(0b11 << 31)
    assert masks == {"SigIgn": 0, "SigBlk": 0, "SigCgt": 0}


def test_an_ignored_chld_costs_no_status(run: Run) -> None:
    deaf = "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); "
    run.go(sys.executable, "-c", deaf + "os.execv(sys.argv[1], sys.argv[1:])", argv=["false"])
    assert run.ended() == (1, None)


def test_nothing_leaks_in(run: Run, tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as held:
        os.set_inheritable(held.fileno(), True)
        shell = ["bash", "-c", f'exec 9>&1 8<"{tmp_path}"; exec "$@"', "-"]
        run.go(*shell, argv=["sleep", "60"])
    for pid, log in ((run.pid, str(run.log)), (run.supervisor[0], "/dev/null")):
        place = Path(f"/proc/{pid}/fd")
        held_open = {each.name: os.readlink(each) for each in place.iterdir()}
        assert held_open == {"0": "/dev/null", "1": log, "2": log}
    assert os.readlink(f"/proc/{run.supervisor[0]}/cwd") == "/"


def test_it_is_where_and_as_it_was_told(run: Run, tmp_path: Path) -> None:
    home = tmp_path / "a b"
    home.mkdir()
    odd = b"caf\xc3\xa9 \xff".decode("utf-8", "surrogateescape")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limits = {"NOFILE": [min(64, soft), hard], "CORE": [0, 0]}
    env = {"PATH": os.environ["PATH"], "ODD": odd, "EMPTY": "", "LINES": "a\nb"}
    run.go(
        "env", "LC_ALL=C", argv=["sleep", "60"], cwd=str(home), nice=5, umask=0o137,
        limits=limits, env=env,
    )  # fmt: skip
    assert os.readlink(f"/proc/{run.pid}/cwd") == str(home)
    assert run.field("Umask") == "0137"
    assert os.getpriority(os.PRIO_PROCESS, run.pid) == 5
    assert resource.prlimit(run.pid, resource.RLIMIT_NOFILE) == (min(64, soft), hard)
    assert resource.prlimit(run.pid, resource.RLIMIT_CORE) == (0, 0)
    raw = Path(f"/proc/{run.pid}/environ").read_bytes().rstrip(b"\0").split(b"\0")
    wanted = [b"PATH=" + os.environb[b"PATH"], b"ODD=caf\xc3\xa9 \xff", b"EMPTY=", b"LINES=a\nb"]
    assert sorted(raw) == sorted([*wanted, b"FLEETSTOP_MARK=run-7"])


def test_the_log_is_appended_to(run: Run) -> None:
    run.log.write_text("before\n")
    run.go(argv=["sh", "-c", "echo out; echo err >&2"])
    run.ended()
    assert run.log.read_text() == "before\nout\nerr\n"


def test_a_new_log_is_for_all_to_read_and_none_is_needed(run: Run) -> None:
    run.go(argv=["sh", "-c", "echo out"], umask=0o77)
    run.ended()
    assert stat.S_IMODE(run.log.stat().st_mode) == 0o644
    run.go(argv=["sleep", "60"], log=None)
    assert os.readlink(f"/proc/{run.pid}/fd/1") == "/dev/null"


@pytest.fixture
def outside() -> Iterator[Path]:
    """A directory of the other user's, where that user gets to."""
    made = Path(tempfile.mkdtemp(prefix="fss-", dir="/tmp"))
    os.chown(made, NOBODY, NOBODY)
    yield made
    shutil.rmtree(made)


@as_root
def test_another_users_job_stays_that_users(run: Run, outside: Path) -> None:
    run.log = outside / "train.log"
    who = {"uid": NOBODY, "gid": NOBODY, "groups": [NOBODY, 4321]}
    run.go(argv=["sleep", "60"], cwd=str(outside), log=str(run.log), **who)
    assert run.field("Uid").split() == run.field("Gid").split() == [str(NOBODY)] * 4
    assert run.field("Groups").split() == ["4321", str(NOBODY)]
    assert int(run.field("CapEff"), 16) == int(run.field("CapPrm"), 16) == 0
    assert (run.log.stat().st_uid, run.log.stat().st_gid) == (NOBODY, NOBODY)
    os.kill(run.pid, signal.SIGKILL)
    assert run.ended() == (None, "KILL")  # recorded by root, in a directory of root's


def test_nothing_is_imported_for_a_user_who_may_not_read_it(run: Run) -> None:
    """The interpreter may lie in a home that the trainer's user has no way into (pyenv's, say).
    What is imported after the log is open tells of itself there."""
    run.file.write_text(json.dumps(run.spec))
    python = [sys.executable, "-I", "-S", "-X", "importtime", str(SCRIPT), str(run.file)]
    done = subprocess.run(python, capture_output=True, text=True, timeout=60, check=True)
    assert "import time:" in done.stderr
    assert run.ended() == (0, None)
    assert run.log.read_text() == ""


@as_root
@pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="needs one that anybody may run")
@pytest.mark.parametrize("groups", [[], [NOBODY]])
def test_who_is_not_root_stays_who_he_is(run: Run, outside: Path, groups: list[int]) -> None:
    """setgroups(2) is root's: a login has its own group among the others, or has not."""
    run.log, run.status, run.file = (outside / name for name in ("log", "status", "spec"))
    script = outside / "supervise.py"
    script.write_text(SCRIPT.read_text())
    run.spec |= {"cwd": str(outside), "log": str(run.log), "status": str(run.status)}
    run.spec |= {"uid": NOBODY, "gid": NOBODY, "groups": groups, "argv": ["sleep", "60"]}
    run.file.write_text(json.dumps(run.spec))
    for had in (["--clear-groups"], ["--groups", str(NOBODY)]):
        who = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", *had]
        done = subprocess.run(
            [*who, "/usr/bin/python3", "-I", str(script), str(run.file)],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        word, pid, start = done.stdout.split()
        assert word == "started", done
        run.pid, run.start = int(pid), int(start)
        assert run.field("Uid").split() == [str(NOBODY)] * 4
        os.kill(run.pid, signal.SIGKILL)
        assert run.ended() == (None, "KILL")


@as_root
def test_root_opens_no_log_for_a_user_who_may_not(run: Run) -> None:
    code, line = run.ask(argv=["sleep", "60"], cwd="/", uid=NOBODY, gid=NOBODY, groups=[])
    assert (code, line) == (1, f"failed cannot append to {run.log}: Permission denied")
    assert not run.log.exists()


FAILS = [
    ({"argv": ["/no/such/python"]}, "cannot run /no/such/python: No such file or directory"),
    ({"argv": ["no-such-program-7"]}, "cannot run no-such-program-7: No such file or directory"),
    ({"argv": ["/etc/passwd"]}, "cannot run /etc/passwd: Permission denied"),
    ({"cwd": "/no/such"}, "cannot change to /no/such: No such file or directory"),
    ({"limits": {"FISH": [1, 1]}}, "cannot set the limit FISH to [1, 1]: there is no such limit"),
    ({"limits": {"NOFILE": [9, 8]}}, "cannot set the limit NOFILE to [9, 8]: "),
    ({"env": {"a=b": "c"}}, "cannot run true: illegal environment variable name"),
    ({"argv": ["true", "a\0b"]}, "cannot run true: embedded null byte"),
    ({"log": "/no/such/log"}, "cannot append to /no/such/log: No such file or directory"),
]


@pytest.mark.parametrize(("spec", "sentence"), FAILS)
def test_what_cannot_start_is_said_and_leaves_nothing(
    run: Run, spec: dict[str, Any], sentence: str
) -> None:
    code, line = run.ask(**spec)
    assert code == 1
    assert line.startswith(f"failed {sentence}")
    state = run.state
    assert line == f"failed {state['failed']}"
    assert (state["trainer"], state["exit"], state["signal"]) == (None, None, None)
    assert state["ended_at"]
    until(lambda: not alive(*run.supervisor), "the supervisor leaves")
    assert not list(run.status.parent.glob("status.json.*"))


def test_a_spec_that_is_none_is_said(run: Run) -> None:
    assert run.ask(cwd="here") == (
        1, f"failed {run.file} has to name a program, and absolute cwd and status",
    )  # fmt: skip
    assert run.ask(cwd="/", uid="root") == (
        1, f"failed {run.file} does not tell uid as it should",
    )  # fmt: skip
    assert not run.status.exists()


ORPHANS = """
import os, sys, time
if os.fork() == 0:
    if os.fork() == 0:
        os.setsid()
        open("orphan", "w").write(str(os.getpid()))
        while not os.path.exists("leave"):
            time.sleep(0.02)
    os._exit(0)
os.wait()
while not os.path.exists("orphan"):
    time.sleep(0.02)
sys.exit(5)
"""


def test_what_a_trainer_leaves_behind_is_waited_for_and_reaped(run: Run, tmp_path: Path) -> None:
    run.python(ORPHANS)
    assert run.ended() == (5, None)
    orphan = int((tmp_path / "orphan").read_text())
    above = Path(f"/proc/{orphan}/stat").read_text().rpartition(")")[2].split()[1]
    assert int(above) == run.supervisor[0]
    assert alive(*run.supervisor)
    (tmp_path / "leave").touch()
    until(lambda: not Path(f"/proc/{orphan}").exists(), "the orphan is reaped")
    until(lambda: not alive(*run.supervisor), "the supervisor leaves")
    assert run.ended() == (5, None)


def test_killing_the_supervisor_leaves_the_trainer_alone(run: Run) -> None:
    run.python(SAVES)
    run.said("up")
    os.kill(run.supervisor[0], signal.SIGKILL)
    until(lambda: not alive(*run.supervisor), "the supervisor is gone")
    time.sleep(0.3)
    assert alive(run.pid, run.start)
    assert run.log.read_text() == "up\n"
    assert run.state["ended_at"] is None  # nobody claims to know


def test_the_supervisor_is_known_by_its_command_line(run: Run) -> None:
    run.go(argv=["sleep", "60"])
    line = Path(f"/proc/{run.supervisor[0]}/cmdline").read_text().rstrip("\0")
    one = process(50, " ".join(f"'{word}'" for word in line.split("\0")))
    assert records_the_end(one)


def test_the_state_is_never_seen_torn(run: Run) -> None:
    """Read all the time while it is written, over and over, by short runs."""
    reader = subprocess.Popen(
        [sys.executable, "-c", READER, str(run.status)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    for _ in range(15):
        run.go(argv=["true"])
        run.ended()
    out, _ = reader.communicate("\n", timeout=60)
    reads, torn = map(int, out.split())
    assert reads > 100
    assert torn == 0


READER = """
import json, select, sys
reads = torn = 0
while not select.select([sys.stdin], [], [], 0)[0]:
    try:
        text = open(sys.argv[1]).read()
    except FileNotFoundError:
        continue
    reads += 1
    try:
        assert json.loads(text)["schema"] == 1
    except Exception:
        torn += 1
print(reads, torn)
"""


@pytest.fixture
def small(tmp_path: Path) -> Iterator[tuple[list[str], Path, Path]]:
    """A file system of 64 KiB that only one mount namespace has: how to get in, its name there,
    and how it is seen from here."""
    place = tmp_path / "small"
    place.mkdir()
    mount = 'mount -t tmpfs -o size=64k none "$1" && echo ready && exec sleep 300'
    holder = subprocess.Popen(
        ["unshare", "-m", "sh", "-c", mount, "-", str(place)], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    if holder.stdout.readline() != "ready\n":
        holder.wait()
        pytest.skip("no file system can be mounted here")
    inside = ["nsenter", "-m", "-t", str(holder.pid)]
    yield inside, place, Path(f"/proc/{holder.pid}/root{place}")
    holder.kill()
    holder.wait()


@as_root
def test_without_a_record_nothing_is_started(
    run: Run, tmp_path: Path, small: tuple[list[str], Path, Path]
) -> None:
    inside, place, seen = small
    run.spec["argv"] = ["touch", str(tmp_path / "it-ran")]
    filler = ["sh", "-c", f'head -c 1M /dev/zero 2>&- >{place}/full; exec "$@"', "-"]
    code, line = run.ask(*inside, *filler, status=f"{place}/status.json")
    assert code == 1
    assert line == f"failed cannot write {place}/status.json: No space left on device"
    assert [each.name for each in seen.iterdir()] == ["full"]
    readonly = ["sh", "-c", f'mount -o remount,ro {place}; exec "$@"', "-"]
    code, line = run.ask(*inside, *readonly)
    assert line == f"failed cannot write {place}/status.json: Read-only file system"
    code, line = run.ask(status="/no/such/place/status.json")
    assert (code, line.rpartition(": ")[2]) == (1, "No such file or directory")
    time.sleep(0.3)
    assert not (tmp_path / "it-ran").exists()


@as_root
def test_the_end_is_recorded_on_a_disk_that_is_full_by_then(
    run: Run, small: tuple[list[str], Path, Path]
) -> None:
    inside, place, seen = small
    text = f"head -c 1M /dev/zero 2>&- >>{place}/full; exit 28"
    run.status = seen / "status.json"
    run.go(*inside, argv=["sh", "-c", text], status=f"{place}/status.json", log=None)
    assert run.ended() == (28, None)
    assert sorted(each.name for each in seen.iterdir()) == ["full", "status.json"]


def test_it_reads_as_python_3_6_and_imports_only_the_standard_library() -> None:
    tree = ast.parse(SCRIPT.read_text(), feature_version=(3, 6))
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names.add(node.module or "")
    assert names <= set(sys.stdlib_module_names)
    assert "__future__" not in names  # annotations came with 3.7
