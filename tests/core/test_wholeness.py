"""Sets of files, side files and last files: when is all of it there."""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path

import pytest

from fleetstop.core.saves.checkpoint import Checkpoint, Entry, Listing, checkpoints, new_checkpoints
from fleetstop.core.saves.formats import Read, head_bytes, longer_head
from fleetstop.core.saves.wholeness import (
    has_an_end,
    lacking,
    less_than_the_last,
    read,
    short_of_the_others,
    unfinished,
    usual_interval,
)

sys.path.insert(0, str(Path(__file__).parents[2] / "fleetstop/lab/files"))
from checkpoint_formats import FORMATS, files_of  # type: ignore[import-not-found]

sys.path.pop(0)
NOWHERE: frozenset[str] = frozenset()
TOLD, GUESSED = Read(True, True), Read(True, False)
TORN = Read(False, True)


def listing(files: dict[str, bytes], at: dict[str, float] | None = None) -> Listing:
    at = at or {}
    entries = [
        Entry(f"/ck/{name}", number, len(data), at.get(name, 9.0 + number), "f")
        for number, (name, data) in enumerate(files.items())
    ]
    return Listing("/ck/", tuple(entries))


def the(found: Listing) -> Checkpoint:
    [one] = checkpoints(found)
    return one


def judged(files: dict[str, bytes], *, stable: bool = True) -> Read:
    """As the actions do it: heads and tails of the real bytes."""
    one = the(listing(files))
    bytes_of = {f"/ck/{name}": data for name, data in files.items()}
    heads = {path: data[: head_bytes(path, len(data))] for path, data in bytes_of.items()}
    for path, head in heads.items():
        heads[path] = bytes_of[path][: longer_head(path, head) or len(head)]
    tails = {path: data[-1024:] for path, data in bytes_of.items()}
    return read(one, tails, heads, stable, NOWHERE)


def saved(kind: str, upto: int | None = None) -> dict[str, bytes]:
    """What lies there after the first `upto` steps of such a save."""
    there: dict[str, bytes] = {}
    for name, data in files_of(kind, 5, 30_000)[:upto]:
        final = name.partition(">")[2] or name
        if name.startswith("-"):
            del there[name[1:]]
        else:
            there[final] = data
    return there


@pytest.mark.parametrize("kind", FORMATS)
def test_what_a_framework_leaves_is_whole(kind: str) -> None:
    known = kind not in ("legacy", "raw")
    assert judged(saved(kind)) == Read(True, known)


@pytest.mark.parametrize("kind", ["sharded", "hf", "dcp", "async"])
def test_no_part_of_a_set_is_whole(kind: str) -> None:
    steps = len(files_of(kind, 5, 30_000))
    for upto in range(1, steps):
        files = saved(kind, upto)
        found = checkpoints(listing(files))
        if kind == "sharded" and upto == steps - 1:
            # all shards by their numbers; only the index that names them is missing
            assert judged(files) == TOLD
            continue
        if found:
            assert judged(files).whole is False, files.keys()
            assert unfinished(found) == found


def test_the_pointer_that_is_written_last_ends_a_save_of_all_ranks() -> None:
    files = saved("deepspeed")
    assert lacking(the(listing(files))) is None
    # an earlier save's pointer, and a directory that is newer than it
    old = listing(files, {"latest": 1.0})
    assert lacking(the(old)) == "its name in latest"
    assert unfinished(checkpoints(old))
    del files["latest"]
    assert lacking(the(listing(files))) is None  # nobody writes one here


def test_a_pointer_alone_makes_nothing_whole() -> None:
    files = saved("async", 1)
    files["latest"] = b"step_5"
    assert judged(files) == TORN


@pytest.mark.parametrize(
    "kind", ["zip", "safetensors", "sharded", "dcp", "hf", "deepspeed", "json"]
)
def test_any_cut_file_of_a_known_format_is_not_whole(kind: str) -> None:
    files = saved(kind)
    for name in files:
        if name.endswith(".distcp"):
            continue  # the .metadata vouches: it is written once the others are closed
        cut = {**files, name: files[name][:-30]}
        if name != "latest":
            assert judged(cut).whole is False, name


