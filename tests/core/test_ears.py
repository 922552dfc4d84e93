"""Whether a job is deaf because its script puts it into the background, which is known before."""

from __future__ import annotations

import msgspec
import pytest

from fleetstop.core.inventory import Match
from fleetstop.core.kin.family import Family, find
from fleetstop.core.launching.ears import Behind, backgrounds, behind
from fleetstop.core.process import ProcessTree
from fleetstop.core.signals import NUMBERS, Masks
from fleetstop.core.verdict import Look, judge
from tests.core.trees import tree

TREE = "1 init\n  2 bash /root/run.sh\n    3 python train.py"
BOTH = ("INT", "QUIT")


def mask(*signals: str) -> int:
    return sum(1 << (NUMBERS[each] - 1) for each in signals)


def seen(
    ignores: dict[int, tuple[str, ...]], caught: tuple[str, ...] = (), text: str = TREE
) -> tuple[ProcessTree, Family]:
    """`ignores`: by PID; `caught`: by the trainer."""
    told = tree(text)
    for pid, process in list(told.processes.items()):
        heard = mask(*caught) if "train.py" in (process.argv or ()) else 0
        masks = Masks(pending=0, blocked=0, ignored=mask(*ignores.get(pid, ())), caught=heard)
        told.processes[pid] = msgspec.structs.replace(process, masks=masks)
    (family,) = find(told, Match(script="train.py"), None).families
    return told, family


def test_a_shell_that_hears_has_put_a_deaf_one_into_the_background() -> None:
    found = behind(*seen({3: BOTH}), "INT")
    assert found is not None
    assert [each.pid for each in found] == [2, 3]
    below = "1 init\n  2 timeout 9h bash run.sh\n    3 bash run.sh\n      4 nice python\n"
    below += "        5 python train.py"
    assert behind(*seen({4: BOTH, 5: BOTH}, text=below), "INT") is not None


@pytest.mark.parametrize(
    ("ignores", "caught", "signal"),
    [
        ({2: BOTH, 3: BOTH}, (), "INT"),  # the incident: its shell is deaf too; ours will hear
        ({}, ("INT",), "INT"),
        ({2: ("INT",), 3: BOTH}, (), "INT"),  # trap '' INT
        ({3: ("INT",)}, (), "INT"),  # its own code does that
        ({3: BOTH}, ("TERM",), "TERM"),  # it is not stopped by INT
        ({3: BOTH}, ("TERM",), None),
    ],
)
def test_nobody_else_is_said_to(
    ignores: dict[int, tuple[str, ...]], caught: tuple[str, ...], signal: str | None
) -> None:
    assert behind(*seen(ignores, caught), signal) is None


def test_a_deaf_one_is_told_with_who_made_it_so() -> None:
    told, family = seen({3: BOTH})
    found = judge(None, Look(at=1.0, tree=told), family, stop_signals=("INT",), checkpoints=None)
    assert found.evidence == (
        "3 ignores INT (SigIgn); it was started with & from a non-interactive shell, by 2 bash, "
        "which hears INT itself",
    )
    told, family = seen({2: BOTH, 3: BOTH})
    found = judge(None, Look(at=1.0, tree=told), family, stop_signals=("INT",), checkpoints=None)
    assert found.evidence[0].endswith("from a non-interactive shell")


def test_what_did_it_is_named_with_what_is_to_be_changed() -> None:
    one = Behind(2, 3, ("bash", "/root/run.sh"), "run.sh", "/root/run.sh")
    assert one.finding == (
        "2 (run.sh) hears INT, and 3, which it has put into the background with &, ignores it: "
        "what it starts next will too, and be no healthy one, unless its code sets a handler of "
        "its own; in run.sh: `exec python …`, or no &"
    )


@pytest.mark.parametrize(
    ("text", "does"),
    [
        ("#!/bin/bash\npython train.py &\nwait\n", True),
        ("python train.py & child=$!; wait $child", True),
        ("nohup python train.py >log 2>&1&\nwait", True),
        ("cd /root && python train.py >log 2>&1", False),
        ("python train.py &>log", False),
        ("python train.py >&2 |& tee log", False),
        ("# not with & any more\nexec python train.py  # & was bad", False),
        ("echo a \\& b; exec python train.py", False),
    ],
)
def test_a_script_that_was_corrected_since_is_not_blamed(text: str, does: bool) -> None:
    assert backgrounds(text) is does
