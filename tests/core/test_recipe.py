"""What a job is started with: inventory, running process, what was typed; what is shown of it."""

from __future__ import annotations

import msgspec
import pytest

from fleetstop.core import redact
from fleetstop.core.inventory import Launch
from fleetstop.core.launching.dropped import dropped, missed
from fleetstop.core.launching.origin import Origin
from fleetstop.core.launching.outermost import writes_own_log
from fleetstop.core.launching.output import Wrote
from fleetstop.core.launching.recipe import (
    Extra,
    Known,
    Recipe,
    alike,
    as_it_ran,
    parse_env,
    recipe,
    shown,
    unusual,
    whom,
)
from fleetstop.core.launching.restored import Ran, restored
from fleetstop.core.launching.resumed import without
from fleetstop.core.launching.surroundings import (
    LOGIN_PATH,
    Person,
    own,
    parse_login,
    parse_person,
)
from fleetstop.core.process import ProcessId
from fleetstop.errors import BadConfig, BadUsage, Refused

TOKEN = "hf_" + "Ab3" * 11
ML = Person("ml", 1000, 1000, (44, 100), "/home/ml", "/bin/bash")
ROOT = Person("root", 0, 0, (), "/root", "/bin/sh")
ORIGIN = Origin(
    id=ProcessId(7, 1),
    argv=("/bin/bash", "/root/run.sh", "--x"),
    cwd="/workspace",
    env={
        "PATH": "/opt/conda/bin:/usr/bin",
        "LANG": "C.UTF-8",
        "HF_TOKEN": TOKEN,
        "MODE": "fast",
        "SSH_CONNECTION": "1 2 3 4",
        "FLEETSTOP_MARK": "old",
        "_": "/usr/bin/nohup",
        "OLDPWD": "/",
        "SHLVL": "2",
        "PWD": "/elsewhere",
        "HOME": "/root",
    },
    uid=1000,
    gid=1001,
    groups=(4,),
    umask=0o027,
    nice=5,
    limits={"NOFILE": (512, 1024)},
    log="/workspace/old.log",
)
LAUNCH = Launch(
    run=("/root/run.sh",),
    cwd="/root",
    env={"A": "1"},
    user="ml",
    resume=("--resume", "{checkpoint}"),
)


def made(launch: Launch | None, known: Known, extra: Extra | None = None, **facts: str) -> Recipe:
    log = facts.get("log")
    return recipe(launch, known, extra or Extra(), log=log, mark="m1", status="/b/m1.json")


def test_from_the_inventory_alone() -> None:
    spec = made(LAUNCH, Known(person=ML, login={"LANG": "de_DE.UTF-8"}), log="/w/a.log").spec
    assert (spec.argv, spec.cwd, spec.log) == (("/root/run.sh",), "/root", "/w/a.log")
    assert spec.env == {
        "PATH": LOGIN_PATH,
        "LANG": "de_DE.UTF-8",
        "HOME": "/home/ml",
        "USER": "ml",
        "LOGNAME": "ml",
        "SHELL": "/bin/bash",
        "A": "1",
        "PWD": "/root",
    }
    assert (spec.uid, spec.gid, spec.groups) == (1000, 1000, (44, 100))
    assert (spec.umask, spec.nice, spec.limits) == (0o022, 0, {})
    assert (spec.mark, spec.status) == ("m1", "/b/m1.json")


def test_as_it_was_without_any_inventory() -> None:
    spec = made(None, Known(origin=ORIGIN, person=ML)).spec
    assert (spec.argv, spec.cwd, spec.log) == (ORIGIN.argv, "/workspace", "/workspace/old.log")
    assert spec.env == {
        "PATH": "/opt/conda/bin:/usr/bin",
        "LANG": "C.UTF-8",
        "HF_TOKEN": TOKEN,
        "MODE": "fast",
        "HOME": "/root",
        "PWD": "/workspace",
    }
    assert (spec.uid, spec.gid, spec.groups) == (1000, 1001, (4,))
    assert (spec.umask, spec.nice, spec.limits) == (0o027, 5, {"NOFILE": (512, 1024)})


def test_limits_that_it_would_inherit_are_not_set_again() -> None:
    inherited = {"NOFILE": (512, 1024), "STACK": (1, 2)}
    assert made(None, Known(origin=ORIGIN, inherited=inherited)).spec.limits == {}
    inherited = {"NOFILE": (512, 2048)}
    spec = made(None, Known(origin=ORIGIN, inherited=inherited)).spec
    assert spec.limits == {"NOFILE": (512, 1024)}


