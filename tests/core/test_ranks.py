"""Which process a stop of several ranks asks, where only rank 0 saves."""

from __future__ import annotations

import msgspec
import pytest

from fleetstop.core.above.ranks import promise
from fleetstop.core.climbing.rungs import Decision, Send, Skip, Standing, WatchOn, decide
from fleetstop.core.inventory import Job, Match
from fleetstop.core.kin.family import find
from fleetstop.core.ladder import begin, observe
from fleetstop.core.ledger import Heard
from fleetstop.core.playbook import Playbook
from fleetstop.core.process import ProcessId, ProcessTree
from fleetstop.core.signals import NUMBERS, Masks
from fleetstop.core.verdict import Look, judge
from tests.core.habits import rung
from tests.core.trees import tree

TRAIN = Match(script="train.py")
RUN = "100 {}\n  110 python train.py # gpu=0 rank\n  120 python train.py # gpu=1 rank"


def masks(*caught: str, ignored: tuple[str, ...] = ()) -> Masks:
    bits = [sum(1 << (NUMBERS[n] - 1) for n in names) for names in (caught, ignored)]
    return Masks(pending=0, blocked=0, ignored=bits[1], caught=bits[0])


def standing(
    ranks: str | None = "rank0_saves",
    launcher: str = "torchrun train.py",
    *,
    trainer: Masks | None = None,
    above: Masks | None = None,
    **facts: object,
) -> Standing:
    here = tree(RUN.format(launcher))
    made = {
        pid: msgspec.structs.replace(
            p,
            masks=(above or masks("INT", "TERM")) if pid == 100 else (trainer or masks("INT")),
        )
        for pid, p in here.processes.items()
    }
    here = ProcessTree(made, here.uptime)
    job = msgspec.structs.replace(Job(name="train", match=TRAIN), ranks=ranks)
    (family,) = find(here, TRAIN, job).families
    base = Standing(
        family=family, tree=here, stop_signal="INT", lossless=True, consent="absent",
        past={}, heard=frozenset(),
    )  # fmt: skip
    return msgspec.structs.replace(base, **facts)


def may(text: str, here: Standing) -> Decision:
    return decide(0, rung(text), here)


def pids(found: Decision) -> list[int]:
    return [kin.id.pid for kin in found.recipients] if isinstance(found, Send) else []


def test_only_rank_0_saves_one_signal_to_the_launcher() -> None:
    """To the leaves, the others' end would make torchrun TERM rank 0 in its save."""
    found = may("INT/1", standing())
    assert pids(found) == [100]
    assert isinstance(found, Send)
    assert [kin.id.pid for kin in found.passed_on] == [110, 120]
    assert not found.lossy


@pytest.mark.parametrize("said", [None, "all_save"])
def test_otherwise_the_leaves_in_one_burst(said: str | None) -> None:
    assert pids(may("INT/1", standing(said))) == [110, 120]


@pytest.mark.parametrize(
    "launcher",
    [
        "deepspeed train.py",
        "mpirun -n 2 python train.py",
        "python -m deepspeed.launcher.launch t.py",
    ],
)
def test_a_launcher_that_hands_nothing_on_is_not_asked_and_neither_are_the_leaves(
    launcher: str,
) -> None:
    found = may("INT/1", standing(launcher=launcher))
    assert isinstance(found, Skip)
    assert "does not hand INT on" in found.reason
    assert not found.consent


def test_without_a_launcher_nothing_is_sent() -> None:
    found = may("INT/1", standing(launcher="bash run.sh"))
    assert isinstance(found, Skip)
    assert "none stands above all ranks" in found.reason


def test_a_signal_the_launcher_does_not_forward_is_skipped() -> None:
    found = may("USR1/1", standing(trainer=masks("USR1"), above=masks("USR1")))
    assert isinstance(found, Skip)
    assert "does not hand USR1 on" in found.reason


def test_landing_is_judged_on_the_launcher_and_on_whoever_it_hands_it_to() -> None:
    deaf = may("INT/1", standing(above=masks("TERM", ignored=("INT",))))
    assert isinstance(deaf, Skip)
    assert deaf.landing == "ignored"
    # ranks that ignore it would be KILLed by their launcher 30 s later
    ranks = may("INT/1", standing(trainer=masks("TERM", ignored=("INT",))))
    assert isinstance(ranks, Skip)
    assert ranks.landing == "ignored"
    # TERM handed on to ranks without a handler ends them all, unsaved
    fatal = may("TERM/1", standing())
    assert isinstance(fatal, Skip)
    assert fatal.landing == "fatal"


def nested(text: str) -> Standing:
    here = tree(text)
    job = msgspec.structs.replace(Job(name="train", match=TRAIN), ranks="rank0_saves")
    (family,) = find(here, TRAIN, job).families
    return standing(family=family, tree=here)


@pytest.mark.parametrize(
    ("text", "who"),
    [
        (
            "90 accelerate launch --cpu --num_processes 2 --mpirun_hostfile h train.py\n"
            "  100 mpirun -n 2 python train.py\n",
            "mpirun 100",
        ),
        (
            "90 python /usr/bin/deepspeed train.py\n"
            "  100 python -m deepspeed.launcher.launch train.py\n",
            "deepspeed 100",
        ),
    ],
)
def test_of_two_launchers_the_nearer_one_is_asked_about(text: str, who: str) -> None:
    """accelerate above mpirun was sent the INT: it would have died of it, and the ranks gone on."""
    ranks = "    110 python train.py # gpu=0 rank\n    120 python train.py # gpu=1 rank"
    found = may("INT/1", nested(text + ranks))
    assert isinstance(found, Skip)
    assert f"{who} does not hand INT on" in found.reason


