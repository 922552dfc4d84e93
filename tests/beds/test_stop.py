"""The table of the first stop, row by row, on real sshd, real containers and real signals."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import pytest

from .bed import Bed, alive, lives, running, until, with_job, words_of

pytestmark = pytest.mark.bed


def test_polite_stops_by_one_int_and_saves(box: Bed) -> None:
    job = box.start("--save-seconds", "1")
    ran = box.run("stop", box.name, "--graceful")
    assert ran.code == 0, ran.people
    assert ran.target["result"] == "stopped"
    assert ran.signals == [("INT", [job.pid])]
    assert ran.target["checkpoint"]["complete"] is True
    assert ran.target["checkpoint"]["written_after_signal"] is True
    assert len(box.saved()) == 1
    assert ran.target["verdict"] == "gone"
    assert [each["index"] for each in ran.target["gpus"]] == [0]
    assert ran.target["gpus"][0]["held_mib"] == 0
    assert "gpus_released" in ran.names()
    assert (ran.connections, ran.pct_calls) == (1, 1)
    assert ran.target["cost"] == {"ssh_connections": 1, "pct_calls": 1}
    # about 2 s beyond the save; the deadline is ten times that
    assert ran.seconds < 1 + 20
    assert box.lock_files() == []
    assert box.signals_seen(job) == 1


def test_polite_without_log_and_checkpoints_needs_no_pct(box: Bed, tmp_path: Path) -> None:
    box.start("--save-seconds", "0.2")
    inventory = with_job(box, tmp_path, "match: {script: train.py}\n        stop_signal: INT")
    ran = box.run("stop", box.name, "--graceful", inventory=inventory)
    assert ran.code == 0, ran.people
    assert (ran.connections, ran.pct_calls) == (1, 0)


def test_deaf_is_told_at_once_and_untouched(box: Bed) -> None:
    job = box.start(how="deaf")
    ran = box.run("stop", box.name, "--graceful")
    assert ran.code == 1, ran.people
    assert ran.target["result"] == "still_running"
    assert ran.target["verdict"] == "deaf"
    assert ran.signals == []
    skipped = {each["signal"]: each["reason"] for each in ran.target["skipped"]}
    assert "ignores it (SigIgn)" in skipped["INT"]
    assert "with & from a non-interactive shell" in skipped["INT"]
    assert "no handler" in skipped["TERM"]
    assert f"fleetstop stop {box.name} --force" in ran.people
    assert lives(job)
    assert ran.seconds < 20


def test_deaf_with_force_ends_by_term_and_says_what_was_lost(box: Bed) -> None:
    job = box.start(how="deaf")
    ran = box.run("stop", box.name, "--force")
    assert ran.code == 0, ran.people
    assert ran.signals == [("TERM", [job.pid])]
    assert not lives(job)
    assert any("without a save" in text for text in ran.target["findings"]), ran.target


def test_exit_without_saving_is_not_saved(box: Bed) -> None:
    box.start("--no-save")
    ran = box.run("stop", box.name, "--graceful")
    assert ran.code == 6, ran.people
    assert ran.target["result"] == "unclean"
    assert ran.target["reason"].startswith("not_saved")


def test_deaf_that_saves_on_term(box: Bed) -> None:
    job = box.start("--on", "TERM", "--save-seconds", "0.5", how="deaf")
    ran = box.run("stop", box.name, "--graceful")
    assert ran.code == 0, ran.people
    assert ran.signals == [("TERM", [job.pid])]
    assert len(box.saved()) == 1
    assert box.signals_seen(job) == 1


def test_ignores_everything_needs_force(box: Bed) -> None:
    job = box.start("--ignore", "INT,TERM")
    ran = box.run("stop", box.name)
    assert ran.code == 5, ran.people
    assert ran.target["result"] == "refused"
    assert ran.signals == []
    assert "--force" in ran.people
    assert lives(job)
    ran = box.run("stop", box.name, "--force")
    assert ran.code == 0, ran.people
    assert [name for name, _ in ran.signals] == ["KILL"]
    assert not lives(job)


def test_a_slow_save_is_held_for_and_whole(box: Bed) -> None:
    """The wrong choice, TERM after 2 s, would cut the save: nothing would be left of it."""
    job = box.start("--save-seconds", "20", "--save-memory-fraction", "0.5", "--size-mb", "20")
    ran = box.run("stop", box.name, "--force", "--ladder", "INT/2 TERM/2 KILL:tree/5", deadline=90)
    assert ran.code == 0, ran.people
    assert ran.signals == [("INT", [job.pid])]
    held = [each for each in ran.events if each["event"] == "holding" and each["over_wait"]]
    assert {each["why"] for each in held} == {"stopping", "saving"}
    assert len(box.saved()) == 1
    assert box.signals_seen(job) == 1


def test_interrupted_and_taken_up_again_is_one_signal(box: Bed) -> None:
    job = box.start("--save-seconds", "12")
    first = box.popen("stop", box.name, "--graceful")
    until(lambda: "saving" in box.log(job))
    first.process.send_signal(signal.SIGINT)
    ran = box.finish(first, 20)
    assert ran.code == 130, ran.people
    assert ran.signals == [("INT", [job.pid])]
    assert "interrupted" in ran.names()
    assert lives(job)
    again = box.run("stop", box.name, "--graceful")
    assert again.code == 0, again.people
    assert again.target["result"] == "stopped"
    assert again.signals == []
    assert any(each["event"] == "watched_on" for each in again.events)
    assert again.target["checkpoint"]["written_after_signal"] is True
    assert "saved step_" in again.people
    assert len(box.saved()) == 1
    assert box.lock_files() == []
    assert box.signals_seen(job) == 1


def test_term_waits_for_a_periodic_save_in_place(box: Bed) -> None:
    job = box.start("--save-every", "4", "--in-place", "--save-seconds", "6", how="deaf")
    until(lambda: box.log(job).count("saving") >= 1, 15)
    ran = box.run("stop", box.name, "--force")
    assert ran.code == 0, ran.people
    assert ran.signals == [("TERM", [job.pid])]
    assert any(each["event"] == "holding" for each in ran.events)
    assert box.saved() == ["latest.pt"]


def test_stopped_by_sigstop_is_continued_and_saves(box: Bed) -> None:
    job = box.start("--save-seconds", "0.5")
    os.kill(job.process.pid, signal.SIGSTOP)
    until(lambda: _state(job.process.pid) == "T")
    ran = box.run("stop", box.name, "--graceful")
    assert ran.code == 0, ran.people
    assert ran.signals == [("INT", [job.pid])]
    sent = next(each for each in ran.events if each["event"] == "signal_sent")
    assert sent["continued"] is True
    assert len(box.saved()) == 1
    assert box.signals_seen(job) == 1


def test_ranks_in_one_burst_workers_spared(box: Bed) -> None:
    """One rank alone, or ranks half a second apart, would hang in the save's barrier."""
    job = box.start("--ranks", "3", "--workers", "2", "--save-seconds", "1")
    assert len(job.trainers) == 3
    ran = box.run("stop", box.name, "--graceful")
    assert ran.code == 0, ran.people
    assert len(ran.signals) == 1
    name, pids = ran.signals[0]
    assert (name, len(pids)) == ("INT", 3)
    assert len(box.saved()) == 3
    roles = [each["role"] for each in ran.target["family"]]
    assert roles.count("trainer") == 3
    assert roles.count("worker") >= 2


