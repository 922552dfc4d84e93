"""The activator without its client: told to go on by itself, with what it has to find out then."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetstop.core.saves import rules
from tests.contracts.activation import NEW, OLD, Activator, start_of, until

RESUMES = 'echo "$@" >>../said\nexec sleep 300\n'


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Activator]:
    made = Activator(tmp_path)
    made.old("train.sh", OLD)
    made.log.write_text("old tok/s\n")
    made.new("train.sh", NEW)
    yield made
    made.close()


def test_a_client_that_says_so_is_not_waited_for(job: Activator) -> None:
    """Ctrl-C after the signal: the GPUs do not idle until its silence is believed."""
    old = job.runs()
    job.begin(stale_s=600, patience_s=300)
    job.order("armed alone")
    until(lambda: job.state["alone"], "it tells that it heard")
    assert job.state["step"] == "waiting"
    old.kill()
    old.wait()
    state = job.end("healthy")
    assert (state["order"], state["alone"], state["confirmed_by"]) == ("armed", True, "activator")
    job.runs_now("new")


def test_who_leaves_before_any_signal_changes_nothing(job: Activator) -> None:
    """And a job that ends by itself then is not started anew."""
    old = job.runs()
    job.begin(stale_s=600)
    job.order("keep alone")  # no word for who waits
    time.sleep(0.5)
    assert job.state["step"] == "waiting"
    old.kill()
    old.wait()
    job.order("cancel")
    job.end("cancelled")
    assert (job.dest / "train.sh").read_text() == OLD


def test_its_health_is_judged_at_once_too(job: Activator) -> None:
    job.begin(stale_s=600, health={"within_s": 0.5, "log_matches": "new tok/s"})
    job.order("go alone")
    assert job.end("healthy")["confirmed_by"] == "activator"


def test_a_reason_that_was_given_is_the_reason(job: Activator) -> None:
    """Not how it ended once its client ended it."""
    job.begin(stale_s=600)
    job.order("go")
    job.reach("launched")
    new = job.runs_now("new")
    job.order("unwell nothing new in the log matches 'tok/sec'")
    until(lambda: job.state["order"] == "unwell", "it tells that it heard")
    os.kill(new, signal.SIGINT)
    state = job.end("rolled_back")
    why = "nothing new in the log matches 'tok/sec'; sh train.sh was ended by INT after that"
    assert (state["reason"], state["signal"]) == (why, "INT")


def checkpoint(folder: Path, number: int) -> Path:
    folder.mkdir(exist_ok=True)
    made, path = io.BytesIO(), folder / f"step_{number}.pt"
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("data.pkl", b"x" * 300)
    path.write_bytes(made.getvalue())
    at = time.time() - 1000 + number
    os.utime(path, (at, at))
    return path


def resume(job: Activator, known: Path | None) -> dict[str, Any]:
    words = ["sh", "train.sh"]
    return {
        "known": str(known) if known else None, "directory": str(job.place / "ck"),
        "rules": rules.told(), "words": ["--from", "@"], "placeholder": "@",
        "launch": [words, ["--lr", "1"]], "launch_old": [words, []],
    }  # fmt: skip


def said(job: Activator, lines: int) -> list[str]:
    path = job.place / "said"
    until(lambda: path.exists() and path.read_text().count("\n") >= lines, "it says its words")
    return path.read_text().splitlines()


@pytest.mark.parametrize("first", [True, False])
def test_it_goes_on_from_what_the_stop_has_saved(job: Activator, first: bool) -> None:
    """From the newest that is whole; what was cut while it was written is none. `first`: before
    the stop there was none."""
    job.spec["files"].clear()
    job.new("train.sh", RESUMES)
    ck = job.place / "ck"
    known = None if first else checkpoint(ck, 100)
    old = job.runs()
    job.begin(stale_s=600, patience_s=300, resume=resume(job, known))
    assert job.state["checkpoint"] == (str(known) if known else None)
    saved, torn = checkpoint(ck, 200), checkpoint(ck, 300)
    os.truncate(torn, 150)
    os.utime(torn)
    job.order("armed alone")
    old.kill()
    old.wait()
    state = job.end("healthy")
    assert said(job, 1) == [f"--from {saved} --lr 1"]
    assert state["checkpoint"] == str(saved)
    told = f"the client left: it goes on from {saved}, the newest complete one"
    assert state["findings"] == [told]


def test_the_old_version_goes_on_from_it_too(job: Activator) -> None:
    job.spec["files"].clear()
    job.new("train.sh", "exit 3\n")
    job.old("train.sh", RESUMES)
    known = checkpoint(job.place / "ck", 100)
    job.begin(stale_s=600, resume=resume(job, known))
    saved = checkpoint(job.place / "ck", 200)
    job.order("armed alone")
    state = job.end("rolled_back")
    assert said(job, 1) == [f"--from {saved}"]
    assert state["checkpoint"] == str(saved)


@pytest.mark.parametrize("knows", [False, True])
def test_the_old_version_goes_on_only_in_words_that_it_knows(job: Activator, knows: bool) -> None:
    """`knows`: it does, in others than the new one's. If not it would end at once."""
    job.spec["files"].clear()
    job.new("train.sh", "exit 3\n")
    job.old("train.sh", RESUMES)
    known = checkpoint(job.place / "ck", 100)
    told = resume(job, known) | ({"words_old": ["-r=@"]} if knows else {"launch_old": None})
    launch_old = job.launch("old", argv=["sh", "train.sh", "--lr", "2"])
    words = {"launch": ["--from", "@"], "launch_old": ["-r=@"] if knows else []}
    job.begin(stale_s=600, launch_old=launch_old, resume=told, resumes=words)
    saved = checkpoint(job.place / "ck", 200)
    job.order("armed alone")
    state = job.end("rolled_back")
    assert said(job, 1) == [f"-r={saved}" if knows else "--lr 2"]
    assert state["resumes"] == words["launch_old"]


