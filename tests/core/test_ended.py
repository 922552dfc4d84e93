"""What the supervisor recorded of a trainer's end, told."""

from __future__ import annotations

import json

import pytest

from fleetstop.core.launching.ended import Record, last_death, lived_s, parse_record, way, way_of

NOW = "2026-03-04T17:02:29.500+00:00"
DEAD = "2026-03-04T14:02:29.500+00:00"


def test_a_state_file_of_the_supervisor_is_read() -> None:
    text = json.dumps(
        {
            "schema": 1, "mark": "7f3a", "supervisor": {"pid": 40, "start": 900},
            "trainer": {"pid": 42, "start": 901}, "started_at": "2026-03-04T14:00:00.000+00:00",
            "ended_at": DEAD, "exit": None, "signal": "KILL", "failed": None,
        }
    )  # fmt: skip
    record = parse_record(text)
    assert record is not None
    assert (record.trainer and record.trainer.pid, way(record)) == (42, "killed by KILL")
    assert lived_s(record) == 149.5
    assert parse_record("") is None
    assert parse_record('{"mark": 3}') is None


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"signal": "KILL"}, "the last run ended by KILL at 2026-03-04 14:02:29 UTC, 3 h ago"),
        ({"exit": 1}, "the last run ended with exit 1 at 2026-03-04 14:02:29 UTC, 3 h ago"),
        ({"exit": 0}, None),
        ({"exit": 130}, None),
        ({"signal": "INT"}, None),
        ({}, None),
    ],
)
def test_only_a_death_that_asks_for_an_explanation_is_told(
    facts: dict[str, object], said: str | None
) -> None:
    record = Record(mark="m", ended_at=DEAD, **facts)  # type: ignore[arg-type]
    assert last_death(record, NOW) == said


def test_one_that_runs_has_not_died_and_odd_clocks_tell_no_age() -> None:
    assert last_death(Record(mark="m", signal="KILL"), NOW) is None
    assert last_death(None, NOW) is None
    record = Record(mark="m", ended_at=NOW, signal="SEGV")
    assert last_death(record, DEAD) == "the last run ended by SEGV at 2026-03-04 17:02:29 UTC"
    assert last_death(record, "no time") == last_death(record, DEAD)


RUN_SH, ENDED = ("/bin/bash", "run.sh", "--gpus", "0"), Record(mark="m", ended_at=DEAD, exit=0)


def test_a_wrappers_0_is_not_told_as_its_trainers() -> None:
    """run.sh ends with an echo: a person would read 0 as success."""
    lines = ("Traceback", "train.py: error: unrecognized arguments: --lr  ", "")
    assert way_of(RUN_SH, ENDED, lines) == (
        "exit 0, its trainer's own end is not known; last line: "
        '"train.py: error: unrecognized arguments: --lr"'
    )
    assert way_of(("/root/run.sh",), ENDED) == "exit 0, its trainer's own end is not known"
    assert way_of(("python3", "train.py"), ENDED) == "exit 0"
    told = way_of(RUN_SH, ENDED, ("HF_TOKEN=hf_AbCdEf123456 " + "x" * 500,))
    assert "hf_AbC" not in told
    assert len(told) < 220


def test_an_end_is_told_with_the_last_line_of_the_log_and_a_wrappers_as_its_own() -> None:
    """`exit 1` says nothing of why; the trainer's last line does."""
    lines = ("Traceback", "KeyError: 'lr'", " ")
    last = "; last line: \"KeyError: 'lr'\""
    two = Record(mark="m", ended_at=DEAD, exit=2)
    assert way_of(("python3", "train.py"), two, lines) == f"exit 2{last}"
    assert way_of(RUN_SH, two, lines) == f"exit 2 (the wrapper's){last}"
    assert way_of(RUN_SH, two) == "exit 2 (the wrapper's)"
    fell = Record(mark="m", ended_at=DEAD, signal="SEGV")
    assert way_of(RUN_SH, fell, lines) == f"killed by SEGV{last}"
    never = Record(mark="m", ended_at=DEAD, failed="cannot run it")
    assert way_of(RUN_SH, never, lines) == "cannot run it"
