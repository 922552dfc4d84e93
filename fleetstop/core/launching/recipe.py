"""What a job is to be started with: its inventory's `launch`, how it was started, what was typed.

Starts nothing and asks nothing: who a user is, and which checkpoint is the newest, it is told.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from fleetstop.core import redact
from fleetstop.core.inventory import Launch
from fleetstop.core.launching import handing
from fleetstop.core.launching.ears import Behind
from fleetstop.core.launching.origin import Origin
from fleetstop.core.launching.output import Wrote, opened, read_in
from fleetstop.core.launching.resumed import CHECKPOINT, asks_for_one, understood, without
from fleetstop.core.launching.spec import LaunchSpec
from fleetstop.core.launching.surroundings import NAME, Person, handed_on, login_like, own
from fleetstop.core.spelling import shown as quoted
from fleetstop.errors import BadConfig, BadUsage, Refused

_NUMBER = re.compile(r"[0-9]{1,10}")


class Known(Struct, frozen=True):
    """What is known of the place. `origin`: how the job was started that runs, or ran last.

    `person`: who it is to run as, the answer to `whom`. `login`: what /etc/environment and
    /etc/default/locale set there. `checkpoint`: the newest complete one, an absolute path.
    `resume`: the words to resume with which that job was launched, as the inventory had them.
    `own_log`: it opens the inventory's log by itself; `wrote`: what it is seen to write so.
    `behind`: it is put into the background by what starts it.
    """

    origin: Origin | None = None
    person: Person | None = None
    login: dict[str, str] = {}
    checkpoint: str | None = None
    resume: tuple[str, ...] = ()
    own_log: bool = False
    wrote: Wrote | None = None
    behind: Behind | None = None
    inherited: dict[str, tuple[int, int]] = {}


class Extra(Struct, frozen=True):
    """What was typed: words after `--`, `--env K=V`, and whether it is to go on from its newest
    checkpoint."""

    words: tuple[str, ...] = ()
    env: dict[str, str] = {}
    resume: bool = False


class Recipe(Struct, frozen=True):
    """`notes`: what a person should know of it, a sentence each. `resume`: the words with which it
    goes on from a checkpoint, as they are written; `added`: as they stand in its words, none where
    there is none to go on from; `around`: the words before those and behind them. `reads`: in
    which file its log is, `spec.log` or one that it opens by itself; None: nowhere."""

    spec: LaunchSpec
    notes: tuple[str, ...] = ()
    resume: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    around: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    reads: str | None = None


class ShownSpec(Struct, frozen=True):
    """A spec for screens and records: no secret in it. `env`: name -> text, `***` for a secret."""

    command: str
    cwd: str
    user: str
    env: dict[str, str]
    secrets: tuple[str, ...]
    log: str | None
    rest: tuple[str, ...]


def whom(launch: Launch | None, origin: Origin | None, ours: Origin | None = None) -> str:
    """Of whom `user` is to be asked in the place: a name, or a number. `ours`: our own shell, whose
    user it is where nobody says another: root's mostly, on a plain host the login's."""
    if launch is not None and launch.user is not None:
        return launch.user
    known = [each.uid for each in (origin, ours) if each is not None and each.uid is not None]
    return str(known[0]) if known else "0"


def recipe(
    launch: Launch | None,
    known: Known,
    extra: Extra,
    *,
    log: str | None,
    mark: str,
    status: str,
) -> Recipe:
    """Raises Refused where nothing says how it is started, resuming has nothing to go on from, or
    what is added would not reach it; BadConfig where the inventory's user is not known there."""
    words = launch.resume if launch is not None else ()
    added = _resume_words(words, known) if extra.resume else ()
    return _recipe(launch, known, extra, words, added, log, mark, status)


def as_it_ran(
    launch: Launch | None,
    known: Known,
    extra: Extra,
    *,
    log: str | None,
    mark: str,
    status: str,
) -> Recipe:
    """Exactly as `known.origin` was started, whatever the inventory says: what comes back. Only
    where that could not be read, or nothing ran, as `recipe` has it. With the checkpoint that is
    the newest by now, not the one that it went on from then, if it is known to know such words."""
    origin, said = known.origin, launch.resume if launch is not None else ()
    if origin is None or not origin.argv:
        bare = msgspec.structs.replace(extra, resume=extra.resume and resumes(said, known))
        return recipe(launch, known, bare, log=log, mark=mark, status=status)
    notes: list[str] = []
    if origin.env is None:
        origin = msgspec.structs.replace(origin, env=_env(launch, known, notes))
    # its user is that of the process, not the one that the inventory asks for
    person = known.person if origin.uid is None else None
    known = msgspec.structs.replace(known, origin=origin, person=person)
    words = understood(origin.argv, known.resume, said)
    words = () if handing.lost(origin.argv, words) else words
    again = _resume_words(words, known) if extra.resume and resumes(words, known) else ()
    old = without(origin.argv, words if again else ())
    known = msgspec.structs.replace(known, origin=msgspec.structs.replace(origin, argv=old))
    made = _recipe(None, known, extra, words, again, log, mark, status)
    return msgspec.structs.replace(made, notes=(*notes, *made.notes))


