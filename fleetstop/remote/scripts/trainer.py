"""Starts a trainer through supervise.py and tells what lives of it; it signals nothing.

Loaded by activate.py, beside which it lies. Python 3.6 or later, standard library only.
"""

import contextlib
import json
import os
import re
import select
import signal
import stat
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

if TYPE_CHECKING:
    from fleetstop.remote.scripts import aside, living, rehearse, wary
else:
    import aside  # activate.py has loaded them from beside itself
    import living
    import rehearse
    import wary

Json = Dict[str, Any]
START_S = 60.0  # so long the supervisor may take to tell of the start
FAILED_S = 5.0  # so long after the command that should have started it has failed
OWN = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
# somebody has ended it: its log tells nothing of why
ASKED = "HUP", "INT", "QUIT", "TERM", "KILL"
ROOM = b" " * 4096
SHELLS = ("sh", "bash", "dash", "ash", "ksh", "zsh", "busybox")
SUPERVISE = os.path.join(os.path.dirname(os.path.abspath(os.fsencode(__file__))), b"supervise.py")
NOT_AGAIN = "what runs now could not be started again"
UNSEEN = contextlib.suppress(OSError)


class Silent(Exception):
    """Whether a trainer was started is not known; its text is the sentence to report."""


class Trainer:
    """One start of supervise.py and what came of it. `id`: {"pid", "start", "mark", "log_from": how
    long its log was} or None. `log`: where it is read; `opens`: what its output goes to."""

    def __init__(self, base: "wary.Top", spec: Json, file: bytes, log: Optional[str]) -> None:
        self.base, self.file = base, file
        self.prefix = [wary.bytes_of(word) for word in spec.get("prefix") or []]
        self.spec = {name: value for name, value in spec.items() if name != "prefix"}
        self.late = None  # type: Optional[List[str]]
        self.lacks_log = False
        self.status, self.mark = wary.bytes_of(spec["status"]), str(spec["mark"])
        self.opens = wary.bytes_of(spec["log"]) if spec["log"] else None
        self.log = wary.bytes_of(log) if log else self.opens
        self.name = _named(spec["argv"], wary.bytes_of(spec["cwd"]))
        self.id = None  # type: Optional[Json]
        self._old = 0

    def make_room(self) -> None:
        """For all that is written at its start: the disk may be full by then."""
        folder = os.path.dirname(self.status)
        if self.opens is not None and _leads_nowhere(self.opens):
            raise wary.Refused(
                f"{wary.text_of(self.opens)} is no file that a log can be appended to"
            )
        if os.path.lexists(self.status):  # it would be read as this start's
            raise wary.Refused(f"{wary.text_of(self.status)} is there: a mark is used once")
        with wary.doing("write", folder):
            os.makedirs(folder, 0o755, exist_ok=True)
            wary.fill(self.base.at(self.file), b" " * len(self._text()) + ROOM, 0o600)
            wary.fill(self.status + b".new", ROOM)
            wary.fill(self.status + b".end", ROOM)

    def rehearse(
        self, files: List[Json], log: Optional[str], gone: List[int], back: Optional[bool] = None
    ) -> List[str]:
        """Refused: it would not start. `log` will be made anew, unless others than `gone` write it;
        then it may be its user's. `back`: of what runs now, whether it is to come back; if it is
        not, that it could not is only told."""
        why, self.lacks_log = rehearse.obstacle(self.spec, files)
        if not why or (self.lacks_log and log == self.spec["log"] and self._log_is_free(gone)):
            return []
        if back is not None:
            why = f"{NOT_AGAIN}: {why}"
        if back is not False:
            raise wary.Refused(why)
        return [why]

    def _log_is_free(self, gone: List[int]) -> bool:
        assert self.opens is not None
        with wary.MISSING:
            return not set(living.writers(self.opens)) - set(gone)
        return os.path.isdir(os.path.dirname(self.opens))

    def _text(self) -> bytes:
        argv = self.spec["argv"] if self.late is None else self.late
        return json.dumps(dict(self.spec, argv=argv)).encode("ascii")

    def start(self) -> None:
        """Refused: nothing was started. The file holds the environment's secrets for that time."""
        file = self.base.at(self.file)
        if self.log:
            with UNSEEN:
                self._old = os.stat(self.log).st_size
        try:
            with wary.doing("write", file):
                wary.fill(file, self._text(), 0o600)
            self._ask([os.fsencode(sys.executable), b"-I", SUPERVISE, file])
        finally:
            with wary.MISSING:
                os.unlink(file)

    def _ask(self, words: List[bytes]) -> None:
        words = self.prefix + words
        with wary.doing("run", words[0]):
            asked = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, cwd="/",
                stderr=subprocess.STDOUT, preexec_fn=_hear,  # noqa: PLW1509  we have one thread
            )  # fmt: skip
        said = _lines(asked)
        for line in said:
            if line.startswith("failed "):
                raise wary.Refused(line[len("failed ") :])
        with contextlib.suppress(subprocess.TimeoutExpired):
            asked.wait(1)
        end = time.monotonic() + (FAILED_S if asked.returncode else START_S)
        while not self._came():
            if time.monotonic() > end:
                told = f"{wary.text_of(words[0])} did not tell of a start"
                raise (wary.Refused if asked.returncode else Silent)(": ".join([told, *said[-1:]]))
            time.sleep(0.05)

    def _came(self) -> bool:
        """Whether the state file knows the trainer: nobody sees what is printed in tmux."""
        state = self._state()
        if state.get("failed"):
            raise wary.Refused(str(state["failed"]))
        if state.get("trainer"):
            self.id = dict(state["trainer"], mark=self.mark, log_from=self._old)
        return self.id is not None

    def _state(self) -> Json:
        with UNSEEN, open(self.status, "rb") as file:
            state = json.loads(file.read().decode())
            if state.get("mark") == self.mark:
                return dict(state)
        return {}

    def runs(self) -> bool:
        return self.id is not None and living.alive(self.id)

    def became(self, one: Optional[Json]) -> bool:
        """Whether that one lives, which stands for what was started from now on."""
        if one is None or not living.alive(one):
            return False
        self.id = dict(one, mark=self.mark)
        return True

    def left(self) -> List[int]:
        """What lives of all that was started; its supervisor leaves after the last of them."""
        self._note_begun_anew()
        if self.id is not None and living.alive(self.id):
            return [self.id["pid"]]
        above = self._state().get("supervisor")
        return living.marked(self.mark) or ([above["pid"]] if above and living.alive(above) else [])

    def _note_begun_anew(self) -> None:
        """Its own script may open its log with `>`: all that is in it then is of this start."""
        if self.log is None or self.log == self.opens:
            return  # what we open is appended to, and to look at a file may hang
        with UNSEEN:
            if os.stat(self.log).st_size < self._old:
                self._old = 0

    def elsewhere(
        self, files: List[bytes], ways: List[Any], since: Optional[int] = None
    ) -> List[int]:
        """Who was born since its start, or since then, is not of it, and runs one of these files in
        a Python, was started as it is or in one of these `ways`, words and directory, or writes its
        log: a server that was there before (tmux, a unit) was asked to start it, or somebody has
        done so."""
        since = self.id["start"] if since is None and self.id is not None else since
        if since is None:
            return []
        log = self.log if self.log is not None and os.path.exists(self.log) else None
        found = set(living.writers(log) if log is not None else ())
        own = [wary.bytes_of(word) for word in self.spec["argv"]], wary.bytes_of(self.spec["cwd"])
        found |= {
            pid
            for pid in living.pids()
            if living.started_as(pid) in (own, *ways) or living.script_of(pid) in files
        }
        return sorted(pid for pid in found if living.born_since(pid, since))

    def recorded(self) -> bool:
        """Whether what is recorded of its end is all that ever will be."""
        state = self._state()
        above = state.get("supervisor")
        return bool(state.get("ended_at")) or not (above and living.alive(above))

    def end(self, lives: bool = False) -> Tuple[Optional[int], Optional[str], str]:
        """Exit code, signal, and both as words. `lives`: what it started, its trainer most likely,
        lives on, whose end is nothing to wonder about yet, nor the last line of its log."""
        state = self._state()
        if state.get("failed"):
            return None, None, str(state["failed"])
        last = "" if lives else self._said_last()
        if state.get("signal"):
            told = f"{self.name} was ended by {state['signal']}"
            return None, state["signal"], told + (last if state["signal"] not in ASKED else "")
        if state.get("exit") is not None:
            told = f"{self.name} ended with exit code {state['exit']}"
            hidden = self._hidden() if state["exit"] == 0 and not lives else ""
            return state["exit"], None, f"{told}{hidden}{last}"
        return None, None, f"{self.name} ended, and how was not recorded"

    def log_size(self) -> Optional[int]:
        with UNSEEN:
            return os.stat(self.log).st_size if self.log is not None else None
        return None

    def _said_last(self) -> str:
        return aside.last_line(self.log, self._old) if self.log is not None else ""

    def _hidden(self) -> str:
        """A shell's 0 tells nothing of its trainer; what was logged last may."""
        name = os.path.basename(self.spec["argv"][0])
        if name not in SHELLS and not name.endswith(".sh"):
            return ""
        return ", its trainer's own end is not known"

    def said(self, pattern: Optional[str]) -> Optional[bool]:
        """Whether a line that was logged since the start matches; None: that took too long."""
        if pattern is None:
            return True
        if self.log is None:
            return False
        return aside.matches(wary.text_of(self.log), self._old, pattern)


