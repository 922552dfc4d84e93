"""Outsiders with business in a directory of checkpoints."""

from __future__ import annotations

import pytest

from fleetstop.core.process import Detail, OpenFile, Process, ProcessId, ProcessTree
from fleetstop.core.saves.neighbours import under, with_business

ROOTS = ("/ck", "/data/ck")


def found(argv: str, *files: tuple[str, int], seen: bool = True, member: bool = False) -> bool:
    opened = tuple(OpenFile(5 + n, path, flags, 0) for n, (path, flags) in enumerate(files))
    process = Process(
        id=ProcessId(7, 70), ppid=1, pgid=7, sid=7, state="S", comm="x", flags=0, threads=1,
        ticks=0, rss_kib=1, tracer=0, masks=None, argv=tuple(argv.split()),
        detail=Detail(files=opened if seen else None),
    )  # fmt: skip
    members = frozenset([process.id]) if member else frozenset()
    return with_business(ProcessTree({7: process}, uptime=9.0), members, ROOTS) is not None


@pytest.mark.parametrize(
    ("argv", "files", "business"),
    [
        ("python other.py", (), False),
        ("python other.py --out /ck", (), True),
        ("python other.py --out=/data/ck/b/", (), True),
        ("/usr/bin/python3 other.py --out /ck2", (), False),
        # these only read
        ("bash -c 'ls /ck'", (), False),
        ("tail -f /ck/a.log", (), False),
        ("python -m tensorboard.main --logdir /ck", (), False),
        ("rsync -a /ck backup:", (), False),
        ("rsync --server . /ck", (("/ck/.a.pt.x1", 0o100001),), True),
        ("cat", (("/data/ck/a.pt", 0o102001),), True),
        ("cat", (("/ck/a.pt", 0o100000),), False),
        ("cat", (("/elsewhere/a.pt", 0o100001),), False),
    ],
)
def test_who_may_write_there(argv: str, files: tuple[tuple[str, int], ...], business: bool) -> None:
    assert found(argv, *files) is business
    assert not found(argv, *files, member=True)


def test_whose_files_are_not_seen_may() -> None:
    assert found("sh", seen=False)


def test_under() -> None:
    assert under("/ck/a/", ("/ck",))
    assert under("/ck", ("/ck/",))
    assert not under("/ck2", ("/ck",))
    assert not under("/", ("/ck",))
    assert under("/ck", ("/",))
