from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetstop.core.releases.difference import Line, Side, difference, spoken_size, summary


def side(text: str | bytes, mode: int = 0o644) -> Side:
    return Side(text.encode() if isinstance(text, str) else text, mode)


def shown(old: Side | None, new: Side | None, rel: str = "train.py") -> list[str]:
    return [f"{line.kind}: {line.text}" for line in difference(rel, old, new).lines]


def test_a_changed_file_is_shown_as_a_unified_difference() -> None:
    change = difference("train.py", side("a\nlr = 1\nb\n"), side("a\nlr = 2\nb\nc\n"))
    assert (change.kind, change.added, change.removed) == ("changed", 2, 1)
    assert [f"{line.kind}: {line.text}" for line in change.lines] == [
        "file: --- train.py (there)",
        "file: +++ train.py (sent)",
        "hunk: @@ -1,3 +1,4 @@",
        "same:  a",
        "removed: -lr = 1",
        "added: +lr = 2",
        "same:  b",
        "added: +c",
    ]


def test_a_new_a_left_and_a_same_file() -> None:
    assert shown(None, side("x\n", 0o755)) == [
        "file: train.py: new, 2 bytes, mode 0755",
        "hunk: @@ -0,0 +1 @@",
        "added: +x",
    ]
    assert shown(side("x\n"), None) == ["file: train.py: not sent; it stays there as it is"]
    assert difference("a", side("x"), side("x")).kind == "same"
    assert shown(side("x"), side("x")) == []


def test_a_mode_alone_and_a_mode_beside_a_change() -> None:
    change = difference("run.sh", side("x\n", 0o644), side("x\n", 0o755))
    assert change.kind == "mode"
    assert change.lines[0].text == "run.sh: mode 0644 -> 0755"
    assert "note: mode 0644 -> 0755" in shown(side("x\n"), side("y\n", 0o755))


def test_binary_files_are_told_by_their_sizes() -> None:
    old, new = side(b"\0" * int(1.2 * 1024**2)), side(b"\0" * int(1.3 * 1024**2))
    assert shown(old, new) == ["file: train.py: binary, 1.2 MiB -> 1.3 MiB"]
    assert difference("a", old, new).kind == "binary"
    assert shown(None, new) == ["file: train.py: new, 1.3 MiB, mode 0644, binary"]
    # text before, binary now
    assert difference("a", side("x"), side(b"\0")).kind == "binary"


def test_what_was_not_fetched_is_told_by_its_size() -> None:
    assert shown(Side(None, 0o644, 3000), side("x\n")) == [
        "file: train.py: not shown line by line, 2.9 KiB -> 2 bytes"
    ]


def test_a_missing_line_end_is_a_change_too() -> None:
    assert shown(side("a\n"), side("a")) == [
        "file: --- train.py (there)",
        "file: +++ train.py (sent)",
        "hunk: @@ -1 +1 @@",
        "removed: -a",
        "added: +a",
        r"note: \ no line end here",
    ]


def test_only_a_newline_ends_a_line_and_a_return_is_seen() -> None:
    assert "added: +a\\r" in shown(side("a\n"), side("a\r\n"))
    assert "added: +x\\x0cy\\u2028z" in shown(side("\n"), side("x\x0cy\u2028z\n"))


def test_nothing_in_code_can_move_the_cursor_and_tabs_stay() -> None:
    lines = shown(side("\n"), side("\tif x:\x1b[2J\u202e\n".encode() + b"\xff\n"), "a\x1b.py")
    assert "added: +\tif x:\\x1b[2J\\u202e" in lines
    assert "added: +\\xff" in lines
    assert not any("\x1b" in line for line in lines)


def test_code_is_shown_as_it_is_but_for_secrets() -> None:
    lines = shown(side("token = 'x1'\n"), side("token = tok(text)\nkey = 'hf_AbCdEfGh12345678'\n"))
    assert lines[3:] == [
        "removed: -token = '***'",
        "added: +token = tok(text)",
        "added: +key = '***'",
    ]
    yaml = shown(None, side("lr: 1\nmypass: hunter two\n"), "base.yaml")
    assert yaml[2:] == ["added: +lr: 1", "added: +mypass: ***"]


@pytest.mark.parametrize("rel", [".env", "configs/prod.env", ".aws/config", "a.pem"])
def test_of_a_file_whose_name_tells_of_secrets_only_sizes_are_told(rel: str) -> None:
    old, new = side("A=hunter1\n", 0o600), side("A=hunter22\n", 0o600)
    assert shown(old, new, rel) == [f"file: {rel}: holds secrets, not shown, 10 bytes -> 11 bytes"]
    assert shown(None, new, rel) == [
        f"file: {rel}: new, 11 bytes, mode 0600, holds secrets, not shown"
    ]
    assert difference(rel, old, new).kind == "changed"
    assert difference(rel, None, new).kind == "new"
    # nor was anything of it fetched for that
    assert shown(Side(None, 0o600, 10), Side(None, 0o600, 11), rel) == [
        f"file: {rel}: holds secrets, not shown, 10 bytes -> 11 bytes"
    ]


