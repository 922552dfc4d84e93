"""Stands in a tmux pane or a systemd unit for a trainer that supervise.py beside it has started.

    PYTHON -I .../stay.py SPEC.json

The pane, or the unit, lives as long as this process, and this one as long as the trainer and all
its orphans. What starts the trainer and records its end is supervise.py, as ever: whatever happens
to the pane, the unit or this process, the trainer goes on and its end is recorded. Both read the
spec; for this one it may tell

    output     "pane": the log is shown as it grows; "log" (or nothing): it is not
    hand_on    the signal's name that is handed on, once; null (or nothing): none
    stop       the command that ends the job gently, which who types Ctrl-C here is told

The line that supervise.py prints (`started PID START`, `failed SENTENCE`) stands on stdout, and
gets into SPEC.json.report, by rename.

The trainer itself never writes to the terminal: that may be held (Ctrl-S), or be gone with tmux,
and would hold the trainer, or end it with EIO. It writes to its log, and this shows the log.

No signal but KILL and STOP ends or stops anything here. With `hand_on` (a unit's KillSignal, so
`systemctl stop`) that signal goes to the trainer alone, and only the first one does: what was
started, or what a shell or a program like timeout runs below it. More than one child, a tee
aside: nobody is told, and that is said.

It exits as the trainer did, 128 + N for signal N; 1 where it did not start, or nobody knows.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from typing import Any, Dict, List, Optional, Tuple

Spec = Dict[str, Any]
State = Dict[str, Any]
SIGNALS = {int(each): each.name[3:] for each in signal.Signals}
LOOK_S = 0.2
SHELLS = ("sh", "bash", "dash", "ash", "ksh", "zsh", "busybox")
MOST = 1 << 20  # so much of the log is shown between two looks at what else there is
SET_CHILD_SUBREAPER = 36  # prctl(2)
NOT_TOLD = frozenset("HUP CHLD CONT TTIN TTOU WINCH URG PIPE".split())
WAITED_FOR = {
    each
    for each in signal.Signals
    if each.name[3:] not in "KILL STOP SEGV BUS FPE ILL TRAP SYS".split()
}
TYPED = {signal.SIGINT: "Ctrl-C", signal.SIGQUIT: "Ctrl-\\", signal.SIGTSTP: "Ctrl-Z"}
THROUGH = frozenset(
    "sh bash dash ash zsh ksh mksh fish busybox timeout nice env uv sudo su script time stdbuf"
    " setpriv xargs flock nohup setsid ionice chrt taskset numactl doas runuser".split()
)
KINDS = ("output", "hand_on", "stop")


class Terminal:
    """What people see, if there is anybody: nothing here waits for it, or minds that it is gone."""

    def __init__(self) -> None:
        self.open = True
        self.line_ended = True
        with contextlib.suppress(OSError):
            os.set_blocking(1, False)

    def write(self, text: bytes) -> int:
        """How much of it went out; all of it counts as written where nobody can ever read it."""
        if not self.open or not text:
            return len(text)
        try:
            done = os.write(1, text)
        except BlockingIOError:
            return 0
        except OSError:
            self.open = False
            return len(text)
        self.line_ended = text[:done].endswith(b"\n")
        return done

    def say(self, sentence: str) -> None:
        start = b"" if self.line_ended else b"\n"
        self.write(start + sentence.encode("utf-8", "backslashreplace") + b"\n")


class Log:
    """The trainer's log from where it ended before this run, shown as it grows."""

    def __init__(self, spec: Spec, terminal: Terminal) -> None:
        wanted = spec.get("output") == "pane" and spec.get("log") is not None
        self.path = _bytes(spec["log"]) if wanted else None
        self.terminal = terminal
        self.at = 0
        self.file = -1
        if self.path is not None:
            with contextlib.suppress(OSError):
                self.at = os.stat(self.path).st_size

    def show(self) -> None:
        if self.path is None:
            return
        try:
            if self.file < 0:  # NONBLOCK: it may be a FIFO
                flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
                self.file = os.open(self.path, flags)
            self.at = 0 if os.fstat(self.file).st_size < self.at else self.at
            last = self.at + MOST
            while self.at < last:
                text = os.pread(self.file, 1 << 16, self.at)
                done = self.terminal.write(text)
                self.at += done
                if not text or done < len(text):
                    break
        except OSError:
            return  # not there yet, or no file to look into: the trainer does not need it shown