def _named(argv: List[str], cwd: bytes) -> str:
    """What was started, without what it was told: `bash run.sh`. It need not be the trainer."""
    script = [word for word in argv[1:2] if os.path.isfile(os.path.join(cwd, wary.bytes_of(word)))]
    return " ".join(os.path.basename(word) for word in argv[:1] + script)


def _leads_nowhere(log: bytes) -> bool:
    """A pipe has no reader once the old run has ended, and to open it would wait for ever."""
    with UNSEEN:
        kind = os.stat(log).st_mode
        return not stat.S_ISREG(kind) and not stat.S_ISCHR(kind)
    return False


def _hear() -> None:
    for each in OWN:
        signal.signal(each, signal.SIG_DFL)


def _lines(asked: "subprocess.Popen[bytes]") -> List[str]:
    """What it printed, until it told of a start or closed its end; for so long as it may take."""
    assert asked.stdout is not None
    said, end = b"", time.monotonic() + START_S
    with asked.stdout as pipe:
        while not re.search(rb"^(started|failed) .*\n", said, re.MULTILINE):
            if not select.select([pipe], [], [], max(0.0, end - time.monotonic()))[0]:
                break
            some = os.read(pipe.fileno(), 4096)
            if not some:
                break
            said += some
    return said.decode("utf-8", "replace").splitlines()
