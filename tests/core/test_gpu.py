from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fleetstop.core.gpu import (
    Gpu,
    GpuTable,
    GpuView,
    Holder,
    Unseen,
    held_mib,
    indexes_of,
    parse_apps,
    parse_gpus,
    released,
    view,
)

SAMPLES = Path(__file__).parents[1] / "samples" / "nvidia_smi"
CASES = list(
    csv.DictReader(
        (SAMPLES / "INDEX.tsv").read_text().splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE
    )
)
A, B = "GPU-aaaa", "GPU-bbbb"
OURS = frozenset({100, 101})
NOBODY: frozenset[int] = frozenset()
ODD = (
    "[N/A]",
    "N/A",
    "[Not Supported]",
    "[Insufficient Permissions]",
    "[Not Found]",
    "[Unknown Error]",
    "[GPU requires reset]",
    "[GPU is lost]",
    "ERR!",
    "[Function Not Found]",
    "",
    "-1",
    "1e3",
    "٣",
)


def look(*gpus: tuple[int, str, int | None], holders: tuple[Holder, ...] = ()) -> GpuView:
    return GpuView(tuple(Gpu(index, uuid, used, 81559) for index, uuid, used in gpus), holders)


BEFORE = look((0, A, 30020), (1, B, 24), holders=(Holder(A, 100, 20000), Holder(A, 101, 10000)))


def says(now: GpuView | Unseen, holding: frozenset[int] | None = NOBODY, index: int = 0) -> Any:
    (verdict,) = released(BEFORE, now, OURS, holding, frozenset({index}))
    assert verdict.index == index
    assert verdict.reason
    return verdict


def test_every_sample_is_a_case() -> None:
    assert {each["file"] for each in CASES} == {each.name for each in SAMPLES.glob("*.txt")}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['file']}-{case['status']}")
def test_samples(case: dict[str, str]) -> None:
    text, status = (SAMPLES / case["file"]).read_bytes(), int(case["status"])
    read = (parse_apps if case["query"] == "apps" else parse_gpus)(text, status)
    expected = msgspec.json.decode(case["expect"])
    if isinstance(read, Unseen):
        assert isinstance(expected, str), read
        assert expected in read.reason
        assert "{" not in read.reason
    else:
        rows = read.gpus if isinstance(read, GpuTable) else read
        assert [list(msgspec.structs.astuple(each)) for each in rows] == expected


def test_the_real_question() -> None:
    table = parse_gpus(b"0, GPU-aaaa, 30020, 81559\r\n1, GPU-bbbb, 24 MiB, 81559 MiB\n", 0)
    assert table == GpuTable((Gpu(0, A, 30020, 81559), Gpu(1, B, 24, 81559)))
    assert parse_apps(b"GPU-aaaa, 0, 5", 0) == (Holder(A, None, 5),)
    assert parse_apps(b"GPU-aaaa, 100, 20000\nGPU-bbbb, 100, 5\n", 0) == (
        Holder(A, 100, 20000),
        Holder(B, 100, 5),
    )


def test_empty_is_no_process_but_never_no_gpu() -> None:
    assert parse_apps(b"", 0) == ()
    assert isinstance(parse_gpus(b"", 0), Unseen)
    for status in (1, 2, 6, 9, 14, 15, 18, 124, 127, 137, 255, -1):
        assert isinstance(parse_apps(b"", status), Unseen)


def test_a_corrupted_inforom_is_a_warning() -> None:
    warning = "WARNING: infoROM is corrupted at gpu 0000:00:1E.0"
    table = parse_gpus(f"0, GPU-aaaa, 5, 81559\n{warning}\n".encode(), 14)
    assert table == GpuTable((Gpu(0, A, 5, 81559),), (warning,))
    assert parse_apps(f"{warning}\n".encode(), 14) == ()
    bare = parse_gpus(b"0, GPU-aaaa, 5, 81559\n", 14)
    assert isinstance(bare, GpuTable)
    assert bare.warnings


def test_a_fault_in_any_cell_makes_the_numbers_beside_it_unknown() -> None:
    table = parse_gpus(b"0, GPU-aaaa, [GPU is lost], 0, 81559\n1, GPU-bbbb, 41, 7, 81559\n", 0)
    assert isinstance(table, GpuTable)
    assert table.gpus == (Gpu(0, A, None, None, "is lost"), Gpu(1, B, 7, 81559))
    assert table.warnings == ("GPU 0 is lost",)


@pytest.mark.parametrize("odd", ODD)
def test_odd_cells_are_unknown_never_zero(odd: str) -> None:
    table = parse_gpus(f"0, GPU-aaaa, {odd}, {odd}".encode(), 0)
    assert isinstance(table, GpuTable)
    assert (table.gpus[0].used_mib, table.gpus[0].total_mib) == (None, None)
    (holder,) = _apps(f"GPU-aaaa, {odd}, {odd}")
    assert (holder.pid, holder.mib) == (None, None)
    assert says(look((0, A, 20), (1, B, 24), holders=(holder,))).released is None


def _apps(text: str) -> tuple[Holder, ...]:
    holders = parse_apps(text.encode(), 0)
    assert not isinstance(holders, Unseen)
    return holders


def test_one_gpu_twice_is_no_answer() -> None:
    assert isinstance(parse_gpus(b"0, GPU-aaaa, 1, 2\n0, GPU-bbbb, 1, 2", 0), Unseen)
    assert isinstance(parse_gpus(b"0, GPU-aaaa, 1, 2\n1, GPU-aaaa, 1, 2", 0), Unseen)