class Stay:
    """From the trainer's start until nothing of it is left."""

    def __init__(self, spec: Spec, terminal: Terminal, log: Log, trainer: int, start: int) -> None:
        self.spec = spec
        self.terminal = terminal
        self.log = log
        self.trainer = trainer
        self.start = start
        self.advice = spec.get("stop") or "fleetstop stop"
        self.handed_on = False
        self.ended = None  # type: Optional[State]
        self.reaped = None  # type: Optional[int]

    def until_all_is_over(self) -> int:
        while self._anybody_left():
            heard = signal.sigtimedwait(WAITED_FOR, LOOK_S)
            self.log.show()
            if heard is not None:
                self._hear(signal.Signals(heard.si_signo))
            self._tell_the_end()
        self._tell_the_end()
        if self.ended is None:
            self.terminal.say(f"fleetstop: the trainer ({self.trainer}) ended{self._unrecorded()}")
            return 1 if self.reaped is None else _code(*_how(self.reaped))
        return _code(self.ended["exit"], self.ended["signal"])

    def _anybody_left(self) -> bool:
        """Its supervisor, or what that left to us when it was killed."""
        while True:
            try:
                pid, how = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.trainer:
                self.reaped = how

    def _hear(self, number: signal.Signals) -> None:
        name = number.name[3:]
        if name == self.spec.get("hand_on"):
            self.terminal.say("fleetstop: " + self._hand_on(number, name))
        elif number in TYPED and os.isatty(1):
            self.terminal.say(
                f"fleetstop: {TYPED[number]} does not reach the trainer ({self.trainer});"
                f" `{self.advice}` lets it save and leave"
            )
        elif name not in NOT_TOLD:  # HUP is the terminal's own end
            self.terminal.say(f"fleetstop: {name} is not handed on to the trainer ({self.trainer})")

    def _hand_on(self, number: signal.Signals, name: str) -> str:
        """Once: another one may end a trainer in its save."""
        if self.handed_on:
            return f"{name} was handed on before, and the trainer is not sent another"
        whom = _who_trains(self.trainer, self.start)
        if whom is None:
            return (
                f"{name} is not handed on: below {self.trainer} it cannot be seen who trains;"
                f" `{self.advice}` looks closer"
            )
        try:
            os.kill(whom, number)
        except OSError as error:
            return f"{name} could not be handed on to {whom}: {error.strerror}"
        self.handed_on = True
        return f"{name} was handed on to the trainer ({whom}), which has all the time it needs"

    def _tell_the_end(self) -> None:
        """As soon as it is on record, though what the trainer left behind is waited for longer."""
        state = _read_json(_bytes(self.spec["status"])) if self.ended is None else {}
        if state.get("ended_at"):
            self.ended = state
            self.log.show()
            how = f"exited {state['exit']}"
            if state["signal"] is not None:
                how = f"was ended by {state['signal']}"
            who, name = f"the trainer ({self.trainer})", os.path.basename(self.spec["argv"][0])
            if state["exit"] == 0 and (name in SHELLS or name.endswith(".sh")):
                # what it started may have ended otherwise
                who, how = f"{name} ({self.trainer})", how + "; its trainer's own end is not known"
            self.terminal.say(f"fleetstop: {who} {how}")

    def _unrecorded(self) -> str:
        if self.reaped is None:
            return ", and nobody knows how: its supervisor was gone by then"
        code, name = _how(self.reaped)
        how = f" by {name}" if name is not None else f", exit {code}"
        return f"{how}; its supervisor was gone by then, so that is not on record"