def test_kill_is_no_message_and_reaches_the_ranks() -> None:
    found = may("KILL:trainers/1", standing(lossless=False, consent="given"))
    assert pids(found) == [110, 120]


def heard_by(pid: int) -> dict[ProcessId, Heard]:
    return {ProcessId(pid, pid): Heard(run="7f3a", signal="INT", ago_s=5.0)}


def test_a_second_run_watches_on_for_the_launchers_signal() -> None:
    assert isinstance(may("INT/1", standing(past=heard_by(100))), WatchOn)


def test_ranks_have_heard_what_their_launcher_was_sent() -> None:
    """The key was taken out of the inventory meanwhile: an INT to the leaves is a second one."""
    assert isinstance(may("INT/1", standing("all_save", past=heard_by(100))), WatchOn)


@pytest.mark.parametrize(("lossless", "consent"), [(True, "absent"), (False, "absent")])
def test_what_the_ranks_have_heard_themselves_their_launcher_does_not_hand_on_again(
    lossless: bool, consent: str
) -> None:
    """The key was put into the inventory after a stop: handed on, it would cut the save."""
    both = heard_by(110) | heard_by(120)
    again = may("INT/1", standing(past=both, lossless=lossless, consent=consent))
    assert isinstance(again, WatchOn)
    assert [kin.id.pid for kin in again.recipients] == [110, 120]
    one = may("INT/1", standing(past=heard_by(110), lossless=lossless, consent=consent))
    assert isinstance(one, Skip)
    assert "110 has heard a signal already" in one.reason
    assert one.consent is not lossless


def test_ranks_that_are_watched_on_count_as_asked() -> None:
    """Else the next rung would not wait for them while they obey."""
    here = standing(past=heard_by(100))
    book = Playbook(name="two", ladder=(rung("INT/1"), rung("TERM/1")), lossless=True)
    ladder = begin(book, here.family, stop_signal="INT", consent="absent", past=here.past)
    look = Look(at=0.0, tree=here.tree)
    judged = judge(None, look, here.family, stop_signals=("INT",), checkpoints=None)
    ladder, _ = observe(ladder, here.tree, judged, 0.0)
    assert {each.pid for each in ladder.marks} == {110, 120}


def test_what_is_not_promised_is_said() -> None:
    unsaid, said = standing(None), standing()
    assert "not promised" in (promise(unsaid.family, unsaid.tree) or "")
    assert "KILLs its ranks 30 s later" in (promise(said.family, said.tree) or "")
    assert "ranks: rank0_saves" in (promise(unsaid.family, unsaid.tree) or "")
    every = standing("all_save")
    assert promise(every.family, every.tree) is None


def test_what_is_not_promised_names_no_way_that_is_none() -> None:
    """deepspeed and mpirun hand nothing on, so `rank0_saves` would not help."""
    for launcher in ("python -m deepspeed.launcher.launch train.py", "mpirun -n 2 python train.py"):
        here = standing(None, launcher)
        said = promise(here.family, here.tree) or ""
        assert "not promised" in said
        assert "rank0_saves" not in said


SPAWNED = "python -c 'from multiprocessing.spawn import spawn_main' --multiprocessing-fork"


@pytest.mark.parametrize("above", ["", "100 accelerate launch t.py\n", "100 torchrun t.py\n"])
@pytest.mark.parametrize(
    ("said", "told"), [(None, True), ("all_save", False), ("rank0_saves", False)]
)
def test_ranks_that_were_spawned_are_not_promised_either(
    above: str, said: str | None, told: bool
) -> None:
    """torch.multiprocessing.spawn TERMs the others when one leaves with an error. A launcher above
    that parent reaches it alone: an INT to accelerate, as to two children of its own, told no
    rank."""
    ranks = f"    120 {SPAWNED} # gpu=0\n    121 {SPAWNED} # gpu=1"
    here = tree(f"{above}  110 python train.py\n{ranks}")
    job = msgspec.structs.replace(Job(name="train", match=TRAIN), ranks=said)
    (family,) = find(here, TRAIN, job).families
    assert ("110, which spawned the ranks" in (promise(family, here) or "")) is told
    if said == "rank0_saves":
        heard = {
            pid: msgspec.structs.replace(p, masks=masks("INT")) for pid, p in here.processes.items()
        }
        found = may("INT/1", standing(family=family, tree=ProcessTree(heard, here.uptime)))
        assert isinstance(found, Skip), found
        assert "none stands above all ranks" in found.reason


@pytest.mark.parametrize(("said", "told"), [(None, True), ("all_save", False)])
def test_ranks_below_a_rank_are_not_promised_either(said: str | None, told: bool) -> None:
    """Lightning's rank 0 KILLs all of them, itself too, when one has left with an error."""
    text = "110 python train.py # gpu=0\n  120 python train.py # gpu=1 rank"
    here = tree(text)
    job = msgspec.structs.replace(Job(name="train", match=TRAIN), ranks=said)
    (family,) = find(here, TRAIN, job).families
    assert ("110, the parent of the other ranks" in (promise(family, here) or "")) is told
