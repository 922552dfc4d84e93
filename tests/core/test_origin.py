"""How a process was started, from raw answers: what is told, and what is told to be missing."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fleetstop.core.inventory import Match
from fleetstop.core.kin.family import find
from fleetstop.core.launching.origin import Origin, inner_id, parse_origins, started_in
from fleetstop.core.launching.outermost import outermost, tee_log
from fleetstop.core.process import OpenFile, ProcessId
from tests.core.trees import tree

STAT = "7 (a) b\n(x) S 1 7 7 0 -1 4194304 1 2 3 4 5 6 7 8 20 {nice} 1 0 4242 1 2"
LIMITS = (
    "Limit                     Soft Limit           Hard Limit           Units     \n"
    "Max cpu time              unlimited            unlimited            seconds   \n"
    "Max open files            1024                 524288               files     \n"
    "Max nice priority         0                    0                    \n"
)


def answer(
    *,
    env: bytes = b"A=1\0B=x=y\0",
    argv: bytes = b"python3\0t.py\0",
    nice: int = 5,
    status: str = "Uid:\t0\t1000\t0\t0\nGid:\t0\t50\t0\t0\nGroups:\t4 44 \nUmask:\t0027\n",
    links: tuple[tuple[str, str, str], ...] = (("cwd", "/root", "d"), ("exe", "/usr/bin/p", "f")),
    size: int | None = None,
    maps: str = "         0          0 4294967295\n",
    ns: str = "user:[1]",
    ours: str | None = "user:[1]",
    at: str = "/proc/7",
) -> bytes:
    def lines(name: str, text: str) -> str:
        return "".join(f"{at}/{name}:{line}\n" for line in text.split("\n") if line)

    head = lines("stat", STAT.format(nice=nice)) + lines("status", status)
    head += lines("limits", LIMITS) + lines("uid_map", maps) + lines("gid_map", maps)
    head += lines("fdinfo/1", "pos:\t0\nflags:\t0102001\n")
    head += f"{len(env) if size is None else size} {at}/environ\n"
    every = [(f"{at}/{name}", *rest) for name, *rest in links]
    every += [(f"{at}/ns/user", ns, "f")] if ns else []
    found = [("/proc/self/ns/user", ours, "f")] if ours else []
    out = "".join(f"{a}\0{b}\0{c}\0" for a, b, c in (*found, *every)).encode()
    for name, raw in (("cmdline", argv), ("environ", env)):
        records = raw.removesuffix(b"\0").split(b"\0") if raw else []
        out += b"".join(f"{at}/{name}:".encode() + each + b"\0" for each in records)
    return head.encode() + b"\n\0" + out


def origin(first: int | None = None, **facts: Any) -> Origin:
    return parse_origins(answer(**facts), first)[7]


def test_all_of_it() -> None:
    found = origin()
    assert found == Origin(
        id=ProcessId(7, 4242),
        argv=("python3", "t.py"),
        cwd="/root",
        env={"A": "1", "B": "x=y"},
        uid=1000,
        gid=50,
        groups=(4, 44),
        umask=0o027,
        nice=5,
        limits={"CPU": (-1, -1), "NOFILE": (1024, 524288), "NICE": (0, 0)},
        log=None,
        exe="/usr/bin/p",
    )


@pytest.mark.parametrize(
    ("facts", "env", "said"),
    [
        ({"env": b""}, {}, ""),
        ({"env": b"A=1\0CUT=ab"}, {"A": "1"}, "was cut off: CUT and what follows is missing"),
        ({"env": b"A=1\0\0\0\0"}, None, "has been overwritten"),
        ({"env": b" train: step 5\0"}, None, "has been overwritten"),
        ({"env": b"A=1\0A=2\0"}, {"A": "1"}, ""),
        ({"env": b"A=\xff\0"}, {"A": "\udcff"}, ""),
        ({"env": b"", "size": 9}, None, "could not be read"),
        ({"env": b"A=a\n/proc/8/environ:B=1\0"}, {"A": "a\n/proc/8/environ:B=1"}, ""),
    ],
)
def test_the_environment(facts: dict[str, Any], env: dict[str, str] | None, said: str) -> None:
    found = origin(**facts)
    assert found.env == env
    assert said in " ".join(found.unseen)
    assert bool(found.unseen) == bool(said)


@pytest.mark.parametrize(
    ("links", "log", "said"),
    [
        ((("fd/1", "/w/a.log", "f"), ("fd/2", "/w/b.log", "f")), "/w/a.log", ""),
        ((("fd/1", "pipe:[3]", "p"), ("fd/2", "/w/b.log", "f")), "/w/b.log", ""),
        ((("fd/1", "/dev/null", "c"), ("fd/2", "/dev/pts/1", "c")), None, ""),
        ((("fd/1", "/w/fifo", "p"),), None, ""),
        ((("fd/1", "/w/a.log (deleted)", "f"),), None, "/w/a.log, which has been deleted"),
        ((("fd/1", "/memfd:x (deleted)", "f"),), None, "/memfd:x, which has been deleted"),
        ((("cwd", "/w (deleted)", "d"),), None, "its working directory, /w, has been deleted"),
        ((("exe", "/usr/bin/p (deleted)", "f"),), None, "its program, /usr/bin/p, has been"),
        ((("cwd", "", ""), ("exe", "", "")), None, ""),
    ],
)
def test_where_its_output_goes(
    links: tuple[tuple[str, str, str], ...], log: str | None, said: str
) -> None:
    found = origin(links=links)
    assert found.log == log
    assert said in " ".join(found.unseen)


MAP = "         0     100000      65536\n"


@pytest.mark.parametrize(
    ("facts", "first", "uid", "groups"),
    [
        # a plain host, and a container's shell: the numbers are as they stand
        ({}, None, 1000, (4, 44)),
        ({"maps": MAP}, 7, 1000, (4, 44)),
        # from the host, an unprivileged container
        (
            {
                "maps": MAP,
                "ns": "user:[2]",
                "status": "Uid:\t0\t100034\t0\t0\nGid:\t0\t100012\t0\t0\nGroups:\t100004 44\n",
            },
            7,
            34,
            (4,),
        ),
        ({"maps": MAP, "ns": "user:[2]"}, 7, None, ()),
        # whose namespace cannot be told: its map is what counts
        ({"ns": "", "ours": None}, 7, 1000, (4, 44)),
    ],
)
def test_ids(
    facts: dict[str, Any], first: int | None, uid: int | None, groups: tuple[int, ...]
) -> None:
    found = origin(first, **facts)
    assert (found.uid, found.groups) == (uid, groups)
    assert (uid is None or len(groups) < 2) == any("no number" in each for each in found.unseen)


def test_ids_in_a_namespace_below_the_containers_are_the_containers() -> None:
    """A docker container in it has a map of its own; who relaunches is the container's root."""
    ids = "Uid:\t0\t100500\t0\t0\nGid:\t0\t100500\t0\t0\nGroups:\t\n"
    inner = answer(status=ids, maps="0 100500 1000\n", ns="user:[3]")
    init = answer(at="/proc/3", maps=MAP, ns="user:[2]", status=ids)
    head, _, records = inner.partition(b"\n\0")
    first_head, _, first_records = init.partition(b"\n\0")
    ours = b"/proc/self/ns/user\0user:[1]\0f\0"
    # links of both stand before the words of both
    links = [records[: records.index(b"/proc/7/cmdline")].removeprefix(ours)]
    links += [first_records[: first_records.index(b"/proc/3/cmdline")].removeprefix(ours)]
    words = [records[records.index(b"/proc/7/cmdline") :]]
    words += [first_records[first_records.index(b"/proc/3/cmdline") :]]
    both = head + b"\n" + first_head + b"\n\0" + ours + b"".join(links) + b"".join(words)
    found = parse_origins(both, first=3)
    assert found[7].uid == 500
    assert found[7].env == {"A": "1", "B": "x=y"}


