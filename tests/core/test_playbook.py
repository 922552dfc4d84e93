from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetstop.core.playbook import (
    FOREVER,
    Hold,
    Rung,
    Verify,
    ladder_playbook,
    lossy_reason,
    parse_ladder,
)
from fleetstop.errors import BadUsage


@pytest.mark.parametrize(
    ("text", "rungs"),
    [
        (
            "INT/3m TERM/1m KILL:tree/30s",
            [("INT", "trainers", 180), ("TERM", "trainers", 60), ("KILL", "tree", 30)],
        ),
        (
            "INT/2 TERM/2 KILL:tree/5",
            [("INT", "trainers", 2), ("TERM", "trainers", 2), ("KILL", "tree", 5)],
        ),
        ("SIGUSR1:group/forever", [("USR1", "group", FOREVER)]),
        ("  int/1\n 15:wrapper/1 ", [("INT", "trainers", 1), ("TERM", "wrapper", 1)]),
        ("stop_signal/3m", [("stop_signal", "trainers", 180)]),
    ],
)
def test_a_ladder_in_short(text: str, rungs: list[tuple[str, str, float]]) -> None:
    assert [(rung.signal, rung.to, rung.wait_s) for rung in parse_ladder(text)] == rungs


def test_a_ladder_in_short_may_await_a_checkpoint() -> None:
    assert parse_ladder("INT/3m await:checkpoint/30m KILL:tree/30s") == (
        Rung("INT", "trainers", 180),
        Rung("", "trainers", 1800, does="await", argument="checkpoint"),
        Rung("KILL", "tree", 30),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "await/3m INT/3m",
            "--ladder: rung 1, 'await/3m': only a checkpoint can be awaited; "
            "write await:checkpoint/3m",
        ),
        (
            "await:chekpoint/3m INT/3m",
            "--ladder: rung 1, 'await:chekpoint/3m': only a checkpoint can be awaited; "
            "write await:checkpoint/3m",
        ),
        (
            "await:checkpoint INT/3m",
            "--ladder: rung 1, 'await:checkpoint': no wait; write 'await:checkpoint/3m'",
        ),
        (
            "await:checkpoint/3m",
            "--ladder: rung 1, 'await:checkpoint/3m': nothing on this ladder asks the job to stop",
        ),
        (
            "INT/3m await:checkpoint/30m",
            "--ladder: rung 2, 'await:checkpoint/30m': await is the last rung, so nothing follows "
            "the checkpoint and the job runs on; put below it what ends the job then, "
            "like {signal: KILL, to: tree, wait: 30s}",
        ),
        ("INT!/3m", "--ladder: rung 1, 'INT!/3m': unknown signal 'INT!', did you mean 'INT'?"),
        ("run:x/3m", "--ladder: rung 1, 'run:x/3m': unknown signal 'run'"),
        ("", "--ladder: there is no rung in it"),
        ("INT", "--ladder: rung 1, 'INT': no wait; write 'INT/3m'"),
        ("INT/", "--ladder: rung 1, 'INT/': no wait; write 'INT/3m'"),
        (
            "INT/2 TEMR/2",
            "--ladder: rung 2, 'TEMR/2': unknown signal 'TEMR', did you mean 'TERM'?",
        ),
        ("STOP/2", "--ladder: rung 1, 'STOP/2': unknown signal 'STOP'"),
        (
            "KILL:three/2",
            "--ladder: rung 1, 'KILL:three/2': "
            "a rung cannot be sent to 'three', did you mean 'tree'?",
        ),
        ("KILL:/2", "--ladder: rung 1, 'KILL:/2': a rung cannot be sent to ''"),
        (
            "INT/soon",
            "--ladder: rung 1, 'INT/soon': "
            "'soon' is not a duration; write 90s, 3m, 1h30m or forever",
        ),
        ("/3m", "--ladder: rung 1, '/3m': unknown signal ''"),
        (
            "I\x1b[NT/2",
            "--ladder: rung 1, 'I\\x1b[NT/2': unknown signal 'I\\x1b[NT', did you mean 'INT'?",
        ),
    ],
)
def test_a_ladder_that_is_wrong_says_where(text: str, message: str) -> None:
    with pytest.raises(BadUsage) as caught:
        parse_ladder(text)
    assert caught.value.message == message
    assert caught.value.hint == "a ladder is written like 'INT/3m TERM/1m KILL:tree/30s'"


def test_a_ladder_of_the_command_line_holds_and_verifies_as_graceful_does() -> None:
    playbook = ladder_playbook("INT/2")
    assert (playbook.name, playbook.lossless) == ("--ladder", False)
    assert playbook.hold == Hold(saving_s=1800, stopping_s=60)
    assert playbook.verify == Verify(checkpoint="new", gpus="released", within_s=30)


@pytest.mark.parametrize(
    ("rung", "lossy"),
    [
        (Rung("INT", "trainers", 1), False),
        (Rung("stop_signal", "trainers", 1), False),
        (Rung("KILL", "trainers", 1), True),
        (Rung("INT", "group", 1), True),
        (Rung("INT", "tree", 1), True),
        (Rung("INT", "wrapper", 1), True),
    ],
)
def test_what_may_not_stand_in_a_lossless_playbook(rung: Rung, lossy: bool) -> None:
    assert (lossy_reason(rung) is not None) is lossy


@given(st.text(max_size=60) | st.from_regex(r"(SIG)?[A-Z0-9]{0,5}:?[a-z]{0,8}/?[0-9]*[smh]?"))
def test_any_text_is_a_ladder_or_bad_usage(text: str) -> None:
    try:
        ladder = parse_ladder(text)
    except BadUsage as error:
        message = error.message
    else:
        message = ""
        assert ladder
    assert message.isprintable()
