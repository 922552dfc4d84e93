from __future__ import annotations

import os
import re
import shlex
import threading
from pathlib import Path

import pytest

from fleetstop.config import (
    load_playbook,
    playbook_dirs,
    playbook_files,
    schema,
    shelved,
    stock_dir,
)
from fleetstop.core.inventory import Inventory
from fleetstop.core.playbook import (
    FOREVER,
    Hold,
    Playbook,
    Rung,
    Verify,
    always_lossy,
    filled,
    filled_ladder,
    lossy_reason,
    unfilled,
)
from fleetstop.errors import BadConfig, BadUsage

INT = Rung("stop_signal", "trainers", 180)
TERM = Rung("TERM", "trainers", 120)
KILL = Rung("KILL", "tree", 30)


def load(tmp_path: Path, text: str) -> Playbook:
    (tmp_path / "mine.yaml").write_text(text)
    return load_playbook("./mine.yaml", cwd=tmp_path, dirs=())


@pytest.mark.parametrize(
    ("name", "ladder", "lossless", "hold"),
    [
        ("graceful", (INT, TERM), True, Hold(1800, 60)),
        ("standard", (INT, TERM, KILL), False, Hold(1800, 60)),
        ("now", (KILL,), False, None),
    ],
)
def test_the_stock(
    tmp_path: Path, name: str, ladder: tuple[Rung, ...], lossless: bool, hold: Hold | None
) -> None:
    playbook = load_playbook(name, cwd=tmp_path, dirs=[stock_dir()])
    assert playbook == Playbook(
        name=name,
        ladder=ladder,
        lossless=lossless,
        hold=hold,
        verify=Verify("new", "released", 30),
        gpus_from="nvidia-smi",
        every_s=0.1,
        source=str(stock_dir() / f"{name}.yaml"),
    )


