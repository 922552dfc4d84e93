"""Which release a redeploy names as the one before, and what a rollback goes back to."""

from __future__ import annotations

import msgspec
import pytest

from fleetstop.core.launching.activation import State
from fleetstop.core.releases.landing import tells_all, to_go_back_to
from fleetstop.core.releases.manifest import BEFORE, Git, Release
from fleetstop.core.releases.payload import File
from fleetstop.core.releases.tried import Tried, parse_tried, row, with_state, worth_going_back_to


def release(name: str, **hashes: str) -> Release:
    files = tuple(File(f"{rel}.py", sha * 64, 1, 0o644) for rel, sha in hashes.items())
    return Release(id=name, files=files, dest="/root", when="2026-11-30T14:02:11Z", who="me@laptop")


FIRST = release("20261130-140211-7f3a", train="a")
ON_DISK = {"train.py": "a" * 64, "model.py": "0" * 64}


def test_a_release_without_a_file_that_is_replaced_is_not_the_one_before() -> None:
    assert not tells_all(FIRST, {"model.py": "1" * 64}, ON_DISK)
    assert tells_all(FIRST, {"train.py": "b" * 64}, ON_DISK)
    assert tells_all(FIRST, {"train.py": "b" * 64, "new.py": "1" * 64}, ON_DISK)


def test_one_that_does_not_lie_there_was_chosen_for_that() -> None:
    assert tells_all(FIRST, {"model.py": "1" * 64}, {**ON_DISK, "train.py": "c" * 64})


def test_going_back_from_one_file_leaves_the_other_where_it_is() -> None:
    """train.py was redeployed, then model.py alone: only model.py goes back."""
    oldest = release("20261130-140210-7f3a", train="9")
    kept = {each.id: each for each in (oldest, FIRST)}
    kept["20261130-140310-8888"] = before = release("20261130-140310-8888", model="0")
    kept["20261130-140311-8888"] = release("20261130-140311-8888", model="1")
    lies = {"train.py": "a" * 64, "model.py": "1" * 64}
    tried = {name: Tried(healthy="2026") for name in kept}
    assert to_go_back_to(kept, lies, before.id, tried=tried) is before


OLDEST = release("20261130-140100-aaaa", train="0")
GOOD = release("20261130-140200-bbbb", train="1")
BAD = release("20261130-140300-cccc", train="2")
KEPT = {each.id: each for each in (OLDEST, GOOD, BAD)}
HEALTHY, RAN = Tried(healthy="2026-11-30T14:02:30Z"), Tried(ran="2026-11-30T14:02:30Z")
FAILED = Tried(failed="2026-11-30T14:03:10Z", reason="it ended with exit code 1")


def back(on_disk: str, before: str | None, runs: str | None = None, **tried: Tried) -> str | None:
    names = {"oldest": OLDEST.id, "good": GOOD.id, "bad": BAD.id}
    known = {names[name]: each for name, each in tried.items()}
    lies = {"train.py": on_disk * 64}
    found = to_go_back_to(KEPT, lies, before, tried=known, runs=runs)
    return found.id if found is not None else None


def test_after_a_redeploy_that_was_rolled_back_its_release_is_not_gone_back_to() -> None:
    """GOOD is back on disk; the newest that differs from it is the one that has just failed."""
    assert back("1", GOOD.id, oldest=HEALTHY, good=HEALTHY, bad=FAILED) == OLDEST.id
    assert back("1", GOOD.id, good=HEALTHY, bad=FAILED) is None
    # nobody saw it well, nobody saw it ill
    assert back("1", GOOD.id, oldest=HEALTHY, good=HEALTHY) == OLDEST.id


def test_one_that_was_left_though_unwell_goes_back_to_the_one_before() -> None:
    assert back("2", GOOD.id, BAD.id, oldest=HEALTHY, good=HEALTHY, bad=FAILED) == GOOD.id
    # and where that was never well either, to the last that was
    assert back("2", GOOD.id, BAD.id, oldest=HEALTHY, good=FAILED, bad=FAILED) == OLDEST.id


