"""Whether a start is the one that a release's manifest tells. Starts nothing.

How a release did when it was started otherwise says nothing of how it does when it is gone back
to: then it is started by its manifest.
"""

from __future__ import annotations

import posixpath
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
    if not same_words(release, start.argv, start.resume):
        return False
    env, secrets = told_env(own(start.env, login, person))
    kept = own(release.env, login, person)
    return env == kept and set(secrets) == {each for each in release.secrets if each not in login}


def same_words(release: Release, argv: Sequence[str], resume: tuple[str, ...] = ()) -> bool:
    """Of a process or a start; the checkpoint aside. False where the manifest tells no words."""
    if release.argv is None:
        return False
    words = understood(release.argv, release.resume, resume)
    return _begun_as(without(told_argv(argv), words), without(release.argv, words))


def _begun_as(argv: Sequence[str], said: Sequence[str]) -> bool:
    """The same words but for what the kernel, or who runs either, puts before a script."""
    if len(argv) < len(said):
        argv, said = said, argv
    ahead = len(argv) - len(said)
    if ahead >= _AHEAD or not said or tuple(argv[ahead + 1 :]) != tuple(said[1:]):
        return False
    return argv[ahead] == said[0] or (ahead > 0 and _one_file(argv[ahead], said[0]))


def _one_file(one: str, other: str) -> bool:
    """Where either is relative, or was looked for in PATH: in the same directory, by the way it
    was found, as far as the names tell."""
    if one.startswith("/") == other.startswith("/"):
        return posixpath.normpath(one) == posixpath.normpath(other)
    whole, part = (one, other) if one.startswith("/") else (other, one)
    return posixpath.normpath(whole).endswith(f"/{posixpath.normpath(part)}")
