"""Taking a lock that may be another run's, and saying whose it was."""

from __future__ import annotations

from collections.abc import Callable

from fleetstop.actions.lock import IN_TIME_S, Lock, held
from fleetstop.core.ledger import Ledger, RunFile, holder
from fleetstop.errors import CouldNotLook, Refused

Tell = Callable[[str], None]
AGED_S = 2.0
"""Who waited so long for a lock looks anew: the job may have ended meanwhile."""


async def taken(lock: Lock, break_lock: bool, tell: Tell) -> Ledger:
    """The ledger, with the lock held; one that is held already is only read again."""
    if lock.claimed:
        return await lock.read()
    if not break_lock:
        return await _free_or_orphaned(lock, tell)
    ledger = await lock.read()
    other = holder(ledger)
    if other is None:
        return await lock.claim()
    tell(_broken(other, ledger, "broke"))
    return await lock.break_in(other)


async def _free_or_orphaned(lock: Lock, tell: Tell) -> Ledger:
    """A run that was killed on this machine gives nothing back; nobody waits for its silence."""
    try:
        return await lock.claim()
    except Refused:
        ledger = await lock.read()
        other = holder(ledger)
        if other is None or not lock.owner_is_dead(other):
            raise
    lock.dead.add(other.run)
    waits = f"and waits up to {IN_TIME_S + 1} s for what it may have sent last"
    tell(f"took over the lock of {held(other, ledger)}, {waits}: its process here is dead")
    return await lock.break_in(other)


async def takable(lock: Lock, break_lock: bool, tell: Tell) -> Ledger:
    """The same for who only plans: raises what taking it would."""
    ledger = await lock.read()
    await lock.claimable()
    other = holder(ledger)
    if other is not None and not break_lock:
        if not lock.owner_is_dead(other):
            raise lock.locked(other, ledger)
        tell(f"would take over the lock of {held(other, ledger)}: its process here is dead")
        return ledger
    if other is not None:
        tell(_broken(other, ledger, "would break"))
    return ledger


async def known_dead(lock: Lock) -> None:
    """Notes whose lock could be taken over because its process here is dead, and takes none: what
    waits in a container for that client waits for nobody. A plan does without where the ledger
    cannot be read; if something is to be sent by it, that is asked for again, and told."""
    try:
        other = holder(await lock.read())
    except (CouldNotLook, Refused):
        return
    if other is not None and lock.owner_is_dead(other):
        lock.dead.add(other.run)


def _broken(other: RunFile, ledger: Ledger, did: str) -> str:
    return f"{did} the lock of {held(other, ledger)}; what it sends in the next 10 s counts"
