"""Lost connections, killed clients, jobs outside containers: true words, and one signal only."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .bed import Bed, alive, lives, parent_of, running, until, with_jobs

pytestmark = pytest.mark.bed


def sessions(box: Bed) -> list[int]:
    """The sshd processes that carry this lab's connections."""
    server = box.lab.state.sshd
    assert server is not None
    found = []
    for entry in Path("/proc").iterdir():
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if entry.name.isdigit() and int(fields[1]) == server.pid:
            found.append(int(entry.name))
    return found


def test_a_lost_connection_after_the_signal_is_taken_up_again(box: Bed) -> None:
    job = box.start("--save-seconds", "4")
    before = set(sessions(box))
    running = box.popen("stop", box.name, "--graceful")
    until(lambda: "saving" in box.log(job))
    for pid in set(sessions(box)) - before:
        os.kill(pid, signal.SIGKILL)
    ran = box.finish(running, 30, alone=False)
    assert ran.code == 0, ran.people
    assert ran.signals == [("INT", [job.pid])]
    assert "reconnected" in ran.names()
    assert ran.connections == 2
    assert not lives(job)
    assert len(box.saved()) == 1
    again = box.run("stop", box.name)
    assert again.code == 0, again.people
    assert again.target["result"] == "not_running"


def test_a_killed_client_leaves_the_job_its_chance(box: Bed) -> None:
    """The ledger line stands: who comes next repeats nothing. On this machine it is known that the
    client is dead; another would be told who holds the lock, and for how long."""
    job = box.start("--save-seconds", "40", "--size-mb", "4")
    running = box.popen("stop", box.name, "--graceful")
    until(lambda: "saving" in box.log(job))
    running.process.kill()
    running.process.communicate()
    after = box.run("stop", box.name, "--graceful", deadline=90)
    assert after.code == 0, after.people
    assert "its process here is dead" in after.people
    assert after.signals == []
    assert "watched_on" in after.names()
    assert len(box.saved()) == 1
    assert box.signals_seen(job) == 1


def test_a_job_outside_containers(box: Bed, tmp_path: Path) -> None:
    script = tmp_path / f"hosttrain_{box.vmid}.py"
    script.write_text(
        "import time\ntry:\n    print('up', flush=True)\n    time.sleep(600)\n"
        "except KeyboardInterrupt:\n    open('saved', 'w').write('x')\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-u", str(script)], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "up\n"
        text = box.lab.inventory.read_text()
        inventory = tmp_path / "fleet.yaml"
        inventory.write_text(
            text[: text.index("containers:")]
            + f"    jobs: {{train: {{match: {{script: {script.name}}}}}}}\n"
        )
        shown = box.run("status", "lab1", inventory=inventory)
        assert shown.target["result"] == "running", shown.people
        # our own test process is its parent: it ends the chain and is never family
        assert [each["role"] for each in shown.target["family"]] == ["trainer"]
        ran = box.run("stop", "lab1", "--graceful", inventory=inventory)
        # a zombie until we reap it: dead all the same
        assert ran.code == 0, ran.people
        assert ran.signals == [("INT", [child.pid])]
        assert (tmp_path / "saved").exists()
        assert ran.pct_calls == 0
    finally:
        child.kill()
        child.wait()
        if child.stdout is not None:
            child.stdout.close()


def test_a_container_job_is_not_seen_from_the_host_target(box: Bed, tmp_path: Path) -> None:
    job = box.start()
    text = box.lab.inventory.read_text()
    inventory = tmp_path / "fleet.yaml"
    inventory.write_text(
        text[: text.index("containers:")] + "    jobs: {train: {match: {script: train.py}}}\n"
    )
    ran = box.run("stop", "lab1", "--force", inventory=inventory)
    assert ran.target["result"] == "not_running", ran.people
    assert lives(job)


