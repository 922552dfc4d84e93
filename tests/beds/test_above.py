"""What stands above a trainer: wrappers, loops, launchers, supervisors; and family by birth."""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from fleetstop.lab import Started
from fleetstop.lab.systemd import SYSTEMD

from .bed import Bed, Ran, alive, running, until, with_jobs

pytestmark = pytest.mark.bed


def root(box: Bed) -> Path:
    return box.lab.rootfs(box.vmid) / "root"


def detached(text: str, log: str = "/workspace/train.log") -> str:
    return f"cd /root; setsid -f {text} >{log} 2>&1 </dev/null"


def jobs(box: Bed, text: str, name: str = "above") -> Path:
    """An inventory in which this container has these jobs."""
    return with_jobs(box, box.lab.root, text, f"{name}-{box.vmid}.yaml")


def one_job(box: Bed, more: str = "", script: str = "train.py") -> Path:
    same = "stop_signal: INT, checkpoints: /workspace/checkpoints"
    return jobs(box, f"      train: {{match: {{script: {script}}}, {same}{more}}}\n")


def by_name(ran: Ran) -> dict[str, dict[str, Any]]:
    return {each["job"]: each for each in ran.report["targets"]}


# name -> how the trainer is started; {} is `python3 -u /root/NAME.py --checkpoints …`
WRAPPERS = {
    "timeout": "timeout 600 {}",
    "timeout_int": "timeout -s INT 600 {}",
    "timeout_k": "timeout -k 1 600 {}",
    "time": "/usr/bin/time -v {}",
    "stdbuf": "stdbuf -oL {}",
    "script": "script -qec '{}' /dev/null",
    "setpriv": "setpriv --no-new-privs {}",
    "run": "python3 /root/start.py {}",
    "xargs": "xargs -a /root/words {}",
    "flock": "flock /tmp/lock {}",
    "nice": "nice -n 1 {}",
    "shim": "/root/shim.py {args}",
    "shell": "bash -c '{}; echo over'",
    **(
        {"uv": "/root/uv run --no-project --offline -p /usr/bin/python3 {}"}
        if shutil.which("uv")
        else {}
    ),
}


def test_thirteen_wrappers_whose_trainer_saves(box: Bed) -> None:
    """INT to the trainer alone: each saves, and its wrapper leaves by itself."""
    home, text, started = root(box), "", {}
    source = (home / "train.py").read_text()
    (home / "start.py").write_text("import subprocess, sys\nsubprocess.run(sys.argv[1:])\n")
    (home / "words").write_text("\n")
    if "uv" in WRAPPERS:
        shutil.copy(shutil.which("uv") or "", home / "uv")
    for name, form in WRAPPERS.items():
        args = f"--save-seconds 1 --checkpoints /workspace/ck/{name} --gpus 0"
        script = home / f"{name}.py"
        script.write_text(("#!/usr/bin/env -S python3 -u\n" if name == "shim" else "") + source)
        script.chmod(0o755)
        line = form.format(f"python3 -u /root/{name}.py {args}", args=args)
        started[name] = box.start(
            detached(line, f"/workspace/{name}.log"), how="raw", trainers=1, seconds=60,
            log=f"/workspace/{name}.log",
        )  # fmt: skip
        text += (
            f"      {name}: {{match: {{script: {name}.py}}, stop_signal: INT,"
            f" checkpoints: /workspace/ck/{name}}}\n"
        )
    going = box.popen("stop", box.name, "--all-jobs", "--graceful", inventory=jobs(box, text))
    ran = box.finish(going, 240, alone=False)
    found = by_name(ran)
    told = {name: (found[name]["result"], found[name]["reason"]) for name in WRAPPERS}
    assert told == dict.fromkeys(WRAPPERS, ("stopped", None)), ran.people
    for name, job in started.items():
        assert [each["signal"] for each in found[name]["signals"]] == ["INT"]
        assert found[name]["signals"][0]["pids"] == [job.pid]
        assert box.signals_seen(job) == 1, name
        assert found[name]["checkpoint"]["written_after_signal"] is True
        for member in found[name]["family"]:
            assert not alive(member["host_pid"], member["start"]), name
    assert ran.code == 0
    assert not running(box, "start.py")


