"""From where a job is seen and signalled: with root, without it, and where nothing enters."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from fleetstop.lab import Lab
from fleetstop.lab.login import Login, login
from fleetstop.lab.processes import ProcessId, identify

from .bed import Bed, Ran, alive, lives, until, with_job, words_of
from .limits import no_forks, out_of_memory

pytestmark = pytest.mark.bed


class Rootless:
    """A container and a login that is not root on its host."""

    def __init__(self, box: Bed, who: Login, where: Path) -> None:
        self.box, self.who, self._where = box, who, where

    def inventory(self, sudo: str = "auto", stanza: str = "") -> Path:
        head, _, jobs = self.box.lab.inventory.read_text().partition("containers:")
        head = head.replace("root@", f"{self.who.name}@") + f"    sudo: {sudo}\n"
        path = self._where / "fleet.yaml"
        path.write_text(f"{head}{stanza}containers:{jobs}")
        return path

    def run(self, *words: str, sudo: str = "auto", deadline: float = 60.0) -> Ran:
        ran = self.box.run(*words, inventory=self.inventory(sudo), deadline=deadline)
        until(lambda: not entered(self.box))
        return ran


def patiently(run: Callable[[], Ran], seconds: float = 120.0) -> Ran:
    """The host's own lock is one for the whole machine: another test may hold it for a while."""
    deadline = time.monotonic() + seconds
    while (ran := run()).code == 5 and "is working on it" in ran.people:
        assert time.monotonic() < deadline, ran.people
        time.sleep(1)
    return ran


