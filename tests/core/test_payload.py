from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetstop.core.releases.payload import File, Payload, assembled, moved, name_problem
from fleetstop.errors import DeployFailed

SHA = "0" * 64


def file(rel: str) -> File:
    return File(rel, SHA, 3, 0o644)


def of(**places: str) -> Payload:
    """rel -> path here, with __ for / and _py for .py."""
    spelled = {k.replace("__", "/").replace("_py", ".py"): v for k, v in places.items()}
    return assembled((file(rel), path) for rel, path in spelled.items())


@pytest.mark.parametrize(
    ("rel", "said"),
    [
        ("train.py", None),
        ("configs/a b.yaml", None),
        ("données/été.py", None),
        ("a\\b", None),
        ("", "would not lie below"),
        ("../train.py", "would not lie below"),
        ("a/../../b", "would not lie below"),
        ("/etc/passwd", "would not lie below"),
        ("a//b", "would not lie below"),
        ("./a", "would not lie below"),
        ("a\nb", "control character"),
        ("a\x1b[2J", "control character"),
        ("a\udcff", "not UTF-8"),
        (".fleetstop/job/state.json", "fleetstop's own"),
        ("x/.fleetstop/y", None),
        ("n" * 201, "too long"),
        ("n" * 200, None),
        ("/".join(["n" * 100] * 21), "too long"),
    ],
)
def test_a_name_that_cannot_land_is_told(rel: str, said: str | None) -> None:
    problem = name_problem(rel)
    assert (problem is None) if said is None else said in (problem or "")


def test_files_come_in_order_each_with_its_origin() -> None:
    made = of(train_py="/w/train.py", configs__a="/w/configs/a")
    assert [each.rel for each in made.files] == ["configs/a", "train.py"]
    assert made.origin == {"train.py": "/w/train.py", "configs/a": "/w/configs/a"}
    assert made.size == 6


def test_two_that_land_on_one_place_are_named_both() -> None:
    with pytest.raises(DeployFailed) as caught:
        assembled([(file("a.py"), "/w/a.py"), (file("a.py"), "/w/old/a.py")])
    assert caught.value.message == "/w/a.py and /w/old/a.py would both land as a.py"
    assert caught.value.exit_code == 7
    # the same one, named twice, is no clash
    assert len(assembled([(file("a.py"), "/w/a.py")] * 2).files) == 1


def test_a_file_is_no_directory_at_the_same_time() -> None:
    with pytest.raises(DeployFailed, match="/w/conf and /v/conf/x/y would both land as conf"):
        assembled([(file("conf"), "/w/conf"), (file("conf/x/y"), "/v/conf/x/y")])


def test_nothing_is_said_to_be_nothing_with_its_reason() -> None:
    with pytest.raises(DeployFailed, match=r"nothing to send$"):
        assembled([])
    with pytest.raises(DeployFailed, match=r"a, b, c and 1 more left out by ignore patterns"):
        assembled([], left_out=["d", "c", "b", "a"])


def test_capital_letters_alone_and_empty_directories_are_findings() -> None:
    made = assembled(
        [(file("Conf.py"), "/w/Conf.py"), (file("conf.py"), "/w/conf.py")], empty=["logs/"]
    )
    assert made.findings == (
        "Conf.py and conf.py differ in capital letters only; both are sent",
        "empty directories are not sent: logs/",
    )


def test_a_name_that_a_terminal_would_obey_is_shown_harmless() -> None:
    with pytest.raises(DeployFailed) as caught:
        assembled([(file("a\x1b[2Jb"), "/w/a\x1b[2Jb")])
    assert "\x1b" not in caught.value.message


def test_moved_files_keep_what_they_are_and_may_not_meet() -> None:
    made = of(mod_py="/w/pkg/mod.py", help_py="/w/help.py")
    there = moved(made, {"mod.py": "pkg/mod.py", "help.py": "help.py"})
    assert there.origin == {"pkg/mod.py": "/w/pkg/mod.py", "help.py": "/w/help.py"}
    with pytest.raises(DeployFailed, match=r"both land as help\.py"):
        moved(made, {"mod.py": "help.py", "help.py": "help.py"})


parts = st.text(st.characters(codec="utf-8", exclude_characters="\0/"), min_size=1, max_size=5)


@given(st.lists(parts | st.sampled_from(["..", ".", "", ".fleetstop", "a"]), max_size=4))
def test_what_is_taken_lies_below_the_destination(names: list[str]) -> None:
    rel = "/".join(names)
    if name_problem(rel) is None:
        assert not {"", ".", ".."} & set(rel.split("/"))
        assert rel.split("/")[0] != ".fleetstop"
        assert "\n" not in rel
