"""Where an API token's secret comes from; what is said where it does not, without a word of it."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import pytest

from fleetstop.core.redact import text
from fleetstop.errors import BadConfig
from fleetstop.remote.token import Secret, read_secret

ID = "fleet@pve!x"
VALUE = "0f5c1d3e-7a52-4e0b-9d57-aaaaaaaaaaaa"


@pytest.mark.parametrize("held", [VALUE, f"{VALUE}\n", f"  {ID}={VALUE}\r\n"])
def test_from_a_variable_a_file_and_a_command(
    held: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "token"
    path.write_text(held)
    monkeypatch.setenv("PVE", held)
    for source in ({"env": "PVE"}, {"file": str(path)}, {"command": f"cat '{path}'"}):
        assert read_secret(source, ID).reveal() == VALUE


def test_it_has_no_readable_form() -> None:
    secret = Secret(VALUE)
    assert VALUE not in f"{secret!r} {secret} {[secret]}"
    assert not hasattr(secret, "__dict__")
    with pytest.raises(TypeError):
        pickle.dumps(secret)
    assert secret.hidden_in(f"no {VALUE}!") == "no ***!"


def test_from_the_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    import types

    errors = types.ModuleType("keyring.errors")
    errors.KeyringError = type("KeyringError", (Exception,), {})  # type: ignore[attr-defined]
    kept = {("pve", ID): VALUE}
    ring = types.ModuleType("keyring")
    ring.get_password = lambda service, who: kept.get((service, who))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "keyring", ring)
    monkeypatch.setitem(sys.modules, "keyring.errors", errors)
    assert read_secret({"keyring": "pve"}, ID).reveal() == VALUE
    with pytest.raises(BadConfig, match="nothing of 'fleet@pve!x' under 'other'"):
        read_secret({"keyring": "other"}, ID)
    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(BadConfig, match="needs the Python package keyring"):
        read_secret({"keyring": "pve"}, ID)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({"env": "FLEETSTOP_UNSET"}, "the variable FLEETSTOP_UNSET .* is not set"),
        ({"env": "EMPTY"}, "the variable EMPTY .* is empty"),
        ({"env": "TWO"}, "the variable TWO .* holds more than one word"),
        ({"file": "/no/such"}, r"the file /no/such .*No such file or directory"),
        ({"file": "/tmp"}, "directory"),
        ({"command": "false"}, "the command false .* ended with 1"),
        ({"command": "/no/such"}, "cannot be run"),
        ({"command": "echo 'x"}, "has an open quote"),
        ({"command": " "}, "is empty"),
    ],
)
def test_where_there_is_none(
    source: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMPTY", " \n")
    monkeypatch.setenv("TWO", f"{VALUE} {VALUE}")
    with pytest.raises(BadConfig, match=said) as caught:
        read_secret(source, ID)
    assert VALUE not in str(caught.value)
    # what is said survives the masking of every screen
    assert text(caught.value.message) == caught.value.message


def test_a_header_cannot_be_smuggled_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("T", f"{VALUE}\r\nCookie: x")
    with pytest.raises(BadConfig):
        read_secret({"env": "T"}, ID)