def entered(box: Bed) -> list[str]:
    """Our shells in the container, and what carries them on the host: sudo hides their login."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0")
            if b"fleetstop" in words and (
                str(box.vmid).encode() in words or int(entry.name) in box.lab.host_pids(box.vmid)
            ):
                found.append(f"{entry.name} {words[0]!r}")
    return found


@pytest.fixture
def someone(lab: Lab) -> Iterator[Login]:
    with login() as who:
        yield who


@pytest.fixture
def rootless(box: Bed, someone: Login, tmp_path: Path) -> Rootless:
    """A login that sudo lets run `pct` and nothing else."""
    someone.allow(str(box.lab.pct), str(box.lab.nvidia_smi))
    return Rootless(box, someone, tmp_path)


# ------------------------------------------------------------------- sudo allows pct, no more


def test_polite_saves_by_one_int(rootless: Rootless) -> None:
    box = rootless.box
    job = box.start("--save-seconds", "1")
    ran = rootless.run("stop", box.name, "--graceful")
    assert ran.code == 0, ran.people
    assert ran.signals == [("INT", [job.pid])]
    assert ran.target["checkpoint"]["written_after_signal"] is True
    trainers = [each["host_pid"] for each in ran.target["family"] if each["role"] == "trainer"]
    assert trainers == [job.host_pid]
    assert len(box.saved()) == 1
    assert box.signals_seen(job) == 1
    assert (ran.connections, ran.pct_calls) == (1, 1)
    assert ran.target["cost"] == {"ssh_connections": 1, "pct_calls": 1}
    assert ran.target["findings"] == []
    assert box.lock_files() == []


def test_a_job_without_files_is_stopped_too(rootless: Rootless) -> None:
    box = rootless.box
    job = box.start("--save-seconds", "0.2")
    path = rootless.inventory()
    text = path.read_text()
    path.write_text("".join(x for x in text.splitlines(True) if "log:" not in x and "ck" not in x))
    ran = box.run("stop", box.name, "--graceful", inventory=path)
    assert ran.code == 0, ran.people
    assert (ran.signals, ran.pct_calls) == ([("INT", [job.pid])], 1)


def test_deaf_is_told_at_once_and_untouched(rootless: Rootless) -> None:
    box = rootless.box
    job = box.start(how="deaf")
    ran = rootless.run("stop", box.name, "--graceful")
    assert (ran.code, ran.target["verdict"], ran.signals) == (1, "deaf", []), ran.people
    assert "ignores it (SigIgn)" in ran.people
    assert lives(job)


def test_deaf_with_force_ends_and_says_what_was_lost(rootless: Rootless) -> None:
    box = rootless.box
    job = box.start(how="deaf")
    ran = rootless.run("stop", box.name, "--force")
    assert ran.code == 0, ran.people
    assert ran.signals == [("TERM", [job.pid])]
    assert any("without a save" in text for text in ran.target["findings"]), ran.target
    assert not lives(job)


def test_who_ignores_everything_is_killed_with_its_tree_and_nobody_else(
    rootless: Rootless,
) -> None:
    box = rootless.box
    decoys = box.lab.decoys(box.vmid)
    job = box.start("--ignore", "INT,TERM", "--workers", "2")
    ran = rootless.run("stop", box.name, "--force")
    assert ran.code == 0, ran.people
    assert [name for name, _ in ran.signals] == ["KILL"]
    assert not lives(job)
    assert {name for name, p in decoys.items() if not alive(p.pid, p.start)} == set()


def test_a_slow_save_is_held_for_and_whole(rootless: Rootless) -> None:
    """Its open file is seen from inside only; TERM after 2 s would cut the save."""
    box = rootless.box
    job = box.start("--save-seconds", "20", "--save-memory-fraction", "0.5", "--size-mb", "20")
    line = "INT/2 TERM/2 KILL:tree/5"
    ran = rootless.run("stop", box.name, "--force", "--ladder", line, deadline=90)
    assert ran.code == 0, ran.people
    assert ran.signals == [("INT", [job.pid])]
    held = {each["why"] for each in ran.events if each["event"] == "holding"}
    assert "saving" in held
    assert len(box.saved()) == 1
    assert box.signals_seen(job) == 1


def test_tee_gets_no_signal(rootless: Rootless) -> None:
    box = rootless.box
    job = box.start("--save-seconds", "1", how="tee")
    ran = rootless.run("stop", box.name, "--graceful")
    assert (ran.code, ran.signals) == (0, [("INT", [job.pid])]), ran.people
    assert len(box.saved()) == 1


def test_a_suspended_trainer_is_continued_and_saves(rootless: Rootless) -> None:
    box = rootless.box
    job = box.start("--save-seconds", "0.5")
    os.kill(job.process.pid, signal.SIGSTOP)
    ran = rootless.run("stop", box.name, "--graceful")
    assert (ran.code, ran.signals) == (0, [("INT", [job.pid])]), ran.people
    assert len(box.saved()) == 1


def test_ranks_in_one_burst(rootless: Rootless) -> None:
    box = rootless.box
    box.start("--ranks", "3", "--save-seconds", "1")
    ran = rootless.run("stop", box.name, "--graceful")
    assert ran.code == 0, ran.people
    assert [len(pids) for _, pids in ran.signals] == [3]
    assert len(box.saved()) == 3


def test_status_sees_files_and_gpus(rootless: Rootless) -> None:
    box = rootless.box
    job = box.start()
    ran = rootless.run("status", box.name)
    assert (ran.code, ran.target["verdict"]) == (0, "busy"), ran.people
    assert job.pid in [each["pid"] for each in ran.target["family"]]
    assert [each["index"] for each in ran.target["gpus"]] == [0]
    assert not [text for text in ran.target["findings"] if "could not" in text]
    assert ran.pct_calls == 1


def test_status_tells_old_code(rootless: Rootless) -> None:
    """Read in the container, which is entered for its open files anyway."""
    box = rootless.box
    box.start()
    for old in (False, True):
        ran = rootless.run("status", box.name)
        (told,) = [each["code"] for each in ran.events if each["event"] == "located"]
        assert told["old"] is old, told
        time.sleep(0.3)
        with (box.lab.rootfs(box.vmid) / "root/train.py").open("a") as file:
            file.write("# better\n")


def test_what_one_user_sent_root_does_not_repeat(rootless: Rootless) -> None:
    """A second INT would cut the save: the line of another user must count."""
    box = rootless.box
    job = box.start("--save-seconds", "8", "--save-memory-fraction", "0.8")
    first = box.popen("stop", box.name, "--graceful", inventory=rootless.inventory())
    until(lambda: box.signals_seen(job))
    first.process.send_signal(signal.SIGINT)
    assert box.finish(first, 20).code == 130
    place = Path(f"/run/lock/fleetstop.{box.vmid}")
    assert place.stat().st_uid == rootless.who.uid
    again = box.run("stop", box.name, "--graceful")
    assert (again.code, again.signals) == (0, []), again.people
    assert "watched_on" in again.names()
    assert len(box.saved()) == 1
    assert box.signals_seen(job) == 1


def test_what_root_sent_a_login_does_not_repeat(rootless: Rootless) -> None:
    box = rootless.box
    job = box.start("--save-seconds", "8", "--save-memory-fraction", "0.8")
    first = box.popen("stop", box.name, "--graceful")
    until(lambda: box.signals_seen(job))
    first.process.send_signal(signal.SIGINT)
    assert box.finish(first, 20).code == 130
    again = rootless.run("stop", box.name, "--graceful")
    assert (again.code, again.signals) == (0, []), again.people
    assert len(box.saved()) == 1
    assert box.signals_seen(job) == 1


def test_two_logins_lock_each_other_out(rootless: Rootless) -> None:
    box = rootless.box
    job = box.start("--save-seconds", "8")
    first = box.popen("stop", box.name, "--graceful", inventory=rootless.inventory())
    until(lambda: "saving" in box.log(job))
    with login() as other:
        other.allow(str(box.lab.pct), str(box.lab.nvidia_smi))
        second = Rootless(box, other, Path(tempfile.mkdtemp(dir=rootless.inventory().parent)))
        ran = box.finish(
            box.popen("stop", box.name, "--force", inventory=second.inventory()), alone=False
        )
        assert (ran.code, ran.signals) == (5, []), ran.people
        assert "is working on it" in ran.people
    assert box.finish(first, 60, alone=False).code == 0
    assert box.signals_seen(job) == 1


def test_a_frozen_container_is_told_and_not_entered(rootless: Rootless) -> None:
    box = rootless.box
    job = box.start()
    box.lab.freeze(box.vmid)
    ran = rootless.run("stop", box.name, "--force")
    assert (ran.code, ran.target["verdict"], ran.signals) == (4, "frozen", []), ran.people
    assert ran.pct_calls == 0
    box.lab.thaw(box.vmid)
    assert lives(job)


def test_a_plan_needs_the_same_and_changes_nothing(rootless: Rootless) -> None:
    box = rootless.box
    job = box.start()
    ran = rootless.run("stop", box.name, "--force", "-n")
    assert (ran.code, ran.target["result"]) == (0, "planned"), ran.people
    assert next((e["signal"], e["would"]) for e in ran.target["plan"]) == ("INT", "send")
    assert box.lock_files() == []
    assert box.signals_seen(job) == 0


def test_a_stopped_container_is_told(rootless: Rootless) -> None:
    box = rootless.box
    box.lab.stop(box.vmid)
    ran = rootless.run("stop", box.name)
    assert (ran.code, ran.target["result"]) == (0, "not_running"), ran.people
    box.lab.boot(box.vmid)


# ------------------------------------------------------------------------- other kinds of leave


def test_one_container_is_enough_of_a_line(rootless: Rootless) -> None:
    box = rootless.box
    pct = box.lab.pct
    rootless.who.allow(
        f"{pct} exec {box.vmid} -- *", f"{pct} status {box.vmid}", str(box.lab.nvidia_smi)
    )
    job = box.start("--save-seconds", "0.5")
    ran = rootless.run("stop", box.name, "--graceful")
    assert (ran.code, ran.signals) == (0, [("INT", [job.pid])]), ran.people


def test_where_sudo_allows_a_shell_all_is_as_with_root(rootless: Rootless) -> None:
    box = rootless.box
    rootless.who.allow("ALL", found_in=box.lab.pct.parent)
    job = box.start("--save-seconds", "0.5")
    path = rootless.inventory()
    text = path.read_text()
    path.write_text("".join(x for x in text.splitlines(True) if "log:" not in x and "ck" not in x))
    ran = box.run("stop", box.name, "--graceful", inventory=path)
    assert (ran.code, ran.signals) == (0, [("INT", [job.pid])]), ran.people
    assert ran.pct_calls == 0


def test_always_means_root_or_nothing(rootless: Rootless) -> None:
    box = rootless.box
    job = box.start()
    for words in (["status"], ["stop", "--force"]):
        ran = rootless.run(words[0], box.name, *words[1:], sudo="always")
        assert (ran.code, ran.target["result"]) == (4, "unreachable"), ran.people
        assert "root is needed" in ran.people
    assert lives(job)
    assert box.signals_seen(job) == 0


@pytest.mark.parametrize("sudo", ["never", "auto"])
def test_without_any_leave_all_masks_are_seen_and_nothing_is_sent(
    rootless: Rootless, sudo: str
) -> None:
    box = rootless.box
    rootless.who.allow(str(box.lab.nvidia_smi))
    job = box.start(how="deaf")
    ran = rootless.run("status", box.name, sudo=sudo)
    assert (ran.code, ran.target["verdict"]) == (0, "deaf"), ran.people
    (blind,) = [text for text in ran.target["findings"] if "open files" in text]
    assert str(job.pid) in blind
    assert "no root on lab1" in blind
    ran = rootless.run("stop", box.name, "--force", sudo=sudo)
    assert (ran.code, ran.signals) == (4, []), ran.people
    assert "without root" in ran.target["reason"]
    assert "sudoers" in (ran.target["hint"] or "")
    assert lives(job)
    assert box.signals_seen(job) == 0
    assert box.lock_files() == []


# ----------------------------------------------------------------- a plain host, one's own jobs

OWN = """\
import os, signal, sys, time
home = os.path.dirname(os.path.abspath(__file__))
def save(number, frame):
    open(home + "/saved", "a").write("once\\n")
    sys.exit(0)
