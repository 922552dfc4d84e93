"""The directory of checkpoints after the end, come to rest; not whose they are, nor if they do."""

from __future__ import annotations

from msgspec import Struct

from fleetstop.actions import reading
from fleetstop.actions.climb import Climb
from fleetstop.actions.kept import as_listed, is_fresh
from fleetstop.actions.telling import Scope
from fleetstop.core.kin.family import standing
from fleetstop.core.saves import checkpoint as ckpt
from fleetstop.core.saves.checkpoint import Checkpoint, Listing

_JUST_S = 2.0


class AtRest(Struct, frozen=True):
    """The directory at rest. `first`: its first listing after the end. New ones, newest first:
    `whole`, `broken`, and `torn`: written when a signal went out that lets nobody finish, in a
    format that does not tell whether it is whole."""

    listing: Listing
    first: Listing
    now: float | None
    whole: tuple[Checkpoint, ...]
    broken: tuple[str, ...]
    torn: tuple[str, ...]
    left: tuple[str, ...]


async def at_rest(scope: Scope, before_all: Listing, climb: Climb, directory: str) -> AtRest | str:
    """Polls until something new is whole and nothing moves any more; why not, at the end."""
    deadline = scope.clock.now() + climb.ladder.playbook.verify.within_s
    shell = await scope.place.files()
    before: Listing | None = None
    first: Listing | None = None
    while True:
        await climb.stamp()
        many = before_all.floor is not None
        listed = await reading.listing(shell, directory, many=many)
        late = scope.clock.now() >= deadline
        if isinstance(listed.listing, Listing):
            now = listed.listing
            first = first or now
            moving = before is None or bool(ckpt.growing(before, now))
            before = now
            end = await _judged(scope, climb, (before_all, first), listed, stable=not moving)
            if (end.whole and not end.left and not end.broken) or late:
                return end if end.whole or not moving else "it did not come to rest"
            if not moving and (not end.left or _cut_short(climb)):
                return end
        elif late:
            return listed.listing.reason
        # an unknown format counts as whole when unchanged over two looks 1 s apart
        await scope.clock.sleep(1.0)


def _cut_short(climb: Climb) -> bool:
    """All ended by a signal that lets nobody finish: what is half written stays so."""
    sent = climb.ladder.sent
    return bool(sent) and sent[-1].lossy and not standing(climb.family, climb.look.tree)


async def _judged(
    scope: Scope,
    climb: Climb,
    since: tuple[Listing, Listing],
    listed: reading.Listed,
    *,
    stable: bool,
) -> AtRest:
    assert isinstance(listed.listing, Listing)
    whole: list[Checkpoint] = []
    broken: list[str] = []
    torn: list[str] = []
    shell = await scope.place.files()
    for each in reversed(ckpt.new_checkpoints(since[0], listed.listing)[-5:]):
        told = await climb.files.kept.read(shell, each, frozenset(), stable=stable)
        if told.whole and not told.known and _may_be_cut(scope, climb, each, listed):
            torn.append(each.name)
        elif told.whole:
            whole.append(each)
        elif told.whole is False and stable:
            broken.append(each.name)
    left = ckpt.temp_without_final(listed.listing)
    return AtRest(
        listing=listed.listing,
        first=since[1],
        now=listed.now,
        whole=tuple(whole),
        broken=tuple(broken),
        torn=tuple(torn),
        left=tuple(
            listed.listing.name(e)
            for e in left
            if is_fresh(e.mtime, listed.now) or e not in since[0].entries
        ),
    )


def _may_be_cut(scope: Scope, climb: Climb, one: Checkpoint, listed: reading.Listed) -> bool:
    """The last signal let nobody finish, and this was open, moving or just written then."""
    if not climb.ladder.sent or not climb.ladder.sent[-1].lossy:
        return False
    assert isinstance(listed.listing, Listing)
    opened = as_listed(climb.files.open_last, listed.listing, climb.files.real)
    if any(each.path in opened for each in one.files):
        return True
    if not isinstance(climb.listing_at_signal, Listing) or listed.now is None:
        return True
    if ckpt.written_since(climb.listing_at_signal, one):
        return True
    since = climb.files.kept.seen_since(one)
    if since is not None and climb.signalled_at - since < _JUST_S:
        return True  # by our own sight: the storage's clock may be behind
    ago = scope.clock.now() - climb.signalled_at
    return listed.now - one.mtime - ago < _JUST_S
