"""The three launchers through the inventory: launch, restart, redeploy, and the end on record."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fleetstop.lab.systemd import SYSTEMD

from . import versions
from .bed import Bed, lives, until
from .redeploying import (
    LAUNCH,
    Inside,
    ask,
    environ,
    log,
    redeploy,
    stanza,
    stops_by_one_int,
    trainers,
)

pytestmark = [pytest.mark.bed, pytest.mark.timeout(600)]

KINDS = [
    "setsid",
    "tmux",
    pytest.param(
        "systemd",
        marks=pytest.mark.skipif(not SYSTEMD.exists(), reason="systemd is not installed"),
    ),
]
ABOVE = {
    "setsid": ["supervisor"],
    "tmux": ["tmux", "supervisor"],
    "systemd": ["systemd", "supervisor"],
}
ENDS: dict[str, Callable[[int], None]] = {
    "KILL": lambda pid: os.kill(pid, signal.SIGKILL),
    "TERM": lambda pid: os.killpg(os.getpgid(pid), signal.SIGTERM),
}
RETURNS = "return ranks.wait_for_others()"
CHOSEN: list[tuple[int | None, str, str]] = [
    (3, RETURNS, "return 3"),
    (130, RETURNS, "return 130"),
    (None, "except wanted as request", "except ZeroDivisionError as request"),
]


def by(kind: str) -> str:
    return LAUNCH.replace("}", f", launcher: {kind}}}")


def record(box: Bed, mark: str) -> dict[str, Any]:
    file = Inside(box).at(f"/root/.fleetstop/train/status/{mark}.json")
    return dict(json.loads(file.read_text())) if file.exists() else {}


def its_end(box: Bed, mark: str) -> dict[str, Any]:
    until(lambda: record(box, mark).get("ended_at"))
    return {name: record(box, mark)[name] for name in ("exit", "signal")}


def changed(old: str, new: str) -> str:
    text = versions.TRAINER.read_text()
    assert text.count(old) == 1
    return text.replace(old, new)


@pytest.mark.parametrize("kind", KINDS)
def test_launch_restart_redeploy_and_each_end(box: Bed, tmp_path: Path, kind: str) -> None:
    if kind == "systemd":
        box.lab.reboot_with_systemd(box.vmid, {})
    inventory = stanza(box, tmp_path, by(kind))
    ran = ask(box, "launch", "--", "--save-seconds", "0.2", inventory=inventory)
    assert ran.code == 0, ran.people
    assert ran.target["result"] == "running"
    (pid,) = trainers(box)
    seen = box.run("status", box.name, inventory=inventory)
    assert [each["kind"] for each in seen.target["above"]] == ABOVE[kind]
    mark = environ(pid)["FLEETSTOP_MARK"]

    again = ask(box, "restart", "--", "--save-seconds", "0.2", inventory=inventory)
    assert again.code == 0, again.people
    assert [each for each, _ in again.signals] == ["INT"]
    first = record(box, mark)
    assert (first["exit"], first["signal"]) == (0, None)
    (second,) = trainers(box)
    assert second != pid
    mark = environ(second)["FLEETSTOP_MARK"]

    where = versions.sources(tmp_path / "src")
    words = (str(where / "train.py"), "--", "--save-seconds", "0.2")
    new = redeploy(box, *words, inventory=inventory)
    assert new.code == 0, new.people
    assert "version good" in log(box)
    assert record(box, mark)["exit"] == 0
    (third,) = trainers(box)
    mark = environ(third)["FLEETSTOP_MARK"]
    stops_by_one_int(box, inventory)
    assert its_end(box, mark) == {"exit": 0, "signal": None}

    for name, end in ENDS.items():
        ran = ask(box, "launch", inventory=inventory)
        assert ran.code == 0, ran.people
        (pid,) = trainers(box)
        mark = environ(pid)["FLEETSTOP_MARK"]
        end(pid)
        assert its_end(box, mark) == {"exit": None, "signal": name}


@pytest.mark.parametrize("kind", KINDS)
def test_ends_that_the_program_chooses(box: Bed, tmp_path: Path, kind: str) -> None:
    """3 and 130 by itself, INT uncaught: told by the next launch, read from the record."""
    if kind == "systemd":
        box.lab.reboot_with_systemd(box.vmid, {})
    inventory = stanza(box, tmp_path, by(kind))
    file = Inside(box).at("/root/train.py")
    for code, old, new in CHOSEN:
        file.write_text(changed(old, new))
        ran = ask(box, "launch", "--", "--save-seconds", "0.2", inventory=inventory)
        assert ran.code == 0, ran.people
        (pid,) = trainers(box)
        mark = environ(pid)["FLEETSTOP_MARK"]
        os.kill(pid, signal.SIGINT)
        assert its_end(box, mark) == {"exit": code, "signal": None if code else "INT"}
    file.write_text(versions.TRAINER.read_text())
    ran = ask(box, "launch", inventory=inventory)
    assert ran.code == 0, ran.people
    box.note(kind, "; ".join(ran.target["findings"]))


def test_a_name_that_is_somebody_elses_is_found_before_the_stop(box: Bed, tmp_path: Path) -> None:
    """Found after it, neither version could be started there."""
    inside = box.lab.containers[box.vmid]
    words = ["tmux", "new-session", "-d", "-s", "fleetstop-train", "sleep 1000"]
    subprocess.run(inside.attach(words), check=True, stdin=subprocess.DEVNULL)
    job = box.start("--save-seconds", "0.5")
    where = versions.sources(tmp_path / "src")
    inventory = stanza(box, tmp_path, by("tmux"))
    ran = redeploy(box, str(where / "train.py"), inventory=inventory)
    assert (ran.code, ran.signals) == (5, []), ran.people
    assert (
        "the tmux session fleetstop-train has a living pane that is not this job's"
        in (ran.target["reason"])
    )
    assert lives(job)
    assert box.signals_seen(job) == 0
    subprocess.run(
        inside.attach(["tmux", "kill-session", "-t", "=fleetstop-train"]),
        check=True,
        stdin=subprocess.DEVNULL,
    )
    again = redeploy(box, str(where / "train.py"), inventory=inventory)
    assert again.code == 0, again.people
    assert again.signals == [("INT", [job.pid])]
    stops_by_one_int(box, inventory)
