"""Probe bytes into processes; the only place that knows /proc formats (proc(5))."""

from __future__ import annotations

import re
from collections import defaultdict
from functools import reduce
from operator import and_, or_

import msgspec

from fleetstop.core.process import Detail, OpenFile, Process, ProcessId, ProcessTree
from fleetstop.core.signals import Masks

# Numbers are bounded wherever they stand: int() raises on some four thousand digits.
_N = rb"(\d{1,10})"
_LINE = re.compile(rb"/proc/%b/(stat|cgroup|status|cmdline|io):(.*)" % _N, re.DOTALL)
# a dead leader's own files cannot be read: a living thread shows the same ones
_TASK = rb"/proc/%b/(?:task/\d{1,10}/)?" % _N
_DEEP = re.compile(rb"/proc/%b/task/%b/status:(.*)" % (_N, _N), re.DOTALL)
_FDINFO = re.compile(_TASK + rb"fdinfo/%b:(.*)" % _N, re.DOTALL)
_CALL = re.compile(_TASK + rb"(wchan|syscall):(\S*)")
_THREAD = re.compile(rb"/proc/%b/task/%b/cmdline:(.*)" % (_N, _N), re.DOTALL)
_LINK = re.compile(_TASK + rb"(?:fd/%b|(cwd))\Z" % _N)
_ENV = re.compile(_TASK + rb"environ:(.*)", re.DOTALL)
_CLOCK = re.compile(rb"uptime:(\d{1,12}(?:\.\d{1,9})?)")
_INTEGER = re.compile(r"-?[0-9]{1,20}")
_OCTAL = re.compile(r"[0-7]{1,20}")
_HEX = re.compile(r"[0-9a-fA-F]{1,16}")
Fields = dict[str, str]


def text(raw: bytes) -> str:
    """Bytes of an unknown encoding as text; undecodable ones stay visible as \\xNN."""
    return raw.decode("utf-8", "backslashreplace")


def parse_look(data: bytes, hz: int) -> ProcessTree | None:
    """The answer of `look`; None where even the clock line is missing (nothing was seen).

    A process whose stat or status is missing vanished during the look and is left out.
    """
    head, _, body = data.partition(b"\n")
    clock = _CLOCK.fullmatch(head.strip())
    if clock is None:
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
    return ProcessTree(processes=processes, uptime=float(clock[1]), hz=hz)


def _process(
    pid: int, stat: bytes, status: Fields | None, groups: tuple[str, ...]
) -> Process | None:
    # comm may hold spaces, brackets and newlines: it ends at the last bracket
    opening, closing = stat.find(b"("), stat.rfind(b")")
    rest = stat[closing + 1 :].split()
    numbers = [_integer(text(word)) for word in rest[1:20]]
    at = [each for each in numbers if each is not None]
    if status is None or opening < 0 or closing < 0 or len(at) < 19:
        return None
    inner = _integers(status.get("NSpid", "").split()[1:])
    return Process(
        id=ProcessId(pid, at[18]),
        ppid=at[0],
        pgid=at[1],
        sid=at[2],
        state=text(rest[0]),
        comm=text(stat[opening + 1 : closing]),
        flags=at[5],
        threads=at[16],
        ticks=at[10] + at[11],
        system=at[11],
        rss_kib=_number(status.get("VmRSS", "0").split()[:1]),
        uid=_number(status.get("Uid", "0").split()[:1]),
        tracer=_number(status.get("TracerPid", "0").split()[:1]),
        inner=inner,
        nested=bool(inner) and not any(group.startswith("/lxc/") for group in groups),
        inner_pgid=next(iter(_integers(status.get("NSpgid", "").split()[1:])), None),
        masks=_masks(status),
        cgroups=groups,
    )


def _integer(word: str | None) -> int | None:
    return int(word) if word is not None and _INTEGER.fullmatch(word) else None


def _integers(words: list[str]) -> tuple[int, ...]:
    return tuple(each for each in map(_integer, words) if each is not None)


def _number(words: list[str]) -> int:
    return next(iter(_integers(words)), 0)


def _mask(value: str | None) -> int | None:
    return int(value, 16) if value is not None and _HEX.fullmatch(value) else None


def _masks(status: Fields) -> Masks | None:
    names = ("SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt")
    seen = [mask for mask in (_mask(status.get(name)) for name in names) if mask is not None]
    if len(seen) < len(names):
        return None
    return Masks(pending=seen[0] | seen[1], blocked=seen[2], ignored=seen[3], caught=seen[4])


def parse_argv(data: bytes) -> dict[int, tuple[str, ...]]:
    """The answer of `argv`: host PID -> words. A process without argv (zombie) is absent.

    A dead leader's words are those of its first living thread: they share one memory.
    """
    lines: dict[int, list[bytes]] = defaultdict(list)
    witness: dict[int, bytes] = {}
    for line in data.split(b"\n"):
        found = _LINE.match(line)
        if found is not None and found[2] == b"cmdline":
            lines[int(found[1])].append(found[3])
        thread = _THREAD.match(line)
        if thread is not None and witness.setdefault(int(thread[1]), thread[2]) == thread[2]:
            lines[int(thread[1])].append(thread[3])
    words: dict[int, tuple[str, ...]] = {}
    for pid, parts in lines.items():
        raw = b"\n".join(parts).removesuffix(b"\0")
        if raw:
            words[pid] = tuple(text(each) for each in raw.split(b"\0"))
    return words


