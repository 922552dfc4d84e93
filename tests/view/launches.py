"""Launches, restarts and redeploys as lists of events, built by hand: for the screens."""

from __future__ import annotations

from typing import Any

from fleetstop import events as e
from fleetstop.core import report as r
from tests.view import scenes as s

RUN = s.member(31002, "wrapper", "bash /root/run.sh")
NEW = s.member(31004, "trainer", "python3 -u /root/train_dflash_pipeline.py", "busy")
BACK = s.member(31040, "trainer", "python3 -u /root/train_dflash_pipeline.py", "busy")
LOG = "/workspace/train.log"
NEW_ID, OLD_ID = "20250304-140210-7f3a", "20250301-091502-11aa"
BOTH = r.ReleaseRecord(id=NEW_ID, before=OLD_ID, running=NEW_ID)
NONE = r.ReleaseRecord(id=None, before=None, running=None)
GOOD = (
    "alive as 31004", "hears INT", "its arguments arrived", "its environment arrived",
    "uses GPU 0-7",
)  # fmt: skip
DEAD = "31004 ended within 2 s: exit 1"
LAST = (
    '  File "/root/train_dflash_pipeline.py", line 211, in <module>',
    "ValueError: hidden size 4096 is no multiple of 96",
)


def health(
    state: Any, release: str | None, *checks: tuple[str, bool | None, str]
) -> r.HealthRecord:
    return r.HealthRecord(
        state=state, release=release, checks=tuple(r.HealthCheck(*each) for each in checks)
    )


def launched(clock: str, *, old: bool = False, pid: int = 31002, **facts: Any) -> e.Launched:
    known = {"cmd": "bash /root/run.sh", "release": None, "within_s": 10.0}
    return e.Launched(at=s.at(clock), target=s.T, pid=pid, old=old, **{**known, **facts})


def said(clock: str, *lines: str, more: int = 0) -> e.LogSaid:
    return e.LogSaid(at=s.at(clock), target=s.T, path=LOG, lines=lines, left_out=more)


def healthy(clock: str, *, old: bool = False, pid: int = 31004, seconds: float = 10.4) -> e.Healthy:
    by = GOOD if not old else ("alive as 31040", "hears INT")
    return e.Healthy(at=s.at(clock), target=s.T, pids=(pid,), by=by, seconds=seconds, old=old)


ARMED = e.Armed(at=s.at("14:02:11"), target=s.T, pid=30990, roll_back=True)
DIED = "the last run ended by KILL at 2025-03-04 10:58:40 UTC, 3 h ago"

LAUNCH: list[e.AnyEvent] = [
    s.started("launch"),
    e.Finding(at=s.at("14:02:11"), target=s.T, text=DIED),
    ARMED,
    launched("14:02:12"),
    said("14:02:15", "loading /workspace/checkpoints/step_41000"),
    said("14:02:21", "step 41001 loss 1.84 13.8K tok/s", more=3),
    healthy("14:02:22"),
    *s.finished(
        "14:02:22", "running", verdict="busy", family=(RUN, NEW), seconds=12.0, release=NONE,
        findings=(DIED,), health=(health("healthy", None, ("alive", True, GOOD[0])),),
    ),
]  # fmt: skip

SENDING = e.Staging(
    at=s.at("14:02:11"),
    target=s.T,
    sent=12 << 20,
    size=200 << 20,
    files=3,
    same=2,
    rate=9.0 * 2**20,
)
STAGED = e.Staged(at=s.at("14:02:11"), target=s.T, files=3, size=18_400, same=2, seconds=0.4)
PROVED = e.Proved(
    at=s.at("14:02:12"), target=s.T, seconds=1.1,
    by=("compiled with /opt/venv/bin/python3.11", "its prove: command ended with 0"),
)  # fmt: skip
SWAPPED = e.Activated(
    at=s.at("14:02:31"), target=s.T, release=NEW_ID,
    log_rotated="/workspace/train.log.20250304-140229",
)  # fmt: skip
STOPPED: list[e.AnyEvent] = [
    s.started("redeploy"),
    STAGED,
    PROVED,
    ARMED,
    s.located(graceful=False),
    s.sent("14:02:13"),
    *s.exits("14:02:29", s.TRAINER, s.WRAPPER),
    s.saved("14:02:30"),
    s.released("14:02:30"),
    SWAPPED,
]
REDEPLOY: list[e.AnyEvent] = [
    *STOPPED,
    launched("14:02:31", release=NEW_ID),
    healthy("14:02:42"),
    *s.finished(
        "14:02:42", "redeployed", verdict="busy", family=(RUN, NEW), seconds=31.0, release=BOTH,
        signals=(s.record(),), health=(health("healthy", NEW_ID, ("alive", True, GOOD[0])),),
    ),
]  # fmt: skip

ROLLED_BACK: list[e.AnyEvent] = [
    *STOPPED,
    launched("14:02:31", release=NEW_ID),
    said("14:02:33", *LAST),
    e.Unhealthy(at=s.at("14:02:34"), target=s.T, why=(DEAD,), log=("step 1 loss 11.2", *LAST)),
    e.RollingBack(at=s.at("14:02:34"), target=s.T, release=OLD_ID),
    e.RolledBack(at=s.at("14:02:35"), target=s.T, release=OLD_ID, pid=31040),
    launched("14:02:35", old=True, pid=31040, release=OLD_ID),
    healthy("14:02:45", old=True, pid=31040),
    *s.finished(
        "14:02:45", "rolled_back", verdict="busy", family=(BACK,), seconds=35.0,
        reason=f"{DEAD}; release {OLD_ID} runs again as 31040",
        release=r.ReleaseRecord(id=NEW_ID, before=OLD_ID, running=OLD_ID),
        health=(
            health("unhealthy", NEW_ID, ("alive", False, DEAD)),
            health("healthy", OLD_ID, ("alive", True, GOOD[0])),
        ),
    ),
]  # fmt: skip

