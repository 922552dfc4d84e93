"""The script that looks for a checkpoint where we are not, against the rules that it follows."""

from __future__ import annotations

import io
import json
import os
import random
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fleetstop
from fleetstop.core.saves import rules, wholeness
from fleetstop.core.saves.checkpoint import Checkpoint, Listing, checkpoints, parse_listing
from fleetstop.core.saves.formats import TAIL_BYTES, head_bytes, longer_head
from fleetstop.remote.scripts import saves

SCRIPT = Path(fleetstop.__file__).parent / "remote" / "scripts" / "saves.py"
PRINT = r"%y\0%i\0%s\0%T@\0%p\0"


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saves, "STEADY_S", 0.0)


def by_core(top: Path) -> str | None:
    """As actions/grounding.py finds it, once nobody of the job lives."""
    words = ["find", f"{top}/", "-maxdepth", "5", "(", "-type", "f", "-o", "-type", "d", ")"]
    said = subprocess.run([*words, "-printf", PRINT], capture_output=True, check=True).stdout
    listing = parse_listing(said, 0)
    assert isinstance(listing, Listing)
    for one in reversed(checkpoints(listing)[-8:]):
        heads, tails = _ends(one)
        if wholeness.read(one, tails, heads, True, frozenset()).whole:
            return one.path
    return None


def _ends(one: Checkpoint) -> tuple[dict[str, bytes], dict[str, bytes]]:
    heads, tails = {}, {}
    for each in wholeness.wanted(one):
        body = Path(each.path).read_bytes()
        head = body[: head_bytes(each.path, each.size)]
        more = longer_head(each.path, head)
        heads[each.path] = head if more is None else body[:more]
        tails[each.path] = body[-TAIL_BYTES:]
    return heads, tails


def by_script(top: Path) -> str | None:
    return saves.Directory(str(top).encode(), saves.Rules(rules.told())).newest()


def torch(size: int = 3000) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("data.pkl", b"x" * size)
    return made.getvalue()


def tensors(size: int = 64) -> bytes:
    head = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, size]}}).encode()
    return len(head).to_bytes(8, "little") + head + b"t" * size


def shards(folder: str) -> dict[str, bytes]:
    names = [f"model-0000{n}-of-00002.safetensors" for n in (1, 2)]
    index = {"metadata": {"total_size": 128}, "weight_map": {"a": names[0], "b": names[1]}}
    made = {folder + name: tensors() for name in names}
    return made | {f"{folder}model.safetensors.index.json": json.dumps(index).encode()}


def dcp(folder: str) -> dict[str, bytes]:
    files = {f"{folder}__{n}_0.distcp": b"raw" * 50 for n in (0, 1)}
    return files | {f"{folder}.metadata": b"\x80\x04 __0_0.distcp __1_0.distcp end."}


WAYS: dict[str, Callable[[int], dict[str, bytes]]] = {
    "torch": lambda n: {f"step_{n}.pt": torch()},
    "safetensors": lambda n: {f"step_{n}.safetensors": tensors()},
    "before 1.6": lambda n: {f"step_{n}.bin": b"\x80\x02}q\x00." * 9},
    "unknown": lambda n: {f"step_{n}.npy": b"numbers" * 9},
    "shards": lambda n: shards(f"step_{n}/"),
    "shards beside each other": lambda n: shards(""),
    "dcp": lambda n: dcp(f"step_{n}/"),
    "dcp in two": lambda n: dcp(f"step_{n}/model/") | dcp(f"step_{n}/optim/"),
    "trainer": lambda n: {
        f"checkpoint-{n}/model.safetensors": tensors(), f"checkpoint-{n}/optimizer.pt": torch(),
        f"checkpoint-{n}/training_args.bin": torch(), f"checkpoint-{n}/config.json": b"{}",
        f"checkpoint-{n}/trainer_state.json": b'{"global_step": 3}',
    },
    "deepspeed": lambda n: {
        f"global_step{n}/mp_rank_00_model_states.pt": torch(),
        f"global_step{n}/zero_pp_rank_0_mp_rank_00_optim_states.pt": torch(),
        "latest": f"global_step{n}".encode(),
    },
    "xgboost": lambda n: {f"model_{n}.json": b'{"learner": {}}', "metrics.json": b"{"},
    "beside logs": lambda n: {
        f"step_{n}.pt": torch(), "events.out.tfevents.1": b"e", "train.log": b"l",
        "mlruns/0/1/metrics/loss": b"1 2 3", ".cache/x": b"x",
    },
}  # fmt: skip


