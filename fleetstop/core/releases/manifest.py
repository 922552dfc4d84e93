"""What one release was: its files, how it was run, by whom and when. Holds no secret."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import msgspec
from msgspec import Struct

from fleetstop.core import redact
from fleetstop.core.launching.activation import Broken, is_release_id
from fleetstop.core.releases.payload import File, name_problem
from fleetstop.core.spelling import plain

SCHEMA = 1
BEFORE = "before fleetstop"
"""Who it was, of a release that lay there and that nobody has sent."""
_HASH = re.compile(r"[0-9a-f]{64}")


class Git(Struct, frozen=True):
    """What git said of the files sent. `dirty`: they differ from the commit; None: not seen."""

    commit: str
    dirty: bool | None = None


class Release(Struct, frozen=True, kw_only=True):
    """One release, as its manifest.json holds it.

    `when` is ISO 8601 UTC by the clock of `who` (user@machine, or BEFORE). `env` are the variables
    that are no secrets, `secrets` the names of those that are; a secret in `argv` is `***`. None:
    not known. `resume`: the words to resume that it knows, as the inventory had them; in `argv`
    they name the checkpoint of that day. `from_release`: the release whose files these are again,
    after a rollback.
    """

    id: str
    files: tuple[File, ...]
    dest: str
    when: str
    who: str
    argv: tuple[str, ...] | None = None
    cwd: str | None = None
    env: dict[str, str] | None = None
    secrets: tuple[str, ...] = ()
    resume: tuple[str, ...] = ()
    interpreter: str | None = None
    git: Git | None = None
    from_release: str | None = None
    schema: int = SCHEMA

    @property
    def hashes(self) -> dict[str, str]:
        """SHA-256 in hex by path below the destination."""
        return {each.rel: each.sha256 for each in self.files}


def release_id(at: datetime, run: str) -> str:
    """Sorts by time: `20261130-140211-7f3a`. `at` has a zone; `run` is the run's id, in hex."""
    return f"{at.astimezone(UTC):%Y%m%d-%H%M%S}-{run[:4]}"


def encoded(release: Release) -> bytes:
    """For a person to read too; one manifest is one file."""
    return msgspec.json.format(msgspec.json.encode(release), indent=2) + b"\n"


def parse_release(data: bytes, name: str) -> Release | Broken:
    """`name` is the file's, for the sentence. Keys that a later fleetstop added are passed over."""
    try:
        release = msgspec.json.decode(data, type=Release)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return Broken(f"{plain(name)} is no manifest of a release: {redact.text(str(error), 200)}")
    if release.schema > SCHEMA:
        return Broken(f"{plain(name)} was written by a newer fleetstop (schema {release.schema})")
    if not is_release_id(release.id):
        return Broken(f"{plain(name)} names no release: id {redact.safe(release.id, 60)!r}")
    for file in release.files:
        if name_problem(file.rel) or not _HASH.fullmatch(file.sha256) or file.size < 0:
            return Broken(f"{plain(name)} lists a file that cannot be: {plain(file.rel)}")
    return release


def told_env(env: Mapping[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """(what may be kept with its values, the names of the secrets)."""
    secrets = tuple(sorted(name for name, value in env.items() if redact.secret(name, value)))
    kept = {_utf8(name): _utf8(env[name]) for name in sorted(env) if name not in secrets}
    return kept, tuple(map(_utf8, secrets))


def told_argv(argv: Sequence[str]) -> tuple[str, ...]:
    """The words as they are, a secret among them masked."""
    return tuple(map(_utf8, redact.words(argv)))


def _utf8(text: str) -> str:
    """JSON holds no other bytes; it is only read by people, and as hints of what was."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