def test_what_nothing_is_told_to_go_on_from_is_not_said_to(job: Activator) -> None:
    job.spec["files"].clear()
    job.new("train.sh", RESUMES)
    known = checkpoint(job.place / "ck", 100)
    launch = job.launch("new", argv=["sh", "train.sh", "--lr", "2"])
    told = {**resume(job, known), "words": [], "words_old": ["-r=@"], "launch": None}
    job.begin(stale_s=600, launch=launch, resume=told)
    checkpoint(job.place / "ck", 200)
    job.order("armed alone")
    state = job.end("healthy")
    assert said(job, 1) == ["--lr 2"]
    assert (state["findings"], state["resumes"]) == ([], None)


@pytest.mark.parametrize(("named", "saves"), [(100, True), (100, False), (99, False)])
def test_words_that_name_an_older_one_are_told_of_by_it_too(
    job: Activator, named: int, saves: bool
) -> None:
    """It is started as it is, from what was once the newest, or was not even that."""
    job.spec["files"].clear()
    job.new("train.sh", RESUMES)
    ck = job.place / "ck"
    old, known = checkpoint(ck, 99), checkpoint(ck, 100)
    path = str(known if named == 100 else old)
    launch = job.launch("new", argv=["sh", "train.sh", "-r", path])
    told = {
        **resume(job, known), "words": [], "launch": [launch["argv"], []], "launch_old": None,
        "named": [path],
    }  # fmt: skip
    job.begin(stale_s=600, launch=launch, resume=told)
    newest = checkpoint(ck, 200) if saves else known
    job.order("armed alone")
    state = job.end("healthy")
    assert said(job, 1) == [f"-r {path}"]
    why = f"the client left: what it is started with names {path}, though {newest} is newer"
    assert state["findings"] == ([why] if str(newest) != path else [])


def test_where_it_cannot_look_it_keeps_to_what_was_known_and_says_so(job: Activator) -> None:
    job.spec["files"].clear()
    job.new("train.sh", RESUMES)
    known = checkpoint(job.place / "ck", 100)
    argv = ["sh", "train.sh", "--from", str(known), "--lr", "1"]
    job.begin(
        stale_s=600, launch=job.launch("new", argv=argv),
        resume={**resume(job, known), "rules": {"broken": 1}},
    )  # fmt: skip
    checkpoint(job.place / "ck", 200)
    job.order("armed alone")
    state = job.end("healthy")
    assert said(job, 1) == [f"--from {known} --lr 1"]
    assert state["checkpoint"] == str(known)
    (finding,) = state["findings"]
    assert "could not be looked for" in finding
    assert finding.endswith(f"it goes on from {known}, the newest before the stop")


def test_what_the_client_has_told_is_not_looked_for_again(job: Activator) -> None:
    job.spec["files"].clear()
    job.new("train.sh", RESUMES)
    known = checkpoint(job.place / "ck", 100)
    argv = ["sh", "train.sh", "--from", str(known)]
    job.begin(launch=job.launch("new", argv=argv), resume=resume(job, known))
    checkpoint(job.place / "ck", 200)
    job.order("go")
    state = job.reach("launched")
    assert said(job, 1) == [f"--from {known}"]
    assert (state["checkpoint"], state["findings"]) == (str(known), [])
    job.order("done")
    job.end("healthy")


