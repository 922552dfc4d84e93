"""The client of a redeploy is killed -9 at each step; what happens then without anybody, and by the
same command again from any other laptop. One test per step; they run side by side, and wait."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from . import versions
from .bed import lives, until
from .interrupting import STALE_S, Case
from .side_by_side import Told, side_by_side, wanted

pytestmark = pytest.mark.bed
STORIES: dict[str, Told] = {}


def step(story: Told) -> Told:
    STORIES[story.__name__] = story
    return story


@pytest.fixture(scope="module")
def told(bed: None, request: pytest.FixtureRequest) -> Iterator[dict[str, Future[None]]]:
    with side_by_side({name: STORIES[name] for name in wanted(request)}) as futures:
        yield futures


@step
def unhealthy_and_still_to_be_ended(case: Case) -> None:
    """What was found unhealthy is not called healthy by who knows only its log; once it ends, the
    version before comes back."""
    case.start("--save-seconds", "0.5")
    case.text, case.words = versions.DEAF, ["--force"]
    case.interrupted(lambda: "rolling_back" in case.told())
    (pid,) = case.trainers()
    time.sleep(STALE_S + 15.0)  # by its log it is well since long ago
    state = case.state
    assert (state["step"], state["order"], state["ended_at"]) == ("launched", "unwell", None)
    assert "tok/s" in case.new_log()
    case.kill(pid)
    case.step("rolled_back", seconds=20.0)
    case.is_right(case.old_code)


@step
def left_unhealthy_and_the_same_again(case: Case) -> None:
    """Nobody was killed: --no-rollback left it running, and that it runs is no reason to rest."""
    case.start("--save-seconds", "0.5")
    case.text, case.words = versions.DEAF, ["--force"]
    first = case.again("--no-rollback")
    assert (first.code, first.target["result"]) == (8, "unhealthy"), first.people
    assert case.state["step"] == "unhealthy"
    (pid,) = case.trainers()
    ran = case.again_at_once()
    assert (ran.code, ran.target["result"]) == (8, "rolled_back"), ran.people
    assert pid not in case.trainers()
    case.is_right(case.old_code, releases=3)


@step
def while_files_are_sent(case: Case) -> None:
    """Nothing but a stage is there; the next run removes it."""
    case.start("--save-seconds", "0.3")
    case.beside(weights=96 << 20)

    def some() -> bool:
        (stage,) = case.base.glob("stage-*")
        return (stage / "files/weights.bin").stat().st_size > 1 << 20

    case.interrupted(some)
    case.old_untouched()
    assert not case.activators()
    ran = case.again_at_once()  # its process is known to be dead here: nobody waits for its lock
    assert ran.code == 0, ran.people
    assert "its process here is dead" in ran.people
    case.is_right()


@step
def staged_and_not_proved(case: Case) -> None:
    case.start("--save-seconds", "0.3")
    case.more = "\n        deploy: {prove: sleep 3}"
    case.interrupted(lambda: "staged" in case.told())
    case.old_untouched()
    ran = case.again()
    assert ran.code == 0, ran.people
    case.is_right()


@step
def while_the_activator_waits_and_nothing_is_sent(case: Case) -> None:
    """What waits leaves by itself, and nothing has been."""
    case.start("--save-seconds", "0.3")
    case.interrupted(lambda: "armed" in case.told())
    assert case.order == ""
    assert case.state["step"] == "waiting"
    state = case.step("cancelled", seconds=STALE_S + 15)
    assert "left before it sent a signal" in state["reason"]
    case.old_untouched()
    until(lambda: not case.activators())
    assert case.litter() == []
    assert list(case.root.glob(".fleetstop/train/releases/*")) == []
    ran = case.again()
    assert ran.code == 0, ran.people
    case.is_right()


@step
def armed_and_the_signal_not_sent(case: Case) -> None:
    """The new version waits on: nobody knows here whether the old one has heard it."""
    case.start("--save-seconds", "0.3")
    case.interrupted(lambda: case.order == "armed")
    until(lambda: not case.lock_is_fresh(), 60.0)
    case.old_untouched()
    assert case.state["step"] == "waiting"
    ran = case.again()
    assert ran.code == 0, ran.people
    assert [signal for signal, _ in ran.signals] == ["INT"]
    case.is_right()


@step
def the_signal_sent_and_it_saves(case: Case) -> None:
    """What waits starts the new version by itself, as soon as it takes its client for gone."""
    case.start("--save-seconds", "4")
    case.interrupted(lambda: case.heard() == 1)
    assert lives(case.job)
    seconds = case.by_itself_in()
    assert seconds < STALE_S + 10
    case.box.note(case.name, f"the new version was started {seconds:.1f} s after the old one's end")
    state = case.step("healthy")
    assert state["confirmed_by"] == "activator"
    case.is_right()
    pids = case.trainers()
    ran = case.again()
    assert (ran.code, ran.target["result"]) == (0, "redeployed"), ran.people
    assert ran.signals == []
    assert case.trainers() == pids
    case.is_right()


@step
def the_signal_sent_and_the_same_again_while_it_saves(case: Case) -> None:
    """Whoever goes on sends no second signal into the save."""
    case.start("--save-seconds", "75")
    case.interrupted(lambda: case.heard() == 1)
    ran = case.again()
    assert ran.code == 0, ran.people
    assert ran.signals == []
    assert "waits for a client that is gone" in ran.people  # taken over, not waited for
    case.is_right()


@step
def the_next_one_dies_too_while_it_sends(case: Case) -> None:
    """What the first has left waits on, armed, until another waits in its place."""
    case.start("--save-seconds", "25")
    case.interrupted(lambda: case.heard() == 1)
    first = case.state["run"]
    stage = f"stage-{first}"
    case.interrupted(lambda: any(e.name != stage for e in case.base.glob("stage-*")))
    assert lives(case.job)
    seconds = case.by_itself_in()
    assert seconds < STALE_S + 10
    state = case.step("healthy")
    assert state["run"] == first
    ran = case.again()
    assert (ran.code, ran.signals) == (0, []), ran.people
    assert "had staged and left behind" in ran.people
    case.is_right()


@step
def the_next_one_dies_too_once_its_own_waits(case: Case) -> None:
    """That has taken the place of the first one's, armed as it was."""
    case.start("--save-seconds", "25")
    case.interrupted(lambda: case.heard() == 1)
    first, case.text = case.state["run"], versions.RESUMED
    case.interrupted(lambda: case.state["run"] != first)
    assert lives(case.job)
    assert (case.state["step"], case.state["order"]) == ("waiting", "armed")
    seconds = case.by_itself_in()
    assert seconds < STALE_S + 10
    case.box.note(case.name, f"the new version was started {seconds:.1f} s after the old one's end")
    state = case.step("healthy")
    assert state["run"] != first
    case.is_right()


