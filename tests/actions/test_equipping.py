"""With what a job is started, and with what it would come back: for each errand, from one place."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from fleetstop import events as e
from fleetstop.actions import manifests
from fleetstop.actions.equipping import Equipment
from fleetstop.actions.errand import Command, Errand
from fleetstop.actions.foreseen import must_be_read
from fleetstop.actions.lots import Lot
from fleetstop.core.inventory import Launch
from fleetstop.core.launching.activation import Started, State
from fleetstop.core.launching.ears import Behind
from fleetstop.core.launching.ended import Born, Record
from fleetstop.core.launching.origin import Origin
from fleetstop.core.launching.output import Wrote
from fleetstop.core.launching.recipe import Extra, Known
from fleetstop.core.launching.surroundings import Person
from fleetstop.core.process import ProcessId
from fleetstop.core.releases.manifest import Release
from fleetstop.core.releases.payload import File
from fleetstop.errors import Refused
from tests.actions.stage import Stage, job, target
from tests.actions.test_lots import EMPTY
from tests.fakes.fake_host import FakeHost

ROOT = Person("root", 0, 0, (), "/root", "/bin/sh")
RUNS = Origin(
    ProcessId(7, 1), argv=("python3", "/root/train.py", "--lr", "1e-4"), cwd="/root",
    env={"PATH": "/usr/bin:/bin", "HOME": "/root", "FOO": "1", "FLEETSTOP_MARK": "old"}, uid=0,
    gid=0, log="/train.log",
)  # fmt: skip
RESUME = ("--resume", "{checkpoint}")
RUN = Launch(run=("python3", "/root/train.py"), env={"TAG": "a"})
FILES = (File("train.py", "a" * 64, 3, 0o644),)
KEPT = Release(
    id="20261130-140211-7f3a", files=FILES, dest="/root", when="2026-11-30T14:02:11Z", who="me@box",
    argv=("python3", "/root/train.py", "--lr", "9"), cwd="/root", env={"BAR": "2"},
)  # fmt: skip


class Place:
    """What a Lot tells of itself to whoever equips it."""

    def __init__(self, launch: Launch | None, **facts: Any) -> None:
        self.job = msgspec.structs.replace(job(log="/train.log"), launch=launch)
        self.stage = Stage(FakeHost(), "run1", aim=target(job=self.job))
        self.scope, self.run, self.base = self.stage.scope, "run1", "/root/.fleetstop/train"
        self.dest = "/root"
        self.now: Any = object()
        self.resumes: tuple[str, ...] = ()
        self.placed = True
        self.ground = EMPTY
        self.files: tuple[File, ...] = ()
        self.source: Release | None = None
        self.findings: list[str] = []
        for name, value in facts.items():
            setattr(self, name, value)

    def finding(self, text: str) -> None:
        self.findings.append(text)

    def equipped(self, command: Command, known: Known | None = None, **more: Any) -> Equipment:
        errand = Errand(command=command, stop=cast(Any, None), **more)
        place = known or Known(origin=RUNS, person=ROOT)
        made = Equipment(cast(Lot, self), errand, place)
        made.show()
        return made

    @property
    def shown(self) -> e.LaunchShown:
        (found,) = self.stage.of(e.LaunchShown)
        return found


def test_a_restart_as_it_runs_has_no_other_way_to_come_back() -> None:
    """What has just come to nothing would be started once more."""
    place = Place(None)
    made = place.equipped("restart")
    assert (made.new.spec.argv, made.new.spec.env["FOO"], made.old) == (RUNS.argv, "1", None)
    assert (place.shown.roll_back, place.shown.adopted, place.findings) == (False, True, [])


@pytest.mark.parametrize(
    "extra", [Extra(words=("--lrr", "1")), Extra(env={"FOO": "2"}), Extra(env={"NEW": "1"})]
)
def test_a_restart_with_other_words_comes_back_as_it_runs(extra: Extra) -> None:
    place = Place(None)
    made = place.equipped("restart", extra=extra)
    assert made.old is not None
    assert made.new.spec.argv == (*RUNS.argv, *extra.words)
    assert (made.old.spec.argv, made.old.spec.env["FOO"]) == (RUNS.argv, "1")
    assert "NEW" not in made.old.spec.env
    assert place.shown.roll_back
    left = Place(None)
    left.equipped("restart", extra=extra, roll_back=False)
    assert not left.shown.roll_back


@pytest.mark.parametrize("files", [(), FILES])
def test_where_the_inventory_says_how_what_is_dropped_is_told_and_comes_back(
    files: tuple[File, ...],
) -> None:
    place = Place(RUN, files=files)
    made = place.equipped("redeploy" if files else "restart")
    assert made.new.spec.argv == RUN.run
    assert "FOO" not in made.new.spec.env
    assert place.findings == [
        "started without: --lr 1e-4, FOO (as `launch:` in the inventory has it)"
    ]
    assert made.old is not None
    assert (made.old.spec.argv, made.old.spec.env["FOO"]) == (RUNS.argv, "1")
    # of what comes back the inventory's variables are not asked
    assert made.expected.env == {"TAG": "a"}


def test_without_run_it_is_started_as_what_runs_from_one_checkpoint() -> None:
    runs = msgspec.structs.replace(RUNS, argv=(*RUNS.argv, "--resume", "/ck/1"))
    place = Place(Launch(resume=RESUME), files=FILES)
    known = Known(origin=runs, person=ROOT, checkpoint="/ck/2")
    made = place.equipped("redeploy", known, extra=Extra(words=("--x",)))
    assert made.new.spec.argv == (*RUNS.argv, "--resume", "/ck/2", "--x")
    assert made.expected.arguments == ("--resume", "/ck/2", "--x")
    assert made.old is not None
    assert made.old.spec.argv == (*RUNS.argv, "--resume", "/ck/2")
    assert (place.shown.adopted, place.findings) == (True, [])


def test_a_rollback_starts_the_release_as_it_ran_and_comes_back_as_what_runs() -> None:
    place = Place(RUN, files=FILES, source=KEPT)
    made = place.equipped("rollback", extra=Extra(words=("--x",)))
    assert made.new.spec.argv == (*(KEPT.argv or ()), "--x")
    assert {name: made.new.spec.env.get(name) for name in ("BAR", "FOO", "TAG")} == {
        "BAR": "2", "FOO": None, "TAG": None,
    }  # fmt: skip
    assert made.expected.env == {}
    assert made.old is not None
    assert (made.old.spec.argv, made.old.spec.env["FOO"]) == (RUNS.argv, "1")
    assert (place.shown.as_release, place.shown.adopted) == (KEPT.id, False)
    assert place.findings == []


def test_a_release_of_which_nothing_is_known_is_started_as_the_inventory_says() -> None:
    source = msgspec.structs.replace(KEPT, argv=None, env=None)
    place = Place(RUN, files=FILES, source=source)
    made = place.equipped("rollback")
    assert made.new.spec.argv == RUN.run
    assert place.shown.as_release is None
    assert place.shown.notes == ("how it was started then is not known",)
    assert place.findings == [
        "started without: --lr 1e-4, FOO (as `launch:` in the inventory has it)"
    ]


def test_a_rollback_of_what_does_not_run_needs_no_word_in_the_inventory() -> None:
    place = Place(None, now=None, files=FILES, source=KEPT)
    made = place.equipped("rollback", Known(person=ROOT))
    assert (made.new.spec.argv, made.new.spec.uid, made.old) == (KEPT.argv, 0, None)


@pytest.mark.parametrize("files", [(), FILES])
def test_what_the_last_start_had_and_this_one_lacks_is_told_before_it(
    files: tuple[File, ...],
) -> None:
    """Stopped, and launched days later: it was "healthy", without its API key."""
    newer = msgspec.structs.replace(KEPT, id="20261130-150000-7f3a", argv=("x",))
    kept = msgspec.structs.replace(KEPT, secrets=("API_KEY",))
    state = State(run="7f3a", step="healthy", release=KEPT.id, running=KEPT.id)
    ground = msgspec.structs.replace(EMPTY, state=state, releases={KEPT.id: kept, newer.id: newer})
    said = (
        f"started without: --lr 9, BAR, API_KEY, as release {KEPT.id} had it"
        " (no secrets are kept: --env gives one)"
    )
    place = Place(RUN, now=None, ground=ground, files=files)
    place.equipped("redeploy" if files else "launch", Known(person=ROOT))
    assert place.findings == [said]
    # typed, or it runs: what runs tells better
    place = Place(RUN, now=None, ground=ground)
    extra = Extra(words=("--lr", "9"), env={"API_KEY": "k", "BAR": "3"})
    place.equipped("launch", Known(person=ROOT), extra=extra)
    assert place.findings == []
    place = Place(None, ground=ground)
    place.equipped("restart")
    assert place.findings == []


def begun(how: str) -> tuple[Known, list[str]]:
    """Of a trainer 12 that runs; 10, of the same mark, was started."""
    words = ("bash", "run.sh", "--token", "***") if how == "secret" else ("bash", "run.sh")
    kept = msgspec.structs.replace(KEPT, argv=words, cwd="/srv")
    trainer = Started(10 if how == "lives" else 12, 700, "m1")
    release = None if how == "restarted" else KEPT.id
    state = State("7f3a", "healthy", release=release, running=KEPT.id, trainer=trainer)
    record = Record("m1", trainer=Born(10, 700), ended_at="2026-11-30T14:03:00Z", exit=0)
    ground = msgspec.structs.replace(EMPTY, state=state, releases={KEPT.id: kept}, last=record)
    told: list[str] = []
    lot = SimpleNamespace(
        state=state, started=how != "another", ground=ground, runs=KEPT.id, finding=told.append
    )
    return manifests.as_begun(cast(Lot, lot), Known(origin=RUNS, person=ROOT)), told


def test_one_that_put_itself_into_the_background_starts_as_it_was_started() -> None:
    """Started by `bash run.sh`, it was to be started next by `python3 /root/train.py`, "as it was
    started"."""
    place, said = begun("left")
    assert place.origin is not None
    assert (place.origin.argv, place.origin.cwd) == (("bash", "run.sh"), "/srv")
    assert place.origin.env == RUNS.env
    assert said == [f"what started 12 has ended: by release {KEPT.id} it is started by bash run.sh"]


