"""Consent on the command line and from Python: what contradicts itself, and who can be asked."""

from __future__ import annotations

import os
import pty
from pathlib import Path

import pytest

from fleetstop.api.consent import agreed
from fleetstop.core.climbing.consent import Terms
from fleetstop.errors import BadUsage

NOTHING = {
    "graceful": False,
    "force": False,
    "max_loss": None,
    "after_checkpoint": False,
    "at_most": None,
}


@pytest.mark.parametrize(
    ("said", "consent", "terms"),
    [
        ({}, "absent", Terms()),
        ({"force": True}, "given", Terms()),
        ({"graceful": True}, "refused", Terms()),
        ({"max_loss": "10m"}, "absent", Terms(max_loss_s=600.0)),
        ({"max_loss": 90}, "absent", Terms(max_loss_s=90.0)),
        ({"after_checkpoint": True}, "absent", Terms(after_checkpoint=True)),
        (
            {"after_checkpoint": True, "at_most": "2h", "max_loss": 5.0},
            "absent",
            Terms(after_checkpoint=True, at_most_s=7200.0, max_loss_s=5.0),
        ),
        (
            {"after_checkpoint": True, "at_most": "forever"},
            "absent",
            Terms(after_checkpoint=True),
        ),
    ],
)
def test_what_was_said_is_what_was_agreed(
    said: dict[str, object], consent: str, terms: Terms
) -> None:
    assert agreed(**(NOTHING | said)) == (consent, terms)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "said",
    [
        {"graceful": True, "force": True},
        {"graceful": True, "max_loss": "1m"},
        {"graceful": True, "after_checkpoint": True},
        {"graceful": True, "at_most": "1m"},
        {"force": True, "max_loss": "1m"},
        {"force": True, "after_checkpoint": True},
        {"at_most": "1m"},
        {"max_loss": "forever"},
        {"max_loss": "0"},
        {"max_loss": "ten"},
        {"after_checkpoint": True, "at_most": 0},
    ],
)
def test_what_contradicts_itself_is_a_usage_error(said: dict[str, object]) -> None:
    with pytest.raises(BadUsage) as caught:
        agreed(**(NOTHING | said))  # type: ignore[arg-type]
    assert caught.value.message.startswith("--")


def test_nobody_is_asked_but_at_a_terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from fleetstop.cli import asking

    ours, theirs = pty.openpty()
    with open(theirs, "r+b", buffering=0) as raw, (tmp_path / "f").open("w") as file:
        terminal = open(raw.fileno(), closefd=False)  # noqa: SIM115 - closed with raw
        monkeypatch.setattr("sys.stdin", terminal)
        monkeypatch.setattr(os, "tcgetpgrp", lambda number: os.getpgrp())
        assert asking.at_terminal({}, terminal) is not None
        assert asking.at_terminal({"graceful": True}, terminal) is not None  # which signal saves
        for option in ("as_json", "events", "dry_run"):
            assert asking.at_terminal({option: True}, terminal) is None
        assert asking.at_terminal({}, file) is None
        # in the background a read would stop us
        monkeypatch.setattr(os, "tcgetpgrp", lambda number: os.getpgrp() + 1)
        assert asking.at_terminal({}, terminal) is None
        monkeypatch.setattr("sys.stdin", file)
        assert asking.at_terminal({}, terminal) is None
    os.close(ours)