def test_a_pattern_that_takes_for_ever_is_no_health_and_hangs_nobody(job: Activator) -> None:
    """It sent the activator into a regular expression of years, with the roll-back behind it."""
    aside = job.base / "aside.py"
    aside.write_text(aside.read_text().replace("MATCHES_S = 20.0", "MATCHES_S = 0.5"))
    job.spec["files"].clear()
    job.new("train.sh", f"echo {'a' * 60}b\nexec sleep 300\n")
    job.begin(stale_s=600, health={"within_s": 0.3, "log_matches": "(a+)+$"})
    job.order("go alone")
    state = job.end("unconfirmed")
    assert state["reason"].endswith("and log_matches took too long")
    assert state["findings"] == ["log_matches took too long: health was not judged by it"]
    job.runs_now("new")


def test_nothing_is_started_beside_what_somebody_has_started_meanwhile(job: Activator) -> None:
    """The client is dead, the old run saved and ended, and its user started it again by hand."""
    script = job.old("train.py", "import time\ntime.sleep(300)\n")
    job.new("train.py", "import time\ntime.sleep(200)\n")
    words = [sys.executable, "-u", str(script)]
    old = job.runs(*words)
    until(lambda: str(script) in cmdline(old.pid), "it runs")
    job.begin("armed", stale_s=1.0, patience_s=300)
    until(lambda: job.state["order"] == "armed", "it heard")
    twin = subprocess.Popen(["sh", "train.sh"], cwd=elsewhere(job), start_new_session=True)
    again = subprocess.Popen(words, start_new_session=True)
    job.children += [(each.pid, start_of(each.pid)) for each in (again, twin)]
    old.kill()
    old.wait()
    state = job.end("cancelled")
    assert state["reason"] == (
        f"PID {again.pid} runs it, started meanwhile by something else: nothing is started beside"
        " it"
    )
    assert again.poll() is None
    assert script.read_text() == "import time\ntime.sleep(300)\n"
    assert job.litter() == []


def test_another_job_of_the_same_script_is_another_job(job: Activator) -> None:
    """`--which a` and `--which b` in one directory, matched by their words; b is started again."""
    script = job.old("train.py", "import time\ntime.sleep(300)\n")
    job.new("train.py", "import time\ntime.sleep(200)\n")
    words = [sys.executable, "-u", str(script), "--which"]
    old = job.runs(*words, "a")
    until(lambda: str(script) in cmdline(old.pid), "it runs")
    job.begin("armed", stale_s=1.0, patience_s=300, by_script=False)
    until(lambda: job.state["order"] == "armed", "it heard")
    twin = subprocess.Popen([*words, "b"], start_new_session=True)
    job.children.append((twin.pid, start_of(twin.pid)))
    old.kill()
    old.wait()
    job.end("healthy")
    job.runs_now("new")
    assert twin.poll() is None


def test_a_helper_that_anybody_may_run_is_no_sign_of_the_job(job: Activator) -> None:
    """A `sleep` that the old run's script waited for, and another somewhere else."""
    old = job.runs("sleep", "300.25")
    job.begin("armed", stale_s=1.0, patience_s=300)
    until(lambda: job.state["order"] == "armed", "it heard")
    other = subprocess.Popen(["sleep", "300.25"], start_new_session=True)
    job.children.append((other.pid, start_of(other.pid)))
    old.kill()
    old.wait()
    job.end("healthy")
    assert other.poll() is None


def elsewhere(job: Activator) -> Path:
    """Another job's directory, where it is started by the very same words."""
    where = job.place / "twin"
    where.mkdir()
    (where / "train.sh").write_text(OLD)
    return where


LATE = """
import os, sys, time
if os.fork() == 0:
    log = open(sys.argv[1], "a")
    time.sleep(3.5)
    os._exit(0)
os._exit(0)
"""


def test_what_the_old_run_forked_at_its_end_is_waited_for(job: Activator) -> None:
    """A worker that still writes, in its group: it is of the run that ends."""
    old = job.runs("sh", "-c", f"sleep 1.5; {sys.executable} -c '{LATE}' {job.log}")
    job.begin("armed", stale_s=0.3, patience_s=300)
    old.wait()
    time.sleep(1.0)
    assert job.state["step"] == "waiting"
    job.end("healthy")
    job.runs_now("new")


def cmdline(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()
