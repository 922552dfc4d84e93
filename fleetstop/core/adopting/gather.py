"""What is to be written of a job that runs, from what was seen of it. Asks nothing."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

from fleetstop.core import redact
from fleetstop.core.above.supervisors import Above
from fleetstop.core.adopting.stanza import Stanza
from fleetstop.core.inventory import Job, Launch, Match
from fleetstop.core.kin.family import Family, find
from fleetstop.core.kin.matching import RUNNERS, SHELLS, base, executed, script_of
from fleetstop.core.launching.interpreter import OWN, is_python
from fleetstop.core.launching.origin import Origin
from fleetstop.core.launching.recipe import unusual
from fleetstop.core.launching.surroundings import NAME, Person, own
from fleetstop.core.process import Process, ProcessTree

_SAVES_TO = re.compile(
    r"--?[\w.\-]*(?:check[\-_]?points?|ckpts?|output|save)[\w.\-]*(?:[\-_]?(?:dir|path|folder|root))?",
    re.IGNORECASE,
)
_INTERPRETER = re.compile(r"(python|pypy|perl|ruby|node|java|julia|Rscript)[0-9.]*\w?")

# what stands beside a job and is none: by its name anybody's would be found
_NO_NAMES = SHELLS | frozenset(
    "tee cat tail head grep sed awk sleep less more vi vim nano emacs top htop nvtop nvidia-smi"
    " watch tmux screen sshd rsync scp tar busybox".split()
)


class Facts(Struct, frozen=True):
    """What was seen. `head` is the job's outermost process, `trainer` the first trainer, both as
    they were started; `cwd` where the head was started; `script` the trainer's, absolute.

    `checkpoints`: a directory in which checkpoints lie that is the job's. `gpus` None: unseen.
    `login`: see launching.surroundings. `ranks`: how many trainers. `heard`: of INT and TERM, what
    every trainer hears.
    """

    match: Match
    head: Origin
    trainer: Origin
    cwd: str | None
    script: str | None = None
    heard: tuple[str, ...] = ()
    tee: str | None = None
    checkpoints: str | None = None
    gpus: tuple[int, ...] | None = None
    person: Person | None = None
    login: dict[str, str] = {}
    owners: tuple[Above, ...] = ()
    ranks: int = 1


class Gathered(Struct, frozen=True):
    """The stanza and what a person should know of it; `secrets`: what is not written."""

    stanza: Stanza
    secrets: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def gather(facts: Facts) -> Gathered:
    notes: list[str] = []
    launch, secrets = _launch(facts, notes)
    stanza = Stanza(
        match=facts.match,
        stop_signal=_stop_signal(facts, notes),
        log=_log(facts, notes),
        checkpoints=_path(facts.checkpoints),
        gpus=facts.gpus or None,
        launch=launch,
        dest=_path(posixpath.dirname(facts.script)) if facts.script is not None else None,
    )
    if facts.gpus is None:
        notes.append("gpus: nvidia-smi gave no answer; which it holds is not known")
    notes += [f"{_called(each)} above it {each.will}: let that start it" for each in facts.owners]
    notes += _unseen(facts)
    return Gathered(stanza, secrets, tuple(map(redact.text, notes)))


def _stop_signal(facts: Facts, notes: list[str]) -> str | None:
    if len(facts.heard) == 1:
        return facts.heard[0]
    if facts.heard:
        whose = f" ({OWN})" if any(map(is_python, facts.trainer.argv[:1])) else ""
        notes.append(f"stop_signal: it hears both INT and TERM; say which one makes it save{whose}")
    else:
        notes.append(
            "stop_signal: it hears neither INT nor TERM now, so nothing tells which one saves; "
            "a job that fleetstop launches can hear both"
        )
    return None


def _log(facts: Facts, notes: list[str]) -> str | None:
    out, err = facts.trainer.streams.get(1), facts.trainer.streams.get(2)
    found = facts.trainer.log or facts.tee or facts.head.log
    if facts.ranks > 1 and facts.head.log is not None and found != facts.head.log:
        # a launcher gives each rank a file of its own, in a directory of that one run
        notes.append(f"log: the first of its {facts.ranks} trainers writes to {found}")
        return _path(facts.head.log)
    if found is None:
        where = redact.text(out.target, 100) if out is not None else "a place that was not seen"
        where = "a pipe" if where.startswith("pipe:") else where
        notes.append(f"log: its output goes to {where}, which is no file")
    elif out and err and out.file and err.file and out.file != err.file:
        notes.append(f"log: its stderr goes to {err.file}")
    if found is not None and _path(found) is None:
        notes.append("log: its path is no text that an inventory can hold")
    return _path(found)


def _launch(facts: Facts, notes: list[str]) -> tuple[Launch | None, tuple[str, ...]]:
    """None where it could not be started by what may be written."""
    argv, cwd = facts.head.argv, _path(facts.cwd)
    secrets: tuple[str, ...] = ()
    env: dict[str, str] = {}
    if facts.head.env is not None:
        given = own(facts.head.env, facts.login, facts.person)
        secrets = tuple(sorted(name for name, value in given.items() if redact.secret(name, value)))
        plain = {name: value for name, value in sorted(given.items()) if name not in secrets}
        env = {name: v for name, v in plain.items() if NAME.fullmatch(name) and _is_text(v)}
        if lost := [redact.safe(name, 60) for name in plain if name not in env]:
            notes.append(f"env: {', '.join(lost)}: no text that an inventory can hold; not written")
    if secrets:
        names = ", ".join(secrets)
        notes.append(f"env: {names}: secrets, not written; a restart takes them from the process")
    if not argv or not all(map(_is_text, argv)) or not argv[0].strip():
        notes.append("launch: its command line is no text that an inventory can hold")
        return None, secrets
    if redact.holds_secret(argv):
        notes.append(
            "launch: its command line holds a secret, which is never written; it is left out "
            "(give the secret by the environment, and write launch: by hand)"
        )
        return None, secrets
    return Launch(run=argv, cwd=cwd, env=env, user=_user(facts)), secrets


def _user(facts: Facts) -> str | None:
    if facts.person is not None:
        return facts.person.name
    if facts.head.uid == 0:
        return "root"
    return str(facts.head.uid) if facts.head.uid is not None else None


def _unseen(facts: Facts) -> list[str]:
    """What no key of an inventory says, and what could not be seen."""
    head = facts.head
    groups = facts.person.groups if facts.person is not None else ()
    extra = tuple(each for each in head.groups if each not in (*groups, head.gid))
    rest = unusual(extra, head.umask, head.nice, head.limits)
    told = list(dict.fromkeys((*head.unseen, *facts.trainer.unseen)))
    pwd = (head.env or {}).get("PWD")
    if pwd and head.cwd and pwd != head.cwd:
        told.append(f"it was started in {pwd} and works in {head.cwd}; written is {facts.cwd}")
    if rest:
        said = "not in an inventory; a restart takes them from the running process"
        told.append(f"{', '.join(rest)}: {said}")
    return told


def _called(each: Above) -> str:
    return each.name or (redact.brief(each.argv) if each.argv else each.kind)


def _path(path: str | None) -> str | None:
    good = path is not None and path.startswith("/") and _is_text(path) and path.isprintable()
    return path if good else None


def _is_text(word: str) -> bool:
    return not any("\ud800" <= each <= "\udfff" or each == "\0" for each in word)


def candidates(trainer: Process, script: str | None) -> tuple[Match, ...]:
    """Ways to recognise it, the shortest first; `script`: the same, absolute where known. A name
    that any program of the kind bears (`python3`, `bash`) is none."""
    argv = trainer.argv or ()
    ran = executed(argv)
    found: list[Match] = []
    if ran.module is not None and ran.module not in RUNNERS:
        found.append(Match(module=ran.module))
    elif named := script or script_of(trainer):
        found += [Match(script=base(named)), Match(script=named)]
    elif argv and not _INTERPRETER.fullmatch(base(argv[0])) and base(argv[0]) not in _NO_NAMES:
        found += [Match(exe=base(argv[0])), Match(exe=argv[0])]
    return tuple(dict.fromkeys(each for each in found if _nameable(each)))


def _nameable(match: Match) -> bool:
    said = match.script or match.module or match.exe or ""
    return bool(said.strip()) and said.isprintable() and _is_text(said)


def told_apart(
    tree: ProcessTree, family: Family, matches: Iterable[Match], gpu_pids: frozenset[int] | None
) -> tuple[Match, Family] | None:
    """The first match that finds this one family, or the one that it is a part of (a worker's PID
    was given, or one rank's), and nothing else."""
    wanted = {kin.id for kin in family.trainers}
    for match in matches:
        found = find(tree, match, None, gpu_pids=gpu_pids)
        if found.unclear is not None or len(found.families) != 1:
            continue
        if wanted <= found.families[0].ids and found.families[0].trainers:
            return match, found.families[0]
    return None


def already(tree: ProcessTree, family: Family, known: Iterable[Job]) -> str | None:
    """The job of the inventory that finds it as it is, by what it executes or its unit."""
    trainers = {kin.id for kin in family.trainers}
    for job in known:
        found = find(tree, job.match, job)
        if any(trainers & each.ids for each in found.families):
            return job.name
    return None


def saving_places(argv: Sequence[str], cwd: str | None, written: Iterable[str]) -> tuple[str, ...]:
    """Directories in which its checkpoints may lie: what options like --output-dir say, then those
    of files it has open for writing."""
    found: list[str] = []
    for word, after in zip(argv, [*argv[1:], ""], strict=True):
        option, sign, value = word.partition("=")
        if not _SAVES_TO.fullmatch(option):
            continue
        value = value if sign else after
        if value and not value.startswith("-") and (value.startswith("/") or cwd):
            found.append(posixpath.normpath(posixpath.join(cwd or "/", value)))
    found += [posixpath.dirname(each) for each in written]
    return tuple(each for each in dict.fromkeys(found) if each not in ("/", "") and _path(each))
