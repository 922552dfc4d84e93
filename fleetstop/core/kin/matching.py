"""Which process is the job, by what an interpreter really executes; never by a mere mention."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence

from fleetstop.core.inventory import Job, Match
from fleetstop.core.process import Process, ProcessTree

# with its ABI flags: python3.13t, python3.13td, pythonw; and Debian's python3-dbg
_PYTHON = re.compile(r"(python|pypy)[0-9.]*(td|[a-z])?(-dbg)?")
SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "fish", "busybox"})


# Programs that execute the script they are given, in their own process.
RUNNERS = frozenset(
    "cProfile profile pdb ipdb trace coverage debugpy memory_profiler mprof scalene viztracer"
    " pyinstrument kernprof line_profiler ipython ipython3 IPython".split()
)


class Executed:
    """What a Python command line runs: exactly one of `script` and `module`, or neither.

    `words` are its own arguments, what follows the script or module.
    """

    __slots__ = ("module", "script", "words")

    def __init__(
        self, script: str | None = None, module: str | None = None, words: Sequence[str] = ()
    ) -> None:
        self.script = script
        self.module = module
        self.words = tuple(words)


def base(word: str) -> str:
    return posixpath.basename(word).removeprefix("-")


def executed(argv: Sequence[str]) -> Executed:
    """Follows CPython's option grammar (Python/getopt.c): -W and -X take a value, -c and -m end it.

    A cluster like -uBm takes what follows the value letter, else the next word.
    """
    if not argv or not _PYTHON.fullmatch(base(argv[0])):
        return Executed()
    words = list(argv[1:])
    while words:
        word = words.pop(0)
        if word == "--" and words:
            word = words.pop(0)
            return Executed() if word == "-" else Executed(script=word, words=words)
        if word == "-" or not word.startswith("-"):
            return Executed() if word == "-" else Executed(script=word, words=words)
        if word.startswith("--"):
            # the one long option with a value of its own; it may not be written with '='
            if word == "--check-hash-based-pycs" and words:
                words.pop(0)
            continue
        for at, letter in enumerate(word[1:], start=2):
            if letter not in "cmWX":
                continue
            value = word[at:] or (words.pop(0) if words else "")
            if letter == "m":
                return Executed(module=value, words=words)
            if letter == "c":
                return Executed()
            break
    return Executed()


def records_the_end(process: Process) -> bool:
    """The supervisor of our own launch (remote/scripts/supervise.py): `python -I …/supervise.py
    SPEC`. It started a trainer and is no part of the job: it does nothing but record its end.
    Or what stands above that in a tmux pane or a unit, `python -I …/.fleetstop/…/stay.py SPEC`."""
    argv = process.argv or ()
    ran = executed(argv)
    ours = (ran.script or "").endswith("/supervise.py") or stands_for_it(process)
    return ours and len(ran.words) == 1 and "-I" in argv[1 : -len(ran.words) - 1]


def brings_it_up(process: Process) -> bool:
    """The activator of our own launch (remote/scripts/activate.py): `python -I
    …/.fleetstop/…/activate.py SPEC`. It waits for the job's end and starts it anew, and is no part
    of it, though its own words may well name it."""
    argv = process.argv or ()
    ran = executed(argv)
    ours = "/.fleetstop/" in (script := ran.script or "") and script.endswith("/activate.py")
    return ours and len(ran.words) in (1, 3) and "-I" in argv[1 : -len(ran.words) - 1]


def stands_for_it(process: Process) -> bool:
    """remote/scripts/stay.py: the pane or the unit lives as long as this does."""
    script = executed(process.argv or ()).script or ""
    return "/.fleetstop/" in script and script.endswith("/stay.py")


def script_of(process: Process) -> str | None:
    """The script a process executes: by Python's grammar, or run directly by its `#!` line.

    execve(2) keeps the script's own name as comm when the kernel follows `#!`, and puts the
    interpreter, perhaps one argument, and the script into argv.
    """
    argv = process.argv or ()
    ran = executed(argv)
    if (ran.module or base(ran.script or "")) in RUNNERS:
        return next((word for word in ran.words if word.endswith((".py", ".pyw"))), ran.script)
    if ran.script is not None:
        return ran.script
    for word in argv[1:3]:
        if not word.startswith("-") and base(word)[:15] == process.comm != base(argv[0])[:15]:
            return word
    return None


def _same_script(wanted: str, script: str, cwd: str | None) -> bool:
    if "/" not in wanted:
        return posixpath.basename(script) == wanted
    # the directory may have been replaced under the running job: a redeploy does just that
    here = (cwd or "").removesuffix(" (deleted)")
    full = posixpath.join(here, script)
    full, wanted = posixpath.normpath(full), posixpath.normpath(wanted)
    return full == wanted if wanted.startswith("/") else ("/" + full).endswith("/" + wanted)


def matches(match: Match, process: Process, *, listed: frozenset[int] = frozenset()) -> bool:
    """Whether this process is the job. `listed`: the container's own PIDs that pgrep,
    or a pid file, named (already numbers of the container)."""
    argv = process.argv or ()
    if process.kernel_thread or process.zombie:
        return False
    if records_the_end(process) or brings_it_up(process):
        return False
    if match.script is not None:
        script, seen = script_of(process), process.detail
        # where it was started tells where a relative path led, though it has moved since
        places = {seen.cwd, seen.started_in} if seen else {None}
        return script is not None and any(_same_script(match.script, script, p) for p in places)
    if match.module is not None:
        return executed(argv).module == match.module
    if match.exe is not None:
        return bool(argv) and (argv[0] == match.exe or base(argv[0]) == match.exe)
    if match.pid is not None:
        return process.pid == match.pid
    if match.pidfile is not None or match.tmux is not None:
        return process.pid in listed
    if match.pgrep is not None:
        return process.pid in listed and not is_shell(process)
    if match.unit is not None:
        unit = match.unit if "." in match.unit else match.unit + ".service"
        return any(f"/{unit}/" in f"{group}/" for group in process.cgroups)
    return match.gpu and bool(process.gpus)


def by_words_alone(job: Job | None) -> bool:
    """Its words alone, or its program's name, make a process the job: it may be anybody's."""
    return job is not None and (job.match.pgrep is not None or job.match.exe is not None)


def is_shell(process: Process) -> bool:
    """A shell, whatever it runs: its text may name anything."""
    argv = process.argv or ()
    name = base(argv[0]) if argv else process.comm
    return name in SHELLS


def mentions(match: Match, process: Process) -> bool:
    """The script or module stands among its arguments: a launcher between two lives does that."""
    wanted = match.script or match.module
    if wanted is None:
        return False
    name = posixpath.basename(wanted)
    return any(
        posixpath.basename(word) == name or word == wanted for word in (process.argv or ())[1:]
    )


def needs_detail(match: Match, tree: ProcessTree, listed: frozenset[int]) -> set[int]:
    """Host PIDs of which a closer look is worth it: possible matches and all around them."""
    if match.gpu:
        return set(tree.processes)
    loose = match
    if match.script is not None:
        loose = Match(script=posixpath.basename(match.script))
    hits = {p.id.pid for p in tree.processes.values() if matches(loose, p, listed=listed)}
    around = set(hits)
    for pid in hits:
        around |= {each.id.pid for each in tree.below(pid)}
        around |= {each.id.pid for each in tree.above(pid)}
    # pipe partners (tee) are children of a shell above; an init's children are everybody
    for pid in set(around):
        here = tree.processes[pid]
        if 1 not in (pid, here.pid):
            around |= {each.id.pid for each in tree.children(pid)}
    return around
