"""Where our scripts go: root runs none from where the job's own user could exchange them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fleetstop

SCRIPT = Path(fleetstop.__file__).parent / "remote" / "scripts" / "ground.py"
NOBODY = 65534
PYTHON = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable
SAFE = "/run/.fleetstop/scripts"

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can change who a directory is")


def tools(dest: Path, user: int | None = None) -> str:
    base = f"{dest}/.fleetstop/train"
    question = {"ask": "ground", "base": base, "dest": str(dest), "wanted": []}
    more: dict[str, Any] = {"user": user, "group": user, "extra_groups": []} if user else {}
    done = subprocess.run(
        [PYTHON, "-I", "-c", SCRIPT.read_text()],
        input=json.dumps(question).encode(), capture_output=True, check=True, **more,
    )  # fmt: skip
    told = str(json.loads(done.stdout)["tools"])
    return "beside" if told == base else told


@pytest.fixture
def place() -> Iterator[Path]:
    """All above it is root's, and /tmp has its sticky bit."""
    with tempfile.TemporaryDirectory(dir="/tmp") as made:
        Path(made).chmod(0o755)
        yield Path(made) / "code"


@as_root
def test_a_directory_of_roots_own_holds_them_itself(place: Path) -> None:
    place.mkdir()
    assert tools(place) == "beside"


@as_root
@pytest.mark.parametrize("what", ["dest", "above", "group", "ours", "job"])
def test_of_one_that_another_could_exchange_root_runs_nothing(place: Path, what: str) -> None:
    (place / ".fleetstop" / "train").mkdir(parents=True)
    whose = {"above": place.parent, "ours": place / ".fleetstop",
             "job": place / ".fleetstop" / "train"}.get(what, place)  # fmt: skip
    if what == "group":
        whose.chmod(0o775)
    else:
        os.chown(whose, NOBODY, NOBODY)
    assert tools(place) == SAFE


@as_root
def test_who_is_not_root_keeps_them_beside_the_rest(place: Path) -> None:
    place.mkdir()
    os.chown(place, NOBODY, NOBODY)
    assert tools(place, NOBODY) == "beside"


def asked(question: dict[str, Any]) -> dict[str, Any]:
    done = subprocess.run(
        [PYTHON, "-I", "-c", SCRIPT.read_text()],
        input=json.dumps(question).encode(), capture_output=True, check=True,
    )  # fmt: skip
    return dict(json.loads(done.stdout))


def test_the_records_above_a_file_are_found_where_only_we_could_write_them(place: Path) -> None:
    code = place / "app/src"
    code.mkdir(parents=True)
    (code / "train.py").write_text("")
    (place / "link.py").symlink_to(code / "train.py")
    for number, each in enumerate((place, place / "app", code)):
        base = each / ".fleetstop/train"
        base.mkdir(parents=True)
        (base / "state.json").write_text("{}")
        os.utime(base / "state.json", (1000 + number, 1000 + number))
    question: dict[str, Any] = {
        "ask": "names", "there": [str(place / "link.py")], "may": [], "own": ".fleetstop/train",
        "from": [],
    }  # fmt: skip
    assert asked(question)["homes"] == {str(place): 1000, str(place / "app"): 1001, str(code): 1002}
    (code / ".fleetstop/train").chmod(0o777)
    (place / "app/.fleetstop/train/state.json").unlink()
    (place / "app/.fleetstop/train/state.json").symlink_to(place / ".fleetstop/train/state.json")
    assert asked(question)["homes"] == {str(place): 1000}
    none = {**question, "there": [], "from": [str(code)]}
    assert asked(none)["homes"] == {str(place): 1000}


def test_how_a_release_did_comes_with_its_manifest_and_whose_stages_lie_there(place: Path) -> None:
    base = place / ".fleetstop/train"
    for name in ("stage-7f3a", "stage-dead"):
        (base / name).mkdir(parents=True)
    for name, note in (("one", '{"healthy": "2026"}'), ("two", None)):
        (base / "releases" / name).mkdir(parents=True)
        (base / "releases" / name / "manifest.json").write_text("{}")
        if note is not None:
            (base / "releases" / name / "tried.json").write_text(note)
    question = {"ask": "ground", "base": str(base), "dest": str(place), "wanted": []}
    told = asked(question)
    assert (set(told["releases"]), told["tried"]) == (
        {"one", "two"},
        {"one": '{"healthy": "2026"}'},
    )
    assert told["stages"] == ["7f3a", "dead"]
