"""Redeploys and rollbacks as lists of events, built by hand: for the screens."""

from __future__ import annotations

from typing import Any

from fleetstop import events as e
from fleetstop.core import report as r
from tests.view import launches
from tests.view import scenes as s
from tests.view.launches import (
    ARMED,
    BACK,
    BOTH,
    DEAD,
    GOOD,
    LAST,
    NEW,
    NEW_ID,
    NONE,
    OLD_ID,
    RUN,
    health,
    healthy,
    launched,
    said,
    shown,
)  # fmt: skip

STARTED = s.started("redeploy", more=("train_dflash_pipeline.py", "configs"))


def row(path: str, change: str, size: int = 17_000) -> e.FileRow:
    return e.FileRow(path, size, change)


def destined(*files: e.FileRow, **facts: Any) -> e.Destined:
    known: dict[str, Any] = {"dest": "/root", "by": "running", "release": NEW_ID}
    return e.Destined(at=s.at("14:02:10"), target=s.T, files=files, **(known | facts))


FILES = destined(
    row("train_dflash_pipeline.py", "changed"), row("configs/big.yaml", "new", 1200),
    row("configs/base.yaml", "same", 800), row("configs/small.yaml", "same", 700),
    git="5690a8d0f3c2aa7713bd1f4a3e0c55d1f4a7c001-dirty", left_out=("configs/.cache/",),
)  # fmt: skip
BEGUN: list[e.AnyEvent] = [
    STARTED,
    FILES,
    shown(log_matches="tok/s", within_s=600.0, roll_back=True),
]

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
SWAPPED_IN: list[e.AnyEvent] = [
    *BEGUN,
    STAGED,
    PROVED,
    ARMED,
    *launches.STOPPED,
    SWAPPED,
]
REDEPLOY: list[e.AnyEvent] = [
    *SWAPPED_IN,
    launched("14:02:31", release=NEW_ID),
    healthy("14:02:42"),
    *s.finished(
        "14:02:42", "redeployed", verdict="busy", family=(RUN, NEW), seconds=31.0, release=BOTH,
        signals=(s.record(),), health=(health("healthy", NEW_ID, ("alive", True, GOOD[0])),),
    ),
]  # fmt: skip