@pytest.mark.parametrize(
    ("outer", "maps", "inner"),
    [
        (5, None, 5),
        (100000, [(0, 100000, 65536)], 0),
        (165535, [(0, 100000, 65536)], 65535),
        (165536, [(0, 100000, 65536)], None),
        (99999, [(0, 100000, 65536)], None),
        (1000, [(0, 100000, 1000), (1000, 1000, 1), (1001, 101001, 64535)], 1000),
        (101001, [(0, 100000, 1000), (1000, 1000, 1), (1001, 101001, 64535)], 1001),
        (7, [], None),
        (None, [(0, 0, 1)], None),
    ],
)
def test_an_id_in_the_other_namespace(
    outer: int | None, maps: list[tuple[int, int, int]] | None, inner: int | None
) -> None:
    assert inner_id(outer, maps) == inner


def test_what_is_not_there_and_what_is_no_answer() -> None:
    assert parse_origins(b"") == {}
    assert parse_origins(b"\n\0") == {}
    assert parse_origins(answer().replace(b"/proc/7/stat:", b"/proc/7/sta:")) == {}
    dead = origin(env=b"", argv=b"", links=(), ns="", size=0)
    assert dead.argv == ()
    assert set(dead.unseen) == {
        "its command line could not be read",
        "its open files, directory and program could not be read",
    }


