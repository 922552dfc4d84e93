"""Who writes a checkpoint now, by the files a family has open; judges nothing else."""

from __future__ import annotations

import posixpath
import re

from msgspec import Struct

from fleetstop.core.family import Family, Kin
from fleetstop.core.process import OpenFile, Process, ProcessTree

_NOT_A_SAVE = re.compile(
    r"\.(log|out|err|jsonl?|ya?ml|wandb|csv|txt|lock|db|sqlite3?)(-wal|-shm|-journal)?$|^events\.out\.tfevents|\.wandb$"
)

_CHECKPOINT = re.compile(
    r"\.(pt|pth|ckpt|bin|safetensors|zip|npz|npy|distcp|h5|msgpack)\b|\.(tmp|part|partial)\b",
    re.IGNORECASE,
)


class Save(Struct, frozen=True):
    """One file being written. `pid` 0: seen in the listing only, by whom is not known."""

    pid: int
    name: str
    text: str
    size: int


def saves_of(
    before: ProcessTree | None,
    now: ProcessTree,
    family: Family,
    directories: tuple[str, ...],
    changed: tuple[str, ...],
    temporary: tuple[str, ...],
) -> tuple[list[Save], list[str]]:
    """Who writes a checkpoint now, and what could not be seen of that, a sentence each.

    `directories`: where checkpoints lie, as declared and with its links resolved.

    `changed` and `temporary` are paths of the listing: files that moved between two listings,
    and fresh ones under a temporary name whose final one is missing.
    """
    saves: list[Save] = []
    unseen: list[str] = []
    for kin in family.members:
        process = now.get(kin.id)
        if process is None or process.zombie:
            continue
        files = process.detail.files if process.detail else None
        if files is None:
            unseen.append(f"the open files of {kin.pid} could not be read")
            continue
        old = before.get(kin.id) if before else None
        for file in files:
            name = posixpath.basename(file.target).removesuffix(" (deleted)")
            if _NOT_A_SAVE.search(name) or not _may_save(file, name):
                continue
            grown = _grown(file, old)
            shared = file.target.startswith("/dev/shm/")  # noqa: S108 - tensors of data workers
            if (grown and not shared) or any(_under(file.target, d) for d in directories):
                saves.append(_save(kin, file, grown))
    known = {save.name for save in saves}
    for name in (posixpath.basename(path) for path in changed):
        if name not in known:
            saves.append(Save(pid=0, name=name, text=f"{name} growing", size=0))
            known.add(name)
    for name in (posixpath.basename(path) for path in temporary):
        if name not in known:
            text = f"{name} has no final name yet"
            saves.append(Save(pid=0, name=name, text=text, size=0))
    return saves, unseen


def _save(kin: Kin, file: OpenFile, grown: bool) -> Save:
    name = posixpath.basename(file.target).removesuffix(" (deleted)")
    size = file.pos or 0
    moving = ", growing" if grown else ""
    text = f"{name} open for writing by {kin.pid}{_size(size)}{moving}"
    return Save(pid=kin.pid, name=name, text=text, size=size)


def _size(count: int) -> str:
    if count <= 0:
        return ""
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= scale:
            return f", {count / scale:.1f} {unit}"
    return f", {count} bytes"


def _grown(file: OpenFile, old: Process | None) -> bool:
    files = old.detail.files if old is not None and old.detail else None
    for each in files or ():
        if each.fd == file.fd and each.target == file.target:
            return (file.pos or 0) > (each.pos or 0)
    # opened since the look before and already written to
    return files is not None and (file.pos or 0) > 0


def _may_save(file: OpenFile, name: str) -> bool:
    """Appending is what logs do; a file with a checkpoint's name is written in pieces."""
    return file.writable_file or (file.appended_file and bool(_CHECKPOINT.search(name)))


def _under(path: str, directory: str) -> bool:
    return path.startswith(posixpath.normpath(directory) + "/")
