"""What rehearsals prove about the stock playbooks: the same ladder, and jobs that lose work."""

from __future__ import annotations

import pytest

from fleetstop.core.climbing.consent import Consent
from fleetstop.core.rehearsing.scenarios import SCENARIOS, rehearse
from tests.core.habits import GRACEFUL, NOW, STANDARD, short

# name, consent -> result, signals, what is lost, under the standard playbook
STANDARD_ROWS: list[tuple[str, Consent, str, list[str], str]] = [
    ("polite", "absent", "stopped", ["INT"], "nothing"),
    ("polite", "given", "stopped", ["INT"], "nothing"),
    ("deaf", "absent", "refused", [], "still_running"),
    ("deaf", "refused", "still_running", [], "still_running"),
    ("deaf", "given", "stopped", ["TERM"], "since_checkpoint"),
    ("term-saver", "absent", "stopped", ["TERM"], "nothing"),
    ("ignores-all", "given", "stopped", ["KILL"], "since_checkpoint"),
    ("slow-save", "given", "stopped", ["INT"], "nothing"),
    ("hung-save", "absent", "still_running", ["INT"], "still_running"),
    ("hung-save", "given", "stopped", ["INT", "TERM"], "checkpoint_cut"),
    ("periodic-save", "given", "stopped", ["INT"], "nothing"),
    ("shrugs", "absent", "still_running", ["INT"], "still_running"),
    ("shrugs", "given", "stopped", ["INT", "TERM"], "since_checkpoint"),
    ("unsaved", "absent", "unclean", ["INT"], "since_checkpoint"),
    ("suspended", "absent", "stopped", ["INT"], "nothing"),
    ("traced", "refused", "still_running", [], "still_running"),
    ("uninterruptible", "given", "still_running", ["KILL"], "still_running"),
    ("respawning", "absent", "unclean", ["INT"], "nothing"),
    ("ranks", "absent", "stopped", ["INT"], "nothing"),
    ("stuck-workers", "absent", "unclean", ["INT"], "nothing"),
    ("stuck-workers", "given", "stopped", ["INT", "KILL"], "nothing"),
    ("unseen", "absent", "refused", [], "still_running"),
]


@pytest.mark.parametrize(("name", "consent", "result", "signals", "lost"), STANDARD_ROWS)
def test_the_standard_playbook(
    name: str, consent: Consent, result: str, signals: list[str], lost: str
) -> None:
    one = rehearse(STANDARD, SCENARIOS[name], consent=consent)
    assert (one.result, one.climbed.signals, one.lost) == (result, signals, lost)
    assert (one.lost_s is None) == (lost in ("nothing", "still_running"))


@pytest.mark.parametrize("name", SCENARIOS)
def test_graceful_loses_nothing_that_the_job_itself_would_have_saved(name: str) -> None:
    """`unsaved` leaves on its own; a signal could not make it save."""
    one = rehearse(GRACEFUL, SCENARIOS[name], consent="given")
    assert one.lost in ("nothing", "still_running") or name == "unsaved"
    assert len(one.climbed.signals) <= 1


def test_now_cuts_the_save_that_standard_waits_for() -> None:
    now = rehearse(NOW, SCENARIOS["periodic-save"], consent="given")
    assert (now.result, now.lost) == ("stopped", "checkpoint_cut")
    standard = rehearse(STANDARD, SCENARIOS["periodic-save"], consent="given")
    assert standard.lost == "nothing"


def test_the_length_is_virtual_time() -> None:
    slow = rehearse(STANDARD, SCENARIOS["slow-save"])
    assert 300 < slow.seconds < 310
    assert [each.pid for each in slow.exits] == [101, 100]


def test_a_job_that_comes_back_is_seen_also_when_its_loop_was_killed_too_late() -> None:
    one = rehearse(STANDARD, SCENARIOS["respawning"], consent="given")
    assert (one.result, one.back) == ("unclean", (102,))


def test_a_rung_that_waits_for_ever_ends_the_rehearsal_not_the_machine() -> None:
    one = rehearse(short("INT/forever KILL:tree/30s"), SCENARIOS["shrugs"], consent="given")
    assert one.result == "still_running"
    assert one.climbed.signals == ["INT"]
    assert "still waiting" in one.climbed.end.reason