def test_both_the_inventory_says_what_it_says_and_the_rest_is_as_it_was() -> None:
    """The secret that adopt did not write comes from the process; what else it had does not."""
    one = made(LAUNCH, Known(origin=ORIGIN, person=ML))
    assert (one.spec.argv, one.spec.cwd) == (("/root/run.sh",), "/root")
    assert one.spec.env == {
        "PATH": "/opt/conda/bin:/usr/bin",
        "LANG": "C.UTF-8",
        "HOME": "/home/ml",
        "USER": "ml",
        "LOGNAME": "ml",
        "SHELL": "/bin/bash",
        "HF_TOKEN": TOKEN,
        "A": "1",
        "PWD": "/root",
    }
    assert (one.spec.gid, one.spec.groups, one.spec.umask) == (1001, (4,), 0o027)
    assert one.notes == (
        "HF_TOKEN as the running process has it, since the inventory holds no secrets",
    )
    assert TOKEN not in " ".join(one.notes)
    assert redact.text(one.notes[0]) == one.notes[0]  # nothing of the sentence is taken for one


def test_what_the_inventory_leaves_unsaid_is_as_what_runs() -> None:
    """`launch:` with only `resume`, `launcher` or `run`: variables, too, are what the job has."""
    launch = Launch(resume=("--resume", "{checkpoint}"))
    spec = made(launch, Known(origin=ORIGIN, person=ML, checkpoint="/ck/9")).spec
    assert (spec.argv, spec.cwd) == (ORIGIN.argv, "/workspace")
    # its HOME is another's, as `sudo -E` leaves it: that was given to it
    assert (spec.env["HF_TOKEN"], spec.env["MODE"], spec.env["HOME"]) == (TOKEN, "fast", "/root")
    assert "FLEETSTOP_MARK" not in spec.env
    only_run = made(Launch(run=("/root/run.sh",)), Known(origin=ORIGIN, person=ML)).spec
    assert (only_run.argv, only_run.env["MODE"]) == (("/root/run.sh",), "fast")
    # but not another user's home
    other = made(Launch(run=("x",), user="root"), Known(origin=ORIGIN, person=ROOT)).spec
    assert (other.env["HOME"], other.env["USER"], other.env["MODE"]) == ("/root", "root", "fast")


def test_without_run_and_with_nothing_that_runs_nothing_says_how() -> None:
    with pytest.raises(Refused, match="`launch:` in the inventory has no `run`, and none runs"):
        made(Launch(resume=("--resume", "{checkpoint}")), Known(person=ML))


def test_it_goes_on_from_one_checkpoint_not_from_each_that_it_ever_went_on_from() -> None:
    """Started as it runs: the words that resumed it last time are among its own by now."""
    had = ("python", "t.py", "--resume", "/ck/step 5", "--lr", "1")
    known = Known(origin=msgspec.structs.replace(ORIGIN, argv=had), checkpoint="/ck/9")
    launch = Launch(resume=("--resume", "{checkpoint}"))
    for how in (recipe, as_it_ran):
        spec = how(launch, known, Extra(resume=True), log=None, mark="m", status="/s").spec
        assert spec.argv == ("python", "t.py", "--lr", "1", "--resume", "/ck/9")
        # with no checkpoint to go on from it stays what it was
        spec = how(launch, known, Extra(), log=None, mark="m", status="/s").spec
        assert spec.argv == had


@pytest.mark.parametrize(
    ("argv", "resume", "left"),
    [
        ("a --resume /c b", ("--resume", "{checkpoint}"), "a b"),
        ("a --resume=/c --resume=/d", ("--resume={checkpoint}",), "a"),
        ("a --resume auto b", ("--resume", "auto"), "a b"),
        ("a --resume", ("--resume", "{checkpoint}"), "a --resume"),
        ("a --lr 1", (), "a --lr 1"),
        ("a +x=(1) b", ("+x=(1)",), "a b"),
    ],
)
def test_the_words_that_resumed_it(argv: str, resume: tuple[str, ...], left: str) -> None:
    assert without(argv.split(), resume) == tuple(left.split())


def again(launch: Launch | None, known: Known, extra: Extra | None = None) -> Recipe:
    return as_it_ran(launch, known, extra or Extra(), log=None, mark="m1", status="/b/m1.json")


def test_what_comes_back_comes_exactly_as_it_ran_whatever_the_inventory_says() -> None:
    """With the words and variables that were typed once, and as the user who it ran as."""
    launch = msgspec.structs.replace(LAUNCH, user="root", resume=())
    spec = again(launch, Known(origin=ORIGIN, person=ROOT)).spec
    assert spec == made(None, Known(origin=ORIGIN)).spec
    assert (spec.argv, spec.env["MODE"], spec.uid) == (ORIGIN.argv, "fast", 1000)
    assert again(LAUNCH, Known(origin=ORIGIN, person=ML)).notes == ()


