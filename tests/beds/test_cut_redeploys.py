"""A redeploy is interrupted otherwise than by the end of its client: by Ctrl-C, by the loss of its
connection, of what works in the container, or of the container. They run side by side, and wait."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

from . import versions
from .bed import lives, until
from .interrupting import LAUNCH, STALE_S, Case
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


# -- Ctrl-C: what is said is true ---------------------------------------------------------------


@step
def ctrl_c_while_files_are_sent(case: Case) -> None:
    case.start("--save-seconds", "0.3")
    case.more = "\n        deploy: {prove: sleep 5}"
    ran = case.interrupted(lambda: "staged" in case.told(), signal.SIGINT)
    assert ran.code == 130, ran.people
    assert "nothing of the job was touched" in ran.target["reason"]
    case.old_untouched()
    assert case.litter() == []
    case.more = ""
    assert case.again_at_once().code == 0
    case.is_right()


@step
def ctrl_c_while_nothing_is_sent(case: Case) -> None:
    """The lock is given back: the same command goes at once."""
    case.start("--save-seconds", "0.3")
    ran = case.interrupted(lambda: "armed" in case.told(), signal.SIGINT)
    assert ran.code == 130, ran.people
    assert "leaves by itself" in ran.target["reason"]
    assert ran.signals == []
    case.step("cancelled", seconds=STALE_S + 15)
    case.old_untouched()
    until(lambda: not case.activators())
    assert case.litter() == []
    again = case.again_at_once()
    assert again.code == 0, again.people
    case.is_right()


@step
def ctrl_c_while_it_saves(case: Case) -> None:
    """Nobody waits for the silence of who has left, and what he has not seen saved is gone on
    from."""
    case.start("--save-seconds", "4", "--save-every", "10000")
    case.text = versions.RESUMED
    case.more = LAUNCH.replace("}", ', resume: ["--resume", "{checkpoint}"]}')
    ran = case.interrupted(lambda: case.heard() == 1, signal.SIGINT)
    assert ran.code == 130, ran.people
    assert [name for name, _ in ran.signals] == ["INT"]
    assert "starts the job by itself if what runs ends" in ran.target["reason"]
    assert lives(case.job)
    seconds = case.by_itself_in()
    assert seconds < 10.0
    case.box.note(case.name, f"the new version was started {seconds:.1f} s after the old one's end")
    state = case.step("healthy")
    assert f"goes on from {state['checkpoint']}" in case.new_log()
    assert f"saved {state['checkpoint']}" in case.logs()
    case.is_right()


@step
def ctrl_c_while_its_health_is_watched(case: Case) -> None:
    case.start("--save-seconds", "0.3")
    ran = case.interrupted(lambda: "launched" in case.told(), signal.SIGINT)
    assert ran.code == 130, ran.people
    assert "sees to its health by itself" in ran.target["reason"]
    again = case.again_at_once()
    assert (again.code, again.signals) == (0, []), again.people
    assert case.state["step"] == "healthy"
    case.is_right()


@step
def ctrl_c_while_the_new_one_is_ended(case: Case) -> None:
    case.start("--save-seconds", "0.3")
    case.text, case.words = versions.SILENT, ["--", "--save-seconds", "4"]
    ran = case.interrupted(lambda: case.heard() == 2, signal.SIGINT)
    assert ran.code == 130, ran.people
    assert "brings the version before back if it ends" in ran.target["reason"]
    assert len(ran.signals) == 2
    case.step("rolled_back", seconds=60.0)
    case.is_right(case.old_code, heard=2)


# -- the connection: made again, or lost for good -----------------------------------------------


@step
def cut_before_the_signal(case: Case) -> None:
    case.start("--save-seconds", "0.3")
    ran = case.cut(lambda: case.order == "armed")
    assert ran.code == 0, ran.people
    case.is_right()


@step
def reset_in_the_save(case: Case) -> None:
    case.start("--save-seconds", "4")
    ran = case.cut(lambda: case.heard() == 1, "reset")
    assert ran.code == 0, ran.people
    assert [name for name, _ in ran.signals] == ["INT"]
    case.is_right()


@step
def silent_after_the_old_one_s_end(case: Case) -> None:
    """Nothing comes through for a while; what waits may have gone on by itself by then."""
    case.start("--save-seconds", "0.3")
    ran = case.cut(lambda: case.order == "armed" and not lives(case.job), "stall")
    assert ran.code == 0, ran.people
    case.is_right()


@step
def cut_while_the_new_one_is_ended(case: Case) -> None:
    case.start("--save-seconds", "0.3")
    case.text = versions.SILENT
    ran = case.cut(lambda: case.order == "unwell")
    assert (ran.code, ran.target["result"]) == (8, "rolled_back"), ran.people
    case.is_right(case.old_code, heard=2)


@step
def the_laptop_is_away_for_good_in_the_save(case: Case) -> None:
    case.start("--save-seconds", "4")
    ran = case.cut(lambda: case.heard() == 1, last=True)
    assert ran.code == 4, ran.people
    assert case.by_itself_in() < STALE_S + 10
    case.step("healthy")
    again = case.again()
    assert (again.code, again.signals) == (0, []), again.people
    case.is_right()


@step
def the_laptop_is_away_for_good_once_it_was_launched(case: Case) -> None:
    case.start("--save-seconds", "0.3")
    ran = case.cut(lambda: "launched" in case.told(), last=True)
    assert ran.code == 4, ran.people
    assert "sees to its health by itself" in ran.target["reason"]
    case.step("healthy", seconds=STALE_S + 30)
    case.is_right()


# -- what works in the container is killed there ------------------------------------------------


@step
def the_activator_dies_before_the_signal(case: Case) -> None:
    """Nothing is sent: nobody would start the job again."""
    case.start("--save-seconds", "0.3")
    ran = case.meanwhile(lambda: "armed" in case.told(), lambda: case.kill(case.activator()))
    assert (ran.code, ran.signals) == (5, []), ran.people
    case.old_untouched()
    again = case.again_at_once()
    assert again.code == 0, again.people
    case.is_right()


@step
def the_activator_dies_in_the_save(case: Case) -> None:
    """Its client lives, and sends another."""
    case.start("--save-seconds", "4")
    ran = case.meanwhile(lambda: case.heard() == 1, lambda: case.kill(case.activator()))
    assert ran.code == 0, ran.people
    assert "another takes its place" in ran.people
    case.is_right()


@step
def the_activator_dies_half_swapped(case: Case) -> None:
    case.start("--save-seconds", "0.3")
    case.more = LAUNCH
    names = [f"part{number}" for number in range(900)]
    for name in names:
        (case.root / f"{name}.bin").write_bytes(b"old")
    case.beside(**dict.fromkeys(names, 10))
    ran = case.half_swapped(lambda: case.kill(case.activator()))
    assert ran.code == 4, ran.people
    assert case.trainers() == []
    box = case.box
    refused = box.finish(box.popen("launch", box.name, inventory=case.inventory()), alone=False)
    assert refused.code == 5, refused.people
    assert "mixture" in refused.target["reason"]
    again = case.again_at_once()
    assert again.code == 0, again.people
    case.is_right(heard=1)
    case.all_new(names)


@step
def the_activator_dies_while_it_watches(case: Case) -> None:
    """The new version is well, and the same command again only looks, and tidies up."""
    case.start("--save-seconds", "0.3")
    ran = case.meanwhile(lambda: "launched" in case.told(), lambda: case.kill(case.activator()))
    assert ran.code == 0, ran.people
    (pid,) = case.trainers()
    again = case.again_at_once()
    assert (again.code, again.signals) == (0, []), again.people
    assert "healthy" in again.names()
    assert case.trainers() == [pid]
    case.is_right()


# -- the container is stopped and started -------------------------------------------------------


@step
def the_container_is_stopped_half_swapped(case: Case) -> None:
    """Only what ran told how it is started: the line that the same command lacks is printed."""
    case.start("--save-seconds", "0.3")
    names = [f"part{number}" for number in range(900)]
    for name in names:
        (case.root / f"{name}.bin").write_bytes(b"old")
    case.beside(**dict.fromkeys(names, 10))
    ran = case.half_swapped(lambda: case.box.lab.stop(case.box.vmid))
    assert ran.code == 4, ran.people
    case.box.lab.boot(case.box.vmid)
    said = ran.target["reason"].partition("start it, and run the same command again; ")[2]
    assert said.startswith("should nothing run by then"), ran.people
    case.more = "\n        " + said[said.index("launch: {") :].replace(
        "}, deploy:", "}\n        deploy:"
    )
    again = case.again_at_once()
    assert again.code == 0, again.people
    case.is_right(heard=1)
    case.all_new(names)


@step
def the_container_is_stopped_once_it_was_launched(case: Case) -> None:
    case.start("--save-seconds", "0.3")
    case.more = LAUNCH
    vmid = case.box.vmid
    ran = case.meanwhile(lambda: "launched" in case.told(), lambda: case.box.lab.stop(vmid))
    assert ran.code in (4, 8), ran.people
    case.box.lab.boot(vmid)
    assert case.trainers() == []
    again = case.again_at_once()
    assert again.code == 0, again.people
    # the release that came with the first is kept, and so is the one of the second
    case.is_right(releases=3)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", STORIES)
def test_cut(told: dict[str, Future[None]], name: str) -> None:
    told[name].result(timeout=600)
