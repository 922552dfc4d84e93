"""What would be lost if the job ended now: told at every look, read once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from fleetstop.actions.files import JobFiles
from fleetstop.actions.locate import Scene, locate
from fleetstop.core import verdict
from fleetstop.core.commands import Answer
from fleetstop.core.saves.risk import AtRisk
from fleetstop.core.verdict import Look
from fleetstop.errors import RemoteFailed
from tests.actions.stage import GENTLE, Stage, job, target
from tests.fakes.fake_host import FakeHost, Open, Proc, a_job, torn, whole

Change = Callable[[FakeHost], None]


def risks(host: FakeHost, *changes: Change, aim: object = None) -> list[AtRisk | None]:
    """The first look's, then one for each change and the second that passes."""

    async def story() -> list[AtRisk | None]:
        stage = Stage(host, aim=aim or target(job=job()))  # type: ignore[arg-type]
        scene: Scene = await locate(stage.scope)
        files = JobFiles(stage.scope, scene)
        told = [scene.risk]
        for change in changes:
            change(host)
            host.clock.advance(1.0)
            told.append((await files.look()).risk)
        return told

    return asyncio.run(story())


def nothing_new(host: FakeHost) -> None:
    """A look later, all as before."""


def test_the_newest_whole_one_with_its_age_and_whose_it_is() -> None:
    host = FakeHost()
    a_job(host)
    first, second = risks(host, nothing_new)
    assert first is not None
    assert (first.name, first.known_format, first.ours) == ("old.pt", True, None)
    assert second is not None
    assert (second.name, second.known_format, second.ours) == ("old.pt", True, True)
    assert second.size == len(whole(1000))
    assert first.age_s == pytest.approx(500.0, abs=1.0)
    assert second.age_s == pytest.approx(501.0, abs=1.0)


def test_a_torn_newer_one_does_not_count() -> None:
    host = FakeHost()
    a_job(host)

    def half(host: FakeHost) -> None:
        host.write("/ck/newer.pt", torn())

    *_, last = risks(host, half)
    assert last is not None
    assert last.name == "old.pt"


def test_one_that_is_open_does_not_count_though_its_end_is_written() -> None:
    host = FakeHost()
    trainer = a_job(host)
    trainer.files[7] = Open("/ck/new.pt")
    host.write("/ck/new.pt", whole(), age_s=1.0)
    first, later = risks(host, nothing_new)
    assert first is not None
    assert later is not None
    assert (first.name, later.name) == ("old.pt", "old.pt")


def test_an_unknown_format_counts_once_it_was_seen_to_stand_still() -> None:
    host = FakeHost()
    a_job(host)
    new = [lambda h: h.write("/ck/new.h5", b"x" * 50), nothing_new, nothing_new]
    _, first, *_, last = risks(host, *new)
    assert first is not None
    assert last is not None
    assert (first.name, last.name) == ("old.pt", "new.h5")
    assert last.known_format is False


def test_without_any_there_is_none_and_unlisted_is_not_known() -> None:
    host = FakeHost()
    a_job(host)
    host.files.clear()
    host.links["/ck"] = "/ck"
    assert risks(host, nothing_new) == [AtRisk(), AtRisk()]

    async def story() -> None:
        stage = Stage(host)
        scene = await locate(stage.scope)
        files = JobFiles(stage.scope, scene)
        stage.world.within.scripted("list", Answer(41, b"1.0\n"))
        seen = await files.look()
        assert (seen.risk, files.risk) == (None, None)

    asyncio.run(story())


def test_with_a_neighbour_that_may_write_there_nobody_says_whose_it_is() -> None:
    host = FakeHost()
    a_job(host)
    host.add(Proc(1070, 1000, ("python", "other.py", "--out", "/ck")))
    *_, last = risks(host, nothing_new)
    assert last is not None
    assert (last.name, last.ours) == ("old.pt", None)


def test_a_directory_that_another_job_names_leaves_it_open_unless_a_member_wrote_it() -> None:
    host = FakeHost()
    trainer = a_job(host)
    trainer.files[7] = Open("/ck/.tmpX1y2")
    host.write("/ck/.tmpX1y2", whole(), age_s=90.0)

    def named(host: FakeHost) -> None:
        """safetensors writes under a random name; the inode stays."""
        del trainer.files[7]
        host.files["/ck/new.pt"] = host.files.pop("/ck/.tmpX1y2")

    aim = target(job=job(), foreign_checkpoints=("/",))
    _, before, after = risks(host, nothing_new, named, aim=aim)
    assert before is not None
    assert (before.name, before.ours) == ("old.pt", None)
    assert after is not None
    # what was open at the look before counts as open still
    assert after.name in ("old.pt", "new.pt")
    assert after.name == "old.pt" or after.ours is True


def test_the_usual_interval_of_its_kind() -> None:
    host = FakeHost()
    a_job(host)
    for number in range(4):
        host.write(f"/ck/step_{number}.pt", whole(), age_s=100.0 + 600.0 * (3 - number))
    first, *_ = risks(host)
    assert first is not None
    assert first.name == "step_3.pt"
    assert first.usual_s == pytest.approx(600.0, abs=0.1)


def test_an_unchanged_checkpoint_is_read_once_in_a_whole_stop() -> None:
    host = FakeHost()
    a_job(host)
    asyncio.run(Stage(host).stop(GENTLE))
    read = [each.words[0] for each in host.frames if each.verb == "ends"]
    # the old one, and the new one at the end
    assert sorted(read) == ["/ck/last.pt", "/ck/old.pt"]


def test_whose_files_cannot_be_seen_leaves_it_open_and_nothing_fails() -> None:
    async def story() -> None:
        host = FakeHost()
        a_job(host)
        stage = Stage(host)
        scene = await locate(stage.scope)
        files = JobFiles(stage.scope, scene)

        def hangs(_: object) -> None:
            raise RemoteFailed("the files of 3 processes hang; look on the host")

        stage.world.host.before("detail", hangs)
        seen = await files.look()
        assert seen.risk is not None
        assert (seen.risk.name, seen.risk.ours) == ("old.pt", None)

    asyncio.run(story())


def test_the_climb_hands_it_to_every_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a rung that needs consent by age is judged by."""
    looks: list[Look] = []
    real = verdict.judge

    def judge(before: Look | None, now: Look, *rest: object, **more: object) -> object:
        looks.append(now)
        return real(before, now, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr("fleetstop.actions.climb.judge", judge)
    host = FakeHost()
    a_job(host)
    asyncio.run(Stage(host).stop(GENTLE))
    assert len(looks) > 5
    assert all(each.risk is not None and each.risk.name for each in looks)
    assert looks[-1].risk is not None
