from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fleetstop.core.gpu import Unseen
from fleetstop.core.saves.checkpoint import (
    MOST_ENTRIES,
    TAIL_BYTES,
    Checkpoint,
    Entry,
    Listing,
    checkpoints,
    growing,
    is_log_like,
    is_temp,
    new_checkpoints,
    new_since,
    newest,
    parse_listing,
    temp_without_final,
    written_since,
)
from fleetstop.core.saves.wholeness import read, wanted

NOWHERE: frozenset[str] = frozenset()


def listing(*files: tuple[str, int, int, float], dirs: tuple[str, ...] = ()) -> Listing:
    """`files`: name, inode, size, mtime."""
    found = [Entry(f"/ck/{name}", inode, size, at, "f") for name, inode, size, at in files]
    found += [Entry(f"/ck/{name}", 1, 4096, 5.0, "d") for name in dirs]
    return Listing("/ck/", tuple(found))


def record(path: str, kind: str = "f", inode: str = "7", size: str = "10") -> bytes:
    return "\0".join((kind, inode, size, "1700000000.1234567890", path, "")).encode()


ROOT = record("/ck", "d")


def the(found: Listing) -> Checkpoint:
    checkpoint = newest(found)
    assert checkpoint is not None
    return checkpoint


def zipped(size: int = 3000, comment: bytes = b"") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data/0", os.urandom(size))
        archive.comment = comment
    return buffer.getvalue()


def judge(name: str, data: bytes, *, head: bool = True, stable: bool = True) -> bool | None:
    checkpoint = the(listing((name, 2, len(data), 9.0)))
    path = checkpoint.files[0].path
    tails = {path: data[-TAIL_BYTES:]} if wanted(checkpoint) else {}
    heads = {path: data[:4096]} if head else None
    return read(checkpoint, tails, heads, stable, NOWHERE).whole


def test_a_listing_is_read() -> None:
    read = parse_listing(ROOT + record("/ck/step_1", "d") + record("/ck/step_1/a\nb.pt"), 0)
    assert isinstance(read, Listing)
    assert [read.name(each) for each in read.entries] == ["step_1", "step_1/a\nb.pt"]
    assert read.entries[1] == Entry("/ck/step_1/a\nb.pt", 7, 10, 1700000000.1234567890, "f")


@pytest.mark.skipif(not shutil.which("find"), reason="no find here")
def test_the_real_find(tmp_path: Path) -> None:
    (tmp_path / "step_1").mkdir()
    (tmp_path / "step_1" / "model.pt").write_bytes(b"abc")
    where = ["find", f"{tmp_path}/", "-maxdepth", "3"]
    what = ["(", "-type", "f", "-o", "-type", "d", ")", "-printf", r"%y\0%i\0%s\0%T@\0%p\0"]
    read = parse_listing(subprocess.run([*where, *what], capture_output=True, check=True).stdout, 0)
    assert isinstance(read, Listing)
    assert the(read).name == "step_1"
    assert the(read).path == f"{tmp_path}/step_1"
    assert the(read).size == 3


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"", 0),
        (ROOT, 1),
        (ROOT + record("/ck/a.pt")[:-3], 0),
        (record("/ck/a.pt"), 0),
        (ROOT + record("/elsewhere/a.pt"), 0),
        (ROOT + record("/ck/a.pt", "l"), 0),
        (ROOT + record("/ck/a.pt", inode="x"), 0),
        (ROOT + record("/ck/a.pt", size="-1"), 0),
        (ROOT + record("/ck/a.pt") * 2, 0),
        (b"find: '/ck': No such file or directory\n", 0),
        (ROOT + record("/ck/a.pt") * (MOST_ENTRIES + 1), 0),
    ],
    ids=range(11),
)
def test_what_is_no_listing_is_unseen(data: bytes, status: int) -> None:
    read = parse_listing(data, status)
    assert isinstance(read, Unseen)
    assert read.reason


def test_the_most_entries_are_read() -> None:
    data = ROOT + b"".join(record(f"/ck/{n}.pt") for n in range(MOST_ENTRIES))
    assert isinstance(parse_listing(data, 0), Listing)