@step
def another_command_after_a_directory_was_sent(case: Case) -> None:
    """That was sent beside another one, so that its records lie above the code; what waits there
    is not started beside what a restart starts."""
    inner = case.root / "app"
    inner.mkdir()
    (case.root / "train.py").rename(inner / "train.py")
    words = "cd /root/app && exec setsid python3 -u train.py --save-seconds 40"
    raw = f"({words}) >/workspace/train.log 2>&1 </dev/null &"
    case.job = case.box.start(raw, how="raw", trainers=1, seconds=60)
    for name, text in (("app/train.py", versions.GOOD), ("conf/a.yaml", "x: 1")):
        file = case.where / "both" / name
        file.parent.mkdir(parents=True)
        file.write_text(text)
    case.named = [str(case.where / "both" / name) for name in ("app", "conf")]
    case.interrupted(lambda: case.heard() == 1)
    ran = case.by_hand("restart")
    assert ran.code == 0, ran.people
    assert ran.signals == []
    time.sleep(STALE_S + 5.0)
    assert len(case.trainers()) == 1
    assert case.heard() == 1
    until(lambda: not case.activators(), 10.0)


@step
def the_old_one_gone_and_nothing_said(case: Case) -> None:
    case.start("--save-seconds", "0.5")
    case.interrupted(lambda: case.order == "armed" and not lives(case.job))
    assert case.order == "armed"
    assert case.trainers() == []
    ran = case.again("--break-lock")
    assert ran.code == 0, ran.people
    assert ran.signals == []
    case.is_right()


