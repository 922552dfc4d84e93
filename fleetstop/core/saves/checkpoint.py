"""Which files are checkpoints, and which of them are new; reads no file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import translate
from functools import lru_cache

from msgspec import Struct

from fleetstop.core.saves.formats import HEAD_BYTES, TAIL_BYTES, is_index
from fleetstop.core.saves.listing import MOST_ENTRIES, Entry, Listing, parse_listing, parse_newest

__all__ = [
    "HEAD_BYTES",
    "MOST_ENTRIES",
    "TAIL_BYTES",
    "Checkpoint",
    "Entry",
    "Listing",
    "checkpoints",
    "parse_listing",
    "parse_newest",
]

SHARD = re.compile(r"(.*-)([0-9]{1,6})(-of-)([0-9]{1,6})(\..*)?")
TEMP = (
    *("*.tmp", ".tmp*", "*.tmp.*", "*.tmp-*", "tmp-*", ".*", "*.temp", "*-tmp", "*_tmp"),
    *("*.partial", "*.part", "*.incomplete", "*.writing", "*.saving", "*checkpoint-tmp-*"),
    "*-is-incomplete*",  # transformers' mark in a directory that is being written
)
LOG_LIKE = (
    *("*.log", "*.txt", "*.json", "*.jsonl", "*.yaml", "*.yml", "*.csv", "*.md", "*.out", "*.err"),
    # what a run draws meanwhile
    *("*.png", "*.jpg", "*.jpeg", "*.gif", "*.webp", "*.svg", "*.mp4", "*.wav", "*.html", "*.pdf"),
    *("events.out.tfevents*", "*.wandb", "*.lock", "*.pid", "*.py", "*.pyc"),
    # written to for as long as the job lives: rotated logs, SQLite (Optuna) with its side files
    *("*.log.[0-9]*", "*.db", "*.sqlite", "*.sqlite3"),
    *("*.db-[wsj]*", "*.sqlite-[wsj]*", "*.sqlite3-[wsj]*"),
)
# MLflow's own files: a line a step, in files that have no ending
MLFLOW = re.compile(r"(?:.*/)?mlruns/[^/]+/[^/]+/(?:metrics|params|tags)/.*")
# What else is log-like by its ending and may be the model itself: XGBoost's JSON, LightGBM's text,
# a database that is written in one transaction and closed
MODEL = re.compile(
    r"(?:.*[-_.])?(?:(?:model|booster|weights|xgb[a-z]*|ckpt|checkpoint|step|epoch|iter[a-z]*|round)"
    r"(?:[-_.]?[0-9]+)?\.(?:json|db|sqlite3?)|(?:model|booster|lgbm?)(?:[-_.]?[0-9]+)?\.txt)"
)
_DATABASE = re.compile(r"(.*\.(?:db|sqlite3?))(-journal)?")
# Begin with a dot and are not temporary: DCP's last file, and what no trainer writes.
DCP_INDEX = ".metadata"
NO_CHECKPOINT = (".git*", ".nfs*", ".ds_store", ".cache", ".ipynb_checkpoints")
# Text files that name the newest checkpoint (DeepSpeed, TensorFlow).
POINTERS = {"latest", "latest_universal", "checkpoint"}
# DeepSpeed and Megatron write these once every rank has saved.
LAST_WRITTEN = ("latest", "latest_checkpointed_iteration.txt")
# transformers' Trainer writes its own state last (Trainer._save_checkpoint)
HF_STATE = "trainer_state.json"
_STRIPS = (
    *(r"\.tmp[.-][^.]*$", r"\.tmp\b", r"\.(?:tmp|partial|part|incomplete|writing|saving|temp)$"),
    *(r"^\.?tmp[-_.]", r"^\.(?!tmp)", r"[-_]tmp$", r"\.?\w*-?checkpoint-tmp-.*$"),
)


def _any_of(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(translate, patterns)))


_IS_TEMP, _IS_LOG_LIKE, _IS_NONE = map(_any_of, (TEMP, LOG_LIKE, NO_CHECKPOINT))


class Checkpoint(Struct, frozen=True):
    """One file below the directory, or all of one subdirectory's; `name` relative to it.

    Shards side by side in the directory itself are one, under the first one's name. `size` is
    the sum, `mtime` the latest; `files` include temporary ones, but no logs. `notes` lie with
    them and tell of them (an index, transformers' state). `folder` is what relative names leave
    out, `pointer` the file that its writer writes last. `cut`: older files may be there unseen.
    """

    name: str
    path: str
    size: int
    mtime: float
    files: tuple[Entry, ...]
    notes: tuple[Entry, ...] = ()
    folder: str = ""
    root: str = ""
    pointer: Entry | None = None
    cut: bool = False


@lru_cache(maxsize=1 << 16)
def is_temp(name: str) -> bool:
    """A name, or any part of a path, under which a save is still being written."""
    parts = [each for each in name.lower().split("/") if each and each != DCP_INDEX]
    return any(map(_IS_TEMP.match, parts))


@lru_cache(maxsize=1 << 16)
def is_log_like(name: str) -> bool:
    """By its name, or by the place below the directory: known to be no part of a checkpoint."""
    path = name.lower()
    last = path.rsplit("/", 1)[-1]
    known = _IS_LOG_LIKE.match(last) or MLFLOW.fullmatch(path)
    return known is not None and "-is-incomplete" not in last


def may_be_model(name: str) -> bool:
    """A log-like name that a model has as well; whether it is one, its company tells."""
    return MODEL.fullmatch(name.lower().rsplit("/", 1)[-1]) is not None


def database(name: str) -> tuple[str, bool] | None:
    """The database that this file is, or belongs to as its rollback journal: that is there for as
    long as a transaction lasts (sqlite.org/lockingv3.html), while the database may stay open for
    life. None: it is neither."""
    found = _DATABASE.fullmatch(name.lower())
    return (found[1], found[2] is not None) if found else None


def shape(name: str) -> str:
    """A name with its numbers taken out, temporary or not: `step_#.pt`."""
    last = name.rsplit("/", 1)[-1]
    for each in _STRIPS:
        last = re.sub(each, "", last, flags=re.IGNORECASE)
    return re.sub(r"[0-9]+", "#", last)


@lru_cache(maxsize=1 << 16)
def _no_checkpoint(name: str) -> bool:
    parts = name.lower().split("/")
    return any(map(_IS_NONE.match, parts))


def _is_pointer(name: str, size: int) -> bool:
    return name.rsplit("/", 1)[-1] in POINTERS and size < 4096


def saved_files(listing: Listing) -> Iterator[Entry]:
    """Files that are, or are becoming, part of a checkpoint."""
    models, folders = [], set()
    for each in listing.entries:
        name = listing.name(each)
        if each.kind != "f" or _is_pointer(name, each.size) or _no_checkpoint(name):
            continue
        if not is_log_like(name):
            folders.add(name.rpartition("/")[0])
            yield each
        elif may_be_model(name):
            models.append(each)
    # beside weights it tells of them; alone it is the model
    yield from (e for e in models if listing.name(e).rpartition("/")[0] not in folders)


def checkpoints(listing: Listing) -> tuple[Checkpoint, ...]:
    """All, oldest first; nothing that is temporary by its own name or has only such files."""
    files = list(saved_files(listing))
    top = [listing.name(each) for each in files]
    dcp = any(name == DCP_INDEX or name.endswith(".distcp") for name in top if "/" not in name)
    groups: dict[str, list[Entry]] = {}
    for each, name in zip(files, top, strict=True):
        groups.setdefault(_group(name, dcp), []).append(each)
    notes: dict[str, list[Entry]] = {}
    for each in listing.entries:
        name = listing.name(each)
        if each.kind == "f" and (is_index(name) or name.rsplit("/", 1)[-1] == HF_STATE):
            notes.setdefault(name.rpartition("/")[0].split("/", 1)[0], []).append(each)
    found = (
        _checkpoint(listing, key, entries, notes)
        for key, entries in groups.items()
        if not all(is_temp(listing.name(each)) for each in entries)
    )
    return tuple(sorted(found, key=lambda each: (each.mtime, each.name)))


def _group(name: str, dcp: bool) -> str:
    """`step_1/` and below; the files of one set beside each other; else the file itself."""
    first, slash, _ = name.partition("/")
    if slash:
        return first + "/"
    if dcp and (name == DCP_INDEX or name.endswith(".distcp")):
        return "/"
    shard = SHARD.fullmatch(name)
    return "".join((shard[1], "*", shard[3], shard[4], shard[5] or "")) if shard else name


def _checkpoint(
    listing: Listing, key: str, files: list[Entry], notes: dict[str, list[Entry]]
) -> Checkpoint:
    root = listing.root
    first = min(listing.name(each) for each in files)
    inside = key.endswith("/") and key != "/"
    path = root.rstrip("/") if key == "/" else root + (key[:-1] if inside else first)
    name = path.rsplit("/", 1)[-1] if key == "/" else path[len(root) :]
    alone = not inside and len(files) == 1 and not SHARD.fullmatch(first)
    return Checkpoint(
        name=name,
        path=path,
        size=sum(each.size for each in files),
        mtime=max(each.mtime for each in files),
        files=tuple(files),
        notes=() if alone else tuple(notes.get(key[:-1] if inside else "", ())),
        folder=f"{path}/" if inside else root,
        root=root,
        pointer=_last_written(listing) if inside else None,
        cut=listing.floor is not None,
    )


def _last_written(listing: Listing) -> Entry | None:
    return next((e for e in listing.entries if listing.name(e) in LAST_WRITTEN), None)


def newest(listing: Listing) -> Checkpoint | None:
    return next(reversed(checkpoints(listing)), None)


def new_since(before: Listing, now: Listing) -> tuple[Entry, ...]:
    """Final files that the first look did not have, by path, inode, size and mtime.

    Nor is a rotation new (`last.pt` moved to `last.old.pt`): the same inode, size and mtime
    under another final name. A temporary file that got its final name is. Of a directory of
    which only the newest files were listed, older ones than those are not new either.
    """
    old = {(e.inode, e.size, e.mtime) for e in saved_files(before) if not is_temp(before.name(e))}
    floor = -1e18 if before.floor is None else before.floor
    return tuple(
        each
        for each in saved_files(now)
        if (each.inode, each.size, each.mtime) not in old
        and not is_temp(now.name(each))
        and each.mtime >= floor
    )


def new_checkpoints(before: Listing, now: Listing) -> tuple[Checkpoint, ...]:
    """Those with at least one new file, oldest first."""
    fresh = set(new_since(before, now))
    return tuple(each for each in checkpoints(now) if not fresh.isdisjoint(each.files))


def growing(a: Listing, b: Listing) -> tuple[str, ...]:
    """Paths that appeared, or whose size, mtime or inode moved, from `a` to `b`; no logs."""
    old = set(saved_files(a))
    floor = -1e18 if a.floor is None else a.floor
    return tuple(e.path for e in saved_files(b) if e not in old and e.mtime >= floor)


def written_since(before: Listing, one: Checkpoint) -> bool:
    """Whether any of its files appeared or moved since this listing."""
    return not set(before.entries).issuperset(one.files)


def temp_without_final(listing: Listing) -> tuple[Entry, ...]:
    """Temporary files and directories whose final name is absent or older; outermost only."""
    final = {listing.name(each): each.mtime for each in listing.entries}
    return tuple(
        each
        for each in listing.entries
        if _outermost_temp(listing.name(each), each.kind == "d")
        and all(final.get(name, -1e18) < each.mtime for name in _final_names(listing.name(each)))
    )


def _outermost_temp(name: str, directory: bool) -> bool:
    folder, _, last = name.rpartition("/")
    if is_log_like(name) or _no_checkpoint(name) or is_temp(folder) or not is_temp(last):
        return False
    # .hydra, .config: a hidden directory is a save only if its name says so in another way
    return not directory or not re.match(r"\.(?!tmp)", last) or is_temp(last.lstrip("."))


def _final_names(name: str) -> tuple[str, ...]:
    """`a.pt.tmp.17` -> `a.pt`; `a.tmp.pt` -> `a`, `a.pt`; `.tmpX1y2` (random) -> none."""
    folder, slash, last = name.rpartition("/")
    bare = {re.sub(each, "", last, flags=re.IGNORECASE) for each in _STRIPS} - {last, ""}
    return tuple(folder + slash + each for each in bare)