def test_a_private_key_within_a_file_hides_it_whole() -> None:
    pem = "KEY = '''-----BEGIN RSA PRIVATE KEY-----\nMIIhunter\n-----END RSA PRIVATE KEY-----'''\n"
    for old, new in ((side("\n"), side(pem)), (side(pem), side("\n")), (None, side(pem))):
        assert "MIIhunter" not in str(shown(old, new))
        assert "holds secrets, not shown" in shown(old, new)[0]


def test_a_huge_or_strange_pair_takes_no_time() -> None:
    before = time.monotonic()
    old = side("".join(f"{n}\n" for n in range(19_000)))
    new = side("".join(f"{n * 7919 % 19_000}x\n" for n in range(19_000)))
    same = side("\n" * 19_000)
    assert difference("a", old, new).added == 19_000
    difference("a", same, side("x\n\n" * 9_000))
    # a table of few values: left to difflib, these two take two minutes
    table = side("".join(f"{n % 150}\n" for n in range(19_000)))
    other = side("".join(f"{n * 7 % 150}\n" for n in range(19_000)))
    assert "not shown line by line" in shown(table, other)[0]
    assert time.monotonic() - before < 40
    assert "not shown line by line" in shown(old, side("x\n" * 30_000))[0]
    assert "not shown line by line" in shown(old, side("x" * 1_100_000))[0]


def test_the_summary_counts_what_is_said() -> None:
    changes = [
        difference("a", side("1\n"), side("2\n3\n")),
        difference("b", None, side("n\n")),
        difference("c", side(b"\0"), side(b"\0\0")),
        difference("d", side("x"), side("x")),
        difference("e", side("x"), None),
        difference("f", side("x"), side("x", 0o700)),
    ]
    assert summary(changes) == (
        "1 changed (+2 -1), 1 new (+1), 1 binary, 1 with another mode only; 1 as they are;"
        " 1 not sent, left there"
    )
    assert summary([changes[3]]) == "nothing differs; 1 as they are"
    assert summary([]) == "nothing differs"


@pytest.mark.parametrize(
    ("size", "said"),
    [(0, "0 bytes"), (1, "1 byte"), (1023, "1023 bytes"), (1024, "1.0 KiB"), (1200, "1.2 KiB"),
     (1024 * 1000, "1.0 MiB"), (200 * 1024**2, "200.0 MiB"), (5 * 1024**4, "5.0 TiB")],
)  # fmt: skip
def test_a_size_is_spoken(size: int, said: str) -> None:
    assert spoken_size(size) == said


lines = st.lists(st.sampled_from(["a", "b", "c", " x", "@@", "+", "-", "--- a"]), max_size=12)


def test_a_value_is_masked_though_its_name_stands_above_what_is_shown() -> None:
    rest = "".join(f"  l{at}: {at}\n" for at in range(9))
    old = f"{rest}- name: X_TOKEN\n  value: hunter2x\n  a: 1\n  b: 2\n  c: 3\n"
    new = f"more: 1\n{old}".replace("c: 3", "c: 4")
    told = "\n".join(each.text for each in difference("k.yaml", side(old), side(new)).lines)
    assert "   value: ***" in told
    assert "X_TOKEN" not in told
    added = "\n".join(each.text for each in difference("k.yaml", None, side(old)).lines)
    assert "+- name: X_TOKEN\n+  value: ***\n+  a: 1" in added
    swapped = new.replace("hunter2x", "hunter3x")
    told = "\n".join(each.text for each in difference("k.yaml", side(old), side(swapped)).lines)
    assert "-  value: ***\n+  value: ***" in told


def applied(old: list[str], shown: tuple[Line, ...]) -> list[str]:
    """The old lines with the difference put in, as patch(1) does."""
    made: list[str] = []
    at = 0
    for line in shown:
        if line.kind == "hunk":
            found = re.match(r"@@ -([0-9]+)(,0)?", line.text)
            assert found is not None
            start = int(found[1]) - (not found[2])
            made += old[at:start]
            at = start
        elif line.kind in ("same", "removed"):
            assert old[at] == line.text[1:]
            at += 1
        if line.kind in ("same", "added"):
            made.append(line.text[1:])
    return made + old[at:]


@given(lines, lines)
def test_what_is_shown_is_what_changes(old: list[str], new: list[str]) -> None:
    before, after = ("".join(f"{each}\n" for each in every) for every in (old, new))
    change = difference("f", side(before), side(after))
    assert applied(old, change.lines) == new
    assert (change.kind == "same") is (old == new)
    assert change.added - change.removed == len(new) - len(old)