def test_where_how_it_ran_is_not_seen_the_inventory_says_how_it_comes_back() -> None:
    blind = msgspec.structs.replace(ORIGIN, env=None, argv=())
    known = Known(origin=blind, person=ML)
    assert again(LAUNCH, known).spec == made(LAUNCH, known).spec
    half = msgspec.structs.replace(ORIGIN, env=None)
    spec = again(LAUNCH, Known(origin=half, person=ML)).spec
    assert (spec.argv, spec.env["A"]) == (ORIGIN.argv, "1")


def test_two_starts_are_alike_whatever_their_marks() -> None:
    one = made(None, Known(origin=ORIGIN)).spec
    assert alike(one, msgspec.structs.replace(one, mark="m2", status="/other"))
    assert not alike(one, msgspec.structs.replace(one, argv=("x",)))
    assert not alike(one, msgspec.structs.replace(one, env={**one.env, "A": "1"}))


RUN = Launch(run=("python3", "-u", "/root/train.py"), cwd="/root", env={"TAG": "a"})


@pytest.mark.parametrize(
    ("launch", "argv", "env", "extra", "said"),
    [
        (RUN, "/usr/bin/python3 -u /root/train.py", {"TAG": "a"}, Extra(), ()),
        (
            RUN, "python3 -u /root/train.py --lr 1e-4", {"FOO": "1", "TAG": "a"}, Extra(),
            ("started without: --lr 1e-4, FOO (as `launch:` in the inventory has it)",),
        ),
        # typed again, or anew: nothing is lost
        (
            RUN, "python3 -u /root/train.py --lr 1e-4", {"FOO": "1"},
            Extra(words=("--x", "--lr", "1e-4"), env={"FOO": "2"}), (),
        ),
        (
            RUN, "python3 -u /root/train.py", {"TAG": "b"}, Extra(),
            ("started with another value of: TAG (as `launch:` in the inventory has it)",),
        ),
        # a script by its `#!`
        (
            Launch(run=("/root/run.sh",)), "/bin/bash /root/run.sh --lr 1", {"FOO": "1"}, Extra(),
            ("started without: --lr 1 (as `launch:` in the inventory has it)",),
        ),
        (
            Launch(run=("/root/run.sh",)), "python3 /root/train.py", {}, Extra(),
            ("what runs now was started otherwise: python3 /root/train.py",),
        ),
        # the words that resumed it are not missed, and nobody's secret is told
        (
            Launch(run=("x",), resume=("--resume", "{checkpoint}"), env={"A": "1"}),
            f"x --resume /ck/5 --hf-token {TOKEN}", {"HF_TOKEN": TOKEN}, Extra(),
            ("started without: --hf-token *** (as `launch:` in the inventory has it)",),
        ),
        (None, "python3 x.py --lr 1", {"FOO": "1"}, Extra(), ()),
        (Launch(launcher=LAUNCH.launcher), "python3 x.py --lr 1", {"FOO": "1"}, Extra(), ()),
    ],
)  # fmt: skip
def test_whatever_is_dropped_is_said(
    launch: Launch | None, argv: str, env: dict[str, str], extra: Extra, said: tuple[str, ...]
) -> None:
    origin = Origin(ProcessId(7, 1), argv=tuple(argv.split()), cwd="/root", env=env, uid=0)
    known = Known(origin=origin, person=ROOT)
    spec = made(launch, known, extra).spec
    told = dropped(launch, known, spec, extra.env)
    assert (told, tuple(map(redact.text, told))) == (said, said)


@pytest.mark.parametrize("log", [None, "/home/nb/o.log", "/workspace/train.log"])
def test_where_its_output_goes_now_is_said_where_that_is_another_place(log: str | None) -> None:
    origin = Origin(ProcessId(7, 1), argv=("t",), cwd="/", env={}, uid=0, log="/home/nb/o.log")
    known = Known(origin=origin, person=ROOT)
    spec = recipe(None, known, Extra(), log=log, mark="m", status="/s.json").spec
    moved = (
        "its output goes to /workspace/train.log from now on (`log:` in the inventory), not to "
        "/home/nb/o.log"
    )
    assert dropped(None, known, spec) == ((moved,) if log == "/workspace/train.log" else ())


SU = ("su", "www-data", "-c", "exec bash run.sh")