def main(words: List[str]) -> int:
    signal.pthread_sigmask(signal.SIG_BLOCK, WAITED_FOR)
    for number in WAITED_FOR:  # an ignored CHLD would cost every status
        signal.signal(number, signal.SIG_DFL)
    terminal = Terminal()
    if len(words) != 1:
        terminal.say("failed usage: python -I stay.py SPEC.json")
        return 1
    spec = _read_json(_bytes(words[0]))
    log = Log(spec, terminal)
    line = _problem(spec, words[0]) or _started(words[0])
    terminal.say(_report(_bytes(words[0]) + b".report", line))
    if not line.startswith("started "):
        return 1
    trainer, start = (int(word) for word in line.split()[1:3])
    if log.path is not None:
        terminal.say(f"fleetstop: what it writes stands in {spec['log']}, and here")
    return Stay(spec, terminal, log, trainer, start).until_all_is_over()


def _problem(spec: Spec, path: str) -> Optional[str]:
    for name in KINDS:
        if not isinstance(spec.get(name), (str, type(None))):
            return f"failed {path} does not tell {name} as it should"
    if spec.get("output") == "pane" and spec.get("log") is None:
        return f"failed {path} has no log: the trainer does not write to a terminal itself"
    return None


def _started(path: str) -> str:
    """The line of supervise.py, which is below us from then on, though it has left its parent."""
    import ctypes  # a Python may lack it, and supervise.py says so then

    call = ctypes.CDLL(None).prctl
    call.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
    call(SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "supervise.py")
    words = [sys.executable, "-I", script, path]
    null, pipe = subprocess.DEVNULL, subprocess.PIPE
    done = subprocess.run(words, check=False, stdin=null, stdout=pipe)
    return done.stdout.decode("utf-8", "replace").strip() or "failed supervise.py said nothing"


def _report(path: bytes, line: str) -> str:
    """By rename: whoever waits for it reads all of it. It runs though it cannot be told of."""
    try:
        with open(path + b".new", "wb") as file:
            file.write(line.encode("utf-8", "backslashreplace") + b"\n")
        os.rename(path + b".new", path)
    except OSError as error:
        return f"{line} (not reported in {os.fsdecode(path)}: {error.strerror})"
    return line


def _who_trains(pid: int, start: int) -> Optional[int]:
    """Down from what was started, through what only runs another program; None where that is
    not one, or it is gone."""
    children = {}  # type: Dict[int, List[int]]
    starts = {}  # type: Dict[int, int]
    for name in os.listdir("/proc"):
        fields = _stat_of(int(name)) if name.isdigit() else None
        if fields is not None and fields[0] not in ("Z", "X"):
            children.setdefault(int(fields[1]), []).append(int(name))
            starts[int(name)] = int(fields[19])
    if starts.get(pid) != start:
        return None
    while _program(pid) in THROUGH:
        below = [each for each in children.get(pid, []) if _program(each) != "tee"]
        if len(below) != 1:
            return None
        pid = below[0]
    again = _stat_of(pid)
    return pid if again is not None and int(again[19]) == starts[pid] else None


def _program(pid: int) -> str:
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return ""


def _stat_of(pid: int) -> Optional[List[str]]:
    """From the state on, which is field 3 in proc(5)."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().decode("ascii", "replace").rpartition(")")[2].split()
    except OSError:
        return None


def _read_json(path: bytes) -> Dict[str, Any]:
    try:
        with open(path, "rb") as file:
            read = json.loads(file.read().decode("utf-8"))
    except (OSError, ValueError):
        return {}  # supervise.py reads it too, and says what is wrong with it
    return read if isinstance(read, dict) else {}


def _how(status: int) -> Tuple[Optional[int], Optional[str]]:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return None, SIGNALS.get(number, str(number))
    return os.WEXITSTATUS(status), None


def _code(code: Optional[int], name: Optional[str]) -> int:
    if name is None:
        return 1 if code is None else code
    return 128 + next((n for n, known in SIGNALS.items() if known == name), 0)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
