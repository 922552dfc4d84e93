"""What a redeploy costs: connections, pct calls, questions, and time. Counted, and bounded in time.

The bound in time is ten times what is wanted: the machine that tests may be busy.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from pathlib import Path

import pytest

from fleetstop import Fleet
from fleetstop.core.commands import Answer, Command
from fleetstop.core.launching.health import SETTLES_S
from fleetstop.core.report import Outcome
from fleetstop.events import AnyEvent
from fleetstop.remote.shell import FramedShell

from . import versions
from .bed import Bed
from .redeploying import stanza

pytestmark = pytest.mark.bed
SAVE_S = 0.5
WANTED_S = 2.5


class Counted:
    """The frames of one run, by verb, up to the launch; and when what was told."""

    def __init__(self) -> None:
        self.verbs: Counter[str] = Counter()
        self.after: Counter[str] = Counter()
        self.launched = False

    def told(self, event: AnyEvent) -> None:
        self.launched = self.launched or type(event).__name__ == "Launched"

    def asked(self, verb: str) -> None:
        (self.after if self.launched else self.verbs)[verb] += 1


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    counts, plain = Counted(), FramedShell.run

    async def run(self: FramedShell, command: Command) -> Answer:
        counts.asked(command.verb)
        return await plain(self, command)

    monkeypatch.setattr(FramedShell, "run", run)
    return counts


def redeploy(box: Bed, where: Path, files: list[Path], counts: Counted) -> tuple[Outcome, float]:
    inventory = stanza(box, where)
    box.start("--save-seconds", str(SAVE_S))

    async def whole() -> Outcome:
        async with Fleet.load(inventory, emit=counts.told, record=False) as fleet:
            report = await fleet.redeploy(box.name, files=files)
        return report.targets[0]

    began = time.monotonic()
    outcome = asyncio.run(asyncio.wait_for(whole(), 120))
    assert outcome.result == "redeployed", outcome
    assert [each.signal for each in outcome.signals] == ["INT"]
    return outcome, time.monotonic() - began


@pytest.mark.parametrize("count", [0, 300])
def test_a_redeploy_is_one_connection_one_pct_exec_and_few_questions(
    box: Bed, tmp_path: Path, counted: Counted, count: int
) -> None:
    src = versions.sources(tmp_path / "src")
    files = [src / "train.py"]
    for number in range(count):
        place = src / "configs" / f"d{number % 7}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"c{number}.yaml").write_text(f"seed: {number}\n" * 50)
    files += [src / "configs"] if count else []
    connections, calls = box.lab.connections(), len(box.lab.pct_calls())
    box.lab.set_pct_cost(0.4)
    try:
        outcome, seconds = redeploy(box, tmp_path, files, counted)
    finally:
        box.lab.set_pct_cost(0)
    assert box.lab.connections() - connections == 1
    assert len(box.lab.pct_calls()) - calls == 1
    assert outcome.cost is not None
    assert (outcome.cost.ssh_connections, outcome.cost.pct_calls) == (1, 1)
    verbs = counted.verbs
    # names, what lies there, survey; what was sent, proved; the activator
    assert verbs["py"] == 5, verbs
    # the manifest; scripts and spec
    assert (verbs["stage"], verbs["put"]) == (1, 2), verbs
    # first and last, and before the stop
    assert verbs["gpus"] <= 4, verbs
    assert (verbs["claim"], verbs["send"], verbs["user"]) == (1, 1, 1), verbs
    assert verbs["order"] == 2, verbs
    # looks follow the save, which takes as long as it takes: with a save of 0.5 s about 75 in all
    assert sum(verbs.values()) < 150, verbs
    beyond = seconds - SAVE_S - SETTLES_S
    box.note(f"1 file and {count}", f"{beyond:.2f} s beyond save and health", str(verbs.total()))
    assert beyond < 10 * WANTED_S


def test_what_cannot_be_packed_takes_one_pct_exec_more(
    box: Bed, tmp_path: Path, counted: Counted
) -> None:
    src = versions.sources(tmp_path / "src")
    (src / "weights.bin").write_bytes(os.urandom(3 << 20))
    calls = len(box.lab.pct_calls())
    outcome, _ = redeploy(box, tmp_path, [src / "train.py", src / "weights.bin"], counted)
    assert len(box.lab.pct_calls()) - calls == 2
    assert outcome.cost is not None
    assert outcome.cost.pct_calls == 2


def test_the_second_redeploy_puts_no_script_again(
    box: Bed, tmp_path: Path, counted: Counted
) -> None:
    src = versions.sources(tmp_path / "src")
    redeploy(box, tmp_path, [src / "train.py"], counted)
    base = box.lab.rootfs(box.vmid) / "root/.fleetstop/train"
    before = {each.name: each.stat().st_ino for each in base.glob("*.py")}
    assert "activate.py" in before
    (src / "train.py").write_text(versions.version("other"))
    inventory = stanza(box, tmp_path)
    ran = box.run("redeploy", box.name, str(src / "train.py"), inventory=inventory, deadline=120.0)
    assert ran.code == 0, ran.people
    assert {each.name: each.stat().st_ino for each in base.glob("*.py")} == before
