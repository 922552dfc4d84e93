"""Tells the newest complete checkpoint where nobody else can: its rules are core/saves' own.

    PYTHON -I saves.py LIMIT_S      {"directory", "known", "rules"} as JSON on stdin

Run by the activator once its client has left. The answer is one line of JSON: {"found": path or
null}, or {"unseen": sentence}. It ends itself after LIMIT_S: files may lie on a server that is
gone. `rules`: patterns and names, as core/saves/rules.py tells them. What is not sure to be whole
is passed over; so is whatever somebody has open for writing.

Standard library, Python 3.6 or later.
"""

import fnmatch
import itertools
import json
import os
import re
import signal
import stat
import sys
import time
from typing import Any, Dict, Iterator, List, Optional, Set, Tuple

Json = Dict[str, Any]
MOST_ENTRIES = 200000
TRIED = 8  # as many as are tried before the stop
TRIES = 3  # files go away under one's feet
STEADY_S = 1.0
ZIP_HEAD, ZIP_END, ZIP_END_BYTES, ZIP64 = b"PK\x03\x04", b"PK\x05\x06", 22, 0xFFFFFFFF
DISTCP = re.compile(rb"__[0-9]{1,6}_[0-9]{1,6}\.distcp")
# whether it is whole, and whether its bytes told: wholeness.py's Read
WHOLE, TORN, STILL = (True, True), (False, True), (True, False)
Verdict = Tuple[bool, bool]