DEAF = (
    "it cannot be stopped so that it saves: 31004 ignores INT (what starts it puts it into the "
    "background with &)"
)
LEFT_DEAF: list[e.AnyEvent] = [
    s.started("restart"),
    *STOPPED[4:9],
    launched("14:02:31"),
    e.Unhealthy(at=s.at("14:02:37"), target=s.T, why=(DEAF,), log=("step 41001 loss 1.84",)),
    *s.finished(
        "14:02:37", "unhealthy", verdict="deaf", family=(RUN, NEW), seconds=27.0, release=NONE,
        reason=f"{DEAF}; what was started runs on, as --no-rollback has it",
        health=(health("unhealthy", None, ("hears", False, DEAF)),),
    ),
]  # fmt: skip

HELD = "GPU 3, 70120 MiB by 14402 python3 eval.py --model 70b"
BESIDE: list[e.AnyEvent] = [
    s.started("launch"),
    *s.finished(
        "14:02:12",
        "refused",
        seconds=0.8,
        reason=f"its own GPU is held by another: {HELD}",
        hint="end that first, or name other GPUs in the inventory: gpus: [...]",
    ),
]
RUNS: list[e.AnyEvent] = [
    s.started("launch"),
    *s.finished(
        "14:02:12", "refused", seconds=0.8,
        reason="it runs already: 26982 python3 -u /root/train_dflash_pipeline.py, up 76 h",
        hint="fleetstop restart ct200; or fleetstop redeploy ct200; or fleetstop stop ct200",
    ),
]  # fmt: skip

UNSEEN = (
    "pve1: the connection was lost; it could not be re-made in 60 s: pve1: no route to host; it "
    "was started, and what works in the container sees to its health by itself"
)
UNDECIDED: list[e.AnyEvent] = [
    s.started("launch"),
    ARMED,
    launched("14:02:12"),
    *s.finished(
        "14:03:20", "unreachable", verdict="unknown", evidence=(UNSEEN,), reason=UNSEEN,
        hint="fleetstop status ct200", release=NONE,
    ),
]  # fmt: skip
OPEN_END = (
    "started as 31004, but whether it is healthy could not be seen: its log could not be read"
)
UNCONFIRMED: list[e.AnyEvent] = [
    s.started("launch"),
    launched("14:02:12", within_s=600.0),
    *s.finished(
        "14:12:12", "unreachable", verdict="unknown", evidence=(OPEN_END,), reason=OPEN_END,
        hint="fleetstop status ct200", release=NONE, family=(RUN, NEW),
    ),
]  # fmt: skip

FAILED: list[e.AnyEvent] = [
    s.started("redeploy"),
    STAGED,
    *s.finished(
        "14:02:13", "deploy_failed", seconds=2.0, release=NONE,
        reason="no space left on device: /root/.train_dflash_pipeline.py.fleetstop-7f3a",
    ),
]  # fmt: skip
NOT_COMPILED: list[e.AnyEvent] = [
    s.started("redeploy"),
    *s.finished(
        "14:02:13", "deploy_failed", seconds=1.0, release=NONE,
        reason="/usr/bin/python3 (3.11.2) cannot compile train.py:2: invalid syntax: def f(:; "
        "nothing of the job was touched",
    ),
]  # fmt: skip
ALREADY: list[e.AnyEvent] = [
    s.started("redeploy"),
    *s.finished(
        "14:02:11", "redeployed", seconds=0.4, release=NONE,
        reason="the file is what runs already: nothing was sent, nothing was stopped",
    ),
]  # fmt: skip
INTERRUPTED: list[e.AnyEvent] = [
    *STOPPED,
    launched("14:02:31", release=NEW_ID),
    e.Interrupted(at=s.at("14:02:33"), target=s.T, sent=("INT to 26982",), running=(31004,)),
    *s.finished(
        "14:02:33", "refused", interrupted=True, release=BOTH, family=(RUN, NEW),
        reason="interrupted; it was started, and what works in the container sees to its health "
        "by itself; run the same command again: it goes on from there",
    ),
]  # fmt: skip

SCREENS: dict[str, tuple[list[e.AnyEvent], dict[str, Any]]] = {
    "launch_good": (LAUNCH, {}),
    "launch_good_verbose": (LAUNCH, {"verbose": True}),
    "launch_good_quiet": (LAUNCH, {"quiet": True}),
    "launch_beside_gpu_holder": (BESIDE, {}),
    "launch_beside_running": (RUNS, {}),
    "launch_undecided": (UNDECIDED, {}),
    "launch_unconfirmed": (UNCONFIRMED, {}),
    "restart_left_deaf": (LEFT_DEAF, {}),
    "redeploy_good": (REDEPLOY, {}),
    "redeploy_rolled_back": (ROLLED_BACK, {}),
    "redeploy_rolled_back_narrow": (ROLLED_BACK, {"width": 60}),
    "redeploy_failed": (FAILED, {}),
    "redeploy_not_compiled": (NOT_COMPILED, {}),
    "redeploy_already": (ALREADY, {}),
    "redeploy_interrupted": (INTERRUPTED, {}),
}