def test_what_was_well_once_or_ran_is_one_to_go_back_to() -> None:
    """It failed later, in a full disk, say; or nobody had watched it, and it ran until now."""
    both = msgspec.structs.replace(FAILED, healthy="2026-11-29T14:02:30Z")
    assert back("2", None, good=both) == GOOD.id
    assert back("2", None, good=RAN) == GOOD.id
    assert back("2", None, good=msgspec.structs.replace(FAILED, ran="2026")) is None


def test_what_was_there_before_fleetstop_has_run() -> None:
    first = msgspec.structs.replace(OLDEST, who=BEFORE)
    kept = {**KEPT, first.id: first}
    found = to_go_back_to(kept, {"train.py": "1" * 64}, GOOD.id, tried={BAD.id: FAILED})
    assert found is first


def test_what_runs_is_not_gone_back_to_though_the_disk_has_other_code_by_now() -> None:
    assert back("9", None, GOOD.id, oldest=HEALTHY, good=HEALTHY) == OLDEST.id
    assert back("9", None, None, oldest=HEALTHY, good=HEALTHY) == GOOD.id


@pytest.mark.parametrize(
    ("state", "worth"),
    [
        (State("7f3a", "healthy", release=BAD.id, running=BAD.id), True),
        # a restart of it: whether by its manifest, or with other words, is not known
        (State("7f3a", "healthy", running=BAD.id), False),
        (State("7f3a", "launched", release=BAD.id, running=BAD.id), False),
        (State("7f3a", "unconfirmed", release=BAD.id, running=BAD.id), False),
        (State("7f3a", "rolled_back", release=BAD.id, running=GOOD.id), False),
        (State("7f3a", "cancelled", release=GOOD.id, running=BAD.id), False),
        (None, False),
    ],
)
def test_the_last_activation_tells_what_its_activator_had_no_time_to_note(
    state: State | None, worth: bool
) -> None:
    assert worth_going_back_to(BAD, with_state({}, state)) is worth


def test_what_has_just_failed_is_known_by_the_state_too() -> None:
    state = State("7f3a", "rolling_back", release=BAD.id, files="mixed", reason="exit 3")
    ran = {BAD.id: RAN}
    assert worth_going_back_to(BAD, ran)
    assert not worth_going_back_to(BAD, with_state(ran, state))
    # the disk was full: it never came to be tried
    full = msgspec.structs.replace(state, files="old")
    assert worth_going_back_to(BAD, with_state(ran, full))


def test_a_note_that_says_nothing_is_no_reason_to_trust() -> None:
    assert parse_tried('{"healthy": "2026", "later": 1}').healthy == "2026"
    for text in (None, "", "{", "[]", '{"healthy": 5}', "\udcff"):
        assert parse_tried(text) == Tried()


def test_a_list_of_releases_is_good_enough_to_choose_from() -> None:
    first = msgspec.structs.replace(OLDEST, who=BEFORE)
    sent = msgspec.structs.replace(
        BAD, git=Git("5690a8d0f3c2" + "0" * 28, dirty=True), from_release=GOOD.id
    )
    tried = {BAD.id: FAILED, GOOD.id: HEALTHY}
    assert row(first, tried) == (
        "20261130-140100-aaaa  2026-11-30 14:02 UTC, before fleetstop, lay there"
    )
    assert row(GOOD, tried, "runs now") == (
        "20261130-140200-bbbb  2026-11-30 14:02 UTC, by me@laptop, was healthy, runs now"
    )
    assert row(sent, tried) == (
        "20261130-140300-cccc  2026-11-30 14:02 UTC, by me@laptop, commit 5690a8d0f3c2 with "
        "changes, the files of 20261130-140200-bbbb, never healthy: it ended with exit code 1"
    )
