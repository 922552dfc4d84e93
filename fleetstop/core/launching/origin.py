"""How a running process was started, from what `origin` of the boot script said; asks nothing.

Sources: proc(5), user_namespaces(7), getrlimit(2). Text that is no UTF-8 is kept as PEP 383 does,
so that it can be given on byte for byte.
"""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from fleetstop.core.process import ProcessId

# the kernel's words for the limits of setrlimit(2), fs/proc/base.c
LIMITS = {
    "cpu time": "CPU", "file size": "FSIZE", "data size": "DATA", "stack size": "STACK",
    "core file size": "CORE", "resident set": "RSS", "processes": "NPROC", "open files": "NOFILE",
    "locked memory": "MEMLOCK", "address space": "AS", "file locks": "LOCKS",
    "pending signals": "SIGPENDING", "msgqueue size": "MSGQUEUE", "nice priority": "NICE",
    "realtime priority": "RTPRIO", "realtime timeout": "RTTIME",
}  # fmt: skip
GONE = " (deleted)"
_N = rb"(\d{1,10})"
_AT = rb"/proc/%b/(?:task/\d{1,10}/)?" % _N
_LINE = re.compile(_AT + rb"(stat|status|limits|uid_map|gid_map):(.*)", re.DOTALL)
_FLAGS = re.compile(_AT + rb"fdinfo/([012]):flags:\s*([0-7]{1,12})")
_SIZE = re.compile(rb"\s*(\d{1,12}) " + _AT + rb"environ")
_LINK = re.compile(_AT + rb"(cwd|exe|fd/[012]|ns/user)")
_WORDS = re.compile(_AT + rb"(cmdline|environ):(.*)", re.DOTALL)
_LIMIT = re.compile(r"Max (.{1,24}?)\s{2,}(\d{1,20}|unlimited)\s+(\d{1,20}|unlimited)(?:\s|$)")
_OURS = b"/proc/self/ns/user"


class Stream(Struct, frozen=True):
    """What one of fds 0-2 leads to: link text, type letter of find(1), open(2)'s flags."""

    target: str
    kind: str
    flags: int | None = None

    @property
    def file(self) -> str | None:
        """The path of a regular file that is still there; None: it is none."""
        here = self.kind == "f" and self.target.startswith("/") and not self.deleted
        return self.target if here else None

    @property
    def deleted(self) -> bool:
        return self.kind == "f" and self.target.endswith(GONE)


class Origin(Struct, frozen=True):
    """How one process was started; ids are the container's. `cwd` is where it is now.

    `env` None: could not be read, or is not what it was given. `limits`: by the name of
    setrlimit(2) without RLIMIT_, -1 is infinity. `log`: the regular file that its stdout, else its
    stderr, goes to. `exe` without a `(deleted)`. `unseen`: what could not be read, or is no more,
    a sentence each.
    """

    id: ProcessId
    argv: tuple[str, ...] = ()
    cwd: str | None = None
    env: dict[str, str] | None = None
    uid: int | None = None
    gid: int | None = None
    groups: tuple[int, ...] = ()
    umask: int | None = None
    nice: int | None = None
    limits: dict[str, tuple[int, int]] = {}
    log: str | None = None
    exe: str | None = None
    streams: dict[int, Stream] = {}
    unseen: tuple[str, ...] = ()


class _Seen(Struct):
    """One process's raw lines and records."""

    stat: list[bytes] = []
    status: dict[str, str] = {}
    limits: dict[str, tuple[int, int]] = {}
    maps: dict[str, list[tuple[int, int, int]]] = {}
    flags: dict[int, int] = {}
    size: int | None = None
    links: dict[str, tuple[str, str]] = {}
    argv: list[bytes] = []
    environ: list[bytes] = []


