"""Which words reach what a text starts, as shells, su and flock hand them on."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from fleetstop.core.launching.handing import lost


@pytest.mark.skipif(os.geteuid() != 0, reason="su asks others for a password")
@pytest.mark.parametrize(
    "line",
    [
        "sh -c 'sh WRITE'", "bash -lc 'sh WRITE \"$@\"'", "bash -c 'sh WRITE \"$@\"' sh",
        "bash -c -x 'sh WRITE \"$@\"' sh", "sh -c 'for each; do sh WRITE $each; done' sh",
        "su root -c 'sh WRITE'", "su root -c 'sh WRITE \"$@\"' sh",
        "su -c 'sh WRITE \"$@\"' -- root sh", "nice sh -c 'sh WRITE \"$@\"' sh",
        "flock LOCK -c 'sh WRITE'",
    ],
)  # fmt: skip
def test_as_the_programs_do_it(line: str, tmp_path: Path) -> None:
    """`--lr` and `3` reach the script or not, which is what was said of it."""
    write, seen = tmp_path / "write.sh", tmp_path / "seen"
    write.write_text(f'echo "$@" >>{seen}\n')
    line = line.replace("WRITE", str(write)).replace("LOCK", str(tmp_path / "lock"))
    words = shlex.split(line)
    subprocess.run(
        [*words, "--lr", "3"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )
    told = seen.read_text().split() if seen.exists() else []
    assert (told == ["--lr", "3"]) == (lost(words, ("--lr", "3")) is None)