def test_a_title_is_no_command_line() -> None:
    assert "one text" in origin(argv=b"ray::train step 5\0").unseen[0]
    assert origin(argv=b"python3\0\0-x\0").argv == ("python3", "", "-x")


@pytest.mark.parametrize(
    ("cwd", "pwd", "script", "places"),
    [
        ("/a", "/b", "t.py", ("/a", "/b")),
        ("/a", "/a", "t.py", ("/a",)),
        ("/a", "/b", "/t.py", ("/a",)),
        ("/a", "/b", None, ("/a",)),
        ("/a", "b", "t.py", ("/a",)),
        (None, "/b", "t.py", ("/b",)),
        (None, None, "t.py", ()),
    ],
)
def test_where_it_was_started(
    cwd: str | None, pwd: str | None, script: str | None, places: tuple[str, ...]
) -> None:
    env = {"PWD": pwd} if pwd else {}
    assert started_in(Origin(ProcessId(1, 1), cwd=cwd, env=env), script) == places


OUTERMOST = {
    "the trainer itself": ("2 sshd\n  3 -bash\n    4 python train.py", 4),
    "its script": ("2 sshd\n  3 bash run.sh\n    4 python train.py", 3),
    "a script below a pass-through": (
        "2 tmux\n  3 timeout 9h bash run.sh\n    4 bash run.sh\n      5 python train.py",
        3,
    ),
    "a launcher": (
        "2 bash run.sh\n  3 torchrun train.py\n    4 python train.py # gpu=0 rank\n"
        "    5 python train.py # gpu=1 rank",
        2,
    ),
    "below a supervisor": ("2 supervisord\n  3 bash run.sh\n    4 python train.py", 3),
    "our own": ("2 python -I /b/supervise.py s.json\n  3 bash run.sh\n    4 python train.py", 3),
    "a shell with others is somebody's": (
        "2 bash run.sh\n  3 python train.py\n  4 python other.py",
        3,
    ),
}


@pytest.mark.parametrize("name", OUTERMOST)
def test_which_is_started_anew(name: str) -> None:
    text, pid = OUTERMOST[name]
    told = tree("1 init\n" + "\n".join(f"  {line}" for line in text.splitlines()))
    (family,) = find(told, Match(script="train.py"), None).families
    found = outermost(told, family)
    assert found is not None
    assert found.id.pid == pid


def test_trees_that_nothing_joins_have_no_one_start() -> None:
    told = tree("1 init\n  2 python train.py\n  3 python train.py")
    one, two = find(told, Match(script="train.py"), None).families
    both = msgspec.structs.replace(one, members=(*one.members, *two.members))
    assert outermost(told, both) is None


def test_the_tee_that_it_writes_to() -> None:
    text = (
        "1 init\n  2 bash -c 'python train.py | tee log'\n    3 python train.py # 1>a\n"
        "    4 tee log # 0<a\n    5 tee other # 0<b"
    )
    told = tree(text)

    def writes(pid: int, path: str) -> None:
        here = told.processes[pid]
        assert here.detail is not None
        file = OpenFile(3, path, 0o100001, 0)
        detail = msgspec.structs.replace(here.detail, files=(*(here.detail.files or ()), file))
        told.processes[pid] = msgspec.structs.replace(here, detail=detail)

    writes(4, "/root/log")
    writes(5, "/root/other")
    (family,) = find(told, Match(script="train.py"), None).families
    assert tee_log(told, family) == "/root/log"
    assert tee_log(told, family, told.processes[2]) == "/root/log"
    # what somebody typed behind it is not started again with it
    assert tee_log(told, family, told.processes[3]) is None
    writes(3, "/x")
    told.processes.pop(4)
    assert tee_log(told, family) is None
