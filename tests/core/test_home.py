"""Where a job's code lies, by its inventory alone; and which Python is the job's own."""

from __future__ import annotations

import pytest

from fleetstop.core.inventory import Deploy, Job, Launch, Match
from fleetstop.core.launching.interpreter import of_process, of_words
from fleetstop.core.releases.home import base_in, base_of, bases_above, code_of, dest_of, home


@pytest.mark.parametrize(
    ("script", "run", "cwd", "dest", "found"),
    [
        ("train.py", (), None, None, None),
        ("train.py", (), None, "/srv/code", "/srv/code"),
        ("/opt/train.py", ("/root/run.sh",), "/root", None, "/opt"),
        ("train.py", ("/root/run.sh",), "/root", None, "/root"),
        ("train.py", ("python3", "train.py"), "/root", None, "/root"),
        ("train.py", ("python3", "src/train.py"), "/root", None, "/root/src"),
        ("train.py", ("python3", "./train.py"), "/root", None, "/root"),
        ("train.py", ("python3", "/opt/x/train.py"), "/root", None, "/opt/x"),
        ("src/train.py", ("/root/run.sh",), "/root", None, "/root"),
        (None, ("/root/run.sh",), "/root", None, "/root"),
    ],
)
def test_where_the_code_lies(
    script: str | None, run: tuple[str, ...], cwd: str | None, dest: str | None, found: str | None
) -> None:
    match = Match(script=script) if script else Match(exe="trainer")
    launch = Launch(run=run, cwd=cwd) if run else None
    assert home(Job("train", match, launch=launch, deploy=Deploy(dest=dest))) == found


def test_where_files_go_is_not_taken_from_where_a_wrapper_starts() -> None:
    """run.sh may go anywhere before it starts the script: sent beside run.sh, it is never run."""
    launch = Launch(run=("/root/run.sh",), cwd="/root")
    assert code_of(Job("train", Match(script="train.py"), launch=launch)) is None
    named = Launch(run=("python3", "-u", "train.py"), cwd="/root")
    assert code_of(Job("train", Match(script="train.py"), launch=named)) == "/root"


def test_records_may_lie_above_the_code() -> None:
    job = Job("train", Match(gpu=True))
    found = bases_above("/root/proj/../app/train.py", job)
    own = ".fleetstop/train"
    assert found == (f"/root/app/{own}", f"/root/{own}", f"/{own}")
    assert [dest_of(each) for each in found] == ["/root/app", "/root", "/"]
    assert bases_above("train.py", job) == ()


def test_our_own_directory_is_the_jobs() -> None:
    assert base_of("/", Job("train", Match(gpu=True))) == "/.fleetstop/train"
    assert base_of("/root", Job("", Match(gpu=True))) == "/root/.fleetstop/job"


@pytest.mark.parametrize(
    ("argv", "exe", "python"),
    [
        (("/opt/venv/bin/python", "train.py"), "/usr/bin/python3.11", "/opt/venv/bin/python"),
        (("python3", "train.py"), "/usr/bin/python3.11", "/usr/bin/python3.11"),
        (("/root/run", "train.py"), "/usr/bin/python3.11", "/usr/bin/python3.11"),
        (("ray::train",), "/opt/conda/bin/python3.10", "/opt/conda/bin/python3.10"),
        (("./trainer",), "/opt/trainer", None),
        (("python3",), None, None),
    ],
)
def test_the_jobs_own_python(argv: tuple[str, ...], exe: str | None, python: str | None) -> None:
    assert of_process(argv, exe) == python


def test_of_words_that_are_to_be_started() -> None:
    assert of_words(("nice", "-n", "5", "/opt/venv/bin/python3", "train.py")) == (
        "/opt/venv/bin/python3"
    )
    assert of_words(("/root/run.sh", "--python-version=3")) is None


@pytest.mark.parametrize(
    ("words", "base"),
    [
        ("python3 -I /a/.fleetstop/train/activate.py /a/.fleetstop/train/stage-7f/spec.json",
         "/a/.fleetstop/train"),
        ("python3 -I /run/.fleetstop/scripts/activate.py /ml/.fleetstop/train/stage-7f/spec.json",
         "/ml/.fleetstop/train"),
        ("python3 -I /a/.fleetstop/train/activate.py spec.json", "/a/.fleetstop/train"),
        ("python3 -I /a/.fleetstop/train/activate.py", None),
        ("python3 train.py", None),
    ],
)  # fmt: skip
def test_whose_activator_it_is(words: str, base: str | None) -> None:
    assert base_in(words.split()) == base
