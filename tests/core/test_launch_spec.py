"""How a trainer is to be started, as data: what the supervisor will read."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import fleetstop
from fleetstop.core.launching.spec import LaunchSpec

SPEC = LaunchSpec(
    argv=("python3", "-u", "train.py"),
    cwd="/root",
    env={"PATH": "/usr/bin:/bin"},
    log=None,
    mark="7f3a",
    status="/root/.fleetstop/train/status/7f3a.json",
    limits={"NOFILE": (1024, -1)},
)


def test_it_tells_exactly_what_the_supervisor_asks_for() -> None:
    path = Path(fleetstop.__file__).parent / "remote" / "scripts" / "supervise.py"
    kinds = next(
        each.value
        for each in ast.parse(path.read_text()).body
        if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "KINDS"
    )
    assert isinstance(kinds, ast.Dict)
    asked = {name for each in kinds.values for name in ast.literal_eval(each).split()}
    told = json.loads(json.dumps(SPEC.words()))
    assert set(told) == asked
    assert told["limits"] == {"NOFILE": [1024, -1]}
