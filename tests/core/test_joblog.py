"""A log's end as a witness: its last line, and whether the job trains on after a signal."""

from __future__ import annotations

import pytest

from fleetstop.core.joblog import LogTail, parse_log, shape, trains_on

STEPS = ("step 41200 loss 2.31", "step 41201 loss 2.30", "step 41202 loss 2.29")


def tail(*lines: str, size: int | None = None) -> LogTail:
    return LogTail(size=len("\n".join(lines)) if size is None else size, age_s=0.1, lines=lines)


def test_parse() -> None:
    found = parse_log(b"1700000010.5\n1700000000.25 42\none\ntwo\n")
    assert found == LogTail(size=42, age_s=10.25, lines=("one", "two", ""))
    assert found.last == "two"


def test_a_progress_bar_is_its_last_state() -> None:
    found = parse_log(b"5\n4 9\n 1%|\r 2%|\r 3%|\r\ndone\r\n")
    assert found is not None
    assert found.lines == (" 3%|", "done", "")
    bar = parse_log(b"5\n4 9\n 1%|\r 3%|")
    assert bar is not None
    assert bar.last == " 3%|"


@pytest.mark.parametrize("data", [b"", b"5", b"5\n4 9", b"x\n4 9\n", b"5\n4\n", b"5\n4 9 9\n"])
def test_what_is_no_answer_is_no_log(data: bytes) -> None:
    assert parse_log(data) is None


def test_bytes_that_are_no_text_are_shown_as_such() -> None:
    found = parse_log(b"5\n6 1\n\xff\n")
    assert found is not None
    assert found.last == "\\xff"
    assert found.age_s == 0.0  # a file from the future


def test_shape() -> None:
    assert shape("  step 41200 loss 2.31e-05 ") == "step # loss #"


def test_new_steps_after_the_signal_mean_it_trains_on() -> None:
    after = tail(*STEPS, "step 41203 loss 2.28", "step 41204 loss 2.27")
    assert trains_on(tail(*STEPS), after)


def test_one_step_more_is_the_one_it_was_in() -> None:
    assert not trains_on(tail(*STEPS), tail(*STEPS, "step 41203 loss 2.28"))


def test_a_savers_lines_are_no_steps() -> None:
    after = tail(*STEPS, "saving step_41202.pt: 0%", "saving step_41202.pt: 25%")
    assert not trains_on(tail(*STEPS), after)


@pytest.mark.parametrize(
    "line",
    [
        "saving step_41000.pt: {}%",
        "Saved {} tensors",
        "writing shard {} of 8",
        "checkpoint {} % done",
        "model-0000{}-of-8.safetensors",
    ],
)
def test_not_even_where_periodic_saves_made_them_familiar(line: str) -> None:
    before = tail(*STEPS, *(line.format(n) for n in (1, 2, 3)))
    after = tail(*before.lines, line.format(4), line.format(5), line.format(6))
    assert not trains_on(before, after)


def test_words_without_numbers_prove_nothing() -> None:
    before = tail("tick", "tick", "tick")
    assert not trains_on(before, tail(*before.lines, "tick", "tick"))


@pytest.mark.parametrize("after", [None, tail(size=0), tail(*STEPS, size=3)])
def test_a_log_that_is_gone_shrunk_or_rotated_proves_nothing(after: LogTail | None) -> None:
    assert not trains_on(tail(*STEPS), after)
    assert not trains_on(None, tail(*STEPS))


def test_lines_that_stood_there_before_are_not_new() -> None:
    before = tail(*STEPS)
    assert not trains_on(before, tail(*STEPS, size=before.size + 1))