@given(data=st.binary(max_size=200), status=st.sampled_from([0, 1]))
@example(data=ROOT + b"f\x00" + b"9" * 5000 + b"\x001\x001\x00/ck/a\x00", status=0)
def test_any_bytes_are_a_listing_or_unseen(data: bytes, status: int) -> None:
    assert isinstance(parse_listing(data, status), Listing | Unseen)
    read = parse_listing(ROOT + b"f\x001\x002\x003\x00/ck/" + data.replace(b"\0", b"") + b"\0", 0)
    if isinstance(read, Listing):
        newest(read), temp_without_final(read), growing(read, read), new_since(read, read)


TEMP = """a.pt.tmp .tmpX1y2 a.tmp.17 a.partial a.part a.incomplete a.writing .a.pt .metadata.tmp
tmp-checkpoint-5/a.pt checkpoint-5.tmp-17/a.pt checkpoint-5/checkpoint-is-incomplete.txt"""
FINAL = "a.pt step_1/.metadata attempt-1.pt tmpfs.pt party"
LOGS = """a.log a.txt a.json a.jsonl a.yaml events.out.tfevents.1.host r.wandb a.csv a.lock a.pid
train.py sample_0001.png step_5.mp4"""


@pytest.mark.parametrize("name", TEMP.split())
def test_temporary_names(name: str) -> None:
    assert is_temp(name)
    assert newest(listing((name, 2, 10, 9.0))) is None


@pytest.mark.parametrize("name", FINAL.split())
def test_final_names(name: str) -> None:
    assert not is_temp(name)
    assert newest(listing((name, 2, 10, 9.0))) is not None


@pytest.mark.parametrize("name", LOGS.split())
def test_logs_are_no_checkpoints(name: str) -> None:
    assert is_log_like(name)
    assert newest(listing((name, 2, 10, 9.0), ("latest", 3, 8, 9.0))) is None
    assert growing(listing(), listing((f"runs/{name}", 2, 10, 9.0))) == ()


def test_a_subdirectory_is_one_checkpoint() -> None:
    found = listing(
        ("step_2/a.pt", 2, 10, 8.0), ("step_2/deep/b.pt", 3, 5, 9.0), ("step_1.pt", 4, 7, 3.0)
    )
    assert [(each.name, each.size, each.mtime) for each in checkpoints(found)] == [
        ("step_1.pt", 7, 3.0),
        ("step_2", 15, 9.0),
    ]
    assert the(found).path == "/ck/step_2"


BEFORE = listing(("last.pt", 2, 10, 8.0), ("next.pt.tmp", 3, 10, 9.0))
NEW: list[tuple[str, Listing, tuple[str, ...]]] = [
    ("nothing changed", BEFORE, ()),
    ("only a torn temporary file", listing(("last.pt", 2, 10, 8.0), ("n.pt.tmp", 4, 5, 10.0)), ()),
    ("written in place", listing(("last.pt", 2, 11, 8.0)), ("last.pt",)),
    ("replaced: inode alone", listing(("last.pt", 5, 10, 8.0)), ("last.pt",)),
    ("by a clock that went back", listing(("last.pt", 2, 10, 1.0)), ("last.pt",)),
    ("the old one moved away: no new save", listing(("last.old.pt", 2, 10, 8.0)), ()),
    ("a temporary file got its name", listing(("next.pt", 3, 10, 9.0)), ("next.pt",)),
    ("only a log", listing(("train.log", 9, 10, 99.0)), ()),
    ("a directory", listing(("step_9/a.pt", 9, 1, 9.0), ("step_9/b.pt", 8, 1, 9.0)), ("step_9",)),
]


@pytest.mark.parametrize(("now", "names"), [each[1:] for each in NEW], ids=[e[0] for e in NEW])
def test_new_since(now: Listing, names: tuple[str, ...]) -> None:
    assert tuple(each.name for each in new_checkpoints(BEFORE, now)) == names
    assert bool(new_since(BEFORE, now)) == bool(names)