RANKS = """\
import os, time, zipfile
rank = int(os.environ["RANK"])
gpu = open(f"/dev/nvidia{rank}")
print("up", rank, flush=True)
try:
    while True:
        time.sleep(0.2)
except KeyboardInterrupt:
    print("rank", rank, "KeyboardInterrupt", flush=True)
    if rank:
        raise
    at = "/workspace/checkpoints/step_1.pt"
    with zipfile.ZipFile(at + ".tmp", "w") as file:
        for part in range(40):
            file.writestr(str(part), b"x" * 100_000)
            time.sleep(0.1)
    os.rename(at + ".tmp", at)
    print("saved", flush=True)
"""


def four_ranks(box: Bed) -> Started:
    """The real torchrun. torch 1.13 under Python 3.11 needs -r and -t (its enum has no zero)."""
    (root(box) / "ranks.py").write_text(RANKS)
    box.checkpoints.mkdir(parents=True, exist_ok=True)
    text = (
        "/usr/bin/python3 -u -m torch.distributed.run --nproc_per_node 4 --monitor_interval 1"
        f" --master_port {random.randrange(20_000, 60_000)} -r 1 -t 1 --log_dir /workspace/tr"
        " /root/ranks.py"
    )
    job = box.start(detached(text), how="raw", trainers=0)
    until(lambda: box.log(job).count("]:up") >= 4, 60)
    return job


needs_torch = pytest.mark.skipif(
    not Path("/usr/lib/python3/dist-packages/torch/distributed/run.py").exists(),
    reason="python3-torch is not installed",
)


@needs_torch
def test_torchrun_only_rank_0_saves_is_one_signal_to_the_agent(box: Bed) -> None:
    """The wrong choice, INT to each rank, lets torchrun TERM rank 0 in its save."""
    four_ranks(box)
    inventory = one_job(box, ", ranks: rank0_saves", "ranks.py")
    shown = box.run("status", box.name, inventory=inventory)
    roles = [each["role"] for each in shown.target["family"]]
    assert sorted(roles) == ["launcher", *["trainer"] * 4], shown.people
    assert [each["kind"] for each in shown.target["above"]] == ["launcher"]
    planned = box.run("stop", box.name, "--graceful", "-n", inventory=inventory)
    agent = next(m["pid"] for m in shown.target["family"] if m["role"] == "launcher")
    assert planned.target["plan"][0]["pids"] == [agent]
    ran = box.run("stop", box.name, "--graceful", inventory=inventory, deadline=120)
    assert ran.code == 0, ran.people
    assert ran.signals == [("INT", [agent])]
    assert box.saved() == ["step_1.pt"]
    assert any("KILLs its ranks 30 s later" in each for each in ran.target["findings"])
    logs = (box.lab.rootfs(box.vmid) / "workspace/tr").rglob("stdout.log")
    assert sum(each.read_text().count("KeyboardInterrupt\n") for each in logs) == 4


@needs_torch
def test_torchrun_unsaid_signals_the_leaves_and_says_what_is_not_promised(box: Bed) -> None:
    """What it says comes true here: rank 0 is ended in its save, and that is told."""
    four_ranks(box)
    ran = box.run(
        "stop", box.name, "--graceful", inventory=one_job(box, "", "ranks.py"), deadline=120
    )
    assert [len(pids) for _, pids in ran.signals] == [4], ran.people
    assert any("not promised" in each for each in ran.target["findings"])
    assert "TERMs the other ranks as soon as one exits non-zero" in " ".join(ran.people.split())
    assert ran.code == 6, ran.people
    assert box.saved() == []


LOOPS = [
    ("bash", "while true; do python3 -u train.py --save-seconds 0.2; sleep 1; done", "while true"),
    ("dash", "while :; do python3 -u train.py --save-seconds 0.2; sleep 1; done", "while :"),
    ("bash", "until python3 -u train.py --no-save; do sleep 1; done", "until python3"),
]


