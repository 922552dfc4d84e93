from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fleetstop.core.inventory import Match
from fleetstop.core.kin.family import find
from fleetstop.core.kin.matching import matches
from fleetstop.core.process import Detail, OpenFile, Process, ProcessId, ProcessTree
from fleetstop.core.procfs import (
    parse_argv,
    parse_detail,
    parse_look,
    with_argv,
    with_detail,
)

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "tests" / "samples" / "proc"
BOOT = (ROOT / "fleetstop" / "remote" / "scripts" / "boot.sh").read_text()
# the far end reads its own functions first, as it does behind ssh
LOADER = 'b=; while IFS= read -r l && [ "$l" != "#END" ]; do b="$b$l\n"; done; eval "$b"'
INT, TERM = 0x2, 0x4000


def probe(frame: str, proc: Path | None = None) -> bytes:
    """What boot.sh answers to one frame, about this machine or about a /proc made of files."""
    script = BOOT if proc is None else BOOT.replace("/proc", str(proc))
    said = subprocess.run(
        ["sh", "-c", LOADER],
        input=f"{script}\n#END\nn1 {frame}\n".encode(),
        stdout=subprocess.PIPE,
        check=True,
        timeout=60,
    ).stdout
    head, ready, answer = said.partition(b"\nready\n")
    data, end, _ = answer.partition(b"\nn1 0\n")
    assert (head, ready, end) == (b"", b"\nready\n", b"\nn1 0\n"), said[-300:]
    return data if proc is None else data.replace(os.fsencode(proc), b"/proc")


def looked(data: bytes) -> ProcessTree:
    tree = parse_look(data, 100)
    assert tree is not None
    return tree


# --- the text of /proc, written by hand where this machine cannot be made to show it


def stat(pid: int, comm: str = "python3", ppid: int = 1, start: int = 500) -> str:
    return (
        f"{pid} ({comm}) S {ppid} {pid} {pid} 0 -1 4194304 115 0 0 0 7 5 0 0 20 0 2 0 {start} "
        "10928128 277 18446744073709551615 4321280 7148169 0 0 0 0 2 16781312 2 0 0 0 17 0 0 0 0\n"
    )


def status(nspid: str, **lines: str) -> str:
    fields = {
        "Name": "x",
        "Uid": "1000\t1000\t1000\t1000",
        "TracerPid": "0",
        "NSpid": nspid,
        "NSpgid": nspid,
        "VmRSS": "    9784 kB",
        "SigPnd": "0000000000000000",
        "ShdPnd": "0000000000000000",
        "SigBlk": "0000000000000000",
        "SigIgn": "0000000001001000",
        "SigCgt": "0000000000000002",
        **lines,
    }
    return "".join(f"{name}:\t{value}\n" for name, value in fields.items())


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """An empty /proc to be filled."""
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "uptime").write_text("1234.50 99.0\n")
    return tmp_path / "proc"


def add(proc: Path, pid: int, nspid: str, groups: str, **files: str) -> None:
    here = proc / str(pid)
    here.mkdir()
    whole = {"stat": stat(pid), "status": status(nspid), "cgroup": groups, **files}
    for name, text in whole.items():
        (here / name).write_text(text)


V2 = "0::{}\n"
V1 = "12:pids:{0}\n4:memory:{0}\n1:name=systemd:{0}\n0::/\n"
# where a process is, and whether that is in container 200
PLACES = [
    ("/lxc/200", True),
    ("/lxc/200/", True),
    ("/lxc/200/ns", True),
    ("/lxc/200/ns/system.slice/train.service", True),
    ("/lxc/200/ns/lxc/999", True),
    ("/lxc/200/ns/odd:name", True),
    ("/lxc/20", False),
    ("/lxc/20/", False),
    ("/lxc/2000/ns", False),
    ("/lxc/1200/ns", False),
    ("/lxc.monitor/200", False),
    ("/lxc.payload.200", False),
    ("/lxc/999/ns/lxc/200", False),
    ("/system.slice/lxc/200", False),
    ("/", False),
]


@pytest.mark.parametrize("layout", [V2, V1], ids=["v2", "v1"])
@pytest.mark.parametrize(("group", "inside"), PLACES)
def test_a_container_is_its_control_group(
    made: Path, layout: str, group: str, inside: bool
) -> None:
    add(made, 4711, "4711\t312", layout.format(group))
    tree = looked(probe("look lxc:200", made))
    assert (set(tree.processes) == {4711}) is inside
    assert looked(probe("look host", made)).processes[4711].cgroups[0] == group