def test_the_metadata_names_files_that_must_be_there() -> None:
    files = saved("dcp")
    gone = {name: data for name, data in files.items() if not name.endswith("0_1.distcp")}
    assert judged(gone) == TORN
    empty = {**files, "step_5/__0_1.distcp": b""}
    assert judged(empty) == TORN


def test_the_index_names_files_and_their_size() -> None:
    files = saved("sharded")
    index = "step_5/model.safetensors.index.json"
    told = json.loads(files[index])
    told["weight_map"]["head"] = "head.safetensors"
    assert judged({**files, index: json.dumps(told).encode()}) == TORN
    told = json.loads(files[index])
    told["metadata"]["total_size"] *= 2
    assert judged({**files, index: json.dumps(told).encode()}) == TORN
    assert judged({**files, index: b'{"weight_map"'}) == TORN


def test_a_header_longer_than_the_first_read_is_read_whole() -> None:
    header = {f"layer.{n}": {"dtype": "U8", "data_offsets": [0, 8]} for n in range(3000)}
    packed = json.dumps(header).encode()
    data = len(packed).to_bytes(8, "little") + packed + bytes(8)
    assert head_bytes("a.safetensors", len(data)) < len(packed)
    assert judged({"a.safetensors": data}) == TOLD
    assert judged({"a.safetensors": data[:-1]}) == TORN


def test_the_trainers_state_vouches_for_what_it_was_written_after() -> None:
    files = {**saved("hf"), "checkpoint-5/tokenizer.model": b"sentencepiece"}
    assert judged(files, stable=False) == TOLD
    del files["checkpoint-5/trainer_state.json"]
    assert lacking(the(listing(files))) == "trainer_state.json, written last"


def test_weights_in_a_json_are_a_checkpoint_where_they_stand_alone() -> None:
    assert judged({"model_5.json": b'{"learner": 1}'}) == TOLD
    assert judged({"step_5/model.json": b'{"learner": 1'}) == TORN
    for beside in ("config.json", "args.json", "metrics.json", "step_5/tokenizer.json"):
        assert checkpoints(listing({beside: b"{}"})) == ()
    two = listing({"step_5.pt": b"x", "model.json": b"{}"})
    assert [each.name for each in checkpoints(two)] == ["step_5.pt"]


def test_shards_side_by_side_are_one_checkpoint() -> None:
    names = [f"model-{n:05d}-of-00002.safetensors" for n in (1, 2)]
    files = {name: saved("safetensors")["step_5.safetensors"] for name in names}
    whole = listing(files)
    one = the(whole)
    assert one.name == names[0]
    assert one.size == sum(map(len, files.values()))
    assert judged(files) == TOLD
    assert judged({names[0]: files[names[0]]}) == TORN
    assert new_checkpoints(listing({names[0]: files[names[0]]}), whole) == (one,)


def test_a_directory_that_is_one_distributed_checkpoint() -> None:
    inside = {name.partition("/")[2]: data for name, data in saved("dcp").items()}
    one = the(listing(inside))
    assert (one.name, one.path) == ("ck", "/ck")
    assert judged(inside) == TOLD
    del inside[".metadata"]
    assert judged(inside) == TORN


def test_fsdp_keeps_one_index_in_each_folder() -> None:
    index = pickle.dumps(["__0_0.distcp"], protocol=2)
    files = {
        "checkpoint-5/model_0/__0_0.distcp": b"w",
        "checkpoint-5/model_0/.metadata": index,
        "checkpoint-5/optimizer_0/__0_0.distcp": b"w",
    }
    assert lacking(the(listing(files))) == "its .metadata, written last"
    files["checkpoint-5/optimizer_0/.metadata"] = index
    assert judged(files) == TOLD


def test_more_zips_than_are_read_are_guessed() -> None:
    files = {f"step_5/rank_{n}.pt": saved("zip")["step_5.pt"] for n in range(80)}
    assert judged(files) == GUESSED
    last = "step_5/rank_79.pt"
    assert judged({**files, last: files[last][:-10]}) == TORN


