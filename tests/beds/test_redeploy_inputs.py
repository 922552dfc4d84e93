"""Whatever is asked wrongly: a sentence, the right code, and the job trains on as it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import versions
from .bed import Bed, lives, until, with_job
from .redeploying import JOB, LAUNCH, Code, trainers, tree

pytestmark = pytest.mark.bed

# words behind the target, the exit code, what is said and what is next
WRONG = {
    "--to a directory that is not there": (
        ["redeploy", "{new}", "--to", "/no/such"], 7, "/no/such does not exist there", "make it",
    ),
    "--to no place for files": (
        ["redeploy", "{new}", "--to", "/proc/1"], 7, "/proc/1 is no place", "--to DIRECTORY",
    ),
    "--to among the checkpoints": (
        ["redeploy", "{new}", "--to", "/workspace/checkpoints"], 7,
        "would land among the job's checkpoints", "leave it out",
    ),
    "a release that is not kept": (
        ["rollback", "--to", "2026"], 5, "no release 2026 is kept in /root/.fleetstop/train", "",
    ),
    "no release at all": (["rollback"], 7, "no release is kept in /root/.fleetstop/train", ""),
    "launch of what runs": (["launch"], 5, "it runs already: ", "fleetstop restart "),
    "a user that is not there": (
        ["restart", "-i", "{user}"], 5, "there is no user 'nobody7'", "getent passwd",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_is_asked_wrongly_touches_nothing(box: Bed, tmp_path: Path, name: str) -> None:
    words, code, said, hint = WRONG[name]
    job, here = box.start(), Code(box)
    inventory = with_job(box, tmp_path, JOB)
    user = f"{JOB}\n        launch: {{run: [/root/run.sh], user: nobody7}}"
    names = {"new": str(versions.sources(tmp_path / "src") / "train.py")}
    names["user"] = str(with_job(box, tmp_path / "src", user))
    command, *rest = (each.format(**names) for each in words)
    if "-i" in rest:
        rest, inventory = [], Path(names["user"])
    ran = box.run(command, box.name, *rest, inventory=inventory, pct=6)
    assert ran.code == code, ran.people
    assert said in ran.target["reason"]
    assert hint in (ran.target["hint"] or "")
    assert ran.signals == []
    assert lives(job)
    assert here.untouched()
    assert box.signals_seen(job) == 0


def test_a_stopped_container_is_refused_and_a_frozen_one_not_entered(
    box: Bed, tmp_path: Path
) -> None:
    box.start()
    inventory = with_job(box, tmp_path, JOB)
    new = str(versions.sources(tmp_path / "src") / "train.py")
    box.lab.freeze(box.vmid)
    try:
        ran = box.run("redeploy", box.name, new, inventory=inventory)
    finally:
        box.lab.thaw(box.vmid)
    assert (ran.code, ran.target["result"]) == (4, "unreachable"), ran.people
    assert "is frozen" in ran.target["reason"]
    box.lab.stop(box.vmid)
    for words in (["redeploy", box.name, new], ["launch", box.name], ["restart", box.name]):
        ran = box.run(*words, inventory=inventory)
        assert (ran.code, ran.target["result"]) == (5, "refused"), ran.people
        assert "is stopped" in ran.target["reason"]
        assert ran.target["hint"] == f"on lab1: pct start {box.vmid}"
    box.lab.boot(box.vmid)


def test_by_an_address_without_an_inventory_it_is_named_by_script(box: Bed, tmp_path: Path) -> None:
    """The dry run says all of it; a slip of the name is told, for something works there."""
    job, here = box.start(), Code(box)
    new = str(versions.sources(tmp_path / "src") / "train.py")
    place = f"lab1/{box.vmid}"
    ran = box.run("redeploy", place, new, "--script", "train.py", "-n", pct=6)
    assert ran.code == 0, ran.people
    assert "1 file to /root, where it runs from" in ran.people
    assert "planned; nothing was sent, stopped or started" in ran.people
    assert ran.target["plan"][0]["would"] == "send"
    ran = box.run("redeploy", place, new, "--script", "trian.py", "--to", "/root", pct=6)
    assert ran.code == 5, ran.people
    assert f"nothing matches --script trian.py, but {job.pid} " in ran.target["reason"]
    assert lives(job)
    assert here.untouched()


def test_a_stop_that_is_missed_names_the_redeploy_that_goes_on(box: Bed, tmp_path: Path) -> None:
    """Never a stop alone: after that the GPUs would idle. What is named is typed, and does it."""
    job = box.start("--save-every", "2", how="deaf")
    until(lambda: len(box.saved()) >= 4)  # how often it saves is known from a few
    inventory, here = with_job(box, tmp_path, JOB), Code(box)
    new = str(versions.sources(tmp_path / "src") / "train.py")
    ran = box.run("redeploy", box.name, new, "--graceful", inventory=inventory, pct=6)
    assert (ran.code, ran.target["result"]) == (1, "still_running"), ran.people
    assert lives(job)
    ours = [each for each in tree(here.root) if each not in here.before]
    assert here.before.items() <= tree(here.root).items()
    assert not any("stage-" in each or "files/" in each for each in ours), ours
    told = " ".join(ran.people.split())
    assert "No file was replaced." in told
    assert f"fleetstop redeploy {box.name} {new} --force -i {inventory}" in told
    assert "fleetstop stop" not in told
    assert f"fleetstop redeploy {box.name} {new} --after-checkpoint -i {inventory}" in told
    then = box.run(
        "redeploy", box.name, new, "--after-checkpoint", inventory=inventory, deadline=120, pct=6
    )
    assert then.code == 0, then.people
    assert not lives(job)


def test_one_that_ended_unsaved_is_not_followed_by_the_new_code_till_it_is_asked_again(
    box: Bed, tmp_path: Path
) -> None:
    """Something is amiss with what it saves: a person has to look. What is named does it then."""
    box.start("--no-save")
    inventory, code = with_job(box, tmp_path, JOB), Code(box)
    old = code.train
    new = str(versions.sources(tmp_path / "src") / "train.py")
    ran = box.run("redeploy", box.name, new, inventory=inventory, deadline=120, pct=6)
    assert (ran.code, ran.target["result"]) == (6, "unclean"), ran.people
    assert trainers(box) == []
    assert code.train == old
    told = " ".join(ran.people.split())
    assert "NOTHING was started." in told
    assert f"fleetstop redeploy {box.name} {new} -i {inventory}" in told
    assert "so say there: launch: {run: [/bin/bash, /root/run.sh" in told
    assert "cwd: /root}, deploy: {dest: /root}" in told
    inventory = with_job(box, tmp_path, f"{JOB}{LAUNCH}\n        deploy: {{dest: /root}}")
    then = box.run("redeploy", box.name, new, inventory=inventory, deadline=120, pct=6)
    assert then.code == 0, then.people
    assert code.train == versions.GOOD
