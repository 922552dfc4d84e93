"""What the script of a job that runs tells of the next start by it."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from fleetstop.actions.start_script import by_its_script
from fleetstop.core.commands import Answer
from fleetstop.core.inventory import Match
from fleetstop.core.kin.family import Family, find
from fleetstop.core.launching.output import Wrote
from fleetstop.core.launching.recipe import Known
from fleetstop.core.process import ProcessTree
from fleetstop.core.signals import NUMBERS, Masks
from tests.actions.stage import job
from tests.actions.test_origins import scope
from tests.core.test_origin import answer
from tests.core.trees import tree
from tests.fakes.fake_place import FakePlace

TREE = (
    "1 init # in=1\n  5 bash /r/run.sh # in=50 born=4242\n    7 python train.py # in=70 born=4242"
)
WROTE = Wrote(("bash", "/r/run.sh"), "/w/train.log", own=True)
BOTH = sum(1 << (NUMBERS[each] - 1) for each in ("INT", "QUIT"))


def seen(*, deaf: bool) -> tuple[ProcessTree, Family]:
    told = tree(TREE)
    for pid in (5, 7):
        masks = Masks(pending=0, blocked=0, ignored=BOTH if deaf and pid == 7 else 0, caught=0)
        told.processes[pid] = msgspec.structs.replace(told.processes[pid], masks=masks)
    (family,) = find(told, Match(script="train.py"), None).families
    return told, family


def read(
    text: str | None, wrote: Wrote | None, *, deaf: bool = False, log: str | None = None
) -> tuple[Known, FakePlace]:
    place = FakePlace()
    place.host.on("origin", Answer(0, answer(at="/proc/5", argv=b"bash\0/r/run.sh\0")))
    there = Answer(0, b"\0/r/run.sh\n" + text.encode()) if text is not None else Answer(1, b"")
    place.within.on("source", there)
    aim = scope(place)
    target = msgspec.structs.replace(aim.target, job=job(log=log))
    aim = msgspec.structs.replace(aim, target=target)
    return asyncio.run(by_its_script(aim, Known(wrote=wrote), seen(deaf=deaf))), place


@pytest.mark.parametrize(
    ("text", "own"),
    [
        ("python train.py >>/w/train.log 2>&1", True),
        ("cd /w; python train.py 2>&1 | tee -a train.log", True),
        # the next one may go elsewhere: its health would be looked for in an old file
        ("python train.py >/w/$(date +%F).log", False),
        (None, False),
    ],
)
def test_only_a_log_that_its_script_names_is_the_next_runs(text: str | None, own: bool) -> None:
    found, _ = read(text, WROTE)
    assert found.wrote == msgspec.structs.replace(WROTE, own=own)


def test_what_the_inventory_says_needs_no_look_into_its_script() -> None:
    found, place = read(None, WROTE, log="/w/train.log")
    assert found.wrote == WROTE
    assert found.behind is None
    assert place.within.sent("source") == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("python train.py &\nwait\n", True),
        ("exec python train.py\n", False),  # it was corrected since
        (None, True),  # what was seen of the processes is told
    ],
)
def test_a_deaf_one_is_blamed_on_its_script_as_that_is_now(text: str | None, told: bool) -> None:
    found, _ = read(text, None, deaf=True)
    assert (found.behind is not None) is told
    if found.behind is not None:
        assert (found.behind.pid, found.behind.script, found.behind.name) == (
            50, "/r/run.sh", "run.sh",
        )  # fmt: skip