def test_status_of_a_place_without_a_job_lists_what_holds_a_gpu(box: Bed) -> None:
    job = box.start()
    box.start("setsid -f sleep 300 >/dev/null 2>&1 </dev/null", how="raw", trainers=0)
    ran = box.run("status", f"lab1/{box.vmid}")
    assert ran.code == 0, ran.people
    by_address = [each for each in ran.events if each["event"] == "located"]
    assert len(by_address) == 1
    assert job.pid in {each["pid"] for each in by_address[0]["family"]}


def test_frozen_in_the_middle_is_told_and_nothing_more_is_sent(box: Bed) -> None:
    job = box.start("--save-seconds", "6")
    running = box.popen("stop", box.name, "--graceful")
    until(lambda: "saving" in box.log(job))
    box.lab.freeze(box.vmid)
    try:
        ran = box.finish(running, 60)
    finally:
        box.lab.thaw(box.vmid)
    assert ran.code == 4, ran.people
    assert ran.target["verdict"] in ("frozen", "unknown")
    assert ran.signals == [("INT", [job.pid])]
    until(lambda: not lives(job))
    assert len(box.saved()) == 1


def test_a_worker_that_stays_is_unclean_and_named(box: Bed) -> None:
    """A ladder without a tree rung sweeps nothing: 15 s, then 6 with its name."""
    box.start("--workers", "1", "--worker-habit", "stuck", "--save-seconds", "0.3")
    ran = box.run("stop", box.name, "--force", "--ladder", "TERM/5", deadline=90)
    assert ran.code == 6, ran.people
    worker = next(each for each in ran.target["family"] if each["role"] == "worker")
    assert str(worker["pid"]) in ran.target["reason"]
    assert alive(worker["host_pid"], worker["start"])
    assert [name for name, _ in ran.signals] == ["TERM"]


def test_gpu_memory_that_stays_is_unclean(box: Bed) -> None:
    box.start("--save-seconds", "0.3", "--gpus", "3")
    playbook = box.lab.root / f"quick-{box.vmid}.yaml"
    playbook.write_text(
        "lossless: true\nladder: [{signal: INT, to: trainers, wait: 1m}]\n"
        "verify: {checkpoint: new, gpus: released, within: 3s}\n"
    )
    box.lab.set_gpus(release_delay_s=600)
    try:
        ran = box.run("stop", box.name, "-p", str(playbook))
    finally:
        box.lab.set_gpus(release_delay_s=0.3)
    assert ran.code == 6, ran.people
    assert "gpus_held" in ran.target["reason"]


def test_nvidia_smi_that_fails_is_unknown_never_free(box: Bed) -> None:
    box.start("--save-seconds", "0.3")
    box.lab.set_gpus(fail="driver_mismatch")
    try:
        ran = box.run("stop", box.name, "--graceful")
    finally:
        box.lab.set_gpus(fail=None)
    assert ran.code == 6, ran.people
    assert "gpus_unseen" in ran.target["reason"]


def test_a_loop_that_starts_it_again_is_respawned(box: Bed) -> None:
    text = (
        "setsid -f bash -c 'cd /root; while true; do python3 -u train.py --save-seconds 0.2;"
        " done' >/workspace/train.log 2>&1 </dev/null"
    )
    box.start(text, how="raw", trainers=1)
    ran = box.run("stop", box.name, "--graceful", deadline=90)
    assert ran.code == 6, ran.people
    assert "respawned: the job runs again as" in ran.target["reason"]
    assert len(ran.signals) == 1


