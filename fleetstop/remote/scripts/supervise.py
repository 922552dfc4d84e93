"""Starts one trainer as it should be started, and stays only to record how it ended.

    PYTHON -I .../supervise.py SPEC.json

Runs inside the container, by itself, on the job's own interpreter (3.6 or later). SPEC.json:

    argv, cwd, env     words; an absolute directory; the whole environment by name
    log                appended to (0644 where it is new), opened as the trainer's user; null: none
    uid, gid, groups, umask, nice    numbers
    limits             {"NOFILE": [soft, hard], ...}, -1 is infinity
    mark               goes into the environment as FLEETSTOP_MARK
    status             the state file, an absolute path

One line on stdout: `started PID START` (exit 0) or `failed SENTENCE` (exit 1), START being field 22
of /proc/PID/stat. After `failed` nothing is left running. The state file, replaced by rename:

    {"schema": 1, "mark", "supervisor": {"pid", "start"}, "trainer": {"pid", "start"} or null,
     "started_at", "ended_at", "exit", "signal", "failed"}

It is on disk, with the trainer's PID and start, before the trainer's program runs. STATUS.end holds
the room that the last one needs, for trainers that end because the disk is full.

It sends no signal and hands none on; it starts nothing twice. HUP, INT, QUIT and TERM it does not
hear, so that a signal to everybody does not cost the record; KILL ends it and leaves the trainer
alone. It leaves when the trainer and all its orphans are gone.
"""

import contextlib
import datetime
import json
import os
import resource
import signal
import sys
import time
import warnings  # noqa: F401  os.execvpe's own, which the trainer's user may not be able to read
from functools import partial
from typing import Any, Callable, Dict, List, Optional, Tuple

Spec = Dict[str, Any]
State = Dict[str, Any]
ROOM = 4096
TRIES_S = 600  # so long it tries to write the last state, once a second
SET_CHILD_SUBREAPER = 36  # prctl(2)
SIGNALS = {int(each): each.name[3:] for each in signal.Signals}
OWN = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
LIMITS = {"LOCKS": 10, "RTTIME": 15}  # asm-generic/resource.h; the module does not name them
KINDS = {
    str: "cwd mark status",
    int: "uid gid umask nice",
    list: "argv groups",
    dict: "env limits",
    (str, type(None)): "log",
}  # type: Dict[Any, str]


class Failed(Exception):
    """The trainer was not started; its text is the sentence to report."""


def main(words: List[str]) -> int:
    try:
        if len(words) != 1:
            raise Failed("usage: python -I supervise.py SPEC.json")
        line = _start(_read_spec(words[0]))
    except (Failed, OSError) as error:
        line = "failed " + _plain(str(error))
    os.write(1, line.encode("utf-8", "backslashreplace") + b"\n")
    return 0 if line.startswith("started ") else 1


def _read_spec(path: str) -> Spec:
    try:
        with open(path, encoding="utf-8") as file:
            spec = json.load(file)
    except (OSError, ValueError) as error:
        raise Failed(f"cannot read {path}: {_reason(error)}") from error
    if not isinstance(spec, dict):
        raise Failed(f"{path} is no JSON object")
    for kind, names in KINDS.items():
        for name in names.split():
            if not isinstance(spec.get(name, main), kind):
                raise Failed(f"{path} does not tell {name} as it should")
    if not spec["argv"] or not spec["cwd"][:1] == spec["status"][:1] == "/":
        raise Failed(f"{path} has to name a program, and absolute cwd and status")
    return spec


