"""Probe bytes into processes; the only place that knows /proc formats (proc(5))."""

from __future__ import annotations

import re
from collections import defaultdict

import msgspec

from fleetstop.core.process import Detail, OpenFile, Process, ProcessId, ProcessTree
from fleetstop.core.signals import Masks

_LINE = re.compile(rb"/proc/(\d+)/(stat|cgroup|status|cmdline|io|wchan):(.*)", re.DOTALL)
_DEEP = re.compile(rb"/proc/(\d+)/(?:task/(\d+)/status|fdinfo/(\d+)):(.*)", re.DOTALL)
_LINK = re.compile(rb"/proc/(\d+)/(?:fd/(\d+)|(cwd))$")
_ENV = re.compile(rb"/proc/(\d+)/environ:(.*)", re.DOTALL)
Fields = dict[str, str]


def text(raw: bytes) -> str:
    """Bytes of an unknown encoding as text; undecodable ones stay visible as \\xNN."""
    return raw.decode("utf-8", "backslashreplace")


def parse_look(data: bytes, hz: int) -> ProcessTree | None:
    """The answer of `look`; None where even the clock line is missing (nothing was seen).

    A process whose stat or status is missing vanished during the look and is left out.
    """
    head, _, body = data.partition(b"\n")
    if not head.startswith(b"uptime:"):
        return None
    stats: dict[int, list[bytes]] = defaultdict(list)
    groups: dict[int, list[str]] = defaultdict(list)
    fields: dict[int, Fields] = defaultdict(dict)
    for line in body.split(b"\n"):
        found = _LINE.match(line)
        if found is None:
            continue
        pid, kind, rest = int(found[1]), found[2], found[3]
        if kind == b"stat":
            stats[pid].append(rest)
        elif kind == b"cgroup":
            groups[pid].append(text(rest.split(b":", 2)[-1]))
        elif kind == b"status":
            name, _, value = rest.partition(b":")
            fields[pid][text(name)] = text(value).strip()
    processes: dict[int, Process] = {}
    for pid, lines in stats.items():
        made = _process(pid, b"\n".join(lines), fields.get(pid), tuple(groups.get(pid, ())))
        if made is not None:
            processes[pid] = made
    return ProcessTree(processes=processes, uptime=float(head[7:]), hz=hz)


def _process(
    pid: int, stat: bytes, status: Fields | None, groups: tuple[str, ...]
) -> Process | None:
    # comm may hold spaces, brackets and newlines: it ends at the last bracket
    opening, closing = stat.find(b"("), stat.rfind(b")")
    rest = stat[closing + 1 :].split()
    if status is None or opening < 0 or closing < 0 or len(rest) < 20:
        return None
    return Process(
        id=ProcessId(pid, int(rest[19])),
        ppid=int(rest[1]),
        pgid=int(rest[2]),
        sid=int(rest[3]),
        state=text(rest[0]),
        comm=text(stat[opening + 1 : closing]),
        flags=int(rest[6]),
        threads=int(rest[17]),
        ticks=int(rest[11]) + int(rest[12]),
        rss_kib=_number(status.get("VmRSS", "0").split()[:1]),
        uid=_number(status.get("Uid", "0").split()[:1]),
        tracer=_number(status.get("TracerPid", "0").split()[:1]),
        inner=tuple(int(each) for each in status.get("NSpid", "").split()[1:]),
        inner_pgid=_inner(status.get("NSpgid", "")),
        masks=_masks(status),
        cgroups=groups,
    )


def _number(words: list[str]) -> int:
    return int(words[0]) if words and words[0].isdigit() else 0


def _inner(value: str) -> int | None:
    numbers = value.split()[1:]
    return int(numbers[0]) if numbers else None


def _masks(status: Fields) -> Masks | None:
    try:
        pending = int(status["SigPnd"], 16) | int(status["ShdPnd"], 16)
        return Masks(
            pending=pending,
            blocked=int(status["SigBlk"], 16),
            ignored=int(status["SigIgn"], 16),
            caught=int(status["SigCgt"], 16),
        )
    except (KeyError, ValueError):
        return None


