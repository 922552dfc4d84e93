"""Any of our values as one line of JSON, without secrets; knows neither stream nor event."""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

from fleetstop.core import redact

_BEYOND_ASCII = re.compile(r"[^\x20-\x7e]")
_SHORT = 400
_SURROGATE = re.compile(r"[\ud800-\udfff]")


def line(value: object) -> str:
    """One line of pure ASCII JSON: no secret, no infinity, nothing a terminal would act on."""
    text = msgspec.json.encode(_clean(msgspec.to_builtins(value))).decode()
    return _BEYOND_ASCII.sub(_escaped, text)


def _clean(value: object) -> object:
    """The same value with secrets masked and lone surrogates spelled out."""
    if isinstance(value, str):
        return _text_once(value) if len(value) <= _SHORT else _text(value)
    if isinstance(value, dict):
        return {_clean(key): _clean(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(each) for each in value]
    return value


def _text(value: str) -> str:
    return _SURROGATE.sub(lambda found: redact.safe(found[0]), redact.scrub(value))


# looking for secrets takes a tenth of a millisecond, and a family says the same over and over
_text_once = lru_cache(maxsize=4096)(_text)


def _escaped(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