def test_growing() -> None:
    a = listing(("a.pt", 2, 10, 8.0), ("b.pt.tmp", 3, 10, 8.0), ("c.log", 4, 1, 8.0))
    b = listing(("a.pt", 2, 10, 8.0), ("b.pt.tmp", 3, 12, 8.0), ("c.log", 4, 9, 9.0))
    assert growing(a, b) == ("/ck/b.pt.tmp",)
    assert growing(b, b) == ()
    assert growing(listing(), a) == ("/ck/a.pt", "/ck/b.pt.tmp")


@pytest.mark.parametrize(
    ("found", "names"),
    [
        (listing(("a.pt.tmp", 2, 10, 9.0)), ["a.pt.tmp"]),
        (listing(("a.pt.tmp", 2, 10, 9.0), ("a.pt", 3, 10, 8.0)), ["a.pt.tmp"]),
        (listing(("a.pt.tmp", 2, 10, 9.0), ("a.pt", 3, 10, 10.0)), []),
        (listing(("a.pt.tmp.17", 2, 10, 9.0), ("a.pt", 3, 10, 10.0)), []),
        (listing(("a.tmp.pt", 2, 10, 9.0), ("a.pt", 3, 10, 10.0)), []),
        (listing((".a.pt", 2, 10, 9.0), ("a.pt", 3, 10, 10.0)), []),
        (listing((".tmpX1", 2, 10, 9.0), ("a.pt", 3, 10, 10.0)), [".tmpX1"]),
        (listing(("tmp-s/a.pt", 2, 10, 9.0), dirs=("tmp-s",)), ["tmp-s"]),
        (listing(("tmp-s/a.pt", 2, 10, 9.0), dirs=("tmp-s", "s")), []),
        (listing((".gitignore", 2, 10, 9.0), (".nfs01", 2, 1, 9.0), dirs=(".hydra",)), []),
    ],
    ids=range(10),
)
def test_temp_without_final(found: Listing, names: list[str]) -> None:
    assert [found.name(each) for each in temp_without_final(found)] == names


def test_a_zip_is_whole_by_its_end_record() -> None:
    data = zipped()
    for name in ("a.pt", "a.pth", "a.bin", "a.ckpt", "a.zip", "a.npz"):
        assert judge(name, data) is True
        assert judge(name, data, stable=False) is True
        assert judge(name, data[:-1]) is False
        assert judge(name, data[:1500]) is False
    assert judge("a.pt", zipped(comment=b"x" * 900)) is True
    assert judge("a.pt", zipped(comment=b"PK\x05\x06" * 9)) is True
    assert judge("a.pt", zipped(comment=b"x" * 1100)) is False


def test_without_a_head_a_torn_file_may_be_of_another_format() -> None:
    assert judge("a.pt", zipped(), head=False) is True
    assert judge("a.pt", zipped()[:1500], head=False) is None
    assert judge("a.npz", zipped()[:1500], head=False) is False
    checkpoint = the(listing(("a.pt", 2, 3000, 9.0)))
    assert read(checkpoint, {}, {"/ck/a.pt": b"PK\x03\x04"}, True, NOWHERE).whole is None
    assert read(checkpoint, {}, None, True, NOWHERE).whole is None


def test_an_end_record_of_something_inside_is_not_enough() -> None:
    inner = zipped(10)
    torn = zipped(5000)[:2000] + inner + b"more"
    assert judge("a.pt", torn) is False
    beyond = b"PK\x03\x04" + b"PK\x05\x06" + bytes(12) + (999).to_bytes(4, "little") + bytes(2)
    assert judge("a.pt", beyond) is False


def test_an_unknown_format_is_whole_when_closed_and_still() -> None:
    pickle = b"\x80\x02\x8a\nl\xfc\x9cF"
    for name, data in (("a.pt", pickle), ("a.model", b"abc")):
        assert judge(name, data) is True
        # it could not be told: that it stands still was not seen yet
        assert judge(name, data, stable=False) is None
    checkpoint = the(listing(("a.model", 2, 3, 9.0)))
    assert read(checkpoint, {}, None, True, frozenset({"/ck/a.model"})).whole is False
    assert read(the(listing(("a.model", 2, 0, 9.0))), {}, None, True, NOWHERE).whole is False