SECOND = """\
import os, signal, subprocess, sys, time
log = open("/workspace/second.log", "a", buffering=1)
code = (
    "import os, signal, sys, time\\n"
    "def told(number, frame):\\n"
    "    os.write(1, b'signalled\\\\n')\\n"
    "signal.signal(signal.SIGINT, told); signal.signal(signal.SIGTERM, told)\\n"
    "if sys.argv[1] == 'orphan' and os.fork(): os._exit(0)\\n"
    "os.write(1, b'born\\\\n'); time.sleep(2); os.write(1, b'died of age\\\\n')\\n"
)
while True:
    for kind in ("child", "orphan"):
        subprocess.Popen([sys.executable, "-c", code, kind], stdout=log)
    time.sleep(0.2)
"""


def test_a_second_job_of_the_same_session_is_untouched(box: Bed) -> None:
    """Its workers that are born during the stop, and orphaned, share the trainer's session."""
    (box.lab.rootfs(box.vmid) / "root/second.py").write_text(SECOND)
    text = (
        "setsid -f bash -c 'cd /root; python3 -u train.py --ignore INT,TERM --workers 1"
        " >/workspace/train.log 2>&1 & python3 -u second.py & wait'"
        " >/dev/null 2>&1 </dev/null"
    )
    job = box.start(text, how="raw", trainers=1)
    log = box.lab.rootfs(box.vmid) / "workspace/second.log"
    until(lambda: log.exists() and log.read_text().count("born") > 4)
    ran = box.run("stop", f"{box.name}:train", "--force")
    assert ran.code == 0, ran.people
    assert not lives(job)
    # a child that has not come to its exec yet bears its parent's words
    until(lambda: len(_second_jobs(box)) == 1)
    second = min(_second_jobs(box), key=lambda each: each[1])
    born = log.read_text().count("born")
    until(lambda: log.read_text().count("died of age") >= born)
    said = log.read_text()
    assert alive(*second)
    assert "signalled" not in said
    # nobody of them was killed either: all that were born by then have died of age
    assert said.count("died of age") >= born > 4