signal.signal(signal.SIGINT, save)
open(home + "/up", "w").close()
while True:
    time.sleep(0.1)
"""


@pytest.fixture
def own(rootless: Rootless) -> Iterator[tuple[Path, subprocess.Popen[bytes]]]:
    """A job of the login's own, outside containers."""
    home = Path(tempfile.mkdtemp(prefix="fso-", dir="/tmp"))
    name = f"{rootless.who.name}.py"
    (home / name).write_text(OWN)
    home.chmod(0o755)
    os.chown(home, rootless.who.uid, -1)
    job = subprocess.Popen(
        ["/usr/bin/python3", str(home / name)],
        user=rootless.who.uid,
        group=pwd.getpwnam(rootless.who.name).pw_gid,
        extra_groups=[],
        start_new_session=True,
        stdin=subprocess.DEVNULL,
    )
    try:
        until((home / "up").exists)
        yield home, job
    finally:
        job.kill()
        job.wait()
        shutil.rmtree(home)


@pytest.mark.parametrize("sudo", ["never", "auto"])
def test_ones_own_job_needs_no_root(
    rootless: Rootless, own: tuple[Path, subprocess.Popen[bytes]], sudo: str
) -> None:
    home, job = own
    words = ["--script", f"{rootless.who.name}.py", "--signal", "INT", "--graceful"]
    ran = patiently(lambda: rootless.run("stop", "lab1", *words, sudo=sudo))
    assert (ran.code, ran.signals) == (0, [("INT", [job.pid])]), ran.people
    assert (home / "saved").read_text() == "once\n"
    assert ran.pct_calls == 0


