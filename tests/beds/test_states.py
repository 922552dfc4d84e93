"""Every state a job can be in that needs no GPU: how a signal would land, the verdict, the end.

Each row is a job in a container of its own; one `status` looks at all of them, one `stop` asks
all of them. Facts: the tables on blocked threads and on launch forms that were measured before.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from fleetstop.lab import Lab, Started, cgroups

from .bed import Bed, Ran, lives, until
from .disk import disk

# many containers at once, on a machine that may be busy
pytestmark = [pytest.mark.bed, pytest.mark.timeout(600)]

Prepare = Callable[[Bed, Started], AbstractContextManager[object]]
KILL = """\
ladder: [{signal: KILL, to: tree, wait: 5s}]
hold: {saving: 2s, stopping: 1s}
"""
PLAYBOOK = """\
ladder: [{signal: stop_signal, to: trainers, wait: 4s}]
hold: {saving: 5s, stopping: 1s}
"""
TRACER = """\
import ctypes, sys, time
libc = ctypes.CDLL(None, use_errno=True)
assert libc.ptrace(16, int(sys.argv[1]), 0, 0) == 0, ctypes.get_errno()  # PTRACE_ATTACH
time.sleep(600)
"""


def letter(job: Started) -> str:
    """Its state; empty where it is gone."""
    try:
        return Path(f"/proc/{job.host_pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def threads(job: Started) -> int:
    return len(list(Path(f"/proc/{job.host_pid}/task").iterdir()))


@contextlib.contextmanager
def nothing(_box: Bed, _job: Started) -> Iterator[None]:
    yield


@contextlib.contextmanager
def silent_log(box: Bed, job: Started) -> Iterator[None]:
    """Its log was last written 14 minutes ago."""
    until(lambda: letter(job) == "S")
    old = time.time() - 840
    os.utime(job.log, (old, old))
    yield


@contextlib.contextmanager
def stopped(_box: Bed, job: Started) -> Iterator[None]:
    os.kill(job.host_pid, signal.SIGSTOP)
    until(lambda: letter(job) == "T")
    yield


@contextlib.contextmanager
def traced_inside(box: Bed, job: Started) -> Iterator[None]:
    (box.lab.rootfs(box.vmid) / "root/tracer.py").write_text(TRACER)
    text = f"setsid -f python3 /root/tracer.py {job.pid} >/dev/null 2>&1 </dev/null"
    tracer = box.lab.start(box.vmid, text, how="raw", trainers=0)
    until(lambda: letter(job) == "t")
    yield
    os.kill(tracer.host_pid, signal.SIGKILL)


@contextlib.contextmanager
def traced_outside(_box: Bed, job: Started) -> Iterator[None]:
    tracer = subprocess.Popen([sys.executable, "-c", TRACER, str(job.host_pid)])
    try:
        until(lambda: letter(job) == "t")
        yield
    finally:
        tracer.kill()
        tracer.wait()


@contextlib.contextmanager
def frozen(box: Bed, job: Started) -> Iterator[None]:
    """A v1 freezer: not even KILL acts before the thaw, and then nothing is saved."""
    box.lab.freeze(box.vmid)
    yield
    os.kill(job.host_pid, signal.SIGKILL)
    time.sleep(0.3)
    assert letter(job) == "D"
    box.lab.thaw(box.vmid)
    until(lambda: not lives(job))


def v2(box: Bed) -> Path:
    """The container's group in the v2 hierarchy. Its freezer needs no controller, so it works
    beside those of v1 too."""
    places = [each for each in cgroups.directories(box.vmid) if each.parent.name == "lxc"]
    return next(each for each in places if (each / "cgroup.freeze").exists())


def freeze_v2(place: Path, yes: bool) -> None:
    (place / "cgroup.freeze").write_text(f"{yes:d}")
    until(lambda: f"frozen {yes:d}" in (place / "cgroup.events").read_text())


@contextlib.contextmanager
def frozen_by_v2(box: Bed, job: Started) -> Iterator[None]:
    """As a Proxmox of today freezes: KILL acts at once. Ours is never sent: entering would hang."""
    freeze_v2(v2(box), True)
    assert letter(job) == "S"
    yield
    os.kill(job.host_pid, signal.SIGKILL)
    until(lambda: not lives(job))
    freeze_v2(v2(box), False)


@contextlib.contextmanager
def paused(box: Bed, job: Started) -> Iterator[None]:
    """Its own group is frozen, as by `docker pause` or `systemctl freeze` inside."""
    place = v2(box) / "ns/paused"
    place.mkdir(parents=True)
    (place / "cgroup.procs").write_text(str(job.host_pid))
    freeze_v2(place, True)
    yield
    freeze_v2(place, False)


class Row(Struct, frozen=True):
    """`status`: how INT and TERM land, the verdict, a pattern in its evidence. `stop`: result,
    verdict, a pattern in its evidence or skipped reasons, how many signals. `trains`: the trainer
    is alive at the end. `log`: what it has said itself by then. `kill`: result and verdict of a
    last KILL with consent, where a signal like it may be thought to wait."""

    name: str
    argv: tuple[str, ...]
    status: tuple[str, str, str]
    stop: tuple[str, str, str, int]
    how: str = "polite"
    prepare: Prepare = nothing
    trains: bool = False
    log: str = ""
    kill: tuple[str, str] | None = None


ENDED = ("stopped", "gone")
QUIET = r"no sign of progress in \d[.\d]* s \(CPU, memory, reads and writes, context switches\)"
STALLED = r"no progress by any measure: \d+ is in wchan futex_\w+, syscall 202; .* stood still for"
TOOK = r"\d+ took INT \d.* s ago \(nothing is pending\) and "
_WOKEN = TOOK + r"has woken \d+\.\d times a second since"
# too little time has passed, or too much moves, to say more
_EARLY = r": it may gather what it saves, or go on; too early to tell"
WAKES = _WOKEN + rf"(, without ending|{_EARLY})"
# the very moment it is looked at it may be awake, and waits nowhere
POLLS = _WOKEN + rf"(, without ending.*\((wchan hrtimer_nanosleep|state [RS])|{_EARLY})"
WAITS = TOOK + r"waits in C code \(wchan futex_\w+, syscall 202\); KeyboardInterrupt comes when"

SAVED = ("stopped", "gone", "is gone", 1)
HEARD = "heard fatal"
UNHEARD = "Waiting cannot help"
CPU = "busy|stopping"  # by whether it got a tick between the last two looks
FROZEN = "is frozen; entering it would hang"
ICED = r"\d+ is frozen by its control group \(wchan \w+, syscall \d+\); signals wait until it is"

ROWS = [
    Row("polite", (), (HEARD, "busy", r"CPU"), SAVED),
    Row(
        "main thread in a C busy loop",
        ("--c-call", "300"),
        (HEARD, "busy", r"CPU [1-9]"),
        ("still_running", CPU, TOOK + r"runs in C code \(state R\)", 1),
        trains=True,
        kill=ENDED,
    ),
    Row(
        "the same, and it keeps the GIL",
        ("--stuck", "spin"),
        (HEARD, "busy", r"CPU [1-9]"),
        ("still_running", CPU, TOOK + r"runs in C code \(state R\)", 1),
        trains=True,
        log="leaves for C code",
    ),
    Row(
        "mutex that never comes free",
        ("--stuck", "mutex"),
        (HEARD, "busy", QUIET),
        ("still_running", "busy", WAITS, 1),
        trains=True,
    ),
    Row(
        "the same, its log older than itself",
        ("--stuck", "mutex"),
        (HEARD, "busy", QUIET),
        ("still_running", "busy", WAITS, 1),
        prepare=silent_log,
        trains=True,
    ),
    Row(
        "sched_yield spin in C",
        ("--stuck", "yield-spin"),
        (HEARD, "busy", r"CPU [1-9]"),
        ("still_running", CPU, TOOK + r"runs in C code \(state R\)", 1),
        trains=True,
        log="leaves for C code",
    ),
    Row(
        "usleep poll in C",
        ("--stuck", "usleep-poll"),
        (HEARD, "busy", "CPU"),
        ("still_running", CPU, POLLS, 1),
        trains=True,
        log="leaves for C code",
    ),
    Row(
        "nanosleep restarted on EINTR in C",
        ("--stuck", "sleep-on"),
        (HEARD, "busy", QUIET),
        ("still_running", "busy", TOOK + r"waits in C code \(wchan hrtimer_nanosleep", 1),
        trains=True,
        log="leaves for C code",
    ),
    Row(
        "sem_wait that nobody ends",
        ("--stuck", "semaphore"),
        (HEARD, "busy", QUIET),
        ("still_running", "busy", WAITS, 1),
        trains=True,
        log="leaves for C code",
    ),
    Row(
        "D in vfork: its child neither execs nor ends",
        ("--stuck", "vfork"),
        (HEARD, "busy", QUIET),
        ("still_running", "busy", r"INT is still pending on \d+ .*state D, wchan kernel_clone", 1),
        trains=True,
        log="leaves for C code",
        kill=ENDED,
    ),
    Row(
        "asyncio.run: INT cancels, it drains for 2 s",
        ("--stuck", "asyncio"),
        (HEARD, "busy", QUIET),
        SAVED,
        log="draining\ndrained\nKeyboardInterrupt",
    ),
    Row(
        "idle in Python, its log older than itself",
        ("--stuck", "idle"),
        (HEARD, "busy", QUIET),
        SAVED,
        prepare=silent_log,
    ),
    Row(
        "except BaseException",
        ("--stuck", "swallow"),
        (HEARD, "busy", QUIET),
        ("still_running", "busy", TOOK + r"has run on since \(\d+ bytes written\)", 1),
        trains=True,
    ),
    Row(
        "KeyboardInterrupt in __del__",
        ("--stuck", "del"),
        (HEARD, "busy", "CPU"),
        ("still_running", "busy", TOOK + r"has run on since \(\d+ bytes written\)", 1),
        trains=True,
    ),
    Row(
        "another thread holds the GIL in C",
        ("--stuck", "gil"),
        (HEARD, "busy", "CPU"),
        ("still_running", CPU, WAKES, 1),
        trains=True,
    ),
    Row(
        "a handler that only logs",
        ("--shrug",),
        (HEARD, "busy", "CPU"),
        ("still_running", "busy", "new steps in the log after the signal: it trains on", 1),
        trains=True,
    ),
    Row(
        "INT and TERM blocked in every thread",
        ("--stuck", "blocked"),
        ("blocked blocked", "deaf", r"blocks INT and TERM in every thread \(SigBlk\)"),
        ("still_running", "deaf", UNHEARD, 0),
        trains=True,
        kill=ENDED,
    ),
    Row(
        "blocked in the main thread, a helper open",
        ("--stuck", "main-blocked"),
        (HEARD, "busy", "CPU"),
        SAVED,
    ),
    Row(
        "SIG_IGN by & from a non-interactive shell",
        (),
        ("ignored fatal", "deaf", r"ignores INT \(SigIgn\); it was started with &"),
        ("still_running", "deaf", "never installed KeyboardInterrupt", 0),
        how="deaf",
        trains=True,
    ),
    Row(
        "ignores both",
        ("--ignore", "INT,TERM"),
        ("ignored ignored", "deaf", r"ignores INT and TERM \(SigIgn\)"),
        ("still_running", "deaf", UNHEARD, 0),
        trains=True,
        kill=ENDED,
    ),
    Row(
        "saves on TERM, ignores INT",
        ("--ignore", "INT", "--on", "TERM"),
        ("ignored heard", "busy", "CPU"),
        ("still_running", "deaf", UNHEARD, 0),
        trains=True,
    ),
    Row(
        "SIGSTOP",
        (),
        (HEARD, "suspended", r"is stopped \(state T\); signals wait until it continues"),
        SAVED,
        prepare=stopped,
    ),
    Row(
        "SIGSTOP, and it ignores both",
        ("--ignore", "INT,TERM"),
        ("ignored ignored", "suspended", r"is stopped \(state T\)"),
        ("still_running", "suspended", UNHEARD, 0),
        prepare=stopped,
        trains=True,
        kill=ENDED,
    ),
    Row(
        "ptrace from inside",
        (),
        (HEARD, "suspended", r"held by a tracer, \d+ python3; "),
        ("still_running", "suspended", r"held by a tracer: \d+ \(by \d+ python3\)", 0),
        prepare=traced_inside,
        trains=True,
        kill=("stopped", "zombie"),
    ),
    Row(
        "ptrace from the host",
        (),
        (HEARD, "suspended", r"held by a tracer, host PID \d+, outside this place"),
        ("still_running", "suspended", r"held by a tracer: \d+ \(by host PID \d+", 0),
        prepare=traced_outside,
        trains=True,
        kill=("stopped", "zombie"),
    ),
    Row(
        "its first thread dead, another alive",
        ("--stuck", "headless"),
        (HEARD, "busy", r"the main thread of \d+ has ended, 1 live on"),
        ("still_running", "busy", r"took INT .* ago; the main thread of \d+ has ended", 1),
        trains=True,
        kill=ENDED,
    ),
    Row("a child that nobody reaps", ("--stuck", "zombie"), (HEARD, "busy", QUIET), SAVED),
    Row(
        "container frozen (cgroup v1)",
        (),
        ("", "frozen", FROZEN),
        ("unreachable", "frozen", FROZEN, 0),
        prepare=frozen,
        trains=True,
        kill=("unreachable", "frozen"),
    ),
    Row(
        "container frozen (cgroup v2)",
        (),
        ("", "frozen", FROZEN),
        ("unreachable", "frozen", FROZEN, 0),
        prepare=frozen_by_v2,
        trains=True,
        kill=("unreachable", "frozen"),
    ),
    Row(
        "its own control group frozen (cgroup v2)",
        (),
        (HEARD, "suspended", ICED),
        ("still_running", "suspended", ICED + ".*INT skipped: frozen by its control group", 0),
        prepare=paused,
        trains=True,
        kill=ENDED,
    ),
]


@pytest.fixture
def boxes(bed: None, request: pytest.FixtureRequest) -> Iterator[list[Bed]]:
    """So many fresh containers of a fleet of their own."""
    root = Path(tempfile.mkdtemp(prefix="fss-", dir="/tmp"))
    first = random.randrange(20_000, 900_000_000, 100)
    with Lab.up(root, request.param, gpus=4, first_vmid=first) as fleet:
        here = [Bed(fleet, vmid) for vmid in fleet.vmids]
        yield here
    for box in here:
        shutil.rmtree(f"/run/lock/fleetstop.{box.vmid}", ignore_errors=True)


def together(boxes: list[Bed], *words: str, deadline: float = 180.0) -> dict[str, dict[str, Any]]:
    """One command for all of them; what it says of each, by target."""
    child = boxes[0].popen(words[0], *(box.name for box in boxes), *words[1:])
    child.targets = len(boxes)
    ran: Ran = boxes[0].finish(child, deadline)
    said = {each["target"].split(":")[0]: each for each in ran.report["targets"]}
    for each in ran.events:
        if each["event"] == "located":
            said[each["target"].split(":")[0]]["located"] = each
    return said


def text_of(target: dict[str, Any]) -> str:
    skipped = [f"{each['signal']} skipped: {each['reason']}" for each in target["skipped"]]
    return "; ".join([*target["evidence"], *skipped])


def killed(rows: list[tuple[Row, Bed, Started]], tmp_path: Path) -> list[str]:
    """KILL with consent ends what nothing else reaches; what it did not end is told."""
    playbook = tmp_path / "kill.yaml"
    playbook.write_text(KILL)
    living = [each for each in rows if each[0].kill]
    ended = together([box for _, box, _ in living], "stop", "-p", str(playbook), "--force")
    wrong = []
    for row, box, job in living:
        end = ended[box.name]
        stays = lives(job) or (letter(job) == "Z" and threads(job) > 1)
        assert row.kill is not None
        seen = (end["result"], end["verdict"], stays)
        box.note("KILL", row.name, *map(str, seen), text_of(end))
        if seen != (*row.kill, row.kill[0] != "stopped"):
            wrong.append(f"KILL, {row.name}: {seen}; {text_of(end)}; {end['reason']}")
    return wrong


@pytest.mark.parametrize("boxes", [len(ROWS)], indirect=True)
def test_every_state_lands_and_ends_as_it_is_told(boxes: list[Bed], tmp_path: Path) -> None:
    jobs: list[Started] = []
    wrong: list[str] = []
    playbook = tmp_path / "short.yaml"
    playbook.write_text(PLAYBOOK)
    with contextlib.ExitStack() as stack:
        for row, box in zip(ROWS, boxes, strict=True):
            jobs.append(box.start("--save-seconds", "0.3", *row.argv, how=row.how))
        time.sleep(1.0)
        for row, box, job in zip(ROWS, boxes, jobs, strict=True):
            stack.enter_context(row.prepare(box, job))
        shown = together(boxes, "status")
        ended = together(boxes, "stop", "-p", str(playbook), "--graceful")
        for row, box, job in zip(ROWS, boxes, jobs, strict=True):
            before, after = shown[box.name], ended[box.name]
            landings = before.get("located", {}).get("landings", {})
            seen = (
                " ".join(landings.get(each, "?") for each in ("INT", "TERM") if landings),
                before["verdict"],
                after["result"],
                after["verdict"],
                len(after["signals"]),
                lives(job) or (letter(job) == "Z" and threads(job) > 1),
            )
            expected = (*row.status[:2], *row.stop[:2], row.stop[3], row.trains)
            said = (text_of(before), text_of(after))
            box.note(row.name, *map(str, seen[:2]), said[0], *map(str, seen[2:5]), said[1])
            if not all(re.fullmatch(str(e), str(s)) for e, s in zip(expected, seen, strict=True)):
                wrong.append(f"{row.name}: {seen}, not {expected}; {said}")
            wrong += [
                f"{row.name}: {text!r} has no {pattern!r}"
                for text, pattern in zip(said, (row.status[2], row.stop[2]), strict=True)
                if not re.search(pattern, text)
            ]
            if row.stop is SAVED and len(box.saved()) != 1:
                wrong.append(f"{row.name}: saved {box.saved()}")
            if row.log not in box.log(job):
                wrong.append(f"{row.name}: the log has no {row.log!r}: {box.log(job)}")
        wrong += killed(list(zip(ROWS, boxes, jobs, strict=True)), tmp_path)
    assert wrong == [], "\n".join(wrong)


# -- who is deaf to Ctrl-C, by how it was started ------------------------------------------------

PYTHON = "python3 -u /root/train.py --save-seconds 0.2"
QUIETLY = ">/dev/null 2>&1 </dev/null"
RESET = (
    "import os, signal, sys; signal.signal(2, signal.SIG_DFL); os.execvp(sys.argv[1], sys.argv[1:])"
)
POPEN = "import subprocess, sys; subprocess.Popen(sys.argv[1:], start_new_session=True)"
HANDLED = "import signal; signal.signal(2, lambda *_: None); " + POPEN


class Form(Struct, frozen=True):
    """How a job was launched, non-interactively; `{py}` is its command line."""

    text: str
    deaf: bool
    shell: str = "bash"


FORMS = [
    Form("nohup {py} {q} &", True),
    Form("{py} {q} &", True),
    Form("{py} {q} &", True, "dash"),
    Form("{py} {q} &", True, "busybox sh"),
    Form("printf '%s\\n' '{py} {q} &' | bash -s", True),
    Form("cd /root; nohup {py} {q} &", True),
    Form("cd /root && nohup {py} {q} &", False),
    Form("cd /root && nohup {py} {q} &", True, "dash"),
    Form("{ {py}; } {q} &", False),
    Form("( {py} ) {q} &", False),
    Form("( {py} ) {q} &", True, "dash"),
    Form("f() { {py}; }; f {q} &", False),
    Form("nohup /root/run.sh --save-seconds 0.2 {q} &", True),
    Form("cd /root && nohup bash run.sh --save-seconds 0.2 {q} &", False),
    Form("{py} 2>&1 </dev/null | tee /tmp/log >/dev/null &", True),
    Form(
        "printf 'for g in 1; do {py} {q} & done; wait' >/tmp/loop; setsid -f bash /tmp/loop", True
    ),
    Form("setsid {py} {q} &", True),
    Form("setsid -f {py} {q}", False),
    Form("nohup setsid -f {py} {q}", False),
    Form("nohup env --default-signal=INT {py} {q} &", False),
    Form("nohup env --default-signal=INT bash /root/run.sh --save-seconds 0.2 {q} &", False),
    Form("nohup python3 -c '{reset}' {py} {q} &", False),
    Form("set -m; nohup {py} {q} &", False),
    Form("setsid -f script -qec 'bash -ic \"{py} {q} & sleep 900\"' /dev/null {q}", False),
    Form("bash -c 'trap - INT; {py}; true' {q} &", True),
    Form("nohup script -qec 'bash -c \"{py}\"' /dev/null {q} &", True),
    Form("python3 -c '{popen}' {py} {q} &", True),
    Form("python3 -c '{handled}' {py} {q} &", False),
    Form("tmux -L form new-session -d '{py}'", False),
    Form("bash -c \"tmux -L other new-session -d '{py}'\" {q} &", False),
]


def launched(form: Form) -> str:
    """The row as `bash -c` runs it."""
    text = form.text
    for name, value in (("py", PYTHON), ("q", QUIETLY), ("reset", RESET), ("popen", POPEN)):
        text = text.replace("{" + name + "}", value)
    text = text.replace("{handled}", HANDLED)
    # what a row does not say of the dispositions is the default
    return f"exec {form.shell} -c {shlex.quote(text)}"


def test_who_is_deaf_by_launch_form(box: Bed) -> None:
    """`status` says it of all of them at once; then a real INT shows that it was true."""
    jobs = [box.start(launched(form), how="raw", trainers=1) for form in FORMS]
    ran = box.run("status", box.name, "--script", "train.py", deadline=90)
    told = {
        each["pid"]: (tree["landings"], tree["verdict"], each["verdict"])
        for tree in ran.events
        if tree["event"] == "located"
        for each in tree["family"]
        if each["role"] == "trainer"
    }
    wrong = []
    for form, job in zip(FORMS, jobs, strict=True):
        expected = ({"INT": "ignored" if form.deaf else "heard", "TERM": "fatal"},) + (
            "deaf" if form.deaf else "busy",
        ) * 2
        box.note(
            form.shell, f"`{form.text}`", "deaf" if form.deaf else "hears", str(told.get(job.pid))
        )
        if told.get(job.pid) != expected:
            wrong.append(f"{form.shell} {form.text}: {told.get(job.pid)}")
    for job in jobs:
        os.kill(job.host_pid, signal.SIGINT)
    heard = [job for form, job in zip(FORMS, jobs, strict=True) if not form.deaf]
    until(lambda: not any(lives(job) for job in heard), 30)
    time.sleep(0.5)
    wrong += [
        f"{form.shell} {form.text}: INT {'ended' if form.deaf else 'did not end'} it"
        for form, job in zip(FORMS, jobs, strict=True)
        if lives(job) != form.deaf
    ]
    assert wrong == [], "\n".join(wrong)


# -- nothing acts on it: a disk that hangs --------------------------------------------------------

NOW = """\
ladder: [{signal: KILL, to: tree, wait: 4s}, {signal: KILL, to: tree, wait: 4s}]
hold: {saving: 2s, stopping: 1s}
"""


def test_a_hanging_disk_is_bounded_named_and_killed_once(box: Bed, tmp_path: Path) -> None:
    """Then, after the thaw, the truth: the KILL that waited has ended it."""
    playbook = tmp_path / "hard.yaml"
    playbook.write_text(NOW)
    with disk(box, tmp_path / "image") as slow:
        job = box.start("--checkpoints", slow.path, "--save-every", "0.5", "--save-seconds", "3")
        until(lambda: "saving" in box.log(job))
        slow.freeze()
        until(lambda: letter(job) == "D")
        shown = box.run("status", box.name)
        # D alone is not it: nothing has been sent, and the disk may come back
        assert shown.target["verdict"] == "busy", shown.people
        began = time.monotonic()
        ran = box.run("stop", box.name, "-p", str(playbook), "--force")
        assert time.monotonic() - began < 30
        assert (ran.code, ran.target["verdict"]) == (1, "uninterruptible"), ran.people
        (why,) = ran.target["evidence"]
        assert re.search(r"is in percpu_rwsem_wait; KILL pending for \d.* s, and nothing acts", why)
        assert [name for name, _ in ran.signals] == ["KILL"]
        assert any("KILL is pending on it already" in e["reason"] for e in ran.target["skipped"])
        shown = box.run("status", box.name)
        assert shown.target["verdict"] == "uninterruptible", shown.people
        assert "percpu_rwsem_wait" in shown.people
        again = box.run("stop", box.name, "-p", str(playbook), "--force")
        assert (again.code, again.signals) == (1, []), again.people
        assert again.target["verdict"] == "uninterruptible", again.people
        assert "KILL waits on it and cannot act" in again.people
        assert "training on" not in again.people
        assert lives(job)
        slow.thaw()
        until(lambda: not lives(job))
        after = box.run("stop", box.name, "-p", str(playbook), "--force")
        assert (after.code, after.target["result"]) == (0, "not_running"), after.people


# -- dead, come back, or apart --------------------------------------------------------------------


def test_a_zombie_is_ended_and_who_should_reap_it_is_named(box: Bed) -> None:
    (box.lab.rootfs(box.vmid) / "root/careless.py").write_text(
        f"import subprocess, time\nchild = subprocess.Popen({PYTHON.split()})\ntime.sleep(600)\n"
    )
    text = "setsid -f python3 /root/careless.py >/workspace/train.log 2>&1 </dev/null"
    job = box.start(text, how="raw", trainers=1)
    ran = box.run("stop", box.name, "--graceful")
    assert (ran.code, ran.target["verdict"]) == (0, "zombie"), ran.people
    (why,) = ran.target["evidence"]
    assert re.fullmatch(rf"{job.pid} is dead; \d+ python3 should reap it and has not", why)
    assert len(box.saved()) == 1
    again = box.run("status", box.name)
    assert again.target["result"] == "not_running", again.people


def test_what_comes_back_is_called_respawned(box: Bed) -> None:
    loop = f"while true; do {PYTHON} >>/workspace/train.log 2>&1; sleep 0.3; done"
    text = f"setsid -f bash -c {shlex.quote(loop)} >/dev/null 2>&1 </dev/null"
    box.start(text, how="raw", trainers=1)
    ran = box.run("stop", box.name, "--graceful", deadline=90)
    assert (ran.code, ran.target["verdict"]) == (6, "respawned"), ran.people
    assert re.search(r"it runs again as \d+, started by \d+ bash -c", ran.target["evidence"][0])


RANKS = ("--ranks", "4", "--barrier-seconds", "2", "--save-seconds", "0.1", "--step-seconds", "0.1")


def test_a_rank_that_is_left_alone_is_told(box: Bed, tmp_path: Path) -> None:
    """One rank was asked by somebody else: it waits for the others to save, gives up and is gone;
    the others wait for it in C code, and INT does not reach Python any more."""
    playbook = tmp_path / "short.yaml"
    playbook.write_text(
        "ladder: [{signal: INT, to: trainers, wait: 16s}]\nhold: {saving: 5s, stopping: 1s}\n"
    )
    job = box.start(*RANKS, log="/workspace/train.log")
    time.sleep(0.5)
    os.kill(job.trainers[3].pid, signal.SIGINT)
    time.sleep(1.0)
    ran = box.run("stop", box.name, "--graceful", "-p", str(playbook), deadline=90)
    assert (ran.code, ran.target["verdict"]) == (1, "stalled"), ran.people
    told = [each for each in ran.target["findings"] if each.startswith("diverged: ")]
    assert told, ran.people
    pattern = r"diverged: rank 3( \(\d+\))? is gone, rank 0 \(\d+\) still waits .* 2 more like it"
    assert re.match(pattern, told[0]), told
    assert len(ran.signals) == 1


@pytest.mark.timeout(300)
def test_who_does_nothing_for_a_minute_is_stalled(box: Bed) -> None:
    job = box.start("--stuck", "mutex")
    time.sleep(1.5)  # it has come to its mutex
    ran = box.run("stop", box.name, "--graceful", "--ladder", "INT/75", deadline=200.0)
    assert (ran.code, ran.signals) == (1, [("INT", [job.pid])]), ran.people
    assert ran.target["verdict"] == "stalled"
    said = " ".join(ran.target["evidence"])
    assert re.search(STALLED, said), said
    assert re.search(WAITS, said), said


@pytest.mark.parametrize("boxes", [5], indirect=True)
def test_twenty_stops_of_ranks_with_a_barrier(boxes: list[Bed]) -> None:
    """Four ranks that meet before they save: all saved, or told that they diverged."""
    ended: list[dict[str, Any]] = []
    for _ in range(4):
        for box in boxes:
            box.start(*RANKS)
        told = together(boxes, "stop", "--graceful")
        for box in boxes:
            end = told[box.name]
            diverged = any("diverged" in text for text in end["findings"])
            assert diverged or (end["result"], len(box.saved())) == ("stopped", 4), end
            ended.append(end)
            for each in box.checkpoints.rglob("*.pt"):
                each.unlink()
    saved = [each for each in ended if each["result"] == "stopped"]
    boxes[0].note("ranks with a barrier", f"{len(saved)} of {len(ended)} stopped and saved")
    assert len(ended) == 20
