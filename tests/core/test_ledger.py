"""The lock directory's text: who holds it, what each trainer has heard, what may be forgotten."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetstop.core.ledger import (
    Heard,
    Ledger,
    broken_by,
    heard_before,
    holder,
    keeps_broken,
    parse_ledger,
    spent,
    undecided,
)
from fleetstop.core.process import ProcessId

ME = ProcessId(26982, 4711)
OTHER = ProcessId(26983, 4712)


def ledger(uptime: float, **files: str) -> Ledger:
    """`files`: run -> its lines, separated by `; `."""
    body = "".join(
        f"/run/lock/fleetstop.200/{run}:{line}\n"
        for run, text in files.items()
        for line in text.split("; ")
    )
    found = parse_ledger(f"uptime:{uptime}\n{body}".encode())
    assert found is not None
    return found


def test_parse() -> None:
    text = "header ops@laptop; stamp 90; since 91.5; send 1 INT heard 92.25 26982:4711 26983:4712"
    found = ledger(100.0, a=text).runs[0]
    assert (found.run, found.header, found.since, found.stamp) == ("a", "ops@laptop", 91.5, 91.5)
    assert (found.sends[0].signal, found.sends[0].uptime) == ("INT", 92.25)
    assert found.sends[0].ids == (ME, OTHER)


@pytest.mark.parametrize(
    "data", [b"", b"nonsense\n", b"uptime:\n", b"uptime:soon\n", b"uptime:nan"]
)
def test_without_a_clock_there_is_no_ledger(data: bytes) -> None:
    assert parse_ledger(data) is None


def test_an_empty_directory() -> None:
    assert parse_ledger(b"uptime:5.5\n") == Ledger(uptime=5.5, runs=())


@given(st.binary(max_size=60))
def test_no_line_is_a_fault(data: bytes) -> None:
    found = parse_ledger(b"uptime:5\n/run/lock/fleetstop.200/a:" + data + b"\n")
    assert found is not None
    holder(found)
    undecided(found, "b")
    heard_before(found, frozenset({ME}))
    spent(found, frozenset(), "b")


@pytest.mark.parametrize("stamp", ["inf", "nan", "-inf", "soon", ""])
def test_an_endless_stamp_is_none(stamp: str) -> None:
    assert holder(ledger(100.0, a=f"header x; since 5; stamp {stamp}")) is None


def test_a_line_cut_by_a_full_disk_gives_what_it_holds() -> None:
    found = ledger(100.0, a="since 91; send 1 INT heard 92 26982:4711 2698; send 2; send 3 TERM")
    assert [sent.ids for sent in found.runs[0].sends] == [(ME,)]


def test_the_earliest_live_claim_holds_the_lock() -> None:
    both = ledger(100.0, a="since 95; stamp 99", b="since 90; stamp 99")
    assert (found := holder(both)) is not None
    assert found.run == "b"
    stale = ledger(121.0, a="since 95; stamp 120", b="since 90; stamp 91")
    assert (found := holder(stale)) is not None
    assert found.run == "a"
    assert holder(ledger(200.0, a="since 95; stamp 99")) is None


def test_thirty_seconds_after_the_last_stamp_it_is_free() -> None:
    assert holder(ledger(119.9, a="since 80; stamp 90")) is not None
    assert holder(ledger(120.0, a="since 80; stamp 90")) is None


def test_two_at_once_agree_on_one() -> None:
    both = ledger(100.0, b="since 95", a="since 95")
    assert (found := holder(both)) is not None
    assert found.run == "a"


def test_who_gave_it_back_holds_nothing_until_it_claims_again() -> None:
    assert holder(ledger(100.0, a="since 95; done 97")) is None
    again = ledger(100.0, a="header x; since 95; done 97; header x; stamp 98; since 98")
    assert (found := holder(again)) is not None
    assert found.since == 98.0


def test_a_later_claim_of_the_same_run_does_not_go_before_others() -> None:
    """A claims, gives back, B claims, A claims again for its second job: B holds it."""
    both = ledger(
        100.0,
        a="header x; since 91; done 94; header x; stamp 96; since 96",
        b="header y; since 95; stamp 99",
    )
    assert (found := holder(both)) is not None
    assert found.run == "b"
    assert undecided(ledger(100.0, a="header x; since 91; done 94; header x; stamp 99"), "b")


def test_a_stamp_of_the_future_is_nobodys_sign_of_life() -> None:
    assert holder(ledger(100.0, a="header x; since 5; stamp 99999999999")) is None


def test_a_claim_half_made_is_waited_for() -> None:
    half = ledger(100.0, a="header x; stamp 99", b="since 98")
    assert undecided(half, "b")
    assert not undecided(half, "a")
    assert holder(half) is not None
    assert not undecided(ledger(200.0, a="header x; stamp 99"), "b")


def test_what_was_heard_is_read_by_every_later_run() -> None:
    found = ledger(
        300.0,
        a="since 10; send 1 INT heard 60 26982:4711; done 70",
        b="since 80; send 1 INT heard 90 26983:4712",
        me="since 200; send 1 TERM heard 210 26982:4711",
    )
    own = frozenset({("me", 1)})
    assert heard_before(found, frozenset({ME, OTHER}))[ME] == Heard("me", "TERM", 90.0, times=2)
    assert heard_before(found, frozenset({ME, OTHER}), own) == {
        ME: Heard("a", "INT", 240.0),
        OTHER: Heard("b", "INT", 210.0),
    }
    assert heard_before(found, frozenset({ProcessId(26982, 1)})) == {}


def test_when_it_went_out_is_told_by_the_time_of_day_too() -> None:
    """A date that took 0.3 s: what was written at 1000060.1 came before, at 1000060.5 after it."""
    text = "send 1 INT heard 60 26982:4711"
    data = f"uptime:300.0\nwall:1000300.2 300.3\n/run/lock/fleetstop.200/a:{text}\n".encode()
    found = parse_ledger(data)
    assert found is not None
    told = heard_before(found, frozenset({ME}))[ME]
    assert told.between == pytest.approx((1000059.89, 1000060.21))


@pytest.mark.parametrize("line", ["", "wall:", "wall:x 5", "wall:7", "wall:7 4.9", "wall:inf 6"])
def test_without_a_time_of_day_a_ledger_is_a_ledger(line: str) -> None:
    text = f"uptime:5\n{line}\n/run/lock/fleetstop.200/a:send 1 INT heard 4 26982:4711\n"
    found = parse_ledger(text.encode())
    assert found is not None
    assert heard_before(found, frozenset({ME})) == {ME: Heard("a", "INT", 1.0)}


def test_the_latest_counts() -> None:
    found = ledger(300.0, a="send 1 INT heard 60 26982:4711", b="send 1 TERM heard 90 26982:4711")
    assert heard_before(found, frozenset({ME}))[ME].signal == "TERM"


def test_who_lives_on_after_a_mixed_burst_may_be_the_one_that_heard_it() -> None:
    """`fatal` is the worst of all recipients: the survivor may be saving."""
    found = ledger(300.0, a="send 1 TERM fatal 60 26982:4711 26983:4712")
    assert heard_before(found, frozenset({OTHER})) == {OTHER: Heard("a", "TERM", 240.0)}


def test_kill_is_heard_by_nobody() -> None:
    found = ledger(300.0, a="send 1 KILL fatal 60 26982:4711")
    assert heard_before(found, frozenset({ME})) == {}


def test_only_what_nobody_alive_needs_is_forgotten() -> None:
    found = ledger(
        300.0,
        gone="since 10; send 1 INT heard 60 26982:4711",
        saving="since 10; send 1 INT heard 60 26983:4712",
        live="since 290; stamp 299",
        me="since 290; stamp 299",
    )
    assert spent(found, frozenset({OTHER}), "me") == ("gone",)


def _holder(found: Ledger) -> str | None:
    first = holder(found)
    return first.run if first else None


def test_a_broken_claim_holds_nothing_and_a_later_one_of_the_same_run_does() -> None:
    held = "header a; stamp 99; since 80"
    breaker = "header b; stamp 99; break 90 a; since 90.1"
    found = ledger(100.0, a=held, b=breaker)
    assert _holder(found) == "b"
    assert [each.run for each in found.runs if broken_by(found, each)] == ["a"]
    # it came back when the other had left
    anew = "header a; stamp 80; since 80; header a; stamp 95; since 95"
    assert _holder(ledger(100.0, a=anew, b=breaker)) == "b"
    assert _holder(ledger(100.0, a=anew, b=f"{breaker}; done 94")) == "a"
    # a claim that was only half made when it was broken
    assert not undecided(ledger(100.0, a="header a; stamp 89", b=breaker), "b")
    assert undecided(ledger(100.0, a="header a; stamp 91", b=breaker), "b")


def test_who_broke_a_lock_is_remembered_as_long_as_the_other_works() -> None:
    breaker = "header b; stamp 60; break 50 a; since 50.1; done 61"
    lives = ledger(100.0, a="header a; stamp 99; since 40", b=breaker)
    assert spent(lives, frozenset(), "me") == ()
    assert _holder(lives) is None
    assert [keeps_broken(lives, each) for each in lives.runs] == [False, True]
    silent = ledger(100.0, a="header a; stamp 60; since 40", b=breaker)
    assert spent(silent, frozenset(), "me") == ("a", "b")


@pytest.mark.parametrize("line", ["break", "break x a", "break inf a", "break 95"])
def test_a_broken_line_breaks_nothing(line: str) -> None:
    text = f"header b; stamp 99; {line}; since 98"
    assert _holder(ledger(100.0, a="header a; stamp 99; since 80", b=text)) == "a"