def test_held_and_where() -> None:
    assert indexes_of(BEFORE, OURS) == (0,)
    assert held_mib(BEFORE, OURS, 0) == 30000
    assert held_mib(BEFORE, OURS, 1) == 0
    assert held_mib(BEFORE, OURS, 7) is None
    assert BEFORE.unlisted_mib(A) == 20
    hidden = look((0, A, 500), holders=(Holder(A, None, None), Holder(A, 100, 7)))
    assert held_mib(hidden, OURS, 0) is None
    assert hidden.unlisted_mib(A) is None


def test_released_when_nothing_of_ours_is_left() -> None:
    verdict = says(look((0, A, 276), (1, B, 24)))
    assert verdict.released is True
    assert "276 MiB" in verdict.reason
    foreign = (Holder(A, 7, 40000),)
    assert says(look((0, A, 40020), (1, B, 24), holders=foreign)).released is True


STORIES: list[tuple[str, GpuView | Unseen, frozenset[int] | None, bool | None, str]] = [
    ("not asked", Unseen("no driver"), NOBODY, None, "no driver"),
    ("not asked, yet open", Unseen("x"), frozenset({100}), False, "pid 100"),
    ("vanished", look((0, B, 24)), NOBODY, None, "no longer listed"),
    ("vanished, one of ours lives", look((0, B, 24)), OURS, None, "no longer listed"),
    ("holders not looked at", look((0, A, 20)), None, None, "/dev/nvidia*"),
    ("used not told", look((0, A, None)), NOBODY, None, "in use"),
    ("277 MiB, nobody listed", look((0, A, 277)), NOBODY, False, "277 MiB"),
    ("open in one of ours", look((0, A, 20)), frozenset({101, 5}), False, "pid 101"),
    ("open in a stranger", look((0, A, 20)), frozenset({5}), True, "released"),
    (
        "a dead parent keeps its row through its forked child",
        look((0, A, 20020), holders=(Holder(A, 100, 20000),)),
        NOBODY,
        False,
        "pid 100 (20000 MiB)",
    ),
    (
        "ours, size not told",
        look((0, A, 20020), holders=(Holder(A, 100, None),)),
        None,
        False,
        "pid 100 (size not known)",
    ),
    (
        "somebody who hides",
        look((0, A, 20), holders=(Holder(A, None, None),)),
        NOBODY,
        None,
        "hides",
    ),
    (
        "a row of no GPU we know may be of this one",
        look((0, A, 20), holders=(Holder("", 100, 5),)),
        NOBODY,
        None,
        "hides",
    ),
    (
        "the two answers are of two moments: a listed newcomer must not cover what is left",
        look((0, A, 2000), holders=(Holder(A, 7, 9000),)),
        NOBODY,
        None,
        "look again",
    ),
]


@pytest.mark.parametrize(
    ("now", "holding", "expected", "word"), [s[1:] for s in STORIES], ids=[s[0] for s in STORIES]
)
def test_stories(
    now: GpuView | Unseen, holding: frozenset[int] | None, expected: bool | None, word: str
) -> None:
    verdict = says(now, holding)
    assert verdict.released is expected
    assert word in verdict.reason
    assert bool(verdict.holders) == ("pid 10" in verdict.reason)


def test_the_other_gpu_is_judged_by_itself() -> None:
    now = look((0, A, 30020), (1, B, 24), holders=(Holder(A, 100, 30000),))
    assert says(now, index=1).released is True
    assert says(now, index=5).released is None


def test_an_index_that_shifted_is_followed_by_uuid() -> None:
    """GPU 0 fell off the bus, so the idle one is 0 now: that is not ours being free."""
    now = look((0, B, 24))
    assert says(now, index=0).released is None
    assert says(now, index=1).released is True


CELL = st.sampled_from(["0", "1", "100", "20", "30000", A, B, "python, x", *ODD]) | st.text(
    max_size=8
)
LINE = st.lists(CELL, max_size=6).map(", ".join)
ANSWER = st.binary(max_size=300) | st.lists(LINE, max_size=5).map(
    lambda lines: "\n".join(lines).encode()
)
STATUS = st.sampled_from([0, 0, 0, 14, 9, 255])


@given(gpus=ANSWER, apps=ANSWER, status=STATUS)
@example(gpus=b"0, GPU-aaaa, 20, 81559", apps=b"", status=0)
@example(
    gpus=b"9" * 5000 + b", GPU-aaaa, 1, 2", apps=b"GPU-aaaa, " + b"9" * 5000 + b", 1", status=0
)
def test_released_is_never_said_from_unknown(gpus: bytes, apps: bytes, status: int) -> None:
    now = view(parse_gpus(gpus, status), parse_apps(apps, status))
    for verdict in released(BEFORE, now, OURS, NOBODY, frozenset({0, 1, 2})):
        if verdict.released:
            assert isinstance(now, GpuView)
            assert status in (0, 14)
            (gpu,) = (each for each in now.gpus if each.uuid == verdict.uuid)
            assert gpu.used_mib is not None
            assert gpu.fault is None
            rows = [each for each in now.holders if each.uuid in (verdict.uuid, "")]
            assert all(each.pid and each.mib is not None for each in rows)
            assert OURS.isdisjoint(each.pid for each in rows if each.pid)


@given(at=st.integers(0, 3), odd=st.sampled_from(ODD), holding=st.sampled_from([None, NOBODY]))
def test_one_spoiled_cell_is_enough(at: int, odd: str, holding: frozenset[int] | None) -> None:
    cells = ["0", A, "20", "81559"]
    cells[at] = odd
    now = view(parse_gpus(", ".join(cells).encode(), 0), ())
    if at < 3 or "GPU" in odd:
        assert says(now, holding).released is None


def test_too_much_is_no_answer() -> None:
    assert isinstance(parse_apps(b"GPU-aaaa, 1, 1\n" * 100_000, 0), Unseen)
