"""`fleetstop adopt` before anything is connected to: names and words that cannot be."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# nobody listens there: a connection would be 4
FLEET = """\
hosts:
  pve1: {ssh: root@127.0.0.1, port: 1}
containers:
  ct200: {host: pve1, vmid: 200, jobs: {train: {match: {script: train.py}}}}
  ct201: {host: pve1, vmid: 201}
"""


def adopt(where: Path, *words: str) -> tuple[int, str]:
    fleet = where / "fleet.yaml"
    if not fleet.exists():
        fleet.write_text(FLEET)
    line = [sys.executable, "-m", "fleetstop", "adopt", *words, "-i", str(fleet)]
    done = subprocess.run(
        line, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
    )
    assert fleet.read_text() == FLEET
    return done.returncode, " ".join((done.stdout + done.stderr).split())


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["ct201", "--pid", "5", "--as", "a b"], 2, "is no name"),
        (["ct201", "--pid", "5"], 2, "Missing option '--as'"),
        (["ct201", "--as", "x"], 2, "Missing option '--pid'"),
        (["ct201", "--pid", "1", "--as", "x"], 2, "1 is not in the range"),
        (["ct200:train", "--pid", "5", "--as", "x"], 2, "the job's name goes to --as"),
        (["ct2*", "--pid", "5", "--as", "x"], 2, "name one container or host"),
        (["ct999", "--pid", "5", "--as", "x"], 2, "no container or host 'ct999'"),
        (["ct200", "--pid", "5", "--as", "train"], 5, "ct200:train is in the inventory already"),
        (["ct201", "--pid", "5", "--as", "ct200:x"], 2, "is 'ct201' in the inventory"),
        (["pve1/300", "--pid", "5", "--as", "ct201:x"], 5, "'ct201' is another of the containers"),
    ],
)
def test_it_is_said_before_anything_is_connected_to(
    tmp_path: Path, words: list[str], code: int, said: str
) -> None:
    assert said in adopt(tmp_path, *words)[1]
    assert adopt(tmp_path, *words)[0] == code


def test_a_host_that_is_not_there_is_4_and_nothing_is_written(tmp_path: Path) -> None:
    code, said = adopt(tmp_path, "ct201", "--pid", "5", "--as", "x", "--yes")
    assert code == 4, said
    assert "nothing was written" in said
    code, said = adopt(tmp_path, "ct201", "--pid", "5", "--as", "x", "--json")
    assert code == 4
    assert '"event":"adoption","schema":1,"exit_code":4,"name":null' in said