def test_a_container_cannot_pose_as_another(made: Path) -> None:
    """Its own cgroup may be called /lxc/999: from the host that lies below /lxc/200."""
    add(made, 4711, "4711\t312", V2.format("/lxc/200/ns/lxc/999"))
    add(made, 4712, "4712\t7", V2.format("/lxc/999/ns"))
    assert set(looked(probe("look lxc:999", made)).processes) == {4712}
    assert set(looked(probe("look lxc:200", made)).processes) == {4711}


# the columns of NSpid, the process's own group there, what people call it and what it is to them
NAMESPACES = [
    ("4711", "/system.slice/x", 4711, (), False),
    ("4711\t312", "/lxc/200/ns", 312, (312,), False),
    ("4711\t312\t1", "/lxc/200/ns/docker/7", 312, (312, 1), False),
    ("4711\t1", "/lxc/200/ns", 1, (1,), False),
    # docker on a plain host: the host's pgrep says 4711
    ("4711\t312", "/system.slice/docker-7.scope", 4711, (312,), True),
]


@pytest.mark.parametrize(("nspid", "group", "number", "inner", "nested"), NAMESPACES)
def test_the_number_that_people_know(
    made: Path, nspid: str, group: str, number: int, inner: tuple[int, ...], nested: bool
) -> None:
    add(made, 4711, nspid, V2.format(group))
    one = looked(probe("look host", made)).processes[4711]
    assert (one.pid, one.inner, one.nested) == (number, inner, nested)
    assert one.inner_pgid == (inner[0] if inner else None)


def test_a_docker_process_is_not_the_host_process_of_that_number(made: Path) -> None:
    add(made, 4711, "4711\t312", V2.format("/system.slice/docker-7.scope"))
    add(made, 312, "312", V2.format("/user.slice"))
    tree = looked(probe("look host", made))
    tree = with_argv(tree, {4711: ("python", "serve.py"), 312: ("python", "train.py")})
    listed = frozenset({312})
    for match in (Match(pid=312), Match(pgrep="train"), Match(pidfile="/run/t.pid")):
        hit = [
            each.id.pid for each in tree.processes.values() if matches(match, each, listed=listed)
        ]
        assert hit == [312]


def test_one_that_vanished_during_the_look_is_left_out(made: Path) -> None:
    for pid in (10, 11, 12):
        add(made, pid, str(pid), V2.format("/"))
    (made / "11" / "status").unlink()
    (made / "12" / "stat").unlink()
    assert set(looked(probe("look host", made)).processes) == {10}
    assert set(looked(probe("look pids 10 11 12 99", made)).processes) == {10}


COMMS = [
    "python3",
    "two words",
    "a) R 1 (b",
    "((((",
    "))))",
    ")",
    "",
    "a\nb",
    "\n",
    "\n/proc/1/stat:",
    "/proc/1/stat:1",
    "x\n) S 1 1 1",
    "a\tb\r",
    "naïve",
    "uptime:0",
]


@pytest.mark.parametrize("comm", COMMS)
def test_a_name_cannot_lie(made: Path, comm: str) -> None:
    add(made, 4711, "4711", V2.format("/"), stat=stat(4711, comm, ppid=77, start=900))
    add(made, 1, "1", V2.format("/"), stat=stat(1, "init", ppid=0, start=1))
    tree = looked(probe("look host", made))
    assert set(tree.processes) == {1, 4711}
    one = tree.processes[4711]
    assert (one.id, one.ppid, one.comm) == (ProcessId(4711, 900), 77, comm)
    assert (one.state, one.threads, one.ticks) == ("S", 2, 12)
    assert tree.processes[1].comm == "init"
    assert tree.uptime == 1234.5


def test_a_name_that_was_measured() -> None:
    record = (SAMPLES / "stat_evil_comm.txt").read_bytes().rstrip(b"\n").split(b"\n")
    lines = [b"uptime:1000.00", *(b"/proc/8880/stat:" + line for line in record)]
    lines += [b"/proc/8880/status:" + each for each in status("8880").encode().splitlines()]
    one = looked(b"\n".join(lines)).processes[8880]
    assert (one.comm, one.state, one.ppid) == ("a b) R (x\n", "S", 8871)
    assert (one.threads, one.id.start) == (2, 75724)