# A file, and what is said of it: data for the schema's tests too.
BAD_PLAYBOOKS: list[tuple[str, str]] = [
    ("lossless: true\n", "1: key 'ladder' is missing"),
    (
        "lossless: true\nladder:\n"
        " - {signal: INT, to: trainers, wait: 3m}\n - {signal: INT, to: trainers, wiat: 3m}\n",
        "4: ladder[1]: unknown key 'wiat', did you mean 'wait'?",
    ),
    ("laddr: []\n", "1: unknown key 'laddr', did you mean 'ladder'?"),
    (
        "ladder: []\n",
        "1: ladder: needs at least one rung, like {signal: INT, to: trainers, wait: 3m}",
    ),
    ("ladder: INT/3m\n", "1: ladder: must be a list, not 'INT/3m'"),
    # what a rung may be
    ("ladder: [{run: x}]\n", "1: ladder[0]: key 'wait' is missing"),
    ("ladder: [{await: checkpoint}]\n", "1: ladder[0]: key 'wait' is missing"),
    (
        "ladder: [{wait: 3m}]\n",
        "1: ladder[0]: needs one of signal, run, touch, keys, await,"
        " like {signal: INT, to: trainers, wait: 3m}",
    ),
    (
        "ladder: [{}]\n",
        "1: ladder[0]: needs one of signal, run, touch, keys, await,"
        " like {signal: INT, to: trainers, wait: 3m}",
    ),
    (
        "ladder: [{signl: INT, to: trainers, wait: 3m}]\n",
        "1: ladder[0]: unknown key 'signl', did you mean 'signal'?",
    ),
    (
        "ladder: [{signal: INT, to: trainers, run: x, wait: 3m}]\n",
        "1: ladder[0]: does one thing, not signal and run; make a rung of each",
    ),
    (
        "ladder: [{run: x, to: trainers, wait: 3m}]\n",
        "1: ladder[0]: key 'to' does not go with run, only with signal",
    ),
    ("ladder: [{run: '', wait: 3m}]\n", "1: ladder[0].run: must not be empty"),
    ("ladder: [{run: [], wait: 3m}]\n", "1: ladder[0].run: must name a program"),
    ("ladder: [{run: ['', a], wait: 3m}]\n", "1: ladder[0].run: must name a program"),
    ("ladder: [{run: [a, [b]], wait: 3m}]\n", "1: ladder[0].run[1]: must be text, not a list"),
    ("ladder: [{run: {a: b}, wait: 3m}]\n", "1: ladder[0].run: must be text, not a mapping"),
    (
        "ladder: [{run: [systemctl, stop, '{untit}'], wait: 3m}]\n",
        "1: ladder[0].run: unknown placeholder '{untit}', did you mean 'unit'?",
    ),
    (
        "ladder: [{touch: STOP, wait: 3m}]\n",
        "1: ladder[0].touch: must be an absolute path, not 'STOP'",
    ),
    ("ladder: [{keys: [C-c], wait: 3m}]\n", "1: ladder[0].keys: must be text, not a list"),
    (
        "ladder: [{await: checkpiont, wait: 3m}, {signal: INT, to: trainers, wait: 1}]\n",
        "1: ladder[0].await: must be checkpoint, not 'checkpiont', did you mean 'checkpoint'?",
    ),
    (
        "ladder: [{await: checkpoint, again: true, wait: 3m}]\n",
        "1: ladder[0]: key 'again' does not go with await, only with signal, run, touch, keys",
    ),
    (
        "ladder: [{signal: INT, to: trainers, wait: 3m, again: once}]\n",
        "1: ladder[0].again: must be true or false, not 'once'",
    ),
    # for which verdicts
    (
        "ladder: [{signal: INT, to: trainers, wait: 3m, when: stuck}]\n",
        "1: ladder[0].when: no verdict 'stuck'",
    ),
    (
        "ladder: [{signal: INT, to: trainers, wait: 3m, unless: [busy, savin]}]\n",
        "1: ladder[0].unless[1]: no verdict 'savin', did you mean 'saving'?",
    ),
    (
        "ladder: [{signal: INT, to: trainers, wait: 3m, when: []}]\n",
        "1: ladder[0].when: needs at least one verdict, like deaf",
    ),
    (
        "ladder:\n - signal: INT\n   to: trainers\n   wait: 3m\n   when: [busy, deaf]\n"
        "   unless: deaf\n",
        "6: ladder[0].unless: deaf is in when and in unless; the rung would never be",
    ),
    # what the rungs are together
    (
        "ladder: [{await: checkpoint, wait: 3m}]\n",
        "1: ladder[0]: nothing on this ladder asks the job to stop",
    ),
    (
        "lossless: true\nladder: [{await: checkpoint, wait: 3m}]\n",
        "2: ladder[0]: nothing on this ladder asks the job to stop",
    ),
    (
        "ladder:\n - {signal: INT, to: trainers, wait: 3m}\n - {await: checkpoint, wait: 3m}\n",
        "3: ladder[1]: await is the last rung, so nothing follows the checkpoint and the job runs"
        " on; put below it what ends the job then, like {signal: KILL, to: tree, wait: 30s}",
    ),
    # what lossless means
    (
        "lossless: true\nladder: [{run: x, wait: 3m}]\n",
        "2: ladder[0]: nobody can see whether a run rung loses work; in a lossless playbook it"
        " must say lossless: true itself",
    ),
    (
        "lossless: true\nladder: [{keys: C-c, wait: 3m}]\n",
        "2: ladder[0]: nobody can see whether a keys rung loses work; in a lossless playbook it"
        " must say lossless: true itself",
    ),
    (
        "lossless: true\nladder:\n - {signal: INT, to: trainers, wait: 3m}\n"
        " - {signal: INT, to: trainers, wait: 3m, again: true}\n",
        "4: ladder[1]: a second signal may cut a save; in a lossless playbook again: true needs"
        " lossless: true beside it",
    ),
    (
        "lossless: true\nladder:\n - {signal: INT, to: trainers, wait: 3m}\n"
        " - {signal: INT, to: trainers, wait: 3m, again: true, lossless: true}\nhold: none\n",
        "5: hold: a lossless playbook needs a hold: a signal can cut a save short",
    ),
    (
        "ladder: [{signal: INT, to: trainers, wait: 3m, again: true, lossless: true}]\n"
        "hold: none\n",
        "1: ladder[0]: lossless: true needs a hold: without one a second signal can cut a save"
        " short",
    ),
    (
        "ladder: [{signal: KILL, to: tree, wait: 3m, lossless: true}]\n",
        "1: ladder[0]: KILL loses work, so it cannot be lossless: true",
    ),
    (
        "ladder: [{signal: 9, to: trainers, wait: 3m, again: true, lossless: true}]\n",
        "1: ladder[0]: KILL loses work, so it cannot be lossless: true",
    ),
    (
        "ladder: [{signal: INT, to: group, wait: 3m, again: true, lossless: true}]\n",
        "1: ladder[0]: a signal to group reaches more than the trainers; it cannot be"
        " lossless: true",
    ),
    (
        "ladder: [{signal: INT, to: trainers, wait: 3m, lossless: true}]\n",
        "1: ladder[0]: lossless: true on a signal is for a second one, with again: true; a first"
        " one is judged by how it lands",
    ),
    # what it builds on
    ("extends: ''\n", "1: extends: must not be empty"),
    ("extends: [a]\n", "1: extends: must be text, not a list"),
    ("extends: nobodys\n", "1: extends: no playbook 'nobodys'; looked in "),
    ("extends: ./none.yaml\n", "1: extends: there is no none.yaml"),
    ("extends: ./mine.yaml\n", "1: extends: it extends itself"),
    ("ladder: [{signal: INT, wait: 3m}]\n", "1: ladder[0]: key 'to' is missing"),
    (
        "ladder: [{signal: INTT, to: trainers, wait: 3m}]\n",
        "1: ladder[0].signal: unknown signal 'INTT', did you mean 'INT'?",
    ),
    (
        "ladder: [{signal: INT, to: trainer, wait: 3m}]\n",
        "1: ladder[0].to: a rung cannot be sent to 'trainer', did you mean 'trainers'?",
    ),
    (
        "ladder: [{signal: INT, to: trainers, wait: 3 m}]\n",
        "1: ladder[0].wait: '3 m' is not a duration; write 90s, 3m, 1h30m or forever",
    ),
    (
        "lossless: true\nladder:\n - {signal: KILL, to: trainers, wait: 3m}\n",
        "3: ladder[0]: KILL loses work, and this playbook is lossless",
    ),
    (
        "lossless: true\nladder:\n - {signal: INT, to: group, wait: 3m}\n",
        "3: ladder[0]: a lossless playbook sends to trainers only, not to group",
    ),
    (
        "lossless: true\nladder: [{signal: INT, to: trainers, wait: 3m}]\nhold: none\n",
        "3: hold: a lossless playbook needs a hold: a signal can cut a save short",
    ),
    (
        "lossless: yes\nladder: [{signal: INT, to: trainers, wait: 3m}]\n",
        "1: lossless: must be true or false, not 'yes'",
    ),
    (
        "ladder: [{signal: INT, to: trainers, wait: 3m}]\nhold: never\n",
        "2: hold: must be a mapping of saving and stopping, or none",
    ),
    (
        "ladder: [{signal: INT, to: trainers, wait: 3m}]\nhold: {savin: 3m}\n",
        "2: hold: unknown key 'savin', did you mean 'saving'?",
    ),
    (
        "ladder: [{signal: INT, to: trainers, wait: 3m}]\nprobe: {every: 1ms}\n",
        "2: probe.every: must be from 10ms to 10s",
    ),
    (
        "ladder: [{signal: INT, to: trainers, wait: 3m}]\nverify: {gpus: release}\n",
        "2: verify.gpus: must be released or ignore, not 'release', did you mean 'released'?",
    ),
    (
        "ladder: [{signal: INT, to: trainers, wait: 3m}]\nverify: {within: forever}\n",
        "2: verify.within: must end: 'forever' is not allowed here",
    ),
]


