"""Which release a running process runs, and whether newer code lies on disk. Knows no clock."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping

from msgspec import Struct

from fleetstop.core.durations import spoken
from fleetstop.core.releases.activation import State, same_trainer
from fleetstop.core.releases.manifest import Release
from fleetstop.core.spelling import plain

# A start is told in clock ticks, a time of change as coarsely as a jiffy; a launch that follows a
# swap is later than it by more than this only if it is really later.
_TOLERANCE_S = 0.05


class NewerCode(Struct, frozen=True):
    """A file that was changed after the process began. `surely` it runs the old one: it is the
    file that it was started with, not merely one beside it."""

    path: str
    by_s: float
    surely: bool

    @property
    def sentence(self) -> str:
        newer = f"{plain(self.path)} is {spoken(self.by_s)} newer than the process"
        if self.surely:
            return f"{newer}: it runs the OLD code"
        return f"{newer}: what it imported from there is the OLD code"


class Runs(Struct, frozen=True):
    """The release that runs; None: none that is kept. `certain`: it was launched as that one, by
    identity; else the files on disk say so."""

    release: str | None
    certain: bool
    sentence: str


def newer_code(main: str, changed: Mapping[str, float], started: float) -> NewerCode | None:
    """The change that matters most: that of `main`, else the latest one beside it.

    `changed`: time of last modification by path, seconds since the epoch; `started`: when the
    process began, by the same machine's clock.
    """
    late = {path: at - started for path, at in changed.items() if at - started > _TOLERANCE_S}
    if main in late:
        return NewerCode(main, late[main], surely=True)
    if not late:
        return None
    path = max(sorted(late), key=lambda each: late[each])
    return NewerCode(path, late[path], surely=False)


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
        return Runs(None, False, f"which release runs is not known: {name} was changed since")
    for each in every:
        if each.files and all(on_disk.get(rel) == sha for rel, sha in each.hashes.items()):
            return Runs(each.id, False, f"release {plain(each.id)} runs, by what lies on disk")
    return Runs(None, False, "what runs is no release that is kept here")