class _Thread(msgspec.Struct):
    """One thread's lines; those of a dead one say nothing about how a signal would land."""

    state: str = ""
    lines: Fields = {}


class _Gathered(msgspec.Struct):
    threads: dict[int, _Thread] = {}
    lines: dict[int, Fields] = {}
    links: dict[int, str] = {}
    io: Fields = {}
    call: Fields = {}
    cwd: str | None = None
    rank: list[str] = []
    started_in: str | None = None
    ranks_here: int | None = None
    mark: str | None = None
    shutdown_s: str | None = None


def parse_detail(data: bytes) -> dict[int, Detail]:
    """The answer of `detail`: text lines, a NUL, then NUL-ended records of links and environ."""
    lines, _, records = data.partition(b"\0")
    gathered: dict[int, _Gathered] = defaultdict(_Gathered)
    for line in lines.split(b"\n"):
        _detail_line(line, gathered)
    _detail_records(records, gathered)
    return {pid: _detail(pid, each) for pid, each in gathered.items()}


def _detail_line(line: bytes, gathered: dict[int, _Gathered]) -> None:
    if (deep := _DEEP.match(line)) is not None:
        thread = gathered[int(deep[1])].threads.setdefault(int(deep[2]), _Thread())
        name, _, value = text(deep[3]).partition(":")
        if name == "State":
            thread.state = value.strip()[:1]
        else:
            thread.lines[name] = value.strip()
    elif (file := _FDINFO.match(line)) is not None:
        name, _, value = text(file[3]).partition(":")
        gathered[int(file[1])].lines.setdefault(int(file[2]), {})[name] = value.strip()
    elif (call := _CALL.match(line)) is not None:
        gathered[int(call[1])].call[text(call[2])] = text(call[3])
    elif (flat := _LINE.match(line)) is not None and flat[2] == b"io":
        name, _, value = text(flat[3]).partition(":")
        gathered[int(flat[1])].io[name] = value.strip()


def _detail_records(records: bytes, gathered: dict[int, _Gathered]) -> None:
    waiting: re.Match[bytes] | None = None
    for record in records.split(b"\0"):
        if waiting is not None:
            here = gathered[int(waiting[1])]
            # find(1) prints a link that it may not read, or a dead leader's, with an empty text
            if waiting[3] is not None:
                here.cwd = text(record) or None
            elif record:
                here.links[int(waiting[2])] = text(record)
            waiting = None
        elif (env := _ENV.match(record)) is not None:
            _environ(gathered[int(env[1])], text(env[2]))
        else:
            waiting = _LINK.match(record)


def _environ(here: _Gathered, variable: str) -> None:
    name, _, value = variable.partition("=")
    if name == "PWD":
        here.started_in = value
    elif name in ("RANK", "LOCAL_RANK"):
        here.rank.append(variable)
    elif name == "LOCAL_WORLD_SIZE":
        here.ranks_here = _integer(value)
    elif name == "FLEETSTOP_MARK":
        here.mark = value or None
    elif name == "TORCH_ELASTIC_SHUTDOWN_TIMEOUT":
        here.shutdown_s = value


def _detail(pid: int, seen: _Gathered) -> Detail:
    files = tuple(
        OpenFile(fd=fd, target=target, flags=_octal(seen.lines, fd), pos=_pos(seen.lines, fd))
        for fd, target in sorted(seen.links.items())
    )
    living = [each for each in seen.threads.values() if each.state not in ("Z", "X")]
    pending = [_mask(each.lines.get("SigPnd")) or 0 for each in living]
    leader = seen.threads.get(pid)
    told = [leader] if leader in living else living
    return Detail(
        blocked=_all_threads([_mask(each.lines.get("SigBlk")) for each in living]),
        # a living process has at least its cwd; without one its links could not be read at all
        files=files if files or seen.cwd is not None else None,
        cwd=seen.cwd,
        rank=" ".join(sorted(seen.rank)) or None,
        started_in=seen.started_in,
        ranks_here=seen.ranks_here,
        written=_integer(seen.io.get("wchar")),
        read=_integer(seen.io.get("rchar")),
        # `0` is how the kernel says that it waits nowhere (fs/proc/base.c)
        wchan=None if seen.call.get("wchan") in ("0", "") else seen.call.get("wchan"),
        syscall=seen.call.get("syscall"),
        switches=_sum([_integer(each.lines.get("voluntary_ctxt_switches")) for each in told]),
        pending=reduce(or_, pending, 0),
        states="".join(each.state for each in living),
        mark=seen.mark,
        shutdown_s=seen.shutdown_s,
    )


def _all_threads(masks: list[int | None]) -> int | None:
    """What every thread blocks; None where not one, or not each, could be read."""
    seen = [mask for mask in masks if mask is not None]
    return reduce(and_, seen) if seen and len(seen) == len(masks) else None


def _sum(numbers: list[int | None]) -> int | None:
    known = [each for each in numbers if each is not None]
    return sum(known) if known and len(known) == len(numbers) else None


def _octal(lines: dict[int, Fields], fd: int) -> int | None:
    value = lines.get(fd, {}).get("flags")
    return int(value, 8) if value is not None and _OCTAL.fullmatch(value) else None


def _pos(lines: dict[int, Fields], fd: int) -> int | None:
    return _integer(lines.get(fd, {}).get("pos"))


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