def _recipe(
    launch: Launch | None,
    known: Known,
    extra: Extra,
    words: tuple[str, ...],
    added: tuple[str, ...],
    log: str | None,
    mark: str,
    status: str,
) -> Recipe:
    origin = known.origin
    had = origin.log if origin is not None else None
    notes: list[str] = []
    run = _run(launch, origin, bool(added))
    handing.check(run, words, extra.words)
    argv = (*run, *added, *extra.words)
    cwd = _cwd(launch, known, notes)
    spec = LaunchSpec(
        argv=argv,
        cwd=cwd,
        # a relative script is found by it, should the trainer change its directory
        env=_env(launch, known, notes) | {"PWD": cwd} | extra.env,
        log=opened(log, argv, had, known.own_log),
        mark=mark,
        status=status,
        **_person(launch, known),
        umask=origin.umask if origin is not None and origin.umask is not None else 0o022,
        nice=origin.nice if origin is not None and origin.nice is not None else 0,
        limits={
            name: pair
            for name, pair in (origin.limits if origin is not None else {}).items()
            if known.inherited.get(name) != pair
        },
    )
    notes += origin.unseen if origin is not None and launch is None else ()
    said = launch is not None and bool(launch.run)
    head = run if said else without(run, words)
    reads = read_in(log, run, spec.log, known.wrote, words)
    return Recipe(spec, tuple(notes), words, added, (head, extra.words), reads)


def _run(launch: Launch | None, origin: Origin | None, resumes: bool) -> tuple[str, ...]:
    if launch is not None and launch.run:
        return launch.run
    if origin is not None and origin.argv:
        return without(origin.argv, launch.resume if launch is not None and resumes else ())
    lacks = (
        "its `launch:` in the inventory has no `run`"
        if launch is not None
        else ("it has no `launch:` in the inventory")
    )
    raise Refused(
        f"nothing says how this job is started: {lacks}, and none runs",
        hint="say it there: launch: {run: [/root/run.sh], cwd: /root}",
    )


def resumes(words: Sequence[str], known: Known) -> bool:
    """Whether there are such words, and the checkpoint that they ask for."""
    return bool(words) and (known.checkpoint is not None or not asks_for_one(words))


def _resume_words(words: tuple[str, ...], known: Known) -> tuple[str, ...]:
    """What is added so that it goes on from its newest checkpoint. Raises Refused where nothing
    says how, or there is none."""
    if not words:
        raise Refused(
            "nothing says how this job resumes: the inventory has no `launch: resume:` for it",
            hint='say it there: resume: ["--resume", "{checkpoint}"]',
        )
    if not resumes(words, known):
        raise Refused(
            "there is no complete checkpoint to resume from",
            hint="without it the job starts from the beginning: leave --resume out",
        )
    return tuple(word.replace(CHECKPOINT, known.checkpoint or "") for word in words)


def _cwd(launch: Launch | None, known: Known, notes: list[str]) -> str:
    if launch is not None and launch.cwd is not None:
        return launch.cwd
    origin = known.origin
    if origin is not None and origin.cwd is not None and posixpath.isabs(origin.cwd):
        return origin.cwd
    home = known.person.home if known.person is not None else "/"
    notes.append(f"nothing says in which directory it starts: {home}")
    return home


def _env(launch: Launch | None, known: Known, notes: list[str]) -> dict[str, str]:
    origin = known.origin
    had = origin.env if origin is not None else None
    if launch is None and had is not None:
        return handed_on(had)
    base = login_like(known.person, known.login, origin)
    if launch is not None and not launch.env and had is not None:
        return base | given(had, known)
    said = launch.env if launch is not None else {}
    # a stanza that adopt wrote names no secret: the running process still has it
    secrets = {
        name: value
        for name, value in handed_on(had or {}).items()
        if name not in said and name not in base and redact.secret(name, value)
    }
    if secrets:
        names = ", ".join(sorted(secrets))
        # with a colon behind such a name the next word would be masked
        notes.append(f"{names} as the running process has it, since the inventory holds no secrets")
    if launch is None:
        notes.append("its environment could not be read: it gets a clean login's")
    return base | secrets | said