def test_words_that_cannot_reach_the_job_are_refused_before_it_is_stopped() -> None:
    """It was stopped and started twice for nothing."""
    known = Known(origin=msgspec.structs.replace(ORIGIN, argv=SU), person=ML, checkpoint="/ck/2")
    with pytest.raises(Refused) as caught:
        made(None, known, Extra(words=("--lr", "3")))
    assert caught.value.message == (
        "--lr 3 would not reach the job, which is started by su www-data -c 'exec bash run.sh':"
        ' the text behind its -c hands nothing on (no "$@")'
    )
    assert "launch: {run: […]}" in caught.value.hint
    # those to resume with: it would begin anew, and write over what there is. Also where there is
    # no checkpoint yet: its stop may save the first
    resume = Launch(resume=("--resume", "{checkpoint}"))
    for place in (known, msgspec.structs.replace(known, checkpoint=None)):
        with pytest.raises(Refused, match="`launch: resume:` says would not reach"):
            made(resume, place, Extra(resume=place.checkpoint is not None))
    # an inventory that says how it is started
    assert made(LAUNCH, known, Extra(words=("--lr", "3"))).spec.argv == (
        "/root/run.sh",
        "--lr",
        "3",
    )
    assert made(None, known).spec.argv == SU


def test_what_comes_back_comes_back_without_words_that_could_not_reach_it() -> None:
    """It ran so, and nothing may keep it from coming back."""
    known = Known(
        origin=msgspec.structs.replace(ORIGIN, argv=SU), person=ML, checkpoint="/ck/2",
        resume=LAUNCH.resume,
    )  # fmt: skip
    back = as_it_ran(LAUNCH, known, Extra(resume=True), log=None, mark="m", status="/s.json")
    assert (back.spec.argv, back.resume, back.added) == (SU, (), ())


def test_where_nothing_runs_nothing_is_missed() -> None:
    known = Known(person=ML)
    assert dropped(LAUNCH, known, made(LAUNCH, known).spec) == ()


RAN = Ran(("python3", "t.py", "--lr", "1"), "/w", {"MODE": "slow", "PWD": "/w"}, ("HF_TOKEN",))


@pytest.mark.parametrize(
    ("launch", "env", "said"),
    [
        # stopped, and launched by what the inventory says: it was "healthy", and not one word
        (
            Launch(run=("python3", "t.py")), {},
            (
                "started without: --lr 1, MODE, HF_TOKEN, as release r1 had it"
                " (no secrets are kept: --env gives one)",
            ),
        ),
        (
            Launch(run=("python3", "t.py", "--lr", "1"), env={"MODE": "slow"}), {},
            (
                "started without: HF_TOKEN, as release r1 had it"
                " (no secrets are kept: --env gives one)",
            ),
        ),
        (
            Launch(run=("python3", "t.py", "--lr", "1"), env={"MODE": "fast"}), {"HF_TOKEN": "x"},
            ("started with another value of: MODE than release r1 had",),
        ),
        (
            Launch(run=("python3", "t.py", "--lr", "1")), {"MODE": "fast", "HF_TOKEN": "x"}, (),
        ),
        (
            Launch(run=("bash", "run.sh"), env={"MODE": "slow"}), {"HF_TOKEN": "x"},
            ("release r1 was started otherwise: python3 t.py --lr 1",),
        ),
    ],
)  # fmt: skip
def test_where_nothing_runs_what_was_started_last_tells_what_is_missed(
    launch: Launch, env: dict[str, str], said: tuple[str, ...]
) -> None:
    known, extra = Known(person=ROOT), Extra(env=env)
    spec = made(launch, known, extra).spec
    told = missed(launch, known, spec, RAN, "r1", extra.env)
    assert (told, tuple(map(redact.text, told))) == (said, said)


def test_a_secret_among_the_words_of_the_last_start_is_none_that_is_missed() -> None:
    """Of it only `***` is kept."""
    launch = Launch(run=("x", "--hf-token", TOKEN))
    known = Known(person=ROOT)
    ran = Ran(("x", "--hf-token", "***"), "/", {})
    assert missed(launch, known, made(launch, known).spec, ran, "r1") == ()


def test_a_kept_release_is_started_as_it_ran() -> None:
    """Its words, its variables; its secrets, which are not kept, as what runs now has them."""
    found = restored(RAN, ORIGIN, LAUNCH)
    assert found.origin is not None
    assert (found.origin.argv, found.origin.cwd, found.origin.uid) == (RAN.argv, "/w", 1000)
    assert found.origin.env == {"MODE": "slow", "PWD": "/w", "HF_TOKEN": TOKEN}
    assert found.notes == ("HF_TOKEN as the running process has it, since no secrets are kept",)
    assert redact.text(found.notes[0]) == found.notes[0]
    spec = again(LAUNCH, Known(origin=found.origin, person=ML)).spec
    assert (spec.argv, spec.env["MODE"], "A" in spec.env) == (RAN.argv, "slow", False)


