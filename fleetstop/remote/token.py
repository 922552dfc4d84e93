"""An API token's secret, from where the inventory says it is; it has no readable form here."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

from fleetstop.core.redact import MASK
from fleetstop.core.spelling import plain, shown
from fleetstop.errors import BadConfig

_COMMAND_S = 30.0
_LARGEST = 64 * 1024
# a header's value: what Proxmox makes is a UUID
_PRINTED = re.compile(r"[\x21-\x7e]+")


class Secret:
    """Never shown, never written, never compared by eye."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def __repr__(self) -> str:
        return f"Secret({MASK})"

    def __reduce__(self) -> str:
        raise TypeError("a secret is not written anywhere")

    def reveal(self) -> str:
        return self._value

    def hidden_in(self, text: str) -> str:
        """`text`, the secret in it masked: a server may say back what it was told."""
        return text.replace(self._value, MASK)


def read_secret(source: dict[str, str], token_id: str) -> Secret:
    """`source` is one of env, file, command, keyring, as the inventory has it.

    Takes time (a command may ask for a finger on a key): not for a loop's own thread. Raises
    BadConfig, which names the source and never what was found there.
    """
    ((kind, where),) = source.items()
    found = _READERS[kind](where, token_id).strip()
    # pasted as Proxmox prints it, the id stands in front
    found = found.removeprefix(f"{token_id}=")
    if not found:
        raise BadConfig(f"{_NAMED[kind]} {plain(where)} (token_secret of the api) is empty")
    if not _PRINTED.fullmatch(found):
        raise BadConfig(
            f"{_NAMED[kind]} {plain(where)} (token_secret of the api) holds more than one word: "
            "only the secret should be in it"
        )
    return Secret(found)


# No colon stands behind a source's name in a message: it would read as a secret that is told.
_NAMED = {
    "env": "the variable",
    "file": "the file",
    "command": "what is printed by",
    "keyring": "the keyring's",
}


def _of_variable(name: str, _: str) -> str:
    value = os.environ.get(name)
    if value is None:
        raise BadConfig(
            f"the variable {plain(name)} (token_secret of the api) is not set",
            hint=f"read -rs {plain(name)} && export {plain(name)}",
        )
    return value


def _of_file(path: str, _: str) -> str:
    try:
        with Path(path).open("rb") as file:
            return file.read(_LARGEST).decode("utf-8", "replace")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "not a path"
        said = f"the file {plain(path)} (token_secret of the api) cannot be read ({why})"
        raise BadConfig(said) from error


def _of_command(line: str, _: str) -> str:
    """The words of `line`, no shell; its questions and complaints go to the terminal."""
    told = f"the command {plain(line)} (token_secret of the api)"
    try:
        words = shlex.split(line)
    except ValueError:
        raise BadConfig(f"{told} has an open quote") from None
    if not words:
        raise BadConfig(f"{told} is empty")
    try:
        done = subprocess.run(words, stdout=subprocess.PIPE, timeout=_COMMAND_S, check=False)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "not a command"
        raise BadConfig(f"{told} cannot be run ({why})") from error
    except subprocess.TimeoutExpired:  # it holds what was printed so far: not handed on
        done = None
    if done is None:
        raise BadConfig(f"{told} gave no answer within {_COMMAND_S:.0f} s")
    if done.returncode != 0:
        raise BadConfig(f"{told} ended with {done.returncode}")
    return done.stdout.decode("utf-8", "replace")


def _of_keyring(service: str, token_id: str) -> str:
    """The password of `token_id` under this service's name."""
    try:
        import keyring  # type: ignore[import-not-found]  # optional, and brings much along
        from keyring.errors import KeyringError  # type: ignore[import-not-found]
    except ImportError:
        raise BadConfig(
            "the keyring (token_secret of the api) needs the Python package keyring",
            hint="pip install keyring, or name env, file or command instead",
        ) from None
    try:
        found: str | None = keyring.get_password(service, token_id)
    except KeyringError as error:
        said = f"the keyring (token_secret of the api) gave nothing ({type(error).__name__})"
        raise BadConfig(said) from None
    if found is None:
        raise BadConfig(
            f"the keyring has nothing of {shown(token_id)} under {shown(service)}",
            hint=f"keyring set {shlex.quote(service)} {shlex.quote(token_id)}",
        )
    return found


_READERS: dict[str, Callable[[str, str], str]] = {
    "env": _of_variable,
    "file": _of_file,
    "command": _of_command,
    "keyring": _of_keyring,
}