def tensors(ends: list[int], body: int) -> bytes:
    each = {f"t{n}": {"dtype": "U8", "data_offsets": [0, end]} for n, end in enumerate(ends)}
    header = json.dumps({"__metadata__": {"format": "pt"}, **each}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(body)


def test_safetensors_must_reach_their_last_tensor() -> None:
    assert judge("a.safetensors", tensors([10, 20], 20)) is True
    assert judge("a.safetensors", tensors([10, 20], 19)) is False
    assert judge("a.safetensors", tensors([10], 10)[:30]) is False
    assert judge("a.safetensors", b"\x02" + bytes(7) + b"[]") is False
    long = tensors([1] * 200, 1)
    assert judge("a.safetensors", long) is True
    assert judge("a.safetensors", long, stable=False) is None
    assert judge("a.safetensors", long, head=False) is True


def whole(*names: str) -> bool | None:
    files = tuple((f"step_1/{name}", n, 10, 9.0) for n, name in enumerate(names))
    return read(the(listing(*files)), {}, None, True, NOWHERE).whole


def test_directories() -> None:
    assert whole("__0_0.distcp", ".metadata") is True
    assert whole("__0_0.distcp") is False
    assert whole("__0_0.distcp", ".metadata.tmp") is False
    assert whole("m-00001-of-00002.safetensors", "m-00002-of-00002.safetensors") is True
    assert whole("m-00001-of-00002.safetensors", "x-00002-of-00002.safetensors") is False
    assert whole("model.safetensors", "optimizer.dat.tmp") is False
    assert whole("model.safetensors", "checkpoint-is-incomplete.txt") is False
    assert whole("model.safetensors", "optimizer.pt") is None
    assert whole("model.safetensors", "trainer_state.json") is True


def test_one_torn_file_spoils_a_directory() -> None:
    good, torn = zipped(), zipped()[:1500]
    found = the(listing(("s/a.pt", 2, len(good), 9.0), ("s/b.pt", 3, len(torn), 9.0)))
    assert [each.path for each in wanted(found)] == ["/ck/s/a.pt", "/ck/s/b.pt"]
    blobs = {"/ck/s/a.pt": good, "/ck/s/b.pt": torn}
    assert read(found, blobs, blobs, True, NOWHERE).whole is False


@given(
    name=st.sampled_from(["a.pt", "a.npz", "a.safetensors", "a.model"]),
    head=st.binary(max_size=80) | st.just(b"PK\x03\x04"),
    tail=st.binary(max_size=60) | st.binary(max_size=40).map(lambda each: b"PK\x05\x06" + each),
    size=st.integers(0, 100),
    stable=st.booleans(),
)
@example("a.safetensors", b"\x0f" + bytes(7) + b'{"a":{"b":"c"}}', b"", 90, True)
def test_any_bytes_are_judged(name: str, head: bytes, tail: bytes, size: int, stable: bool) -> None:
    checkpoint = the(listing((name, 2, size, 9.0)))
    path = checkpoint.path
    assert read(checkpoint, {path: tail}, {path: head}, stable, NOWHERE).whole in (
        True,
        False,
        None,
    )
    assert read(checkpoint, {path: tail}, {path: head}, stable, frozenset({path})).whole is False


@given(cut=st.integers(1, 3100))
def test_no_part_of_a_zip_is_whole(cut: int) -> None:
    assert judge("a.pt", zipped()[:-cut]) is not True


def test_a_checkpoint_is_written_since_a_listing_when_any_of_its_files_moved() -> None:
    one, two = ("s/a.pt", 1, 10, 5.0), ("s/b.pt", 2, 10, 5.0)
    before = listing(one, two)
    (same,) = checkpoints(before)
    assert not written_since(before, same)
    for moved in (("s/b.pt", 3, 10, 5.0), ("s/b.pt", 2, 11, 5.0), ("s/b.pt", 2, 10, 6.0)):
        (now,) = checkpoints(listing(one, moved))
        assert written_since(before, now)
    assert written_since(listing(one), same)
