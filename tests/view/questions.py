"""Runs with a question, or with rungs that are no signal, built by hand for the screens."""

from __future__ import annotations

from typing import Any

from fleetstop import events as e
from fleetstop.core import report as r
from fleetstop.core.saves.risk import AtRisk
from tests.view import scenes as s

RISK = AtRisk("step_41000", 18 * 60.0, 26_000_000_000, known_format=True, ours=True)
NO = f"{s.DEAF_TERM} The answer was no."
NO_KILL = "it ends the job at once, unsaved. The answer was no."


def asked(clock: str, **changes: Any) -> e.Asked:
    facts: dict[str, Any] = {
        "at": s.at(clock), "target": s.T, "about": "consent", "signal": "TERM", "to": "trainers",
        "pids": (26982,), "landing": "fatal", "reason": s.DEAF_TERM, "verdict": "deaf",
        "saves": (), "risk": RISK, "beyond": ("KILL",),
    }  # fmt: skip
    return e.Asked(**(facts | changes))


def answered(clock: str, answer: str, reason: str | None = None) -> e.Answered:
    return e.Answered(at=s.at(clock), target=s.T, answer=answer, signal="TERM", reason=reason)


BEGUN: list[e.AnyEvent] = [
    s.started(),
    s.located(graceful=False, **s.DEAF),
    s.skipped("14:02:11", "INT", "ignored", s.DEAF_INT),
    asked("14:02:11"),
]
YES = [*BEGUN, answered("14:02:19", "yes"), *s.DEAF_FORCE[3:]]
REFUSED = [
    *BEGUN,
    answered("14:02:19", "no"),
    s.skipped("14:02:19", "TERM", "fatal", NO),
    s.skipped("14:02:19", "KILL", "fatal", NO_KILL),
    *s.finished("14:02:20", "still_running", verdict="deaf", seconds=9.2,
        skipped=(r.SkippedRecord("TERM", NO), r.SkippedRecord("KILL", NO_KILL))),
]  # fmt: skip
WITHDRAWN = [
    *BEGUN,
    answered("14:06:40", "withdrawn", "the job has ended"),
    *s.exits("14:06:40", s.TRAINER, s.WRAPPER),
    s.released("14:06:41"),
    s.verifying("14:06:41", "above"),
    *s.finished("14:06:41", "stopped", seconds=271.0, checkpoint=s.kept(False)),
]
SAVE_BEGAN = [
    *BEGUN,
    answered("14:02:30", "withdrawn", "a checkpoint is being written"),
    s.held("14:02:30", "saving", "step_41212.tmp open for writing by 26982, 2.1 GiB, growing"),
    asked("14:03:10", risk=AtRisk("step_41212", 2.0, 1, known_format=True, ours=True)),
]
DOUBTS: list[e.AnyEvent] = [
    s.started(),
    asked("14:02:11", risk=AtRisk("a.bin", None, 1), saves=("a.tmp growing",), verdict=None),
    answered("14:02:12", "withdrawn"),
    asked("14:02:12", risk=AtRisk(), to="tree", signal="KILL", pids=(26978, 26982), beyond=()),
    answered("14:02:13", "withdrawn"),
    asked("14:02:13", risk=None),
]
WHICH: list[e.AnyEvent] = [
    s.started(),
    asked(
        "14:02:11", about="stop_signal", signal="", landing="heard", verdict=None, risk=None,
        reason="both INT and TERM are heard; nobody has said which makes it save",
        choices=("INT", "TERM"),
    ),
    e.Answered(at=s.at("14:02:15"), target=s.T, answer="INT", signal="INT"),
]  # fmt: skip
AFTER: list[e.AnyEvent] = [
    s.started(),
    s.located(graceful=False, **s.DEAF),
    e.RungEntered(at=s.at("14:02:11"), target=s.T, rung=0, signal="AWAIT", to="trainers",
        wait_s=7200.0),
    e.CheckpointAwaited(at=s.at("14:14:02"), target=s.T, name="step_41400", age_s=1.2,
        waited_s=711.0),
    s.skipped("14:14:02", "INT", "ignored", s.DEAF_INT),
    s.sent("14:14:03", "TERM", "fatal", wait_s=120.0),
    *s.exits("14:14:03", s.TRAINER, s.WRAPPER),
]  # fmt: skip
NONE_CAME = [
    *AFTER[:3],
    e.CheckpointAwaited(at=s.at("16:02:11"), target=s.T, name=None, age_s=None, waited_s=7200.0),
    *s.finished("16:02:11", "still_running", verdict="deaf", seconds=7201.0,
        reason="no new complete checkpoint came within 2 h"),
]  # fmt: skip


def done(clock: str, signal: str, argument: str) -> e.SignalSent:
    return s.sent(clock, signal, "asked", argument=argument, wait_s=60.0)


ASKS: list[e.AnyEvent] = [
    s.started(),
    done("14:02:11", "TOUCH", "/workspace/STOP"),
    done("14:02:12", "RUN", "/root/save.sh --now"),
    e.CommandEnded(at=s.at("14:02:14"), target=s.T, how="0", line="saved step_41212"),
    e.CommandEnded(at=s.at("14:03:12"), target=s.T, how="late", line=""),
    done("14:03:13", "KEYS", "C-s Enter"),
]
SCREENS: dict[str, list[e.AnyEvent]] = {
    "question_open": BEGUN,
    "question_yes": YES,
    "question_no": REFUSED,
    "question_withdrawn": WITHDRAWN,
    "question_save_began": SAVE_BEGAN,
    "question_doubts": DOUBTS,
    "question_which_saves": WHICH,
    "stop_after_checkpoint": AFTER,
    "stop_none_came": NONE_CAME,
    "stop_asks": ASKS,
}
