"""Whether a checkpoint is whole: what its names lack, and what the bytes of its files say."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping

from fleetstop.core.saves.checkpoint import (
    DCP_INDEX,
    HF_STATE,
    SHARD,
    Checkpoint,
    is_temp,
    shape,
)
from fleetstop.core.saves.formats import (
    ZIP_NAMES,
    Read,
    dcp_names,
    is_index,
    read_file,
    read_index,
    read_json,
)
from fleetstop.core.saves.listing import Entry

MOST_READ = 64
"""Files of one checkpoint whose ends are read; of more, those that were written last."""

RANK_FILE = re.compile(r"(?:.*/)?(?:mp_rank_|zero_pp_rank_)[0-9].*")
HF_ARGUMENTS = "training_args.bin"


def usual_interval(found: tuple[Checkpoint, ...], like: Checkpoint) -> float | None:
    """Median seconds between the last few checkpoints named like this one, those that lack no
    part; None below three. Only names, sizes and times are looked at."""
    wanted_shape = shape(like.name)
    kept = [c for c in found if shape(c.name) == wanted_shape and c.size and not lacking(c)][-6:]
    gaps = sorted(b.mtime - a.mtime for a, b in itertools.pairwise(kept))
    if len(kept) < 3 or gaps[len(gaps) // 2] <= 0:
        return None
    return (gaps[(len(gaps) - 1) // 2] + gaps[len(gaps) // 2]) / 2


def unfinished(found: tuple[Checkpoint, ...]) -> tuple[Checkpoint, ...]:
    """Those that lack a part by their own files' names: more is still to come, or never will."""
    return tuple(
        each
        for each in found
        if lacking(each) or any(is_temp(e.path[len(each.root) :]) for e in each.files)
    )


def short_of_the_others(found: tuple[Checkpoint, ...]) -> tuple[Checkpoint, ...]:
    """Directories without a file that each of the two before them, named like them, has.

    No proof that it is unfinished (a job may go on with fewer ranks), so a reason to wait for a
    while and none to deny a save. `found`: oldest first.
    """
    earlier: dict[str, list[frozenset[str]]] = {}
    short: list[Checkpoint] = []
    for each in found:
        if each.folder == each.root:
            continue
        names = frozenset(_without_its_number(each, file) for file in each.files)
        before = earlier.setdefault(shape(each.name), [])
        if len(before) >= 2 and not (before[-1] & before[-2]) <= names:
            short.append(each)
        before.append(names)
    return tuple(short)


def less_than_the_last(found: tuple[Checkpoint, ...], one: Checkpoint) -> str | None:
    """What the directory named like it and just before it has, and it has not; a sentence, and no
    proof: fewer ranks may have written it. None where nothing is missing, or none came before."""
    alike = [c for c in found if c.folder != c.root and shape(c.name) == shape(one.name)]
    before = next((c for c in reversed(alike) if c.mtime < one.mtime and c.path != one.path), None)
    if before is None or one.folder == one.root:
        return None
    has = {_without_its_number(one, file) for file in one.files}
    lacks = [f for f in before.files if _without_its_number(before, f) not in has]
    if not lacks or len(one.files) >= len(before.files):
        return None  # as many under other names: it is named otherwise
    name = lacks[0].path[len(before.folder) :]
    more = f" and {len(lacks) - 1} more" if len(lacks) > 1 else ""
    return f"{one.name} has no {name}{more}, as {before.name} has: it may not be whole"


def _without_its_number(checkpoint: Checkpoint, file: Entry) -> str:
    """`step_30/rank_0_step_30.pt` and `step_60/rank_0_step_60.pt` are the same file."""
    name = file.path[len(checkpoint.folder) :]
    for number in re.findall(r"[0-9]{2,}", checkpoint.name):
        name = re.sub(rf"(?<![0-9]){number}(?![0-9])", "#", name)
    return name


def has_an_end(checkpoint: Checkpoint) -> bool:
    """Something was written that only comes after all else: transformers' state, a pointer.
    After the last shard an index may follow, after DCP's `.metadata` another folder."""
    if any(each.path == checkpoint.folder + HF_STATE for each in checkpoint.notes):
        return True
    pointer = checkpoint.pointer
    ranks = any(RANK_FILE.fullmatch(e.path[len(checkpoint.folder) :]) for e in checkpoint.files)
    return ranks and pointer is not None and pointer.mtime >= checkpoint.mtime


def lacking(checkpoint: Checkpoint) -> str | None:
    """What is missing of it, by names, sizes and times alone."""
    names = {each.path[len(checkpoint.folder) :]: each for each in checkpoint.files}
    folders = {name.rpartition("/")[0] for name in names if name.endswith(".distcp")}
    for folder in folders:
        index = names.get(f"{folder}/{DCP_INDEX}" if folder else DCP_INDEX)
        if index is None or not index.size:
            return "its .metadata, written last"
    if any(name.endswith(".distcp") and not each.size for name, each in names.items()):
        return "the bytes of a .distcp file"
    sets: dict[tuple[str, str, str | None], set[str]] = {}
    for match in filter(None, map(SHARD.fullmatch, names)):
        sets.setdefault((match[1], match[4], match[5]), set()).add(match[2])
    for (_, total, _), numbers in sets.items():
        if len(numbers) < int(total):
            return f"{int(total) - len(numbers)} of {int(total)} shards"
    if _is_trainers(checkpoint, names) and not any(
        each.path == checkpoint.folder + HF_STATE and each.size for each in checkpoint.notes
    ):
        return f"{HF_STATE}, written last"
    pointer = checkpoint.pointer
    if pointer is not None and any(RANK_FILE.fullmatch(name) for name in names):
        return (
            f"its name in {pointer.path[len(checkpoint.root) :]}"
            if (pointer.mtime < checkpoint.mtime)
            else None
        )
    return None


