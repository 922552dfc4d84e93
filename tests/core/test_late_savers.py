"""A trainer that forks its saver and leaves at once: the saver is family, others are not."""

from __future__ import annotations

import pytest

from fleetstop.core.inventory import Match
from fleetstop.core.kin.birth import grow
from fleetstop.core.kin.family import find
from tests.core.trees import tree

BEFORE = "110 bash run.sh # leader\n  120 python train.py"
HZ = tree(BEFORE).hz
SEEN_S = 5.0  # uptime of the last look at which the trainer lived


def born(after_s: float) -> int:
    return int((SEEN_S + after_s) * HZ)


@pytest.mark.parametrize(
    ("after_s", "line", "joins"),
    [
        (0.4, "130 python train.py # fork", True),
        (3.0, "130 python train.py # fork", False),
        # the wrapper's next line, left in the background
        (0.4, "130 python upload.py", False),
        (0.4, "130 bash run.sh # fork", False),
    ],
)
def test_who_was_left_behind_between_two_looks(after_s: float, line: str, joins: bool) -> None:
    [family] = find(tree(BEFORE), Match(script="train.py"), None).families
    tags = f"born={born(after_s)} sid=110 ppid=1"
    later = f"{line} {tags}" if "#" in line else f"{line} # {tags}"
    grown = grow(family, tree(later), SEEN_S)
    assert (130 in {kin.pid for kin in grown.members}) is joins
