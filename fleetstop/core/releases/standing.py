"""Which release a running process runs, and whether newer code lies on disk. Knows no clock."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterable, Mapping
from typing import Literal

from msgspec import Struct

from fleetstop.core.durations import spoken
from fleetstop.core.launching.activation import State, same_trainer
from fleetstop.core.releases.manifest import Release
from fleetstop.core.releases.sighting import Stamps
from fleetstop.core.spelling import plain

# A start is told in clock ticks, a time of change as coarsely as a jiffy; a launch that follows a
# swap is later than it by more than this only if it is really later.
_TOLERANCE_S = 0.05

How = Literal["rewritten", "touched", "led_elsewhere", "imported", "may_import", "beside"]


class NewerCode(Struct, frozen=True):
    """A file that was changed after the process began, and how that concerns it.

    `rewritten`: the file that it was started with; `touched`: that one, but perhaps only its
    rights or its name; `led_elsewhere`: a link on the way to it. `imported`: one that it imports,
    `may_import`: by a statement that may never be done; `beside`: nothing is known but where it
    lies.
    """

    path: str
    by_s: float
    how: How

    @property
    def surely(self) -> bool:
        """It runs the old one; else it may."""
        return self.how == "rewritten"

    @property
    def sentence(self) -> str:
        path, by = plain(self.path), spoken(self.by_s)
        newer = f"is {by} newer than the process"
        match self.how:
            case "rewritten":
                return f"{path} {newer}: it runs the OLD code"
            case "touched":
                return (
                    f"{path} was written to, or only its rights or name changed, {by} after the"
                    " process began, though its date is older: it may run the OLD code"
                )
            case "led_elsewhere":
                return (
                    f"{path} was made to lead elsewhere {by} after the process began: it may run"
                    " the OLD code"
                )
            case "imported":
                which = ", which it imports,"
            case "may_import":
                which = ", which it may import,"
            case _:
                which = ", beside what runs,"
        # nobody can see from outside what a Python has imported, and when
        return f"{path}{which} {newer}: what it imported from there before is the OLD code"


class Runs(Struct, frozen=True):
    """The release that runs; None: none that is kept. `certain`: it was launched as that one, by
    identity; else the files on disk say so."""

    release: str | None
    certain: bool
    sentence: str


def newer_code(
    main: str,
    files: Mapping[str, Stamps],
    began: float,
    *,
    links: Mapping[str, Stamps] | None = None,
    imported: Mapping[str, bool] | None = None,
    same: Collection[str] = (),
) -> NewerCode | None:
    """The change that matters most: that of `main`, else the latest one of what it imports.

    `began`: when the process did, seconds since the epoch by the files' clock. `imported`: whether
    surely, by path; None: not looked, so all of `files` count. `same`: whose content is known to
    be what it was then, whatever their dates say.
    """
    late = {
        path: told
        for path, each in files.items()
        if path not in same and (told := _late(each, began)) is not None
    }
    if main in late and late[main][1]:
        return NewerCode(main, late[main][0], "rewritten")
    for path, each in (links or {}).items():
        if each.touched - began > _TOLERANCE_S and main not in same:
            return NewerCode(path, each.touched - began, "led_elsewhere")
    if main in late:
        return NewerCode(main, late[main][0], "touched")
    # of what only may be imported it is not worth saying that it may have been changed
    others = [
        NewerCode(path, by, _how(path, imported))
        for path, (by, surely) in sorted(late.items())
        if imported is None or (path in imported and surely)
    ]
    order: tuple[How, ...] = ("may_import", "beside", "imported")
    return max(others, key=lambda each: (order.index(each.how), each.by_s), default=None)


def _late(stamps: Stamps, began: float) -> tuple[float, bool] | None:
    """By how much, and whether its content surely is another one."""
    rewritten = stamps.rewritten(began + _TOLERANCE_S)
    if rewritten is not None:
        return rewritten - began, True
    by = stamps.touched - began
    return (by, False) if by > _TOLERANCE_S else None


def _how(path: str, imported: Mapping[str, bool] | None) -> How:
    if imported is None:
        return "beside"
    return "imported" if imported[path] else "may_import"


def running_release(
    releases: Iterable[Release],
    on_disk: Mapping[str, str],
    *,
    newer: NewerCode | None = None,
    state: State | None = None,
    trainer: tuple[int, int] | None = None,
) -> Runs:
    """Which of the kept releases this process runs.

    `on_disk`: SHA-256 by path below the destination; `trainer`: its number in the container and
    its start in clock ticks. By hash only while nothing on disk is newer than the process.
    """
    every = sorted(releases, key=lambda each: each.id, reverse=True)
    ours = state is not None and trainer is not None and same_trainer(state, *trainer)
    if ours and state is not None and state.running is not None:
        return Runs(state.running, True, f"release {plain(state.running)} runs")
    if newer is not None:
        name = plain(posixpath.basename(newer.path))
        changed = "was" if newer.how != "touched" else "was, or may have been,"
        return Runs(None, False, f"which release runs is not known: {name} {changed} changed since")
    for each in every:
        if each.files and all(on_disk.get(rel) == sha for rel, sha in each.hashes.items()):
            return Runs(each.id, False, f"release {plain(each.id)} runs, by what lies on disk")
    return Runs(None, False, "what runs is no release that is kept here")