def test_a_dead_leader_with_a_living_thread_still_runs(box: Bed) -> None:
    """Its cmdline is empty and its state Z: neither not running nor gone."""
    (box.lab.rootfs(box.vmid) / "root/headless.py").write_text(
        "import ctypes, threading, time\n"
        "stream = open('/workspace/last.pt', 'wb', buffering=0)\n"
        "def save():\n"
        "    while stream.tell() < 300:\n"
        "        stream.write(b'x')\n"
        "        time.sleep(0.05)\n"
        "    stream.close()\n"
        "    time.sleep(600)\n"
        "threading.Thread(target=save).start()\n"
        "ctypes.CDLL(None).pthread_exit(None)\n"
    )
    text = "setsid -f python3 /root/headless.py >/dev/null 2>&1 </dev/null"
    job = box.start(text, how="raw", trainers=0)
    until(lambda: "Z" in Path(f"/proc/{job.process.pid}/stat").read_text().split(")")[-1][:3])
    shown = box.run("status", box.name, "--script", "headless.py")
    assert shown.target["result"] == "running", shown.people
    # its open files are seen through the thread that lives: it saves, and the KILL waits for that
    playbook = box.lab.root / f"short-{box.vmid}.yaml"
    playbook.write_text(
        "ladder: [{signal: KILL, to: tree, wait: 5s}]\nhold: {saving: 9s, stopping: 2s}\n"
    )
    ran = box.run("stop", box.name, "--script", "headless.py", "--force", "-p", str(playbook))
    assert ran.code == 0, ran.people
    assert any(each["event"] == "holding" and each["why"] == "saving" for each in ran.events)
    assert [name for name, _ in ran.signals] == ["KILL"]
    assert (box.lab.rootfs(box.vmid) / "workspace/last.pt").stat().st_size == 300


def test_two_jobs_that_mean_the_same_process_are_one_signal(box: Bed, tmp_path: Path) -> None:
    """A second INT, by the second job of the same run, would cut the save."""
    job = box.start("--save-seconds", "3")
    same = "stop_signal: INT, checkpoints: /workspace/checkpoints"
    inventory = with_jobs(
        box,
        tmp_path,
        f"      one: {{match: {{script: train.py}}, {same}}}\n"
        f"      two: {{match: {{pgrep: 'python3.*train[.]py'}}, {same}}}\n",
    )
    ran = box.run("stop", box.name, "--all-jobs", "--graceful", inventory=inventory)
    assert ran.code == 0, ran.people
    assert box.signals_seen(job) == 1
    assert len(box.saved()) == 1


def test_a_lossy_end_after_a_periodic_save_says_what_is_lost(box: Bed) -> None:
    """It shrugs at INT, saves by itself meanwhile, and ends by TERM: that was no saving."""
    job = box.start("--shrug", "--save-every", "2", "--save-seconds", "0.3")
    ran = box.run("stop", box.name, "--force", "--ladder", "INT/5 TERM/5")
    assert ran.code == 0, ran.people
    assert [name for name, _ in ran.signals] == ["INT", "TERM"]
    assert ran.target["checkpoint"]["written_after_signal"] is False
    assert any("without a save" in text for text in ran.target["findings"])
    assert not lives(job)


def test_a_save_finished_before_the_second_command_is_not_called_lost(box: Bed) -> None:
    (box.lab.rootfs(box.vmid) / "root/tidy.py").write_text(
        "import time, zipfile\n"
        "print('up', flush=True)\n"
        "try:\n    time.sleep(600)\n"
        "except KeyboardInterrupt:\n"
        "    with zipfile.ZipFile('/workspace/checkpoints/step_1.pt', 'w') as f:\n"
        "        f.writestr('a', 'x' * 1000)\n"
        "    print('saved', flush=True)\n"
        "    time.sleep(8)\n"
    )
    inventory = with_jobs(
        box,
        box.lab.root,
        "      train: {match: {script: tidy.py}, stop_signal: INT,"
        " checkpoints: /workspace/checkpoints, max_loss: 0s}\n",
    )
    box.checkpoints.mkdir(parents=True, exist_ok=True)
    text = "setsid -f python3 -u /root/tidy.py >/workspace/train.log 2>&1 </dev/null"
    job = box.start(text, how="raw", trainers=0)
    until(lambda: "up" in box.log(job))
    first = box.popen("stop", box.name, "--graceful", inventory=inventory)
    until(lambda: "saved" in box.log(job))
    time.sleep(0.3)
    first.process.send_signal(signal.SIGINT)
    assert box.finish(first, 20).code == 130
    again = box.run("stop", box.name, "--graceful", inventory=inventory)
    assert again.code == 0, again.people
    assert again.signals == []
    assert again.target["checkpoint"]["written_after_signal"] is True


