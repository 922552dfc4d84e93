"""Which host keys we trust: known_hosts files as OpenSSH reads them; opens no connection."""

from __future__ import annotations

import base64
import functools
import hmac
import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import asyncssh
from asyncssh.public_key import get_default_certificate_algs, get_default_public_key_algs
from msgspec import Struct


class Known(Struct, frozen=True):
    """One line of a known_hosts file; `marker` is `@cert-authority`, `@revoked` or empty."""

    file: str
    line: int
    marker: str
    names: str
    key: str


class Unreadable(Exception):
    """A file of the user's that we need and cannot use; the text says which and where."""


def read_known_hosts(files: Iterable[Path]) -> list[Known]:
    """All entries, in order. A file that does not exist is no entry, as with OpenSSH."""
    entries: list[Known] = []
    for file in files:
        try:
            stat = file.stat()
            entries += _parse(file, stat.st_mtime_ns, stat.st_size)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as exc:
            raise Unreadable(f"cannot read {file}: {exc.strerror}") from exc
    return entries


@functools.lru_cache(maxsize=32)
def _parse(file: Path, _mtime_ns: int, _size: int) -> tuple[Known, ...]:
    lines = file.read_text("utf-8", "replace").splitlines()
    found = (_entry(str(file), number, line) for number, line in enumerate(lines, 1))
    return tuple(entry for entry in found if entry)


def _entry(file: str, number: int, line: str) -> Known | None:
    fields = line.split()
    if not fields or fields[0].startswith("#"):
        return None
    marker = fields.pop(0) if fields[0].startswith("@") else ""
    if marker not in ("", "@cert-authority", "@revoked") or len(fields) < 3:
        raise Unreadable(f"{file}:{number}: not a known_hosts entry")
    names, kind, blob = fields[:3]
    if kind.isdigit():  # SSH 1: no server speaks it any more
        return None
    try:
        sound = base64.b64decode(blob, validate=True)[4:].startswith(kind.encode())
    except ValueError:
        sound = False
    if not sound or (names.startswith("|") and not re.fullmatch(r"\|1\|[\w+/=]+\|[\w+/=]+", names)):
        raise Unreadable(f"{file}:{number}: not a known_hosts entry")
    return Known(file, number, marker, names, f"{kind} {blob}")


def _names(entry: Known, wanted: str) -> bool:
    """Whether the line speaks of `wanted`: `host` or `[host]:port`, in lower case (sshd(8))."""
    if entry.names.startswith("|"):
        salt, digest = (base64.b64decode(part) for part in entry.names.split("|")[2:])
        return hmac.compare_digest(hmac.digest(salt, wanted.encode(), "sha1"), digest)
    hit = False
    for pattern in entry.names.lower().split(","):
        if fnmatchcase(wanted, pattern.removeprefix("!").replace("[", "[[]")):
            if pattern.startswith("!"):
                return False
            hit = True
    return hit


class HostKeys:
    """Answers asyncssh's question which keys to trust, and keeps the answer for the message.

    asyncssh itself also accepts any key known for the address, which a forged DNS answer can
    choose, switches checking off at `UserKnownHostsFile none`, and fails on a missing file.
    """

    def __init__(self, files: Sequence[Path], entries: Sequence[Known], alias: str | None) -> None:
        self.files = tuple(files)
        self.known: list[Known] = []
        self.wanted = ""
        self._entries = entries
        self._alias = alias

    def __call__(self, host: str, _addr: str, port: int | None) -> Any:
        bare = host.lower()
        self.wanted = f"[{bare}]:{port}" if port and not self._alias else bare
        self.known = [entry for entry in self._entries if _names(entry, self.wanted)]
        usable = self.known
        if all(entry.marker == "@revoked" for entry in self.known):
            # ssh also tries the name without its port, but only to find a key that fits
            usable = [e for e in self._entries if e in self.known or _names(e, bare)]
        keys: dict[str, list[asyncssh.SSHKey]] = {"": [], "@cert-authority": [], "@revoked": []}
        for entry in usable:
            try:
                keys[entry.marker].append(asyncssh.import_public_key(entry.key))
            except asyncssh.KeyImportError:
                continue  # a kind of key that this library does not know
        return list(keys.values())

    def algorithms(self, host: str, port: int | None) -> list[str]:
        """What to ask the server for: kinds of key that we know, then the others.

        asyncssh would ask for known kinds only. A server without them hangs up then, and that a
        key has changed could not be told from a network fault.
        """
        trusted, authorities, _ = self(host, "", port)
        algorithms = get_default_certificate_algs() if authorities else []
        algorithms = algorithms + [alg for key in trusted for alg in key.sig_algorithms]
        algorithms += get_default_public_key_algs()
        return [alg.decode("ascii") for alg in dict.fromkeys(algorithms)]

    @property
    def plain(self) -> list[Known]:
        return [entry for entry in self.known if not entry.marker]