@pytest.mark.parametrize("how", ["secret", "restarted"])
def test_where_that_is_not_known_it_is_said(how: str) -> None:
    """A restart may have had other words; of a secret only `***` is kept."""
    place, said = begun(how)
    assert place.origin == RUNS
    assert said == [
        "what started 12 has ended, and is not known any more: as it runs, it is started by"
        " python3 /root/train.py --lr 1e-4"
    ]


@pytest.mark.parametrize("how", ["lives", "another"])
def test_what_was_started_and_runs_tells_that_itself(how: str) -> None:
    place, said = begun(how)
    assert (place.origin, said) == (RUNS, [])


def test_what_could_not_come_back_exactly_is_told_before() -> None:
    blind = msgspec.structs.replace(RUNS, env=None, unseen=("its environment could not be read",))
    place = Place(RUN, files=FILES)
    place.equipped("redeploy", Known(origin=blind, person=ROOT))
    said = "should what runs now come back: its environment could not be read"
    assert said in place.shown.notes


def test_a_log_that_nothing_opens_is_asked_for_by_the_path_that_is_seen() -> None:
    """Somebody had typed `python train.py | tee LOG`: that tee is not started again."""
    nowhere = msgspec.structs.replace(RUNS, log=None)
    wrote = Wrote(RUNS.argv, "/w/seen.log", own=False)
    known = Known(origin=nowhere, person=ROOT, wrote=wrote)
    lot = Place(None)
    lot.job = msgspec.structs.replace(lot.job, log=None)
    made = lot.equipped("restart", known)
    assert (lot.shown.log, lot.shown.reads) == (None, None)
    with pytest.raises(Refused, match="its output goes nowhere") as refused:
        must_be_read(made.new, known)
    assert refused.value.hint is not None
    assert refused.value.hint.endswith("in the inventory: log: /w/seen.log")