def test_checkpoints_behind_a_link_are_guarded(box: Bed) -> None:
    """The open file has the real name: TERM into the periodic save would cost latest.pt."""
    job = box.start("--save-every", "3", "--in-place", "--save-seconds", "3", how="deaf")
    workspace = box.lab.rootfs(box.vmid) / "workspace"
    inventory = with_jobs(
        box,
        box.lab.root,
        "      train: {match: {script: train.py}, stop_signal: INT,"
        " checkpoints: /workspace/link}\n",
    )
    (workspace / "link").symlink_to("checkpoints")
    until(lambda: box.log(job).count("saving") >= 1, 15)
    ran = box.run("stop", box.name, "--force", inventory=inventory)
    assert ran.code == 0, ran.people
    assert box.saved() == ["latest.pt"]


def test_what_the_wrapper_starts_after_the_trainer_is_spared(box: Bed) -> None:
    """`train.py; nohup upload.sh &`: the upload is no child of the job."""
    (box.lab.rootfs(box.vmid) / "root/upload.sh").write_text("sleep 600\n")
    text = (
        "setsid -f bash -c 'cd /root; python3 -u train.py --save-seconds 0.3 --workers 1"
        " --worker-habit stuck >/workspace/train.log 2>&1; nohup bash upload.sh &'"
        " >/dev/null 2>&1 </dev/null"
    )
    box.start(text, how="raw", trainers=1)
    ran = box.run("stop", box.name, "--force", "--ladder", "TERM/5 KILL:tree/5", deadline=90)
    assert ran.code in (0, 6), ran.people
    assert running(box, "upload.sh"), ran.people


def test_a_ranks_helper_that_inherits_its_rank_is_no_trainer(box: Bed) -> None:
    (box.lab.rootfs(box.vmid) / "root/helped.py").write_text(
        "import subprocess, sys, time\n"
        "gpu = open('/dev/nvidia0')\n"
        "code = 'import time; gpu = open(\"/dev/nvidia0\"); time.sleep(600)'\n"
        "helper = subprocess.Popen([sys.executable, '-c', code])\n"
        "print('up', flush=True)\n"
        "try:\n    time.sleep(600)\n"
        "except KeyboardInterrupt:\n    helper.terminate()\n"
    )
    text = (
        "setsid -f env RANK=0 LOCAL_RANK=0 python3 -u /root/helped.py"
        " >/workspace/train.log 2>&1 </dev/null"
    )
    job = box.start(text, how="raw", trainers=0)
    until(lambda: "up" in box.log(job))
    ran = box.run("stop", box.name, "--script", "helped.py", "--graceful")
    roles = [each["role"] for each in ran.target["family"]]
    assert sorted(roles) == ["trainer", "worker"], ran.people
    assert [len(pids) for _, pids in ran.signals] == [1]
    assert ran.code == 0, ran.people


def test_a_mistyped_script_is_refused_while_something_holds_a_gpu(box: Bed) -> None:
    job = box.start()
    ran = box.run("stop", box.name, "--script", "tran.py", "--force")
    assert ran.code == 5, ran.people
    assert f"{job.pid} python3" in ran.target["reason"]
    assert lives(job)
    assert box.run("stop", box.name, "--pid", "77777").code == 5


FORKS = """\
import os, sys, time
gpu = os.open("/dev/nvidia0", os.O_RDWR)
for _ in range(2):
    if os.fork() == 0:
        time.sleep(600)
if sys.argv[1] == "stays":
    time.sleep(600)
"""