def parse_origins(data: bytes, first: int | None = None) -> dict[int, Origin]:
    """The answer of `origin` -> one for each PID that was asked for and seen.

    `first`: the container's first process, asked for too: its id maps are the container's, whoever
    else lives in a namespace of his own below. None: a plain host.
    """
    lines, _, records = data.partition(b"\n\0")
    seen: dict[int, _Seen] = defaultdict(_Seen)
    for line in lines.split(b"\n"):
        _line(line, seen)
    ours = _records(records, seen)
    head = seen.get(first) if first is not None else None
    made = {pid: _origin(pid, each, head, ours) for pid, each in seen.items()}
    return {pid: each for pid, each in made.items() if each is not None}


def _line(line: bytes, seen: dict[int, _Seen]) -> None:
    if (flags := _FLAGS.match(line)) is not None:
        seen[int(flags[1])].flags[int(flags[2])] = int(flags[3], 8)
    elif (size := _SIZE.fullmatch(line)) is not None:
        seen[int(size[2])].size = int(size[1])
    elif (found := _LINE.match(line)) is not None:
        _fact(seen[int(found[1])], found[2].decode(), found[3])


def _fact(here: _Seen, kind: str, rest: bytes) -> None:
    said = text(rest)
    if kind == "stat":
        here.stat.append(rest)
    elif kind == "status":
        name, _, value = said.partition(":")
        here.status[name] = value.strip()
    elif kind == "limits":
        limit = _LIMIT.match(said)
        if limit is not None and limit[1] in LIMITS:
            here.limits[LIMITS[limit[1]]] = (_bound(limit[2]), _bound(limit[3]))
    else:
        numbers = _numbers(said)
        if len(numbers) == 3:
            here.maps.setdefault(kind, []).append((numbers[0], numbers[1], numbers[2]))


def _records(records: bytes, seen: dict[int, _Seen]) -> bytes | None:
    """The links first, three records each; what is ours is returned."""
    ours: bytes | None = None
    parts = records.split(b"\0")
    if parts and parts[-1] == b"":
        parts.pop()
    at = 0
    while at + 2 < len(parts) and (parts[at] == _OURS or _LINK.fullmatch(parts[at])):
        link = _LINK.fullmatch(parts[at])
        if link is None:
            ours = parts[at + 1]
        elif parts[at + 1]:
            # find(1) prints a link that it may not read with an empty text
            seen[int(link[1])].links[text(link[2])] = (text(parts[at + 1]), text(parts[at + 2]))
        at += 3
    for part in parts[at:]:
        if (found := _WORDS.fullmatch(part)) is not None:
            here = seen[int(found[1])]
            (here.argv if found[2] == b"cmdline" else here.environ).append(found[3])
    return ours


def _origin(pid: int, seen: _Seen, head: _Seen | None, ours: bytes | None) -> Origin | None:
    stat = b"\n".join(seen.stat)
    rest = stat[stat.rfind(b")") + 1 :].split()
    if len(rest) < 20 or not rest[19].isdigit():
        return None
    unseen: list[str] = []
    env = _environ(seen, unseen)
    streams = {
        fd: Stream(*seen.links[f"fd/{fd}"], flags=seen.flags.get(fd))
        for fd in (0, 1, 2)
        if f"fd/{fd}" in seen.links
    }
    if not seen.links:
        unseen.append("its open files, directory and program could not be read")
    return Origin(
        id=ProcessId(pid, int(rest[19])),
        argv=_argv(seen, unseen),
        cwd=_path(seen, "cwd", "its working directory", unseen),
        env=env,
        umask=int(seen.status["Umask"], 8) if _octal(seen.status.get("Umask")) else None,
        nice=int(rest[16]) if re.fullmatch(rb"-?\d{1,3}", rest[16]) else None,
        limits=seen.limits,
        log=_log(streams, unseen),
        exe=_path(seen, "exe", "its program", unseen),
        streams=streams,
        **_ids(seen, head, ours, unseen),
        unseen=tuple(unseen),
    )


def _argv(seen: _Seen, unseen: list[str]) -> tuple[str, ...]:
    words = tuple(map(text, seen.argv))
    if not words:
        unseen.append("its command line could not be read")
    elif len(words) == 1 and " " in words[0]:
        # setproctitle(3) leaves one text where the words were
        unseen.append("its command line is one text: it may have been overwritten by the process")
    return words