# Lines of status, and what they say; None where a mask cannot be read.
MASKS: list[tuple[Mapping[str, str], tuple[int, int | None, int, int] | None]] = [
    ({}, (0, 0, 0x1001000, INT)),
    ({"SigPnd": "0000000000000100", "ShdPnd": "4002"}, (0x4102, 0, 0x1001000, INT)),
    ({"SigIgn": "ffffffffffffffff"}, (0, 0, 2**64 - 1, INT)),
    ({"SigCgt": ""}, None),
    ({"SigBlk": "0x2"}, None),
    ({"SigIgn": "-2"}, None),
    ({"ShdPnd": "two"}, None),
    ({"SigPnd": "f" * 5000}, None),
]


@pytest.mark.parametrize(("lines", "said"), MASKS)
def test_masks_are_seen_whole_or_not_at_all(
    made: Path, lines: Mapping[str, str], said: tuple[int, int | None, int, int] | None
) -> None:
    add(made, 10, "10", V2.format("/"), status=status("10", **lines))
    masks = looked(probe("look host", made)).processes[10].masks
    seen = masks and (masks.pending, masks.blocked, masks.ignored, masks.caught)
    assert seen == said


# The first line of an answer, and the clock; None: nothing was seen.
CLOCKS = [
    (b"uptime:12.50\n", 12.5),
    (b"uptime:12\n", 12.0),
    (b"uptime:12.50", 12.5),
    (b"uptime:\n", None),
    (b"uptime:nan\n", None),
    (b"uptime:-1\n", None),
    (b"uptime:1e9\n", None),
    (b"uptime:soon\n", None),
    (b"uptime:" + b"9" * 5000, None),
    (b"", None),
    (b"\nuptime:12.50\n", None),
    (b"/proc/1/stat:1 (init) S 0\n", None),
]


@pytest.mark.parametrize(("head", "clock"), CLOCKS)
def test_no_clock_no_look(head: bytes, clock: float | None) -> None:
    tree = parse_look(head, 100)
    assert (tree and tree.uptime) == clock


BIG = b"9" * 5000


@pytest.mark.parametrize("at", range(3, 22))
@pytest.mark.parametrize("odd", [BIG, b"x", "²".encode(), b"1_0", b"--1"])
def test_an_odd_number_is_a_process_not_seen(at: int, odd: bytes) -> None:
    words = stat(10).encode().split()
    assert words[1] == b"(python3)"
    words[at] = odd
    lines = [b"uptime:1.0", b"/proc/10/stat:" + b" ".join(words)]
    lines += [b"/proc/10/status:" + each for each in status("10").encode().splitlines()]
    assert looked(b"\n".join(lines)).processes == {}


# Words as the kernel keeps them, and as we read them.
WORDS = [
    (b"python\0train.py\0", ("python", "train.py")),
    (b"python\0-c\0\0", ("python", "-c", "")),
    (b"python\0\0train.py\0", ("python", "", "train.py")),
    (b"python\0a\nb\0", ("python", "a\nb")),
    (b"python\0\n/proc/1/cmdline:x\0", ("python", "\n/proc/1/cmdline:x")),
    (b"python\0a\xff\0", ("python", "a\\xff")),
    (b"python\0na\xc3\xafve\0", ("python", "naïve")),
    (b"a title set by itself", ("a title set by itself",)),
    (b"\0", None),
    (b"", None),
]


@pytest.mark.parametrize(("raw", "words"), WORDS)
def test_words_of_a_command_line(made: Path, raw: bytes, words: tuple[str, ...] | None) -> None:
    add(made, 10, "10", V2.format("/"))
    (made / "10" / "cmdline").write_bytes(raw)
    assert parse_argv(probe("argv 10 99", made)).get(10) == words


# --- captured from a real tree: bash run.sh | tee, a trainer, two forks of it


