from __future__ import annotations

import pytest

from fleetstop.core.shelf import purpose_of


@pytest.mark.parametrize(
    ("text", "purpose"),
    [
        ("# mine.yaml: for the big one.\n# more\n", "for the big one."),
        ("# other.yaml: is not its name\n", "other.yaml: is not its name"),
        ("\n\n#\n##  two\nladder: []\n", "two"),
        ("# yaml-language-server: $schema=x.json\n---\n# mine.yaml: for it\n", "for it"),
        ("ladder: []\n# late\n", ""),
        ("ladder: [] # beside\n", ""),
        ("", ""),
    ],
)
def test_the_first_line_for_people(text: str, purpose: str) -> None:
    assert purpose_of(text, "mine.yaml") == purpose
