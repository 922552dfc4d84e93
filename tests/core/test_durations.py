from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetstop.core.durations import FOREVER, parse_duration, parse_size, spoken
from fleetstop.errors import BadUsage


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90.0),
        ("3m", 180.0),
        ("1h30m", 5400.0),
        ("1d2h3m4s", 93784.0),
        ("100ms", 0.1),
        ("1s500ms", 1.5),
        ("2", 2.0),
        ("2.5", 2.5),
        ("1.5h", 5400.0),
        ("0", 0.0),
        (" 10m ", 600.0),
        ("forever", FOREVER),
    ],
)
def test_a_duration_is_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    ["", "3 m", "m", "-3m", "3M", "30m1h", "1m1m", "1h30", "1e9", "inf", "Forever", "٣m", "3min"],
)
def test_what_is_no_duration_is_said_to_be_none(text: str) -> None:
    with pytest.raises(BadUsage) as caught:
        parse_duration(text)
    expected = f"{text!r} is not a duration; write 90s, 3m, 1h30m or forever"
    assert caught.value.message == expected
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("500MiB", 500 * 1024**2),
        ("2GiB", 2 * 1024**3),
        ("1.5KiB", 1536),
        ("10MB", 10_000_000),
        ("7B", 7),
        ("7", 7),
        ("1 TiB", 1024**4),
    ],
)
def test_a_size_is_bytes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "MiB", "5 Mib", "5XiB", "-1B", "1,5GiB", "lots"])
def test_what_is_no_size_is_said_to_be_none(text: str) -> None:
    with pytest.raises(BadUsage) as caught:
        parse_size(text)
    assert caught.value.message == f"{text!r} is not a size; write 500MiB or 2GiB"


@given(st.text(max_size=40) | st.from_regex(r"[0-9.]*[dhms]*[0-9]*[dhms]*", fullmatch=True))
def test_any_text_is_a_duration_or_bad_usage(text: str) -> None:
    try:
        seconds = parse_duration(text)
    except BadUsage:
        return
    assert seconds >= 0


@given(st.integers(0, 99), st.integers(0, 59), st.integers(0, 59))
def test_units_add_up(hours: int, minutes: int, seconds: int) -> None:
    total = hours * 3600 + minutes * 60 + seconds
    assert parse_duration(f"{hours}h{minutes}m{seconds}s") == total


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.4, "0 s"),
        (119.4, "119 s"),
        (120, "2 min"),
        (179, "3 min"),
        (7170, "2 h"),
        (7500, "2 h 5 min"),
        (518_400, "144 h"),
    ],
)
def test_as_people_say_it(seconds: float, said: str) -> None:
    assert spoken(seconds) == said