@pytest.mark.parametrize(("shell", "text", "head"), LOOPS)
def test_a_loop_is_named_before_and_after(box: Bed, shell: str, text: str, head: str) -> None:
    """The second one's trainer leaves by KeyboardInterrupt's own status, so `until` goes on."""
    if head.startswith("until"):
        (root(box) / "train.py").write_text(
            "import time\nprint('up', flush=True)\ntime.sleep(600)\n"
        )
    (root(box) / "again.sh").write_text(f"cd /root\n{text}\n")
    job = box.start(detached(f"{shell} /root/again.sh"), how="raw", trainers=0)
    until(lambda: running(box, "train.py"))
    until(lambda: "up" in box.log(job) or "step" in box.log(job))
    shown = box.run("status", box.name)
    (loop,) = [each for each in shown.target["above"] if each["kind"] == "loop"]
    assert head in loop["will"], shown.people
    assert f"({head}" in " ".join(shown.people.split())
    ran = box.run("stop", box.name, "--graceful", deadline=120)
    assert ran.code == 6, ran.people
    assert ran.target["verdict"] == "respawned"
    assert "respawned: the job runs again as" in ran.target["reason"]
    assert "again.sh starts it again" in ran.target["reason"]
    assert len(ran.signals) == 1


WAITS = """\
trap 'kill -TERM $job' INT TERM
cd /root
python3 -u train.py --save-seconds 0.3 &
job=$!
wait $job
wait $job
"""


@pytest.mark.parametrize("shell", ["bash", "dash"])
def test_a_script_that_waits_for_its_background_job(box: Bed, shell: str) -> None:
    """The trainer is deaf to INT though the script traps it, and what the script would hand on is
    TERM, which ends it unsaved: so the script gets nothing."""
    (root(box) / "waits.sh").write_text(WAITS)
    job = box.start(detached(f"{shell} /root/waits.sh"), how="raw", trainers=1, seconds=60)
    shown = box.run("status", box.name)
    roles = {each["role"]: each["pid"] for each in shown.target["family"]}
    assert (roles["trainer"], "wrapper" in roles) == (job.pid, True), shown.people
    assert shown.target["verdict"] == "deaf"
    ran = box.run("stop", box.name, "--graceful")
    assert (ran.code, ran.signals) == (1, []), ran.people
    assert alive(job.process.pid, job.process.start)
    ran = box.run("stop", box.name, "--force")
    assert (ran.code, ran.signals) == (0, [("TERM", [job.pid])]), ran.people
    assert not running(box, "waits.sh")


def test_what_the_wrapper_alone_is_sent_ends_no_trainer(box: Bed) -> None:
    """It dies at once, and is not taken for the job; the trainer keeps its one signal."""
    job = box.start("--save-seconds", "0.3")
    ran = box.run("stop", box.name, "--force", "--ladder", "TERM:wrapper/2")
    ((name, pids),) = ran.signals
    assert (ran.code, ran.target["result"], name) == (1, "still_running", "TERM"), ran.people
    (wrapper,) = [each for each in ran.target["family"] if each["role"] == "wrapper"]
    assert (pids, wrapper["verdict"]) == ([wrapper["pid"]], "gone")
    assert (alive(job.process.pid, job.process.start), box.signals_seen(job)) == (True, 0)
    ran = box.run("stop", box.name, "--graceful")
    assert (ran.code, ran.signals) == (0, [("INT", [job.pid])]), ran.people
    assert len(box.saved()) == 1


@pytest.mark.parametrize(("shell", "code"), [("bash", 6), ("dash", 0)])
def test_ctrl_c_to_the_group_ends_the_loop_in_one_shell_only(
    box: Bed, shell: str, code: int
) -> None:
    """bash goes on where its child has handled it, whatever its status; dash dies of it."""
    line = "while true; do python3 -u train.py --save-seconds 0.3; done"
    (root(box) / "again.sh").write_text(f"cd /root\n{line}\n")
    job = box.start(detached(f"{shell} /root/again.sh"), how="raw", trainers=1, seconds=60)
    ran = box.run("stop", box.name, "--force", "--ladder", "INT:group/8", deadline=120)
    assert ran.code == code, ran.people
    assert ran.target["verdict"] == ("respawned" if code else "gone")
    ((name, pids),) = ran.signals
    assert (name, job.pid in pids, len(pids)) == ("INT", True, 2)
    assert box.signals_seen(job) == 1
    assert len(box.saved()) == 1


