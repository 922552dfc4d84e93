from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetstop.core.inventory import (
    Host,
    Job,
    Match,
    Target,
    ere_problem,
    group_cycle,
    is_name,
    match_problem,
    parse_vmid,
)

WAYS = "script, module, exe, pgrep, pid, pidfile, unit, tmux, gpu"


@pytest.mark.parametrize(
    "pattern",
    [
        "train",
        "a(b|c)*d",
        "[]a]",
        "[^]a]+",
        "[[:alpha:](]",
        "[[=a=]]",
        "[[.].]]",
        "[[:]",
        r"\(",
        r"[\]",
        "a)",
        "^.*$",
        "x{2,3}",
        " ",
    ],
)
def test_a_valid_ere_is_taken(pattern: str) -> None:
    assert ere_problem(pattern) is None


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("", "the pattern is empty"),
        ("a(b", "the pattern has a ( that is not closed"),
        ("(a)(", "the pattern has a ( that is not closed"),
        ("[a", "the pattern has a [ that is not closed"),
        ("[]", "the pattern has a [ that is not closed"),
        ("a\\", "the pattern ends with a lone backslash"),
    ],
)
def test_what_no_pgrep_takes_is_said(pattern: str, problem: str) -> None:
    assert ere_problem(pattern) == problem


@given(st.text(alphabet="[]^:.=()\\a", max_size=200))
def test_any_pattern_is_judged(pattern: str) -> None:
    assert ere_problem(pattern) is None or ere_problem(pattern)


@pytest.mark.parametrize(
    ("match", "problem"),
    [
        (Match(script="train.py"), None),
        (Match(gpu=True, all=True), None),
        (Match(pid=2), None),
        (Match(), f"exactly one of {WAYS} is needed, none is given"),
        (Match(all=True), f"exactly one of {WAYS} is needed, none is given"),
        (
            Match(script="a", pid=5),
            f"exactly one of {WAYS} is needed, given are script and pid",
        ),
        (Match(script=" "), "script is empty"),
        (Match(pid=1), "pid must be above 1"),
        (Match(pid=0), "pid must be above 1"),
        (Match(pidfile="run/pid"), "pidfile must be an absolute path"),
        (Match(pgrep=""), "the pattern is empty"),
        (Match(pgrep="(a"), "the pattern has a ( that is not closed"),
    ],
)
def test_a_match_says_one_thing(match: Match, problem: str | None) -> None:
    assert match_problem(match) == problem


@pytest.mark.parametrize(
    ("text", "vmid"),
    [
        ("100", 100),
        ("999999999", 999999999),
        ("99", None),
        ("1000000000", None),
        ("0200", None),
        ("+200", None),
        ("２００", None),
        ("200\n", None),
        ("", None),
    ],
)
def test_a_vmid_is_what_proxmox_takes(text: str, vmid: int | None) -> None:
    assert parse_vmid(text) == vmid


def test_names() -> None:
    assert all(is_name(each) for each in ("ct200", "7", "a.b-c_d"))
    assert not any(is_name(each) for each in ("", "-a", ".a", "a b", "a\n", "ä", "a/b", "@a"))


@pytest.mark.parametrize(
    ("groups", "cyclic"),
    [
        ({"a": ("ct1", "@b"), "b": ("ct2",)}, False),
        ({"a": ("@a",)}, True),
        ({"a": ("@b",), "b": ("@c",), "c": ("@a",)}, True),
        ({"a": ("@*",), "b": ()}, True),
        # deeper than Python recurses
        ({f"g{n}": (f"@g{n + 1}",) for n in range(1200)}, False),
    ],
)
def test_groups_that_contain_each_other(groups: dict[str, tuple[str, ...]], cyclic: bool) -> None:
    cycle = group_cycle(groups)
    assert (cycle is not None) is cyclic
    if cycle is not None:
        assert cycle[0] == cycle[-1]


def test_an_ad_hoc_job_has_no_name() -> None:
    host = Host(name="h", ssh="h")
    named = Job(name="train", match=Match(pid=5))
    adhoc = Job(name="", match=Match(pid=5))
    names = [Target("t", host, 200, job).job_name for job in (named, adhoc, None)]
    assert names == ["train", None, None]
