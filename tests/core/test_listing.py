"""The newest of many files, names of any bytes, and what a cut list may be taken for."""

from __future__ import annotations

from fleetstop.core.gpu import Unseen
from fleetstop.core.saves.checkpoint import checkpoints, growing, new_since
from fleetstop.core.saves.listing import (
    MOST_ENTRIES,
    NEWEST,
    Entry,
    Listing,
    TooMany,
    parse_listing,
    parse_newest,
    spelled,
)
from fleetstop.core.saves.wholeness import read

TOP = b"9.0 d 1 4096 /ck/\0"


def row(name: str, mtime: float, size: int = 10) -> bytes:
    return f"{mtime} f {hash(name) % 10**9} {size} /ck/{name}\0".encode()


def test_too_many_is_told_apart() -> None:
    data = b"d\x001\x000\x009.0\0/ck/\0" + b"f\x001\x000\x009.0\0/ck/a\0" * (MOST_ENTRIES + 1)
    assert isinstance(parse_listing(data, 0), TooMany)
    assert not isinstance(parse_listing(b"", 0), TooMany)


def test_the_newest_are_read_and_where_they_were_cut() -> None:
    few = parse_newest(TOP + row("b c.pt", 8.5) + row("a\nb.pt", 7.5), 0)
    assert isinstance(few, Listing)
    assert [few.name(each) for each in few.entries] == ["b c.pt", "a\nb.pt"]
    assert few.floor is None
    rows = b"".join(row(f"{n}.pt", 10_000.0 - n) for n in range(NEWEST + 1))
    many = parse_newest(TOP + rows, 0)
    assert isinstance(many, Listing)
    assert many.floor == 10_000.0 - NEWEST


def test_what_is_no_list_of_the_newest_is_unseen() -> None:
    for data, status in ((b"", 0), (TOP, 0), (TOP + b"9.0 f", 0), (TOP + row("a", 1.0), 9)):
        assert isinstance(parse_newest(data, status), Unseen)
    assert isinstance(parse_newest(TOP + b"x f 1 2 /ck/a\0", 0), Unseen)
    assert isinstance(parse_newest(TOP + b"9.0 f 1 2 /elsewhere\0", 0), Unseen)


def test_what_comes_up_from_below_a_cut_is_not_new() -> None:
    """Old checkpoints are deleted: older ones come into the list that were not there before."""
    before = Listing(
        "/ck/", (Entry("/ck/9.pt", 9, 1, 9.0, "f"), Entry("/ck/8.pt", 8, 1, 8.0, "f")), 8.0
    )
    now = Listing(
        "/ck/", (Entry("/ck/9.pt", 9, 1, 9.0, "f"), Entry("/ck/7.pt", 7, 1, 7.0, "f")), 7.0
    )
    assert new_since(before, now) == ()
    assert growing(before, now) == ()
    saved = Listing("/ck/", (*now.entries, Entry("/ck/10.pt", 10, 1, 10.0, "f")), 7.0)
    assert [each.path for each in new_since(before, saved)] == ["/ck/10.pt"]
    assert growing(before, saved) == ("/ck/10.pt",)


def test_a_set_that_may_go_on_below_the_cut_is_not_called_torn() -> None:
    shard = Entry("/ck/s/m-00002-of-00002.safetensors", 9, 100, 9.0, "f")
    [cut] = checkpoints(Listing("/ck/", (shard,), 9.0))
    assert read(cut, {}, {}, True, frozenset()).whole is None
    [all_of_it] = checkpoints(Listing("/ck/", (shard,)))
    assert read(all_of_it, {}, {}, True, frozenset()).whole is False


def test_a_name_of_any_bytes_can_be_asked_for_again() -> None:
    data = b"d\x001\x000\x009.0\0/ck/\0" + b"f\x002\x003\x009.0\0/ck/a\xff.pt\0"
    found = parse_listing(data, 0)
    assert isinstance(found, Listing)
    [entry] = found.entries
    assert entry.path.encode("utf-8", "surrogateescape") == b"/ck/a\xff.pt"
    assert spelled(entry.path) == "/ck/a\\xff.pt"
    assert spelled("/ck/é.pt") == "/ck/é.pt"