@pytest.mark.parametrize(("text", "message"), BAD_PLAYBOOKS)
def test_a_mistake_is_told_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(BadConfig) as caught:
        load(tmp_path, text)
    assert caught.value.message == f"mine.yaml:{message}"


def test_what_is_unsaid_is_as_in_graceful_but_not_lossless(tmp_path: Path) -> None:
    playbook = load(tmp_path, "ladder: [{signal: SIGUSR1, to: group, wait: forever}]\n")
    assert playbook == Playbook("mine", (Rung("USR1", "group", FOREVER),), source="mine.yaml")


def test_names_are_looked_up_near_first(tmp_path: Path) -> None:
    text = "ladder: [{signal: INT, to: trainers, wait: 1}]\n"
    for directory in ("fleet/inventory/playbooks", "fleet/playbooks", "playbooks"):
        (tmp_path / directory).mkdir(parents=True)
        name = directory.replace("/", "_")
        (tmp_path / directory / f"{name}.yaml").write_text(text)
        (tmp_path / directory / "shared.yaml").write_text(text)
    dirs = playbook_dirs(Inventory(sources=("fleet/inventory/fleet.yaml",)), tmp_path)
    assert load_playbook("shared", cwd=tmp_path, dirs=dirs).source == "playbooks/shared.yaml"
    own = load_playbook("fleet_playbooks", cwd=tmp_path, dirs=dirs)
    assert own.source == "fleet/playbooks/fleet_playbooks.yaml"
    assert {"shared", "graceful", "now", "fleet_inventory_playbooks"} <= set(playbook_files(dirs))