def forked(box: Bed, habit: str) -> bool:
    """Both forks are there, with their parent or without it, as the habit wants."""
    found = running(box, f"engine.py\0{habit}")
    if habit == "stays":
        return len(found) == 3
    return len(found) == 2 and {parent_of(pid) for pid in found}.isdisjoint(found)


def test_who_holds_a_gpu_is_told_where_nothing_matches_forks_of_the_dead_too(box: Bed) -> None:
    """Workers under a living parent are told as one, those that lost theirs each by itself."""
    (box.lab.rootfs(box.vmid) / "root/engine.py").write_text(FORKS)
    for habit, many in (("stays", 1), ("leaves", 2)):
        line = f"python3 /root/engine.py {habit} >/dev/null 2>&1 </dev/null"
        box.start(f"setsid -f {line}", how="raw", trainers=0)
        until(lambda habit=habit: forked(box, habit))  # type: ignore[misc]
        ran = box.run("stop", box.name, "--force")
        assert (ran.code, ran.target["result"], ran.signals) == (0, "not_running", []), ran.people
        assert ran.target["reason"].count(f"engine.py {habit}") == many, ran.target["reason"]
        assert "holds a GPU here" in ran.target["reason"]


def test_a_checkpoint_directory_that_is_not_there_is_told_before(box: Bed) -> None:
    box.start("--save-seconds", "0.2")
    inventory = with_jobs(
        box,
        box.lab.root,
        "      train: {match: {script: train.py}, stop_signal: INT,"
        " checkpoints: /workspace/ckpt}\n",
    )
    shown = box.run("status", box.name, inventory=inventory)
    assert any("/workspace/ckpt does not exist" in each for each in shown.target["findings"])
    ran = box.run("stop", box.name, "--graceful", "-n", inventory=inventory)
    assert any("/workspace/ckpt does not exist" in each for each in ran.target["findings"])


def shell(box: Bed, text: str) -> subprocess.CompletedProcess[str]:
    """As typed: `"$0"` is fleetstop's Python, the inventory is in the environment."""
    return subprocess.run(
        ["/bin/bash", "-c", text, sys.executable],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
        env={**os.environ, "FLEETSTOP_INVENTORY": str(box.lab.inventory)},
    )


def recorded(box: Bed) -> list[dict[str, object]]:
    """The reports of this container's stops, as the history has them."""
    place = Path(os.environ["XDG_STATE_HOME"]) / "fleetstop/runs"
    found = [json.loads(each.read_text()) for each in sorted(place.glob("*.json"))]
    reports = [each["report"] for each in found if each["command"] == "stop"]
    return [each for each in reports if each["targets"][0]["target"].startswith(box.name)]


def test_a_full_disk_behind_stdout_hinders_no_stop_and_is_no_success(box: Bed) -> None:
    job = box.start("--save-seconds", "1")
    done = shell(box, f'"$0" -m fleetstop stop {box.name} --graceful --json >/dev/full')
    assert done.returncode == 70, done.stderr
    assert "not all of the output could be written: No space left on device" in done.stderr
    assert "stopped" in done.stderr
    assert not lives(job)
    assert (box.signals_seen(job), len(box.saved())) == (1, 1)
    (report,) = recorded(box)
    assert report["exit_code"] == 0  # what became of the job
    seen = shell(box, f'"$0" -m fleetstop status {box.name} >/dev/full')
    assert seen.returncode == 70, seen.stderr


def test_a_reader_who_leaves_in_the_middle_aborts_no_stop(box: Bed) -> None:
    job = box.start("--save-seconds", "3", "--size-mb", "1")
    text = f'"$0" -m fleetstop stop {box.name} --graceful | head -1; echo "${{PIPESTATUS[0]}}"'
    done = shell(box, text)
    first, code = done.stdout.splitlines()
    assert box.name in first
    assert code == "0", done.stderr
    assert "Traceback" not in done.stderr
    assert not lives(job)
    assert (box.signals_seen(job), len(box.saved())) == (1, 1)
    (report,) = recorded(box)
    assert report["exit_code"] == 0