ROLLED_BACK: list[e.AnyEvent] = [
    *SWAPPED_IN,
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

FAILED: list[e.AnyEvent] = [
    *BEGUN,
    STAGED,
    *s.finished(
        "14:02:13", "deploy_failed", seconds=2.0, release=NONE,
        reason="no space left on device: /root/.train_dflash_pipeline.py.fleetstop-7f3a",
    ),
]  # fmt: skip
KNOWN_BAD: list[e.AnyEvent] = [
    *BEGUN,
    *s.finished(
        "14:02:13", "deploy_failed", seconds=2.0, release=NONE,
        reason=f"these bytes failed on 2025-03-04 10:58 UTC as release {OLD_ID}: {DEAD}; nothing "
        "was stopped",
        hint="mend it; or, if it was not at fault, send it with another --env, argument or health"
        " check; --force sends it all the same, and is consent to lose work in the stop as well",
    ),
]  # fmt: skip
INTERRUPTED: list[e.AnyEvent] = [
    *SWAPPED_IN,
    launched("14:02:31", release=NEW_ID),
    e.Interrupted(at=s.at("14:02:33"), target=s.T, sent=("INT to 26982",), running=(31004,)),
    *s.finished(
        "14:02:33", "refused", interrupted=True, release=BOTH, family=(RUN, NEW),
        signals=(s.record(),),
        reason="interrupted; it was started, and what works in the container sees to its health "
        "by itself; run the same command again: it goes on from there",
    ),
]  # fmt: skip


UNSTOPPED: list[e.AnyEvent] = [
    *BEGUN,
    STAGED,
    PROVED,
    *s.DEAF_REGULAR[1:4],
    *s.finished("14:02:12", "still_running", verdict="deaf", seconds=3.2, release=NONE),
]
UNSTOPPED_AGAIN: list[e.AnyEvent] = [
    *BEGUN,
    STAGED,
    PROVED,
    *s.AGAIN[1:3],
    *s.finished(
        "14:02:43", "still_running", verdict="saving", seconds=3.2, release=NONE,
        reason="the --timeout of 3 s is over: no longer watched, nothing more is sent; the job may"
        " still finish; what waits in the container starts the job by itself if what runs ends, "
        "and leaves if it does not",
    ),
]  # fmt: skip
SECRET: list[e.AnyEvent] = [s.started("redeploy", more=None), *UNSTOPPED[1:]]
NOT_CLEAN: list[e.AnyEvent] = [
    *BEGUN,
    STAGED,
    PROVED,
    *s.unclean("gpus_held: GPU 0: 76 GiB more than before is held by host 1826990")[1:],
]
DRY: list[e.AnyEvent] = [*BEGUN, *s.DRY_POLITE[1:]]
SURE = s.finished("14:02:11", "planned", release=NONE)
DIFFERS = e.Differs(
    at=s.at("14:02:10"), target=s.T, summary="1 changed (+1 -1), 1 new (+12); 2 as they are",
    lines=(
        e.DiffLine("file", "--- train_dflash_pipeline.py (there)"),
        e.DiffLine("file", "+++ train_dflash_pipeline.py (sent)"),
        e.DiffLine("hunk", "@@ -211,1 +211,1 @@"),
        e.DiffLine("removed", "-HIDDEN = 4032"),
        e.DiffLine("added", "+HIDDEN = 4096"),
    ),
)  # fmt: skip
DIFF: list[e.AnyEvent] = [STARTED, FILES, DIFFERS, BEGUN[2], *SURE]
THE_SAME = (
    f"release {NEW_ID} is this very content, runs, and was found healthy at 2025-03-04 14:02 UTC"
)
NOTHING: list[e.AnyEvent] = [
    STARTED,
    *s.finished("14:02:11", "redeployed", seconds=0.7, reason=THE_SAME, release=BOTH),
]
NOTHING_DRY: list[e.AnyEvent] = [
    STARTED,
    *s.finished("14:02:11", "planned", seconds=0.7, reason=THE_SAME, release=BOTH),
]
LEFT_SO: list[e.AnyEvent] = [
    *SWAPPED_IN,
    launched("14:02:31", release=NEW_ID),
    e.Unhealthy(at=s.at("14:02:34"), target=s.T, why=(DEAD,), log=LAST),
    *s.finished(
        "14:02:45", "unhealthy", seconds=35.0, release=BOTH,
        reason=f"{DEAD}; NOTHING runs, as --no-rollback has it",
        health=(health("unhealthy", NEW_ID, ("alive", False, DEAD)),),
    ),
]  # fmt: skip
ADOPTED = shown(
    adopted=True, ran=("bash", "/root/run.sh", "--gpus", "0"), ran_in="/root", dest="/root"
)
RESPAWNED: list[e.AnyEvent] = [
    *BEGUN[:2],
    ADOPTED,
    *BEGUN[3:],
    STAGED,
    PROVED,
    *s.unclean(
        "respawned: the job runs again as 31002; 26978 bash /root/run.sh starts it again until it"
        " exits 0 (until python train.py)",
        verdict="respawned",
    )[1:],
]
UNSEEN: list[e.AnyEvent] = [*SWAPPED_IN, *launches.UNDECIDED[-2:]]
FORMER = destined(
    row("train_dflash_pipeline.py", "changed"), by="release", of_release=OLD_ID
)  # fmt: skip
ROLLBACK: list[e.AnyEvent] = [
    s.started("rollback"), FORMER, shown(as_release=OLD_ID, roll_back=True), *SWAPPED_IN[3:],
    launched("14:02:31", release=NEW_ID), healthy("14:02:42"), *REDEPLOY[-2:],
]  # fmt: skip
ROWS = (
    "20250304-140210-7f3a  2025-03-04 14:02 UTC, by ml@laptop, commit 5690a8d0f3c2 with changes, "
    "never healthy: it ended with exit code 1",
    "20250301-091502-11aa  2025-03-01 09:15 UTC, by ml@laptop, commit 91b2c0ffee00, was healthy, "
    "runs now",
)
NONE_KEPT: list[e.AnyEvent] = [
    s.started("rollback"),
    *s.finished(
        "14:02:11", "deploy_failed", seconds=0.7, evidence=ROWS,
        reason="besides what lies there no release is kept that is known to have run well",
        hint="one of them all the same: fleetstop rollback ct200 --to 20250304-140210-7f3a",
    ),
]  # fmt: skip
WRONG_RELEASE: list[e.AnyEvent] = [
    s.started("rollback"),
    *s.finished(
        "14:02:11", "refused", seconds=0.7, evidence=ROWS,
        reason="no release 2026 is kept in /root/.fleetstop/train",
    ),
]  # fmt: skip

SCREENS: dict[str, tuple[list[e.AnyEvent], dict[str, Any]]] = {
    "redeploy_good": (REDEPLOY, {}),
    "redeploy_good_quiet": (REDEPLOY, {"quiet": True}),
    "redeploy_rolled_back": (ROLLED_BACK, {}),
    "redeploy_rolled_back_narrow": (ROLLED_BACK, {"width": 60}),
    "redeploy_failed": (FAILED, {}),
    "redeploy_known_bad": (KNOWN_BAD, {}),
    "redeploy_interrupted": (INTERRUPTED, {}),
    "redeploy_not_stopped": (UNSTOPPED, {}),
    "redeploy_not_stopped_again": (UNSTOPPED_AGAIN, {}),
    "redeploy_not_stopped_secret": (SECRET, {}),
    "redeploy_not_clean": (NOT_CLEAN, {}),
    "redeploy_left_unhealthy": (LEFT_SO, {}),
    "redeploy_left_unhealthy_adopted": ([*LEFT_SO[:2], ADOPTED, *LEFT_SO[3:]], {}),
    "redeploy_not_clean_adopted": ([*NOT_CLEAN[:2], ADOPTED, *NOT_CLEAN[3:]], {}),
    "redeploy_respawned_adopted": (RESPAWNED, {}),
    "redeploy_undecided": (UNSEEN, {}),
    "redeploy_dry": (DRY, {}),
    "redeploy_diff": (DIFF, {}),
    "redeploy_nothing_to_do": (NOTHING, {}),
    "redeploy_nothing_to_do_dry": (NOTHING_DRY, {}),
    "rollback_good": (ROLLBACK, {}),
    "rollback_none_kept": (NONE_KEPT, {}),
    "rollback_wrong_release": (WRONG_RELEASE, {}),
    "rollback_undecided": ([s.started("rollback"), *UNSEEN[1:]], {}),
}
