"""What is kept if a job ended now: its newest complete checkpoint, read once and remembered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from fleetstop.actions import reading
from fleetstop.core.saves import checkpoint as ckpt
from fleetstop.core.saves import wholeness
from fleetstop.core.saves.checkpoint import Checkpoint, Listing
from fleetstop.core.saves.formats import Read
from fleetstop.core.saves.listing import Entry, spelled
from fleetstop.core.saves.risk import AtRisk, age, is_ahead
from fleetstop.ports import Shell

FRESH_S = 60.0
"""An older temporary file, or an older half of a set, is a leftover, not a save."""
SETTLE_S = 3.0
"""So long more may follow into a directory that does not say itself when it is whole."""
_STEADY_S = 1.0
_MOST_TRIED = 20
_TRIES = 3

Signature: TypeAlias = tuple[object, ...]
Mine: TypeAlias = Callable[[Checkpoint], bool | None]


def is_fresh(mtime: float, now: float | None, within_s: float = FRESH_S) -> bool:
    """Written within the last minute by the remote clock. A time to come counts as fresh: the
    storage's clock may be ahead, and a save in progress must not pass for a leftover."""
    return now is not None and now - mtime < within_s


class Steady:
    """What we saw ourselves, where the storage has a clock of its own.

    Files whose times lie ahead are fresh until we saw them unchanged for a minute; one that came
    or moved since the first look is as young as our sight of it, however old its time says it is.
    """

    def __init__(self, first: Listing | None = None) -> None:
        self._since: dict[Entry, float] = {}
        self._first = frozenset(first.entries) if first is not None else None
        self._came: dict[Entry, float] = {}

    def young(self, listing: Listing, at: float) -> dict[Entry, float]:
        """How many seconds ago each that is new since the first look was seen first."""
        if self._first is None:
            self._first = frozenset(listing.entries)
        fresh = (each for each in listing.entries if each not in self._first)
        self._came = {each: self._came.get(each, at) for each in fresh}
        return {each: at - since for each, since in self._came.items()}

    def at(self, listing: Listing, now: float | None, at: float) -> frozenset[Entry]:
        """`now` by the remote clock, `at` monotonic."""
        ahead = [e for e in listing.entries if now is not None and is_ahead(e.mtime, now)]
        self._since = {each: self._since.get(each, at) for each in ahead}
        return frozenset(e for e, since in self._since.items() if at - since >= FRESH_S)


def still_coming(
    listing: Listing,
    found: tuple[Checkpoint, ...],
    now: float | None,
    steady: frozenset[Entry] = frozenset(),
    young: Mapping[Entry, float] | None = None,
) -> tuple[str, ...]:
    """Paths of saves that are not done by their names: fresh temporary files without their final
    one, fresh sets that lack a part, by their names or beside the earlier ones, directories into
    which something was written just now.
    `steady`, `young`: see `Steady`; those are leftovers, these are not, whatever their time says.
    """
    ages = young or {}

    def fresh(files: Iterable[Entry], within_s: float = FRESH_S) -> bool:
        return any(
            ages.get(e, within_s) < within_s
            or (is_fresh(e.mtime, now, within_s) and e not in steady)
            for e in files
        )

    left = [e.path for e in ckpt.temp_without_final(listing) if fresh([e])]
    parts = (*wholeness.unfinished(found), *wholeness.short_of_the_others(found))
    halves = [c.path for c in parts if fresh(c.files)]
    just = [
        each.path
        for each in found
        if each.folder != each.root
        and fresh(each.files, SETTLE_S)
        and not wholeness.has_an_end(each)
    ]
    return tuple(dict.fromkeys((*left, *halves, *just)))


def countable(found: tuple[Checkpoint, ...], coming: Iterable[str]) -> tuple[Checkpoint, ...]:
    """Without those to which a part is still to come that the earlier ones have: half of one is
    nothing to end a job on. `coming`: of `still_coming`, so it is only for a minute."""
    paths = frozenset(coming)
    short = [c for c in wholeness.short_of_the_others(found) if c.path in paths]
    return tuple(each for each in found if each not in short)


def as_listed(open_paths: Iterable[str], listing: Listing, real: str | None) -> frozenset[str]:
    """Open files, which are named by their real paths, as the listing names them."""
    opened = set(open_paths)
    root = f"{(real or listing.root).rstrip('/')}/"
    return frozenset(
        each.path
        for each in listing.entries
        if {spelled(each.path), root + spelled(listing.name(each))} & opened
    )


class Kept:
    """Remembers what the bytes of each checkpoint said; one that is unchanged is not read again."""

    def __init__(self) -> None:
        self._told: dict[Signature, tuple[Read, Read]] = {}
        self._since: dict[Signature, float] = {}
        self._tries: dict[Signature, int] = {}
        self._first_at: float | None = None

    async def read(
        self,
        shell: Shell,
        one: Checkpoint,
        writing: frozenset[str],
        *,
        stable: bool,
    ) -> Read:
        """`stable`: unchanged over two looks 1 s apart; `writing`: paths that are open."""
        if wholeness.read(one, {}, {}, True, writing) == Read(False, True):
            return Read(False, True)  # by names and open files alone
        sign = _signature(one)
        known = self._told.get(sign)
        if known is None or (known[1].whole is None and self._tries[sign] < _TRIES):
            self._tries[sign] = self._tries.get(sign, 0) + 1
            heads, tails = await _ends(shell, one)
            known = tuple(  # type: ignore[assignment]
                wholeness.read(one, tails, heads, each, frozenset()) for each in (False, True)
            )
            assert known is not None
            self._told[sign] = known
        return known[1] if stable else known[0]

    async def at_risk(
        self,
        shell: Shell,
        found: tuple[Checkpoint, ...],
        now: float | None,
        writing: frozenset[str],
        at: float,
        mine: Mine,
    ) -> AtRisk:
        """`found` oldest first, `now` by the remote clock, `at` monotonic. `mine`: whether a
        checkpoint is this job's, None where that is not known."""
        self._first_at = at if self._first_at is None else self._first_at
        for one in reversed(found[-_MOST_TRIED:]):
            since = self._since.setdefault(_signature(one), at)
            # one that moved while we looked is young, however old the storage's clock calls it
            there = since == self._first_at
            old = there and now is not None and now - one.mtime > FRESH_S
            told = await self.read(shell, one, writing, stable=old or at - since >= _STEADY_S)
            ours = mine(one) if told.whole else None
            if not told.whole or ours is False:
                continue
            return AtRisk(
                name=spelled(one.name),
                age_s=age(one.mtime, now),
                size=one.size,
                known_format=told.known,
                ours=ours,
                usual_s=wholeness.usual_interval(found, one),
            )
        return AtRisk()

    def seen_since(self, one: Checkpoint) -> float | None:
        """The monotonic second at which it was first seen as it is; None where it was not, or
        was so at the first look."""
        since = self._since.get(_signature(one))
        return None if since == self._first_at else since


def _signature(one: Checkpoint) -> Signature:
    return (one.path, one.files, one.notes, wholeness.lacking(one))


async def _ends(shell: Shell, one: Checkpoint) -> tuple[dict[str, bytes], dict[str, bytes]]:
    heads: dict[str, bytes] = {}
    tails: dict[str, bytes] = {}
    for each in wholeness.wanted(one):
        read = await reading.ends(shell, each.path, each.size)
        if read is not None:
            heads[each.path], tails[each.path] = read
    return heads, tails