def test_a_secret_that_nobody_has_any_more_is_said() -> None:
    found = restored(RAN, None, LAUNCH)
    assert found.origin is not None
    assert found.origin.env == {"MODE": "slow", "PWD": "/w"}
    assert found.notes == ("without HF_TOKEN, which it had: no secrets are kept (--env gives one)",)
    assert redact.text(found.notes[0]) == found.notes[0]
    assert restored(RAN, None, LAUNCH, {"HF_TOKEN": "x"}).notes == ()
    said = msgspec.structs.replace(LAUNCH, env={"HF_TOKEN": TOKEN})
    found = restored(RAN, None, said)
    assert found.origin is not None
    assert (found.origin.env or {})["HF_TOKEN"] == TOKEN


@pytest.mark.parametrize(
    ("ran", "why"),
    [
        (msgspec.structs.replace(RAN, argv=None), "how it was started then is not known"),
        (msgspec.structs.replace(RAN, env=None), "how it was started then is not known"),
        (
            msgspec.structs.replace(RAN, argv=("x", "--hf-token", "***")),
            "its command line held a secret, which is not kept",
        ),
    ],
)
def test_what_cannot_be_put_together_again_is_said(ran: Ran, why: str) -> None:
    assert restored(ran, ORIGIN, LAUNCH) == restored(ran, None, None)
    assert restored(ran, ORIGIN, LAUNCH).origin is None
    assert restored(ran, ORIGIN, LAUNCH).notes == (why,)


def test_a_secret_word_comes_from_what_runs_with_the_same_words() -> None:
    now = msgspec.structs.replace(ORIGIN, argv=("x", "--hf-token", TOKEN))
    ran = msgspec.structs.replace(RAN, argv=("x", "--hf-token", "***"))
    found = restored(ran, now, None)
    assert found.origin is not None
    assert found.origin.argv == now.argv


@pytest.mark.parametrize(
    ("user", "origin", "person", "ids"),
    [
        (None, None, ROOT, (0, 0, ())),
        (None, None, None, (0, 0, ())),
        ("root", None, None, (0, 0, ())),
        ("ml", None, ML, (1000, 1000, (44, 100))),
        ("1000", None, ML, (1000, 1000, (44, 100))),
        ("1234", None, None, (1234, 1234, ())),
        # the same user: as the process is, whatever the list of groups says by now
        ("ml", ORIGIN, ML, (1000, 1001, (4,))),
        (None, ORIGIN, ML, (1000, 1001, (4,))),
        (None, ORIGIN, None, (1000, 1001, (4,))),
        # another user than it ran as
        ("root", ORIGIN, ROOT, (0, 0, ())),
    ],
)
def test_as_whom(
    user: str | None,
    origin: Origin | None,
    person: Person | None,
    ids: tuple[int, int, tuple[int, ...]],
) -> None:
    launch = Launch(run=("x",), cwd="/", user=user)
    spec = made(launch, Known(origin=origin, person=person)).spec
    assert (spec.uid, spec.gid, spec.groups) == ids


@pytest.mark.parametrize(
    ("launch", "origin", "who"),
    [
        (LAUNCH, ORIGIN, "ml"),
        (Launch(run=("x",)), ORIGIN, "1000"),
        (None, ORIGIN, "1000"),
        (Launch(run=("x",)), None, "0"),
        (None, None, "0"),
    ],
)
def test_of_whom_is_asked(launch: Launch | None, origin: Origin | None, who: str) -> None:
    assert whom(launch, origin) == who
    # a login without root cannot become another: its own is meant where nobody is named
    ours = Origin(ProcessId(90, 1), uid=1005)
    assert whom(launch, origin, ours) == (who if who != "0" else "1005")


@pytest.mark.parametrize(
    ("launch", "origin", "cwd"),
    [
        (Launch(run=("x",), cwd="/a"), ORIGIN, "/a"),
        (Launch(run=("x",)), ORIGIN, "/workspace"),
        (Launch(run=("x",)), None, "/home/ml"),
    ],
)
def test_in_which_directory(launch: Launch, origin: Origin | None, cwd: str) -> None:
    one = made(launch, Known(origin=origin, person=ML))
    assert one.spec.cwd == cwd
    assert ("which directory" in " ".join(one.notes)) == (cwd == "/home/ml")


