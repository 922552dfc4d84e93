"""Screens of wait, explain, history and stacks, as their golden files have them."""

from __future__ import annotations

import io
from datetime import UTC
from typing import Any

import pytest

from fleetstop import events as e
from fleetstop.core import glossary
from fleetstop.core import report as r
from fleetstop.view import explaining, past
from fleetstop.view.layout import WIDTH, Line, fold, painted
from fleetstop.view.lines import Lines
from fleetstop.view.table import StatusTable
from fleetstop.view.waiting import Waiting
from tests.core.test_redact import controls
from tests.view import scenes as s
from tests.view.test_screens import same


def waiting(what: Any = "gone", limit_s: float | None = 1800.0) -> e.Waiting:
    return e.Waiting(at=s.at("14:02:11"), target=s.T, what=what, limit_s=limit_s)


def wait(*told: e.AnyEvent) -> list[e.AnyEvent]:
    return [s.started("wait"), s.located(playbook=None, graceful=False), *told]


LEFT = "not_reached: the trainers ended, but 26978 bash /root/run.sh is left"
BACK = "the job runs again as 31002; waiting on"
WAITS: dict[str, list[e.AnyEvent]] = {
    "wait_gone": wait(
        waiting(),
        *s.exits("14:09:40", s.TRAINER, s.WRAPPER),
        *s.finished(
            "14:09:41", "not_running", reason="it is gone, and nothing came back", seconds=450.0,
            verdict="gone",
        ),
    ),
    "wait_checkpoint": wait(
        waiting("checkpoint", None),
        *s.finished(
            "14:20:11", "running", reason="step_41500 is new and complete", seconds=1081.0,
            verdict="busy",
        ),
    ),
    "wait_late": wait(
        waiting(),
        *s.finished(
            "14:32:11", "still_running", reason="it is not gone", seconds=1800.4, verdict="busy"
        ),
    ),
    "wait_left": wait(
        waiting(),
        *s.exits("14:09:40", s.TRAINER),
        e.Finding(at=s.at("14:11:02"), target=s.T, text=BACK),
        *s.finished("14:32:11", "unclean", reason=LEFT, seconds=1800.4, findings=(BACK,)),
    ),
    "wait_unreachable": wait(
        waiting("gpu-free"),
        *s.finished(
            "14:32:11", "unreachable", verdict="unknown", seconds=1800.4,
            reason="whether the GPUs are free cannot be seen: nvidia-smi did not answer within "
            "8 s; it may hang in the driver",
        ),
    ),
    "wait_interrupted": wait(
        waiting(),
        e.Interrupted(at=s.at("14:03:00"), target=s.T, sent=(), running=(26982, 26978)),
        *s.finished("14:03:00", "still_running", reason="interrupted", interrupted=True,
                    family=s.FAMILY),
    ),
}  # fmt: skip


def plain(lines: list[Line]) -> str:
    return "".join(painted(part, False) + "\n" for each in lines for part in fold(each, WIDTH))


@pytest.mark.parametrize("name", WAITS)
def test_a_wait_looks_as_agreed(name: str) -> None:
    out = io.StringIO()
    with Lines(out, zone=UTC) as lines:
        for event in WAITS[name]:
            lines(event)
    assert "--force" not in out.getvalue()
    same(name, out.getvalue())


def test_the_bottom_line_tells_what_is_waited_for_and_how_long_already() -> None:
    bottom = Waiting()
    bottom.observe(s.started("wait"), 0.0)
    bottom.observe(waiting("gpu-free"), 1.0)
    assert bottom.line(6.0) == "waiting until its GPUs are free, 5 s of 30m"


def test_explain_looks_as_agreed() -> None:
    for word in ("deaf", "fatal", "unclean", "6", "gone"):
        found = [line for each in glossary.explain(word) for line in explaining.meaning(each)]
        same(f"explain_{word}", plain(found))
    same("explain", plain(explaining.words(glossary.ALL)))


ROWS: tuple[tuple[Any, ...], ...] = (
    ("7f3a11c2", s.at("14:02:10"), "stop", (s.T,), {s.T: "stopped"}, "ended", 0),
    ("09bb2e71", s.at("13:40:00"), "stop", (s.T,), {}, "interrupted", None),
    ("5c01aa9e", s.at("13:39:00"), "stop", (s.T,), {s.T: "interrupted"}, "interrupted", 130),
    ("e4d00b13", s.at("13:00:00"), "stop", (s.T, "ct201:train", "box7:eval"),
     {s.T: "stopped", "ct201:train": "stopped", "box7:eval": "unreachable"}, "ended", 4),
    ("aa10c3d4", s.at("12:00:00"), "status", (s.T,), {s.T: "running"}, "ended", 0),
    ("b0b0b0b0", s.at("14:03:00"), "wait", ("box7:eval",), {}, "running", None),
    ("00000001", None, None, (), {}, "interrupted", None),
)  # fmt: skip