def test_between_two_lives_of_a_loop_is_unclean_and_status_says_it(box: Bed) -> None:
    (root(box) / "train.py").write_text("print('up', flush=True)\n")
    text = "while true; do python3 train.py; sleep 300; done"
    (root(box) / "again.sh").write_text(f"cd /root\n{text}\n")
    job = box.start(detached("bash /root/again.sh"), how="raw", trainers=0)
    until(lambda: "up" in box.log(job) and not running(box, "train.py"))
    shown = box.run("status", box.name)
    assert "between two lives" in (shown.target["reason"] or ""), shown.people
    ran = box.run("stop", box.name, "--graceful")
    assert ran.code == 6, ran.people
    assert ran.target["reason"].startswith("between_lives:")
    assert "again.sh" in ran.target["reason"]


def test_a_wrapper_that_outlives_is_left_alone(box: Bed) -> None:
    text = "bash -c 'python3 -u train.py --save-seconds 0.2; sleep 300'"
    box.start(detached(text), how="raw", trainers=1)
    ran = box.run("stop", box.name, "--graceful", inventory=one_job(box, ", wrapper: outlives"))
    assert ran.code == 0, ran.people
    assert running(box, "sleep\x00300")
    text = "bash -c 'python3 -u train.py --save-seconds 0.2; sleep 301; true'"
    box.start(detached(text), how="raw", trainers=1)
    ran = box.run("stop", box.name, "--graceful", inventory=one_job(box), deadline=120)
    assert ran.code == 6, ran.people
    assert "wrapper" in ran.target["reason"]


@pytest.mark.skipif(shutil.which("supervisord") is None, reason="supervisor is not installed")
def test_supervisord_that_starts_it_again(box: Bed) -> None:
    place = root(box) / "sv"
    place.mkdir()
    (place / "supervisord.conf").write_text(
        "[supervisord]\nnodaemon=true\nlogfile=/dev/null\nlogfile_maxbytes=0\n"
        "pidfile=/root/sv/pid\n[include]\nfiles = conf.d/*.conf\n"
    )
    (place / "conf.d").mkdir()
    (place / "conf.d/train.conf").write_text(
        "[program:train]\ncommand=/usr/bin/python3 -u /root/train.py --save-seconds 0.3\n"
        "autorestart=true\nstdout_logfile=/workspace/train.log\nredirect_stderr=true\n"
    )
    text = detached("supervisord -n -c /root/sv/supervisord.conf", "/dev/null")
    box.start(text, how="raw", trainers=1, seconds=60)
    shown = box.run("status", box.name)
    (over,) = shown.target["above"]
    assert (over["kind"], over["again"]) == ("supervisord", "always"), shown.people
    assert "train (autorestart=true)" in over["cmd"]
    ran = box.run("stop", box.name, "--graceful", deadline=120)
    assert ran.code == 6, ran.people
    assert ran.target["verdict"] == "respawned"
    assert "supervisord train (autorestart=true) starts it again" in ran.target["reason"]
    assert len(ran.signals) == 1


@pytest.mark.skipif(shutil.which("supervisord") is None, reason="supervisor is not installed")
def test_supervisord_that_leaves_it_ended_is_clean(box: Bed) -> None:
    (root(box) / "sv.conf").write_text(
        "[supervisord]\nnodaemon=true\nlogfile=/dev/null\nlogfile_maxbytes=0\npidfile=/tmp/sv.pid\n"
        "[program:train]\ncommand=/usr/bin/python3 -u /root/train.py --save-seconds 0.3\n"
        "autorestart=false\nstdout_logfile=/workspace/train.log\nredirect_stderr=true\n"
    )
    text = detached("supervisord -n -c /root/sv.conf", "/dev/null")
    box.start(text, how="raw", trainers=1, seconds=60)
    ran = box.run("stop", box.name, "--graceful")
    assert ran.code == 0, ran.people
    assert running(box, "supervisord")


UNIT = """\
[Service]
ExecStart=/usr/bin/python3 -u /root/train.py --save-seconds 0.3
Restart={}
RestartSec=2
KillSignal=SIGINT
StandardOutput=file:/workspace/train.log
StandardError=file:/workspace/train.log
"""


