"""A new trainer against what it was to be given: its words and its variables."""

from __future__ import annotations

import pytest

from fleetstop.core.launching.arrived import arguments, environment, parse_environ

TRAINER = ("python3", "-u", "train.py", "--lr", "1e-4", "--resume", "/ck/step 3")


def test_added_words_have_to_stand_side_by_side() -> None:
    assert arguments(TRAINER, None, ("--resume", "/ck/step 3")).ok is True
    dropped = arguments(("python3", "train.py"), None, ("--resume", "/ck/step 3"))
    assert dropped.ok is False
    assert "2 of 2 added words did not reach it" in dropped.said
    torn_apart = arguments(("python3", "train.py", "--lr", "x", "2"), None, ("--lr", "2"))
    assert torn_apart.ok is False
    assert "the added words, in order," in torn_apart.said


@pytest.mark.parametrize(
    ("argv", "started", "ok"),
    [
        (("python3", "train.py"), ("python3", "train.py"), True),
        # the kernel puts the interpreter of a `#!` in front
        (("/usr/bin/python3", "./train.py", "-v"), ("./train.py", "-v"), True),
        # env and nice exec the rest
        (("python3", "train.py"), ("env", "-i", "python3", "train.py"), True),
        # a run.sh that execs it, a shim, a virtual environment's own name
        (("python3", "-u", "/root/train.py", "-v"), ("/root/run.sh", "-v"), True),
        (("python3", "-u", "/root/train.py"), ("bash", "-c", "exec python3 -u train.py"), True),
        (("/usr/bin/python3.11", "train.py"), ("python3", "train.py"), True),
        (("/usr/bin/python3", "train.py"), ("python3", "train.py"), True),
        (("python3", "train.py"), ("python3", "train.py", "--lr", "1"), False),
        (("python3", "other.py"), ("python3", "train.py"), False),
        (("python3",), ("python3", "train.py"), False),
    ],
)
def test_the_started_process_itself_has_what_it_was_started_with(
    argv: tuple[str, ...], started: tuple[str, ...], ok: bool
) -> None:
    assert arguments(argv, started, ()).ok is ok


def test_a_script_that_execs_the_trainer_may_drop_what_was_added() -> None:
    found = arguments(("python3", "train.py"), ("/root/run.sh", "--lr", "1"), ("--lr", "1"))
    assert found.ok is False
    assert "2 of 2 added words did not reach it" in found.said


def test_who_gave_itself_another_title_is_not_accused() -> None:
    assert arguments(("ray::trainer train.py",), None, ("--lr", "1")).ok is None
    assert arguments(None, None, ("--lr", "1")).ok is None


def test_variables_are_told_by_name_and_never_by_value() -> None:
    wanted = {"HF_TOKEN": "hf_secret", "A": "1", "FLEETSTOP_MARK": "7f3a"}
    assert environment({**wanted, "HOME": "/root"}, wanted).ok is True
    found = environment({"HF_TOKEN": "other", "FLEETSTOP_MARK": "7f3a"}, wanted)
    assert found.ok is False
    assert "A did not reach it; HF_TOKEN has another value there" in found.said
    assert "hf_secret" not in found.said
    assert environment(None, wanted).ok is None


def test_a_search_path_may_be_added_to() -> None:
    assert environment({"PATH": "/opt/bin:/usr/bin:/bin"}, {"PATH": "/usr/bin:/bin"}).ok is True
    assert environment({"PATH": "/opt/bin"}, {"PATH": "/usr/bin:/bin"}).ok is False
    assert environment({"OPTS": "a:b"}, {"OPTS": "a"}).ok is False


def test_an_environment_that_may_be_cut_is_not_read() -> None:
    raw = b"A=1\0B=two words\0A=2\0broken\0C=\xff\0"
    read = parse_environ(raw, 16384)
    assert read == {"A": "1", "B": "two words", "C": "\udcff"}
    assert parse_environ(raw, len(raw)) is None
    assert parse_environ(b"", 16384) is None
