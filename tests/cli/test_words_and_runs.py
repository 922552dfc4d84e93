"""explain, history and wait without any host: what is typed wrong, and what is printed."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from tests.cli.test_command_line import fleetstop, home, test_help_loads_nothing_heavy

__all__ = ["home"]


@pytest.mark.parametrize(
    "words",
    [
        *(["wait"], ["explain"], ["gpus"], ["doctor"], ["discover"]),
        *(["history"], ["history", "show"]),
    ],
)
def test_their_help_is_light_too(words: list[str]) -> None:
    test_help_loads_nothing_heavy([*words, "--help"])


MISTAKES: list[tuple[list[str], int, list[str]]] = [
    (["explain", "deff"], 2, ["did you mean deaf?", "fleetstop explain lists them all"]),
    (["explain", "\x1b[2J"], 2, ["is no word of ours"]),
    (["history", "show"], 2, ["Missing argument"]),
    (["history", "show", "ffff"], 2, ["there is no run 'ffff'"]),
    (["history", "--limit", "0"], 2, ["--limit"]),
    (["wait"], 2, ["no target is given"]),
    (["wait", "ct200", "--for", "gone-ish"], 2, ["--for"]),
    (["wait", "ct200", "--timeout", "soon"], 2, ["soon", "is not a duration"]),
    (["wait", "ct20"], 2, ["did you mean 'ct20"]),
    (["wait", "ct201"], 5, ["ct201:train", "ct201:eval"]),
    (["wait", "root@h.invalid/200"], 2, ["--script"]),
    (["gpus", "nobody"], 2, ["nobody"]),
    (["gpus", "root@h.invalid"], 4, ["h.invalid"]),
    (["stop", "ct200", "--gpu", "3"], 2, ["--gpu", "takes one host"]),
    (["stop", "root@h.invalid/200", "--gpu", "3"], 2, ["takes one host"]),
    (["stop", "root@h.invalid", "--gpu", "3", "--pid", "7"], 2, ["nothing else can narrow"]),
    (["stop", "root@h.invalid", "--gpu", "-1"], 2, ["--gpu"]),
    (["stop", "root@h.invalid", "--gpu", "3"], 4, ["h.invalid"]),
]


@pytest.mark.parametrize(("words", "code", "said"), MISTAKES, ids=lambda v: str(v)[:40])
def test_mistakes_get_a_sentence_and_the_right_code(
    home: Path, words: list[str], code: int, said: list[str]
) -> None:
    done = fleetstop(home, *words)
    text = done.stderr + done.stdout
    assert done.returncode == code, text
    assert "Traceback" not in text
    assert "\x1b" not in text
    for each in said:
        assert each in text


def test_explain_prints_a_few_sentences_or_json(home: Path) -> None:
    done = fleetstop(home, "explain", "deaf")
    assert done.returncode == 0
    assert done.stdout.startswith("deaf (verdict)\n")
    every = json.loads(fleetstop(home, "explain", "--json").stdout)
    assert (every["event"], every["schema"]) == ("glossary", 1)
    assert {"kind", "word", "means", "seen", "next"} == every["words"][0].keys()
    (one,) = json.loads(fleetstop(home, "explain", "130", "--json").stdout)["words"]
    assert (one["kind"], one["word"]) == ("exit code", "130")


def test_a_run_is_in_the_history_whatever_became_of_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    assert fleetstop(home, "history").stdout == "no runs yet\n"
    assert fleetstop(home, "stop", "ct201:train").returncode == 5
    assert fleetstop(home, "stop", "ct201").returncode == 5
    assert fleetstop(home, "wait", "ct200", "--timeout", "1").returncode == 4
    places = list((home / "state/fleetstop/runs").iterdir())
    assert [each.suffix for each in places] == [".json"] * 3
    assert {stat.S_IMODE(each.stat().st_mode) for each in places} == {0o600}
    told = json.loads(fleetstop(home, "history", "--json").stdout)
    assert (told["event"], told["schema"]) == ("history", 1)
    assert [(each["command"], each["exit_code"]) for each in told["runs"]] == [
        ("wait", 4), ("stop", 5), ("stop", 5),
    ]  # fmt: skip
    assert len(json.loads(fleetstop(home, "history", "--limit", "1", "--json").stdout)["runs"]) == 1
    only = json.loads(fleetstop(home, "history", "--target", "ct200", "--json").stdout)["runs"]
    assert [each["targets"] for each in only] == [["ct200:train"]]
    run = told["runs"][1]["run"]
    shown = fleetstop(home, "history", "show", run[:7])
    assert shown.returncode == 0
    assert f"run {run}: stop ct201" in shown.stdout
    assert "REFUSED" in shown.stdout
    whole = json.loads(fleetstop(home, "history", "show", run, "--json").stdout)
    assert whole["report"]["exit_code"] == 5
    assert whole["events"][0]["event"] == "started"


def test_targets_come_from_a_file_and_from_an_earlier_run(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is there to be stopped: whom it would have been is what counts."""
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    (home / "list.txt").write_text("# what trains\nct200\n\n  ct201:train  # twice\nct200:train\n")

    def asked(*words: str) -> dict[str, str]:
        done = fleetstop(home, *words, "--json")
        return {e["target"]: e["result"] for e in json.loads(done.stdout)["targets"]}

    listed = asked("stop", "--targets-from", "list.txt")
    assert listed == {"ct200:train": "unreachable", "ct201:train": "refused"}
    [first, *_] = asked("stop", "ct201:eval", "--targets-from", "list.txt")
    assert first == "ct201:eval"
    assert list(asked("stop", "--targets-from", "list.txt", "-x", "ct200")) == ["ct201:train"]
    run = json.loads(fleetstop(home, "history", "--json").stdout)["runs"][-1]["run"]
    assert asked("stop", "--failed-in", run) == listed
    assert list(asked("stop", "ct201:*", "--failed-in", run[:7])) == ["ct201:train"]