@pytest.mark.skipif(not SYSTEMD.exists(), reason="systemd is not installed")
def test_a_systemd_unit_is_read_and_waited_for(box: Bed) -> None:
    """The real systemd as the container's init; the unit of the job is known by its cgroup."""
    units = {"train.service": UNIT.format("always"), "once.service": UNIT.format("on-failure")}
    box.lab.reboot_with_systemd(box.vmid, units)
    box.start("systemctl start train.service", how="raw", trainers=1, seconds=60)
    shown = box.run("status", box.name)
    (unit,) = shown.target["above"]
    assert (unit["kind"], unit["again"]) == ("systemd", "always"), shown.people
    assert unit["cmd"] == "train.service (Restart=always, after 2 s)"
    assert "`systemctl stop` would send INT to all of it, and KILL after 90 s" in unit["will"]
    ran = box.run("stop", box.name, "--graceful", deadline=120)
    assert (ran.code, ran.target["verdict"]) == (6, "respawned"), ran.people
    assert "systemd unit train.service (Restart=always, after 2 s) starts" in ran.target["reason"]
    assert len(ran.signals) == 1
    box.lab.exec(box.vmid, ["systemctl", "stop", "train.service"], 60)
    box.start("systemctl start once.service", how="raw", trainers=1, seconds=60)
    ran = box.run("stop", box.name, "--graceful", deadline=120)
    assert ran.code == 0, ran.people
    assert "Restart=on-failure" in ran.target["above"][0]["cmd"]
    assert not running(box, "train.py")


def test_a_tmux_pane_is_named_and_spared(box: Bed) -> None:
    text = "tmux -S /tmp/t new-session -d -s job 'cd /root; python3 -u train.py --save-seconds 0.3'"
    box.start(f"{text} </dev/null >/dev/null 2>&1", how="raw", trainers=1, seconds=60)
    shown = box.run("status", box.name)
    kinds = [each["kind"] for each in shown.target["above"]]
    assert kinds[0] == "tmux", shown.people
    ran = box.run("stop", box.name, "--graceful")
    assert ran.code == 0, ran.people
    assert {each["role"] for each in ran.target["family"]} <= {"trainer", "wrapper"}


@pytest.mark.skipif(shutil.which("cron") is None, reason="cron is not installed")
def test_a_cron_line_is_named_and_spared(box: Bed) -> None:
    """The real cron, with a table of the container's own; the shell it starts is a wrapper."""
    table = box.lab.rootfs(box.vmid) / "var/spool/cron/crontabs/root"
    table.parent.mkdir(parents=True)
    (box.lab.rootfs(box.vmid) / "var/run").symlink_to("/run")
    line = "cd /root; python3 -u train.py --save-seconds 0.3 >/workspace/train.log 2>&1"
    table.write_text(f"@reboot {line}\n")
    table.chmod(0o600)
    box.start("cron", how="raw", trainers=1, seconds=60)
    shown = box.run("status", box.name)
    assert shown.target["above"][0]["kind"] == "cron", shown.people
    assert "at the times of its table" in " ".join(shown.people.split())
    ran = box.run("stop", box.name, "--graceful", deadline=120)
    assert ran.code == 0, ran.people
    assert len(ran.signals) == 1
    assert running(box, "cron")


REAPER = """\
import ctypes, os, subprocess, sys, time
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
subprocess.Popen(["setsid", "python3", "-u", "/root/orphans.py"])
while True:
    time.sleep(1)
"""
ORPHANS = """\
import ctypes, os, time
print("up", flush=True)
try:
    time.sleep(600)
except KeyboardInterrupt:
    # a helper of a helper, renamed, born after the signal: nobody has seen its parent
    if os.fork() == 0:
        if os.fork() == 0:
            ctypes.CDLL(None).prctl(15, b"kworker/u4", 0, 0, 0)
            os.execv("/bin/sleep", ["renamed", "600"])
        os._exit(0)
    time.sleep(1.5)
    with open("/workspace/checkpoints/step_1.pt", "wb") as f:
        f.write(b"x" * 1000)
"""


