from __future__ import annotations

import signal
from itertools import permutations
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetstop.core.process import Detail
from fleetstop.core.signals import (
    NUMBERS,
    Landing,
    Masks,
    canonical,
    has,
    landing,
    named,
    worst,
)
from tests.core.trees import process

SAMPLES = Path(__file__).parents[1] / "samples" / "proc"
HUP, INT, QUIT, KILL, TERM = 0x1, 0x2, 0x4, 0x100, 0x4000
PYTHON = 0x1001000  # PIPE and XFSZ: every Python ignores them


def masks(*, ignored: int = 0, caught: int = 0, blocked: int | None = 0) -> Masks:
    return Masks(pending=0, blocked=blocked, ignored=ignored, caught=caught)


def sampled(name: str) -> Masks:
    lines = (SAMPLES / name).read_text().splitlines()
    seen = {
        key: int(value, 16)
        for key, _, value in (each.partition(":\t") for each in lines[-5:])
        if key.startswith(("Sig", "Shd"))
    }
    return Masks(
        pending=seen.get("SigPnd", 0) | seen.get("ShdPnd", 0),
        blocked=seen.get("SigBlk"),
        ignored=seen.get("SigIgn", 0),
        caught=seen.get("SigCgt", 0),
    )


SPELLINGS = [
    ("INT", "INT"),
    ("SIGINT", "INT"),
    ("int", "INT"),
    (" sigterm ", "TERM"),
    ("2", "INT"),
    ("15", "TERM"),
    ("09", "KILL"),
    ("SIG2", "INT"),
    ("STOP", None),
    ("CONT", None),
    ("SIGTSTP", None),
    ("19", None),
    ("0", None),
    ("-2", None),
    ("99999999999", None),
    ("", None),
    ("SIG", None),
    ("²", None),
    ("٢", None),
    ("2.0", None),
]


@pytest.mark.parametrize(("written", "meant"), SPELLINGS)
def test_a_signal_has_one_name(written: str, meant: str | None) -> None:
    assert canonical(written) == meant


@given(st.text() | st.text(st.characters(categories=["Nd", "No"])) | st.integers().map(str))
def test_any_word_is_a_signal_or_none(word: str) -> None:
    assert canonical(word) in (*NUMBERS, None)


def test_very_long_numbers_are_no_signal() -> None:
    assert canonical("1" * 5000) is None


@pytest.mark.parametrize("name", sorted(NUMBERS))
def test_numbers_are_this_kernel_s(name: str) -> None:
    assert NUMBERS[name] == signal.Signals[f"SIG{name}"]
    assert has(1 << (NUMBERS[name] - 1), name)
    assert not has(~(1 << (NUMBERS[name] - 1)), name)


def test_what_asks_nobody_to_end_is_never_sent() -> None:
    assert not NUMBERS.keys() & {"STOP", "TSTP", "CONT", "TTIN", "TTOU"}


# Masks, a signal, how it lands; and how on the first process of a namespace
LANDINGS: list[tuple[str, Masks, str, Landing, Landing]] = [
    ("python in the foreground", masks(caught=INT, ignored=PYTHON), "INT", "heard", "heard"),
    ("and TERM", masks(caught=INT, ignored=PYTHON), "TERM", "fatal", "ignored"),
    ("python in the background", masks(ignored=PYTHON | INT | QUIT), "INT", "ignored", "ignored"),
    ("with its own TERM handler", masks(caught=TERM, ignored=INT), "TERM", "heard", "heard"),
    ("blocked everywhere", masks(caught=INT, blocked=INT), "INT", "blocked", "blocked"),
    ("another is blocked", masks(caught=INT, blocked=TERM), "INT", "heard", "heard"),
    ("blocked, not seen", masks(caught=INT, blocked=None), "INT", "heard", "heard"),
    ("ignored and blocked", masks(ignored=INT, blocked=INT), "INT", "ignored", "ignored"),
    ("blocked without a handler", masks(blocked=TERM), "TERM", "blocked", "blocked"),
    ("KILL", masks(), "KILL", "fatal", "fatal"),
    ("KILL is never ignored", masks(ignored=KILL, caught=KILL), "KILL", "fatal", "fatal"),
    ("KILL is never blocked", masks(blocked=~0), "KILL", "fatal", "fatal"),
    ("nothing set", masks(), "HUP", "fatal", "ignored"),
    ("nohup", sampled("status_nohup_background.txt"), "HUP", "ignored", "ignored"),
    ("nohup, INT", sampled("status_nohup_background.txt"), "INT", "ignored", "ignored"),
    ("nohup, TERM", sampled("status_nohup_background.txt"), "TERM", "fatal", "ignored"),
    ("python &", sampled("status_python_background.txt"), "INT", "ignored", "ignored"),
    ("python &, TERM", sampled("status_python_background.txt"), "TERM", "fatal", "ignored"),
]


@pytest.mark.parametrize(("story", "seen", "sent", "how", "as_first"), LANDINGS)
def test_how_a_signal_lands(
    story: str, seen: Masks, sent: str, how: Landing, as_first: Landing
) -> None:
    assert landing(seen, sent) == how
    assert landing(seen, sent, namespace_init=True) == as_first


def test_a_kill_that_waits_in_the_kernel() -> None:
    pending = sampled("d_state_sigkill_pending.txt").pending
    assert has(pending, "KILL")
    assert not has(pending, "INT")


def test_a_process_lands_by_what_all_its_threads_block() -> None:
    """The leader's own mask proves nothing: another thread may take the signal."""
    one = process(50, "python train.py", None, ["unseen"])
    assert one.landing("INT") is None
    one = msgspec.structs.replace(one, masks=masks(caught=INT, blocked=INT))
    assert one.landing("INT") == "heard"
    open_thread = msgspec.structs.replace(one, detail=Detail(blocked=0))
    assert open_thread.landing("INT") == "heard"
    deaf = msgspec.structs.replace(one, detail=Detail(blocked=INT))
    assert deaf.landing("INT") == "blocked"


@pytest.mark.parametrize(
    ("inner", "how"),
    [((), "fatal"), ((312,), "fatal"), ((1,), "ignored"), ((312, 1), "ignored"), ((1, 7), "fatal")],
)
def test_the_first_process_of_its_own_namespace(inner: tuple[int, ...], how: Landing) -> None:
    one = msgspec.structs.replace(process(50, "python train.py"), masks=masks(), inner=inner)
    assert one.landing("TERM") == how


def test_a_rung_counts_as_its_worst_landing() -> None:
    order: list[Landing] = ["heard", "ignored", "blocked", "fatal"]
    for mixed in permutations(order):
        assert worst(list(mixed)) == "fatal"
        assert worst([each for each in mixed if each != "fatal"]) == "blocked"
    assert worst(["heard", "ignored"]) == "ignored"
    assert worst(["heard"]) == "heard"


def test_a_mask_by_name() -> None:
    assert named(0x102) == ("INT", "KILL")
    assert named(1 << 16 | 1 << 14) == ("TERM", "17")
    assert named(0) == ()
