"""The rehearsal's screens: a good one, a bad one and one without a decision."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fleetstop.api.rehearsing import rehearsals
from fleetstop.core.climbing.consent import Consent
from fleetstop.view.rehearsal import shown, story
from tests.core.habits import STANDARD

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize(
    ("name", "consent"),
    [("slow-save", "absent"), ("hung-save", "given"), ("deaf", "absent"), ("respawning", "absent")],
)
def test_a_rehearsal_as_its_golden_file_has_it(name: str, consent: Consent) -> None:
    [one] = rehearsals(STANDARD, [name], consent)
    text = shown(story("standard", one.rehearsed, one.events, one.outcome), width=100, color=False)
    file = GOLDEN / f"rehearse_{name}_{consent}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(text)
    assert text == file.read_text()
