"""The screens of `adopt`: what would be written, what was, what was not, and why."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fleetstop.core.adopting.adoption import Adoption
from fleetstop.core.adopting.gather import Gathered
from fleetstop.core.adopting.placing import Placing
from fleetstop.core.adopting.stanza import Stanza
from fleetstop.core.inventory import Launch, Match
from fleetstop.core.kin.family import Family, Kin
from fleetstop.core.process import ProcessId
from fleetstop.core.report import Outcome
from fleetstop.view.adopting import QUESTION, ended, failed, shown, text

GOLDEN = Path(__file__).parent / "golden"
FAMILY = Family(
    members=(
        Kin(ProcessId(901, 1), 26978, "wrapper", ("bash", "/root/run.sh"), 1, 0, 273_600.0),
        Kin(
            ProcessId(902, 2),
            26982,
            "trainer",
            ("python3", "-u", "/root/train_dflash_pipeline.py"),
            901,
            0,
            273_600.0,
        ),
    )
)
STANZA = Stanza(
    match=Match(script="train_dflash_pipeline.py"),
    stop_signal="INT",
    log="/workspace/train.log",
    checkpoints="/workspace/checkpoints",
    gpus=tuple(range(8)),
    launch=Launch(
        run=("bash", "/root/run.sh"),
        cwd="/root",
        env={"DFLASH_PROFILE_INTERVAL": "60", "RUN_NAME": "a b: \x1b[1m c"},
        user="root",
    ),
    dest="/root",
)
DEAF = (
    "stop_signal: it hears neither INT nor TERM now, so nothing tells which one saves; a job that "
    "fleetstop launches can hear both",
    "env: HF_TOKEN, WANDB_API_KEY: secrets, not written; a restart takes them from the process",
)
ADDRESS = Placing(
    "containers",
    "ct200",
    "10.1.2.6",
    "train",
    {"10.1.2.6": {"ssh": "root@10.1.2.6"}, "ct200": {"host": "10.1.2.6", "vmid": 200}},
)
KNOWN = Placing("containers", "ct200", "pve1", "train")


def adoption(where: Placing, gathered: Gathered, *, new_file: bool = False) -> Adoption:
    file = "inventory/fleet.yaml"
    return Adoption("t", where.host, 200, where, gathered, FAMILY, file, new_file)


GOOD = adoption(KNOWN, Gathered(STANZA))
UNDECIDED = adoption(
    ADDRESS,
    Gathered(Stanza(match=Match(script="train.py"), launch=STANZA.launch), (), DEAF),
    new_file=True,
)
WHY = ": nobody could be asked (no terminal, and no --yes)"
GONE = Outcome(
    target="ct200",
    host="pve1",
    vmid=200,
    job=None,
    result="refused",
    reason="no process has the PID 26982 in ct200",
    hint="fleetstop status ct200 shows what holds a GPU there",
)


def screen(made: Adoption, after: str) -> str:
    return shown(made, width=100, color=False) + after


def plain(lines: list[object]) -> str:
    return text(lines, width=100, color=False)  # type: ignore[arg-type]


SCREENS = {
    "adopt_good": screen(
        GOOD, QUESTION + "y\n" + plain([*ended(GOOD, written=True, why="", inventory=None)])
    ),
    "adopt_undecided": screen(
        UNDECIDED, plain([*ended(UNDECIDED, written=False, why=WHY, inventory="f.yaml")])
    ),
    "adopt_no": screen(
        GOOD, QUESTION + "\n" + plain([*ended(GOOD, written=False, why="", inventory=None)])
    ),
    "adopt_bad": plain([*failed(GONE)]),
}


@pytest.mark.parametrize("name", SCREENS)
def test_as_its_golden_file_has_it(name: str) -> None:
    file = GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(SCREENS[name])
    assert SCREENS[name] == file.read_text()


def test_no_line_of_the_stanza_is_broken() -> None:
    """It can be copied into a file."""
    narrow = shown(GOOD, width=40, color=False)
    assert "\n        run: [bash, /root/run.sh]\n" in narrow
    assert '\n          RUN_NAME: "a b: \\x1b[1m c"\n' in narrow


def test_colour_only_adds() -> None:
    painted = shown(UNDECIDED, width=100, color=True)
    assert "\x1b[" in painted
