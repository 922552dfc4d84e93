"""Numbers read like a person would say them."""

from __future__ import annotations

from datetime import UTC, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetstop.view import layout, naming, words

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.04, "0 s"), (1.21, "1.2 s"), (6.0, "6 s"), (9.96, "10 s"), (25.2, "25 s"), (59.7, "1 min"),
     (216, "3 min 36 s"), (3720, "1 h 2 min"), (277_200, "3 d 5 h"), (-3, "0 s"), (NAN, "?")],
)  # fmt: skip
def test_elapsed(seconds: float, said: str) -> None:
    assert words.elapsed(seconds) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(273_600, "3d 4h"), (172_800, "2d"), (15_120, "4h 12m"), (3600, "1h"), (720, "12m"),
     (45.9, "45s"), (-1, "0s"), (INF, "?")],
)  # fmt: skip
def test_uptime(seconds: float, said: str) -> None:
    assert words.uptime(seconds) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(2.2, "2 s"), (1080, "18 min"), (18_000, "5 h"), (400_000, "5 d"), (-5, "0 s"), (NAN, "?")],
)
def test_age(seconds: float, said: str) -> None:
    assert words.age(seconds) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(180, "3m"), (90, "90s"), (5400, "1h30m"), (0.5, "0.5s"), (2, "2s"), (151, "2m31s"),
     (7200, "2h"), (INF, "forever"), (None, "forever")],
)  # fmt: skip
def test_wait(seconds: float | None, said: str) -> None:
    assert words.wait(seconds) == said


@pytest.mark.parametrize(
    ("count", "said"),
    [(17, "17 B"), (126 * 2**20, "126 MiB"), (18.4 * 2**30, "18.4 GiB"), (2**40, "1.0 TiB")],
)
def test_size(count: float, said: str) -> None:
    assert words.size(count) == said


def test_lists() -> None:
    assert words.indexes([0, 1, 2, 3, 6]) == "0-3,6"
    assert words.indexes([]) == ""
    assert words.pids(range(101, 109)) == "101-108"
    assert words.pids([101, 102]) == "101, 102"
    assert words.pids(range(100, 120, 2)) == "100, 102, 104 … 118 (10 in all)"
    assert words.share(612 * 1024, 768 * 1024) == "612/768 GiB"
    assert words.memory(1536) == "1.5 GiB"


def test_clock_is_local() -> None:
    east = timezone(timedelta(hours=2))
    assert words.clock("2025-03-04T14:02:11.5Z", east) == "16:02:11"
    assert words.clock("nonsense\x1b", UTC) == "--:--:--"


@given(st.text(st.sampled_from("ab 文é"), max_size=80), st.integers(4, 30))
def test_wrapping_loses_no_letter_and_fits(text: str, width: int) -> None:
    lines = layout.wrap(text, width)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    assert all(layout.cells(each) <= width for each in lines)


@pytest.mark.parametrize(
    ("cmd", "name"),
    [
        ("bash /root/run.sh", "run.sh"),
        ("bash -x /root/run.sh", "run.sh"),
        ("bash -c 'cd /root && python3 train.py'", "bash"),
        ("sh -lc 'cd /root'", "sh"),
        ("python3 -u -c 'import x'", "python3"),
        ("python3 -m pkg.train", "pkg.train"),
        ("torchrun --nproc 8 x.py", "torchrun"),
        ("bash", "bash"),
        ("", ""),
    ],
)
def test_a_process_is_called_by_what_it_runs(cmd: str, name: str) -> None:
    assert naming.short(cmd) == name
