"""Brings one trainer's new version up once the old one is gone, and the old one back if need be.

    PYTHON -I BASE/activate.py SPEC.json
    PYTHON -I BASE/activate.py --clean BASE RUN

Runs where the trainer runs, on the job's own interpreter (3.6 or later), detached, and sends no
signal, ever. course.py, client.py, living.py, record.py, relief.py, swap.py, trainer.py,
rehearse.py, aside.py, saves.py, matches.py, wary.py and supervise.py have to lie beside it.
SPEC.json, which holds secrets, is removed as soon as it is read:

    schema 1, run, base, dest    run is a name; base = BASE, which only we may write to; dest holds
                                 every file
    release, before              names or null: what is brought up; what is kept of the one before
    stays                       where no files come, the kept release that lies there; may lack
    as_kept, ran_as_kept        false: what is launched, or ran before, was not started as the
                                manifest tells of the release: how it did is not noted of that
    before_manifest              goes into releases/BEFORE/manifest.json where there is none
    before_lies                  false: BEFORE is kept, and is the way back, but what lies there is
                                 another release, or a mixture; that is not kept
    files                        [{"path", "staged", "sha256", "size", "mode", "uid", "gid"}], the
                                 paths absolute, without symbolic links
    gone                         [{"pid", "start"}]: gone before anything is replaced
    launch, launch_old           what supervise.py reads, or null: nothing is started. Each has a
                                 mark and status of its own, never used before; besides it may have
                                 "prefix", words before the command, which has to return at once
    log                          rotated unless somebody is seen to write it, or null; the new one
                                 is its user's, where he could not write the old one
    health                       {"within_s", "log_matches": a regular expression or null}
    roll_back                    whether the old version comes back by itself
    patience_s, stale_s, keep    numbers; so many releases are kept
    resume                       may be left out, or null: what a launch goes on from is of no
                                 interest. {"known": the newest complete checkpoint or null, its
                                 "directory", "rules" as saves.py reads them, "words" in which
                                 "placeholder" stands for it ("words_old": other ones of
                                 launch_old; may lack), "launch" and "launch_old": [words before
                                 them, words behind], or null: it is started as it is}
    reads                        {"launch", "launch_old": the file in which its log is looked
                                 at, if that is not what its output goes to}; may lack
    resumes                      {"launch", "launch_old": words to resume that it knows}; may lack
    by_script                    false: the script alone does not tell the job from others; may lack
    succeeds                     may lack, or null: a run whose activator waits here, armed, for a
                                 client that is gone. Once all is prepared its place is taken, and
                                 this one is armed from then on

One line on stdout: `waiting PID START` (exit 0), or `failed SENTENCE` (exit 1), and then all is as
it was. It hears the client by two files in BASE: `order`, one line `RUN WORD`, replaced by rename,
and `beat`, touched every 5 s. Behind WORD may stand `alone`: the client leaves, and is not waited
for; and why, in words. While it waits: `armed` (a signal may be sent from now on), `go` (the
old run is gone), `cancel`, `yield` (from whoever takes its place). Once launched: `done`
(healthy; `done PID START` names who is, where what was started has ended), `unwell` (it is not, and
is about to be ended), `back` (what was launched is ended by now), `keep` (unhealthy, and left as it
is), `leave` (somebody stops the job, and nothing is to come after it). A client that is silent for
stale_s has left: if it never armed, nothing is done; armed, it goes on as soon as `gone` are gone,
for which it waits patience_s; launched, it judges by `health`, and leaves running what lives. It
goes on from the newest complete checkpoint then, which it looks for itself; where it cannot, from
the known one. What it was told is unwell it never calls healthy: it waits for its end for up to two
minutes more, and leaves it as unhealthy.

BASE/state.json, replaced by rename, 0644, without secrets:

    {"schema": 1, "run", "release", "before", "step", "files": "old" | "mixed" | "new",
     "activator": {"pid", "start"}, "trainer": {"pid", "start", "mark", "log_from"} or null,
     "exit", "signal", "reason", "findings": [...], "at", "order", "running", "log_rotated",
     "log_end": so long the log was when the old version was to be started again,
     "confirmed_by": "client" | "activator" | null, "checkpoint": what the launch goes on from,
     "resumes": the words to resume that what runs is known to know, or null,
     "alone": the client has left, "gone": as in the spec, "wish", "ended_at"}

Steps: waiting, swapping, swapped, launching, launched, rolling_back; and to end with: cancelled,
failed, swapped (nothing was to be started), healthy, unconfirmed, unhealthy, rolled_back. It has
ended once `ended_at` is set; where it is null and no such activator lives, it was killed in that
step. `files` tells what lies in dest, `trainer` and `running` (a release) what runs, `exit` and
`signal` how the new version ended. `order` is the last word it took.

--clean removes what a dead run left lying about, never a release: `cleaned` or `failed SENTENCE`.
"""

import contextlib
import importlib.util
import json
import os
import re
import signal
import sys
from typing import TYPE_CHECKING, Any, Dict, List