def test_ones_own_old_code(rootless: Rootless, own: tuple[Path, subprocess.Popen[bytes]]) -> None:
    script = own[0] / f"{rootless.who.name}.py"
    words = ("status", "lab1", "--script", script.name)
    for old in (False, True):
        ran = rootless.run(*words, sudo="never")
        (told,) = [each["code"] for each in ran.events if each["event"] == "located"]
        assert (told["main"], told["old"]) == (str(script), old), told
        assert (ran.connections, ran.pct_calls) == (1, 0)
        time.sleep(0.3)
        with script.open("a") as file:
            file.write("# better\n")


def test_somebody_elses_job_is_seen_and_not_signalled(
    rootless: Rootless, own: tuple[Path, subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    """A line in the ledger for a kill that is not permitted would cost the job its only INT."""
    home, job = own
    (tmp_path / "brisk.yaml").write_text(
        "ladder:\n  - {signal: INT, to: trainers, wait: 5s}\nhold: {saving: 1s, stopping: 1s}\n"
    )
    script = f"{rootless.who.name}.py"
    with login() as other:
        stranger = Rootless(rootless.box, other, tmp_path)
        seen = stranger.run("status", "lab1", "--script", script, sudo="never")
        assert seen.code == 0, seen.people
        assert "open files and I/O" in seen.people
        words = ["--script", script, "-p", str(tmp_path / "brisk.yaml"), "--force"]
        ran = patiently(lambda: stranger.run("stop", "lab1", *words, sudo="never"))
        assert (ran.code, ran.signals) == (4, []), ran.people
        assert f"may not signal {job.pid}" in ran.people
    assert job.poll() is None
    words = ["--script", script, "--signal", "INT", "--graceful"]
    ran = patiently(lambda: rootless.run("stop", "lab1", *words, sudo="never"))
    assert (ran.code, ran.signals) == (0, [("INT", [job.pid])]), ran.people
    assert (home / "saved").read_text() == "once\n"


# ------------------------------------------------------- where the container cannot be entered


def test_with_no_pids_left_it_is_stopped_from_the_host(box: Bed, tmp_path: Path) -> None:
    job = box.start("--save-seconds", "0.5")
    no_forks(box)
    inventory = with_job(box, tmp_path, "match: {script: train.py}\n        stop_signal: INT")
    seen = box.run("status", box.name, inventory=inventory)
    assert (seen.code, seen.target["verdict"], seen.pct_calls) == (0, "busy", 0), seen.people
    ran = box.run("stop", box.name, "--graceful", inventory=inventory)
    assert (ran.code, ran.signals) == (0, [("INT", [job.pid])]), ran.people
    assert ran.pct_calls == 0
    assert len(box.saved()) == 1


def test_with_no_pids_left_its_files_are_seen_from_the_host_and_its_save_is_proven(
    box: Bed,
) -> None:
    job = box.start("--save-seconds", "0.5")
    no_forks(box)
    seen = box.run("status", box.name)
    assert (seen.code, seen.target["verdict"]) == (0, "busy"), seen.people
    said = "the container is not entered; its files are seen from the host"
    assert any(said in text for text in seen.target["findings"]), seen.target
    ran = box.run("stop", box.name, "--graceful", deadline=120)
    assert ran.signals == [("INT", [job.pid])], ran.people
    assert (ran.code, ran.target["result"]) == (0, "stopped"), ran.people
    found = ran.target["checkpoint"]
    assert (found["complete"], found["written_after_signal"]) == (True, True)
    assert any(said in text for text in ran.target["findings"]), ran.target
    assert ran.pct_calls == 1
    assert len(box.saved()) == 1
    assert box.signals_seen(job) == 1


def test_with_no_pids_left_a_login_without_root_is_told(rootless: Rootless) -> None:
    box = rootless.box
    job = box.start()
    no_forks(box)
    ran = rootless.run("status", box.name)
    assert (ran.code, ran.target["result"]) == (0, "running"), ran.people
    ran = rootless.run("stop", box.name, "--force")
    assert (ran.code, ran.signals) == (4, []), ran.people
    assert lives(job)
    assert box.lock_files() == []
    assert box.signals_seen(job) == 0


# allocates nothing once it is up: who does is stopped by the limit, or told ENOMEM
QUIET = """\
import os, signal, time
def leave(number, frame):
    if number == signal.SIGINT:
        os._exit(0)
signal.signal(signal.SIGINT, leave)
signal.signal(signal.SIGUSR1, leave)
os.kill(os.getpid(), signal.SIGUSR1)
while True:
    time.sleep(1000)
"""


def test_out_of_memory_it_is_stopped_from_the_host_within_bounds(box: Bed) -> None:
    """With the OOM killer off whoever allocates waits: an lxc-attach too, for good."""
    (box.lab.rootfs(box.vmid) / "root/train.py").write_text(QUIET)
    job = box.start("cd /root && exec setsid -f python3 train.py </dev/null", how="raw", trainers=0)
    with out_of_memory(box):
        seen = box.run("status", box.name, deadline=90)
        assert (seen.code, seen.target["result"]) == (0, "running"), seen.people
        assert any("seen from the host" in text for text in seen.target["findings"])
        assert lives(job)
        ran = box.run("stop", box.name, "--graceful", deadline=120)
        assert ran.signals == [("INT", [job.pid])], ran.people
        # it saves nothing, and that is seen
        assert (ran.code, ran.target["reason"].partition(":")[0]) == (6, "not_saved"), ran.people
        assert not lives(job)
        # an attempt to enter is given up after 20 s, and there is one for each command
        assert max(seen.seconds, ran.seconds) < 90


# -------------------------------------------------------------------------------- PGID 0 inside


def test_a_group_of_pgid_0_is_signalled_member_by_member(box: Bed) -> None:
    """Both jobs have PGID 0 inside and one real group outside, with the shell that started them.
    A kill of group 0, or of the real one, would reach the neighbour too."""
    text = (
        "cd /root; set -m; set +m; (nohup python3 -u train.py --save-seconds 0.5"
        " >/workspace/train.log 2>&1 & nohup python3 -u other.py >/dev/null 2>&1 &) </dev/null"
    )
    job = box.start(text, how="raw", trainers=1)
    (other,) = _others(box)
    inside = box.lab.exec(box.vmid, ["cut", "-d ", "-f5", f"/proc/{job.pid}/stat"])
    assert inside.stdout.strip() == "0"
    assert os.getpgid(job.host_pid) == os.getpgid(other.pid)
    ran = box.run("stop", box.name, "--force", "--ladder", "KILL:group/10")
    assert [pids for _, pids in ran.signals] == [[job.pid]], ran.people
    assert not lives(job)
    assert alive(other.pid, other.start)


def _others(box: Bed) -> list[ProcessId]:
    found = []
    for pid in box.lab.host_pids(box.vmid):
        if b"other.py" in words_of(pid):
            found.append(identify(pid))
    return [each for each in found if each is not None]