def test_a_log_that_its_script_opens_is_read_and_not_opened() -> None:
    script = msgspec.structs.replace(RUNS, argv=("bash", "run.sh"), log=None)
    wrote = Wrote(script.argv, "/train.log", own=True)
    known = Known(origin=script, person=ROOT, own_log=True, wrote=wrote)
    lot = Place(None)
    made = lot.equipped("restart", known, extra=Extra(words=("--lr", "1")))
    assert (lot.shown.log, lot.shown.reads) == (None, "/train.log")
    assert (made.new.spec.log, made.old and made.old.reads) == (None, "/train.log")
    must_be_read(made.new, known)


DEAF = Behind(5, 7, ("bash", "/root/run.sh", "--lr", "1"), "run.sh", "/root/run.sh")


@pytest.mark.parametrize(
    ("launch", "files", "told"),
    [
        (None, FILES, True),
        (Launch(run=("/root/run.sh",)), FILES, True),
        (Launch(run=("/root/other.sh",)), FILES, False),
        (RUN, FILES, False),
        (None, (File("run.sh", "a" * 64, 3, 0o755),), False),  # it is another by then
    ],
)
def test_a_script_that_will_make_the_new_one_deaf_is_told_before_the_stop(
    launch: Launch | None, files: tuple[File, ...], told: bool
) -> None:
    runs = msgspec.structs.replace(RUNS, argv=DEAF.argv)
    lot = Place(launch, files=files)
    lot.equipped("redeploy", Known(origin=runs, person=ROOT, behind=DEAF))
    assert (DEAF.finding in lot.findings) is told
    assert DEAF.finding not in lot.findings or lot.findings.count(DEAF.finding) == 1