def test_tee_gets_no_signal(box: Bed) -> None:
    """INT to the group would end tee first and lose the save by a broken pipe."""
    job = box.start("--save-seconds", "1", how="tee")
    ran = box.run("stop", box.name, "--graceful")
    assert ran.code == 0, ran.people
    assert ran.signals == [("INT", [job.pid])]
    assert len(box.saved()) == 1
    assert box.signals_seen(job) == 1


def test_nothing_runs(box: Bed) -> None:
    ran = box.run("stop", box.name)
    assert (ran.code, ran.target["result"]) == (0, "not_running"), ran.people


def test_a_stopped_container_is_not_running(box: Bed) -> None:
    box.lab.stop(box.vmid)
    ran = box.run("stop", box.name)
    assert (ran.code, ran.target["result"]) == (0, "not_running"), ran.people
    assert "stopped" in ran.target["reason"]
    box.lab.boot(box.vmid)


def test_decoys_are_not_touched(box: Bed) -> None:
    decoys = box.lab.decoys(box.vmid)
    job = box.start("--ignore", "INT,TERM")
    ran = box.run("stop", box.name, "--force")
    assert ran.code == 0, ran.people
    assert not lives(job)
    assert {name for name, p in decoys.items() if not alive(p.pid, p.start)} == set()


def test_two_unrelated_trees_are_refused_and_both_shown(box: Bed) -> None:
    one, two = box.start(), box.start()
    ran = box.run("stop", box.name)
    assert ran.code == 5, ran.people
    assert ran.signals == []
    assert f"{one.pid} python3" in ran.people
    assert f"{two.pid} python3" in ran.people
    assert lives(one)
    assert lives(two)
    shown = box.run("status", box.name)
    assert shown.code == 0
    located = [each for each in shown.events if each["event"] == "located"]
    assert len(located) == 2
    trainers = {m["pid"] for each in located for m in each["family"] if m["role"] == "trainer"}
    assert trainers == {one.pid, two.pid}


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _second_jobs(box: Bed) -> list[tuple[int, int]]:
    """The container's `python3 -u second.py` by host PID and start."""
    found = []
    for pid in running(box, "second.py"):
        with contextlib.suppress(OSError):
            start = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
            if b"second.py" in words_of(pid):
                found.append((pid, int(start)))
    return found
