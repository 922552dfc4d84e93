"""A start that names a checkpoint of once is not silent about the newer one."""

from __future__ import annotations

import pytest

from fleetstop.core.launching.older import Saves, from_older, named
from fleetstop.core.launching.recipe import Recipe
from fleetstop.core.launching.spec import LaunchSpec

SAVES = Saves("/ck/step_9.pt", ("/ck/step_1", "/ck/step_3.pt"))


def start(*words: str, added: tuple[str, ...] = ()) -> Recipe:
    return holding({}, *words, added=added)


def holding(env: dict[str, str], *words: str, added: tuple[str, ...] = ()) -> Recipe:
    spec = LaunchSpec(
        argv=("python3", "t.py", *words, *added), cwd="/ck", env=env, log=None, uid=0, gid=0,
        groups=(), umask=0o22, nice=0, limits={}, mark="m", status="/s",
    )  # fmt: skip
    return Recipe(spec, added=added)


NEWER = "though /ck/step_9.pt is newer"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("--lr", "1", "--resume", "/ck/step_3.pt"),
            f"it is started with --resume /ck/step_3.pt, {NEWER}; "
            "`launch: {resume: [--resume, '{checkpoint}']}` in the inventory goes on from that",
        ),
        (
            ("--resume=/ck/step_3.pt",),
            f"it is started with --resume=/ck/step_3.pt, {NEWER}; "
            "`launch: {resume: ['--resume={checkpoint}']}` in the inventory goes on from that",
        ),
        # where no words of its own say so nothing can be put in their place
        (("/ck/step_3.pt",), f"it is started with /ck/step_3.pt, {NEWER}"),
        (("-c", "t.py --from '/ck/step_3.pt' 2>&1"), f"it is started with /ck/step_3.pt, {NEWER}"),
        (("--m", "/ck/step_1/model.pt"), f"it is started with /ck/step_1/model.pt, {NEWER}"),
        (("--m", "./step_3.pt"), f"it is started with --m ./step_3.pt, {NEWER}; "
         "`launch: {resume: [--m, '{checkpoint}']}` in the inventory goes on from that"),
    ],
)  # fmt: skip
def test_an_older_one_is_told_with_the_newest_and_the_way(
    words: tuple[str, ...], said: str
) -> None:
    assert from_older(start(*words), SAVES) == (said,)
    assert named(start(*words), SAVES)


@pytest.mark.parametrize(
    "words",
    [
        (), ("--resume", "/ck/step_9.pt"), ("--resume", "/ck/step_30.pt"), ("--out", "/ck"),
        ("--steps", "step_1"), ("--resume", "/other/step_3.pt"),
        ("--init", "/ck/step_3.pt", "--resume", "/ck/step_9.pt"),
    ],
)  # fmt: skip
def test_what_names_none_or_the_newest_needs_no_word(words: tuple[str, ...]) -> None:
    assert from_older(start(*words), SAVES) == ()


def test_what_goes_on_from_the_newest_by_the_inventory_needs_no_word() -> None:
    made = start("--init", "/ck/step_3.pt", added=("--resume", "/ck/step_9.pt"))
    assert (from_older(made, SAVES), named(made, SAVES)) == ((), ())


def test_where_no_complete_one_is_seen_none_is_newer() -> None:
    once = start("--resume", "/ck/step_3.pt")
    assert from_older(once, Saves(None, ("/ck/step_3.pt",))) == ()
    assert named(start("--resume", "/ck/step_9.pt"), SAVES)  # by the stop it will not be


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("/ck/step_3.pt", f"/ck/step_3.pt, {NEWER}; --env FROM=/ck/step_9.pt starts it from that"),
        ("./step_3.pt", f"/ck/step_3.pt, {NEWER}; --env FROM=/ck/step_9.pt starts it from that"),
        ("--resume /ck/step_3.pt --key hunter2x", f"/ck/step_3.pt, {NEWER}"),
        ("/ck/step_1/model.pt", f"/ck/step_1/model.pt, {NEWER}"),
    ],
)
def test_a_variable_that_names_an_older_one_is_told_and_nothing_else_of_it(
    value: str, said: str
) -> None:
    """Nobody told: what was saved since was lost."""
    made = holding({"FROM": value, "DB_PASS": "hunter2x", "HOME": "/root"})
    assert from_older(made, SAVES) == (f"its variable FROM names {said}",)
    assert named(made, SAVES)


@pytest.mark.parametrize(
    "env",
    [
        {"FROM": "/ck/step_9.pt", "INIT": "/ck/step_3.pt"}, {"PWD": "/ck/step_1"},
        {"FROM": "/other/step_3.pt"}, {"CK": "/ck"}, {"FROM": "step_1"}, {"OLDPWD": "/ck/step_1"},
    ],
)  # fmt: skip
def test_a_variable_that_names_none_or_the_newest_needs_no_word(env: dict[str, str]) -> None:
    assert from_older(holding(env), SAVES) == ()


def test_words_that_go_on_from_the_newest_win_over_a_variable() -> None:
    env = {"FROM": "/ck/step_3.pt"}
    assert from_older(holding(env, "--resume", "/ck/step_9.pt"), SAVES) == ()
    made = holding(env, added=("--resume", "/ck/step_9.pt"))
    assert (from_older(made, SAVES), named(made, SAVES)) == ((), ())
