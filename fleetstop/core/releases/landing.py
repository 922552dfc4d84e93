"""What a file is once it has landed: whose it is, and what may be done with it. Pure rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fleetstop.core.launching.activator import SwapFile
from fleetstop.core.releases.manifest import Release
from fleetstop.core.releases.payload import File
from fleetstop.core.releases.survey import Survey, There
from fleetstop.core.releases.tried import Tried, worth_going_back_to


def mode(sent: int, there: int | None) -> int:
    """Permission bits. A file that lies there keeps what its people gave it; whether it may be run
    comes with the code, for everybody who may read it."""
    if there is None:
        return sent & 0o777
    read = there & 0o666
    return read | ((read & 0o444) >> 2 if sent & 0o111 else 0)


def swap_file(file: File, there: There, staged: str, survey: Survey) -> SwapFile:
    """`staged`: where it lies until then. A new file is of whoever has the directory."""
    owner = (there.uid, there.gid) if there.uid is not None else (survey.dest.uid, survey.dest.gid)
    return SwapFile(
        path=there.real,
        staged=staged,
        sha256=file.sha256,
        size=file.size,
        mode=mode(file.mode, there.mode),
        uid=owner[0] or 0,
        gid=owner[1] or 0,
    )


def replaced(files: Sequence[File], survey: Survey, on_disk: Mapping[str, str]) -> tuple[File, ...]:
    """What lies there now in the places of these files, as a release lists it."""
    return tuple(
        File(each.rel, on_disk[each.rel], there.size or 0, there.mode or 0)
        for each, there in zip(files, survey.files, strict=True)
        if each.rel in on_disk and there.kind == "file"
    )


def differing(release: Release, on_disk: Mapping[str, str]) -> tuple[str, ...]:
    """Its files that do not lie there as they were."""
    return tuple(sorted(rel for rel, sha in release.hashes.items() if on_disk.get(rel) != sha))


def came_with(current: Release | None, target: Release) -> tuple[str, ...]:
    """Files of the release that runs which the other does not have: going back leaves them."""
    if current is None:
        return ()
    return tuple(sorted(set(current.hashes) - set(target.hashes)))


def tells_all(before: Release, wanted: Mapping[str, str], on_disk: Mapping[str, str]) -> bool:
    """It lists every file that is about to be replaced. One that does not is no release to go back
    to: of what it does not list the new version would stay, beside older files of the rest."""
    if any(on_disk.get(rel) != sha for rel, sha in before.hashes.items()):
        return True  # not what lies there, and chosen for that: after a swap that was cut, say
    return all(rel in before.hashes for rel in wanted if rel in on_disk)


def to_go_back_to(
    releases: Mapping[str, Release],
    on_disk: Mapping[str, str],
    before: str | None,
    *,
    tried: Mapping[str, Tried],
    runs: str | None = None,
) -> Release | None:
    """The release that `rollback` means where none is named: of those that are worth it and are not
    what lies on disk or `runs`, the one `before` the last, else the newest. None: there is none."""
    others = [
        each
        for name, each in sorted(releases.items(), reverse=True)
        if name != runs and differing(each, on_disk) and worth_going_back_to(each, tried)
    ]
    named = releases.get(before or "")
    return named if named in others else next(iter(others), None)