def test_what_a_real_look_said() -> None:
    look, argv, detail = (
        (SAMPLES / f"{verb}_run_sh_pipe.bin").read_bytes() for verb in ("look", "argv", "detail")
    )
    tree = with_detail(with_argv(looked(look), parse_argv(argv)), parse_detail(detail))
    found = find(tree, Match(script="train.py"), None)
    [family] = found.families
    roles = {kin.role: kin for kin in family.members}
    assert [kin.role for kin in family.members].count("wrapper") == 2
    trainer = tree.get(roles["trainer"].id)
    assert trainer is not None
    assert trainer.argv == ("python3", "train.py", "", "two\nlines", "\\xff")
    assert (trainer.threads, trainer.forked, trainer.landing("INT")) == (2, False, "heard")
    assert trainer.detail is not None
    assert (trainer.detail.rank, trainer.detail.cwd) == ("RANK=3", "/srv/job")
    assert [f.target for f in trainer.detail.files or () if f.writable_file] == [
        "/srv/job/model.tmp"
    ]
    forks = tree.children(trainer.id.pid)
    assert [each.forked for each in forks] == [True, True]
    assert "a b) R (x\n" in {each.comm for each in forks}
    # the fork was born with INT blocked in its only thread
    assert {each.landing("INT") for each in forks} == {"blocked"}
    tee = next(each for each in tree.processes.values() if each.comm == "tee")
    assert tee.id not in family.ids


# --- alive: a trainer of our own, looked at on this machine

TRAINER = r"""
import ctypes, os, signal, sys, threading, time
log, out = open("train.log", "a"), open("model.tmp", "w")
out.write("x" * 100); out.flush()
def other():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR1})
    ready.set(); time.sleep(600)
ready = threading.Event()
threading.Thread(target=other, daemon=True).start()
ready.wait()
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
ctypes.CDLL(None).prctl(15, b"x) R (\n/proc/1:", 0, 0, 0)
print("ready", flush=True)
if sys.argv[-1] == "half":
    ctypes.CDLL(None).syscall({"x86_64": 60}.get(os.uname().machine, 93), 0)
time.sleep(600)
"""