def _start(spec: Spec) -> str:
    """Leaves the supervisor behind in a session of its own; what it reports."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, it would cost every exit status
    reading, writing = os.pipe()
    middle = os.fork()
    if middle == 0:
        os.close(reading)
        with contextlib.suppress(Exception):  # who waits for a word hears that there is none
            os.setsid()
            if os.fork() == 0:
                os._exit(_supervise(spec, writing))
        os._exit(0)
    os.close(writing)
    os.waitpid(middle, 0)
    died = "failed its supervisor was ended before it told whether the trainer started: see "
    return _read(reading).decode("utf-8", "replace") or died + spec["status"]


def _supervise(spec: Spec, report: int) -> int:
    status, own = _bytes(spec["status"]), os.getpid()
    state = {"schema": 1, "mark": spec["mark"]}  # type: State
    state["supervisor"] = {"pid": own, "start": _start_of(own)}
    state.update(trainer=None, started_at=_now(), ended_at=None)
    state.update(exit=None, signal=None, failed=None)
    try:
        _settle(report)
        trainer = _launch(spec, state, status)
    except (Failed, OSError, ImportError) as error:
        _tell(report, "failed " + _left_unstarted(state, status, _plain(str(error))))
        return 1
    _tell(report, f"started {trainer} {state['trainer']['start']}")
    return _watch(trainer, state, status)


def _settle(report: int) -> None:
    """Holds nothing of whoever started it: no descriptor, no directory, no terminal."""
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    for fd in [int(name) for name in os.listdir("/proc/self/fd")]:
        if fd > 2 and fd != report:
            os.closerange(fd, fd + 1)  # the listing's own is closed by now, which is no error here
    os.chdir("/")
    os.umask(0o022)
    import ctypes  # a Python may lack it, and it cannot train then

    call = ctypes.CDLL(None, use_errno=True).prctl
    call.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
    if call(SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise Failed(f"cannot become a subreaper: {os.strerror(ctypes.get_errno())}")


def _launch(spec: Spec, state: State, status: bytes) -> int:
    """The trainer's PID. It waits, not yet its own program, until its record is on disk."""
    wait, go = os.pipe()
    hear, tell = os.pipe()
    # what arrives between fork and exec waits for the trainer's own dispositions
    signal.pthread_sigmask(signal.SIG_BLOCK, list(signal.Signals))
    for each in OWN:
        signal.signal(each, signal.SIG_IGN)
    pid = os.fork()
    if pid == 0:
        os.close(go)
        _become(spec, wait, tell)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    os.close(wait)
    os.close(tell)
    try:
        state["trainer"] = {"pid": pid, "start": _start_of(pid)}
        _write(status, state, b".new")
        _fill(status + b".end", b" " * ROOM)
    except OSError as error:
        os.close(go)
        os.waitpid(pid, 0)
        raise Failed(f"cannot write {spec['status']}: {_reason(error)}") from error
    with contextlib.suppress(BrokenPipeError):  # ended while it waited: its status tells
        os.write(go, b"g")
    os.close(go)
    said = _read(hear)
    if said:
        os.waitpid(pid, 0)
        raise Failed(said.decode("utf-8", "replace"))
    return pid


def _become(spec: Spec, wait: int, tell: int) -> None:
    """Never returns: the trainer, or its end after a word through `tell`, which exec closes."""
    try:
        if os.read(wait, 1) == b"g":
            for what, step in _steps(spec):
                try:
                    step()
                except Exception as error:
                    raise Failed(f"cannot {what}: {_reason(error)}") from error
    except Exception as error:
        os.write(tell, _plain(str(error)).encode("utf-8", "backslashreplace"))
    finally:
        os._exit(127)


def _steps(spec: Spec) -> List[Tuple[str, Callable[[], None]]]:
    argv = [_bytes(word) for word in spec["argv"]]
    env = {_bytes(name): _bytes(value) for name, value in spec["env"].items()}
    env[b"FLEETSTOP_MARK"] = _bytes(spec["mark"])
    steps = [
        ("make a session", os.setsid),
        (f"set nice to {spec['nice']}", lambda: os.setpriority(os.PRIO_PROCESS, 0, spec["nice"])),
    ]  # type: List[Tuple[str, Callable[[], None]]]
    for name, pair in spec["limits"].items():
        steps.append((f"set the limit {name} to {pair}", partial(_set_limit, name, *pair)))
    steps += [
        (f"become user {spec['uid']}, group {spec['gid']}", lambda: _set_ids(spec)),
        (f"change to {spec['cwd']}", lambda: os.chdir(_bytes(spec["cwd"]))),
        (f"append to {spec['log']}", lambda: _open_log(spec["log"], spec["umask"])),
        ("reset its signals", _reset_signals),
        (f"run {spec['argv'][0]}", lambda: os.execvpe(argv[0], argv, env)),  # noqa: S606
    ]
    return steps