@pytest.mark.parametrize(
    ("run", "log", "origin", "own_log", "opened"),
    [
        (("/r/run.sh",), "/w/a", None, False, "/w/a"),
        (("/r/run.sh",), None, ORIGIN, False, "/workspace/old.log"),
        # the inventory's word is newer than the process
        (("/r/run.sh",), "/w/a", ORIGIN, False, "/w/a"),
        # its script opens the log: its own output goes where it went
        (("/r/run.sh",), "/w/a", ORIGIN, True, "/workspace/old.log"),
        (("bash", "-c", "python t.py | tee /w/a"), "/w/a", None, False, None),
        (("bash", "-c", "python t.py 2>&1 | tee -a '/w/a'"), "/w/a", None, False, None),
        (("bash", "-c", "python t.py >/w/a 2>&1"), "/w/a", None, False, None),
        (("bash", "-c", "python t.py >> /w/a"), "/w/a", None, False, None),
        (("bash", "-c", "python t.py | tee /w/a.2"), "/w/a", None, False, "/w/a"),
        (("bash", "-c", "tee /x </y; python t.py --log /w/a"), "/w/a", None, False, "/w/a"),
        (("python", "t.py", "--log", "/w/a"), "/w/a", None, False, "/w/a"),
    ],
)
def test_what_its_output_goes_to(
    run: tuple[str, ...], log: str | None, origin: Origin | None, own_log: bool, opened: str | None
) -> None:
    """A log that the job opens by itself is not opened for it: with tee each line would stand
    there twice."""
    launch = Launch(run=run, cwd="/")
    one = recipe(
        launch, Known(origin=origin, own_log=own_log), Extra(), log=log, mark="m", status="/s"
    )
    assert one.spec.log == opened


SCRIPT, SEEN = ("/bin/bash", "/r/run.sh", "--lr", "1"), "/w/train.log"


@pytest.mark.parametrize(
    ("run", "log", "wrote", "read"),
    [
        # the inventory's, though run.sh opens that by itself and its own output goes nowhere
        (SCRIPT, SEEN, Wrote(SCRIPT, SEEN, own=True), SEEN),
        (("python", "t.py"), SEEN, None, SEEN),
        # none there: what the same script was seen to write
        (SCRIPT, None, Wrote(SCRIPT, SEEN, own=True), SEEN),
        (("/r/run.sh",), None, Wrote(SCRIPT, SEEN, own=True), SEEN),
        ((*SCRIPT, "--resume", "/ck/5"), None, Wrote(SCRIPT, SEEN, own=True), SEEN),
        # another one may write anywhere; so may one whose `| tee` somebody had typed
        (("/r/other.sh",), None, Wrote(SCRIPT, SEEN, own=True), None),
        (("python", "t.py"), None, Wrote(("python", "old.py"), SEEN, own=True), None),
        (("python", "t.py"), None, Wrote(("python", "t.py"), SEEN, own=False), None),
        (SCRIPT, None, None, None),
    ],
)
def test_where_its_log_is_read(
    run: tuple[str, ...], log: str | None, wrote: Wrote | None, read: str | None
) -> None:
    """Not only where its output goes: run.sh may log by itself, its own stdout be /dev/null."""
    origin = Origin(ProcessId(1, 1), argv=wrote.argv if wrote else (), log=None)
    own = wrote is not None and wrote.path == log
    launch = Launch(run=run, cwd="/", resume=("--resume", "{checkpoint}"))
    known = Known(origin=origin, own_log=own, wrote=wrote)
    one = recipe(launch, known, Extra(), log=log, mark="m", status="/s")
    assert one.reads == read
    assert one.spec.log == (log if not own else None)


@pytest.mark.parametrize(
    ("head", "trainer", "tee", "log", "own"),
    [
        ("/a", "/a", None, "/a", False),
        ("/a", "/b", None, "/b", True),
        (None, None, "/b", "/b", True),
        ("/a", "/b", None, "/a", False),
        ("/a", "/b", None, "/c", False),
        (None, None, None, None, False),
    ],
)
def test_whether_a_job_opens_its_log_by_itself(
    head: str | None, trainer: str | None, tee: str | None, log: str | None, own: bool
) -> None:
    one, two = (Origin(ProcessId(1, 1), log=each) for each in (head, trainer))
    assert writes_own_log(one, two, tee, log) is own


