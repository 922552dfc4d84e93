"""Who writes a checkpoint now, by the files a family has open; judges nothing else."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct

from fleetstop.core.durations import spoken
from fleetstop.core.kin.family import Family, Kin
from fleetstop.core.process import OpenFile, Process, ProcessId, ProcessTree
from fleetstop.core.saves.checkpoint import database, is_log_like, is_temp, may_be_model, shape
from fleetstop.core.saves.listing import DEPTH, spelled
from fleetstop.core.saves.pace import Pace, left_s
from fleetstop.core.saves.risk import AtRisk

_CHECKPOINT = re.compile(
    r"\.(pt|pth|ckpt|bin|safetensors|zip|npz|npy|distcp|h5|hdf5|keras|msgpack|pkl|pickle|joblib|tar"
    r"|gguf|onnx|ubj)\b|\.(tmp|part|partial)\b"
    # and what has no ending: step_100, checkpoint-500, model_final
    r"|^(?:[^.]*[-_])?(?:(?:model|weights|ckpt|checkpoint)(?:[-_]?(?:[0-9]+|final|last))?"
    r"|(?:step|epoch|state)[-_]?[0-9]+)$",
    re.IGNORECASE,
)

# So much is more than a few lines of a log between two looks, bytes.
_MOVING = 65_536
NEVER_SEEN: Mapping[tuple[ProcessId, str], Pace] = MappingProxyType({})


class Save(Struct, frozen=True):
    """One file being written. `pid` 0: seen in the listing only, by whom is not known."""

    pid: int
    name: str
    text: str
    size: int


class _Eyes(Struct, frozen=True):
    """What two looks know beside the processes; see `saves_of`."""

    before: ProcessTree | None
    now: ProcessTree
    directories: tuple[str, ...]
    changed: frozenset[str] | None
    risk: AtRisk | None
    paces: Mapping[tuple[ProcessId, str], Pace]


def saves_of(
    before: ProcessTree | None,
    now: ProcessTree,
    family: Family,
    directories: tuple[str, ...],
    changed: tuple[str, ...] | None,
    temporary: tuple[str, ...],
    risk: AtRisk | None = None,
    paces: Mapping[tuple[ProcessId, str], Pace] = NEVER_SEEN,
) -> tuple[list[Save], list[str]]:
    """Who writes a checkpoint now, and what could not be seen of that, a sentence each.

    `directories`: where checkpoints lie, as declared and with its links resolved.

    `changed` and `temporary` are paths of the listing: files that moved between two listings
    (None: it was not listed), and what is fresh and not done by its name. `risk`: the newest
    complete checkpoint, which says how big this one is going to be. `paces`: how the files that
    members have open have grown so far, by member and target.
    """
    moved = (
        None if changed is None else frozenset(_relative(spelled(p), directories) for p in changed)
    )
    eyes = _Eyes(before, now, directories, moved, risk, paces)
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
        saves += [save for file in files if (save := _of_file(kin, process, file, eyes))]
    known = {save.name for save in saves}
    logs = _appended(before, now, family, directories)
    for path in map(spelled, changed or ()):
        name = posixpath.basename(path)
        if name not in known and _relative(path, directories) not in logs:
            saves.append(Save(pid=0, name=name, text=f"{name} growing", size=0))
            known.add(name)
    for name in (posixpath.basename(spelled(path)) for path in temporary):
        if name not in known:
            lacks = "has no final name yet" if is_temp(name) else "may not be whole yet"
            saves.append(Save(pid=0, name=name, text=f"{name} {lacks}", size=0))
            known.add(name)
    return saves, unseen


def _appended(
    before: ProcessTree | None, now: ProcessTree, family: Family, directories: tuple[str, ...]
) -> frozenset[str]:
    """What members have open to append to and to nothing else: a log, by how it is written.

    Anybody may append to a log of any name; a name that a checkpoint would have is no log's, nor
    is it a log where more comes between two looks than a few lines.
    """
    found: dict[str, bool] = {}
    for kin in family.members:
        process = now.get(kin.id)
        old = before.get(kin.id) if before is not None else None
        files = process.detail.files if process is not None and process.detail else None
        for file in files or ():
            if file.appended_file or file.writable_file:
                path = _relative(file.target, directories)
                log = not _may_save(file, posixpath.basename(path), _step(file, old))
                found[path] = found.get(path, True) and log
    return frozenset(path for path, log in found.items() if log)


def _of_file(kin: Kin, process: Process, file: OpenFile, eyes: _Eyes) -> Save | None:
    path = file.target.removesuffix(" (deleted)")
    name = posixpath.basename(path)
    inside = any(_under(file.target, each) for each in eyes.directories)
    held = database(name)
    model = may_be_model(held[0] if held else name)
    log = is_log_like(path) and not (inside and model)
    old = eyes.before.get(kin.id) if eyes.before else None
    step = _step(file, old)
    if log or not _may_save(file, name, step if inside else 0):
        return None
    shared = file.target.startswith("/dev/shm/")  # noqa: S108 - tensors of data workers
    if not inside and (step <= 0 or shared):
        return None
    grown = step > 0 or (inside and _moves(process, old, file, eyes))
    size = file.pos or 0
    if held is not None and not (held[1] or grown):
        return None  # between two transactions
    text = f"{name} open for writing by {kin.pid}{_so_far(kin, file, size, eyes)}"
    return Save(pid=kin.pid, name=name, text=f"{text}, growing" if grown else text, size=size)


def _moves(process: Process, old: Process | None, file: OpenFile, eyes: _Eyes) -> bool:
    """Written to without its position moving (pwrite, a map): the listing has its size and time.
    Only where the listing cannot tell, what its writer writes at all counts."""
    path = _relative(file.target, eyes.directories)
    listed = path.count("/") < DEPTH and not file.target.endswith(" (deleted)")
    if eyes.changed is not None and listed:
        return path in eyes.changed
    then = old.detail.written if old is not None and old.detail else None
    written = process.detail.written if process.detail else None
    return then is not None and written is not None and written - then >= _MOVING


def _so_far(kin: Kin, file: OpenFile, size: int, eyes: _Eyes) -> str:
    """`, 21.4 GiB of about 24.6 GiB (size of step_41000), about 26 s left`."""
    risk, name = eyes.risk, posixpath.basename(file.target.removesuffix(" (deleted)"))
    if risk is None or risk.name is None or not risk.size or shape(name) != shape(risk.name):
        return _size(size)
    if not 0 < size < risk.size:
        return _size(size)
    text = f"{_size(size)} of about {_amount(risk.size)} (size of {risk.name})"
    seconds = left_s(eyes.paces.get((kin.id, file.target)), risk.size)
    return f"{text}, about {spoken(max(1.0, seconds))} left" if seconds is not None else text


def _size(count: int) -> str:
    return f", {_amount(count)}" if count > 0 else ""


def _amount(count: int) -> str:
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count} bytes"


def _step(file: OpenFile, old: Process | None) -> int:
    """How many bytes its position moved on since the look before."""
    files = old.detail.files if old is not None and old.detail else None
    for each in files or ():
        if each.fd == file.fd and each.target == file.target:
            return (file.pos or 0) - (each.pos or 0)
    # opened since the look before and already written to
    return (file.pos or 0) if files is not None else 0


def _relative(path: str, directories: tuple[str, ...]) -> str:
    """A path below one of the directories, by either name of theirs."""
    for each in directories:
        if _under(path, each):
            return path[len(posixpath.normpath(each)) + 1 :]
    return path


def _may_save(file: OpenFile, name: str, step: int) -> bool:
    """Appending is what logs do; a file with a checkpoint's name is written in pieces, and a file
    of any name that so much is added to at once holds more than lines."""
    if file.writable_file:
        return True
    return file.appended_file and (bool(_CHECKPOINT.search(name)) or step >= _MOVING)


def _under(path: str, directory: str) -> bool:
    return path.startswith(posixpath.normpath(directory) + "/")
