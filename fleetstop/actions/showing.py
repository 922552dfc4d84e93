"""What an errand would do, told before it is done: files, differences, how it will be started."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from fleetstop import events
from fleetstop.actions import staging
from fleetstop.actions.errand import Errand
from fleetstop.actions.grounding import contents
from fleetstop.actions.lots import Lot
from fleetstop.core.releases.difference import Change, Side, difference, summary
from fleetstop.core.releases.landing import mode
from fleetstop.core.releases.payload import File
from fleetstop.core.releases.survey import Survey
from fleetstop.core.secret_names import may_hold_secrets

SHOWN_MOST = 1024 * 1024


def wish(lot: Lot, errand: Errand) -> staging.Wish:
    return staging.Wish(
        dest=lot.dest,
        base=lot.base,
        interpreter=lot.python,
        prove=errand.prove,
        others=lot.others,
        kept=lot.kept,
    )


async def show_files(lot: Lot, errand: Errand) -> None:
    """Raises DeployFailed where they cannot be put there."""
    found = lot.survey = await staging.survey(lot.scope, lot.files, wish(lot, errand))
    git, place = errand.git, lot.place
    lot.scope.teller.tell(
        events.Destined,
        dest=lot.dest,
        by=place.by if place is not None else "release",
        release=lot.release or "",
        files=tuple(
            events.FileRow(each.rel, each.size, _change(lot, each, there.mode))
            for each, there in zip(lot.files, found.files, strict=True)
        ),
        of_release=lot.source.id if lot.source is not None else None,
        git=f"{git.commit}{'-dirty' if git.dirty else ''}" if git is not None else None,
        left_out=place.payload.left_out if place is not None else (),
    )
    for text in (*place.payload.findings, *place.findings) if place is not None else ():
        lot.finding(text)
    if errand.diff:
        changes = [each async for each in _changes(lot, errand, found)]
        lines = tuple(events.DiffLine(e.kind, e.text) for each in changes for e in each.lines)
        lot.scope.teller.tell(events.Differs, lines=lines, summary=summary(changes))


def _change(lot: Lot, file: File, there: int | None) -> str:
    lies = lot.ground.on_disk.get(file.rel)
    if lies is None:
        return "new"
    if lies != file.sha256:
        return "changed"
    return "same" if mode(file.mode, there) == there else "mode"


async def _changes(lot: Lot, errand: Errand, found: Survey) -> AsyncIterator[Change]:
    """Only what differs is fetched, and nothing that may hold secrets."""
    lies = lot.ground.on_disk
    pairs = list(zip(lot.files, found.files, strict=True))
    quiet = {each.rel for each in lot.files if may_hold_secrets(each.rel)}
    differing = [
        there.real
        for file, there in pairs
        if lies.get(file.rel) not in (None, file.sha256) and file.rel not in quiet
    ]
    stored = [f"{lot.kept}/{each.rel}" for each in lot.files if each.rel not in quiet]
    stored = stored if lot.kept is not None else []
    fetched: dict[str, bytes] = {}
    if differing or stored:
        fetched = await contents(lot.scope, lot.python, [*differing, *stored])
    for file, there in pairs:
        sent = _sent(lot, errand, file, there.mode, fetched)
        if file.rel not in lies:
            yield difference(file.rel, None, sent)
        elif lies[file.rel] == file.sha256:
            # what is the same need not be at hand: a large one, or a secret
            same = msgspec.structs.replace(sent, content=sent.content or b"")
            yield difference(file.rel, msgspec.structs.replace(same, mode=there.mode or 0), same)
        else:
            old = Side(fetched.get(there.real), there.mode or 0, there.size or 0)
            yield difference(file.rel, old, sent)


def _sent(
    lot: Lot, errand: Errand, file: File, there: int | None, fetched: dict[str, bytes]
) -> Side:
    content = fetched.get(f"{lot.kept}/{file.rel}")
    if lot.kept is None and file.size <= SHOWN_MOST:
        content = b"".join(lot.content(errand, file))
    return Side(content, mode(file.mode, there), file.size)