def fill(top: Path, way: str, count: int, age_s: float = 100.0) -> None:
    for number in range(1, count + 1):
        for name, body in WAYS[way](number * 100).items():
            path = top / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(body)
            _date(path, age_s - number)


def _date(path: Path, age_s: float) -> None:
    at = time.time() - age_s
    os.utime(path, (at, at))


@pytest.mark.parametrize("way", WAYS)
def test_what_is_whole_is_found(tmp_path: Path, way: str) -> None:
    fill(tmp_path, way, 3)
    assert by_core(tmp_path) is not None
    assert by_script(tmp_path) == by_core(tmp_path)


@pytest.mark.parametrize("way", WAYS)
def test_whatever_is_torn_it_takes_none_that_is_not_whole(tmp_path: Path, way: str) -> None:
    """Files are cut, emptied, removed, renamed, or written later than the rest."""
    dice, kinds = random.Random(way), {"same": 0, "differs": 0}
    for turn in range(25):
        top = tmp_path / str(turn)
        fill(top, way, 3)
        for _ in range(dice.randint(1, 3)):
            path = dice.choice(sorted(e for e in top.rglob("*") if e.is_file()))
            harm(path, dice)
        kinds["same" if by_script(top) == by_core(top) else "differs"] += 1
    assert kinds == {"same": 25, "differs": 0}


def harm(path: Path, dice: random.Random) -> None:
    body = path.read_bytes()
    match dice.choice(("cut", "empty", "gone", "temp", "late", "longer")):
        case "cut":
            path.write_bytes(body[: dice.randrange(len(body) or 1)])
        case "empty":
            path.write_bytes(b"")
        case "gone":
            path.unlink()
        case "temp":
            path.rename(path.with_name(path.name + ".tmp"))
            return
        case "longer":
            path.write_bytes(body + b"more")
        case _:
            _date(path, 1.0)
            return
    if path.exists():
        _date(path, 100.0 - dice.randint(0, 5))


def test_what_somebody_writes_is_passed_over(tmp_path: Path) -> None:
    fill(tmp_path, "torch", 2)
    with (tmp_path / "step_200.pt").open("ab"):
        assert by_script(tmp_path) == str(tmp_path / "step_100.pt")
    assert by_script(tmp_path) == str(tmp_path / "step_200.pt")


def test_what_no_byte_tells_of_has_to_stand_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(tmp_path, "unknown", 2)

    def grows(_: float) -> None:
        with (tmp_path / "step_200.npy").open("ab") as file:
            file.write(b"more")

    monkeypatch.setattr("time.sleep", grows)
    assert by_script(tmp_path) == str(tmp_path / "step_100.npy")


def asked(question: dict[str, Any], limit: str = "30") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", str(SCRIPT), limit], input=json.dumps(question),
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_it_answers_in_one_line_and_ends_itself(tmp_path: Path) -> None:
    fill(tmp_path, "trainer", 2)
    question = {"directory": str(tmp_path), "rules": rules.told()}
    told = json.loads(asked(question).stdout)
    assert told == {"found": str(tmp_path / "checkpoint-200")}
    assert json.loads(asked({**question, "directory": "/nowhere"}).stdout) == {"found": None}
    fill(tmp_path / "more", "unknown", 1)
    late = asked({**question, "directory": str(tmp_path / "more")}, "0.01")
    assert (late.returncode, late.stdout) == (-14, "")  # SIGALRM
