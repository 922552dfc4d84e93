"""Runs as lists of events, built by hand: what the screens are drawn from."""

from __future__ import annotations

from typing import Any

import msgspec

from fleetstop import events as e
from fleetstop.core import report as r

T = "ct200:train"
DAY = "2025-03-04T"
GIB = 1024**3


def at(clock: str) -> str:
    return f"{DAY}{clock}Z"


def member(pid: int, role: r.Role, cmd: str, verdict: str | None = None) -> r.Member:
    return r.Member(
        pid=pid, host_pid=1_800_000 + pid, start=pid * 7, role=role, verdict=verdict, cmd=cmd
    )


WRAPPER = member(26978, "wrapper", "bash /root/run.sh")
TRAINER = member(26982, "trainer", "python3 -u /root/train_dflash_pipeline.py")
FAMILY = (WRAPPER, TRAINER)
GPUS = tuple(r.GpuRecord(n, f"GPU-{n}", 612 * 1024 // 8, (1_826_982,)) for n in range(8))
LOG = e.LogSeen("/workspace/train_phase012.log", 2.2, "step 41210 loss 1.83 14.0K tok/s")
CKPT = e.CheckpointSeen(
    "/workspace/checkpoints/step_41000", "step_41000", 18 * 60.0, True, int(24.6 * GIB)
)
# it saves every half hour; a save in progress; a format that does not tell
REGULAR = msgspec.structs.replace(CKPT, usual_s=30 * 60.0, known_format=True)
HALF = e.CheckpointSeen(
    "/workspace/checkpoints/step_41212", "step_41212", 60.0, False, 9 * GIB,
    known_format=True, usual_s=30 * 60.0, whole="step_41000", whole_age_s=18 * 60.0,
)  # fmt: skip
BY_LOOKS = e.CheckpointSeen(
    "/workspace/checkpoints/epoch_12.h5", "epoch_12.h5", 18 * 60.0, True, GIB, known_format=False
)
LANDS_DEAF: dict[str, Any] = {"INT": "ignored", "TERM": "fatal"}


def started(
    command: str = "stop",
    *targets: str,
    asked: tuple[str, ...] = ("ct200",),
    inventory: str | None = None,
    more: tuple[str, ...] | None = (),
) -> e.Started:
    return e.Started(
        at=at("14:02:10"), target=None, run="7f3a", command=command, targets=targets or (T,),
        asked=asked, inventory=inventory, more=more,
    )  # fmt: skip


def located(**changes: Any) -> e.Located:
    facts: dict[str, Any] = {
        "at": at("14:02:10"), "target": T, "host": "pve1", "vmid": 200, "job": "train",
        "playbook": "standard", "lossless": False, "graceful": True, "dry_run": False,
        "family": FAMILY, "verdict": "busy", "evidence": (), "up_s": 3 * 86400 + 4 * 3600.0,
        "threads": 214, "stops_on": ("INT",), "log": LOG, "checkpoint": CKPT,
        "checkpoints_declared": True, "gpus": GPUS, "gpu_total_mib": 768 * 1024,
        "landings": {"INT": "heard", "TERM": "fatal"}, "own_playbook": "standard",
    }  # fmt: skip
    return e.Located(**(facts | changes))


MAIN = "/root/train_dflash_pipeline.py"
RELEASED = e.CodeSeen(
    main=MAIN, old=False, release="20261130-135801-7f3a", certain=True,
    runs="release 20261130-135801-7f3a runs",
)  # fmt: skip
OLD_SAID = f"{MAIN} is 12 min newer than the process: it runs the OLD code"
OLD_CODE = e.CodeSeen(main=MAIN, newer=MAIN, newer_s=720.0, old=True, said=OLD_SAID)
DOUBT = (
    f"{MAIN} was written to, or only its rights or name changed, 12 min after the process began,"
    " though its date is older: it may run the OLD code"
)
ROLLED = (
    "release 20261130-135801-7f3a was not well at 2026-11-30 13:58 UTC: it ended within 2 s: exit"
    " 3; what ran before is back"
)
DOUBTFUL = e.CodeSeen(
    main=MAIN, newer=MAIN, newer_s=720.0, said=DOUBT, release="20261129-090000-11ab", certain=True,
    runs="release 20261129-090000-11ab runs", deploy=ROLLED,
)  # fmt: skip
WAITS = (
    "the activator 27341 of run 7f3a91c2 is at it: it waits for the end of what runs, and its"
    " client was last heard 5 min ago"
)
WAITED_FOR = e.CodeSeen(main=MAIN, old=False, deploy=WAITS)
STARTS = "the activator 27341 of run 7f3a91c2 is at it: it starts the job"
DEATH = "the last run ended by KILL at 2026-11-30 13:40:12 UTC, 21 min ago"

DEAF = {"stops_on": (), "landings": LANDS_DEAF}


def outcome(result: r.Result, **changes: Any) -> r.Outcome:
    facts: dict[str, Any] = {"target": T, "host": "pve1", "vmid": 200, "job": "train"}
    return r.Outcome(result=result, **(facts | changes))


def finished(clock: str, result: r.Result, **changes: Any) -> list[e.AnyEvent]:
    end = outcome(result, **changes)
    return [
        e.TargetFinished(at=at(clock), target=end.target, outcome=end),
        r.report("7f3a", [end]),
    ]


def sent(clock: str, signal: str = "INT", landing: str = "heard", **changes: Any) -> e.SignalSent:
    facts: dict[str, Any] = {
        "at": at(clock), "target": T, "signal": signal, "to": "trainers", "pids": (26982,),
        "host_pids": (1_826_982,), "landing": landing, "wait_s": 180.0,
    }  # fmt: skip
    return e.SignalSent(**(facts | changes))


def record(signal: str = "INT", landing: str = "heard") -> r.SignalRecord:
    return r.SignalRecord(signal, "trainers", (26982,), landing, at("14:02:11"))


def skipped(clock: str, signal: str, landing: str | None, reason: str) -> e.RungSkipped:
    return e.RungSkipped(
        at=at(clock), target=T, rung=1, signal=signal, landing=landing, pids=(26982,),
        reason=reason,
    )  # fmt: skip


def held(clock: str, why: Any, *evidence: str, over: bool = False) -> e.Holding:
    return e.Holding(at=at(clock), target=T, why=why, evidence=evidence, over_wait=over)


def exits(clock: str, *members: r.Member) -> list[e.AnyEvent]:
    return [
        e.MemberExited(at=at(clock), target=T, pid=m.pid, role=m.role, cmd=m.cmd, zombie=False)
        for m in members
    ]


def verifying(clock: str, what: Any) -> e.Verifying:
    return e.Verifying(at=at(clock), target=T, what=what)


def saved(clock: str, gib: float = 18.4) -> e.CheckpointVerified:
    return e.CheckpointVerified(
        at=at(clock), target=T, name="step_41212", size=int(gib * GIB), complete=True
    )


def released(clock: str, seconds: float = 2.0) -> e.GpusReleased:
    return e.GpusReleased(at=at(clock), target=T, indexes=tuple(range(8)), seconds=seconds)


def kept(new: bool | None = True) -> r.CheckpointRecord:
    return r.CheckpointRecord("/workspace/checkpoints/step_41212", 7.0, True, new)


DEAF_INT = (
    "26982 ignores it (SigIgn). It was started with & from a non-interactive shell, "
    "so Python never installed KeyboardInterrupt. Waiting cannot help."
)
BY_SCRIPT = (
    "26982 ignores INT (SigIgn); it was started with & from a non-interactive shell, by 26978 "
    "bash, which hears INT itself"
)
DEAF_TERM = "no handler; it would end the job at once, unsaved."
NEEDS_FORCE = f"{DEAF_TERM} Needs --force"
ENDED = "ended by TERM without a save, as agreed with --force; lost about 18 min (since step_41000)"

STUCK = "26982 is in percpu_rwsem_wait; KILL pending for 31 s, and nothing acts"
KILL_WAITS = "KILL is pending on it already and nothing acts; a second one does no more"
UNINTERRUPTIBLE: list[e.AnyEvent] = [
    started(),
    e.Connected(at=at("14:02:10"), target=T, host="pve1", seconds=0.21),
    located(graceful=False, playbook="now"),
    sent("14:02:11", "KILL", "fatal", to="tree", wait_s=30.0),
    e.Looked(
        at=at("14:02:13"),
        target=T,
        verdict="uninterruptible",
        evidence=(STUCK.replace("31 s", "1.1 s"),),
    ),
    *finished(
        "14:02:42", "still_running", seconds=32.0, verdict="uninterruptible", evidence=(STUCK,),
        reason="it still runs after every rung that could be climbed",
        signals=(r.SignalRecord("KILL", "tree", (26982,), "fatal", at("14:02:11")),),
    ),
]  # fmt: skip

# a second command, while the first one's KILL waits still
UNINTERRUPTIBLE_AGAIN: list[e.AnyEvent] = [
    *UNINTERRUPTIBLE[:3],
    skipped("14:02:12", "KILL", None, KILL_WAITS),
    *finished(
        "14:02:12", "still_running", seconds=1.3, verdict="uninterruptible", evidence=(STUCK,),
        reason="nothing on this ladder can reach it",
        skipped=(r.SkippedRecord("KILL", KILL_WAITS),),
    ),
]  # fmt: skip

POLITE: list[e.AnyEvent] = [
    started(),
    e.Connected(at=at("14:02:10"), target=T, host="pve1", seconds=0.21),
    located(),
    e.RungEntered(at=at("14:02:11"), target=T, rung=1, signal="INT", to="trainers", wait_s=180.0),
    sent("14:02:11"),
    held("14:02:14", "saving", "step_41212.tmp 2.1 GiB, growing"),
    held("14:02:20", "saving", "step_41212.tmp 9.7 GiB, growing"),
    *exits("14:02:29", TRAINER, WRAPPER),
    verifying("14:02:29", "checkpoint"),
    saved("14:02:31"),
    verifying("14:02:31", "gpus"),
    released("14:02:36"),
    verifying("14:02:36", "above"),
    *finished(
        "14:02:36", "stopped", checkpoint=kept(), signals=(record(),), seconds=25.2,
        cost=r.Cost(1, 1), verdict="gone", evidence=("no process of the family is left",),
    ),
]  # fmt: skip

DEAF_GRACEFUL: list[e.AnyEvent] = [
    started(),
    located(**DEAF),
    skipped("14:02:11", "INT", "ignored", DEAF_INT),
    skipped("14:02:11", "TERM", "fatal", DEAF_TERM),
    *finished("14:02:12", "still_running", verdict="deaf", seconds=1.2),
]

DEAF_REGULAR: list[e.AnyEvent] = [
    started(),
    located(checkpoint=REGULAR, **DEAF),
    *DEAF_GRACEFUL[2:],
]

DEAF_NAMED: list[e.AnyEvent] = [started(inventory="lab/my fleet.yaml"), *DEAF_GRACEFUL[1:]]

DEAF_FORCE: list[e.AnyEvent] = [
    started(),
    located(graceful=False, **DEAF),
    skipped("14:02:11", "INT", "ignored", DEAF_INT),
    sent("14:02:11", "TERM", "fatal", wait_s=120.0),
    *exits("14:02:12", TRAINER, WRAPPER),
    verifying("14:02:12", "checkpoint"),
    e.Finding(at=at("14:02:14"), target=T, text=ENDED),
    released("14:02:14"),
    verifying("14:02:14", "above"),
    *finished(
        "14:02:14", "stopped", signals=(record("TERM", "fatal"),), seconds=3.4, findings=(ENDED,),
    ),
]  # fmt: skip
# a checkpoint is newer than the signal, but the signal let nobody write one
KILLED: list[e.AnyEvent] = [
    started(),
    located(graceful=False),
    sent("14:02:11"),
    sent("14:05:11", "KILL", "fatal", to="tree", pids=(26978, 26982), wait_s=30.0),
    *exits("14:05:12", TRAINER, WRAPPER),
    *finished(
        "14:05:14", "stopped", signals=(record(), record("KILL", "fatal")), seconds=183.4,
        checkpoint=kept(new=True),
    ),
]  # fmt: skip

SLOW: list[e.AnyEvent] = [
    started(),
    located(),
    sent("14:02:11"),
    held("14:02:14", "stopping", "CPU 103 %", "memory +6.2 GiB"),
    held("14:02:40", "stopping", "CPU 99 %", "memory +14.9 GiB"),
    held("14:02:52", "saving", "step_41212.tmp open by 26982", "4.1 GiB", "+126 MiB/s"),
    held("14:03:20", "saving", "step_41212.tmp open by 26982", "7.9 GiB", "+130 MiB/s"),
    held("14:05:11", "saving", "21.4 GiB of about 24.6 (size of step_41000)", over=True),
    held("14:05:21", "saving", "22.9 GiB of about 24.6 (size of step_41000)", over=True),
    saved("14:05:38", 24.6),
    *exits("14:05:40", TRAINER, WRAPPER),
    released("14:05:47", 6.0),
    *finished("14:05:47", "stopped", checkpoint=kept(), signals=(record(),), seconds=216.0),
]

OPEN = "step_41212.tmp open for writing by 26982"
MEASURED: list[e.AnyEvent] = [
    *SLOW[:3],
    held("14:02:14", "stopping", "CPU 103 %", "memory +6.2 GiB"),
    held("14:02:52", "saving", f"{OPEN}, 4.1 GiB of about 24.6 GiB (size of step_41000), growing"),
    held(
        "14:02:53", "saving",
        f"{OPEN}, 4.2 GiB of about 24.6 GiB (size of step_41000), about 166 s left, growing",
    ),
    held("14:02:54", "saving", f"{OPEN}, 4.2 GiB of about 24.6 GiB (size of step_41000)"),
    held(
        "14:05:11", "saving",
        f"{OPEN}, 21.4 GiB of about 24.6 GiB (size of step_41000), about 26 s left, growing",
        over=True,
    ),
    *SLOW[9:],
]  # fmt: skip

REFUSED: list[e.AnyEvent] = [
    started(),
    located(graceful=False, **DEAF),
    skipped("14:02:11", "INT", "ignored", DEAF_INT),
    skipped("14:02:11", "TERM", "fatal", NEEDS_FORCE),
    *finished(
        "14:02:12", "refused", verdict="deaf", seconds=1.2,
        reason="what is left may lose work and nobody has agreed to it",
        skipped=(r.SkippedRecord("INT", DEAF_INT), r.SkippedRecord("TERM", NEEDS_FORCE)),
    ),
]  # fmt: skip

AMBIGUOUS: list[e.AnyEvent] = [
    started(),
    *finished(
        "14:02:12", "refused", reason="2 unrelated trees match train.py in container 200",
        evidence=(
            "26978 bash /root/run.sh > 26982 python3 -u train.py, up 3d 4h",
            "31002 python3 train.py --eval, up 12m",
        ),
        hint="fleetstop stop root@10.1.2.6/200 --pid 26982",
    ),
]  # fmt: skip

UNREACHABLE: list[e.AnyEvent] = [
    started(),
    *finished(
        "14:02:20", "unreachable", reason="pve1: login refused for root",
        evidence=("pve1: login refused for root",),
        hint="ssh-copy-id root@pve1",
    ),
]  # fmt: skip

LOST: list[e.AnyEvent] = [
    started(),
    located(),
    sent("14:02:11"),
    *finished(
        "14:03:20", "unreachable", reason="pve1: the connection was lost and does not come back",
        signals=(record(),), hint="fleetstop status ct200",
    ),
]  # fmt: skip


RECONNECTED: list[e.AnyEvent] = [
    *POLITE[:6],
    e.Reconnected(at=at("14:02:24"), target=T, host="pve1", seconds=2.4),
    *POLITE[7:],
]

TIMED_OUT: list[e.AnyEvent] = [
    started(),
    located(),
    sent("14:02:11"),
    held("14:02:14", "saving", "step_41212.tmp 2.1 GiB, growing"),
    *finished(
        "14:03:10", "still_running", verdict="saving", seconds=60.0, signals=(record(),),
        reason="the --timeout of 60 s is over: no longer watched, nothing more is sent; "
        "the job may still finish",
        hint="run the same command again: it watches on and repeats nothing",
    ),
]  # fmt: skip

BROKE = (
    "broke the lock of ann@desk (run 27c244bb, since 95 s ago); "
    "what it sends in the next 10 s counts"
)
LOCK_BROKEN: list[e.AnyEvent] = [
    started(),
    e.Finding(at=at("14:02:11"), target=T, text=BROKE),
    located(),
    e.WatchedOn(
        at=at("14:02:21"), target=T, signal="INT", pids=(26982,), by_run="27c244bb", ago_s=104.0,
        wait_s=180.0,
    ),
    *exits("14:02:29", TRAINER, WRAPPER),
    saved("14:02:31"),
    *finished("14:02:36", "stopped", checkpoint=kept(), seconds=25.2, findings=(BROKE,)),
]  # fmt: skip

LOCK_TAKEN: list[e.AnyEvent] = [
    started(),
    located(),
    sent("14:02:11"),
    *finished(
        "14:05:11", "still_running", verdict="busy", seconds=180.0, signals=(record(),),
        reason="run 9b1d00c2 has taken the lock over; nothing more is sent",
        hint="it is up to bob@laptop now",
    ),
]  # fmt: skip


def unclean(
    reason: str, *evidence: str, checkpoint: bool = False, **facts: Any
) -> list[e.AnyEvent]:
    return [
        started(),
        located(),
        sent("14:02:11"),
        *exits("14:02:14", TRAINER),
        *finished(
            "14:02:44", "unclean", reason=reason, evidence=evidence, seconds=33.0,
            signals=(record(),), checkpoint=kept() if checkpoint else None,
            hint="fleetstop status ct200", **facts,
        ),
    ]  # fmt: skip


NOT_RUNNING: list[e.AnyEvent] = [
    started(),
    *finished(
        "14:02:11", "not_running",
        reason="nothing in container 200 runs train_dflash_pipeline.py", seconds=0.6,
    ),
]  # fmt: skip

INTERRUPTED: list[e.AnyEvent] = [
    started(),
    located(),
    sent("14:02:11"),
    e.Interrupted(at=at("14:02:19"), target=T, sent=("INT to 26982",), running=(26978, 26982)),
    *finished(
        "14:02:19", "still_running", signals=(record(),), family=FAMILY, interrupted=True,
        seconds=8.0,
    ),
]  # fmt: skip

AGAIN: list[e.AnyEvent] = [
    started(),
    located(verdict="saving", evidence=("step_41212.tmp 4.1 GiB, growing",)),
    e.WatchedOn(
        at=at("14:02:40"), target=T, signal="INT", pids=(26982,), by_run="7f3a", ago_s=29.0,
        wait_s=151.0,
    ),
    *exits("14:02:50", TRAINER, WRAPPER),
    saved("14:02:51"),
    released("14:02:52"),
    verifying("14:02:53", "above"),
    *finished("14:02:52", "stopped", checkpoint=kept(), seconds=12.0),
]  # fmt: skip

RUNS_ON: list[e.AnyEvent] = [
    *AGAIN[:3],
    skipped("14:05:12", "TERM", "fatal", DEAF_TERM),
    *finished(
        "14:05:12", "still_running", verdict="busy", seconds=152.0,
        reason="it still runs after every rung that could be climbed",
        skipped=(r.SkippedRecord("TERM", DEAF_TERM),),
    ),
]  # fmt: skip


UNIT_ABOVE = r.AboveRecord(
    pid=None, kind="systemd", cmd="train.service (Restart=always, after 2 s)",
    will="starts it again however it ends, but for `systemctl stop`; `systemctl stop` would send "
    "TERM to all of it, and KILL after 90 s",
    again="always",
)  # fmt: skip
IN_VAIN = (
    "no handler; it would end the job at once, unsaved. But systemd unit train.service "
    "(Restart=always, after 2 s) would start it again: `systemctl stop train.service` comes first "
    "(playbook systemd does that)"
)
KILL_IN_VAIN = IN_VAIN.replace(
    "no handler; it would end the job at once, unsaved.", "it ends the job at once, unsaved."
)
BROUGHT_BACK: list[e.AnyEvent] = [
    started(),
    located(above=(UNIT_ABOVE,), graceful=False),
    sent("14:02:11"),
    skipped("14:05:12", "TERM", "fatal", IN_VAIN),
    skipped("14:05:12", "KILL", "fatal", KILL_IN_VAIN),
    *finished(
        "14:05:12", "still_running", verdict="busy", seconds=182.0,
        reason="it still runs after every rung that could be climbed", signals=(record(),),
        skipped=(r.SkippedRecord("TERM", IN_VAIN), r.SkippedRecord("KILL", KILL_IN_VAIN)),
    ),
]  # fmt: skip
LEFT = (member(27101, "worker", "python3 train.py"), member(27102, "worker", "python3 train.py"))
LEFT_SAID = "27101, 27102 were forked by a trainer that has ended, and left behind"
LEFT_BEHIND: list[e.AnyEvent] = [
    started(),
    located(family=LEFT, graceful=False),
    e.Finding(at=at("14:02:10"), target=T, text=f"{LEFT_SAID}; no trainer runs"),
    *finished(
        "14:02:26", "unclean", verdict="busy", seconds=16.0, findings=(),
        reason="the trainers ended, but worker 27101, worker 27102 still run",
    ),
]  # fmt: skip


def step(signal: str, would: Any, landing: str, **changes: Any) -> r.PlannedStep:
    facts: dict[str, Any] = {
        "to": "trainers", "pids": (26982,), "reason": "", "wait_s": 180.0,
    }  # fmt: skip
    return r.PlannedStep(signal=signal, would=would, landing=landing, **(facts | changes))


NO_SEND = "nothing on this ladder would be sent"


def dry(found: e.Located, *steps: r.PlannedStep) -> list[e.AnyEvent]:
    sends = any(each.would != "skip" for each in steps)
    return [
        started(),
        found,
        e.Planned(at=at("14:02:11"), target=T, steps=steps),
        *finished("14:02:11", "planned", plan=steps, reason=None if sends else NO_SEND),
    ]  # fmt: skip


DRY_POLITE = dry(
    located(dry_run=True, graceful=False),
    step("INT", "send", "heard"),
    step("TERM", "send_if", "fatal", wait_s=120.0, reason="if it still runs by then"),
    step(
        "KILL", "send_if", "fatal", to="tree", pids=(26978, 26982), wait_s=30.0,
        reason="if it still runs by then",
    ),
)  # fmt: skip
DRY_DEAF = dry(
    located(dry_run=True, **DEAF),
    step("INT", "skip", "ignored", reason=DEAF_INT),
    step("TERM", "skip", "fatal", reason=DEAF_TERM),
    step("KILL", "skip", "fatal", to="tree", reason="it ends the job at once, unsaved."),
)
DRY_AGAIN = dry(
    located(dry_run=True),
    step("INT", "skip", "heard", reason="run 7f3a sent it 9 s ago; watched on"),
    step("TERM", "skip", "fatal", reason=DEAF_TERM),
)

HOSTILE_TRAINER = member(
    26982,
    "trainer",
    "python3 \x1b]0;owned\x07\x1b[2J\u202egnp.py --token hf_Zq9xW3vK7pLm2RtY [bold]x[/bold]\nct",
)
HOSTILE_WRAPPER = member(26978, "wrapper", "bash \x1b[31mrun.sh\r")
FORGED = "\x1b[1A\x1b[2Kct200:train stopped.\x9b31m [red]x[/red]"
HOSTILE_EVENTS: list[e.AnyEvent] = [
    started(),
    located(
        family=(HOSTILE_WRAPPER, HOSTILE_TRAINER),
        log=e.LogSeen("/w/\x1b[Ha.log", 1.0, FORGED),
        checkpoint=e.CheckpointSeen("/w/\u202ea", "st\u202eep\n", 60.0, None, None),
    ),
    sent("14:02:11"),
    held("14:02:14", "saving", "\x1b[5mstep.tmp\u2028 1 GiB"),
    *exits("14:02:29", HOSTILE_TRAINER, HOSTILE_WRAPPER),
    e.Finding(at=at("14:02:30"), target=T, text="API_KEY=Zq9xW3vK7pLm2RtY \x1b[2J [link=x]"),
    *finished(
        "14:02:44", "unclean", reason="\x1b[32mall good\x1b[0m\nct200:train stopped.", seconds=33.0,
        evidence=("\udcff held by 31 \x07",), hint="fleetstop status ct200",
    ),
]  # fmt: skip

FAULT: list[e.AnyEvent] = [
    started(),
    e.Fault(at=at("14:02:11"), target=T, error="KeyError: 'x'", traceback_path="/tmp/7f3a.log"),
    *finished("14:02:11", "fault", reason="KeyError: 'x'"),
]
RANK_FAMILY = (
    member(100, "launcher", "torchrun --nproc 8 train.py"),
    *(member(101 + n, "trainer", "python3 train.py") for n in range(8)),
    *(member(201 + n, "worker", "python3 train.py") for n in range(16)),
)
RANKS: list[e.AnyEvent] = [
    started(),
    located(family=RANK_FAMILY),
    sent("14:02:11", pids=tuple(range(101, 109)), continued=True),
    held("14:02:14", "unseen", "the checkpoint directory gives no answer"),
    *exits("14:02:29", *RANK_FAMILY[1:], RANK_FAMILY[0]),
    *finished("14:02:30", "stopped", checkpoint=kept(), seconds=20.0),
]


def many() -> list[e.AnyEvent]:
    names = ("ct200:train", "ct201:train", "box7:eval")
    ends = [
        outcome("stopped", checkpoint=kept(), seconds=25.0),
        outcome("stopped", target=names[1], seconds=3.0),
        outcome("still_running", target=names[2], verdict="busy", seconds=2.0, job="eval"),
    ]
    return [
        started("stop", *names, asked=("@training",)),
        located(),
        located(target=names[1], host="pve2"),
        sent("14:02:11"),
        sent("14:02:11", target=names[1]),
        *exits("14:02:29", TRAINER, WRAPPER),
        *(
            e.TargetFinished(at=at("14:02:36"), target=each.target, outcome=each)
            for each in ends
        ),
        r.report("7f3a", ends),
    ]  # fmt: skip


# what stands above

LOOP = r.AboveRecord(
    26978, "loop", "bash /root/run.sh", "starts it again whatever it returns (while true)", "always"
)
TMUX = r.AboveRecord(
    412, "tmux", "tmux new -s job",
    "closes the pane when it ends, or keeps it with remain-on-exit; starts nothing",
)  # fmt: skip
UNIT = r.AboveRecord(
    None, "systemd", "train.service (Restart=always, after 5 s)",
    "starts it again however it ends, but for `systemctl stop`; `systemctl stop` would send TERM"
    " to all of it, and KILL after 90 s", "always",
)  # fmt: skip
UNREAD = r.AboveRecord(
    31, "supervisord", "python3 /usr/bin/supervisord -n",
    "may start it again: its configuration could not be read", "unknown",
)  # fmt: skip
TORCHRUN = member(26979, "launcher", "torchrun --nproc_per_node 2 train.py")
FOUR = (TORCHRUN, *(member(26982 + n, "trainer", "python3 -u train.py") for n in range(2)))
LAUNCHER = r.AboveRecord(
    26979, "launcher", TORCHRUN.cmd,
    "TERMs the other ranks as soon as one exits non-zero, and KILLs them 30 s later",
)  # fmt: skip
PROMISE = (
    "ranks: rank0_saves: the signal goes to torchrun 26979 alone, which KILLs its ranks 30 s later:"
    " rank 0 must have saved by then"
)
ABOVE_LAUNCHER: list[e.AnyEvent] = [
    started(),
    located(family=FOUR, above=(LAUNCHER,)),
    e.Finding(at=at("14:02:10"), target=T, text=PROMISE),
    sent("14:02:11", pids=(26979,)),
    *exits("14:02:29", *FOUR),
    *finished("14:02:31", "stopped", signals=(record(),), findings=(PROMISE,), seconds=21.0),
]
RETURNED = (
    "respawned: the job runs again as 27001; 26978 bash /root/run.sh starts it again whatever it"
    " returns (while true)"
)
ABOVE_RESPAWNED: list[e.AnyEvent] = [
    started(),
    located(above=(LOOP,)),
    sent("14:02:11"),
    *exits("14:02:29", TRAINER),
    *finished(
        "14:02:46", "unclean", verdict="respawned", reason=RETURNED, signals=(record(),),
        evidence=("26982 is gone",), seconds=35.0,
    ),
]  # fmt: skip