def _beside(name: str) -> Any:
    """-I leaves this directory out of sys.path, and it stays out: only what is named is loaded."""
    sys.dont_write_bytecode = True
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), name + ".py")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


if TYPE_CHECKING:
    from fleetstop.remote.scripts import course, living, swap, trainer, wary
else:
    _FIRST = "wary supervise saves matches aside client living record rehearse trainer swap"
    _ALL = {name: _beside(name) for name in [*_FIRST.split(), "relief", "course"]}
    wary, living, trainer, swap, course = map(_ALL.get, "wary living trainer swap course".split())

Json = Dict[str, Any]
UNSEEN = contextlib.suppress(OSError, wary.Refused)
KINDS = {
    str: "run base dest",
    list: "files gone",
    dict: "health",
    bool: "roll_back",
    (int, float): "patience_s stale_s keep",
    (str, type(None)): "release before log",
    (dict, type(None)): "launch launch_old before_manifest",
}  # type: Dict[Any, str]


def main(words: List[str]) -> int:
    spec = {}  # type: Json
    try:
        if len(words) == 3 and words[0] == "--clean":
            line = _clean(wary.Top(os.fsencode(words[1])), words[2])
        elif len(words) == 1:
            spec = _read_spec(words[0])
            _check_spec(spec, words[0])
            line = _begin(spec)
        else:
            raise wary.Refused("usage: python -I activate.py SPEC.json | --clean BASE RUN")
    except (OSError, wary.Refused) as error:
        line = f"failed {wary.told(error)}"
    if line.startswith("failed ") and spec:
        with UNSEEN:
            base = wary.Top(wary.bytes_of(str(spec.get("base"))))
            swap.Litter.of_dead(base, spec["run"]).remove()
    os.write(1, " ".join(line.split()).encode("utf-8", "backslashreplace") + b"\n")
    return 1 if line.startswith("failed ") else 0


def _clean(base: "wary.Top", run: str) -> str:
    litter, state = swap.Litter.of_dead(base, run), base.said(b"state.json")
    lives = bool(state) and not state["ended_at"] and living.alive(state["activator"])
    known = [litter.told["activator"]]
    if lives and state["run"] == run:
        known.append(state["activator"])
    for one in filter(None, known):
        if living.alive(one):
            raise wary.Refused(f"run {run} is at it still: its activator is PID {one['pid']}")
    with wary.doing("clean", base.path):
        litter.remove()
        if not lives:
            wary.unlink(base.at(b"state.json.new"))
    return "cleaned"


def _read_spec(path: str) -> Json:
    try:
        with open(path, "rb") as file:
            os.unlink(path)
            spec = json.loads(file.read().decode())
    except (OSError, ValueError) as error:
        told = getattr(error, "strerror", None) or error
        raise wary.Refused(f"cannot read {path}: {told}") from error
    if not isinstance(spec, dict) or not isinstance(spec.get("run"), str):
        raise wary.Refused(f"{path} names no run")
    return spec


def _check_spec(spec: Json, path: str) -> None:
    for kind, names in KINDS.items():
        for name in names.split():
            if not isinstance(spec.get(name, main), kind):
                raise wary.Refused(f"{path} does not tell {name} as it should")
    try:
        re.compile(spec["health"]["log_matches"] or "")
    except re.error as error:
        raise wary.Refused(f"log_matches is no regular expression: {error}") from error


def _begin(spec: Json) -> str:
    """Leaves the activator behind in a session of its own; what it reports."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    reading, writing = os.pipe()
    middle = os.fork()
    if middle == 0:
        os.close(reading)
        with contextlib.suppress(Exception):  # who waits for a word hears that there is none
            os.setsid()
            if os.fork() == 0:
                os._exit(_go(spec, writing))
        os._exit(0)
    os.close(writing)
    os.waitpid(middle, 0)
    with os.fdopen(reading, "rb") as pipe:
        return pipe.read().decode("utf-8", "replace") or "failed it was ended before it could tell"


def _go(spec: Json, report: int) -> int:
    run = None
    try:
        _settle(report)
        run = _prepared(spec)
        line = run.waiting()
    except Exception as error:
        told = "" if isinstance(error, wary.Refused) else type(error).__name__ + ": "
        line = f"failed {told}{wary.told(error)}"
    with contextlib.suppress(BrokenPipeError):  # who asked is gone; the state file tells
        os.write(report, line.encode("utf-8", "backslashreplace"))
    os.close(report)
    if run is None:
        return 1
    run.go_on()
    return 0


def _prepared(spec: Json) -> "course.Activation":
    run = course.Activation(spec)
    run.prepare()
    return run


def _settle(report: int) -> None:
    """Holds nothing of whoever started it: no descriptor, no directory, no terminal."""
    for each in trainer.OWN:
        signal.signal(each, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    for fd in [int(name) for name in os.listdir("/proc/self/fd")]:
        if fd > 2 and fd != report:
            os.closerange(fd, fd + 1)  # the listing's own is closed by now, which is no error here
    os.chdir("/")
    os.umask(0o022)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
