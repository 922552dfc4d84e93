"""What runs now, or ran last, was started with and what is started next will not have, in words.

Starts nothing. Of a variable only the name is told: its value may be a secret.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fleetstop.core import redact
from fleetstop.core.inventory import Launch
from fleetstop.core.launching.recipe import Known, given
from fleetstop.core.launching.restored import Ran
from fleetstop.core.launching.resumed import without
from fleetstop.core.launching.spec import LaunchSpec
from fleetstop.core.launching.surroundings import own

_AHEAD = 3  # a shell, or what a `#!` names with its option, may stand before the program


def dropped(
    launch: Launch | None, known: Known, spec: LaunchSpec, typed: Collection[str] = ()
) -> tuple[str, ...]:
    """Sentences; none where all comes along. `typed`: the names given by --env."""
    origin = known.origin
    if origin is None:
        return ()
    resume = launch.resume if launch is not None else ()
    had, new = without(origin.argv, resume), without(spec.argv, resume)
    run = launch.run if launch is not None and launch.run else origin.argv
    words = _lost(had, new, without(run, resume))
    env = given(origin.env or {}, known)
    names = [name for name in env if name not in spec.env]
    other = [n for n in env if n in spec.env and spec.env[n] != env[n] and n not in typed]
    told = [redact.command(words)] if words else []
    told += [redact.safe(name) for name in names]
    says = " (as `launch:` in the inventory has it)"
    said = [f"started without: {', '.join(told)}{says}"] if told else []
    if other:
        named = ", ".join(map(redact.safe, other))
        said.append(f"started with another value of: {named}{says}")
    if origin.log is not None and spec.log is not None and origin.log != spec.log:
        moved = f"its output goes to {redact.text(spec.log)} from now on"
        said.append(f"{moved} (`log:` in the inventory), not to {redact.text(origin.log)}")
    if words is None:
        said.append(f"what runs now was started otherwise: {redact.command(origin.argv)}")
    return tuple(said)


def missed(
    launch: Launch | None,
    known: Known,
    spec: LaunchSpec,
    ran: Ran,
    release: str,
    typed: Collection[str] = (),
) -> tuple[str, ...]:
    """The same where nothing runs: `ran` is how the job was started as that release. Of its secrets
    only the names are known, and whether they have another value is not."""
    resume = launch.resume if launch is not None else ()
    had, new = without(ran.argv or (), resume), without(redact.words(spec.argv), resume)
    run = redact.words(launch.run) if launch is not None and launch.run else had
    words = _lost(had, new, without(run, resume))
    env = own(ran.env or {}, known.login, known.person)
    secrets = [name for name in ran.secrets if name not in spec.env]
    names = [name for name in env if name not in spec.env]
    other = [n for n in env if n in spec.env and spec.env[n] != env[n] and n not in typed]
    told = [redact.command(words)] if words else []
    told += [redact.safe(name) for name in (*names, *secrets)]
    said = [f"started without: {', '.join(told)}, as release {release} had it"] if told else []
    if secrets and said:
        said[0] += " (no secrets are kept: --env gives one)"
    if other:
        named = ", ".join(map(redact.safe, other))
        said.append(f"started with another value of: {named} than release {release} had")
    if words is None:
        said.append(f"release {release} was started otherwise: {redact.command(had)}")
    return tuple(said)


def _lost(had: Sequence[str], new: Sequence[str], own: Sequence[str]) -> Sequence[str] | None:
    """Words that were added to the job's `own`, and are not there next; None: what ran before was
    another command."""
    if tuple(had) == tuple(new) or not had:
        return ()
    for at, word in enumerate(had[:_AHEAD]):
        end = at + len(own)
        if _name(word) == _name(own[0]) and tuple(had[at + 1 : end]) == tuple(own[1:]):
            added, size = had[end:], len(had) - end
            here = [tuple(new[i : i + size]) for i in range(len(new) - size + 1)]
            return () if tuple(added) in here else added
    return None


def _name(word: str) -> str:
    return word.rpartition("/")[2]