def test_an_unknown_name_says_where_it_was_looked_for(tmp_path: Path) -> None:
    dirs = [tmp_path / "playbooks", stock_dir()]
    with pytest.raises(BadConfig) as caught:
        load_playbook("gracefull", cwd=tmp_path, dirs=dirs)
    assert caught.value.message == (
        f"no playbook 'gracefull', did you mean 'graceful'? Looked in playbooks, {stock_dir()}"
    )
    assert caught.value.hint == (
        "playbooks there: graceful, now, server, standard, systemd, tmux, torchrun"
    )


@pytest.mark.parametrize("name", ["./gone.yaml", "gone.yaml", "/gone/x.yaml"])
def test_a_path_that_is_not_there(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadConfig) as caught:
        load_playbook(name, cwd=tmp_path, dirs=[stock_dir()])
    assert caught.value.message == f"{name.removeprefix('./')}: there is no such file"


@pytest.mark.parametrize(
    "name", ["", "..", "a\0b", "a" * 300, "\x1b[2J", "a\0/b", "~nobody-at-all/x"]
)
def test_a_hostile_name_is_no_playbook(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadConfig) as caught:
        load_playbook(name, cwd=tmp_path, dirs=[stock_dir()])
    assert caught.value.message.isprintable()


def only(tmp_path: Path, rung: str) -> Rung:
    """A rung as it is read, with one after it so that it may be an await."""
    text = f"ladder:\n - {rung}\n - {{signal: INT, to: trainers, wait: 1}}\n"
    return load(tmp_path, text).ladder[0]


@pytest.mark.parametrize(
    ("written", "rung"),
    [
        (
            "{run: 'cd /x && ./stop.sh \"$HOME\" ${pid} {unit}', wait: 1m}",
            Rung("", "trainers", 60, "run", 'cd /x && ./stop.sh "$HOME" ${pid} {unit}'),
        ),
        ("{run: 'a\\n\n   b', wait: 1m}", Rung("", "trainers", 60, "run", "a\\n b")),
        (
            "{run: [./stop.sh, a b, 007, true], wait: forever, lossless: true}",
            Rung(
                "", "trainers", FOREVER, "run", "./stop.sh 'a b' 007 true", lossless=True,
                words=("./stop.sh", "a b", "007", "true"),
            ),
        ),
        ("{touch: /w/STOP, wait: 90}", Rung("", "trainers", 90, "touch", "/w/STOP")),
        ("{keys: C-c, wait: 5s, again: true}", Rung("", "trainers", 5, "keys", "C-c", again=True)),
        ("{await: checkpoint, wait: 30m}", Rung("", "trainers", 1800, "await", "checkpoint")),
        (
            "{signal: INT, to: trainers, wait: 1m, again: true, lossless: true, when: stalled}",
            Rung("INT", "trainers", 60, again=True, lossless=True, when=("stalled",)),
        ),
        (
            "{signal: 15, to: tree, wait: 0, unless: [saving, stopping]}",
            Rung("TERM", "tree", 0, unless=("saving", "stopping")),
        ),
    ],
)  # fmt: skip
def test_every_kind_of_rung(tmp_path: Path, written: str, rung: Rung) -> None:
    assert only(tmp_path, written) == rung


def test_a_run_is_filled_in_word_by_word_and_never_becomes_shell_text(tmp_path: Path) -> None:
    rung = only(tmp_path, "{run: [systemctl, stop, '--job={target}', '{unit}'], wait: 1}")
    # unfilled it is harmless: no unit is called that
    assert rung.argument == "systemctl stop '--job={target}' '{unit}'"
    hostile = {"unit": "a'; rm -rf / #{pid}$(x)`y`", "target": "ct200:train", "pid": "7"}
    done = filled(rung, hostile)
    assert shlex.split(done.argument) == [
        *("systemctl", "stop", "--job=ct200:train", "a'; rm -rf / #{pid}$(x)`y`"),
    ]
    # what a value holds is no placeholder, the second time neither
    assert filled(done, hostile) == done