def _is_trainers(checkpoint: Checkpoint, names: Mapping[str, Entry]) -> bool:
    """A `checkpoint-500` of transformers' Trainer."""
    return HF_ARGUMENTS in names and re.fullmatch(r"checkpoint-[0-9]+", checkpoint.name) is not None


def _read_too(checkpoint: Checkpoint) -> list[Entry]:
    """Files besides zips and safetensors whose bytes tell."""
    indexes = [e for e in checkpoint.files if e.path.rsplit("/", 1)[-1] == DCP_INDEX]
    return [*indexes, *checkpoint.notes, *(e for e in checkpoint.files if e.path.endswith(".json"))]


def _telling(checkpoint: Checkpoint) -> list[Entry]:
    names = (*ZIP_NAMES, ".safetensors")
    found = [each for each in checkpoint.files if each.path.lower().endswith(names)]
    if len(found) > MOST_READ:
        found = sorted(found, key=lambda each: each.mtime)[-MOST_READ:]
    return [*found, *_read_too(checkpoint)]


def wanted(checkpoint: Checkpoint) -> tuple[Entry, ...]:
    """The files whose ends are to be read."""
    return tuple(dict.fromkeys(_telling(checkpoint)))


def read(
    checkpoint: Checkpoint,
    tails: Mapping[str, bytes],
    heads: Mapping[str, bytes] | None,
    stable: bool,
    open_for_write: frozenset[str],
) -> Read:
    """Whether it is whole, and whether its bytes told.

    `stable`: unchanged over two looks 1 s apart; it decides where the format is unknown.
    """
    every = (*checkpoint.files, *checkpoint.notes)
    open_now = any(each.path in open_for_write for each in every)
    temporary = any(is_temp(each.path[len(checkpoint.root) :]) for each in checkpoint.files)
    if open_now or temporary or not checkpoint.size:
        return Read(False, True)
    if lacking(checkpoint):
        return Read(None, False) if checkpoint.cut else Read(False, True)
    told = dict(_told(checkpoint, tails, heads or {}, stable))
    # what its writer writes last vouches for the rest, whatever format that has
    vouched = told.get(checkpoint.folder + HF_STATE) == Read(True, True)
    reads = [each for each in told.values() if each.known or not vouched]
    words = {each.whole for each in reads}
    whole = False if False in words else None if None in words else True
    deciding = [each for each in reads if each.whole is whole]
    known = any if whole is False else all
    return Read(whole, known(each.known for each in deciding))


def _told(
    checkpoint: Checkpoint, tails: Mapping[str, bytes], heads: Mapping[str, bytes], stable: bool
) -> Iterator[tuple[str, Read]]:
    """What each file says of itself and of its siblings."""
    sizes = {each.path: each.size for each in checkpoint.files}
    asked = {each.path for each in wanted(checkpoint)}
    for each in checkpoint.files:
        head, tail = heads.get(each.path), tails.get(each.path)
        folder, _, last = each.path.rpartition("/")
        if last == DCP_INDEX:
            yield each.path, _dcp(each, head, tail, folder, set(sizes))
        elif each.path.endswith(".distcp"):
            continue  # vouched for by the .metadata beside it
        elif each.path in asked or not each.path.lower().endswith(ZIP_NAMES):
            yield each.path, read_file(each.path, each.size, tail, head, stable)
        else:
            yield each.path, Read(True if stable else None, False)
    for each in checkpoint.notes:
        head = heads.get(each.path)
        if is_index(each.path):
            yield each.path, _index(each, head, sizes)
        elif head is not None or each.path in tails:
            yield each.path, read_json(each.size, tails.get(each.path), head, True)


def _dcp(each: Entry, head: bytes | None, tail: bytes | None, folder: str, here: set[str]) -> Read:
    if head is None:
        return Read(True, False)
    names = dcp_names(each.size, head, tail)
    if names is None:
        return Read(False, True)
    return Read(all(f"{folder}/{name}" in here for name in names), True)


def _index(each: Entry, head: bytes | None, sizes: Mapping[str, int]) -> Read:
    """All that it names is there, and holds as much as it says."""
    if head is None or len(head) < each.size:
        return Read(True, False)
    told = read_index(head)
    if told is None:
        return Read(False, True)
    folder = each.path.rpartition("/")[0] + "/"
    there = [sizes.get(folder + name, 0) for name in told.names]
    return Read(all(there) and sum(there) >= told.total, True)