def _set_limit(name: str, soft: int, hard: int) -> None:
    number = getattr(resource, "RLIMIT_" + name, LIMITS.get(name))
    if number is None:
        raise ValueError("there is no such limit")
    resource.setrlimit(number, (soft, hard))


def _set_ids(spec: Spec) -> None:
    """Only what differs: who is not root may be told to stay who he is."""
    uid, gid, other = spec["uid"], spec["gid"], set(os.getgroups()) ^ set(spec["groups"])
    if other and (os.geteuid() == 0 or other != {gid}):  # his own may stand among them or not
        os.setgroups(spec["groups"])
    if os.getresgid() != (gid, gid, gid):
        os.setgid(gid)
    if os.getresuid() != (uid, uid, uid):
        os.setuid(uid)


def _open_log(path: Optional[str], umask: int) -> None:
    """As the trainer's user by now: root would follow a link that the user has laid."""
    if path is not None:
        log = os.open(_bytes(path), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOCTTY, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
    os.umask(umask)


def _reset_signals() -> None:
    """KILL and STOP cannot be set, and the two below RTMIN are the C library's."""
    for number in range(1, signal.NSIG):
        taken = 31 < number < int(signal.SIGRTMIN)
        if number not in (signal.SIGKILL, signal.SIGSTOP) and not taken:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def _watch(trainer: int, state: State, status: bytes) -> int:
    """Until the trainer is gone and what it left behind is reaped."""
    failed = 0
    while True:
        try:
            pid, how = os.waitpid(-1, 0)
        except ChildProcessError:
            return failed
        if pid == trainer:
            state["ended_at"] = _now()
            if os.WIFSIGNALED(how):
                state["signal"] = SIGNALS.get(os.WTERMSIG(how), str(os.WTERMSIG(how)))
            else:
                state["exit"] = os.WEXITSTATUS(how)
            failed = _write_last(status, state)


def _write_last(status: bytes, state: State) -> int:
    for _ in range(TRIES_S):
        try:
            _write(status, state, b".end", keep=True)
            return 0
        except OSError:
            time.sleep(1)
    return 1


def _left_unstarted(state: State, status: bytes, sentence: str) -> str:
    """The sentence, and what is to be said of the record."""
    state.update(trainer=None, ended_at=_now(), failed=sentence)
    try:
        _write(status, state, b".end")
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(status)
        if os.path.lexists(status):
            sentence += f"; the state file does not say so: {_reason(error)}"
    return sentence


def _write(path: bytes, state: State, suffix: bytes, keep: bool = False) -> None:
    """By rename: whoever reads it sees one state or the other, whole. `keep`: room that was taken
    for it is not given back on a failure."""
    _fill(path + suffix, json.dumps(state).encode("ascii") + b"\n", keep)
    os.rename(path + suffix, path)
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _fill(path: bytes, text: bytes, keep: bool = False) -> None:
    """What the file holds already is overwritten in place: it needs no more room."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    try:
        left = text
        while left:
            left = left[os.write(file, left) :]
        os.ftruncate(file, len(text))
        os.fchmod(file, 0o644)
        os.fsync(file)
    except OSError:
        if not keep:
            os.unlink(path)
        raise
    finally:
        os.close(file)


def _tell(report: int, line: str) -> None:
    with contextlib.suppress(BrokenPipeError):  # who asked is gone; the state file tells
        os.write(report, line.encode("utf-8", "backslashreplace"))
    os.close(report)


def _read(fd: int) -> bytes:
    with os.fdopen(fd, "rb") as pipe:
        return pipe.read()


def _start_of(pid: int) -> int:
    with open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[19])


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds")


def _bytes(text: str) -> bytes:
    """As the spec has it, whatever this Python's locale would make of it."""
    return text.encode("utf-8", "surrogateescape")


def _reason(error: BaseException) -> str:
    return _plain(getattr(error, "strerror", None) or str(error) or type(error).__name__)


def _plain(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