@step
def while_many_files_are_swapped(case: Case) -> None:
    case.start("--save-seconds", "0.5")
    case.beside(**{f"part{n}": 10 for n in range(300)})
    case.interrupted(lambda: case.order == "go")
    state = case.step("launched", "healthy", seconds=20.0)
    assert state["files"] == "new"
    ran = case.again("--break-lock")
    assert ran.code == 0, ran.people
    case.is_right()
    assert (case.root / "part299.bin").read_bytes() == b"part299" + bytes(10)


@step
def launched_and_its_health_not_known(case: Case) -> None:
    case.start("--save-seconds", "0.5")
    case.interrupted(lambda: "launched" in case.told())
    (pid,) = case.trainers()
    state = case.step("healthy", seconds=STALE_S + 20)
    assert state["confirmed_by"] == "activator"
    assert case.trainers() == [pid]
    ran = case.again()
    assert (ran.code, ran.signals) == (0, []), ran.people
    assert case.trainers() == [pid]
    case.is_right()


@step
def launched_and_the_same_again_at_once(case: Case) -> None:
    """It waits for the word of what works in the container."""
    case.start("--save-seconds", "0.5")
    case.interrupted(lambda: "launched" in case.told())
    ran = case.again("--break-lock")
    assert (ran.code, ran.signals) == (0, []), ran.people
    assert case.state["step"] == "healthy"
    case.is_right()


@step
def unhealthy_and_being_ended(case: Case) -> None:
    """It ends after its client: the version before comes back by itself."""
    case.start("--save-seconds", "0.5")
    case.text = versions.SILENT
    case.words = ["--", "--save-seconds", "4"]
    case.interrupted(lambda: case.heard() == 2)
    case.step("rolled_back", seconds=60.0)
    case.is_right(case.old_code, heard=2)
    ran = case.again()
    assert (ran.code, ran.signals) == (7, []), ran.people
    assert "these bytes failed on 20" in ran.target["reason"]
    assert "nothing new in the log matches 'tok/s'" in ran.target["reason"]
    case.is_right(case.old_code, heard=2)
    ran = case.again("--force")
    assert (ran.code, ran.target["result"]) == (8, "rolled_back"), ran.people
    case.is_right(case.old_code, heard=4, releases=3)


@step
def the_version_before_is_being_started(case: Case) -> None:
    case.start("--save-seconds", "0.5")
    case.text = versions.SILENT
    case.interrupted(lambda: case.state["step"] in ("rolling_back", "rolled_back"))
    case.step("rolled_back", seconds=20.0)
    case.is_right(case.old_code, heard=2)
    ran = case.again("--force")
    assert ran.code == 8, ran.people
    assert len(case.trainers()) == 1


@step
def at_the_end(case: Case) -> None:
    """Everything is done, and only its own end was not told."""
    case.start("--save-seconds", "0.5")
    case.interrupted(lambda: case.order == "done")
    (pid,) = case.trainers()
    ran = case.again("--break-lock")
    assert (ran.code, ran.signals) == (0, []), ran.people
    assert case.trainers() == [pid]
    case.is_right()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", STORIES)
def test_killed(told: dict[str, Future[None]], name: str) -> None:
    told[name].result(timeout=600)