def test_what_was_typed_comes_last() -> None:
    known = Known(origin=ORIGIN, person=ML, checkpoint="/ck/step 5")
    typed = Extra(words=("--lr", "1"), env={"A": "2", "HF_TOKEN": "new", "PWD": "/p"}, resume=True)
    spec = made(LAUNCH, known, typed).spec
    assert spec.argv == ("/root/run.sh", "--resume", "/ck/step 5", "--lr", "1")
    assert (spec.env["A"], spec.env["HF_TOKEN"], spec.env["PWD"]) == ("2", "new", "/p")
    assert made(LAUNCH, known).spec.argv == ("/root/run.sh",)


@pytest.mark.parametrize(
    ("launch", "known", "extra", "error", "said"),
    [
        (None, Known(), Extra(), Refused, "nothing says how this job is started"),
        (LAUNCH, Known(person=ML), Extra(resume=True), Refused, "no complete checkpoint"),
        (
            Launch(run=("x",)),
            Known(checkpoint="/c"),
            Extra(resume=True),
            Refused,
            "nothing says how this job resumes",
        ),
        (LAUNCH, Known(), Extra(), BadConfig, "there is no user 'ml'"),
    ],
)
def test_what_cannot_be_started(
    launch: Launch | None, known: Known, extra: Extra, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        made(launch, known, extra)


def test_an_environment_that_was_not_seen_is_a_clean_login_and_told() -> None:
    origin = Origin(
        ProcessId(7, 1), argv=("x",), cwd="/", uid=0, unseen=("its environment has been …",)
    )
    one = made(None, Known(origin=origin, person=ROOT))
    assert one.spec.env["HOME"] == "/root"
    assert "it gets a clean login's" in one.notes[0]
    assert one.notes[1] == "its environment has been …"


def test_what_is_shown_holds_no_secret() -> None:
    known = Known(origin=ORIGIN, person=ML)
    typed = Extra(
        words=("--hf-token", TOKEN), env={"URL": f"https://u:{TOKEN}@h", "ESC": "\x1b[1m"}
    )
    told = shown(made(LAUNCH, known, typed).spec, ML)
    assert TOKEN not in repr(told)
    assert told.secrets == ("HF_TOKEN", "URL")
    assert told.env["HF_TOKEN"] == "***"
    assert told.env["ESC"] == "\\x1b[1m"
    assert told.env["A"] == "1"
    assert (told.user, told.command) == ("ml", "/root/run.sh --hf-token ***")
    assert told.rest == ("groups 4", "umask 027", "nice 5", "limit NOFILE 512")


def test_what_is_usual_is_not_told() -> None:
    limits = {"NOFILE": (1024, 4096), "STACK": (8388608, -1), "AS": (-1, -1), "NPROC": (3, 3)}
    assert unusual((), 0o022, 0, limits) == ()
    assert unusual((), None, None, {}) == ()
    assert unusual((), 0o002, -5, {"AS": (9, 9), "CORE": (-1, -1)}) == (
        "umask 002",
        "nice -5",
        "limit CORE unlimited",
        "limit AS 9",
    )


@pytest.mark.parametrize(
    ("pairs", "found"),
    [(["A=1", "B=x=y", "C="], {"A": "1", "B": "x=y", "C": ""}), (["A=1", "A=2"], {"A": "2"})],
)
def test_env_words(pairs: list[str], found: dict[str, str]) -> None:
    assert parse_env(pairs) == found


@pytest.mark.parametrize("pair", ["A", "=x", "A B=1", "1A=x", "FLEETSTOP_MARK=x", "a-b=s3cret"])
def test_env_words_that_are_none(pair: str) -> None:
    with pytest.raises(BadUsage) as caught:
        parse_env([pair])
    assert "s3cret" not in caught.value.message


@pytest.mark.parametrize(
    ("said", "person"),
    [
        (b"ml:x:1000:1000:,,,:/home/ml:/bin/bash\n1000 44 100\n", ML),
        (b"root:x:0:0:root:/root:\n0\n", ROOT),
        (b"nobody:x:65534:65534:n::/x\n", Person("nobody", 65534, 65534, (), "/", "/x")),
        (b"", None),
        (b"ml:x:a:1000:,,,:/home/ml:/bin/bash\n", None),
        (b"getent: command not found\n", None),
    ],
)
def test_a_person(said: bytes, person: Person | None) -> None:
    assert parse_person(said) == person


def test_what_a_login_is_given() -> None:
    texts = {
        "/etc/environment": "# said\nPATH=\"/usr/bin:/bin\"\nexport A='b c'\n\nnot a line\n",
        "/etc/default/locale": "LANG=C.UTF-8\n",
    }
    assert parse_login(texts) == {"PATH": "/usr/bin:/bin", "A": "b c", "LANG": "C.UTF-8"}


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("MODE", "fast", True),
        ("NCCL_DEBUG", "INFO", True),
        ("CUDA_VISIBLE_DEVICES", "0,1", True),
        ("EMPTY", "", True),
        ("PATH", "/opt/conda/bin:/usr/bin", True),
        ("PATH", LOGIN_PATH, False),
        ("PATH", "/of/environment", False),
        ("LD_LIBRARY_PATH", "/usr/local/cuda/lib64", True),
        ("SITE", "munich", False),
        ("SITE", "paris", True),
        ("LC_ALL", "C", True),
        ("LANG", "C.UTF-8", False),
        ("LANG", "de_DE.UTF-8", True),
        ("HOME", "/home/ml", False),
        ("HOME", "/root", True),
        ("USER", "ml", False),
        ("USER", "root", True),
        *(
            (name, "x", False)
            for name in (
                "SHELL TERM PWD OLDPWD SHLVL _ SSH_CLIENT SSH_AUTH_SOCK"
                " FLEETSTOP_MARK TMUX STY SUDO_USER INVOCATION_ID SUPERVISOR_ENABLED container"
                " XDG_SESSION_ID DBUS_SESSION_BUS_ADDRESS LS_COLORS MAIL"
            ).split()
        ),
        ("XDG_CACHE_HOME", "/data", True),
        ("SSH_ASKPASS", "/x", True),
    ],
)
def test_what_the_job_has_that_a_login_has_not(name: str, value: str, kept: bool) -> None:
    login = {"SITE": "munich", "PATH": "/of/environment", "LANG": "C.UTF-8"}
    assert (name in own({name: value}, login, ML)) is kept