@pytest.mark.parametrize("unit", [None, ""])
def test_a_run_without_a_value_is_not_run_in_part(tmp_path: Path, unit: str | None) -> None:
    rung = only(tmp_path, "{run: [systemctl, stop, '{unit}'], wait: 1}")
    for values in ({"unit": unit}, {}):
        with pytest.raises(BadUsage) as caught:
            filled(rung, values)
        assert caught.value.message == (
            "{unit} cannot be filled in: the systemd unit the job runs in is not known"
        )


def test_a_command_that_cannot_be_filled_in_says_so_in_its_turn(tmp_path: Path) -> None:
    systemd = load_playbook("systemd", cwd=tmp_path, dirs=[stock_dir()])
    known = filled_ladder(systemd.ladder, {"unit": "train@1.service", "pid": None})
    assert known[2].argument == "systemctl stop train@1.service"
    assert [unfilled(rung) for rung in known] == [None, None, None]
    without = filled_ladder(systemd.ladder, {"unit": None, "pid": "7"})
    assert without == systemd.ladder
    assert [unfilled(rung) for rung in without] == [
        None,
        None,
        "{unit} cannot be filled in: the systemd unit the job runs in is not known",
    ]
    # a value that looks like a placeholder is filled in once and stays what it is
    odd = filled_ladder(systemd.ladder, {"unit": "{unit}"})
    assert (odd[2].argument, unfilled(odd[2])) == ("systemctl stop '{unit}'", None)


@pytest.mark.parametrize(
    "written",
    [
        "{run: 'echo {unit} ${pid}', wait: 1}",
        "{run: [jq, '{a: 1}', '{}', '{PID}'], wait: 1}",
        "{touch: '/x/{unit}', wait: 1}",
        "{signal: INT, to: trainers, wait: 1}",
    ],
)
def test_braces_stand_for_themselves_everywhere_else(tmp_path: Path, written: str) -> None:
    rung = only(tmp_path, written)
    assert filled(rung, {}) == rung


@pytest.mark.parametrize(
    ("text", "lossy"),
    [
        ("{run: x, wait: 1}", True),
        ("{run: x, wait: 1, lossless: true}", False),
        ("{keys: C-c, wait: 1}", True),
        ("{keys: C-c, wait: 1, lossless: true}", False),
        ("{touch: /x, wait: 1}", False),
        ("{await: checkpoint, wait: 1}", False),
        ("{signal: INT, to: trainers, wait: 1}", False),
        ("{signal: INT, to: trainers, wait: 1, again: true, lossless: true}", False),
        ("{signal: INT, to: wrapper, wait: 1}", True),
        ("{signal: KILL, to: trainers, wait: 1}", True),
    ],
)
def test_what_always_needs_consent_may_not_stand_in_a_lossless_playbook(
    tmp_path: Path, text: str, lossy: bool
) -> None:
    rung = only(tmp_path, text)
    assert always_lossy(rung) is lossy
    assert (lossy_reason(rung) is not None) is lossy


def test_patience_may_end_a_lossless_ladder(tmp_path: Path) -> None:
    text = "lossless: true\nladder:\n - {touch: /x, wait: 1}\n - {await: checkpoint, wait: 1h}\n"
    assert [rung.does for rung in load(tmp_path, text).ladder] == ["touch", "await"]


STOCK = {path.stem for path in stock_dir().glob("*.yaml")}


@pytest.mark.parametrize("name", sorted(STOCK))
def test_no_stock_playbook_loses_work_unasked(tmp_path: Path, name: str) -> None:
    """Whatever a stock file tries without --force is a signal to the trainers, one of each name."""
    playbook = load_playbook(name, cwd=tmp_path, dirs=[stock_dir()])
    unasked = [rung for rung in playbook.ladder if not always_lossy(rung)]
    assert {(rung.does, rung.to) for rung in unasked} <= {("signal", "trainers")}
    assert name == "now" or playbook.hold is not None
    assert (name == "server") is any(rung.again for rung in playbook.ladder)
    if playbook.lossless:
        assert len(unasked) == len(playbook.ladder)


