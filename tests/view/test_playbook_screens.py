"""`playbook ls`, `show`, `check` as their golden files have them; UPDATE_GOLDEN=1 writes them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from fleetstop.config import playbook_dirs, playbook_files, shelved
from fleetstop.core.inventory import Inventory
from fleetstop.core.shelf import Shelved
from fleetstop.view import playbooks as view
from fleetstop.view.json_lines import line
from tests.core.test_redact import controls
from tests.view.test_screens import same

ROOT = Path(__file__).resolve().parents[2]
FILES = {
    "night": """\
# night.yaml: for the runs nobody watches, patient and by its own stop file.
extends: standard
ladder:
  - {touch: /workspace/STOP, wait: 10m}
  - {await: checkpoint, wait: 1h30m, unless: [stalled, deaf]}
  - {signal: stop_signal, to: trainers, wait: forever, unless: saving}
  - run: [/opt/drain.sh, --pid, "{pid}", two words]
    wait: 90s
    lossless: true
    when: [busy, stalled]
  - {keys: q Enter, wait: 20s, again: true}
  - {signal: TERM, to: wrapper, wait: 1m}
hold: {saving: forever, stopping: 5m}
verify: {checkpoint: none, gpus: ignore, within: 2m}
probe: {gpus: none, every: 2s}
""",
    "nameless": "# nameless.yaml: turns \u202e around\nextends: night\nlossless: false\n",
    "typo": "lossless: true\nladder:\n  - {signal: INT, to: trainers, wiat: 3m}\n",
    "rash": "# rash.yaml: hopes \u202e much\nextends: standard\nlossless: true\n",
}


@pytest.fixture
def shelf(tmp_path: Path) -> list[Shelved]:
    (tmp_path / "playbooks").mkdir()
    for name, text in FILES.items():
        (tmp_path / f"playbooks/{name}.yaml").write_text(text, encoding="utf-8")
    dirs = playbook_dirs(Inventory(), tmp_path)
    names = sorted(playbook_files(dirs))
    return [shelved(name, cwd=tmp_path, dirs=dirs) for name in names]


def screen(name: str, lines: Sequence[str]) -> None:
    text = "".join(each + "\n" for each in lines)
    # where the stock lies is not the same on every machine
    text = text.replace(f"{ROOT}/", "…/")
    assert controls(text.replace("\n", "")) == []
    same(name, text)


def named(shelf: Sequence[Shelved], name: str) -> Shelved:
    [found] = [each for each in shelf if each.name == name]
    return found


def test_the_list(shelf: list[Shelved]) -> None:
    screen("playbook_ls", view.table(shelf))


@pytest.mark.parametrize("name", ["graceful", "standard", "now", "systemd", "server", "night"])
def test_one_as_a_ladder(shelf: list[Shelved], name: str) -> None:
    found = named(shelf, name)
    assert found.playbook is not None
    lines = view.ladder(found, found.playbook)
    screen(f"playbook_show_{name}", lines)
    assert all(len(each.replace(f"{ROOT}/", "…/")) <= 104 for each in lines)


def test_a_chain_of_three(shelf: list[Shelved]) -> None:
    found = named(shelf, "nameless")
    assert found.playbook is not None
    lines = view.ladder(found, found.playbook)
    assert lines[0] == "nameless: turns \\u202e around"
    assert lines[2] == f"  extends     playbooks/night.yaml, then {ROOT}/playbooks/standard.yaml"


def test_what_is_wrong_with_files(shelf: list[Shelved]) -> None:
    chosen = [named(shelf, name) for name in ("night", "typo", "rash", "graceful")]
    gone = Shelved("gone", "gone", False, problem="gone.yaml: there is no such file", hint="ls")
    screen("playbook_check_bad", view.findings([*chosen, gone]))
    screen("playbook_check_good", view.findings(chosen[:1]))
    assert view.findings([gone])[-1] == "none right, 1 wrong"


def test_for_scripts_every_key_is_always_there(shelf: list[Shelved]) -> None:
    told = [json.loads(line(view.told(each))) for each in shelf]
    assert len({tuple(each) for each in told}) == 1
    night, typo = (next(x for x in told if x["name"] == n) for n in ("night", "typo"))
    assert [rung["does"] for rung in night["ladder"]] == [
        *("touch", "await", "signal", "run", "keys", "signal"),
    ]
    assert len({tuple(rung) for rung in night["ladder"]}) == 1
    assert night["ladder"][3]["argument"] == "/opt/drain.sh --pid '{pid}' 'two words'"
    assert [rung["always_lossy"] for rung in night["ladder"]] == [
        *(False, False, False, False, True, True),
    ]
    # forever is null, and so is no hold at all
    assert night["ladder"][2]["wait_s"] is None
    assert night["hold"] == {"saving_s": None, "stopping_s": 300.0}
    assert next(x for x in told if x["name"] == "now")["hold"] is None
    assert (typo["ladder"], typo["lossless"]) == (None, None)
    assert typo["problem"].startswith("playbooks/typo.yaml:3: ladder[0]: unknown key 'wiat'")
