"""How a job was started, asked in the right place by the right numbers; all a launch knows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from fleetstop.actions.origins import Began, began, known, person, where_from
from fleetstop.actions.telling import Run, Scope, Teller
from fleetstop.core.commands import Answer
from fleetstop.core.inventory import Launch, Match, Target
from fleetstop.core.kin.family import Family, find
from fleetstop.core.launching.origin import Origin
from fleetstop.core.launching.recipe import Extra, recipe
from fleetstop.core.process import ProcessId, ProcessTree
from fleetstop.errors import Refused, RemoteFailed
from tests.actions.stage import HOST
from tests.core.test_origin import answer
from tests.core.trees import tree
from tests.fakes.fake_place import FakeClock, FakePlace

TREE = (
    "1 init # in=1\n  5 bash run.sh # in=50 born=4242\n    7 python train.py # in=70 born=4242\n"
    "  8 python other.py"
)
ML = b"ml:x:1000:50:,,,:/home/ml:/bin/bash\n50 44\n"


def seen(text: str = TREE) -> tuple[ProcessTree, Family]:
    told = tree(text)
    (family,) = find(told, Match(script="train.py"), None).families
    return told, family


def scope(place: FakePlace, vmid: int | None = 200) -> Scope:
    clock = FakeClock()
    target = Target(name="ct200", host=HOST, vmid=vmid, job=None)
    run = Run(id="r", operator="ann", origin="laptop")
    return Scope(run, target, place, clock, Teller("ct200", print, clock), lambda _: None)


def joined(*parts: bytes) -> bytes:
    """Several answers as one: lines, links, words."""
    heads, links, words = b"", b"", b""
    for part in parts:
        head, _, records = part.partition(b"\n\0")
        at = records.index(b"/cmdline:")
        at = records.rindex(b"\0", 0, at) + 1
        heads, links, words = heads + head + b"\n", links + records[:at], words + records[at:]
    return heads + b"\n\0" + links + words


def both(pids: tuple[int, int], log: str = "/w/a.log") -> bytes:
    out = (("cwd", "/w", "d"), ("fd/1", log, "f"))
    return joined(
        answer(at=f"/proc/{pids[0]}", argv=b"bash\0run.sh\0", env=b"PWD=/root\0A=1\0", links=out),
        answer(at=f"/proc/{pids[1]}", argv=b"python\0train.py\0", links=out, ours=None),
    )


def play(story: Callable[[FakePlace], Awaitable[None]]) -> FakePlace:
    place = FakePlace()
    asyncio.run(story(place))  # type: ignore[arg-type]
    return place


def test_with_root_it_is_asked_on_the_host_with_the_containers_first_process() -> None:
    async def story(place: FakePlace) -> None:
        place.host.on("origin", Answer(0, both((5, 7))))
        place.within.on("pidfile", Answer(40, b""), Answer(0, b"#!"))
        start = await began(scope(place), *seen())
        assert start.head.argv == ("bash", "run.sh")
        assert start.trainer.argv == ("python", "train.py")
        # it has moved since: its script lies where it was started
        assert start.cwd == "/root"
        assert place.host.sent("origin") == [("1", "5", "7")]

    play(story)


def test_without_root_it_is_asked_inside_by_the_containers_numbers() -> None:
    async def story(place: FakePlace) -> None:
        place.without_root = "no sudo"
        place.within.on("origin", Answer(0, both((50, 70))))
        place.within.on("pidfile", Answer(0, b"#!"))
        start = await began(scope(place), *seen())
        assert (start.head.id, start.cwd) == (ProcessId(50, 4242), "/w")
        assert place.within.sent("origin") == [("1", "50", "70")]

    play(story)


def test_another_process_of_that_number_is_not_taken_for_it() -> None:
    async def story(place: FakePlace) -> None:
        place.host.on("origin", Answer(0, both((5, 7))))
        with pytest.raises(RemoteFailed, match="ended while it was looked at"):
            await began(scope(place), *seen(TREE.replace("in=50 born=4242", "in=50 born=77")))

    play(story)


def test_trees_with_no_one_start_are_refused() -> None:
    async def story(place: FakePlace) -> None:
        told = tree("1 init\n  5 python train.py\n  7 python train.py")
        one, two = find(told, Match(script="train.py"), None).families
        family = msgspec.structs.replace(one, members=(*one.members, *two.members))
        with pytest.raises(Refused, match="started apart"):
            await began(scope(place), told, family)

    play(story)


def test_what_is_known_for_a_launch() -> None:
    """A script that opens the log by itself; limits that our shell has are not set again."""

    async def story(place: FakePlace) -> None:
        await place.inside()
        data = both((5, 7)).replace(b"/proc/5/fd/1\0/w/a.log\0f", b"/proc/5/fd/1\0/dev/null\0c")
        place.host.on("origin", Answer(0, data))
        place.within.on("pidfile", Answer(0, b"#!"))
        place.within.on("user", Answer(0, ML))
        place.within.on("source", Answer(0, b"\0/etc/environment\nSITE=x\n"))
        place.within.on("origin", Answer(0, answer(at="/proc/90")))
        launch = Launch(run=("/root/run.sh",), user="ml")
        found = await known(scope(place), launch, "/w/a.log", seen(), "/ck/1")
        assert found.person is not None
        assert (found.person.uid, found.person.groups) == (1000, (44,))
        assert (found.login, found.checkpoint, found.own_log) == ({"SITE": "x"}, "/ck/1", True)
        made = recipe(launch, found, Extra(), log="/w/a.log", mark="m", status="/s")
        assert (made.spec.log, made.spec.cwd, made.spec.limits) == (None, "/w", {})
        assert place.within.sent("user") == [("ml",)]

    play(story)


@pytest.mark.parametrize(
    ("head", "trainer", "tee", "own", "ranks", "wrote"),
    [
        (None, "/w/a", None, None, 1, ("/w/a", True)),  # run.sh: python … >>/w/a
        ("/n", "/w/a", None, None, 1, ("/w/a", True)),  # nohup run.sh >/n
        (None, None, "/w/a", "/w/a", 1, ("/w/a", True)),  # run.sh: python … | tee /w/a
        (None, None, "/w/a", None, 1, ("/w/a", False)),  # typed: run.sh | tee /w/a
        (None, "/w/0", None, None, 2, ("/w/0", False)),  # a launcher: each rank has its own
        (None, "/w/0", "/w/a", "/w/a", 2, ("/w/a", True)),
        ("/w/a", "/w/a", None, None, 1, None),
        (None, None, None, None, 1, None),
    ],
)
def test_what_it_is_seen_to_write_by_itself(
    head: str | None, trainer: str | None, tee: str | None, own: str | None, ranks: int,
    wrote: tuple[str, bool] | None,
) -> None:  # fmt: skip
    one = Origin(ProcessId(5, 1), argv=("bash", "run.sh"), log=head)
    start = Began(one, Origin(ProcessId(7, 1), log=trainer), "/w", tee, own, ranks)
    found = start.wrote
    assert (found and (found.path, found.own)) == wrote


@pytest.mark.parametrize(
    ("run", "opens"), [((), False), (("python", "t.py"), False), (("/r/run.sh",), True)]
)
def test_what_has_become_the_trainer_does_not_start_its_tee_again(
    run: tuple[str, ...], opens: bool
) -> None:
    """run.sh: `exec > >(tee -a LOG); exec python …`: as it runs it would log nowhere."""
    one = Origin(ProcessId(7, 1), argv=("python", "t.py"))
    start = Began(one, one, "/w", "/w/a", "/w/a")
    assert start.opens("/w/a", Launch(run=run)) is opens
    assert start.opens("/w/a", None) is False
    assert (start.wrote and start.wrote.own) is False


def test_what_is_known_of_a_job_that_does_not_run() -> None:
    async def story(place: FakePlace) -> None:
        place.within.on("user", Answer(40, b""))
        place.within.on("source", Answer(0, b""))
        place.within.on("origin", Answer(0, b""))
        found = await known(scope(place), Launch(run=("x",)), None, None)
        assert (found.origin, found.person, found.own_log) == (None, None, False)
        assert place.host.commands == []

    play(story)


def test_who_cannot_be_asked_is_nobody() -> None:
    async def story(place: FakePlace) -> None:
        place.entering = RemoteFailed("no PIDs left")
        assert await person(scope(place), "ml") is None
        # where a script was started cannot be looked up: where it is now
        moved = Origin(ProcessId(5, 1), cwd="/a", env={"PWD": "/b"})
        assert await where_from(scope(place), moved, "run.sh") == "/a"

    play(story)