def test_what_a_server_is_sent(tmp_path: Path) -> None:
    playbook = load_playbook("server", cwd=tmp_path, dirs=[stock_dir()])
    assert playbook.ladder == (
        Rung("TERM", "trainers", 600),
        Rung("INT", "trainers", 60, again=True, lossless=True),
    )
    assert playbook.verify.checkpoint == "none"


def write(place: Path, **files: str) -> None:
    place.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (place / f"{name}.yaml").write_text(text)


BASE = """\
lossless: true
ladder:
  - {signal: INT, to: trainers, wait: 3m}
hold: {saving: 1h, stopping: 5m}
verify: {within: 5m}
"""


def test_a_file_says_only_what_is_different(tmp_path: Path) -> None:
    write(tmp_path / "playbooks", base=BASE, patient="extends: base\nhold: {saving: forever}\n")
    write(tmp_path / "else", last="extends: ../playbooks/patient.yaml\nlossless: false\n")
    last = load_playbook("else/last.yaml", cwd=tmp_path, dirs=[tmp_path / "playbooks"])
    assert last == Playbook(
        name="last",
        ladder=(Rung("INT", "trainers", 180),),
        lossless=False,
        # a key is replaced whole: nothing of the parent's hold is left
        hold=Hold(saving_s=FOREVER, stopping_s=60),
        verify=Verify(within_s=300),
        source="else/last.yaml",
        extends=("else/../playbooks/patient.yaml", "playbooks/base.yaml"),
    )


def test_a_lossy_child_of_a_lossless_parent(tmp_path: Path) -> None:
    text = "extends: base\nlossless: false\nladder: [{signal: KILL, to: tree, wait: 30s}]\n"
    write(tmp_path, base=BASE, mine=text)
    mine = load_playbook("mine", cwd=tmp_path, dirs=[tmp_path])
    assert (mine.ladder, mine.lossless) == ((KILL,), False)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            {"base": BASE, "mine": "extends: base\nladder: [{signal: KILL, to: tree, wait: 1}]\n"},
            "mine.yaml:2: ladder[0]: KILL loses work, and this playbook is lossless"
            " (by base.yaml:1, which it extends)",
        ),
        (
            {"base": BASE, "mine": "extends: base\nhold: none\n"},
            "mine.yaml:2: hold: a lossless playbook needs a hold: a signal can cut a save short"
            " (by base.yaml:1, which it extends)",
        ),
        (
            {
                "base": "ladder:\n - {signal: KILL, to: tree, wait: 1}\n",
                "mine": "extends: base\nlossless: true\n",
            },
            "base.yaml:2: ladder[0]: KILL loses work, and this playbook is lossless"
            " (as mine.yaml extends it)",
        ),
        (
            {
                "base": "hold: none\nladder: [{signal: INT, to: trainers, wait: 1}]\n",
                "mine": "extends: base\nlossless: true\n",
            },
            "base.yaml:1: hold: a lossless playbook needs a hold: a signal can cut a save short"
            " (as mine.yaml extends it)",
        ),
        (
            {"base": "laddr: []\n", "mine": "extends: base\n"},
            "base.yaml:1: unknown key 'laddr', did you mean 'ladder'?",
        ),
        (
            {"base": "hold: {saving: 1h}\n", "mine": "extends: base\n"},
            "mine.yaml:1: key 'ladder' is missing",
        ),
        (
            {"base": "lossless: true\nextends: mine\n", "mine": "\nextends: ./base.yaml\n"},
            "base.yaml:2: extends: playbooks extend each other: mine.yaml > base.yaml > mine.yaml",
        ),
        (
            {"a": "extends: b\n", "b": "extends: a\n", "mine": "extends: a\n"},
            "b.yaml:1: extends: playbooks extend each other: a.yaml > b.yaml > a.yaml",
        ),
        ({"mine": "extends: mine\n"}, "mine.yaml:1: extends: it extends itself"),
        (
            {"base": BASE, "mine": "extends: bsae\n"},
            "mine.yaml:1: extends: no playbook 'bsae', did you mean 'base'? Looked in .",
        ),
        ({"mine": "extends: sub/x.yaml\n"}, "mine.yaml:1: extends: there is no sub/x.yaml"),
    ],
)
def test_a_mistake_of_two_files_names_the_right_one(
    tmp_path: Path, files: dict[str, str], message: str
) -> None:
    write(tmp_path, **files)
    with pytest.raises(BadConfig) as caught:
        load_playbook("mine", cwd=tmp_path, dirs=[tmp_path])
    assert caught.value.message == message