def test_around_the_words_to_resume_what_an_earlier_one_added_is_left_out() -> None:
    """For who learns the checkpoint only later, with or without one known before."""
    launch = Launch(resume=("--resume", "{checkpoint}"))
    ran = ("python3", "t.py", "--lr", "1", "--resume", "/ck/1")
    extra = Extra(words=("--x",))
    for known, argv in (
        (Known(checkpoint="/ck/2"), (*ran[:4], "--resume", "/ck/2", "--x")),
        (Known(), (*ran, "--x")),
    ):
        more = msgspec.structs.replace(extra, resume=known.checkpoint is not None)
        runs = msgspec.structs.replace(known, origin=Origin(ProcessId(1, 1), argv=ran))
        made = recipe(launch, runs, more, log=None, mark="m", status="/s")
        assert (made.spec.argv, made.around) == (argv, (ran[:4], ("--x",)))
        back = as_it_ran(launch, runs, more, log=None, mark="m", status="/s")
        assert (back.spec.argv, back.around) == (argv, (ran[:4], ("--x",)))
    said = Launch(run=ran, resume=launch.resume)
    made = recipe(said, Known(), extra, log=None, mark="m", status="/s")
    assert (made.spec.argv, made.around) == ((*ran, "--x"), (ran, ("--x",)))


RESUME, AUTO = ("--resume", "{checkpoint}"), ("--from={checkpoint}",)


@pytest.mark.parametrize(
    ("argv", "recorded", "said", "comes"),
    [
        # nobody knows whether it knows such words: it would end at once, with a usage error
        ("t.py --lr 1", (), RESUME, "t.py --lr 1"),
        ("t.py --lr 1", AUTO, RESUME, "t.py --lr 1"),
        ("t.py --lr 1", AUTO, (), "t.py --lr 1"),
        # its own words hold such ones; it was launched with them, when there was no checkpoint yet
        ("t.py --resume /ck/1 --lr 1", (), RESUME, "t.py --lr 1 --resume /ck/9"),
        ("t.py --lr 1", RESUME, RESUME, "t.py --lr 1 --resume /ck/9"),
        # the inventory has other ones by now, or none
        ("t.py --from=/ck/1 --lr 1", AUTO, RESUME, "t.py --lr 1 --from=/ck/9"),
        ("t.py --from=/ck/1 --lr 1", AUTO, (), "t.py --lr 1 --from=/ck/9"),
    ],
)
def test_what_comes_back_gets_words_to_resume_only_where_it_knows_them(
    argv: str, recorded: tuple[str, ...], said: tuple[str, ...], comes: str
) -> None:
    origin = Origin(ProcessId(1, 1), argv=tuple(argv.split()), env={})
    known = Known(origin=origin, checkpoint="/ck/9", resume=recorded)
    assert again(Launch(resume=said), known, Extra(resume=True)).spec.argv == tuple(comes.split())
