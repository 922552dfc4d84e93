"""Whether a start is the one that a release's manifest tells. Starts nothing.

How a release did when it was started otherwise says nothing of how it does when it is gone back
to: then it is started by its manifest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from fleetstop.core.launching.resumed import understood, without
from fleetstop.core.launching.surroundings import Person, own
from fleetstop.core.releases.manifest import Release, told_argv, told_env

_AHEAD = 3  # a shell, or what a `#!` names with its option, may stand before the program


class Start(Struct, frozen=True):
    """How something was started, or is to be; `resume`: the words to resume that it knows."""

    argv: tuple[str, ...]
    cwd: str | None
    env: Mapping[str, str] | None
    resume: tuple[str, ...] = ()


def by_manifest(
    release: Release, start: Start, login: Mapping[str, str], person: Person | None
) -> bool:
    """The checkpoint that it goes on from aside, and what a login or a terminal leaves in an
    environment; `login`: see `parse_login`. Of a secret only its name can be compared."""
    if release.argv is None or release.env is None:
        return True  # it tells none: it is started as the inventory has it
    if start.env is None or (release.cwd is not None and start.cwd != release.cwd):
        return False
    words = understood(release.argv, release.resume, start.resume)
    if not _begun_as(without(told_argv(start.argv), words), without(release.argv, words)):
        return False
    env, secrets = told_env(own(start.env, login, person))
    kept = own(release.env, login, person)
    return env == kept and set(secrets) == {each for each in release.secrets if each not in login}


def _begun_as(argv: Sequence[str], said: Sequence[str]) -> bool:
    """The same words but for what the kernel, or who runs either, puts before a script."""
    if len(argv) < len(said):
        argv, said = said, argv
    ahead = len(argv) - len(said)
    return ahead < _AHEAD and bool(said) and tuple(argv[ahead:]) == tuple(said)
