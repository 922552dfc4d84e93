"""The screens of `doctor`: all well, something wrong, and what could not be seen."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fleetstop.core.checkup.checks import Check, Checked, checkup
from fleetstop.view.checkup import shown

GOLDEN = Path(__file__).parent / "golden"


def well(*names: str) -> tuple[Check, ...]:
    return tuple(Check(each, True, f"{each} is well") for each in names)  # type: ignore[arg-type]


HOST = well("reachable", "host_key", "login", "root", "pct", "tools", "clock")
REST = well("nvidia_smi", "kernel_log")
INSIDE = Checked("ct200", "container", "pve1", 200, None, well("container", "entered", "tools"))
JOB = Checked("ct200:train", "job", "pve1", 200, "train", well("job", "stops", "log"))
MISMATCH = Check(
    "nvidia_smi",
    False,
    "nvidia-smi does not fit the loaded kernel module (jobs run on); update or reboot it",
    "# stop its jobs first, fleetstop status shows them; then: ssh root@10.1.2.6 reboot",
)
DEAF = Check(
    "stops",
    False,
    "deaf: 26982 ignores INT (SigIgn); it was started with & from a non-interactive shell: "
    "`stop --graceful` cannot work, whenever it is needed",
    "fleetstop restart ct200:train --after-checkpoint",
)
LOG = Check(
    "log",
    False,
    "/workspace/typo.log is not there; it writes to /workspace/\x1b[2Jtrain.log",
    "log: /workspace/\x1b[2Jtrain.log   # in the inventory",
)
DOWN = Check(
    "reachable",
    False,
    "pve2: 10.1.2.7:22 refused the connection: nothing listens there",
    "see for yourself: ssh root@10.1.2.7",
)
GOOD = checkup([Checked("pve1", "host", "pve1", checks=HOST + REST), INSIDE, JOB])
BAD = checkup(
    [
        Checked("pve1", "host", "pve1", checks=(*HOST, MISMATCH, REST[1])),
        INSIDE,
        Checked("ct200:train", "job", "pve1", 200, "train", (JOB.checks[0], DEAF, LOG)),
    ]
)
UNDECIDED = checkup(
    [
        Checked("pve2", "host", "pve2", checks=(DOWN,)),
        Checked(
            "ct300", "container", "pve2", 300, None, (Check("container", None, "not looked at"),)
        ),
    ]
)
CASES = {
    "doctor_good": (GOOD, False, False),
    "doctor_good_quiet": (GOOD, True, False),
    "doctor_good_verbose": (GOOD, False, True),
    "doctor_bad": (BAD, False, False),
    "doctor_bad_quiet": (BAD, True, False),
    "doctor_undecided": (UNDECIDED, False, False),
}


@pytest.mark.parametrize("name", CASES)
def test_as_its_golden_file_has_it(name: str) -> None:
    told, quiet, verbose = CASES[name]
    text = shown(told, width=100, color=False, quiet=quiet, verbose=verbose)
    place = GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        place.write_text(text)
    assert text == place.read_text()


def test_no_word_of_a_host_moves_the_cursor() -> None:
    text = shown(BAD, width=100, color=False, quiet=False, verbose=True)
    assert "\x1b" not in text


def test_a_fix_is_one_line_however_narrow_the_terminal_is() -> None:
    text = shown(BAD, width=60, color=False, quiet=False, verbose=False)
    assert MISMATCH.fix is not None
    assert any(line.endswith(MISMATCH.fix) for line in text.splitlines())