def test_renamed_orphans_under_a_subreaper_are_named_and_swept_only_by_consent(box: Bed) -> None:
    (root(box) / "reaper.py").write_text(REAPER)
    (root(box) / "orphans.py").write_text(ORPHANS)
    box.checkpoints.mkdir(parents=True, exist_ok=True)
    job = box.start(detached("python3 /root/reaper.py"), how="raw", trainers=0)
    until(lambda: "up" in box.log(job))
    inventory = one_job(box, "", "orphans.py")
    ran = box.run("stop", box.name, "--graceful", inventory=inventory, deadline=120)
    assert ran.code == 6, ran.people
    workers = [m for m in ran.target["family"] if m["role"] == "worker"]
    (orphan,) = [m for m in workers if alive(m["host_pid"], m["start"])]
    assert running(box, "renamed") == [orphan["host_pid"]]
    assert f"worker {orphan['pid']} still runs" in ran.target["reason"]
    assert running(box, "reaper.py")


def test_the_same_orphans_swept_by_a_tree_rung_that_was_agreed_to(box: Bed) -> None:
    (root(box) / "reaper.py").write_text(REAPER)
    (root(box) / "orphans.py").write_text(ORPHANS)
    box.checkpoints.mkdir(parents=True, exist_ok=True)
    job = box.start(detached("python3 /root/reaper.py"), how="raw", trainers=0)
    until(lambda: "up" in box.log(job))
    inventory = one_job(box, "", "orphans.py")
    ran = box.run("stop", box.name, "--force", inventory=inventory, deadline=120)
    assert [name for name, _ in ran.signals] == ["INT", "KILL"], ran.people
    assert not running(box, "renamed")
    assert running(box, "reaper.py"), "the subreaper is no member"


def test_forked_workers_stuck_for_ever_with_the_trainers_own_command_line(box: Bed) -> None:
    """All of them read `python3 -u /root/train.py …`: only the fork flag tells who trains."""
    job = box.start("--workers", "3", "--worker-habit", "stuck", "--save-seconds", "0.3")
    shown = box.run("status", box.name)
    assert sorted(each["role"] for each in shown.target["family"]) == [
        "trainer", "worker", "worker", "worker", "wrapper",
    ]  # fmt: skip
    ran = box.run("stop", box.name, "--force", "--ladder", "TERM/5", deadline=120)
    assert ran.code == 6, ran.people
    assert ran.signals == [("TERM", [job.pid])]
    left = [m for m in ran.target["family"] if m["role"] == "worker"]
    assert all(alive(m["host_pid"], m["start"]) for m in left)
    assert all(str(m["pid"]) in ran.target["reason"] for m in left)

    # later nothing but their parent's death tells them from a trainer, and INT would save nothing
    pids = sorted(m["pid"] for m in left)
    said = f"{', '.join(map(str, pids))} were forked by a trainer that has ended, and left behind"
    shown = box.run("status", box.name)
    assert {m["role"] for m in shown.target["family"]} == {"worker"}, shown.people
    assert shown.target["reason"] == f"{said}; no trainer runs"
    ran = box.run("stop", box.name, deadline=120)
    assert (ran.code, ran.signals) == (6, []), ran.people
    assert all(alive(m["host_pid"], m["start"]) for m in left)

    # one that was started since is the job, and they are not in its way
    job = box.start("--save-seconds", "0.3")
    ran = box.run("stop", box.name, "--graceful", deadline=120)
    assert (ran.code, ran.signals) == (0, [("INT", [job.pid])]), ran.people
    assert f"{said}; they are left alone" in ran.target["findings"]
    assert all(alive(m["host_pid"], m["start"]) for m in left)

    # a rung that says so sweeps them
    ran = box.run("stop", box.name, "--force", deadline=120)
    assert ran.code == 0, ran.people
    [(name, swept)] = ran.signals
    assert (name, sorted(swept)) == ("KILL", pids)
    assert not any(alive(m["host_pid"], m["start"]) for m in left)


