from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fleetstop.config.inventory import read_inventory
from fleetstop.config.playbook import extended, read_playbook
from fleetstop.config.spot import read_yaml
from fleetstop.errors import BadConfig

FLEET = """\
defaults: {job: {playbook: standard}}
hosts:
  pve1: {ssh: root@10.1.2.6, port: 22, sudo: auto}
containers:
  ct200:
    host: pve1
    vmid: 200
    jobs: {train: {match: {script: train.py}, stop_signal: INT, gpus: [0, 1], max_loss: 60s}}
groups: {training: [ct200]}
"""
PLAYBOOK = """\
lossless: true
probe: {processes: proc, gpus: nvidia-smi, every: 100ms}
ladder:
  - {signal: stop_signal, to: trainers, wait: 3m, again: true, lossless: true}
  - {run: [a, "{unit}"], wait: forever, lossless: true, when: [busy, deaf]}
  - {touch: /x, wait: 1h, unless: saving}
  - {await: checkpoint, wait: 30}
hold: {saving: 30m, stopping: 60s}
"""
PIECES = st.sampled_from(
    [
        *("{", "}", "[", "]", ": ", "\n  ", "- ", "&a ", "*a", "!x ", "'", '"', "| ", "> ", "? "),
        *("%YAML 1.1\n", "%TAG ! x\n", "---\n", "...\n", "\t", "\x00", "\x85", "\ufeff", "<<: "),
        *("~", "#", "@", "`", "0x", "ct200", "true", "1" * 5000, "!!binary x"),
        *('"\\ud800"', '"\\UFFFFFFFF"', '"\\x00"'),
    ]
)


def as_inventory(text: str) -> str:
    """The complaint about the text as an inventory; empty where there is none."""
    try:
        read_inventory([read_yaml(text, "f.yaml")], lambda _: Path("/x"))
    except BadConfig as error:
        return error.message + error.hint
    return ""


def as_playbook(text: str) -> str:
    try:
        root = read_yaml(text, "f.yaml")
        extended(root)
        read_playbook("p", root)
    except BadConfig as error:
        return error.message + error.hint
    return ""


@given(st.text(max_size=200) | st.lists(PIECES, max_size=30).map("".join))
@example('"\\UFFFFFFFF": 1')
@example("%YAML 99999999999.1\n---\na: 1")
@example("a: !<x y")
@example("? [a]\n: b")
@example("*a : b")
@example("- a\n- b")
@example("containers:")
def test_any_text_is_a_file_or_bad_config(text: str) -> None:
    for complaint in (as_inventory(text), as_playbook(text)):
        # `containers:` alone is an inventory, with nothing in it
        assert not complaint or complaint.startswith("f.yaml:")
        assert complaint.isprintable()


@given(
    st.sampled_from([(FLEET, as_inventory), (PLAYBOOK, as_playbook)]),
    st.integers(0, 400),
    st.integers(0, 12),
    st.text(max_size=8) | PIECES,
)
def test_a_file_with_a_piece_replaced(
    kind: tuple[str, Callable[[str], str]], at: int, cut: int, piece: str
) -> None:
    text, read = kind
    complaint = read(text[:at] + piece + text[at + cut :])
    assert not complaint or complaint.startswith("f.yaml:")
    assert complaint.isprintable()


SECRET = "Xk7-hunter2-Zq9"


@pytest.mark.parametrize(
    "shape",
    [
        *("{s}", "'{s}'", "[{s}]", "{{env: {{a: {s}}}}}", "{{{s}}}", "{{value: {s}}}", "!{s} x"),
        *("*{s}", "&{s} x", "!{s}!x y", "|\n        {s}", '"{s}', "{{env: a, {s}: b}}", "{s}: x"),
        *("{{{s}: 1, {s}: 2}}", "{{env: [{s}]}}", '"{s}\\0"', "@{s}", "%{s}", "`{s}`"),
        *("{{{s}: !x}}", "{{env: *{s}}}"),
    ],
)
def test_a_secret_in_the_wrong_place_is_never_shown(shape: str) -> None:
    secret = shape.format(s=SECRET)
    text = FLEET.replace(
        "sudo: auto",
        'api: {url: "https://h:8006", token_id: "a@pve!b", token_secret: SECRET}',
    ).replace("SECRET", secret)
    assert SECRET not in as_inventory(text)


def test_the_files_that_are_changed_here_are_right_themselves() -> None:
    assert as_inventory(FLEET) == ""
    assert as_playbook(PLAYBOOK) == ""
