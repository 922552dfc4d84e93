"""What was deployed once: back to an earlier release, on from its last checkpoint, two at once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from . import versions
from .bed import Bed, lives, until, words_of
from .redeploying import (
    JOB,
    LAUNCH,
    Code,
    Inside,
    argv,
    ask,
    environ,
    log,
    redeploy,
    rotated,
    stanza,
    stops_by_one_int,
    trainers,
)

pytestmark = [pytest.mark.bed, pytest.mark.timeout(300)]

RESUMES = LAUNCH.replace("}", ', resume: ["--resume", "{checkpoint}"], env: {TAG: "a"}}')
ONE, TWO = versions.version("one"), versions.version("two")
DAEMON = versions.version("daemon", "    if os.fork():\n        os._exit(0)\n    os.setsid()\n")


def releases(code: Code) -> dict[str, dict[str, object]]:
    place = code.root / ".fleetstop/train/releases"
    return {
        each.name: json.loads((each / "manifest.json").read_text())
        for each in sorted(place.iterdir())
    }


def deployed(box: Bed, tmp_path: Path, inventory: Path, text: str) -> str:
    where = versions.sources(tmp_path / "src", text)
    ran = redeploy(box, str(where / "train.py"), inventory=inventory)
    assert ran.code == 0, ran.people
    found = ran.target["release"]
    assert found["id"] == found["running"], found
    return str(found["id"])


def test_one_that_puts_itself_into_the_background_is_well_to_everybody(
    box: Bed, tmp_path: Path
) -> None:
    """Its run.sh has ended with 0; whoever comes next knows how it did, and how it is started."""
    box.start("--save-seconds", "0.2")
    inventory = stanza(box, tmp_path)
    deployed(box, tmp_path, inventory, DAEMON)
    state = json.loads((Code(box).root / ".fleetstop/train/state.json").read_text())
    (trainer,) = trainers(box)
    assert words_of(trainer)[1:3] == [b"-u", b"/root/train.py"]
    assert (state["step"], state["confirmed_by"], state["exit"]) == ("healthy", "client", 0)
    again = redeploy(box, str(tmp_path / "src/train.py"), inventory=inventory)
    assert (again.code, again.signals) == (0, []), again.people
    assert "was found healthy" in " ".join(again.people.split())
    new = versions.sources(tmp_path / "new", ONE)
    plan = redeploy(box, str(new / "train.py"), "-n", inventory=inventory)
    assert plan.code == 0, plan.people
    assert "starts      /bin/bash /root/run.sh --save-seconds 0.2" in plan.people


def test_rollback_to_the_one_before_and_to_a_named_one(box: Bed, tmp_path: Path) -> None:
    box.start("--save-seconds", "0.2")
    code, inventory = Code(box), stanza(box, tmp_path, LAUNCH)
    one = deployed(box, tmp_path, inventory, ONE)
    two = deployed(box, tmp_path, inventory, TWO)
    kept = releases(code)
    assert {one, two} < set(kept)
    (first,) = set(kept) - {one, two}
    assert first < one < two
    told = kept[two]
    assert told["argv"] and told["cwd"] == "/root" and told["who"] and told["when"]  # noqa: PT018

    shown = ask(box, "rollback", "--dry-run", "--diff", inventory=inventory)
    assert (shown.code, shown.target["result"]) == (0, "planned"), shown.people
    assert 'version one")' in shown.people
    assert code.train == TWO

    back = ask(box, "rollback", inventory=inventory)
    assert back.code == 0, back.people
    assert code.train == ONE
    assert "version one" in log(box)
    assert [each for each, _ in back.signals] == ["INT"]

    oldest = ask(box, "rollback", "--to", first, inventory=inventory)
    assert oldest.code == 0, oldest.people
    assert code.train == versions.TRAINER.read_text()

    nothing = ask(box, "rollback", "--to", "2020", inventory=inventory)
    assert nothing.code == 5, nothing.people
    assert two in nothing.people
    assert len(trainers(box)) == 1
    stops_by_one_int(box, inventory)


def test_five_are_kept_and_what_runs(box: Bed, tmp_path: Path) -> None:
    box.start("--save-seconds", "0.1")
    code = Code(box)
    quick = LAUNCH + "\n        deploy: {dest: /root}"
    inventory = stanza(box, tmp_path, quick)
    ids = [deployed(box, tmp_path, inventory, versions.version(f"v{n}")) for n in range(7)]
    kept = sorted(releases(code))
    assert len(kept) <= 6, kept
    assert ids[-5:] == [each for each in kept if each in ids[-5:]]
    assert ids[0] not in kept


def test_on_from_the_checkpoint_that_the_stop_has_written(box: Bed, tmp_path: Path) -> None:
    """Its path in the new argv, beside `--env` and what stands behind --."""
    box.start("--save-seconds", "0.3", "--save-every", "2")
    until(box.saved)
    inventory = stanza(box, tmp_path, RESUMES)
    where = versions.sources(tmp_path / "src", versions.RESUMED)
    words = (str(where / "train.py"), "--env", "LR=1e-4", "--env", "TAG=b")
    ran = redeploy(box, *words, "--", "--save-seconds", "0.4", inventory=inventory)
    assert ran.code == 0, ran.people
    ((_, _),) = ran.signals
    last = ran.target["checkpoint"]["path"]
    assert ran.target["checkpoint"]["written_after_signal"] is True
    assert f"saved {last}" in rotated(box)
    (pid,) = trainers(box)
    assert argv(pid)[-4:] == ["--resume", last, "--save-seconds", "0.4"]
    told = environ(pid)
    assert (told["LR"], told["TAG"]) == ("1e-4", "b")
    assert f"goes on from {last}" in log(box)
    # what was typed once is not kept: the next restart is by the inventory again, and says so
    again = ask(box, "restart", inventory=inventory)
    assert again.code == 0, again.people
    assert again.target["findings"][:2] == [
        "started without: --save-seconds 0.4, LR (as `launch:` in the inventory has it)",
        "started with another value of: TAG (as `launch:` in the inventory has it)",
    ]
    assert again.people.index("started without:") < again.people.index("INT to ")
    (pid,) = trainers(box)
    newest = again.target["checkpoint"]["path"]
    assert newest != last
    assert argv(pid)[-2:] == ["--resume", newest]
    assert environ(pid)["TAG"] == "a"
    assert "LR" not in environ(pid)


def runs_as(box: Bed, text: str, *words: str, **env: str | None) -> None:
    """The code, the last words, and variables (None: it has no such one) of the one trainer."""
    (pid,) = trainers(box)
    told = environ(pid)
    assert (Code(box).train, tuple(argv(pid)[-len(words) :])) == (text, words)
    assert {name: told.get(name) for name in env} == env


def release_of(box: Bed, inventory: Path) -> str | None:
    told = box.run("status", box.name, inventory=inventory)
    assert told.code == 0, told.people
    found = told.target["release"]["running"]
    assert f"release {found} runs" in told.people, told.people
    return str(found)


def test_what_was_typed_goes_on_and_what_failed_is_never_gone_back_to(
    box: Bed, tmp_path: Path
) -> None:
    """No `run` in `launch:`: as it runs, it is started again, and so it comes back."""
    box.start("--save-seconds", "0.1")
    old, only = Code(box).train, "\n        launch: {launcher: setsid}"
    job = JOB.replace("within: 20s", "within: 8s")
    inventory = stanza(box, tmp_path, only, job=job)
    one = versions.sources(tmp_path / "one", ONE)
    words = ("--env", "FOO=1", "--env", "HF_TOKEN=hf_x", "--", "--save-seconds", "0.2")
    first = ask(box, "redeploy", str(one / "train.py"), *words, inventory=inventory)
    assert first.code == 0, first.people
    typed = ("--save-seconds", "0.2")
    runs_as(box, ONE, *typed, FOO="1", HF_TOKEN="hf_x")
    dies = versions.sources(tmp_path / "dies", versions.DIES)
    bad = ask(box, "redeploy", str(dies / "train.py"), "--env", "FOO=2", inventory=inventory)
    assert (bad.code, bad.target["result"]) == (8, "rolled_back"), bad.people
    runs_as(box, ONE, *typed, FOO="1", HF_TOKEN="hf_x")
    good, failed = bad.target["release"]["running"], bad.target["release"]["id"]
    assert release_of(box, inventory) == good == first.target["release"]["id"]

    slip = ask(box, "rollback", "--to", "2020", inventory=inventory)
    assert slip.code == 5, slip.people
    rows = {each.split()[0]: each for each in slip.target["evidence"]}
    assert "never healthy: " in rows[failed]
    assert rows[good].endswith("was healthy, runs now")
    back = ask(box, "rollback", inventory=inventory)
    assert back.code == 0, back.people
    runs_as(box, old, "--save-seconds", "0.1", FOO=None, HF_TOKEN=None)


def test_one_that_saves_when_the_redeploy_comes_is_not_cut(box: Bed, tmp_path: Path) -> None:
    """A periodic save of 3 s, in place: one INT into it would cost that and the one before."""
    job = box.start("--save-every", "4", "--save-seconds", "3", "--in-place")
    until(lambda: "saved" in box.log(job) and box.log(job).rstrip().endswith("%"))
    inventory = stanza(box, tmp_path, LAUNCH)
    where = versions.sources(tmp_path / "src")
    ran = redeploy(box, str(where / "train.py"), inventory=inventory)
    assert ran.code == 0, ran.people
    assert [each for each, _ in ran.signals] == ["INT"]
    old = rotated(box)
    begun, done = old.count("latest.pt: 0%"), old.count("saved /")
    assert begun == done >= 2
    assert "holding" in ran.names()
    assert box.saved() == ["latest.pt"]
    assert not lives(job)


def test_two_at_once_and_the_second_is_refused(box: Bed, tmp_path: Path) -> None:
    job = box.start("--save-seconds", "4")
    inventory = stanza(box, tmp_path, LAUNCH)
    code = Code(box)
    one = versions.sources(tmp_path / "one", ONE)
    two = versions.sources(tmp_path / "two", TWO)
    first = box.popen("redeploy", box.name, str(one / "train.py"), inventory=inventory)
    until(lambda: "KeyboardInterrupt" in box.log(job))
    second = box.popen("redeploy", box.name, str(two / "train.py"), inventory=inventory)
    refused = box.finish(second, alone=False)
    ran = box.finish(first, alone=False)
    assert ran.code == 0, ran.people
    assert refused.code == 5, refused.people
    assert ran.report["run"] in refused.people
    assert refused.signals == []
    assert len(ran.signals) == 1
    assert rotated(box).count("KeyboardInterrupt") == 1
    assert code.train == ONE
    assert len(trainers(box)) == 1
    base = Inside(box).at("/root/.fleetstop/train")
    assert not list(base.glob("stage-*"))


def test_what_came_back_is_well_whatever_became_of_the_other(box: Bed, tmp_path: Path) -> None:
    """The state keeps how the new version ended: that is not how the old one did. Nor does the old
    one know the words to resume that the new one would."""
    box.start("--save-seconds", "0.2", "--save-every", "2")
    until(box.saved)
    inventory = stanza(box, tmp_path, '\n        launch: {resume: ["--resume", "{checkpoint}"]}')
    old = Code(box).train
    dies = versions.sources(tmp_path / "new", versions.DIES)
    first = redeploy(box, str(dies / "train.py"), inventory=inventory)
    assert (first.code, first.target["result"]) == (8, "rolled_back"), first.people
    (pid,) = trainers(box)
    assert "--resume" not in argv(pid)
    said = "should what runs now come back, it starts as it ran: without --resume"
    assert first.people.index(said) < first.people.index("INT to ")
    same = versions.sources(tmp_path / "old", old)
    again = ask(box, "redeploy", str(same / "train.py"), inventory=inventory)
    assert (again.code, again.signals) == (0, []), again.people
    assert "NOT HEALTHY" not in again.people
    assert trainers(box) == [pid]

    wrong = ask(box, "restart", "--env", "FOO=3", "--", "--lrr", "1", inventory=inventory)
    assert (wrong.code, wrong.target["result"]) == (8, "rolled_back"), wrong.people
    last = 'last line: "run.sh: trainer ended with 2"'  # of the log, whoever wrote it
    assert last in wrong.target["reason"]
    assert last in " ".join(wrong.people.rpartition("ROLLED BACK")[2].split())
    hint = f"fleetstop restart {box.name} --env FOO=3 -i {inventory} -- --lrr 1"
    assert hint in " ".join(wrong.people.split())
    runs_as(box, old, "--save-every", "2", FOO=None)
    assert release_of(box, inventory) == again.target["release"]["running"]
