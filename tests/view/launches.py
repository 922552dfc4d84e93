"""Launches and restarts as lists of events, built by hand: for the screens."""

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
LAST = (
    '  File "/root/train_dflash_pipeline.py", line 211, in <module>',
    "ValueError: hidden size 4096 is no multiple of 96",
)
DEAD = f'31004 ended within 2 s: exit 1; last line: "{LAST[1]}"'


def health(
    state: Any, release: str | None, *checks: tuple[str, bool | None, str]
) -> r.HealthRecord:
    return r.HealthRecord(
        state=state, release=release, checks=tuple(r.HealthCheck(*each) for each in checks)
    )


def launched(clock: str, *, old: bool = False, pid: int = 31002, **facts: Any) -> e.Launched:
    known = {"cmd": "bash /root/run.sh", "release": None, "within_s": 10.0}
    return e.Launched(at=s.at(clock), target=s.T, pid=pid, old=old, **{**known, **facts})


def shown(clock: str = "14:02:11", **facts: Any) -> e.LaunchShown:
    known: dict[str, Any] = {
        "command": "/root/run.sh", "cwd": "/root", "user": "root", "log": LOG,
        "env": {"SEED": "7"}, "within_s": 10.0,
    }  # fmt: skip
    return e.LaunchShown(at=s.at(clock), target=s.T, **(known | facts))


def said(clock: str, *lines: str, more: int = 0) -> e.LogSaid:
    return e.LogSaid(at=s.at(clock), target=s.T, path=LOG, lines=lines, left_out=more)


def healthy(clock: str, *, old: bool = False, pid: int = 31004, seconds: float = 10.4) -> e.Healthy:
    by = GOOD if not old else ("alive as 31040", "hears INT")
    return e.Healthy(at=s.at(clock), target=s.T, pids=(pid,), by=by, seconds=seconds, old=old)


ARMED = e.Armed(at=s.at("14:02:11"), target=s.T, pid=30990, roll_back=True)
DIED = "the last run ended by KILL at 2025-03-04 10:58:40 UTC, 3 h ago"

LAUNCH: list[e.AnyEvent] = [
    s.started("launch"),
    shown(resumes="/workspace/checkpoints/step_41000", carrier="tmux session fleetstop-train"),
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

DEAF = (
    "it cannot be stopped so that it saves: 31004 ignores INT (most likely what starts it puts it "
    "into the background with &)"
)
STOPPED: list[e.AnyEvent] = [
    s.located(graceful=False),
    s.sent("14:02:13"),
    *s.exits("14:02:29", s.TRAINER, s.WRAPPER),
    s.saved("14:02:30"),
    s.released("14:02:30"),
]
LEFT_DEAF: list[e.AnyEvent] = [
    s.started("restart"),
    *STOPPED,
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

RESTART: list[e.AnyEvent] = [
    s.started("restart"),
    shown(command="bash /root/run.sh", adopted=True, rest=("nice 5",), added=("SEED",)),
    ARMED,
    s.located(graceful=False),
    s.sent("14:02:13"),
    *s.exits("14:02:29", s.TRAINER, s.WRAPPER),
    s.saved("14:02:30"),
    launched("14:02:31"),
    healthy("14:02:42"),
    *s.finished(
        "14:02:42", "running", verdict="busy", family=(RUN, NEW), seconds=31.0, release=NONE,
        checkpoint=s.kept(), signals=(s.record(),),
        health=(health("healthy", None, ("alive", True, GOOD[0])),),
    ),
]  # fmt: skip
MATCHES: dict[str, Any] = {"adopted": True, "log_matches": "tok/s", "within_s": 600.0}
OWN_LOG: list[e.AnyEvent] = [
    s.started("restart"), shown(log=None, reads=LOG, **MATCHES), *RESTART[2:],
]  # fmt: skip
BOTH_LOGS: list[e.AnyEvent] = [
    s.started("restart"), shown(log="/root/nohup.out", reads=LOG, **MATCHES), *RESTART[2:],
]  # fmt: skip
USAGE = "train_dflash_pipeline.py: error: unrecognized arguments: --lrr 1e-4"
ENDED = f'31004 ended within 1 s; what started it then ended: exit 2; last line: "{USAGE}"'
WENT_BACK: list[e.AnyEvent] = [
    s.started("restart", more=("--env", "SEED=7", "--", "--lrr", "1e-4")),
    shown(command="bash /root/run.sh --lrr 1e-4", added=("SEED",), roll_back=True),
    e.Finding(
        at=s.at("14:02:11"), target=s.T,
        text="started without: --lr 3e-4, FOO (as `launch:` in the inventory has it)",
    ),
    *STOPPED,
    launched("14:02:31"),
    e.Unhealthy(at=s.at("14:02:33"), target=s.T, why=(ENDED,), log=(USAGE,)),
    e.RollingBack(at=s.at("14:02:33"), target=s.T, release=None),
    e.RolledBack(at=s.at("14:02:34"), target=s.T, release=None, pid=31040),
    launched("14:02:34", old=True, pid=31040),
    healthy("14:02:44", old=True, pid=31040),
    *s.finished(
        "14:02:44", "rolled_back", verdict="busy", family=(BACK,), seconds=34.0,
        reason=f"{ENDED}; what ran before runs again as 31040", signals=(s.record(),),
        release=r.ReleaseRecord(id=None, before=None, running=OLD_ID),
        findings=("started without: --lr 3e-4, FOO (as `launch:` in the inventory has it)",),
        health=(
            health("unhealthy", None, ("alive", False, ENDED)),
            health("healthy", None, ("alive", True, GOOD[0])),
        ),
    ),
]  # fmt: skip
LEFT_ENDED: list[e.AnyEvent] = [
    s.started("launch", more=("--", "--lrr", "1e-4")),
    shown(command="bash /root/run.sh --lrr 1e-4"),
    launched("14:02:12"),
    e.Unhealthy(at=s.at("14:02:14"), target=s.T, why=(ENDED,), log=(USAGE,)),
    *s.finished(
        "14:02:14", "unhealthy", seconds=3.0, reason=f"{ENDED}; NOTHING runs", release=NONE,
        health=(health("unhealthy", None, ("alive", False, ENDED)),),
    ),
]  # fmt: skip
NOWHERE = "it is not known where its code lies, and so where its records are"
UNKNOWN: list[e.AnyEvent] = [
    s.started("launch"),
    *s.finished(
        "14:02:12", "refused", seconds=0.8, reason=NOWHERE,
        hint="say in the inventory: deploy: {dest: /root}",
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
    "launch_unknown_place": (UNKNOWN, {}),
    "restart_good": (RESTART, {}),
    "restart_own_log": (OWN_LOG, {}),
    "restart_own_log_beside": (BOTH_LOGS, {}),
    "restart_went_back": (WENT_BACK, {}),
    "launch_bad": (LEFT_ENDED, {}),
    "restart_undecided": ([s.started("restart"), *UNCONFIRMED[1:]], {}),
}
