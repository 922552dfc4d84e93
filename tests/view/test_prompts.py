"""Where the cursor stands while a question is open, and what happens to it meanwhile."""

from __future__ import annotations

import io
from datetime import UTC

import msgspec
import pytest

from fleetstop import events as e
from fleetstop.core import report as r
from fleetstop.view.lines import Lines
from fleetstop.view.waiting import Waiting
from tests.view import questions as q
from tests.view import scenes as s

PROMPT = "send TERM? [y/N] "


def told(*story: e.AnyEvent) -> str:
    out = io.StringIO()
    lines = Lines(out, zone=UTC)
    for event in story:
        lines(event)
    lines.flush()
    return out.getvalue()


def test_the_cursor_stands_behind_the_prompt() -> None:
    assert told(s.started(), q.asked("14:02:11")).endswith(PROMPT)


def test_what_another_target_tells_stands_above_the_prompt() -> None:
    other = msgspec.structs.replace(s.sent("14:02:12"), target="ct201:train")
    text = told(s.started("stop", s.T, "ct201:train"), q.asked("14:02:11"), other)
    assert text.endswith(PROMPT)
    assert text.count(PROMPT) == 2
    assert f"{PROMPT}\n14:02:12" in text


@pytest.mark.parametrize(
    "end",
    [
        q.answered("14:02:19", "withdrawn", "the job has ended"),
        e.Interrupted(at=s.at("14:02:19"), target=s.T, sent=(), running=(26982,)),
        *s.finished("14:02:19", "unreachable", reason="gone"),
    ],
)
def test_whatever_ends_it_begins_on_a_line_of_its_own(end: e.AnyEvent) -> None:
    text = told(s.started(), q.asked("14:02:11"), end)
    assert f"{PROMPT}\n" in text
    assert text.count(PROMPT) == 1


def test_a_typed_answer_has_ended_the_line_itself() -> None:
    text = told(s.started(), q.asked("14:02:11"), q.answered("14:02:19", "yes"))
    assert f"{PROMPT}14:02:19" in text  # the terminal has echoed the Enter in between


def test_the_end_of_another_target_leaves_the_prompt_open() -> None:
    end = s.outcome("stopped", target="ct201:train")
    finished = e.TargetFinished(at=s.at("14:02:19"), target="ct201:train", outcome=end)
    text = told(s.started("stop", s.T, "ct201:train"), q.asked("14:02:11"), finished)
    assert text.endswith(PROMPT)


def test_hostile_words_in_a_question_are_harmless() -> None:
    risk = msgspec.structs.replace(q.RISK, name="a\x1b[31mb\n.pt")
    text = told(
        s.started(), q.asked("14:02:11", risk=risk, reason="x\x1b]0;t\x07", saves=("\x9b",))
    )
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "\x9b" not in text


def test_the_bottom_line_says_what_is_waited_for() -> None:
    waiting = Waiting()
    waiting.observe(s.started(), 0.0)
    waiting.observe(q.AFTER[2], 1.0)
    assert waiting.line(61.0) == "waiting for the next complete checkpoint, 1 min of 2h"
    waiting.observe(q.AFTER[3], 62.0)
    assert waiting.line(62.0).startswith("looking")


def test_a_plan_tells_asks_and_waits() -> None:
    steps = (
        r.PlannedStep("AWAIT", "trainers", (), "unseen", "wait", "", 7200.0),
        r.PlannedStep("TOUCH", "trainers", (26982,), "asked", "send_if",
            "if it still runs by then", 60.0, "/workspace/STOP"),
        r.PlannedStep("RUN", "trainers", (26982,), "asked", "send_if",
            "if it still runs by then and is deaf", None, "/root/save.sh"),
    )  # fmt: skip
    text = told(
        s.started(),
        s.located(graceful=False, dry_run=True),
        e.Planned(at=s.at("14:02:11"), target=s.T, steps=steps),
    )
    plan = text[text.index("  plan") :].splitlines()
    assert plan == [
        "  plan        wait up to 2h for the next complete checkpoint",
        "              then, if still running: touching /workspace/STOP for 26982, wait up to 1m",
        "              then, if still running: running /root/save.sh for 26982, wait as long as it "
        "takes; only if",
        "              it is deaf",
    ]


def test_more_than_since_its_start_would_not_be_lost() -> None:
    young = msgspec.structs.replace(q.RISK, job_s=240.0)
    text = told(s.started(), q.asked("14:02:11", risk=young))
    assert "about 4 min, all since its start: step_41000 is 18 min old" in " ".join(text.split())
    old = msgspec.structs.replace(q.RISK, job_s=86400.0)
    text = told(s.started(), q.asked("14:02:11", risk=old))
    assert "about 18 min since step_41000" in " ".join(text.split())


def test_a_checkpoint_from_before_the_job_is_called_so() -> None:
    text = told(s.started("status"), s.located(up_s=240.0, checkpoint=s.REGULAR))
    assert "; from before this job's start" in " ".join(text.split())
    text = told(s.started("status"), s.located(checkpoint=s.REGULAR))
    assert "from before" not in text
