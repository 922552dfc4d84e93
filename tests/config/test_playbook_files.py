from __future__ import annotations

from pathlib import Path

import pytest

from fleetstop.config import load_playbook, playbook_dirs, playbook_files, stock_dir
from fleetstop.core.inventory import Inventory
from fleetstop.core.playbook import FOREVER, Hold, Playbook, Rung, Verify
from fleetstop.errors import BadConfig

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


@pytest.mark.parametrize(
    ("text", "message"),
    [
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
        ("ladder: [{run: x}]\n", "1: ladder[0]: a run rung is not supported by this version"),
        (
            "ladder: [{await: checkpoint}]\n",
            "1: ladder[0]: a await rung is not supported by this version",
        ),
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
    ],
)
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
        f"no playbook 'gracefull', did you mean 'graceful'?; looked in playbooks, {stock_dir()}"
    )
    assert caught.value.hint == "playbooks there: graceful, now, standard"


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