def raw(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")


def text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


class Entry:
    """A plain file; `name` below the directory, as text (PEP 383)."""

    def __init__(self, name: str, seen: os.stat_result) -> None:
        self.name, self.size, self.mtime = name, seen.st_size, seen.st_mtime
        self.sign = (name, seen.st_ino, seen.st_size, seen.st_mtime_ns)


class Checkpoint:
    """One file, a set of them, or a directory's; `folder` is what names of its files leave out."""

    def __init__(self, name: str, folder: str, files: List[Entry], notes: List[Entry]) -> None:
        self.name, self.folder, self.files, self.notes = name, folder, files, notes
        self.mtime = max(each.mtime for each in files)
        self.pointer = None  # type: Optional[Entry]

    def inner(self, each: Entry) -> str:
        return each.name[len(self.folder) :]


class Rules:
    """What names mean."""

    def __init__(self, told: Json) -> None:
        self.told = told
        self.zips, self.state = tuple(told["zips"]), str(told["hf_state"])
        self.index = str(told["dcp_index"])
        self.shard, self.rank = re.compile(told["shard"]), re.compile(told["rank_file"])

    def _any(self, kind: str, word: str) -> bool:
        return any(fnmatch.fnmatchcase(word, each) for each in self.told[kind])

    def temporary(self, name: str) -> bool:
        parts = [each for each in name.lower().split("/") if each and each != self.index]
        return any(self._any("temp", each) for each in parts)

    def log_like(self, name: str) -> bool:
        path = name.lower()
        last = path.rsplit("/", 1)[-1]
        known = self._any("log_like", last) or re.fullmatch(self.told["mlflow"], path)
        return bool(known) and "-is-incomplete" not in last

    def saved(self, entries: List[Entry]) -> Iterator[Entry]:
        models, folders = [], set()
        for each in entries:
            last, above = each.name.rsplit("/", 1)[-1], each.name.rpartition("/")[0]
            if last in self.told["pointers"] and each.size < 4096:
                continue
            if any(self._any("none", part) for part in each.name.lower().split("/")):
                continue
            if not self.log_like(each.name):
                folders.add(above)
                yield each
            elif re.fullmatch(self.told["model"], last.lower()):
                models.append(each)
        for each in models:
            if each.name.rpartition("/")[0] not in folders:
                yield each

    def checkpoints(self, entries: List[Entry]) -> List[Checkpoint]:
        """Oldest first."""
        files, groups, notes = list(self.saved(entries)), {}, {}  # type: Any, Any, Any
        flat = any(self._of_dcp(each.name) for each in files if "/" not in each.name)
        for each in files:
            groups.setdefault(self._group(each.name, flat), []).append(each)
        for each in entries:
            folder, _, last = each.name.rpartition("/")
            if last.lower().endswith(".index.json") or last == self.state:
                notes.setdefault(folder.split("/", 1)[0], []).append(each)
        pointer = next((e for e in entries if e.name in self.told["last_written"]), None)
        found = []
        for key, group in groups.items():
            if all(self.temporary(each.name) for each in group):
                continue
            first = min(each.name for each in group)
            inside = key.endswith("/") and key != "/"
            name = key[:-1] if key.endswith("/") else first
            alone = not inside and len(group) == 1 and not self.shard.fullmatch(first)
            beside = [] if alone else notes.get(key[:-1] if inside else "", [])
            one = Checkpoint(name, key if inside else "", group, beside)
            one.pointer = pointer if inside else None
            found.append(one)
        return sorted(found, key=lambda each: (each.mtime, each.name))

    def _of_dcp(self, name: str) -> bool:
        return name == self.index or name.endswith(".distcp")

    def _group(self, name: str, flat: bool) -> str:
        first, slash, _ = name.partition("/")
        if slash:
            return first + "/"
        if flat and self._of_dcp(name):
            return "/"
        shard = self.shard.fullmatch(name)
        return "".join((shard[1], "*", shard[3], shard[4], shard[5] or "")) if shard else name

    def lacks(self, one: Checkpoint) -> bool:
        """By names, sizes and times alone."""
        names = {one.inner(each): each for each in one.files}
        folders = {name.rpartition("/")[0] for name in names if name.endswith(".distcp")}
        for folder in folders:
            index = names.get(os.path.join(folder, self.index))
            if index is None or not index.size:
                return True
        if any(name.endswith(".distcp") and not each.size for name, each in names.items()):
            return True
        sets = {}  # type: Dict[Any, Set[str]]
        for match in filter(None, map(self.shard.fullmatch, names)):
            sets.setdefault((match[1], match[4], match[5]), set()).add(match[2])
        if any(len(numbers) < int(kind[1]) for kind, numbers in sets.items()):
            return True
        of_trainer = self.told["hf_arguments"] in names and re.fullmatch(
            r"checkpoint-[0-9]+", one.name
        )
        ends = any(each.name == one.folder + self.state and each.size for each in one.notes)
        ranks = one.pointer is not None and any(map(self.rank.fullmatch, names))
        late = ranks and one.pointer is not None and one.pointer.mtime < one.mtime
        return bool(of_trainer and not ends) or bool(late)


class Directory:
    """`rules` at work on what lies below one directory."""

    def __init__(self, path: bytes, rules: Rules) -> None:
        self.path, self.rules = path, rules
        self.most, self.tail = int(rules.told["most_head"]), int(rules.told["tail"])

    def entries(self) -> List[Entry]:
        for _ in range(TRIES):
            try:
                found = list(itertools.islice(self._below(b"", 1), MOST_ENTRIES + 1))
            except FileNotFoundError:
                continue
            if len(found) > MOST_ENTRIES:
                raise OSError(f"more than {MOST_ENTRIES} files lie there")
            return found
        raise OSError("files went away while they were looked at")

    def _below(self, rel: bytes, depth: int) -> Iterator[Entry]:
        for each in os.scandir(os.path.join(self.path, rel)):
            name, seen = os.path.join(rel, each.name), each.stat(follow_symlinks=False)
            if stat.S_ISREG(seen.st_mode):
                yield Entry(text(name), seen)
            elif stat.S_ISDIR(seen.st_mode) and depth < int(self.rules.told["depth"]):
                yield from self._below(name, depth + 1)

    def ends(self, each: Entry) -> Tuple[bytes, bytes]:
        """As much of the beginning as tells, and the end."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
        with open(os.open(os.path.join(self.path, raw(each.name)), flags), "rb") as file:
            name = each.name.lower()
            head = file.read(self.most if name.endswith((".json", self.rules.index)) else 65536)
            if name.endswith(".safetensors") and len(head) >= 8:
                more = 8 + int.from_bytes(head[:8], "little") - len(head)
                head += file.read(more) if 0 < more <= self.most else b""
            file.seek(max(0, each.size - self.tail))
            return head, file.read(self.tail)

    def whole(self, one: Checkpoint) -> Verdict:
        if any(self.rules.temporary(each.name) for each in one.files):
            return TORN
        if not sum(each.size for each in one.files) or self.rules.lacks(one):
            return TORN
        sizes = {each.name: each.size for each in one.files}
        told = {}  # type: Dict[str, Verdict]
        for each in one.files:
            if not each.name.endswith(".distcp"):
                told[each.name] = self._file(each, sizes)
        for each in one.notes:
            head, tail = self.ends(each)
            if each.name.lower().endswith(".index.json"):
                told[each.name] = _index(each, head, sizes)
            else:
                told[each.name] = _json(each.size, head, tail)
        # what its writer writes last vouches for the rest, whatever format that has
        vouched = told.get(one.folder + self.rules.state) == WHOLE
        reads = [each for each in told.values() if each[1] or not vouched]
        return all(each[0] for each in reads), all(each[1] for each in reads)

    def _file(self, each: Entry, sizes: Dict[str, int]) -> Verdict:
        name = each.name.lower()
        if not each.size:
            return TORN
        head, tail = self.ends(each)
        if each.name.rsplit("/", 1)[-1] == self.rules.index:
            return _dcp(each, head, tail, sizes)
        if name.endswith(".safetensors") and len(head) >= 8:
            return _safetensors(each.size, head)
        if name.endswith(".json"):
            return _json(each.size, head, tail)
        if not name.endswith(self.rules.zips) and not head.startswith(ZIP_HEAD):
            return STILL
        always = name.endswith(tuple(self.rules.told["always_zips"]))
        if not head.startswith(ZIP_HEAD[: len(head)]) and not always:
            return STILL  # torch's format before 1.6 is a row of pickles
        return WHOLE if _zip_ends(each.size, tail) else TORN

    def newest(self) -> Optional[str]:
        if not os.path.isdir(self.path):
            return None
        writers = written_below(os.path.realpath(self.path))
        for one in reversed(self.rules.checkpoints(self.entries())[-TRIED:]):
            written = any(each.name in writers for each in one.files + one.notes)
            whole, told = (False, True) if written else self.whole(one)
            if whole and (told or self._steady(one)):
                return os.path.join(text(self.path), one.name).rstrip("/")
        return None

    def _steady(self, one: Checkpoint) -> bool:
        """What no byte tells of has at least to stand still."""
        time.sleep(STEADY_S)
        now = {each.sign for each in self.entries()}
        return all(each.sign in now for each in one.files)


def _zip_ends(size: int, tail: bytes) -> bool:
    at = tail.rfind(ZIP_END)
    while at >= 0:
        record = tail[at : at + ZIP_END_BYTES]
        length, start = (int.from_bytes(record[i : i + 4], "little") for i in (12, 16))
        fits = len(tail) - at == ZIP_END_BYTES + int.from_bytes(record[20:22], "little")
        if fits and (ZIP64 in (length, start) or length + start <= size - len(tail) + at):
            return True
        at = tail.rfind(ZIP_END, 0, at)
    return False


def _safetensors(size: int, head: bytes) -> Verdict:
    start = 8 + int.from_bytes(head[:8], "little")
    if start > size:
        return TORN
    if len(head) < start:
        return STILL
    try:
        header = json.loads(head[8:start].decode())
        ends = [each["data_offsets"][1] for key, each in header.items() if key != "__metadata__"]
        return (start + max(ends, default=0) == size), True
    except (ValueError, LookupError, TypeError, AttributeError):
        return TORN


def _json(size: int, head: bytes, tail: bytes) -> Verdict:
    if len(head) >= size:
        try:
            json.loads(head.decode())
        except ValueError:
            return TORN
        return WHOLE
    return STILL if tail.rstrip().endswith((b"}", b"]")) else TORN


def _index(each: Entry, head: bytes, sizes: Dict[str, int]) -> Verdict:
    if len(head) < each.size:
        return STILL
    try:
        told = json.loads(head.decode())
        total = told.get("metadata", {}).get("total_size", 0)
        names = set(told["weight_map"].values())
        there = [sizes.get(os.path.join(each.name.rpartition("/")[0], name), 0) for name in names]
        return (all(there) and sum(there) >= int(total)), True
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError):
        return TORN


def _dcp(each: Entry, head: bytes, tail: bytes, sizes: Dict[str, int]) -> Verdict:
    if not head.startswith(b"\x80") or not tail.endswith(b"."):
        return TORN
    folder, named = each.name.rpartition("/")[0], DISTCP.findall(head)
    return all(os.path.join(folder, name.decode()) in sizes for name in named), True


def written_below(top: bytes) -> Set[str]:
    """Names below `top` that somebody has open for writing."""
    found, start = set(), top.rstrip(b"/") + b"/"
    for pid in filter(str.isdigit, os.listdir("/proc")):
        here = f"/proc/{pid}/".encode()
        try:
            for fd in os.listdir(here + b"fd"):
                path = os.readlink(here + b"fd/" + fd)
                if path.startswith(start) and _writes(here + b"fdinfo/" + fd):
                    found.add(text(path[len(start) :]))
        except OSError:
            continue  # it has ended, or is none that we may look at
    return found


def _writes(path: bytes) -> bool:
    with open(path, "rb") as file:
        flags = re.search(rb"^flags:\s*([0-7]+)", file.read(), re.MULTILINE)
    return flags is None or int(flags.group(1), 8) & os.O_ACCMODE != os.O_RDONLY


def main() -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, float(sys.argv[1]))
    asked = json.loads(sys.stdin.read())
    try:
        there = Directory(raw(asked["directory"]), Rules(asked["rules"]))
        said = {"found": there.newest()}  # type: Json
    except OSError as error:
        said = {"unseen": str(error)}
    print(json.dumps(said))


if __name__ == "__main__":
    main()