def start(directory: Path, *words: str | bytes) -> subprocess.Popen[bytes]:
    (directory / "train.py").write_text(TRAINER)
    child = subprocess.Popen(
        [sys.executable, "train.py", *words],
        cwd=directory,
        env={**os.environ, "LOCAL_RANK": "3"},
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    return child


def end(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.communicate(timeout=20)


def alive(pid: int) -> Process:
    tree = looked(probe("look host"))
    tree = with_argv(tree, parse_argv(probe(f"argv {pid} 999999999")))
    return with_detail(tree, parse_detail(probe(f"detail {pid} 999999999"))).processes[pid]


def test_a_living_trainer_through_the_real_probe(tmp_path: Path) -> None:
    child = start(tmp_path, "", "two\nlines", b"\xff")
    try:
        one = alive(child.pid)
    finally:
        end(child)
    with_own_start = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
    assert one.id.pid == child.pid
    assert one.id.start >= int(with_own_start)
    assert (one.ppid, one.sid, one.pgid) == (os.getpid(), child.pid, child.pid)
    assert one.comm == "x) R (\n/proc/1:"
    assert one.argv == (sys.executable, "train.py", "", "two\nlines", "\\xff")
    assert matches(Match(script=str(tmp_path / "train.py")), one)
    assert (one.threads, one.alive, one.kernel_thread, one.forked) == (2, True, False, False)
    assert one.uid == os.getuid()
    assert one.rss_kib > 1000
    assert one.masks is not None
    assert one.masks.caught & INT
    _closer(one, tmp_path)


def _closer(one: Process, directory: Path) -> None:
    assert one.detail is not None
    # TERM in both threads; INT and USR1 in one each: those still arrive
    assert one.detail.blocked == TERM
    assert one.landing("TERM") == "blocked"
    assert one.landing("INT") == "heard"
    assert one.detail.cwd == str(directory)
    assert one.detail.rank
    assert one.detail.written is not None
    assert one.detail.written >= 106
    assert one.detail.read is not None
    assert one.detail.switches is not None
    assert len(one.detail.states) == 2
    assert one.detail.syscall is not None
    files = {f.target: f for f in one.detail.files or ()}
    log, out = files[str(directory / "train.log")], files[str(directory / "model.tmp")]
    assert (log.writable_file, out.writable_file, out.pos) == (False, True, 100)
    assert log.flags is not None
    assert log.flags & os.O_APPEND


def test_a_leader_that_ended_before_its_other_thread(tmp_path: Path) -> None:
    """State Z and two threads: alive. What the dead leader blocked no longer counts."""
    child = start(tmp_path, "half")
    try:
        one = alive(child.pid)
        while one.state != "Z":
            one = alive(child.pid)
    finally:
        end(child)
    assert (one.state, one.threads, one.zombie) == ("Z", 2, False)
    assert one.argv is None
    assert one.detail is not None
    assert one.detail.blocked == TERM | 1 << (signal.SIGUSR1 - 1)
    assert one.detail.files is None


def test_the_files_of_a_dead_leader_are_seen_through_a_living_thread(tmp_path: Path) -> None:
    """A save of such a process must not be overlooked: it holds the same files."""
    child = start(tmp_path, "half")
    try:
        while alive(child.pid).state != "Z":
            pass
        seen = parse_detail(probe(f"detail deep:{child.pid} 999999999"))
    finally:
        end(child)
    one = seen[child.pid]
    assert str(tmp_path / "model.tmp") in {f.target for f in one.files or () if f.writable_file}
    assert (one.cwd, one.states[:1] in "SRD") == (str(tmp_path), True)
    assert one.rank
    assert one.switches is not None


def test_a_zombie_of_our_own(tmp_path: Path) -> None:
    child = start(tmp_path)
    os.kill(child.pid, signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    try:
        one = alive(child.pid)
    finally:
        end(child)
    assert (one.state, one.zombie, one.argv) == ("Z", True, None)
    assert not matches(Match(pid=child.pid), one)


def test_kernel_threads_are_known_by_their_flag() -> None:
    tree = looked(probe("look host"))
    for each in tree.processes.values():
        exe = Path(f"/proc/{each.id.pid}/cmdline")
        if each.kernel_thread and exe.exists():
            assert exe.read_bytes() == b""
    assert not tree.processes[os.getpid()].kernel_thread
    if "kthreadd" in {each.comm for each in tree.processes.values()}:
        assert any(each.kernel_thread for each in tree.processes.values())


# --- the closer look, from lines

SIGBLK = b"/proc/10/task/%d/status:SigBlk:\t%s"
STATE = b"/proc/10/task/%d/status:State:\t%s"
# Lines about threads, and what all of them block; None: not seen.
THREADS = [
    ([SIGBLK % (10, b"4002")], 0x4002),
    ([SIGBLK % (10, b"4002"), SIGBLK % (11, b"2")], 0x2),
    ([SIGBLK % (10, b"4002"), SIGBLK % (11, b"0")], 0),
    ([SIGBLK % (10, b"4002"), SIGBLK % (11, b"x")], None),
    ([STATE % (10, b"Z (zombie)"), SIGBLK % (10, b"0"), SIGBLK % (11, b"2")], 0x2),
    ([STATE % (10, b"X (dead)"), SIGBLK % (10, b"0"), SIGBLK % (11, b"2")], 0x2),
    ([STATE % (10, b"D (disk sleep)"), SIGBLK % (10, b"0"), SIGBLK % (11, b"2")], 0),
    ([STATE % (10, b"Z (zombie)"), SIGBLK % (10, b"2")], None),
    ([STATE % (10, b"S (sleeping)")], None),
]


@pytest.mark.parametrize(("lines", "blocked"), THREADS)
def test_blocked_is_what_every_living_thread_blocks(lines: list[bytes], blocked: int) -> None:
    assert parse_detail(b"\n".join(lines))[10].blocked == blocked


# fdinfo's flags, and what the file is to a save
FLAGS = [
    ("0100001", True),  # >
    ("0102001", False),  # >>
    ("0100002", True),  # r+
    ("02100002", True),
    ("0102002", False),
    ("0100000", False),  # <
    ("", False),
    ("8", False),
    ("0x1", False),
    ("-1", False),
    ("1" * 5000, False),
]


@pytest.mark.parametrize(("flags", "writing"), FLAGS)
def test_flags_are_octal(flags: str, writing: bool) -> None:
    data = (
        f"/proc/10/fdinfo/5:pos:\t77\n/proc/10/fdinfo/5:flags:\t{flags}\n\0"
        "/proc/10/fd/5\0/job/model.pt\0/proc/10/cwd\0/work\0"
    )
    [file] = parse_detail(data.encode())[10].files or ()
    assert (file.fd, file.target, file.pos) == (5, "/job/model.pt", 77)
    assert file.writable_file is writing


def test_flags_that_were_measured() -> None:
    lines = (SAMPLES / "fdinfo_append.txt").read_text().splitlines()
    octal = [int(line.split()[1], 8) for line in lines if line.startswith("flags:")]
    append, fresh = (OpenFile(9, "/var/log/train.log", flags, 0) for flags in octal)
    assert (append.writable_file, fresh.writable_file) == (False, True)


# What is open for writing, and whether it can be a checkpoint
TARGETS = [
    (5, "/job/model.pt", True),
    (5, "/job/model.pt (deleted)", True),
    (2, "/job/model.pt", False),
    (5, "/dev/shm/x", True),
    (5, "/proc/self/mem", False),
    (5, "/memfd:x (deleted)", False),
    (5, "pipe:[7]", False),
    (5, "socket:[7]", False),
    (5, "anon_inode:[eventfd]", False),
]


@pytest.mark.parametrize(("fd", "target", "writing"), TARGETS)
def test_only_regular_files_can_be_checkpoints(fd: int, target: str, writing: bool) -> None:
    assert OpenFile(fd, target, 0o100001, 0).writable_file is writing


@pytest.mark.parametrize(
    ("target", "is_gpu"),
    [
        ("/dev/nvidia0", True),
        ("/dev/nvidia15", True),
        ("/dev/nvidia0 (deleted)", True),
        ("/dev/nvidiactl", False),
        ("/dev/nvidia-uvm", False),
        ("/dev/nvidia", False),
        ("/tmp/dev/nvidia0", False),
    ],
)
def test_which_nodes_are_gpus(target: str, is_gpu: bool) -> None:
    assert OpenFile(5, target, 2, 0).gpu is is_gpu


RECORDS = [
    ("environ:RANK=0", "RANK=0"),
    ("environ:LOCAL_RANK=3", "LOCAL_RANK=3"),
    ("environ:FLEETSTOP_RUN=7f3a", None),
    ("environ:RANKS=0", None),
    ("environ:X=\nRANK=0", None),
    ("environ:", None),
]


@pytest.mark.parametrize(("record", "rank"), RECORDS)
def test_a_rank_by_its_environment(record: str, rank: str | None) -> None:
    data = f"\n\0/proc/10/cwd\0/work\0/proc/10/{record}\0/proc/10/environ:A=1\0"
    assert parse_detail(data.encode())[10].rank == rank


def test_links_may_be_called_anything() -> None:
    data = (
        b"\n\0/proc/10/fd/3\0/proc/1/cwd\0/proc/10/fd/4\0\0/proc/10/fd/5\0a\nb\xff\0"
        b"/proc/10/cwd\0/proc/11/environ:RANK=1\0"
    )
    seen = parse_detail(data)
    assert set(seen) == {10}
    assert [f.target for f in seen[10].files or ()] == ["/proc/1/cwd", "a\nb\\xff"]
    assert (seen[10].cwd, seen[10].rank) == ("/proc/11/environ:RANK=1", None)


def test_what_may_not_be_seen_is_not_nothing() -> None:
    """Another user's process: threads are readable, links, environment and I/O are not."""
    seen = parse_detail((SIGBLK % (10, b"2")) + b"\n\n\0")
    assert seen == {10: Detail(blocked=2)}
    assert seen[10].files is None
    unread = parse_detail(b"\n\0/proc/10/cwd\0\0")  # lstat(2) may, readlink(2) may not
    assert (unread[10].files, unread[10].cwd) == (None, None)
    closed = parse_detail(b"\n\0/proc/10/cwd\0/work\0")
    assert closed[10].files == ()


def test_io_counters() -> None:
    data = b"/proc/10/io:rchar: 7\n/proc/10/io:wchar: %b\n/proc/10/io:write_bytes: 3\n"
    seen = parse_detail(data % b"106")[10]
    assert seen.written == 106
    assert parse_detail(data % BIG)[10].written is None
    assert parse_detail(data % "²".encode())[10].written is None


def test_answers_only_change_who_is_in_the_look() -> None:
    tree = ProcessTree(processes={}, uptime=1.0)
    assert with_argv(tree, {7: ("x",)}) == tree
    assert with_detail(tree, {7: Detail()}) == tree


# --- any bytes at all

PIECES = st.sampled_from(
    [
        *(b"uptime:", b"1.5", b"\n", b"\0", b":", b" ", b"(", b")", b"S", b"-1", b"\xff", BIG),
        *(b"/proc/10/stat:", b"/proc/10/status:", b"/proc/10/cgroup:", b"/proc/10/cmdline:"),
        *(b"/proc/10/io:", b"/proc/10/wchan:", b"/proc/10/environ:", b"/proc/10/cwd"),
        *(b"/proc/10/fd/5", b"/proc/10/fdinfo/5:", b"/proc/10/task/11/status:", b"/proc/"),
        *(b"NSpid:", b"NSpgid:", b"SigBlk:", b"SigPnd:", b"flags:", b"pos:", b"wchar:", b"State:"),
        *("²".encode(), "٣".encode(), b"1_0", b"0x1", b"+1", b"RANK=", stat(10).encode()),
        *(b"/proc/10/stat:" + stat(10).encode(), b"/proc/10/status:NSpid:\t10\n"),
        b"/proc/%b/stat:1" % BIG,
    ]
)
ANYTHING = st.binary() | st.lists(PIECES | st.binary(max_size=4), max_size=30).map(b"".join)


@given(ANYTHING)
@example(b"/proc/%b/stat:1\n/proc/%b/cmdline:x\n\0/proc/%b/cwd\0x\0" % (BIG, BIG, BIG))
@example(b"/proc/10/task/11/status:SigBlk:\tx\n")
@example(b"/proc/10/fdinfo/5:flags:\t9\n\0/proc/10/fd/5\0x\0")
@example(b"/proc/10/fdinfo/5:pos:\t\xc2\xb2\n\0/proc/10/fd/5\0x\0")
def test_no_bytes_can_break_the_reading(data: bytes) -> None:
    parse_argv(data)
    parse_detail(data)
    parse_look(data, 100)
    tree = parse_look(b"uptime:1.5\n/proc/10/status:Uid:\t0\n" + data, 100)
    assert tree is not None
    for pid, each in tree.processes.items():
        assert each.id.pid == pid
        assert each.alive or each.zombie


def test_a_dead_leader_speaks_through_its_first_living_thread() -> None:
    data = (
        b"/proc/7/task/7/cmdline:\n/proc/7/task/9/cmdline:python3\0train.py\0a\nb\0\n".replace(
            b"\nb", b"\n/proc/7/task/9/cmdline:b"
        )
        + b"/proc/7/task/11/cmdline:python3\0other\0\n"
    )
    told = parse_argv(data.replace(b"/proc/7/task/7/cmdline:\n", b""))
    assert told == {7: ("python3", "train.py", "a\nb")}


def test_where_a_main_thread_waits() -> None:
    lines = [
        b"/proc/10/task/10/status:State:\tS (sleeping)",
        b"/proc/10/task/10/status:SigPnd:\t0000000000000000",
        b"/proc/10/task/10/status:SigBlk:\t0000000000000002",
        b"/proc/10/task/10/status:voluntary_ctxt_switches:\t7",
        b"/proc/10/task/11/status:State:\tD (disk sleep)",
        b"/proc/10/task/11/status:SigPnd:\t0000000000000100",
        b"/proc/10/task/11/status:SigBlk:\t0000000000000006",
        b"/proc/10/task/11/status:voluntary_ctxt_switches:\t900",
        b"/proc/10/io:rchar: 5",
        b"/proc/10/wchan:futex_do_wait",
        b"/proc/10/syscall:202 0x7f 0x80",
    ]
    one = parse_detail(b"\n".join(lines))[10]
    assert (one.wchan, one.syscall, one.switches, one.read) == ("futex_do_wait", "202", 7, 5)
    assert (one.states, one.pending, one.blocked) == ("SD", 0x100, 2)


def test_running_waits_nowhere_and_a_dead_leaders_threads_are_counted_together() -> None:
    lines = [
        b"/proc/10/task/10/status:State:\tZ (zombie)",
        b"/proc/10/task/10/status:voluntary_ctxt_switches:\t7",
        b"/proc/10/task/11/status:State:\tR (running)",
        b"/proc/10/task/11/status:voluntary_ctxt_switches:\t900",
        b"/proc/10/task/12/status:State:\tS (sleeping)",
        b"/proc/10/task/12/status:voluntary_ctxt_switches:\t1",
        b"/proc/10/task/11/wchan:0",
        b"/proc/10/task/11/syscall:running",
    ]
    one = parse_detail(b"\n".join(lines))[10]
    assert (one.wchan, one.syscall, one.switches, one.states) == (None, "running", 901, "RS")
