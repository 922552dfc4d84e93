"""`playbook rehearse` as it is typed: every job, own playbooks, mistakes, JSON."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.test_command_line import fleetstop, home

__all__ = ["home"]

TOUCHY = """\
# touchy.yaml: asks by a stop file first.
ladder:
  - {touch: /workspace/STOP, wait: 10m}
  - {await: checkpoint, wait: 1h}
  - {signal: TERM, to: trainers, wait: 1m}
  - {signal: KILL, to: tree, wait: 30s}
"""


def test_every_job_has_a_story_an_end_and_a_loss(home: Path) -> None:
    ran = fleetstop(home, "playbook", "rehearse", "graceful")
    assert ran.returncode == 0, ran.stderr
    stories = ran.stdout.split("\n\n")
    assert len(stories) > 15
    assert all(story.startswith("graceful against ") for story in stories)
    assert all("would lose   " in story for story in stories)
    cut = [story for story in stories if "would lose   nothing" not in story]
    assert [story.split(":")[0] for story in cut] == ["graceful against unsaved"]


def test_one_line_of_json_with_the_events_of_a_stop(home: Path) -> None:
    words = ("--against", "deaf,slow-save", "--force", "--json")
    ran = fleetstop(home, "playbook", "rehearse", "standard", *words)
    told = json.loads(ran.stdout)
    deaf, slow = told["against"]
    assert (told["event"], told["schema"], told["playbook"]) == ("rehearsal", 1, "standard")
    assert (deaf["name"], deaf["exit_code"], deaf["lost"]) == ("deaf", 0, "since_checkpoint")
    assert 1080 < deaf["lost_s"] < 1085
    assert [each["signal"] for each in deaf["outcome"]["signals"]] == ["TERM"]
    assert (slow["lost"], slow["lost_s"], slow["exit_code"]) == ("nothing", None, 0)
    assert slow["outcome"]["seconds"] > 300
    assert {"rung_entered", "signal_sent", "holding", "member_exited"} <= {
        each["event"] for each in slow["events"]
    }


def test_after_checkpoint_loses_a_second_where_force_loses_eighteen_minutes(home: Path) -> None:
    words = ("playbook", "rehearse", "standard", "--against", "deaf", "--json")
    patient = json.loads(fleetstop(home, *words, "--after-checkpoint").stdout)["against"][0]
    assert 0 < patient["lost_s"] < 10
    assert 720 < patient["outcome"]["seconds"] < 730
    limited = json.loads(fleetstop(home, *words, "--max-loss", "10m").stdout)["against"][0]
    assert (limited["outcome"]["result"], limited["lost"]) == ("refused", "still_running")


def test_an_own_playbook_with_other_rungs(home: Path) -> None:
    (home / "touchy.yaml").write_text(TOUCHY)
    ran = fleetstop(home, "playbook", "rehearse", "./touchy.yaml", "--against", "deaf", "--force")
    assert ran.returncode == 0, ran.stderr
    assert "step_1 is new and complete" in ran.stdout
    assert "would lose   about 1 s of work" in ran.stdout


def test_mistakes(home: Path) -> None:
    ran = fleetstop(home, "playbook", "rehearse", "standard", "--against", "daef")
    assert ran.returncode == 2
    assert "no such job 'daef', did you mean 'deaf'?" in ran.stderr
    ran = fleetstop(home, "playbook", "rehearse", "standard", "--force", "--graceful")
    assert ran.returncode == 2
    ran = fleetstop(home, "playbook", "rehearse", "nope")
    assert ran.returncode == 3
