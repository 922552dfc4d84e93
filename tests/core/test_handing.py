"""Which words added behind a command can reach what it starts: as the programs themselves do it."""

from __future__ import annotations

import shlex

import pytest

from fleetstop.core.launching.handing import lost

NOTHING, FIRST, DASH = "hands nothing on", "would be $0", "for its own options"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("su www-data -c 'exec bash run.sh'", NOTHING),
        ("su - www-data -s /bin/bash -c 'exec bash run.sh'", NOTHING),
        ("su -lc 'bash run.sh' ml", NOTHING),
        ("su --command='bash run.sh' ml", NOTHING),
        ("runuser ml -c 'bash run.sh'", NOTHING),
        ("sh -c 'python t.py; echo $?'", NOTHING),
        ("/bin/bash -lc 'python t.py'", NOTHING),
        ("bash -eo pipefail -c 'python t.py | tee log'", NOTHING),
        ("bash -c -x 'python t.py'", NOTHING),
        ("busybox sh -c 'python t.py'", NOTHING),
        ("sudo -u ml sh -c 'python t.py'", NOTHING),
        ("nice -n 5 bash -lc 'python t.py'", NOTHING),
        ("env A=1 timeout 10h bash -c 'python t.py'", NOTHING),
        ("flock /run/gpu -c 'python t.py'", "flock takes one text"),
        ("script -qc 'python t.py' /dev/null", "script takes one text"),
        ("bash -c 'python t.py \"$@\"'", FIRST),
        ("su ml -c 'python t.py \"$@\"' sh", DASH),
        ("su ml -c 'python t.py \"$@\"'", DASH),
        ("su -c 'python t.py \"$@\"' -- ml", FIRST),
        # they may reach it
        ("su -c 'python t.py \"$@\"' -- ml sh", None),
        ("bash -c 'python t.py \"$@\"' sh", None),
        ("bash -c 'python t.py $0 \"$@\"'", None),
        ("bash -c 'for each; do echo $each; done' sh", None),
        ("bash -c '. ./run.sh' sh", None),
        ("bash -c 'python t.py ${1:-x}' sh", None),
        ("bash run.sh", None),
        ("bash -eu run.sh -c x", None),
        ("su ml run.sh", None),
        ("runuser -u ml -- python t.py", None),
        ("sudo -u ml python t.py", None),
        ("flock /run/gpu python t.py", None),
        ("uv run python t.py --shell bash -c x", None),
        ("torchrun t.py", None),
        ("python3 -u t.py", None),
        ("env bash run.sh", None),
        ("", None),
    ],
)
def test_words_behind_a_text_reach_what_that_hands_on(line: str, why: str | None) -> None:
    said = lost(shlex.split(line), ("--lr", "3"))
    assert (said is None) if why is None else (said is not None and why in said)