def given(had: Mapping[str, str], known: Known) -> dict[str, str]:
    """What the process that runs was given beyond a login; another user's home is another."""
    kept = own(had, known.login, known.person)
    uid, person = (known.origin.uid if known.origin is not None else None), known.person
    other = person is not None and uid is not None and uid != person.uid
    return {n: value for n, value in kept.items() if not (other and n in _OF_A_USER)}


_OF_A_USER = ("HOME", "USER", "LOGNAME")


def _person(launch: Launch | None, known: Known) -> dict[str, Any]:
    """uid, gid and groups: the old run's own where it is the same user, else the user's."""
    origin, person = known.origin, known.person
    asked = launch.user if launch is not None else None
    asked = "0" if asked == "root" and person is None else asked
    if asked is not None and person is None and not _NUMBER.fullmatch(asked):
        raise BadConfig(
            f"launch: user: there is no user {quoted(asked)} in the container",
            hint="`getent passwd` there lists them; a number works too",
        )
    uid = person.uid if person is not None else None
    if asked is not None and uid is None:
        uid = int(asked)
    if uid is None and origin is not None:
        uid = origin.uid
    if origin is not None and origin.uid is not None and uid in (None, origin.uid):
        gid = origin.gid if origin.gid is not None else origin.uid
        return {"uid": origin.uid, "gid": gid, "groups": origin.groups}
    if person is not None:
        return {"uid": person.uid, "gid": person.gid, "groups": person.groups}
    return {"uid": uid or 0, "gid": uid or 0, "groups": ()}


def alike(one: LaunchSpec, other: LaunchSpec) -> bool:
    """The same start but for the mark: if the one comes to nothing, so does the other."""
    names = [n for n in LaunchSpec.__struct_fields__ if n not in ("mark", "status")]
    return all(getattr(one, name) == getattr(other, name) for name in names)


def parse_env(pairs: Sequence[str]) -> dict[str, str]:
    """`--env K=V` words; raises BadUsage, which never quotes a value."""
    found: dict[str, str] = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not NAME.fullmatch(name):
            raise BadUsage(f"--env {quoted(name)} is not the name of an environment variable")
        if not sign:
            raise BadUsage(f"--env {name}: write {name}=VALUE")
        if name.startswith("FLEETSTOP_"):
            raise BadUsage(f"--env {name}: names that begin with FLEETSTOP_ are our own")
        found[name] = value
    return found


def shown(spec: LaunchSpec, person: Person | None = None) -> ShownSpec:
    """Harmless text; secrets are named and masked."""
    secrets = tuple(sorted(n for n, value in spec.env.items() if redact.secret(n, value)))
    return ShownSpec(
        command=redact.command(spec.argv),
        cwd=redact.text(spec.cwd),
        user=person.name if person is not None and person.uid == spec.uid else str(spec.uid),
        env={
            redact.safe(name): redact.MASK if name in secrets else redact.text(value, 200)
            for name, value in sorted(spec.env.items())
        },
        secrets=tuple(redact.safe(name) for name in secrets),
        log=redact.text(spec.log) if spec.log is not None else None,
        rest=unusual(spec.groups, spec.umask, spec.nice, spec.limits),
    )


def unusual(
    groups: Sequence[int],
    umask: int | None,
    nice: int | None,
    limits: Mapping[str, tuple[int, int]],
) -> tuple[str, ...]:
    """Groups, umask, niceness and the limits people set by hand, each in words, where they are not
    what a new process has anyway."""
    told = [f"groups {', '.join(map(str, groups))}"] if groups else []
    told += [f"umask {umask:03o}"] if umask not in (None, 0o022) else []
    told += [f"nice {nice}"] if nice else []
    for name, usual in USUAL_LIMITS.items():
        soft = limits[name][0] if name in limits else usual
        if soft != usual:
            told.append(f"limit {name} {'unlimited' if soft < 0 else soft}")
    return tuple(told)


# soft limits of a fresh login (Linux include/asm-generic/resource.h)
USUAL_LIMITS = {"NOFILE": 1024, "STACK": 8 * 2**20, "CORE": 0, "AS": -1}