def test_ls_and_a_mistake_leave_no_record(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    fleetstop(home, "ls")
    fleetstop(home, "stop", "ct20")
    fleetstop(home, "explain", "deaf")
    assert not (home / "state").exists()


def test_a_history_that_cannot_be_read_is_no_fault_and_not_empty(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "state").mkdir()
    (home / "state/fleetstop").write_text("a file")
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    for words in (["history"], ["history", "--json"], ["history", "show", "ab"]):
        done = fleetstop(home, *words)
        assert (done.returncode, done.stdout) == (4, "")
        assert f"{home}/state/fleetstop/runs cannot be read: Not a directory" in done.stderr


def test_a_state_directory_that_cannot_be_made_costs_one_line(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "state").write_text("a file")
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "state"))
    done = fleetstop(home, "stop", "ct201:train")
    assert done.returncode == 5
    lines = [each for each in done.stderr.splitlines() if "no whole record" in each]
    assert len(lines) == 1
    assert os.fspath(home) in lines[0]


@pytest.mark.parametrize("text", ["{}", "[1]", "7", "nonsense", '{"schema": 1, "sshd": 3}', None])
def test_a_directory_that_is_no_practice_fleet_is_said_to_be_none(
    home: Path, text: str | None
) -> None:
    (home / "root").mkdir()
    if text is None:
        (home / "root/state.json").mkdir()
    else:
        (home / "root/state.json").write_text(text)
    for command in ("status", "down"):
        done = fleetstop(home, "lab", command, "--root", str(home / "root"))
        assert done.returncode == 4, done.stderr
        assert "state.json" in done.stderr
    assert (home / "root/state.json").exists()


@pytest.mark.parametrize("cost", ["-1", "nan", "inf", "1e9"])
def test_what_a_practice_pct_may_cost_is_bounded(home: Path, cost: str) -> None:
    root = str(home / "root")
    assert fleetstop(home, "lab", "up", "--root", root, "--pct-cost", cost).returncode == 2
    assert fleetstop(home, "demo", "--pct-cost", cost).returncode == 2
