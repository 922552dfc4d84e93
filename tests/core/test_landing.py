"""Which release a redeploy names as the one before, and what a rollback goes back to."""

from __future__ import annotations

from fleetstop.core.releases.landing import tells_all, to_go_back_to
from fleetstop.core.releases.manifest import Release
from fleetstop.core.releases.payload import File


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
    assert to_go_back_to(kept, lies, before.id) is before