def around(made: Equipment) -> Any:
    """What one that goes on alone is told of the words of both: before the checkpoint, behind."""
    found = made._resume()
    return None if found is None else (found.launch, found.launch_old)


@pytest.mark.parametrize("files", [(), FILES])
def test_what_comes_back_is_not_told_to_resume_in_words_it_never_knew(
    files: tuple[File, ...],
) -> None:
    """It would end at once, and both versions were gone."""
    launch = Launch(run=("python3", "/root/new.py"), resume=RESUME)
    place = Place(launch, files=files)
    known = Known(origin=RUNS, person=ROOT, checkpoint="/ck/2")
    made = place.equipped("redeploy" if files else "restart", known)
    assert made.new.spec.argv == (*launch.run, "--resume", "/ck/2")
    assert made.old is not None
    assert made.old.spec.argv == RUNS.argv
    said = "should what runs now come back, it starts as it ran: without --resume '{checkpoint}'"
    assert said in place.shown.notes
    assert around(made) == ((launch.run, ()), None)  # nor by one whose client died
    quiet = Place(launch, files=files)
    quiet.equipped("restart", known, roll_back=False)
    assert said not in quiet.shown.notes

    # fleetstop launched it with these very words: it knows them
    place = Place(launch, files=files, resumes=RESUME)
    made = place.equipped("redeploy" if files else "restart", known)
    assert made.old is not None
    assert made.old.spec.argv == (*RUNS.argv, "--resume", "/ck/2")
    assert said not in place.shown.notes
    assert around(made) == ((launch.run, ()), (RUNS.argv, ()))


def test_a_release_goes_on_from_the_newest_only_where_it_knows_how() -> None:
    known = Known(origin=RUNS, person=ROOT, checkpoint="/ck/2")
    place = Place(Launch(resume=RESUME), files=FILES, source=KEPT)
    made = place.equipped("rollback", known)
    assert made.new.spec.argv == KEPT.argv
    assert (place.shown.resumes, made.expected.arguments) == (None, ())
    assert "it starts as it did then: without --resume '{checkpoint}'" in place.shown.notes
    assert around(made) is None

    # of one that fleetstop launched with such words the old path is not the one to go on from,
    # also where the inventory does not tell of resuming any more
    argv = (*(KEPT.argv or ()), "--resume", "/ck/1")
    source = msgspec.structs.replace(KEPT, argv=argv, resume=RESUME)
    for launch in (Launch(resume=RESUME), RUN, None):
        place = Place(launch, files=FILES, source=source)
        made = place.equipped("rollback", known)
        assert made.new.spec.argv == (*(KEPT.argv or ()), "--resume", "/ck/2")
        assert made.expected.arguments == ("--resume", "/ck/2")
        assert place.shown.resumes == "/ck/2"
        assert around(made) == ((KEPT.argv, ()), None)