def test_a_link_in_the_chain_is_seen_as_the_file_it_is(tmp_path: Path) -> None:
    write(tmp_path, mine="extends: alias\n")
    (tmp_path / "alias.yaml").symlink_to("mine.yaml")
    with pytest.raises(BadConfig, match="it extends itself"):
        load_playbook("mine", cwd=tmp_path, dirs=[tmp_path])


def test_the_shelf_tells_the_purpose_and_keeps_what_is_broken(tmp_path: Path) -> None:
    write(tmp_path / "playbooks", mine="# mine.yaml: for the big one.\n#\n" + BASE, none=BASE)
    write(tmp_path / "playbooks", bad="# late\nladder: []\n")
    dirs = [tmp_path / "playbooks", stock_dir()]
    mine, none, bad, stock = (
        shelved(name, cwd=tmp_path, dirs=dirs) for name in ("mine", "none", "bad", "graceful")
    )
    assert (mine.source, mine.stock, mine.purpose) == (
        "playbooks/mine.yaml", False, "for the big one.",
    )  # fmt: skip
    assert (none.purpose, none.problem) == ("", None)
    assert bad.playbook is None
    assert (bad.problem or "").startswith("playbooks/bad.yaml:2: ladder: needs at least one rung")
    assert stock.stock
    assert stock.purpose.startswith("let the trainer save and leave.")


README = (Path(__file__).resolve().parents[2] / "README.md").read_text()
SECTION = README.partition("## Writing a playbook\n")[2].partition("\n## ")[0]


def test_the_example_of_the_readme_is_right(tmp_path: Path) -> None:
    example = SECTION.partition("```yaml\n")[2].partition("```")[0]
    write(tmp_path / "playbooks", night=example)
    night = shelved("night", cwd=tmp_path, dirs=[tmp_path / "playbooks", stock_dir()])
    assert night.problem is None
    assert night.purpose.startswith("for runs that nobody watches.")
    assert night.playbook is not None
    assert night.playbook.verify == Verify("new", "released", 30)
    assert [rung.does for rung in night.playbook.ladder] == [
        *("signal", "await", "run", "signal"),
    ]


def test_the_readme_names_every_key_and_every_stock_playbook() -> None:
    shape = schema("playbook")
    keys = {*shape["properties"]}
    for part in ("hold", "verify", "probe"):
        inner = shape["properties"][part]
        keys |= {*(inner.get("properties") or inner["anyOf"][0]["properties"])}
    for kind in shape["properties"]["ladder"]["items"]["oneOf"]:
        keys |= {*kind["properties"]}
    assert len(keys) > 20
    assert {key for key in keys | STOCK if not re.search(rf"`{key}\b", SECTION)} == set()


@pytest.mark.parametrize("name", ["pipe.yaml", "mine.yaml"])
def test_a_pipe_among_the_playbooks_is_told_and_not_read(tmp_path: Path, name: str) -> None:
    """Opening it would wait for a writer for good."""
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "mine.yaml").write_text("extends: pipe.yaml\n")
    writer = os.open(tmp_path / "pipe.yaml", os.O_RDWR)
    os.write(writer, b"extends: graceful\n")
    end = threading.Timer(1.0, os.close, [writer])  # whoever reads after all hangs no test
    end.start()
    with pytest.raises(BadConfig, match=r"pipe\.yaml: is a pipe, no file"):
        load_playbook(str(tmp_path / name), cwd=tmp_path, dirs=[stock_dir()])
    end.join()


def test_what_the_shell_substitutes_is_read(tmp_path: Path) -> None:
    """`-p <(generate)`."""
    read, write = os.pipe()
    os.write(write, b"lossless: true\nladder: [{signal: INT, to: trainers, wait: 3m}]\n")
    os.close(write)
    try:
        assert load_playbook(f"/dev/fd/{read}", cwd=tmp_path, dirs=[]).lossless
    finally:
        os.close(read)
