"""How a kept release was started, put together again from what is kept of it. Starts nothing.

No secret is kept: it is taken from what runs now or from the inventory, or said to be missing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec
from msgspec import Struct

from fleetstop.core import redact
from fleetstop.core.inventory import Launch
from fleetstop.core.launching.origin import Origin
from fleetstop.core.process import ProcessId


class Ran(Struct, frozen=True):
    """What its manifest tells: words (a secret in them is masked), directory, variables, and the
    names of those that were secrets. None: not known."""

    argv: tuple[str, ...] | None
    cwd: str | None
    env: Mapping[str, str] | None
    secrets: tuple[str, ...] = ()


class Restored(Struct, frozen=True):
    """`origin` None: it cannot be started as it was. `notes`: what a person should know."""

    origin: Origin | None
    notes: tuple[str, ...] = ()


def restored(
    ran: Ran, now: Origin | None, launch: Launch | None, typed: Collection[str] = ()
) -> Restored:
    """`now`: how what runs was started, None where nothing does; user, groups and limits are its.
    `typed`: the names given by --env."""
    if ran.argv is None or ran.env is None:
        return Restored(None, ("how it was started then is not known",))
    argv = _whole(ran.argv, now)
    if argv is None:
        return Restored(None, ("its command line held a secret, which is not kept",))
    had = (now.env if now is not None else None) or {}
    said = launch.env if launch is not None else {}
    env, notes = dict(ran.env), []
    from_process = [name for name in ran.secrets if name in had and name not in typed]
    from_inventory = [n for n in ran.secrets if n in said and n not in had and n not in typed]
    missing = [n for n in ran.secrets if n not in had and n not in said and n not in typed]
    env |= {name: had[name] for name in from_process} | {n: said[n] for n in from_inventory}
    if from_process:
        named = ", ".join(map(redact.safe, from_process))
        notes.append(f"{named} as the running process has it, since no secrets are kept")
    if missing:
        named = ", ".join(map(redact.safe, missing))
        notes.append(f"without {named}, which it had: no secrets are kept (--env gives one)")
    origin = now if now is not None else Origin(ProcessId(0, 0))
    made = msgspec.structs.replace(origin, argv=argv, cwd=ran.cwd or origin.cwd, env=env, unseen=())
    return Restored(made, tuple(notes))


def _whole(argv: tuple[str, ...], now: Origin | None) -> tuple[str, ...] | None:
    """With the masked words as what runs now has them, where all the others are the same."""
    if not any(redact.MASK in word for word in argv):
        return argv
    known = now.argv if now is not None else ()
    return known if redact.words(known) == argv else None