def at(*times: float, name: str = "step_{}.pt") -> tuple[Checkpoint, ...]:
    files = {name.format(n): b"x" for n in range(len(times))}
    return checkpoints(listing(files, dict(zip(files, times, strict=True))))


@pytest.mark.parametrize(
    ("times", "usual"),
    [
        ((), None),
        ((0.0, 600.0), None),
        ((0.0, 600.0, 1200.0), 600.0),
        # a pause of a day between two lives of the job
        ((0.0, 600.0, 87_000.0, 87_600.0, 88_200.0), 600.0),
        ((0.0, 500.0, 1200.0), 600.0),
        # copied in one go: they tell nothing
        ((5.0, 5.0, 5.0), None),
    ],
)
def test_the_usual_interval(times: tuple[float, ...], usual: float | None) -> None:
    found = at(*times)
    assert (usual_interval(found, found[-1]) if found else None) == usual


def test_the_interval_is_that_of_its_own_kind() -> None:
    files = {"step_1.pt": b"x", "step_2.pt": b"x", "step_3.pt": b"x", "best.pt": b"x"}
    found = checkpoints(
        listing(files, {"step_1.pt": 0, "step_2.pt": 60, "best.pt": 61, "step_3.pt": 120})
    )
    by_name = {each.name: each for each in found}
    assert usual_interval(found, by_name["step_3.pt"]) == 60.0
    assert usual_interval(found, by_name["best.pt"]) is None


def test_after_what_nothing_more_can_come() -> None:
    assert has_an_end(the(listing(saved("hf"))))
    assert has_an_end(the(listing(saved("deepspeed"))))
    # the index comes after the last shard, the optimizer's folder after the model's
    assert not has_an_end(the(listing(saved("sharded", 3))))
    assert not has_an_end(the(listing(saved("dcp"))))
    assert not has_an_end(the(listing({"step_1/rank_0.pt": b"x"})))


def parts(**folders: str) -> tuple[Checkpoint, ...]:
    """`step_30="model optimizer"`: directories with such files, the oldest first."""
    files = {
        f"{folder}/{name}.pt": b"x" for folder, names in folders.items() for name in names.split()
    }
    return checkpoints(listing(files))


def test_a_directory_without_what_the_two_before_it_have_is_short_of_them() -> None:
    found = parts(step_30="model optimizer", step_60="model optimizer", step_90="model")
    assert [each.name for each in short_of_the_others(found)] == ["step_90"]
    found = parts(step_30="rank_0_30 rank_1_30", step_60="rank_0_60 rank_1_60", step_90="rank_0_90")
    assert [each.name for each in short_of_the_others(found)] == ["step_90"]
    assert not short_of_the_others(found[:-1])


def test_one_before_it_is_no_habit_and_another_kind_is_no_company() -> None:
    assert not short_of_the_others(parts(step_30="model optimizer", step_60="model"))
    found = parts(step_30="model optimizer", step_60="model optimizer", best="model")
    assert not short_of_the_others(found)
    # only the second of three was a full one
    assert not short_of_the_others(parts(step_1="model", step_2="model more", step_3="model"))


def test_a_save_with_less_than_the_last_one_is_whole_with_a_doubt() -> None:
    found = parts(step_10="rank_0_10 rank_1_10", step_26="rank_0_26")
    said = less_than_the_last(found, found[-1])
    assert said == "step_26 has no rank_1_10.pt, as step_10 has: it may not be whole"
    found = parts(step_30="a b c", step_60="a")
    assert less_than_the_last(found, found[-1]) == (
        "step_60 has no b.pt and 1 more, as step_30 has: it may not be whole"
    )
    assert less_than_the_last(found, found[0]) is None
    for more in ("a b c", "a b c d"):
        alike = parts(step_30="a b c", step_60=more)
        assert less_than_the_last(alike, alike[-1]) is None
    alike = parts(step_1="rank_0_1 rank_1_1", step_26="rank_0_26 rank_1_26")
    assert less_than_the_last(alike, alike[-1]) is None
    other = parts(step_30="a b", best="a")
    assert less_than_the_last(other, other[-1]) is None