def _environ(seen: _Seen, unseen: list[str]) -> dict[str, str] | None:
    if seen.size is None or (seen.size and not seen.environ):
        unseen.append("its environment could not be read")
        return None
    pairs = [text(each).partition("=") for each in seen.environ]
    if any(not sign or not name for name, sign, _ in pairs):
        unseen.append("its environment has been overwritten by the process (a title, most likely)")
        return None
    # without a NUL at the end it was cut: the last one is not whole
    if seen.environ and seen.size < sum(len(each) + 1 for each in seen.environ):
        unseen.append(f"its environment was cut off: {pairs.pop()[0]} and what follows is missing")
    env: dict[str, str] = {}
    for name, _, value in pairs:
        env.setdefault(name, value)  # getenv(3) finds the first of two
    return env


def _path(seen: _Seen, key: str, what: str, unseen: list[str]) -> str | None:
    if key not in seen.links:
        return None
    path = seen.links[key][0]
    if path.endswith(GONE):
        path = path.removesuffix(GONE)
        unseen.append(f"{what}, {path}, has been deleted or replaced since")
    return path


def _log(streams: Mapping[int, Stream], unseen: list[str]) -> str | None:
    for fd in (1, 2):
        if fd in streams and streams[fd].file is not None:
            return streams[fd].file
    for fd in (1, 2):
        if fd in streams and streams[fd].deleted:
            path = streams[fd].target.removesuffix(GONE)
            unseen.append(f"its output goes to {path}, which has been deleted")
            break
    return None


def _ids(seen: _Seen, head: _Seen | None, ours: bytes | None, unseen: list[str]) -> dict[str, Any]:
    """uid, gid and groups as the container counts; it is we whose numbers /proc shows."""
    own = text(ours) if ours is not None else None
    theirs = head.links.get("ns/user", (None,))[0] if head is not None else own
    same = own is not None and theirs == own
    uids = None if same else (head or seen).maps.get("uid_map")
    gids = None if same else (head or seen).maps.get("gid_map")
    # effective ids are what files and signals are judged by: the second number
    uid, gid = _second(seen.status.get("Uid")), _second(seen.status.get("Gid"))
    found = {"uid": inner_id(uid, uids), "gid": inner_id(gid, gids)}
    if uid is not None and None in found.values():
        unseen.append(f"its user {uid} or group {gid} has no number in the container")
    elif uid is None:
        unseen.append("its user could not be read")
    groups = [inner_id(each, gids) for each in _numbers(seen.status.get("Groups", ""))]
    if None in groups:
        unseen.append("some of its groups have no number in the container")
    return {**found, "groups": tuple(each for each in groups if each is not None)}


def inner_id(outer: int | None, maps: Sequence[tuple[int, int, int]] | None) -> int | None:
    """An id as the other namespace counts it, by its uid_map or gid_map (first inside, first here,
    how many); None: it has none there. No maps: the same namespace."""
    if outer is None or maps is None:
        return outer
    for inside, outside, count in maps:
        if outside <= outer < outside + count:
            return inside + outer - outside
    return None


def started_in(origin: Origin, script: str | None) -> tuple[str, ...]:
    """Directories from which a relative `script` may have been started, the likelier first.

    A process may have moved since, and PWD is what whoever started it believed.
    """
    here = [each for each in (origin.cwd, (origin.env or {}).get("PWD")) if each]
    if script is None or script.startswith("/"):
        here = here[:1]
    return tuple(dict.fromkeys(each for each in here if posixpath.isabs(each)))


def text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _bound(word: str) -> int:
    return -1 if word == "unlimited" or int(word) >= 2**63 else int(word)


def _numbers(said: str) -> list[int]:
    return [int(each) for each in said.split() if each.isdigit() and len(each) < 11]


def _second(said: str | None) -> int | None:
    numbers = _numbers(said or "")
    return numbers[1] if len(numbers) > 1 else None


def _octal(said: str | None) -> bool:
    return said is not None and re.fullmatch(r"[0-7]{1,5}", said) is not None
