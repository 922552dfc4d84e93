"""The stock `systemd` playbook against real units, and what systemd is said to do by itself."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from fleetstop.config import stock_dir
from fleetstop.lab import Started
from fleetstop.lab.systemd import SYSTEMD

from .bed import Bed, lives

pytestmark = [
    pytest.mark.bed,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not SYSTEMD.exists(), reason="systemd is not installed"),
]

SERVICE = """\
[Service]
ExecStart=/usr/bin/python3 -u /root/train.py --save-seconds 0.5{arguments}
StandardOutput=append:/workspace/train.log
StandardError=append:/workspace/train.log
Restart={restart}
RestartSec=1
{more}
"""


def unit(restart: str = "no", more: str = "", arguments: str = "") -> str:
    return SERVICE.format(restart=restart, more=more, arguments=arguments)


UNITS = {
    "int.service": unit(more="KillSignal=SIGINT\nTimeoutStopSec=infinity"),
    "mixed.service": unit(more="KillSignal=SIGINT\nKillMode=mixed\nTimeoutStopSec=20"),
    "short.service": unit(more="KillMode=process\nTimeoutStopSec=2"),
    "asks.service": unit("no", "", " --ignore INT --on TERM"),
    "shrug.service": unit("always", "TimeoutStopSec=20", " --shrug"),
    "deaf.service": unit("always", "TimeoutStopSec=20", " --ignore INT"),
}
WILL = {
    "int.service": "`systemctl stop` would send INT to all of it",
    "mixed.service": "`systemctl stop` would send INT to its main process,"
    " and KILL to what is left after 20 s",
    "short.service": "`systemctl stop` would send TERM to its main process, and KILL after 2 s",
}


def state(box: Bed, name: str) -> str:
    return box.lab.exec(box.vmid, ["systemctl", "is-active", name]).stdout.strip()


def began(box: Bed, name: str) -> Started:
    return box.start(f"systemctl start {name}", how="raw", trainers=1, seconds=60)


def test_what_systemd_would_do_is_told_and_the_trainer_saves(box: Bed) -> None:
    """The playbook's first rung is the trainer's own signal, whatever the unit's KillSignal is."""
    box.lab.reboot_with_systemd(box.vmid, UNITS)
    for name, will in WILL.items():
        job = began(box, name)
        shown = box.run("status", box.name)
        (over,) = shown.target["above"]
        assert (over["kind"], over["again"]) == ("systemd", "never"), shown.people
        assert over["will"].endswith(will), over["will"]
        ran = box.run("stop", box.name, "-p", "systemd", "--graceful")
        assert (ran.code, ran.signals) == (0, [("INT", [job.pid])]), ran.people
        assert state(box, name) == "inactive"
        # their steps, and so the names, may be the same
        assert ran.target["checkpoint"]["written_after_signal"] is True, ran.people
        assert "saved" in box.log(job)

    # deaf to INT alone: TERM is heard, and needs no consent
    job = began(box, "asks.service")
    ran = box.run("stop", box.name, "-p", "systemd", "--graceful")
    assert (ran.code, ran.signals) == (0, [("TERM", [job.pid])]), ran.people
    assert ran.target["checkpoint"]["written_after_signal"] is True, ran.people

    # by `systemd-run` dispositions are clean, whatever its own caller ignores
    text = "trap '' INT; systemd-run -q --unit=run1 -p StandardOutput=append:/workspace/train.log"
    line = f"{text} -p StandardError=append:/workspace/train.log python3 -u /root/train.py"
    job = box.start(line, how="raw", trainers=1, seconds=60)
    shown = box.run("status", box.name)
    assert "run1.service" in shown.target["above"][0]["cmd"], shown.people
    ran = box.run("stop", box.name, "-p", "systemd", "--graceful")
    assert (ran.code, ran.signals) == (0, [("INT", [job.pid])]), ran.people
    assert box.signals_seen(job) == len(WILL) + 2


def test_a_deaf_trainers_unit_is_stopped_only_with_consent_and_stays_down(box: Bed) -> None:
    box.lab.reboot_with_systemd(box.vmid, UNITS)
    job = began(box, "deaf.service")
    ran = box.run("stop", box.name, "-p", "systemd", "--graceful")
    assert (ran.code, ran.target["verdict"], ran.signals) == (1, "deaf", []), ran.people
    ran = box.run("stop", box.name, "-p", "systemd")
    assert (ran.code, ran.signals) == (5, []), ran.people
    assert (lives(job), state(box, "deaf.service")) == (True, "active")
    ran = box.run("stop", box.name, "-p", "systemd", "--force", "-n")
    assert (ran.code, lives(job)) == (0, True), ran.people

    # TERM by itself would end it, and Restart=always would bring it back: so the unit is stopped
    ran = box.run("stop", box.name, "-p", "systemd", "--force", deadline=120)
    assert ran.code == 0, ran.people
    assert not lives(job)
    time.sleep(2)  # twice its RestartSec
    assert state(box, "deaf.service") in ("inactive", "failed")
    assert box.run("status", box.name).target["result"] == "not_running"


def test_what_would_bring_it_back_is_told_before_anything_is_lost(box: Bed, tmp_path: Path) -> None:
    """It hears INT and trains on. TERM to it, or KILL, would lose its work and stop nothing."""
    box.lab.reboot_with_systemd(box.vmid, UNITS)
    text = (stock_dir() / "systemd.yaml").read_text()
    quick = tmp_path / "quick.yaml"
    quick.write_text(text.replace("wait: 3m", "wait: 4s"))

    # KILL alone cannot stop it: nothing is lost, and what would help is said
    job = began(box, "shrug.service")
    ran = box.run("stop", box.name, "-p", "now", "--force")
    assert (ran.code, ran.signals, lives(job)) == (1, [], True), ran.people
    assert "`systemctl stop shrug.service` comes first" in ran.people

    ran = box.run("stop", box.name, "-p", str(quick), "--force", deadline=180)
    assert (ran.code, [name for name, _ in ran.signals]) == (0, ["INT", "RUN"]), ran.people
    [skipped] = [each for each in ran.target["skipped"] if each["signal"] == "TERM"]
    assert "(Restart=always, after 1 s) would start it again" in skipped["reason"]
    assert not lives(job)
    time.sleep(2)  # twice its RestartSec
    assert state(box, "shrug.service") in ("inactive", "failed")
    assert box.run("status", box.name).target["result"] == "not_running"