def parse_argv(data: bytes) -> dict[int, tuple[str, ...]]:
    """The answer of `argv`: host PID -> words. A process without argv (zombie) is absent."""
    lines: dict[int, list[bytes]] = defaultdict(list)
    for line in data.split(b"\n"):
        found = _LINE.match(line)
        if found is not None and found[2] == b"cmdline":
            lines[int(found[1])].append(found[3])
    words: dict[int, tuple[str, ...]] = {}
    for pid, parts in lines.items():
        raw = b"\n".join(parts).removesuffix(b"\0")
        if raw:
            words[pid] = tuple(text(each) for each in raw.split(b"\0"))
    return words


class _Gathered(msgspec.Struct):
    blocked: list[int] = []
    lines: dict[int, Fields] = {}
    links: dict[int, str] = {}
    io: Fields = {}
    wchan: str | None = None
    cwd: str | None = None
    rank: bool = False


def parse_detail(data: bytes) -> dict[int, Detail]:
    """The answer of `detail`: text lines, a NUL, then NUL-ended records of links and environ."""
    lines, _, records = data.partition(b"\0")
    gathered: dict[int, _Gathered] = defaultdict(_Gathered)
    for line in lines.split(b"\n"):
        _detail_line(line, gathered)
    _detail_records(records, gathered)
    return {pid: _detail(each) for pid, each in gathered.items()}


def _detail_line(line: bytes, gathered: dict[int, _Gathered]) -> None:
    if (deep := _DEEP.match(line)) is not None:
        here = gathered[int(deep[1])]
        name, _, value = text(deep[4]).partition(":")
        if deep[2] is not None and name == "SigBlk":
            here.blocked.append(int(value.strip(), 16))
        elif deep[3] is not None:
            here.lines.setdefault(int(deep[3]), {})[name] = value.strip()
    elif (flat := _LINE.match(line)) is not None:
        here = gathered[int(flat[1])]
        name, _, value = text(flat[3]).partition(":")
        if flat[2] == b"io":
            here.io[name] = value.strip()
        elif flat[2] == b"wchan":
            here.wchan = name


def _detail_records(records: bytes, gathered: dict[int, _Gathered]) -> None:
    waiting: re.Match[bytes] | None = None
    for record in records.split(b"\0"):
        if waiting is not None:
            here = gathered[int(waiting[1])]
            if waiting[3] is not None:
                here.cwd = text(record)
            else:
                here.links[int(waiting[2])] = text(record)
            waiting = None
        elif (env := _ENV.match(record)) is not None:
            gathered[int(env[1])].rank |= env[2].split(b"=")[0] in (b"RANK", b"LOCAL_RANK")
        else:
            waiting = _LINK.match(record)


def _detail(seen: _Gathered) -> Detail:
    blocked = None
    for mask in seen.blocked:
        blocked = mask if blocked is None else blocked & mask
    files = tuple(
        OpenFile(fd=fd, target=target, flags=_octal(seen.lines, fd), pos=_pos(seen.lines, fd))
        for fd, target in sorted(seen.links.items())
    )
    return Detail(
        blocked=blocked,
        # a living process has at least its cwd; without one its links could not be read at all
        files=files if files or seen.cwd is not None else None,
        cwd=seen.cwd,
        rank=seen.rank,
        written=_count(seen.io.get("wchar")),
        read=_count(seen.io.get("rchar")),
        wchan=seen.wchan,
    )


def _octal(lines: dict[int, Fields], fd: int) -> int | None:
    value = lines.get(fd, {}).get("flags")
    return int(value, 8) if value else None


def _pos(lines: dict[int, Fields], fd: int) -> int | None:
    return _count(lines.get(fd, {}).get("pos"))


def _count(value: str | None) -> int | None:
    return int(value) if value is not None and value.isdigit() else None


def with_argv(tree: ProcessTree, words: dict[int, tuple[str, ...]]) -> ProcessTree:
    return _replaced(tree, {pid: {"argv": argv} for pid, argv in words.items()})


def with_detail(tree: ProcessTree, details: dict[int, Detail]) -> ProcessTree:
    return _replaced(tree, {pid: {"detail": detail} for pid, detail in details.items()})


def _replaced(tree: ProcessTree, changes: dict[int, dict[str, object]]) -> ProcessTree:
    processes = dict(tree.processes)
    for pid, change in changes.items():
        if pid in processes:
            processes[pid] = msgspec.structs.replace(processes[pid], **change)
    return ProcessTree(processes=processes, uptime=tree.uptime, hz=tree.hz)
