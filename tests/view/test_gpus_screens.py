"""The screens of `gpus` as golden files have them; UPDATE_GOLDEN=1 writes them anew."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import pytest

from fleetstop.core import report as r
from fleetstop.view.gpus import GpuTable
from fleetstop.view.layout import cells
from tests.core.test_redact import controls

GOLDEN = Path(__file__).parent / "golden"
GIB = 1024
TOTAL = 81559


def holder(pid: int | None, gib: int | None = None, **more: Any) -> r.GpuHolder:
    facts: dict[str, Any] = {
        "host_pid": 1_800_000 + (pid or 0),
        "held_mib": None if gib is None else gib * GIB,
        "listed": True,
        "pid": pid,
        "start": 7,
        "vmid": 200,
        "container": "ct200",
        "job": "ct200:train",
        "user": "root",
        "age_s": 273_600.0,
        "cmd": "python3 -u /root/train_dflash_pipeline.py",
    }
    if pid is None:  # ended, or hidden by the driver
        facts = {each: facts[each] for each in ("host_pid", "held_mib", "listed")}
    return r.GpuHolder(**facts | more)


def gpu(index: int, used: int | None, state: r.GpuState, *by: r.GpuHolder, **more: Any) -> Any:
    facts: dict[str, Any] = {
        "held_mib": sum(each.held_mib or 0 for each in by),
        "holders": tuple(each.host_pid for each in by if each.listed),
        "used_mib": None if used is None else used * GIB,
        "total_mib": TOTAL,
        "state": state,
        "held_by": by,
    }
    return r.GpuRecord(index=index, uuid=f"GPU-{index}", **facts | more)


def outcome(*gpus: r.GpuRecord, target: str = "pve1", **more: Any) -> r.Outcome:
    facts: dict[str, Any] = {"result": "running", "gpus": gpus or None}
    return r.Outcome(target=target, host=target, vmid=None, job=None, **facts | more)


NEIGHBOUR = holder(
    511, 12, vmid=201, container="ct201", job=None, user="uid 1000", age_s=14_500.0,
    cmd="/opt/venv/bin/python eval.py --suite long --out /srv/results",
)  # fmt: skip
ORPHAN = holder(27050, None, listed=False, orphan=True, job=None)
MONITOR = holder(
    9120, 1, vmid=None, container=None, job=None, host_pid=9120, age_s=40.0,
    cmd="/usr/bin/python3 bench.py",
)  # fmt: skip
SCREENS: dict[str, list[r.Outcome]] = {
    "good": [
        outcome(
            gpu(0, 76, "held", holder(26982, 76)),
            gpu(1, 78, "held", holder(26983, 66), NEIGHBOUR),
            gpu(2, 1, "held", MONITOR),
            gpu(3, 0, "idle"),
        ),
        outcome(
            gpu(0, 0, "idle"), target="pve2", result="not_running", reason="nobody is on a GPU"
        ),
    ],
    "bad": [
        outcome(
            gpu(0, None, "fault", fault="requires reset"),
            gpu(1, 58, "unlisted", ORPHAN, unlisted_mib=58 * GIB),
            gpu(2, 58, "unlisted", unlisted_mib=58 * GIB),
            gpu(3, 40, "held", holder(None, 40)),
            findings=(
                "GPU 0 requires reset: no stop frees it; its jobs ended, it takes a reset "
                "(nvidia-smi -r), or a reboot; fleetstop resets nothing",
                "GPU 1: 59392 MiB belong to no listed process; /dev/nvidia* is open in 27050 "
                "python3 -u /root/train_dflash_pipeline.py in ct200 (host 1827050, an orphan)",
                "GPU 2: 59392 MiB belong to no listed process; nobody is seen to have "
                "/dev/nvidia* open (look on the host: dmesg | grep Xid)",
            ),
        )
    ],
    "undecided": [
        outcome(
            result="unreachable",
            verdict="unknown",
            reason="what is on the GPUs is not known: nvidia-smi did not answer within 8 s; it may "
            "hang in the driver",
            findings=(
                "/dev/nvidia* is open in 26982 python3 -u /root/train_dflash_pipeline.py in ct200 "
                "(host 1826982)",
            ),
        ),
        outcome(
            gpu(0, None, "unknown"),
            gpu(1, 5, "held", holder(None, None, host_pid=None)),
            target="pve2",
            findings=(
                "GPU 0 does not say how much of it is in use: that is not idle",
                "GPU 1 is held by somebody whom the driver does not show here",
            ),
        ),
    ],
}
SCREENS["hostile"] = [
    outcome(gpu(0, 9, "held", holder(5, 9, cmd="a\x1b[2J\u202eb\r\nGPU 1 idle", job=None)))
]


def drawn(name: str, **how: Any) -> str:
    stream = io.StringIO()
    GpuTable(stream, **how)(r.report("7f3a", SCREENS[name]))
    return stream.getvalue()


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("good", {}),
        ("bad", {}),
        ("undecided", {}),
        ("good_narrow", {"width": 72}),
        ("good_quiet", {"quiet": True}),
    ],
)
def test_screens(name: str, how: dict[str, Any]) -> None:
    path, text = GOLDEN / f"gpus_{name}.txt", drawn(name.partition("_")[0], **how)
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()
    assert max(cells(each) for each in text.splitlines()) <= how.get("width", 104)


def test_what_a_process_calls_itself_cannot_move_the_cursor() -> None:
    text = drawn("hostile")
    assert controls(text.replace("\n", "")) == []
    assert text.count("\n") == 3