def test_the_list_of_runs_looks_as_agreed() -> None:
    rows = [past.row(*each, zone=UTC) for each in ROWS]
    same("history", "\n".join(past.table(rows)) + "\n")
    assert past.table([]) == ["no runs yet"]
    assert past.table([], "ct9") == ["no runs with ct9"]


def process(member: r.Member, **changes: Any) -> e.SeenProcess:
    facts: dict[str, Any] = {
        "pid": member.pid, "host_pid": member.host_pid, "start": member.start,
        "role": member.role, "cmd": member.cmd, "verdict": "deaf", "state": "R", "ppid": 26978,
        "threads": 214, "rss_kib": 1000, "pending": "0" * 16, "blocked": "0" * 16,
        "ignored": "0000000001001007", "caught": "0" * 16,
    }  # fmt: skip
    return e.SeenProcess(**(facts | changes))


BOX = e.BlackBox(
    at=s.at("14:02:11"),
    target=s.T,
    before="TERM",
    processes=(
        e.Boxed(
            process(s.WRAPPER, state="S", threads=1),
            "do_wait",
            (e.Opened(0, "/dev/null", "0", 0), e.Opened(255, "/root/run.sh", "0", 90)),
        ),
        e.Boxed(
            process(s.TRAINER),
            "0",
            tuple(e.Opened(n, f"/workspace/shard{n}.bin", "0", 0) for n in range(3, 14)),
            ('Thread 26982 (active): "MainThread"', "    compute (train.py:245)"),
        ),
        e.Boxed(process(s.member(27001, "worker", "pt_data_worker"), state=None), None, None),
    ),
    log=("step 41209 loss 1.84 14.0K tok/s", "step 41210 loss 1.83 14.0K tok/s", ""),
    nvidia_smi=("0, GPU-0, 61, 78336, 98304", "GPU-0, 1826982, 78336"),
    seconds=0.31,
    missing=("the log's end: \x1b[2Jhostile",),
)


def test_a_past_stop_is_told_again_with_its_black_box() -> None:
    out = io.StringIO()
    out.write(plain(past.title("7f3a", s.started(), "0.1.0", "ended", UTC)))
    past.replay(s.DEAF_FORCE[:-1], s.DEAF_FORCE[-1], out, zone=UTC)  # type: ignore[arg-type]
    out.write(plain(past.black_box(BOX, UTC)))
    assert controls(out.getvalue().replace("\n", "")) == []
    same("history_show_forced", out.getvalue())


def test_a_past_polite_stop_is_the_screen_it_was() -> None:
    told, again = io.StringIO(), io.StringIO()
    with Lines(told, zone=UTC) as lines:
        for event in s.POLITE:
            lines(event)
    past.replay(s.POLITE[:-1], s.POLITE[-1], again, zone=UTC)  # type: ignore[arg-type]
    assert again.getvalue() == told.getvalue()


def test_a_run_whose_client_went_away() -> None:
    out = io.StringIO()
    out.write(plain(past.title("09bb2e71", s.started(), "0.1.0", "interrupted", UTC)))
    past.replay(s.POLITE[:6], None, out, zone=UTC)
    out.write(plain([past.unfinished(s.at("14:02:14"), UTC)]))
    same("history_show_interrupted", out.getvalue())
    assert past.title("1", None, "0", "interrupted")[0].text.endswith(
        "nothing is left of its beginning"
    )
    assert "still under way" in past.title("1", s.started(), "0", "running")[1].text


def test_a_status_with_stacks_looks_as_agreed() -> None:
    frames = ('Thread 26982 (active+gil): "MainThread"', "    compute (train.py:245)")
    stacks = (
        r.Stack(26982, (*frames, "    <module> (train.py:279)")),
        r.Stack(26990, (), "py-spy did not answer within 10 s"),
    )
    story = [s.started("status"), s.located(), *s.finished("14:02:12", "running", stacks=stacks)]
    out = io.StringIO()
    table = StatusTable(out)
    for event in story:
        table(event)
    same("status_stacks", out.getvalue())