def test_a_second_innocent_job_in_the_same_group_is_untouched(box: Bed) -> None:
    """Both started by one attach without a terminal: the same host group, PGID 0 inside."""
    source = (root(box) / "train.py").read_text()
    (root(box) / "second.py").write_text(source)
    text = (
        "cd /root; python3 -u train.py --save-seconds 0.3 >/workspace/train.log 2>&1 </dev/null &"
        " python3 -u second.py --checkpoints /workspace/other >/workspace/s.log 2>&1 </dev/null &"
    )
    both = box.start(f"trap '' HUP; {text}", how="raw", trainers=2)
    groups = {
        Path(f"/proc/{t.pid}/stat").read_text().rpartition(")")[2].split()[2] for t in both.trainers
    }
    assert len(groups) == 1
    inside = Path(f"/proc/{both.trainers[0].pid}/status").read_text()
    assert "NSpgid" in inside
    (second,) = running(box, "second.py")
    # deaf to INT (background of a shell without job control): the group rung is a consented KILL
    ran = box.run("stop", box.name, "--force", "--ladder", "KILL:group/5", inventory=one_job(box))
    assert "KILL" in [name for name, _ in ran.signals], ran.people
    assert not running(box, "train.py")
    assert running(box, "second.py") == [second]
    assert all(
        second not in each["host_pids"] for each in ran.events if each["event"] == "signal_sent"
    )


def test_a_wrapper_that_has_execd_something_else_has_left(box: Bed) -> None:
    """bash execs the last command of its text: the same identity, and somebody else's work."""
    text = "bash -c 'python3 -u train.py --save-seconds 0.2; sleep 302'"
    box.start(detached(text), how="raw", trainers=1)
    ran = box.run("stop", box.name, "--graceful", inventory=one_job(box))
    assert ran.code == 0, ran.people
    assert running(box, "sleep\x00302")


def _clone_into(pids: list[int], namespace: int, groups: list[Path], argv: list[str]) -> int:
    """A child with these PIDs, innermost first (clone3(2), set_tid), in a container's PID
    namespace and control groups: what the kernel does by chance when PIDs have come round."""
    libc = ctypes.CDLL(None, use_errno=True)
    fd = os.open(f"/proc/{namespace}/ns/pid", os.O_RDONLY)
    own = os.open("/proc/self/ns/pid", os.O_RDONLY)
    assert libc.setns(fd, 0x20000000) == 0, os.strerror(ctypes.get_errno())
    wanted = (ctypes.c_int * len(pids))(*pids)
    fields = [0, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, ctypes.addressof(wanted), len(pids), 0]
    arguments = (ctypes.c_uint64 * len(fields))(*fields)
    child = libc.syscall(435, arguments, ctypes.sizeof(arguments))
    if child == 0:
        os.execv(argv[0], argv)
    libc.setns(own, 0x20000000)
    os.close(fd)
    os.close(own)
    assert child > 0, os.strerror(ctypes.get_errno())
    for group in groups:
        with contextlib.suppress(OSError):
            (group / "cgroup.procs").write_text(str(child))
    return int(child)


def test_a_pid_that_is_somebody_elses_by_now_is_never_signalled(box: Bed) -> None:
    """The trainer ends while the ladder waits, and an innocent process of the same container
    gets its very number, in all namespaces, before KILL is due."""
    job = box.start("--shrug")
    pid = job.process.pid
    init = box.lab.containers[box.vmid].init_pid()
    assert init is not None
    groups = []
    for line in Path(f"/proc/{init}/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        mount = names.removeprefix("name=") or "unified"
        groups += [Path(f"/sys/fs/cgroup/{mount}{path}")]
    going = box.popen("stop", box.name, "--force", "--ladder", "INT/4 KILL:tree/5")
    until(lambda: box.signals_seen(job) > 0)
    status = Path(f"/proc/{pid}/status").read_text()
    inner = [int(n) for n in status.split("NSpid:")[1].split("\n")[0].split()]
    os.kill(pid, signal.SIGKILL)
    until(lambda: not Path(f"/proc/{pid}").exists())
    child = _clone_into(list(reversed(inner)), init, groups, ["/bin/sleep", "600"])
    try:
        assert child == pid
        assert str(box.vmid) in Path(f"/proc/{child}/cgroup").read_text()
        ran = box.finish(going, 100)
        assert os.waitpid(child, os.WNOHANG) == (0, 0), "the innocent was ended"
        killed = [p for e in ran.events if e["event"] == "signal_sent" for p in e["host_pids"]]
        assert killed.count(pid) == 1, ran.people
        assert ran.code == 6, ran.people
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
