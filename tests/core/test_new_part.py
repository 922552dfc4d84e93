"""What a log has got since it was so long: whole lines, each once, whatever was looked at when."""

from __future__ import annotations

from fleetstop.core.joblog import new_part


def answer(content: bytes, *, tail: int = 8192) -> bytes:
    return f"1000.0\n990.0 {len(content)}\n".encode() + content[-tail:]


def test_only_what_is_new_is_told_and_half_a_line_waits_for_its_rest() -> None:
    old = b"step 1\nstep 2\n"
    part = new_part(answer(old + b"step 3\nste"), len(old))
    assert part is not None
    assert (part.lines, part.upto, part.missed) == (("step 3",), len(old) + 7, 0)
    again = new_part(answer(old + b"step 3\nstep 4\n"), part.upto)
    assert again is not None
    assert again.lines == ("step 4",)
    same = new_part(answer(old), len(old))
    assert same is not None
    assert (same.lines, same.upto) == ((), len(old))


def test_a_log_that_was_begun_anew_is_all_new() -> None:
    part = new_part(answer(b"one\n"), 5000)
    assert part is not None
    assert (part.lines, part.missed) == (("one",), 0)


def test_what_went_by_between_two_looks_is_counted() -> None:
    part = new_part(answer(b"x" * 99 + b"\nlast\n", tail=6), 10)
    assert part is not None
    assert (part.lines, part.missed) == (("", "last"), 89)


def test_bars_show_their_last_state_and_endless_lines_are_told_as_they_stand() -> None:
    part = new_part(answer(b" 10%\r 20%\r 30%\ndone\r\n"), 0)
    assert part is not None
    assert part.lines == (" 30%", "done")
    never_ends = new_part(answer(b"it 3 14K tok/s\rit 4 15K"), 0)
    assert never_ends is not None
    assert (never_ends.lines, never_ends.upto) == (("it 3 14K tok/s",), 15)
    bar = new_part(answer(b"y" * 5000), 0)
    assert bar is not None
    assert (len(bar.lines[0]), bar.upto) == (5000, 5000)
    own = new_part(answer(b"a\nb\nhalf c\nd\n"), 2, 8)
    assert own is not None
    assert (own.lines, own.upto) == (("b",), 4)
    assert new_part(b"nonsense", 0) is None
